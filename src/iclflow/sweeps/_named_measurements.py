"""The measurements of `iclflow.analysis` that a sweep can name, each with the columns it fills."""

from collections.abc import Callable
from typing import Any

import jax.random as jr
import numpy as np

from ..analysis import (
    TestLosses,
    allocation,
    best_step_risk,
    decomposition,
    drop_count,
    drop_times,
    exponential_fit,
    fresh_loss,
    learned_components,
    learning_order,
    learning_phases,
    patterns,
    plateaus,
    recall_distances,
    sharpness,
    softmax_regimes,
    superposition,
    test_losses,
    which_algorithm,
)
from ..config import MultiTask
from ..estimators import Bayes, DebiasedGradientStep, GradientStep
from ..trajectory import Trajectory
from ._measurements import MEASUREMENTS as MEASUREMENTS
from ._measurements import FinishedRun, Need, add_measurement

# Sequences from which the Bayes risk is estimated: to 0.5 % or better.
_BAYES_COUNT = 100_000
# Fresh sequences on which a model is compared with Bayes.
_FRESH_COUNT = 20_000
# Shorter curves have neither plateaus nor drops.
_SHORTEST_CURVE = 3
# Models that are not one layer of attention.
_WITHOUT_CIRCUITS = ("two_layer", "convolutional", "stack")

# Values that depend on the task alone, by measurement and task: most runs of a sweep share a task.
_OF_TASKS: dict[tuple[str, str], Any] = {}


def _once_per_task(name: str, run: FinishedRun, compute: Callable[[], Any]) -> Any:
    key = name, repr(run.config.task)
    if key not in _OF_TASKS:
        _OF_TASKS[key] = compute()
    return _OF_TASKS[key]


def _curve(run: FinishedRun) -> Trajectory:
    count = len(run.trajectory)
    if count < _SHORTEST_CURVE:
        raise ValueError(f"The run has {count} points: a curve needs at least {_SHORTEST_CURVE}.")
    return run.trajectory


# What measurements need of a config ----------------------------------------------------------

_TASK, _MODEL = '`task.kind` = "{0.task.kind}"', '`model.kind` = "{0.model.kind}"'
_BAYES = Need(lambda c: c.task.bayes_known, f"needs a known Bayes predictor: {_TASK}")
_BAYES_OF_ONE_LABEL = Need(
    lambda c: c.task.bayes_known and c.task.labels == 1,
    f"needs one label with a known Bayes predictor: {_TASK}",
)
_REGRESSION = Need(
    lambda c: c.task.kind == "linear_regression", f"needs linear regression: {_TASK}"
)
_CIRCUITS = Need(
    lambda c: c.model.kind not in _WITHOUT_CIRCUITS, f"needs one layer of attention: {_MODEL}"
)
_LINEAR = Need(
    lambda c: c.task.kind == "linear_regression" and c.model.bilinear,
    f"needs reduced linear attention on linear regression: {_MODEL}, {_TASK}",
)
_KNOWN_MOMENTS = Need(
    lambda c: c.task.linear and (c.model.bilinear or c.model.cubic),
    f"needs linear attention on linear regression: {_MODEL}, {_TASK}",
)
_NOISY_FEW_TASKS = Need(
    lambda c: c.task.kind == "finite_tasks" and c.task.noise > 0,
    f"needs finitely many tasks with label noise: {_TASK}",
)
_SEVERAL = Need(
    lambda c: isinstance(c.task, MultiTask), f'needs several tasks: {_TASK} must be "multi_task"'
)
_DISJOINT = Need(
    lambda c: c.task.disjoint,
    "needs tasks on coordinates of their own: those of `task.coordinates` overlap",
)
_SOFTMAX_TASKS = Need(
    lambda c: c.model.softmax and isinstance(c.task, MultiTask),
    f"needs softmax attention on several tasks: {_TASK}",
)

# Losses ---------------------------------------------------------------------------------------


def _floor(run: FinishedRun) -> float:
    floor = run.floor()
    if floor is None:
        raise ValueError("The smallest loss that these weights can reach is not known.")
    return floor


add_measurement(
    "floor",
    "The smallest loss that weights of this shape can reach, and how far above it a run ends.",
    lambda run: {"floor": _floor(run), "over_floor": run.trajectory.losses[-1] - _floor(run)},
    floor="DOUBLE",
    over_floor="DOUBLE",
)


