"""Which moments of a run are kept."""

import dataclasses

import numpy as np

from ..tasks import is_whole


@dataclasses.dataclass(frozen=True)
class Linear:
    """`count` equally spaced moments, the first and the last included."""

    count: int = 200


@dataclasses.dataclass(frozen=True)
class LogSpaced:
    """The start, then `count` moments in equal ratios from `first` to the end."""

    count: int = 200
    first: float = 1.0


@dataclasses.dataclass(frozen=True)
class Explicit:
    """The start, and exactly these moments."""

    times: tuple[float, ...]

    def __init__(self, times):
        try:
            moments = np.atleast_1d(np.asarray(times, float))
        except (TypeError, ValueError):
            raise ValueError(f"`times` = {times!r}: must be numbers.") from None
        object.__setattr__(self, "times", tuple(moments.tolist()))


@dataclasses.dataclass(frozen=True)
class Drops:
    """Dense where the loss moves, sparse where it does not.

    A moment is kept when, since the last one kept, the loss changed by more than `loss` of its
    whole range so far, or the clock by more than the share `clock` of its reading.
    """

    loss: float = 2e-3
    clock: float = 1e-2


SavePoints = Linear | LogSpaced | Explicit | Drops


def save_times(save: SavePoints, end: float | None) -> np.ndarray | None:
    """The fixed moments after the start that `save` asks for; None for `Drops`."""
    if isinstance(save, Drops):
        return None
    if not isinstance(save, Linear | LogSpaced | Explicit):
        raise TypeError(
            f"`save` = {save!r}: must be `Drops()`, `Linear(count)`, `LogSpaced(count, first)` or "
            "`Explicit(times)`."
        )
    if isinstance(save, Explicit):
        times = np.asarray(save.times)
        if times.size == 0 or not np.all(np.isfinite(times)) or np.any(np.diff(times) <= 0):
            raise ValueError("`save`: explicit times must be finite and increase strictly.")
        if times[0] < 0 or (end is not None and times[-1] > end):
            raise ValueError(
                f"`save`: times run from {times[0]:g} to {times[-1]:g}: must lie within the run."
            )
        return times[times > 0]
    if not is_whole(save.count) or save.count < 2:
        raise ValueError(f"`save.count` = {save.count!r}: must be a whole number from 2 up.")
    if end is None:
        raise ValueError(f"`save` = {save} needs a run with a known end: give one, or use Drops().")
    if isinstance(save, Linear):
        return np.linspace(0.0, end, save.count)[1:]
    if not 0 < save.first < end:
        raise ValueError(f"`save.first` = {save.first}: must lie between 0 and the end, {end:g}.")
    return np.geomspace(save.first, end, save.count)
