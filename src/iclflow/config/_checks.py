"""What the settings of a config must be to one another. Each error is one sentence."""

from typing import TYPE_CHECKING

from ..errors import InputError
from ..limits import MAX_FEATURES, feature_count
from ._available import describe_pair, list_choices, risk_kinds
from ._function_task import SparseTask
from ._limits import GIB, memory_here
from ._memory import PROGRAM, largest_setting, memory_needed
from ._multi_model import MultiSpectralModel
from ._task import InContextInWeightTask, LinearRegressionTask, MultiTask
from ._training import (
    GradientDescent,
    GradientFlow,
    MinibatchRisk,
    SampledRisk,
    SaveExplicit,
    SaveLinear,
    SaveLog,
)

if TYPE_CHECKING:
    from ._config import Config


def check(config: "Config") -> None:
    """Refuses settings that do not go together."""
    _check_sizes(config)
    _check_risk(config)
    _check_flow(config)
    _check_save(config)


def _check_sizes(config: "Config") -> None:
    task, model = config.task, config.model
    if isinstance(task, LinearRegressionTask | InContextInWeightTask):
        _check_regression(task)
    if isinstance(task, SparseTask) and task.sparsity > task.inputs:
        raise InputError(
            "task.sparsity", task.sparsity, f"must not exceed `task.inputs` = {task.inputs}"
        )
    if isinstance(task, MultiTask):
        last = max(max(read) for read in task.coordinates)
        if last >= task.dim:
            raise InputError(
                "task.inputs",
                task.inputs,
                f"must be at least {last + 1}, because `task.coordinates` go up to {last}",
            )
    if model.multi != isinstance(task, MultiTask):
        several = 'one of "multi_merged", "multi_factored", "multi_structured", "multi_blind" and '
        several += '"multi_spectral"'
        wanted = several if isinstance(task, MultiTask) else "a kind with one label"
        raise InputError(
            "model.kind",
            problem=f'= "{model.kind}" does not fit `task.kind` = "{task.kind}"',
            allowed=f"must be {wanted}",
        )
    if isinstance(model, MultiSpectralModel) and isinstance(task, MultiTask):
        _check_spectral(task, model)
    if model.widest_rank > task.dim:
        raise InputError(
            "model.rank", model.widest_rank, f"must not exceed the input dimension, {task.dim}"
        )


def _check_spectral(task: MultiTask, model: MultiSpectralModel) -> None:
    if not task.disjoint:
        raise InputError(
            "model.kind",
            problem='= "multi_spectral" needs tasks on coordinates of their own',
            allowed="those of `task.coordinates` must not overlap",
        )
    matrices = model.weights in ("matrices", "tokens")
    if task.rotated and not matrices:
        raise InputError(
            "model.weights",
            problem=f'= "{model.weights}" on a rotated task',
            allowed='must be "matrices" or "tokens", or the task be without its rotation, which '
            "changes no loss",
        )
    if model.weights == "balanced" and (model.key_imbalance or model.value_imbalance):
        name = "key_imbalance" if model.key_imbalance else "value_imbalance"
        allowed = 'must be 0 for `model.weights` = "balanced"'
        raise InputError(f"model.{name}", getattr(model, name), allowed)
    needed = max(task.dim, task.labels)
    if matrices and model.width is not None and model.width < needed:
        raise InputError(
            "model.width",
            model.width,
            f"must be at least {needed}, the number of inputs and of labels, for "
            "matrices with given singular values",
        )


def _check_regression(task: LinearRegressionTask | InContextInWeightTask) -> None:
    if (task.eigenvalues is None) == (task.covariance is None):
        given = "neither is" if task.eigenvalues is None else "both are"
        raise InputError(
            "task.eigenvalues",
            problem="and `task.covariance`",
            allowed=f"{given} given, must be exactly one",
        )
    if task.prior_covariance is not None and task.prior_variance is not None:
        raise InputError(
            "task.prior_covariance",
            problem="and `task.prior_variance`",
            allowed="both are given, must be at most one",
        )


