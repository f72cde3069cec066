"""The progress of a run at one of its points, and the points worth showing."""

import contextlib
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..trajectory import Trajectory
from ._directions import Directions
from ._plateaus import plateaus

Trend = Literal["at rest", "falling", "rising"]
# The loss is compared with that at this share of the time: a tenth of the time is long enough to
# see a drop, however long the plateau before it was.
_EARLIER = 0.9
# Since then, a loss at rest has moved by less than this share of itself.
_REST = 1e-3
# Since then, a dropping loss has moved by more than this share of the step.
_DROPPING = 0.01
# A loss is near a level within the first share of the next step, and on it within the second.
_NEAR, _ON = 0.05, 0.01


class StairPlace(NamedTuple):
    """The place of a loss among the levels of a staircase.

    **Fields:**

    - `kind`: `"on"` or `"near"` a level, or `"leaving"` it; `"above"` or `"below"` all levels;
      `"dropping"` or at rest (`"between"`) between two levels.
    - `level`: the number of that level from 0; of two levels, the upper one.
    - `share`: the distance from the level, as a share of the step next to it.
    - `is_above`: whether the loss lies above the level.
    """

    kind: Literal["on", "near", "leaving", "above", "below", "dropping", "between"]
    level: int
    share: float
    is_above: bool


def loss_trend(run: Trajectory, index: int) -> Trend:
    """Whether the loss at a saved point falls, rises or rests; later points are not used.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> icl.analysis.loss_trend(run, len(run) // 2)
    'at rest'
    ```
    """
    loss, earlier = float(run.losses[index]), _earlier_loss(run, index)
    change = (earlier - loss) / max(abs(earlier), np.finfo(float).tiny)
    if abs(change) < _REST:
        return "at rest"
    return "falling" if change > 0 else "rising"


def place_on_stairs(
    levels: Float[np.ndarray, " n"],
    run: Trajectory,
    index: int,
    found: Directions | None,
    each: int,
) -> StairPlace | None:
    """The place of a run on predicted levels at a saved point; None if its model has not learned
    what belongs to that place, or if the loss rests where no level is.

    **Arguments:**

    - `levels`: losses that decrease from first to last.
    - `found`: the directions of the model, if they are known.
    - `each`: how many directions are learned with each step.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> levels = np.array([1.0, 0.4585, 0.0884])
    >>> icl.analysis.place_on_stairs(levels, run, 0, None, each=1).kind
    'on'
    ```
    """
    loss, steps = float(run.losses[index]), -np.diff(levels)
    # Beyond both ends there is no step: the nearest one sets the scale.
    before, after = np.append(steps[:1], steps), np.append(steps, steps[-1:])
    off = loss - levels
    near = np.where(off > 0, off <= _NEAR * before, -off <= _NEAR * after)
    if near.any():
        level = int(np.flatnonzero(near)[np.argmin(np.abs(off[near]))])
        if found is not None and not (found.settled and found.learned.sum() == each * level):
            return None
        is_above = bool(off[level] > 0)
        share = float(abs(off[level]) / (before if is_above else after)[level])
        # Below the last level there is no step to leave by.
        leaving = not is_above and level < len(steps)
        kind = "on" if share <= _ON else "leaving" if leaving else "near"
        return StairPlace(kind, level, share, is_above)
    if loss > levels[0]:
        return StairPlace("above", 0, float(off[0] / steps[0]), True)
    if loss < levels[-1]:
        return StairPlace("below", len(steps), float(-off[-1] / steps[-1]), False)
    level = int(np.searchsorted(-levels, -loss)) - 1
    share = float((levels[level] - loss) / steps[level])
    if found is not None and found.resting:
        return StairPlace("between", level, share, False)
    if _earlier_loss(run, index) - loss < _DROPPING * steps[level]:
        return None
    if found is not None and not found.between(each * level, each * (level + 1)):
        return None
    return StairPlace("dropping", level, share, False)


def key_moments(run: Trajectory, most: int = 40) -> list[int]:
    """The points of a run worth describing, at most `most`: its ends, its plateaus and drops, and
    some in between, denser where more happens.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> moments = icl.analysis.key_moments(run, most=10)
    >>> len(moments) <= 10, moments[0], moments[-1] == len(run) - 1
    (True, 0, True)
    ```
    """
    count = len(run)
    if count <= 2:
        return list(range(count))
    times, losses = np.asarray(run.times, float), np.asarray(run.losses, float)
    usable = np.isfinite(losses)
    chosen = {0, count - 1}
    with contextlib.suppress(ValueError), np.errstate(over="ignore", invalid="ignore"):
        found = plateaus(times[usable], losses[usable])
        marks = [moment for each in found for moment in (each.start, (each.start + each.end) / 2)]
        marks += [(one.end + two.start) / 2 for one, two in zip(found, found[1:])]
        places = np.clip(np.searchsorted(times, marks), 0, count - 1)
        chosen |= {int(place) for place in places[: most // 2]}
    # The others are evenly spaced in the sum of loss, time and log time: by any one of the three
    # alone, some runs would have a long part without points.
    later = np.where(times > 0, times, np.min(times[times > 0], initial=np.inf))
    smooth = np.interp(times, times[usable], losses[usable]) if usable.any() else times
    paths = [np.abs(np.diff(x)) for x in (smooth, times, np.log(later))]
    steps = sum(path / max(path.sum(), np.finfo(float).tiny) for path in paths)
    clock = np.append(0.0, np.cumsum(steps))
    even = np.linspace(0.0, clock[-1], most - len(chosen))
    chosen |= {int(place) for place in np.searchsorted(clock, even).clip(0, count - 1)}
    return sorted(chosen)


def _earlier_loss(run: Trajectory, index: int) -> float:
    return float(run[: index + 1].loss_at(_EARLIER * float(run.times[index])))
