"""The summary of a run: result, losses, plateaus and drops, each with its prediction."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..analysis import Plateau, drop_times, learning_phases, plateaus, resolves
from ..config import Config
from ..errors import Refusal
from ..files import to_plain
from ..tasks import AbstractTask
from ..trajectory import Result, Trajectory
from ._comparison import Comparison, compare_end, describe_loss, last_error
from ._division import Division, find_division
from ._prediction import Overlay

# A plateau is reached slowly if the last part of the way takes this many times as long as the part
# from the middle of the drop; an exponential decay takes about as long for both.
_SLOW = 5.0
# The loss has settled when it is within this share of the drop from its level.
_NEAR = 0.005
# A run that was stopped is at rest if the loss moved by at most this share of its drop in the last
# half of the time since the middle of the drop. `plateaus` uses the same margin.
_STOPPED_MARGIN = 0.05
TOO_SPARSE = "saved too sparsely to time this drop"


@dataclasses.dataclass(frozen=True)
class Drop:
    """One drop of the loss: when half of it is done; None if that was not predicted, or not seen.

    **Fields:**

    - `note`: why a drop that was seen has no measured time.
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

    - `start`, `end`: None if the run was saved too sparsely to tell.
    - `drift`: how far the loss is from the level when a slow drift to it begins; `start` is then
      when it has settled. 0 if there is no drift.
    """

    start: float | None
    end: float | None
    level: float
    predicted: float | None
    drift: float = 0.0


@dataclasses.dataclass(frozen=True)
class Summary:
    """The result of a run, its losses, plateaus and drops.

    **Fields:**

    - `theory`: the prediction in words, and how far from it the run ends.
    - `comparisons`: the same in numbers, for known losses other than plateaus.
    - `division`: phases and heads of the tasks, if there are several.
    """

    config: Config
    run: Trajectory
    floor: float | None
    theory: str | None
    plateaus: tuple[Rest, ...]
    drops: tuple[Drop, ...]
    comparisons: tuple[Comparison, ...] = ()
    division: Division | None = None

    @property
    def loss(self) -> str:
        """The first and the last loss, with standard errors if they were measured."""
        return describe_loss(self.run)

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
            "standard_error": last_error(self.run),
            "floor": self.floor,
            "theory": self.theory,
            "comparisons": [dataclasses.asdict(each) for each in self.comparisons],
            "plateaus": [dataclasses.asdict(rest) for rest in self.plateaus],
            "drops": [{**dataclasses.asdict(drop), "error": drop.error} for drop in self.drops],
            "tasks": None if self.division is None else self.division.as_json(),
            "statistics": dict(self.run.statistics),
        }


def summarise(
    config: Config,
    run: Trajectory,
    floor: float | None,
    predicted: Overlay | None,
    task: AbstractTask | None = None,
) -> Summary:
    """Plateaus and drops of a run with their predictions; with several tasks, also which head
    serves which.

    **Example:**

    ```pycon
    >>> run = icl.run("linear/white", progress=False)
    >>> len(run.summary().drops)
    1
    ```
    """
    comparisons = compare_end(run, predicted)
    source = None if predicted is None else predicted.source
    if source is not None and comparisons:
        source = f"{source}: {', '.join(str(each) for each in comparisons)}"
    # The squares of the losses of a diverged run overflow.
    with np.errstate(all="ignore"):
        rests, drops = _find_plateaus(run, predicted), _find_drops(run, predicted)
    division = None if task is None else find_division(run, task)
    return Summary(config, run, floor, source, rests, drops, comparisons, division)


def _find_plateaus(run: Trajectory, predicted: Overlay | None) -> tuple[Rest, ...]:
    if len(run) < 3:
        return ()
    found = plateaus(run)
    if run.result is Result.cancelled and not _rests_at_end(run, found):
        found = found[:-1]
    # The neighbours of the first and the last plateau are the ends of the curve.
    sides = [run.losses[0], *(rest.level for rest in found), run.losses[-1]]
    rests = []
    for i, rest in enumerate(found):
        before, after = (abs(side - rest.level) for side in (sides[i], sides[i + 2]))
        near = _nearest(predicted, rest)
        settled, drift = _find_settling(run, rest, before)
        start = _time_if_resolved(run, settled, drift or before)
        end = _time_if_resolved(run, rest.end, after)
        rests.append(Rest(start, end, float(rest.level), near, drift))
    return tuple(rests)


def _rests_at_end(run: Trajectory, found: Sequence[Plateau]) -> bool:
    """Whether a run that was stopped is at rest on its last plateau. Its curve ends anywhere, and a
    fall that slows down a little looks like the beginning of a plateau."""
    if not found or found[-1].initial or not found[-1].final:
        return True
    try:
        return learning_phases(run, tolerance=_STOPPED_MARGIN).settled
    except Refusal:  # the loss does not drop
        return True


def _nearest(predicted: Overlay | None, rest: Plateau) -> float | None:
    """The predicted level nearest to a plateau."""
    # A prediction of the end alone says nothing about earlier plateaus.
    if predicted is None or not len(predicted.levels) or (predicted.whole and not rest.final):
        return None
    return float(predicted.levels[np.argmin(np.abs(predicted.levels - rest.level))])


def _find_settling(run: Trajectory, rest: Plateau, drop: float) -> tuple[float, float]:
    """When the loss has settled at its level, and how much of the way to it was a slow drift."""
    inside = run.between(rest.start, rest.end)
    away = np.abs(inside.losses - rest.level)
    late = inside.losses[inside.times > (rest.start + rest.end) / 2]
    noise = float(np.std(late)) if late.size > 1 else 0.0
    outside = np.flatnonzero(away > max(_NEAR * drop, 3 * noise))
    if rest.initial or not outside.size or outside[-1] + 1 == len(inside):
        return rest.start, 0.0
    settled = float(inside.times[outside[-1] + 1])
    above = (run.times < rest.start) & (np.abs(run.losses - rest.level) > drop / 2)
    middle = float(run.times[above].max(initial=run.times[0]))
    if settled - rest.start <= _SLOW * (rest.start - middle):
        return rest.start, 0.0
    return settled, float(away[0])


def _time_if_resolved(run: Trajectory, time: float, height: float) -> float | None:
    return float(time) if resolves(run, time, height) else None


def _find_drops(run: Trajectory, predicted: Overlay | None) -> tuple[Drop, ...]:
    if predicted is None or len(predicted.levels) < 2 or len(run) < 3:
        return ()
    measured = drop_times(run, levels=predicted.levels)
    expected = [*predicted.drop_times, *[np.nan] * len(measured)][: len(measured)]
    drops = []
    for expectation, time, height in zip(expected, measured, np.diff(predicted.levels)):
        sparse = np.isfinite(time) and not resolves(run, time, height)
        seen = None if sparse else to_plain(time)
        drops.append(Drop(to_plain(expectation), seen, TOO_SPARSE if sparse else ""))
    return tuple(drops)
