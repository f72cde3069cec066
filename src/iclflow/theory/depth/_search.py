"""SciPy's searches in one dimension, to rounding."""

from collections.abc import Callable
from typing import Any

import scipy


def find_root(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero between two points at which the signs differ."""
    options: Any = {"xtol": 1e-15, "rtol": 1e-14}
    found: Any = scipy.optimize.brentq(function, low, high, **options)
    return float(found)


def find_lowest(
    function: Callable[[float], float], low: float, high: float, tolerance: float
) -> tuple[float, float]:
    """Where a function with one minimum between two points has it, and its value there."""
    found: Any = scipy.optimize.minimize_scalar(
        function, bounds=(low, high), options={"xatol": tolerance}
    )
    return float(found.x), float(found.fun)
