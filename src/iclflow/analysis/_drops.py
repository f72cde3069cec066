"""When a loss curve drops."""

from collections.abc import Sequence

import numpy as np
import scipy
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..errors import InputError
from ..trajectory import Trajectory
from ._denoise import Curve, Source, crossing_time, curve
from ._plateaus import plateaus

# Two points resolve a moment between them if the loss moves by less than this share of the drop,
# where a cubic is far closer than their spacing, or if they are this close, as a share of the time.
_STEP = 0.25
_CLOSE = 1e-3
# The relative accuracy of a crossing, near rounding.
_ROOT_TOLERANCE = 1e-12


def drop_times(
    run: Source,
    losses: ArrayLike | None = None,
    *,
    levels: ArrayLike | None = None,
    fraction: float = 0.5,
) -> Float[np.ndarray, " drops"]:
    """The times at which the loss has moved a fraction of the way from each level to the next.

    Between saved points the curve is a monotone cubic, so that the times of a run that is saved at
    its drops are far more accurate than its spacing. With few points a time is little more than a
    guess; see `resolves`. The time of a drop that never comes is NaN.

    **Arguments:**

    - `run`: a `Trajectory`, or times with their `losses`.
    - `levels`: of the plateaus, in the order in which they are visited; by default those of
      `plateaus`.
    - `fraction`: of the way; 0.5 is the half-drop time.

    **Example:**

    ```pycon
    >>> times = np.linspace(0, 10, 400)
    >>> losses = 1 / (1 + np.exp(8 * (times - 3))) + 1 / (1 + np.exp(8 * (times - 7)))
    >>> icl.drop_times(times, losses).round(2)
    array([3., 7.])
    >>> icl.drop_times(times, losses, levels=[2.0, 1.0, 0.0], fraction=0.1).round(2)
    array([2.73, 6.73])
    ```
    """
    if not 0 < fraction < 1:
        raise InputError("fraction", fraction, "must lie between 0 and 1")
    found = curve(run, losses)
    if levels is None:
        levels = [plateau.level for plateau in plateaus(found)]
    levels = np.asarray(levels, np.float64)
    if levels.ndim != 1 or not np.all(np.isfinite(levels)):
        raise InputError("levels", levels, "must be a sequence of finite numbers")
    times = np.full(max(len(levels) - 1, 0), np.nan)
    after = 0
    for i, (level, following) in enumerate(zip(levels, levels[1:])):
        target = level + fraction * (following - level)
        # Two drops can lie between the same two points.
        point = _first_beyond(found, target, bool(following < level), max(after - 1, 0))
        if point is None:
            break
        after, times[i] = point, _crossing(found, point, target)
    return times


def resolves(run: Trajectory, time: float, height: float) -> bool:
    """Whether the points of a run are dense enough to resolve a moment.

    They are if, between the two points around it, the loss moves by at most a quarter of `height`,
    or the time by a thousandth of itself, or by one step.

    **Arguments:**

    - `run`: a `Trajectory`.
    - `time`: a moment measured on its curve, such as a drop time or the end of a plateau.
    - `height`: of the drop that this moment belongs to.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> time = float(icl.drop_times(run)[0])
    >>> icl.analysis.resolves(run, time, height=0.5)
    True
    ```
    """
    times, losses = run.times, run.losses
    right = int(np.clip(np.searchsorted(times, time), 1, len(times) - 1))
    if time in (times[right - 1], times[right]):
        return True
    gap = times[right] - times[right - 1]
    if gap <= max(_CLOSE * time, 1.0 if run.clock == "step" else 0.0):
        return True
    return bool(abs(losses[right] - losses[right - 1]) <= _STEP * abs(height))


def passage_times(
    run: Source, fractions: ArrayLike | Sequence[float], *, top: float, bottom: float
) -> Float[np.ndarray, " n"]:
    """When the loss has first moved each of `fractions` of the way from `top` to `bottom`.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> times = icl.analysis.passage_times(run, [0.25, 0.75], top=1.0, bottom=0.0884)
    >>> bool(times[0] < times[1])
    True
    ```
    """
    found = curve(run)
    times = []
    for fraction in np.asarray(fractions, np.float64):
        target = top + fraction * (bottom - top)
        point = _first_beyond(found, target, bool(bottom < top), 0)
        times.append(np.nan if point is None else _crossing(found, point, target))
    return np.asarray(times)


def _first_beyond(found: Curve, target: float, falling: bool, after: int) -> int | None:
    """The first point from `after` on at which the curve has passed `target`, coming from the
    other side."""
    beyond = found.smooth <= target if falling else found.smooth >= target
    before = np.flatnonzero(~beyond[after:])
    if before.size == 0:
        return None
    first = after + int(before[0])
    passed = np.flatnonzero(beyond[first:])
    return first + int(passed[0]) if passed.size else None


def _crossing(found: Curve, point: int, target: float) -> float:
    """The last moment before `point` when the curve equals `target`."""
    # Three points on each side fix the slopes that a monotone cubic needs.
    near = slice(max(point - 3, 0), point + 3)
    times, values = found.times[near], found.smooth[near]
    left, right = found.times[point - 1], found.times[point]
    if len(times) < 3 or found.smooth[point] == target:
        return crossing_time(found.times, found.smooth, point - 1, target)
    shape = scipy.interpolate.PchipInterpolator(times, values)
    tolerance = _ROOT_TOLERANCE * right
    away = lambda t: float(shape(t)) - target
    root = scipy.optimize.brentq(away, left, right, xtol=tolerance)
    return float(root)  # pyright: ignore[reportArgumentType]
