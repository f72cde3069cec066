"""Where a loss curve dwells: its plateaus."""

import dataclasses
import math

import numpy as np

from ._denoise import Curve, curve, zigzag

# Windows of one height overlap, so that none is missed between two of them.
_OVERLAP = 8


@dataclasses.dataclass(frozen=True)
class Plateau:
    """A stretch of a loss curve that changes far more slowly than what surrounds it.

    **Fields:**

    - `start`, `end`: when the loss comes within `margin` of the level, and when it leaves.
    - `level`: the loss there: its mean over the half of that time in which it moves least.
    - `spread`: the standard deviation of the loss between `start` and `end`, over time.
    - `initial`, `final`: whether the curve starts, or ends, on it.
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
    run,
    losses=None,
    *,
    contrast: float = 5.0,
    resolution: float = 5e-3,
    margin: float = 0.05,
) -> tuple[Plateau, ...]:
    """The plateaus of a loss curve, in order: `plateaus(run)` or `plateaus(times, losses)`.

    A plateau is a level at which the curve spends `contrast` times as long, per unit of loss, as
    on the quickest part of the way to the plateaus beside it. Nothing else is assumed: no
    levels, no time scale, no shape. So a drop between two plateaus counts however short they
    are, an exponential decay has its end for its only plateau, and a straight line has none.
    Stretching time, and stretching or shifting the loss, changes nothing.

    **Arguments:**

    - `run`: a `Trajectory`, or times, which must increase and may be spaced in any way.
    - `losses`: the losses at these times. Noise is allowed: it is taken out by monotone
      regression, and what may be its trace is not counted.
    - `contrast`: how much slower than its surroundings a plateau is; above 1.
    - `resolution`: the height of loss, as a share of the whole range, over which speed is
      measured. Drops lower than about twice this are not seen. Noise makes it coarser.
    - `margin`: `start` and `end` are where the loss has this share of the drop to the next
      plateau left, or done.
    """
    if not contrast > 1:
        raise ValueError(f"`contrast` = {contrast}: must be above 1.")
    for name, value in (("resolution", resolution), ("margin", margin)):
        if not 0 < value < 0.5:
            raise ValueError(f"`{name}` = {value}: must lie between 0 and 0.5.")
    found = curve(run, losses)
    path = np.concatenate([[0.0], np.cumsum(np.abs(np.diff(found.smooth)))])
    height = max(resolution * path[-1], found.ripple)
    if path[-1] <= 2 * height:
        return (_plateau(found, path, path[0], path[-1], path[0], path[-1]),)
    count = _OVERLAP * math.ceil(path[-1] / height)
    lower = np.linspace(0.0, path[-1] - height, count)
    dwell = _time_at(found.times, path, lower + height, "right") - _time_at(
        found.times, path, lower, "left"
    )
    turns = zigzag(np.log(dwell), math.log(contrast))
    slow = [i for i, turn in enumerate(turns) if _is_peak(dwell, turns, i)]
    centres = ...
