"""Where a loss curve dwells: its plateaus."""

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ._denoise import Curve, Source, crossing_time, curve
from ._pace import Pace

# A plateau is noisy if the ripple exceeds this share of the margin: then a single loss is no level.
_NOISY = 0.1
# Equal sums of path lengths differ by rounding: below this relative difference they are equal.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Plateau:
    """A stretch of a loss curve that changes far more slowly than what surrounds it.

    **Fields:**

    - `start`, `end`: when the loss reaches the level, and when it leaves it.
    - `level`: the loss at the moment when it changes most slowly; for a noisy curve, its mean
      over that half of the time in which it changes least.
    - `spread`: the standard deviation of the loss between `start` and `end`.
    - `initial`, `final`: whether the curve begins, or ends, on it.
    """

    start: float
    end: float
    level: float
    spread: float
    initial: bool
    final: bool

    @property
    def duration(self) -> float:
        return self.end - self.start


def plateaus(
    run: Source,
    losses: ArrayLike | None = None,
    *,
    contrast: float = 5.0,
    resolution: float = 5e-3,
    margin: float = 0.05,
) -> tuple[Plateau, ...]:
    """The plateaus of a loss curve, in order: `plateaus(run)` or `plateaus(times, losses)`.

    A plateau is a level where the curve spends at least `contrast` times as long, per unit of loss,
    as on the quickest part of the way to its neighbours. No levels, time scale or shape are
    assumed. Thus a drop separates two plateaus however short they are; an exponential decay has
    one plateau, its end; a straight line has none. Stretching time, and stretching or shifting the
    loss, changes nothing.

    **Arguments:**

    - `run`: a `Trajectory`, or times, which must increase and may be spaced in any way.
    - `losses`: the losses at these times. Noise is removed by monotone regression, and drops that
      may be left from it are not counted: the more noise, the larger a drop has to be.
    - `contrast`: how much slower than the drops beside it a plateau is; above 1.
    - `resolution`: the height of loss, as a share of all that the curve moves, over which its
      pace is measured. Drops lower than about twice this are not seen.
    - `margin`: a plateau starts where the loss has this share of the drop before it left to
      go, and ends where this share of the drop after it is done.

    **Example:**

    ```pycon
    >>> times = np.linspace(0, 10, 400)
    >>> losses = 1 / (1 + np.exp(8 * (times - 3))) + 1 / (1 + np.exp(8 * (times - 7)))
    >>> [(round(each.start, 1), round(each.end, 1)) for each in icl.plateaus(times, losses)]
    [(0.0, 2.6), (3.4, 6.6), (7.4, 10.0)]
    ```
    """
    if not 0 < margin < 0.5:
        raise InputError("margin", margin, "must lie between 0 and 0.5")
    found = curve(run, losses)
    pace = Pace.of(found, resolution)
    windows = pace.slow_windows(contrast)
    times, smooth = found.times, found.smooth
    if len(pace.lower) == 0:
        return (_measure(found, float(times[0]), float(times[-1]), True, True, noisy=True),)
    if not windows:
        return ()
    centres = np.mean(pace.stay(windows), axis=0)
    levels = np.interp(centres, times, smooth)
    # Before the first and after the last plateau the way goes to the end of the curve. It is zero
    # if the curve begins or ends there: then the drop on the other side sets the scale.
    heights = np.abs(np.diff(np.concatenate([smooth[:1], levels, smooth[-1:]])))
    heights[0], heights[-1] = heights[:2].max(), heights[-2:].max()
    heights[[0, -1]] = np.maximum(heights[[0, -1]], 2 * found.ripple[[0, -1]])
    return tuple(
        _find_bounds(found, *each, margin) for each in zip(centres, levels, heights, heights[1:])
    )


