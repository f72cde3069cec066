"""Positive roots of monotonic functions: one by one, and for whole arrays at once."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

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


def exponential_root(value: Callable[[float], float], low: float, high: float) -> float:
    """e^u where `value`, a function of u that changes sign between `low` and `high`, is zero."""
    root: Any = scipy.optimize.brentq(value, low, high, xtol=1e-14)
    return float(np.exp(root))
