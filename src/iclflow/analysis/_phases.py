"""The three phases of a run: warm-up, emergence, convergence."""

import dataclasses
import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError, Refusal
from ._denoise import Curve, Source, curve
from ._drops import passage_times
from ._plateaus import drop_count

Phase = Literal["warm-up", "emergence", "convergence"]
# Where the ripple exceeds this share of the drop, a single loss is no level: the mean of at least
# so many points is used instead.
_NOISY = 1e-3
_FEWEST = 8
# The largest share of the drop that noise may explain at the end.
_ALLOWED = 0.05
# A drop must exceed so many ripples, and this share of the first loss, which allows for rounding.
_CLEAR = 1.5
_ROUNDING = 1e-12
# The fraction of the drop at `Phases.done`.
_DONE = 0.999


@dataclasses.dataclass(frozen=True)
class Phases:
    """When a loss curve begins to fall, and when it has settled.

    The fraction of a drop is (first loss − loss) / (first loss − settled loss). The time of a
    fraction that the run does not reach is NaN.

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
            bounds = f"must lie between {self.begin:g} and {self.end:g}"
            raise InputError("time", time, f"{bounds}, where the run begins and ends")
        # Comparisons with NaN, for a phase that never came, are false.
        if time >= self.convergence:
            return "convergence"
        return "emergence" if time >= self.emergence else "warm-up"


def learning_phases(
    run: Source,
    losses: ArrayLike | None = None,
    *,
    start: float = 0.05,
    stop: float = 0.95,
    floor: float | None = None,
    tolerance: float = 0.01,
) -> Phases:
    """The phases of a run, from its losses alone: `learning_phases(run)`, or of times and losses.

    Warm-up lasts until 5 % of the drop are done, emergence until 95 % (arXiv 2402.19442). Between
    saved points the curve is a monotone cubic. Noise is removed by monotone regression, as for
    `plateaus`; the first loss is then that of the straight line through the first third of the time
    to the half-drop, and the last one the mean over the last half of the time since. The phases of
    a curve with several drops span them all; `plateaus` and `drop_times` separate them.

    **Arguments:**

    - `run`: a `Trajectory`, or times with their `losses`.
    - `start`, `stop`: the fractions at which emergence begins and ends.
    - `floor`: the loss that the run goes to, where it is known. By default where it ends: then an
      unfinished run has its phases too early, and is not `settled`.
    - `tolerance`: of `settled`, as a share of the drop.

    **Example:**

    ```pycon
    >>> times = np.linspace(0, 10, 400)
    >>> losses = 1 / (1 + np.exp(8 * (times - 3))) + 1 / (1 + np.exp(8 * (times - 7)))
    >>> found = icl.learning_phases(times, losses)
    >>> round(found.emergence, 2), round(found.half, 2), found.settled
    (2.73, 5.0, True)
    ```
    """
    if not 0 < start < stop < 1:
        raise InputError(
            f"`start` = {start} and `stop` = {stop}: must lie between 0 and 1, `start` first."
        )
    if not 0 < tolerance < 1:
        raise InputError("tolerance", tolerance, "must lie between 0 and 1")
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
    fractions = (start, 0.5, stop, _DONE)
    passages = passage_times(found, fractions, top=first, bottom=last)
    emergence, half, convergence, done = passages.tolist()
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
        drops=drop_count(found),
    )


def _falls(found: Curve) -> bool:
    """Whether the curve ends lower than it begins, by more than its noise."""
    top, bottom = found.smooth[[0, -1]]
    return bool(top - bottom > max(_CLEAR * min(found.ripple[[0, -1]]), _ROUNDING * abs(top)))


def _ends(found: Curve) -> tuple[float, float, float]:
    """The first and the last level of a curve, and how much it has moved over the last half of the
    time since the half-drop."""
    times, losses, smooth = found.times, found.losses, found.smooth
    first, last = float(smooth[0]), float(smooth[-1])
    if not _falls(found):
        return first, last, abs(first - last)
    half = float(passage_times(found, [0.5], top=first, bottom=last)[0])
    early = times <= times[0] + (half - times[0]) / 3
    late = times >= (half + times[-1]) / 2
    moved = abs(float(np.interp((half + times[-1]) / 2, times, smooth)) - last)
    noisy = found.ripple > _NOISY * (first - last)
    if noisy[0] and np.sum(early) >= _FEWEST:
        # Monotone regression begins too high, because it follows the first points that are high.
        first, _, _ = _line(times[early], losses[early])
    if noisy[-1]:
        # Unless there are enough points, noise hides whether the curve rests.
        moved = first - last
        if np.sum(late) >= _FEWEST:
            _, change, error = _line(times[late], losses[late])
            last = float(np.mean(losses[late]))
            moved = abs(change) - min(2 * error, _ALLOWED * (first - last))
    return first, last, moved


def _line(times: np.ndarray, losses: np.ndarray) -> tuple[float, float, float]:
    """The first value of the straight line through points, its change, and the error of that."""
    span = times[-1] - times[0]
    (slope, begin), covariance = np.polyfit((times - times[0]) / span, losses, 1, cov=True)
    return float(begin), float(slope), float(covariance[0, 0] ** 0.5)