def _check_risk(config: "Config") -> None:
    task, model, kind = config.task, config.model, config.risk.kind
    if task.linear and model.cubic and kind in ("best", "exact"):
        _check_features(config)
    kinds = risk_kinds(task, model)
    if kind not in ("best", *kinds):
        raise InputError(
            "risk.kind",
            problem=f'= "{kind}" does not exist for {describe_pair(task, model, kind)}',
            allowed=f"must be {list_choices(kinds)}",
        )
    if isinstance(config.risk, SampledRisk) and config.risk.integrate == "posterior":
        if not task.bayes_known:
            raise InputError(
                "risk.integrate",
                problem='= "posterior" needs the Bayes predictor, which is not known for this '
                f'`task.kind` = "{task.kind}"',
                allowed='must be "auto" or "none"',
            )
    if isinstance(config.risk, MinibatchRisk) and config.risk.batch > config.risk.sequences:
        raise InputError(
            "risk.batch",
            config.risk.batch,
            f"must not exceed `risk.sequences` = {config.risk.sequences}",
        )


def _check_features(config: "Config") -> None:
    """Refuses linear attention of too many features, of which the other risks may still be had."""
    model, dim = config.model, config.task.dim
    features = feature_count("cubic", dim)
    if features > MAX_FEATURES:
        name, value = ("kind", "factored") if model.kind == "factored" else ("form", "full")
        raise InputError(
            f"model.{name}",
            problem=f'= "{value}" at input dimension {dim} has {features} features',
            allowed=f"an exact risk exists for {MAX_FEATURES} at most, so `risk.kind` must be "
            '"sampled"',
        )


def _check_flow(config: "Config") -> None:
    if isinstance(config.flow, GradientFlow):
        if config.stochastic:
            raise InputError(
                "flow.kind",
                problem='= "gradient_flow" needs a risk without randomness',
                allowed=f'`risk.kind` must be {_deterministic(config)}, or `flow.kind` "sgd" or '
                '"adam"',
            )
        if config.flow.end is None and not (config.model.bilinear or config.model.cubic):
            name = "softmax" if config.model.softmax else "such"
            raise InputError(
                "flow.end",
                problem="is missing",
                allowed=f"{name} attention has no known smallest loss, so the run must be told "
                "when to end",
            )
    elif isinstance(config.flow, GradientDescent) and config.stochastic:
        raise InputError(
            "flow.kind",
            problem='= "gradient_descent" needs a risk without randomness',
            allowed='with random sequences at every step it must be "sgd" or "adam"',
        )


def _deterministic(config: "Config") -> str:
    kinds = risk_kinds(config.task, config.model)
    return list_choices(tuple(kind for kind in kinds if kind not in ("minibatch", "sampled")))


def _check_save(config: "Config") -> None:
    save, flow = config.save, config.flow
    end = flow.end if isinstance(flow, GradientFlow) else float(flow.steps)
    if isinstance(save, SaveLinear | SaveLog) and end is None:
        raise InputError(
            "save.kind",
            problem=f'= "{save.kind}" needs a run with a known end',
            allowed='give `flow.end`, or use "drops"',
        )
    if isinstance(save, SaveLog) and end is not None and save.first >= end:
        raise InputError("save.first", save.first, f"must lie before the end, {end:g}")
    if isinstance(save, SaveExplicit):
        times = save.times
        if any(later <= earlier for earlier, later in zip(times, times[1:])):
            raise InputError("save.times", times, "must increase strictly")
        if end is not None and times[-1] > end:
            raise InputError(
                "save.times",
                problem=f"ends at {times[-1]:g}",
                allowed=f"must lie within the run, which ends at {end:g}",
            )


def check_memory(config: "Config") -> None:
    """Refuses a run that would need more memory than this process may take."""
    needed, here = memory_needed(config), memory_here()
    total = sum(needed.values())
    if total <= here.usable:
        return
    words = f"would need about {total / GIB:.3g} GiB of memory, and may take {here.sentence}"
    if needed[PROGRAM] > here.usable:
        raise InputError(f"There is too little memory for any run: one {words}.")
    name = largest_setting(needed)
    section, _, key = name.partition(".")
    value = getattr(getattr(config, section), key) if key else None
    value = ... if value is None else value
    raise InputError(name, value, f"the run {words}", _why(config, name))


def _why(config: "Config", name: str) -> str:
    if name != "flow.solver":
        return "is too large"
    weights = config.model.weight_count(config.task.dim, config.task.labels)
    return f"factorises a matrix with a row for each of {weights} weights"
