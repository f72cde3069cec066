"""Checks of numbers that are no part of a task: counts, sizes and times."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..tasks import is_whole


def check_whole(name: str, value: Any, least: int = 1) -> int:
    """`value` as a whole number from `least` up."""
    if isinstance(value, str) or not is_whole(value) or value < least:
        # A string of digits is shown with its quotes: without them it looks like a number.
        shown = repr(value) if isinstance(value, str) else value
        raise Refusal(f"`{name}` = {shown}: must be a whole number from {least} up.")
    return int(value)


def check_positive(name: str, value: float) -> float:
    """`value` as a finite positive number."""
    if not np.isfinite(value) or value <= 0:
        raise Refusal(f"`{name}` = {value}: must be finite and positive.")
    return float(value)


def check_times(times: Sequence[float] | ArrayLike) -> Float[np.ndarray, " T"]:
    """A vector of finite times that does not decrease, from 0 up."""
    times = np.asarray(times, dtype=np.float64)
    rising = times.ndim == 1 and len(times) > 0 and times[0] >= 0 and np.all(np.diff(times) >= 0)
    if not rising or not np.isfinite(times[-1]):
        raise Refusal("`times` must be a vector that does not decrease, from 0 up, and finite.")
    return times
