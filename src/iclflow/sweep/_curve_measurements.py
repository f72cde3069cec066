"""Measurements of the loss of a run: its end, its plateaus, its drops, its phases."""

from typing import Any

from ..analysis import (
    drop_count,
    drop_times,
    exponential_fit,
    learning_phases,
    plateaus,
    sharpness,
)
from ..config import Config
from ..estimators import Bayes
from ..trajectory import Trajectory
from ._measurements import Measured, measurement

# Sequences from which the Bayes risk is estimated: 0.5 % of it or better.
_BAYES_COUNT = 100_000
_BAYES: dict[str, tuple[float, float]] = {}


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
    import jax.random as jr

    name = repr(measured.config.task)
    if name not in _BAYES:
        found = Bayes(measured.task).risk(measured.task, jr.key(0), _BAYES_COUNT)
        _BAYES[name] = float(found.value), float(found.standard_error)
    risk, error = _BAYES[name]
    over = float(measured.run.losses[-1]) - risk
    return {"bayes_risk": risk, "bayes_error": error, "over_bayes": over}


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