def drop_count(
    run: Source,
    losses: ArrayLike | None = None,
    *,
    contrast: float = 5.0,
    resolution: float = 5e-3,
) -> int:
    """How many quick drops a curve has: parts that are `contrast` times as quick as those around.

    A curve that begins and ends on a plateau has one plateau more. Arguments: as in `plateaus`.

    **Example:**

    ```pycon
    >>> times = np.linspace(0, 10, 400)
    >>> losses = 1 / (1 + np.exp(8 * (times - 3))) + 1 / (1 + np.exp(8 * (times - 7)))
    >>> icl.analysis.drop_count(times, losses)
    2
    ```
    """
    return len(Pace.of(curve(run, losses), resolution).quick_windows(contrast))


def _find_bounds(
    found: Curve, centre: float, level: float, before: float, after: float, margin: float
) -> Plateau:
    """The plateau around a moment, given the heights of the drops on both sides."""
    times = found.times
    away = np.abs(found.smooth - level)
    index = int(np.searchsorted(times, centre))
    ripple = float(found.ripple[min(index, len(times) - 1)])
    # Noise widens the margin, but never beyond the middle of the drop: neighbours do not meet.
    near, far = (min(max(margin * drop, ripple), drop / 2) for drop in (before, after))
    earlier, later = np.flatnonzero(away[:index] > near), np.flatnonzero(away[index:] > far)
    start, end = float(times[0]), float(times[-1])
    if earlier.size:
        start = crossing_time(times, away, int(earlier[-1]), near)
    if later.size:
        end = crossing_time(times, away, max(index + int(later[0]) - 1, 0), far)
    noisy = bool(ripple > _NOISY * margin * min(before, after))
    return _measure(found, start, end, not earlier.size, not later.size, noisy)


def _measure(
    found: Curve, start: float, end: float, initial: bool, final: bool, noisy: bool
) -> Plateau:
    times, losses = found.times, found.losses
    level = _calm_mean(found, start, end) if noisy else _slowest(times, losses, start, end)
    mean = _mean(times, losses, start, end)
    with np.errstate(over="ignore"):  # losses of a run that diverges may be 1e190
        squares = (losses - mean) ** 2
    spread = math.sqrt(max(_mean(times, squares, start, end), 0.0))
    return Plateau(start, end, level, spread, initial, final)


def _slowest(times: np.ndarray, losses: np.ndarray, start: float, end: float) -> float:
    """The loss on the slowest segment between points; at an end of the curve, the loss there."""
    knots, heights = _section(times, losses, start, end)
    if end <= start:
        return float(heights[0])
    speeds = np.abs(np.diff(heights)) / np.diff(knots)
    slow = int(np.argmin(speeds))
    if slow == 0 and start == times[0]:
        return float(heights[0])
    if slow == len(speeds) - 1 and end == times[-1]:
        return float(heights[-1])
    return float(heights[slow] + heights[slow + 1]) / 2


def _calm_mean(found: Curve, start: float, end: float) -> float:
    """The mean loss over that half of the time in which the smooth curve moves least."""
    times = found.times
    path = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(found.smooth)))])
    half = (end - start) / 2
    inside = times[(times > start) & (times < end)]
    begins = np.unique(np.clip(np.concatenate([[start], inside, inside - half]), start, end - half))
    moved = np.interp(begins + half, times, path) - np.interp(begins, times, path)
    # Of several equal ones the middle one, so that rounding does not decide.
    best = np.flatnonzero(moved <= moved.min() * (1 + _ROUNDING))
    begin = float(begins[best[len(best) // 2]])
    return _mean(times, found.losses, begin, begin + half)


def _mean(times: np.ndarray, values: np.ndarray, start: float, end: float) -> float:
    """The mean over time of a curve that is linear between its points."""
    knots, heights = _section(times, values, start, end)
    if end <= start:
        return float(heights[0])
    return float(np.sum(np.diff(knots) * (heights[1:] + heights[:-1]) / 2) / (end - start))


def _section(
    times: np.ndarray, values: np.ndarray, start: float, end: float
) -> tuple[np.ndarray, np.ndarray]:
    """The points of a piecewise linear curve between two times, with both ends."""
    inside = (times > start) & (times < end)
    knots = np.concatenate([[start], times[inside], [end]])
    return knots, np.interp(knots, times, values)
