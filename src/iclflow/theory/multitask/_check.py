"""Checks of what the theory of several tasks is a function of: lists and arrays alike.

Every message names the argument, its value and what is allowed. Inputs are checked where a user
calls, not at each step of an integration.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import ArrayLike, Float, Int

from ...errors import Refusal

HeadsLike = Sequence[Sequence[float]] | np.ndarray
TasksLike = Sequence[float] | np.ndarray


def check_heads(count: int, **heads: HeadsLike) -> list[Float[np.ndarray, "H I"]]:
    """(H, I) of finite numbers for I = `count` tasks, by argument name; all of one shape."""
    found = {name: check_numbers(name, value, 2) for name, value in heads.items()}
    shapes = {name: value.shape for name, value in found.items()}
    if len(set(shapes.values())) > 1 or any(shape[1] != count for shape in shapes.values()):
        given = " and ".join(f"`{name}` has shape {shape}" for name, shape in shapes.items())
        raise Refusal(f"{given}: must be (heads, {count}), the same for all.")
    return list(found.values())


def check_numbers(
    name: str, value: Any, axes: int | None = None, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """An array of finite numbers with so many axes and this shape, where these are given."""
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
        wanted = "one number a task" if axes == 1 else "a matrix"
        raise Refusal(f"`{name}` has shape {array.shape}: must be {wanted}.")
    if shape not in (None, array.shape):
        raise Refusal(f"`{name}` has shape {array.shape}: must be {shape}.")
    if not np.all(np.isfinite(array)):
        raise Refusal(f"`{name}` = {array.tolist()}: every number must be finite.")
    return array


def check_positive(name: str, value: TasksLike, count: int) -> Float[np.ndarray, " I"]:
    """One positive number per task."""
    found = check_numbers(name, value, 1, (count,))
    if not np.all(found > 0):
        raise Refusal(f"`{name}` = {found.tolist()}: must be positive; zero would stay for ever.")
    return found


def check_imbalance(name: str, value: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """One finite number, or one for each singular value."""
    found = check_numbers(name, value)
    if found.shape not in ((), shape):
        raise Refusal(f"`{name}` has shape {found.shape}: must be one number, or {shape}.")
    return np.broadcast_to(found, shape)


def check_number(name: str, value: Any, allowed: str, holds: Callable[[float], bool]) -> float:
    """`value` as one number that satisfies `holds`, which `allowed` puts into words."""
    try:
        number = np.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = np.nan
    if np.isnan(number) or not holds(number):
        shown = repr(value) if isinstance(value, str) else value
        raise Refusal(f"`{name}` = {shown}: must be {allowed}.")
    return number


def check_fractions(fractions: Sequence[float]) -> Float[np.ndarray, " F"]:
    """Fractions of a way, strictly between 0 and 1."""
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
