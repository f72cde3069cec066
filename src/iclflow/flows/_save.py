"""Which moments of a run are kept."""

import dataclasses

import numpy as np


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
        object.__setattr__(self, "times", tuple(np.asarray(times, float).tolist()))


@dataclasses.dataclass(frozen=True)
class Drops:
    """Dense where the loss moves, sparse where it does not.

    A moment is kept when, since the last one kept, the loss changed by more than `loss` of its
    whole range so far, or the clock by more than the share `clock` of its reading.
    """

    loss: float = 2e-3
    clock: float = 1e-2


_BLOCK = 64

SavePoints = Linear | LogSpaced | Explicit | Drops


def save_times(save: SavePoints, end: float | None) -> np.ndarray | None:
    """The fixed moments after the start that `save` asks for; None for `Drops`."""
    if isinstance(save, Drops):
        return None
    if isinstance(save, Explicit):
        times = np.asarray(save.times)
        if times.size == 0 or not np.all(np.isfinite(times)) or np.any(np.diff(times) <= 0):
            raise ValueError("`save`: explicit times must be finite and increase strictly.")
        if times[0] < 0 or (end is not None and times[-1] > end):
            raise ValueError(
                f"`save`: times run from {times[0]:g} to {times[-1]:g}: must lie within the run."
            )
        return times[times > 0]
    if save.count < 2:
        raise ValueError(f"`save.count` = {save.count}: must be at least 2.")
    if end is None:
        raise ValueError(f"`save` = {save} needs a run with a known end: give one, or use Drops().")
    if isinstance(save, Linear):
        return np.linspace(0.0, end, save.count)[1:]
    if not 0 < save.first < end:
        raise ValueError(f"`save.first` = {save.first}: must lie between 0 and the end, {end:g}.")
    return np.geomspace(save.first, end, save.count)


class Thinner:
    """Decides, point after point, what `Drops` keeps."""

    def __init__(self, rule: Drops, time: float, loss: float):
        self._rule = rule
        self._time = time
        self._loss = loss
        self._low = self._high = loss

    def state(self) -> list[str]:
        """What the next decision depends on, to the last bit."""
        return [float(x).hex() for x in (self._time, self._loss, self._low, self._high)]

    def go_to(self, state: list[str]) -> None:
        """Goes back to what `state` gave."""
        self._time, self._loss, self._low, self._high = map(float.fromhex, state)

    def keep(self, times: np.ndarray, losses: np.ndarray) -> np.ndarray:
        """The indices to keep among the next points."""
        kept = []
        for first in range(0, len(times), _BLOCK):
            block = slice(first, first + _BLOCK)
            if self._rests(times[block], losses[block]):
                continue
            for i, (time, loss) in enumerate(zip(times[block].tolist(), losses[block].tolist())):
                self._low, self._high = min(self._low, loss), max(self._high, loss)
                if self._moved(abs(loss - self._loss), loss) or self._is_due(time):
                    self._time, self._loss = time, loss
                    kept.append(first + i)
        return np.asarray(kept, dtype=int)

    def _rests(self, times: np.ndarray, losses: np.ndarray) -> bool:
        """Whether none of these points is kept; a plateau is made of such blocks."""
        low, high = float(losses.min()), float(losses.max())
        if low < self._low or high > self._high or self._is_due(float(times[-1])):
            return False
        return not self._moved(max(high - self._loss, self._loss - low), high)

    def _moved(self, change: float, loss: float) -> bool:
        # At the start the range is still rounding noise: that is not movement.
        return change > max(self._rule.loss * (self._high - self._low), 1e-9 * abs(loss))

    def _is_due(self, time: float) -> bool:
        return time - self._time > self._rule.clock * time
