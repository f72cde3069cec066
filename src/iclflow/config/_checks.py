"""What the settings of a config must be to one another. Each error is one sentence."""

from typing import TYPE_CHECKING

from ._errors import shown
from ._limits import GIB, memory_here, memory_needed
from ._training import (
    ExactRisk,
    GradientDescent,
    GradientFlow,
    MinibatchRisk,
    SaveExplicit,
    SaveLinear,
    SaveLog,
)

if TYPE_CHECKING:
    from ._config import Config

# Exact moments of the full form are a square matrix with a row for every feature.
LARGEST_FEATURES = 4096


def check(config: "Config") -> None:
    """Refuses settings that do not go together, or that this machine cannot run."""
    _check_sizes(config)
    _check_risk(config)
    _check_flow(config)
    _check_save(config)
    _check_memory(config)


def _check_sizes(config: "Config") -> None:
    task, model = config.task, config.model
    if (task.eigenvalues is None) == (task.covariance is None):
        given = "neither is" if task.eigenvalues is None else "both are"
        raise ValueError(
            f"`task.eigenvalues` and `task.covariance`: {given} given, must be exactly one."
        )
    if model.widest_rank > task.dim:
        raise ValueError(
            f"`model.rank` = {model.widest_rank}: must not exceed the input dimension, {task.dim}."
        )


def _check_risk(config: "Config") -> None:
    model, dim = config.model, config.task.dim
    if isinstance(config.risk, ExactRisk) and model.softmax:
        raise ValueError(
            '`risk.kind` = "exact" does not exist for softmax attention: must be "dataset", '
            '"minibatch" or "sampled".'
        )
    features = dim * (dim + 1) * (dim + 2) // 2
    if config.exact and not model.bilinear and features > LARGEST_FEATURES:
        raise ValueError(
            f'`model.form` = "full" at input dimension {dim} has {features} features: an exact '
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
        if config.flow.end is None and config.model.softmax:
            raise ValueError(
                "`flow.end` is missing: softmax attention has no known smallest loss, so the run "
                "must be told when to end."
            )
    elif isinstance(config.flow, GradientDescent) and config.stochastic:
        raise ValueError(
            '`flow.kind` = "gradient_descent" needs a risk without randomness: with random '
            'sequences at every step it must be "sgd" or "adam".'
        )


def _deterministic(config: "Config") -> str:
    return '"dataset"' if config.model.softmax else '"exact" or "dataset"'


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


def _check_memory(config: "Config") -> None:
    needed, here = memory_needed(config), memory_here()
    total = sum(needed.values())
    if total > 0.75 * here:
        name = max(needed, key=lambda key: needed[key])
        raise ValueError(
            f"{_with_value(config, name)} is too large: the run would need about "
            f"{total / GIB:.3g} GiB of memory, and this machine has {here / GIB:.3g} GiB."
        )


def _with_value(config: "Config", name: str) -> str:
    section, _, key = name.partition(".")
    value = getattr(getattr(config, section), key) if key else None
    return f"`{name}`" if value is None else f"`{name}` = {shown(value)}"
