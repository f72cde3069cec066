"""Checks of arguments other than tasks, and the types that many functions share.

Every message names the argument, its value and what is allowed. Arguments are checked where a user
calls, not at each step of an integration.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Float, Int, Real

from ..errors import Refusal
from ..tasks import is_whole

PerHead = Float[ArrayLike, " H"]
KeyQueries = Float[ArrayLike, "H D D"]
Times = Real[ArrayLike, " T"]
HeadsLike = Sequence[Sequence[float]] | np.ndarray
TasksLike = Sequence[float] | np.ndarray


def check_whole(name: str, value: Any, least: int = 1, most: int | None = None) -> int:
    """`value` as a whole number from `least` up, or to `most`."""
    if not is_whole(value) or value < least or (most is not None and value > most):
        end = "up" if most is None else f"to {most}"
        raise Refusal(f"`{name}` = {_show(value)}: must be a whole number from {least} {end}.")
    return int(value)


def check_number(name: str, value: Any, allowed: str, holds: Callable[[float], bool]) -> float:
    """`value` as one number that satisfies `holds`, which `allowed` puts into words."""
    try:
        number = np.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = np.nan
    if np.isnan(number) or not holds(number):
        raise Refusal(f"`{name}` = {_show(value)}: must be {allowed}.")
    return number


def check_positive(name: str, value: Any) -> float:
    """`value` as a finite positive number."""
    return check_number(name, value, "finite and positive", lambda x: 0 < x < np.inf)


def check_fraction(fraction: Any) -> float:
    """`fraction` as a number strictly between 0 and 1."""
    return check_number(
        "fraction", fraction, "a number strictly between 0 and 1", lambda x: 0 < x < 1
    )


def check_times(times: Sequence[float] | ArrayLike) -> Float[np.ndarray, " T"]:
    """A vector of finite times that does not decrease, from 0 up."""
    times = np.asarray(times, dtype=np.float64)
    rising = times.ndim == 1 and len(times) > 0 and times[0] >= 0 and np.all(np.diff(times) >= 0)
    if not rising or not np.isfinite(times[-1]):
        raise Refusal("`times` must be a vector that does not decrease, from 0 up, and finite.")
    return times


def check_numbers(
    name: str, value: Any, axes: int | None = None, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """An array of finite numbers, with this many axes and this shape where they are given."""
    try:
        array = np.asarray(value)
        # NumPy would convert a list of strings of digits to numbers.
        array = array.astype(float) if array.dtype.kind in "iuf" else None
    except (TypeError, ValueError):
        array = None
    if array is None:
        raise Refusal(f"`{name}` = {value!r}: must be numbers.")
    if not array.size:
        raise Refusal(f"`{name}` is empty: must hold at least one number.")
    if axes not in (None, array.ndim):
        wanted = "one number per task" if axes == 1 else "a matrix"
        raise Refusal(f"`{name}` has shape {array.shape}: must be {wanted}.")
    if shape not in (None, array.shape):
        raise Refusal(f"`{name}` has shape {array.shape}: must be {shape}.")
    if not np.all(np.isfinite(array)):
        raise Refusal(f"`{name}` = {array.tolist()}: every number must be finite.")
    return array


def check_heads(count: int, **heads: HeadsLike) -> list[Float[np.ndarray, "H I"]]:
    """(H, I) of finite numbers for I = `count` tasks, by argument name; all of one shape."""
    found = {name: check_numbers(name, value, 2) for name, value in heads.items()}
    shapes = {name: value.shape for name, value in found.items()}
    if len(set(shapes.values())) > 1 or any(shape[1] != count for shape in shapes.values()):
        given = " and ".join(f"`{name}` has shape {shape}" for name, shape in shapes.items())
        raise Refusal(f"{given}: must be (heads, {count}), the same for all.")
    return list(found.values())


def check_per_task(name: str, value: TasksLike, count: int) -> Float[np.ndarray, " I"]:
    """One positive number per task."""
    found = check_numbers(name, value, 1, (count,))
    if not np.all(found > 0):
        # Flows are followed in the logarithms of these weights.
        raise Refusal(f"`{name}` = {found.tolist()}: must be positive; a zero never moves.")
    return found


def check_imbalance(name: str, value: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """One finite number, or one for each singular value."""
    found = check_numbers(name, value)
    if found.shape not in ((), shape):
        raise Refusal(f"`{name}` has shape {found.shape}: must be one number, or {shape}.")
    return np.broadcast_to(found, shape)


def check_fractions(fractions: Sequence[float]) -> Float[np.ndarray, " F"]:
    """A list of fractions, each strictly between 0 and 1."""
    found = check_numbers("fractions", fractions)
    if found.ndim != 1 or not np.all((found > 0) & (found < 1)):
        raise Refusal(
            f"`fractions` = {found.tolist()}: must be a list of numbers above 0 and below 1."
        )
    return found


def check_owners(owners: Any, count: int) -> Int[np.ndarray, " I"]:
    """The head of each of `count` tasks, a whole number from 0 up."""
    found = np.asarray(owners)
    if found.shape != (count,):
        raise Refusal(f"`owners` = {found.tolist()}: must name a head for each task.")
    if found.dtype.kind not in "iuf" or not np.all((found >= 0) & (found == np.round(found))):
        raise Refusal(f"`owners` = {found.tolist()}: must be whole numbers from 0 up.")
    return found.astype(int)


def _show(value: Any) -> Any:
    """A string with its quotes: without them a string of digits looks like a number."""
    return repr(value) if isinstance(value, str) else value
