"""How much of a run separate key-query attention spends on plateaus.

The drops last as long as they last, whatever the initial weights; the waiting in between is
inversely proportional to their size s. So 1 − (fraction on plateaus) is proportional to s, with a
constant that the cascade gives for each direction of the initial weights. Derived in
docs/theory/linear.md.
"""

from typing import NamedTuple

import numpy as np

from ..errors import Refusal
from ._cascade import Staircase
from ._separate_dynamics import drop_offset


class PlateauFraction(NamedTuple):
    """`fraction` = 1 − `falling`/`end`.

    - `falling`: time spent between levels; it does not depend on the size of the weights.
    - `end`: when the staircase is done; inversely proportional to it.
    """

    fraction: float
    falling: float
    end: float


def plateau_fraction(stairs: Staircase, band: float = 0.02, done: float = 0.999) -> PlateauFraction:
    """The share of a run in which the loss is near a level that it will leave again.

    **Arguments:**

    - `stairs`: from `staircase` or `cascade`; needs at least one drop.
    - `band`: how near, as a share of the whole fall from the first level to the last.
    - `done`: the run ends when this share of the whole fall is gone.
    """
    steps = -np.diff(stairs.levels)
    if steps.size == 0:
        raise Refusal("`stairs` has no drop: it never leaves its first level.")
    if not 0 < band < done < 1 or (1 - done) * steps.sum() >= steps[-1]:
        raise Refusal(
            f"`band` = {band}, `done` = {done}: must satisfy 0 < band < done < 1, with the end "
            "inside the last drop."
        )
    near = band * steps.sum()
    stop = 1 - (1 - done) * steps.sum() / steps[-1]
    falling = 0.0
    for n, (step, width) in enumerate(zip(steps, stairs.widths)):
        leaves, arrives = near / step, stop if n == steps.size - 1 else 1 - near / step
        if leaves < arrives:  # else the bands of both levels meet
            falling += width * (drop_offset(arrives) - drop_offset(leaves))
    end = stairs.blow_up_times[-1] + stairs.widths[-1] * drop_offset(stop)
    return PlateauFraction(float(1 - falling / end), float(falling), float(end))
