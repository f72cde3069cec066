"""The root of a decreasing function of a positive number, for whole arrays at once."""

from collections.abc import Callable

import numpy as np

from ._types import Values

# Halvings of an interval of logarithms: from 700, as wide as doubles allow, to below rounding.
_HALVINGS = 64


def falling_root(value: Callable[[np.ndarray], Values], low: Values, high: Values) -> np.ndarray:
    """Where `value`, which falls with its argument, is zero; by bisection in the logarithm.

    **Arguments:**

    - `low`, `high`: positive, around the root; where both agree, they are the root.
    """
    low, high = np.log(low), np.log(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        above = value(np.asarray(np.exp(middle))) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(np.exp((low + high) / 2))
