"""What a run gave, in numbers: the same for people and for programs."""

import dataclasses
from typing import Any

import numpy as np

from ..analysis import drop_times, plateaus, resolves
from ..config import Config
from ..trajectory import Trajectory
from ._overlay import Overlay

TOO_SPARSE = "saved too sparsely to time this drop"


@dataclasses.dataclass(frozen=True)
class Drop:
    """One step of the loss: when half of it is gone; None where that was not predicted, or seen.

    **Fields:**

    - `note`: why there is no measurement, where the drop was seen all the same.
    """

    predicted: float | None
    measured: float | None
    note: str = ""

    @property
    def error(self) -> float | None:
        """The deviation relative to the prediction, as in claims."""
        if not self.predicted or self.measured is None:
            return None
        return abs(self.measured - self.predicted) / self.predicted


@dataclasses.dataclass(frozen=True)
class Rest:
    """One plateau of the loss, and the predicted level nearest to it.

    **Fields:**

    - `start`, `end`: None where the run was saved too sparsely to tell.
    """

    start: float | None
    end: float | None
    level: float
    predicted: float | None


@dataclasses.dataclass(frozen=True)
class Summary:
    """The result of a run, its losses, plateaus and drops."""

    config: Config
    run: Trajectory
    floor: float | None
    theory: str | None
    plateaus: tuple[Rest, ...]
    drops: tuple[Drop, ...]

    def as_json(self) -> dict[str, Any]:
        """The summary as plain data."""
        return {
            "name": self.config.name,
            "hash": self.config.hash,
            "result": self.run.result.name,
            "message": self.run.result.value,
            "clock": self.run.clock,
            "end": float(self.run.times[-1]),
            "points": len(self.run),
            "initial_loss": float(self.run.losses[0]),
            "final_loss": float(self.run.losses[-1]),
            "floor": self.floor,
            "theory": self.theory,
            "plateaus": [dataclasses.asdict(rest) for rest in self.plateaus],
            "drops": [{**dataclasses.asdict(drop), "error": drop.error} for drop in self.drops],
            "statistics": dict(self.run.statistics),
        }


def summarise(
    config: Config, run: Trajectory, floor: float | None, predicted: Overlay | None
) -> Summary:
    """Plateaus and drops of a run beside what was predicted."""
    source = None if predicted is None else predicted.source
    # A run that ran away has losses whose squares overflow.
    with np.errstate(all="ignore"):
        rests, drops = _plateaus(run, predicted), _drops(run, predicted)
    return Summary(config, run, floor, source, rests, drops)


def _plateaus(run: Trajectory, predicted: Overlay | None) -> tuple[Rest, ...]:
    if len(run) < 3:
        return ()
    levels = np.zeros(0) if predicted is None else predicted.levels
    found = plateaus(run)
    # Beside the first and the last plateau lies the way to the end of the curve.
    sides = [run.losses[0], *(rest.level for rest in found), run.losses[-1]]
    rests = []
    for i, rest in enumerate(found):
        before, after = (abs(side - rest.level) for side in (sides[i], sides[i + 2]))
        near = float(levels[np.argmin(np.abs(levels - rest.level))]) if levels.size else None
        start, end = _told(run, rest.start, before), _told(run, rest.end, after)
        rests.append(Rest(start, end, float(rest.level), near))
    return tuple(rests)


def _told(run: Trajectory, time: float, height: float) -> float | None:
    return float(time) if resolves(run, time, height) else None


def _drops(run: Trajectory, predicted: Overlay | None) -> tuple[Drop, ...]:
    if predicted is None or len(predicted.levels) < 2 or len(run) < 3:
        return ()
    measured = drop_times(run, levels=predicted.levels)
    expected = [*predicted.drop_times, *[np.nan] * len(measured)][: len(measured)]
    drops = []
    for expectation, time, height in zip(expected, measured, np.diff(predicted.levels)):
        sparse = np.isfinite(time) and not resolves(run, time, height)
        seen = None if sparse else _number(time)
        drops.append(Drop(_number(expectation), seen, TOO_SPARSE if sparse else ""))
    return tuple(drops)


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
