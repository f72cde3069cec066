"""Measurements of the loss of a run: its end, its plateaus, its drops, its phases."""

from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ..analysis import (
    drop_count,
    drop_times,
    exponential_fit,
    learning_phases,
    plateaus,
    sharpness,
)
from ..config import Config
from ..estimators import Bayes, DebiasedGradientStep, GradientStep
from ..models import AbstractModel
from ..risks import SampledRisk
from ..tasks import AbstractTask
from ..trajectory import Trajectory
from ._measurements import Measured, measurement

# Sequences from which the Bayes risk is estimated: 0.5 % of it or better.
_BAYES_COUNT = 100_000
# Fresh sequences for a model, and how many at a time.
_FRESH_COUNT, _AT_A_TIME = 20_000, 5000
_BAYES: dict[str, tuple[float, float]] = {}
_STEPS: dict[str, tuple[float, ...]] = {}


def _curve(measured: Measured) -> Trajectory:
    if len(measured.run) < 3:
        raise ValueError(f"The run has {len(measured.run)} points: a curve needs at least 3.")
    return measured.run


@measurement("floor", floor="DOUBLE", over_floor="DOUBLE")
def _floor(measured: Measured) -> dict[str, Any]:
    """The smallest loss that weights of this shape can reach, and how far above it a run ends."""
    floor = measured.floor()
    if floor is None:
        raise ValueError("The smallest loss that these weights can reach is not known.")
    return {"floor": floor, "over_floor": float(measured.run.losses[-1]) - floor}


def _needs_bayes(config: Config) -> str | None:
    if config.task.bayes_known and config.task.labels == 1:
        return None
    return f'needs one label with a known Bayes predictor: `task.kind` = "{config.task.kind}"'


@measurement("bayes", _needs_bayes, bayes_risk="DOUBLE", bayes_error="DOUBLE", over_bayes="DOUBLE")
def _bayes(measured: Measured) -> dict[str, Any]:
    """The risk of the Bayes predictor, from 100 000 sequences, with its standard error; and how
    far above it a run ends."""
    name = repr(measured.config.task)
    if name not in _BAYES:
        found = Bayes(measured.task).risk(measured.task, jr.key(0), _BAYES_COUNT)
        _BAYES[name] = float(found.value), float(found.standard_error)
    risk, error = _BAYES[name]
    over = float(measured.run.losses[-1]) - risk
    return {"bayes_risk": risk, "bayes_error": error, "over_bayes": over}


@measurement("fresh", _needs_bayes, fresh_loss="DOUBLE", fresh_error="DOUBLE", fresh_bayes="DOUBLE")
def _fresh(measured: Measured) -> dict[str, Any]:
    """The loss of the last model on 20 000 fresh sequences, the standard error of its distance
    from Bayes, and the Bayes risk on the same sequences."""
    task = measured.task
    sampled = SampledRisk(task, batch=_AT_A_TIME, posterior_target=True)
    keys = jr.split(jr.key(0), _FRESH_COUNT // _AT_A_TIME)
    both = [
        np.concatenate([np.asarray(_losses(sampled, each, key)) for key in keys])
        for each in (measured.final, Bayes(task))
    ]
    distance = both[0] - both[1]
    error = distance.std(ddof=1) / np.sqrt(len(distance))
    return {"fresh_loss": both[0].mean(), "fresh_error": error, "fresh_bayes": both[1].mean()}


@eqx.filter_jit
def _losses(sampled: SampledRisk, model: AbstractModel, key: PRNGKeyArray):
    return sampled.losses(model, key, _AT_A_TIME)


def _needs_regression(config: Config) -> str | None:
    if config.task.kind == "linear_regression":
        return None
    return f'needs linear regression: `task.kind` = "{config.task.kind}"'


@measurement("steps", _needs_regression, gradient_step_risk="DOUBLE", debiased_step_risk="DOUBLE")
def _steps(measured: Measured) -> dict[str, Any]:
    """The exact risk of one gradient step of the best size, plain and with the context centred."""
    name = repr(measured.config.task)
    if name not in _STEPS:
        kinds = (GradientStep, DebiasedGradientStep)
        _STEPS[name] = tuple(_smallest(kind, measured.task) for kind in kinds)
    return dict(zip(("gradient_step_risk", "debiased_step_risk"), _STEPS[name]))


def _smallest(kind: type[GradientStep | DebiasedGradientStep], task: AbstractTask) -> float:
    """The smallest risk over step sizes: it is a parabola, which three of them determine."""
    found = [kind(size).exact_risk(task) for size in (-1.0, 0.0, 1.0)]
    left, middle, right = (float(each) for each in found if each is not None)
    slope, square = (right - left) / 2, (right + left) / 2 - middle
    return middle - slope**2 / (4 * square)


@measurement(
    "plateaus",
    plateaus="BIGINT",
    plateau_levels="DOUBLE[]",
    plateau_starts="DOUBLE[]",
    plateau_ends="DOUBLE[]",
)
def _plateaus(measured: Measured) -> dict[str, Any]:
    """How many plateaus the loss has, their levels, and when each begins and ends."""
    found = plateaus(_curve(measured))
    return {
        "plateaus": len(found),
        "plateau_levels": [rest.level for rest in found],
        "plateau_starts": [rest.start for rest in found],
        "plateau_ends": [rest.end for rest in found],
    }


@measurement("drops", drops="BIGINT", drop_times="DOUBLE[]")
def _drops(measured: Measured) -> dict[str, Any]:
    """How many quick drops the loss has, and when half of the way between each two plateaus is
    done."""
    run = _curve(measured)
    return {"drops": drop_count(run), "drop_times": drop_times(run)}


@measurement("phases", emergence="DOUBLE", convergence="DOUBLE", settled="BOOLEAN")
def _phases(measured: Measured) -> dict[str, Any]:
    """When 5 % and 95 % of the drop of the loss are done, and whether it has come to rest."""
    found = learning_phases(_curve(measured))
    return {
        "emergence": found.emergence,
        "convergence": found.convergence,
        "settled": bool(found.settled),
    }


@measurement("sharpness", sharpness="DOUBLE")
def _sharpness(measured: Measured) -> dict[str, Any]:
    """t10/t90: when a tenth of the way down is done, over when nine tenths are; 1 for a step,
    0.0458 for an exponential."""
    return {"sharpness": sharpness(_curve(measured))}


@measurement("exponential", exponential_rate="DOUBLE", exponential_deviation="DOUBLE")
def _exponential(measured: Measured) -> dict[str, Any]:
    """The rate of the exponential nearest to the loss, and its largest deviation as a share of the
    way down: small in the lazy regime."""
    found = exponential_fit(_curve(measured))
    return {"exponential_rate": found.rate, "exponential_deviation": found.deviation}
