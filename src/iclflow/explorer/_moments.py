"""The moments of a run that are worth words."""

import contextlib

import numpy as np

from ..analysis import plateaus
from ..trajectory import Trajectory


def moments_to_tell(run: Trajectory, most: int = 40) -> list[int]:
    """The points of a run that are worth words, at most `most`: its ends, the plateaus and drops
    that it has, and some in between, close where much happens."""
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
    # A clock that is even in the loss, in time and in its logarithm.
    later = np.where(times > 0, times, np.min(times[times > 0], initial=np.inf))
    smooth = np.interp(times, times[usable], losses[usable]) if usable.any() else times
    paths = [np.abs(np.diff(x)) for x in (smooth, times, np.log(later))]
    steps = sum(path / max(path.sum(), np.finfo(float).tiny) for path in paths)
    clock = np.append(0.0, np.cumsum(steps))
    even = np.linspace(0.0, clock[-1], most - len(chosen))
    chosen |= {int(place) for place in np.searchsorted(clock, even).clip(0, count - 1)}
    return sorted(chosen)
