"""Which moments of a run are kept."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import ArrayLike

from ..errors import InputError
from ..tasks import is_whole


@dataclasses.dataclass(frozen=True)
class SaveEvenly:
    """`count` equally spaced moments, the first and the last included."""

    count: int = 200


@dataclasses.dataclass(frozen=True)
class SaveLogSpaced:
    """The start, then `count` moments in equal ratios from `first` to the end."""

    count: int = 200
    first: float = 1.0


@dataclasses.dataclass(frozen=True)
class SaveAtTimes:
    """The start, and exactly these moments."""

    times: tuple[float, ...]

    def __init__(self, times: ArrayLike | Sequence[float]):
        try:
            moments = np.atleast_1d(np.asarray(times, float))
        except (TypeError, ValueError):
            raise InputError("times", times, "must be numbers") from None
        # A frozen dataclass cannot be assigned to in its own constructor either.
        object.__setattr__(self, "times", tuple(moments.tolist()))


@dataclasses.dataclass(frozen=True)
class SaveAtDrops:
    """Dense where the loss moves, sparse where it does not.

    A moment is kept when, since the last one kept, the loss changed by more than `loss` of its
    whole range so far, or the clock by more than the share `clock` of its reading.
    """

    loss: float = 2e-3
    clock: float = 1e-2


SavePoints = SaveEvenly | SaveLogSpaced | SaveAtTimes | SaveAtDrops


def save_times(save: SavePoints, end: float | None) -> np.ndarray | None:
    """The fixed moments after the start that `save` asks for; None for `SaveAtDrops`."""
    if isinstance(save, SaveAtDrops):
        return None
    if not isinstance(save, SaveEvenly | SaveLogSpaced | SaveAtTimes):
        raise TypeError(
            f"`save` = {save!r}: must be `SaveAtDrops()`, `SaveEvenly(count)`, "
            "`SaveLogSpaced(count, first)` or `SaveAtTimes(times)`."
        )
    if isinstance(save, SaveAtTimes):
        times = np.asarray(save.times)
        if times.size == 0 or not np.all(np.isfinite(times)) or np.any(np.diff(times) <= 0):
            raise ValueError("`save`: explicit times must be finite and increase strictly.")
        if times[0] < 0 or (end is not None and times[-1] > end):
            raise ValueError(
                f"`save`: times run from {times[0]:g} to {times[-1]:g}: must lie within the run."
            )
        return times[times > 0]
    if not is_whole(save.count) or save.count < 2:
        raise InputError("save.count", save.count, "must be a whole number from 2 up")
    if end is None:
        problem = "needs a run with a known end"
        raise InputError("save", save, "give one, or use SaveAtDrops()", problem)
    if isinstance(save, SaveEvenly):
        return np.linspace(0.0, end, save.count)[1:]
    if not 0 < save.first < end:
        raise InputError("save.first", save.first, f"must lie between 0 and the end, {end:g}")
    return np.geomspace(save.first, end, save.count)
