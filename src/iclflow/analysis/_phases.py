"""The three phases of a run: warm-up, emergence, convergence."""

import dataclasses
import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ..errors import Refusal
from ..trajectory import Trajectory
from ._denoise import Curve, curve
from ._drops import drop_times
from ._plateaus import drop_count

Phase = Literal["warm-up", "emergence", "convergence"]
# Where noise may have left more than this share of the drop, a single loss is no level: the mean of
# at least so many points is used instead.
_NOISY = 1e-3
_FEWEST = 8
# The largest share of the drop that noise may explain at the end, and how many ripples a drop must
# exceed.
_ALLOWED = 0.05
_CLEAR = 1.5


@dataclasses.dataclass(frozen=True)
class Phases:
    """When a loss curve begins to fall, and when it has settled.

    The fraction of a drop is (first loss − loss) / (first loss − settled loss). A time that the run
    does not reach is NaN.

    **Fields:**

    - `begin`, `end`: of the run.
    - `emergence`, `half`, `convergence`: when the fractions `start`, 50 % and `stop` are reached.
      Warm-up lasts until `emergence`, and emergence until `convergence`.
    - `done`: when 99.9 % are reached.
    - `first`, `last`: the first loss and the settled one.
    - `settled`: whether the loss has come to rest: over the last half of the time since `half` it
      changed by at most `tolerance` of the drop, two standard errors of its noise allowed (but no
      more than 5 % of the drop, and not with fewer than 8 points there). A decay like 1/t changes
      over that half by as much as is left. With a known `floor`: whether it has come that near.
    - `drops`: how many quick drops there are, as in `drop_count`; the phases span them all.
    """

    begin: float
    end: float
    emergence: float
    half: float
    convergence: float
    done: float
    first: float
    last: float
    settled: bool
    drops: int

    @property
    def warm_up_duration(self) -> float:
        return self.emergence - self.begin

    @property
    def emergence_duration(self) -> float:
        return self.convergence - self.emergence

    def at(self, time: float) -> Phase:
        """The phase at a moment of the run."""
        if not self.begin <= time <= self.end:
            raise Refusal(
                f"`time` = {time}: must lie between {self.begin:g} and {self.end:g}, where the "
                "run begins and ends."
            )
        # A phase that never came compares false.
        if time >= self.convergence:
            return "convergence"
        return "emergence" if time >= self.emergence else "warm-up"


def learning_phases(
    run: Trajectory | ArrayLike,
    losses: ArrayLike | None = None,
    *,
    start: float = 0.05,
    stop: float = 0.95,
    floor: float | None = None,
    tolerance: float = 0.01,
) -> Phases:
    """The phases of a run, from its losses alone: `learning_phases(run)`, or of times and losses.

    Warm-up lasts until 5 % of the drop are done, emergence until 95 % (arXiv 2402.19442). Between
    saved points the curve is a monotone cubic. Noise is taken out by monotone regression, as for
    `plateaus`; the first loss is then that of the straight line through the first third of the time
    to the half-drop, and the last one the mean over the last half of the time since. A curve with
    several drops has phases that span them all; `plateaus` and `drop_times` take them apart.

    **Arguments:**

    - `run`: a `Trajectory`, or times with their `losses`.
    - `start`, `stop`: the fractions at which emergence begins and ends.
    - `floor`: the loss that the run goes to, where it is known. By default where it ends: then an
      unfinished run has its phases too early, and is not `settled`.
    - `tolerance`: of `settled`, as a share of the drop.
    """
    if not 0 < start < stop < 1:
        raise Refusal(
            f"`start` = {start} and `stop` = {stop}: must lie between 0 and 1, `start` first."
        )
    if not 0 < tolerance < 1:
        raise Refusal(f"`tolerance` = {tolerance}: must lie between 0 and 1.")
    found = curve(run, losses)
    if floor is None and not _falls(found):
        raise Refusal(
            f"`losses` go from {found.smooth[0]:g} to {found.smooth[-1]:g}: must drop, and by more "
            "than their noise, to have phases."
        )
    first, reached, moved = _ends(found)
    if floor is not None and not (math.isfinite(floor) and floor < first):
        raise Refusal(f"`floor` = {floor}: must be finite, and below the first loss {first:g}.")
    last = reached if floor is None else float(floor)
    left = moved if floor is None else abs(reached - last)
    fractions = (start, 0.5, stop, 0.999)
    emergence, half, convergence, done = (_time_of(found, first, last, each) for each in fractions)
    return Phases(
        begin=float(found.times[0]),
        end=float(found.times[-1]),
        emergence=emergence,
        half=half,
        convergence=convergence,
        done=done,
        first=first,
        last=last,
        settled=bool(left <= tolerance * (first - last)),
        drops=drop_count(found.times, found.losses),
    )


def _falls(found: Curve) -> bool:
    """Whether the curve ends lower than it begins, by more than noise may do."""
    top, bottom = found.smooth[[0, -1]]
    return bool(top - bottom > max(_CLEAR * min(found.ripple[[0, -1]]), 1e-12 * abs(top)))


def _time_of(found: Curve, top: float, bottom: float, fraction: float) -> float:
    """When the curve has done a fraction of the way; NaN if it never has."""
    times = drop_times(found.times, found.losses, levels=[top, bottom], fraction=fraction)
    return float(times[0])


def _ends(found: Curve) -> tuple[float, float, float]:
    """The levels at which a curve begins and ends, and how much it has moved over the last half of
    the time since it was half-way."""
    times, losses, smooth = found.times, found.losses, found.smooth
    first, last = float(smooth[0]), float(smooth[-1])
    if not _falls(found):
        return first, last, abs(first - last)
    half = _time_of(found, first, last, 0.5)
    early = times <= times[0] + (half - times[0]) / 3
    late = times >= (half + times[-1]) / 2
    moved = abs(float(np.interp((half + times[-1]) / 2, times, smooth)) - last)
    noisy = found.ripple > _NOISY * (first - last)
    if noisy[0] and np.sum(early) >= _FEWEST:
        # Monotone regression begins too high: it follows the first points that lie high.
        first, _, _ = _line(times[early], losses[early])
    if noisy[-1]:
        # Few points of much noise are no evidence of rest.
        moved = first - last
        if np.sum(late) >= _FEWEST:
            _, change, error = _line(times[late], losses[late])
            last = float(np.mean(losses[late]))
            moved = abs(change) - min(2 * error, _ALLOWED * (first - last))
    return first, last, moved


def _line(times: np.ndarray, losses: np.ndarray) -> tuple[float, float, float]:
    """The start of the straight line through points, its total change, and the standard error of
    that."""
    span = times[-1] - times[0]
    (slope, begin), covariance = np.polyfit((times - times[0]) / span, losses, 1, cov=True)
    return float(begin), float(slope), float(covariance[0, 0] ** 0.5)
