"""What the settings of a config must be to one another. Each error is one sentence."""

from typing import TYPE_CHECKING

from ._available import ALWAYS, described, listed, risk_kinds
from ._errors import shown
from ._function_task import SparseTask
from ._limits import GIB, memory_here
from ._memory import PROGRAM, largest_setting, memory_needed
from ._multi_model import MultiSpectralModel
from ._task import InContextInWeightTask, LinearRegressionTask, MultiTask
from ._training import (
    BestRisk,
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

# Exact moments of the full form are a square matrix with a row for every feature.
LARGEST_FEATURES = 4096


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
        raise ValueError(
            f"`task.sparsity` = {task.sparsity}: must not exceed `task.inputs` = {task.inputs}."
        )
    if isinstance(task, MultiTask):
        last = max(max(read) for read in task.coordinates)
        if last >= task.dim:
            raise ValueError(
                f"`task.inputs` = {task.inputs}: must be at least {last + 1}, because "
                f"`task.coordinates` go up to {last}."
            )
    if model.multi != isinstance(task, MultiTask):
        several = 'one of "multi_merged", "multi_factored", "multi_structured", "multi_blind" and '
        several += '"multi_spectral"'
        wanted = several if isinstance(task, MultiTask) else "a kind with one label"
        raise ValueError(
            f'`model.kind` = "{model.kind}" does not fit `task.kind` = "{task.kind}": must be '
            f"{wanted}."
        )
    if isinstance(model, MultiSpectralModel) and isinstance(task, MultiTask):
        _check_spectral(task, model)
    if model.widest_rank > task.dim:
        raise ValueError(
            f"`model.rank` = {model.widest_rank}: must not exceed the input dimension, {task.dim}."
        )


def _check_spectral(task: MultiTask, model: MultiSpectralModel) -> None:
    if not task.disjoint:
        raise ValueError(
            '`model.kind` = "multi_spectral" needs tasks on coordinates of their own: those of '
            "`task.coordinates` must not overlap."
        )
    matrices = model.weights in ("matrices", "tokens")
    if task.rotated and not matrices:
        raise ValueError(
            f'`model.weights` = "{model.weights}" on a rotated task: must be "matrices" or '
            '"tokens", or the task be without its rotation, which changes no loss.'
        )
    if model.weights == "balanced" and (model.key_imbalance or model.value_imbalance):
        name = "key_imbalance" if model.key_imbalance else "value_imbalance"
        raise ValueError(
            f"`model.{name}` = {getattr(model, name):g}: must be 0 for `model.weights` = "
            '"balanced".'
        )
    needed = max(task.dim, task.labels)
    if matrices and model.width is not None and model.width < needed:
        raise ValueError(
            f"`model.width` = {model.width}: must be at least {needed}, the number of inputs and "
            "of labels, for matrices with given singular values."
        )


def _check_regression(task: LinearRegressionTask | InContextInWeightTask) -> None:
    if (task.eigenvalues is None) == (task.covariance is None):
        given = "neither is" if task.eigenvalues is None else "both are"
        raise ValueError(
            f"`task.eigenvalues` and `task.covariance`: {given} given, must be exactly one."
        )
    if task.prior_covariance is not None and task.prior_variance is not None:
        raise ValueError(
            "`task.prior_covariance` and `task.prior_variance`: both are given, must be at most "
            "one."
        )


def _check_risk(config: "Config") -> None:
    task, model, dim = config.task, config.model, config.task.dim
    kinds = risk_kinds(task, model)
    kind = config.risk.kind
    if kind not in kinds and not isinstance(config.risk, BestRisk):
        raise ValueError(
            f'`risk.kind` = "{kind}" does not exist for {described(task, model, kind)}: must be '
            f"{listed(kinds)}."
        )
    if isinstance(config.risk, SampledRisk) and config.risk.integrate == "posterior":
        if not task.bayes_known:
            raise ValueError(
                f'`risk.integrate` = "posterior" needs the Bayes predictor, which is not known for '
                f'this `task.kind` = "{task.kind}": must be "auto" or "none".'
            )
    features = dim * (dim + 1) * (dim + 2) // 2
    if config.exact and model.cubic and features > LARGEST_FEATURES:
        setting = (
            '`model.form` = "full"' if model.kind != "factored" else '`model.kind` = "factored"'
        )
        raise ValueError(
            f"{setting} at input dimension {dim} has {features} features: an exact "
            f'risk exists for {LARGEST_FEATURES} at most, so `risk.kind` must be "sampled".'
        )
    if isinstance(config.risk, MinibatchRisk) and config.risk.batch > config.risk.sequences:
        raise ValueError(
            f"`risk.batch` = {config.risk.batch}: must not exceed `risk.sequences` = "
            f"{config.risk.sequences}."
        )


def _check_flow(config: "Config") -> None:
    if isinstance(config.flow, GradientFlow):
        if config.stochastic:
            raise ValueError(
                '`flow.kind` = "gradient_flow" needs a risk without randomness: `risk.kind` must '
                f'be {_deterministic(config)}, or `flow.kind` "sgd" or "adam".'
            )
        if config.flow.end is None and not (config.model.bilinear or config.model.cubic):
            name = "softmax" if config.model.softmax else "such"
            raise ValueError(
                f"`flow.end` is missing: {name} attention has no known smallest loss, so the run "
                "must be told when to end."
            )
    elif isinstance(config.flow, GradientDescent) and config.stochastic:
        raise ValueError(
            '`flow.kind` = "gradient_descent" needs a risk without randomness: with random '
            'sequences at every step it must be "sgd" or "adam".'
        )


def _deterministic(config: "Config") -> str:
    kinds = risk_kinds(config.task, config.model)
    return listed(tuple(kind for kind in kinds if kind not in ALWAYS or kind == "dataset"))


def _check_save(config: "Config") -> None:
    save, flow = config.save, config.flow
    end = flow.end if isinstance(flow, GradientFlow) else float(flow.steps)
    if isinstance(save, SaveLinear | SaveLog) and end is None:
        raise ValueError(
            f'`save.kind` = "{save.kind}" needs a run with a known end: give `flow.end`, or use '
            '"drops".'
        )
    if isinstance(save, SaveLog) and end is not None and save.first >= end:
        raise ValueError(f"`save.first` = {save.first:g}: must lie before the end, {end:g}.")
    if isinstance(save, SaveExplicit):
        times = save.times
        if any(later <= earlier for earlier, later in zip(times, times[1:])):
            raise ValueError("`save.times` must increase strictly.")
        if end is not None and times[-1] > end:
            raise ValueError(
                f"`save.times` ends at {times[-1]:g}: must lie within the run, which ends at "
                f"{end:g}."
            )


def check_memory(config: "Config") -> None:
    """Refuses a run that would need more memory than this process may take."""
    needed, here = memory_needed(config), memory_here()
    total = sum(needed.values())
    if total <= here.usable:
        return
    if needed[PROGRAM] > here.usable:
        subject = "There is too little memory for any run: one"
    else:
        name = largest_setting(needed)
        subject = f"{_with_value(config, name)} {_why(config, name)}: the run"
    raise ValueError(
        f"{subject} would need about {total / GIB:.3g} GiB of memory, and may take {here.sentence}."
    )


def _why(config: "Config", name: str) -> str:
    if name != "flow.solver":
        return "is too large"
    weights = config.model.weight_count(config.task.dim, config.task.labels)
    return f"factorises a matrix with a row for each of {weights} weights"


def _with_value(config: "Config", name: str) -> str:
    section, _, key = name.partition(".")
    value = getattr(getattr(config, section), key) if key else None
    return f"`{name}`" if value is None else f"`{name}` = {shown(value)}"