def _bayes(run: FinishedRun) -> dict[str, Any]:
    estimate = lambda: Bayes(run.task).risk(run.task, jr.key(0), _BAYES_COUNT)
    found = _once_per_task("bayes", run, estimate)
    risk, error = float(found.value), float(found.standard_error)
    over = run.trajectory.losses[-1] - risk
    return {"bayes_risk": risk, "bayes_error": error, "over_bayes": over}


add_measurement(
    "bayes",
    "The risk of the Bayes predictor, from 100 000 sequences, with its standard error; and how far "
    "above it a run ends.",
    _bayes,
    _BAYES_OF_ONE_LABEL,
    bayes_risk="DOUBLE",
    bayes_error="DOUBLE",
    over_bayes="DOUBLE",
)
add_measurement(
    "fresh",
    "The loss of the last model on 20 000 fresh sequences, the standard error of its distance from "
    "Bayes, and the Bayes risk on the same sequences.",
    lambda run: fresh_loss(run.final, run.task, count=_FRESH_COUNT),
    _BAYES_OF_ONE_LABEL,
    fresh_loss=("DOUBLE", lambda found: found.loss),
    fresh_error=("DOUBLE", lambda found: found.standard_error),
    fresh_bayes=("DOUBLE", lambda found: found.bayes),
)


def _steps(run: FinishedRun) -> dict[str, Any]:
    kinds = {"gradient_step_risk": GradientStep, "debiased_step_risk": DebiasedGradientStep}
    compute = lambda: {name: best_step_risk(kind, run.task) for name, kind in kinds.items()}
    return _once_per_task("steps", run, compute)


add_measurement(
    "steps",
    "The exact risk of one gradient step of the best size, plain and with the context centred.",
    _steps,
    _REGRESSION,
    gradient_step_risk="DOUBLE",
    debiased_step_risk="DOUBLE",
)

# Losses on test distributions -----------------------------------------------------------------


def _test_losses(run: FinishedRun) -> TestLosses:
    return test_losses(run.trajectory, run.task)


def _last_test_losses(run: FinishedRun) -> TestLosses:
    return test_losses(run.trajectory[-1:], run.task)


add_measurement(
    "idg",
    "The exact loss of the last model on fresh sequences of the training tasks.",
    _last_test_losses,
    _KNOWN_MOMENTS,
    idg=("DOUBLE", lambda found: found.idg[-1]),
)
add_measurement(
    "icl",
    "The exact loss of the last model on unseen tasks.",
    _last_test_losses,
    _KNOWN_MOMENTS,
    icl=("DOUBLE", lambda found: found.icl[-1]),
)
add_measurement(
    "g_task",
    "How much larger the exact loss of the last model is on unseen tasks than on those of the "
    "training.",
    _last_test_losses,
    _KNOWN_MOMENTS,
    g_task=("DOUBLE", lambda found: found.g_task[-1]),
)
add_measurement(
    "overshoot",
    "The smallest loss on unseen tasks over the run, when it is reached, and how far above it the "
    "run ends.",
    _test_losses,
    _KNOWN_MOMENTS,
    overshoot="DOUBLE",
    best_icl=("DOUBLE", lambda found: found.best.loss),
    best_time=("DOUBLE", lambda found: found.best.time),
)

add_measurement(
    "recall",
    "The mean squared distances (over D) of the last model from dMMSE, which recalls the tasks of "
    "the training, and from the best ridge regression: on those tasks and on unseen ones.",
    lambda run: recall_distances(run.trajectory[-1:], run.task),
    _NOISY_FEW_TASKS,
    dmmse_idg=("DOUBLE", lambda found: found.dmmse_idg[-1]),
    ridge_idg=("DOUBLE", lambda found: found.ridge_idg[-1]),
    dmmse_icl=("DOUBLE", lambda found: found.dmmse_icl[-1]),
    ridge_icl=("DOUBLE", lambda found: found.ridge_icl[-1]),
)

# The curve of the loss ------------------------------------------------------------------------

