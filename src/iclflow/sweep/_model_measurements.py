"""Measurements of the model that a run ends with: its heads, and the algorithm that it is."""

from typing import Any, cast

import numpy as np

from ..analysis import (
    allocation,
    decomposition,
    learned_components,
    learning_order,
    patterns,
    softmax_regimes,
    superposition,
    which_algorithm,
)
from ..config import Config, MultiTask
from ..models import AbstractMultiAttention
from ..tasks import MultiTaskRegression
from ._measurements import Measured, measurement

# Of one layer of attention: the linear networks have none.
_WITHOUT_CIRCUITS = ("two_layer", "convolutional", "stack")


def _needs_circuits(config: Config) -> str | None:
    if config.model.kind not in _WITHOUT_CIRCUITS:
        return None
    return f'needs one layer of attention: `model.kind` = "{config.model.kind}"'


def _needs_tasks(config: Config) -> str | None:
    task = config.task
    if not isinstance(task, MultiTask):
        return f'needs several tasks: `task.kind` = "{task.kind}" must be "multi_task"'
    if not task.disjoint:
        return "needs tasks on coordinates of their own: those of `task.coordinates` overlap"
    return None


def _needs_linear(config: Config) -> str | None:
    if config.task.kind == "linear_regression" and config.model.bilinear:
        return None
    return (
        "needs reduced linear attention on linear regression: "
        f'`model.kind` = "{config.model.kind}", `task.kind` = "{config.task.kind}"'
    )


def _needs_softmax_tasks(config: Config) -> str | None:
    if config.model.softmax and isinstance(config.task, MultiTask):
        return None
    return f'needs softmax attention on several tasks: `task.kind` = "{config.task.kind}"'


def _needs_one_label(config: Config) -> str | None:
    if config.task.bayes_known:
        return None
    return f'needs a known Bayes predictor: `task.kind` = "{config.task.kind}"'


@measurement(
    "patterns",
    _needs_circuits,
    roles="VARCHAR[]",
    positive_heads="BIGINT",
    negative_heads="BIGINT",
    dummy_heads="BIGINT",
    zero_sum="DOUBLE",
    step_size="DOUBLE",
    diagonal_share="DOUBLE",
)
def _patterns(measured: Measured) -> dict[str, Any]:
    """The role of each head on the first label, how many heads are positive, negative and dummies,
    the zero sum of the outputs, the step size, and how diagonal the key-query circuits are."""
    found = patterns(measured.final, task=measured.task)
    return {
        "roles": [str(role) for role in found.roles],
        "positive_heads": found.count("positive"),
        "negative_heads": found.count("negative"),
        "dummy_heads": found.count("dummy"),
        "zero_sum": float(found.zero_sum),
        "step_size": float(found.step_size),
        "diagonal_share": float(found.diagonal_share),
    }


@measurement(
    "allocation",
    _needs_tasks,
    owners="BIGINT[]",
    own_shares="DOUBLE[]",
    one_task_a_head="BOOLEAN",
)
def _allocation(measured: Measured) -> dict[str, Any]:
    """The head of each task (-1 for none), its share in the step on it, and whether each task has
    a head to itself."""
    found = allocation(measured.final, cast(MultiTaskRegression, measured.task))
    return {
        "owners": [int(owner) for owner in found.owners],
        "own_shares": found.own_share,
        "one_task_a_head": bool(found.one_task_a_head),
    }


@measurement("superposition", _needs_tasks, superposed_heads="BIGINT", tasks_per_head="DOUBLE[]")
def _superposition(measured: Measured) -> dict[str, Any]:
    """How many heads work for two tasks or more, and for how many each does, in effect."""
    found = superposition(measured.final, cast(MultiTaskRegression, measured.task))
    return {"superposed_heads": found.superposed, "tasks_per_head": found.tasks_per_head}


@measurement("decomposability", _needs_tasks, decomposition_defect="DOUBLE")
def _decomposability(measured: Measured) -> dict[str, Any]:
    """The largest share of the weights that has no place in a decomposable model; 0 for one."""
    found = decomposition(measured.final, cast(MultiTaskRegression, measured.task))
    return {"decomposition_defect": float(found.largest)}


@measurement("regimes", _needs_softmax_tasks, regimes="VARCHAR[]", attended_tokens="DOUBLE[]")
def _regimes(measured: Measured) -> dict[str, Any]:
    """The softmax regime of each head (exponential, crossover, saturated), and how many tokens it
    attends to, in effect, from 1000 sequences."""
    model = cast(AbstractMultiAttention, measured.final)
    found = softmax_regimes(model, cast(MultiTaskRegression, measured.task))
    return {"regimes": list(found.regimes), "attended_tokens": found.attended}


@measurement(
    "algorithm",
    _needs_one_label,
    algorithm="VARCHAR",
    algorithm_distance="DOUBLE",
    algorithm_error="DOUBLE",
)
def _algorithm(measured: Measured) -> dict[str, Any]:
    """The known estimator that the model is nearest to on fresh sequences (its first label), the
    relative distance, and its standard error. Takes a moment a run."""
    found = which_algorithm(measured.final, measured.task).best
    return {
        "algorithm": found.name,
        "algorithm_distance": float(found.distance),
        "algorithm_error": float(found.standard_error),
    }


@measurement("components", _needs_linear, components="BIGINT", learning_order="BIGINT[]")
def _components(measured: Measured) -> dict[str, Any]:
    """How many eigenvectors of the inputs are learned at the end, and in which order they were
    (0 has the largest eigenvalue)."""
    run, task = measured.run, measured.task
    normaliser: Any = getattr(run.models, "normaliser", "context")
    matrix = np.asarray(run.final.coefficients())
    learned = learned_components(matrix, task, normaliser=normaliser)
    return {"components": len(learned), "learning_order": list(learning_order(run, task))}
