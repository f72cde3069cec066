"""When a flow has made given parts of its way."""

from collections.abc import Callable

import numpy as np
import scipy.optimize
from jaxtyping import Float

from ...errors import Refusal

# The latest time that is tried: what a flow has not reached by then it may never reach.
_LATEST = 1e5


def first_times(
    follow: Callable[[float], Callable[[float], float]],
    fractions: Float[np.ndarray, " F"],
    end: float,
    complaint: Callable[[float, float], str],
) -> Float[np.ndarray, " F"]:
    """When the part of the way that a flow has made first is each of `fractions`; 0 for those that
    it has made from the start.

    **Arguments:**

    - `follow`: a flow up to a time, as the part of the way that it has made at each moment.
    - `end`: where to look first.
    - `complaint`: how to say what is wrong, from the last time and the part made by then.
    """
    while True:
        made = follow(end)
        if made(end) >= np.max(fractions):
            when = lambda part: scipy.optimize.brentq(lambda t: made(t) - part, 0.0, end)
            return np.array([when(part) if made(0.0) < part else 0.0 for part in fractions])
        if end > _LATEST:
            raise Refusal(complaint(end, made(end)))
        end *= 4