add_measurement(
    "plateaus",
    "How many plateaus the loss has, their levels, and when each begins and ends.",
    lambda run: plateaus(_curve(run)),
    plateaus=("BIGINT", len),
    plateau_levels=("DOUBLE[]", lambda found: [plateau.level for plateau in found]),
    plateau_starts=("DOUBLE[]", lambda found: [plateau.start for plateau in found]),
    plateau_ends=("DOUBLE[]", lambda found: [plateau.end for plateau in found]),
)
add_measurement(
    "drops",
    "How many quick drops the loss has, and when half of the way between two plateaus is done.",
    _curve,
    drops=("BIGINT", drop_count),
    drop_times=("DOUBLE[]", drop_times),
)
add_measurement(
    "phases",
    "When 5 % and 95 % of the drop of the loss are done, and whether it has come to rest.",
    lambda run: learning_phases(_curve(run)),
    emergence="DOUBLE",
    convergence="DOUBLE",
    settled="BOOLEAN",
)
add_measurement(
    "sharpness",
    "t10/t90: when a tenth of the way down is done, over when nine tenths are; 1 for a step, "
    "0.0458 for an exponential.",
    _curve,
    sharpness=("DOUBLE", sharpness),
)
add_measurement(
    "exponential",
    "The rate of the exponential nearest to the loss, and its largest deviation as a share of the "
    "way down: small in the lazy regime.",
    lambda run: exponential_fit(_curve(run)),
    exponential_rate=("DOUBLE", lambda found: found.rate),
    exponential_deviation=("DOUBLE", lambda found: found.deviation),
)

# The model at the end -------------------------------------------------------------------------

add_measurement(
    "patterns",
    "The role of each head on the first label, how many heads are positive, negative and dummies, "
    "the zero sum of the outputs, the step size, and how diagonal the key-query circuits are.",
    lambda run: patterns(run.final, task=run.task),
    _CIRCUITS,
    roles=("VARCHAR[]", lambda found: [str(role) for role in found.roles]),
    positive_heads=("BIGINT", lambda found: found.count("positive")),
    negative_heads=("BIGINT", lambda found: found.count("negative")),
    dummy_heads=("BIGINT", lambda found: found.count("dummy")),
    zero_sum="DOUBLE",
    step_size="DOUBLE",
    diagonal_share="DOUBLE",
)
add_measurement(
    "allocation",
    "The head of each task (-1 for none), its share in the step on it, and whether each task has a "
    "head to itself.",
    lambda run: allocation(run.final, run.task),
    _SEVERAL,
    _DISJOINT,
    owners="BIGINT[]",
    own_shares=("DOUBLE[]", lambda found: found.own_share),
    one_task_a_head="BOOLEAN",
)
add_measurement(
    "superposition",
    "How many heads work for two tasks or more, and for how many each does, in effect.",
    lambda run: superposition(run.final, run.task),
    _SEVERAL,
    _DISJOINT,
    superposed_heads=("BIGINT", lambda found: found.superposed),
    tasks_per_head="DOUBLE[]",
)
add_measurement(
    "decomposability",
    "The largest share of the weights that has no place in a decomposable model; 0 for one.",
    lambda run: decomposition(run.final, run.task),
    _SEVERAL,
    _DISJOINT,
    decomposition_defect=("DOUBLE", lambda found: found.largest),
)
add_measurement(
    "regimes",
    "The softmax regime of each head (exponential, crossover, saturated), and how many tokens it "
    "attends to, in effect, from 1000 sequences.",
    lambda run: softmax_regimes(run.final, run.task),
    _SOFTMAX_TASKS,
    regimes="VARCHAR[]",
    attended_tokens=("DOUBLE[]", lambda found: found.attended),
)
add_measurement(
    "algorithm",
    "The known estimator that the model is nearest to on fresh sequences (its first label), the "
    "relative distance, and its standard error. Takes a moment per run.",
    lambda run: which_algorithm(run.final, run.task).best,
    _BAYES,
    algorithm=("VARCHAR", lambda found: found.name),
    algorithm_distance=("DOUBLE", lambda found: found.distance),
    algorithm_error=("DOUBLE", lambda found: found.standard_error),
)


def _components(run: FinishedRun) -> dict[str, Any]:
    trajectory = run.trajectory
    normaliser: Any = getattr(trajectory.models, "normaliser", "context")
    matrix = np.asarray(trajectory.final.coefficients())
    learned = learned_components(matrix, run.task, normaliser=normaliser)
    return {"components": len(learned), "learning_order": learning_order(trajectory, run.task)}


add_measurement(
    "components",
    "How many eigenvectors of the inputs are learned at the end, and in which order they were "
    "(0 has the largest eigenvalue).",
    _components,
    _LINEAR,
    components="BIGINT",
    learning_order="BIGINT[]",
)
