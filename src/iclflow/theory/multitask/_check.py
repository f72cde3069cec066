"""Checks of what the theory of several tasks is a function of: lists and arrays alike.

Every message names the argument, its value and what is allowed. They are made where a user comes
in, not at each step of an integration.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import ArrayLike, Float

from .._softmax_setting import checked_whole
from ._blocks import Blocks

HeadsLike = Sequence[Sequence[float]] | np.ndarray
TasksLike = Sequence[float] | np.ndarray


def checked_blocks(blocks: Blocks) -> Blocks:
    """Blocks of at least one task: sizes, signal and length positive, all of them finite."""
    if not isinstance(blocks, Blocks):
        raise TypeError(
            f"`blocks` is a {type(blocks).__name__}: must be Blocks, such as `blocks_of(task)`."
        )
    sizes = checked_numbers("blocks.sizes", blocks.sizes, 1)
    each = {name: checked_numbers(f"blocks.{name}", getattr(blocks, name), 1, sizes.shape)
            for name in ("signal", "noise")}  # fmt: skip
    for name, values in {"sizes": sizes, "signal": each["signal"]}.items():
        if not np.all(values > 0):
            raise ValueError(f"`blocks.{name}` = {values.tolist()}: must be positive.")
    if np.any(each["noise"] < 0):
        raise ValueError(f"`blocks.noise` = {each['noise'].tolist()}: must not be negative.")
    length = checked_number(
        "blocks.length", blocks.length, "finite and positive", lambda x: 0 < x < np.inf
    )
    return Blocks(sizes, each["signal"], each["noise"], length)


def checked_heads(blocks: Blocks, **heads: HeadsLike) -> list[Float[np.ndarray, "H I"]]:
    """(H, I) of finite numbers, by the names of the arguments; all of one shape."""
    count = len(blocks.sizes)
    found = {name: checked_numbers(name, value, 2) for name, value in heads.items()}
    shapes = {name: value.shape for name, value in found.items()}
    if len(set(shapes.values())) > 1 or any(shape[1] != count for shape in shapes.values()):
        told = " and ".join(f"`{name}` has shape {shape}" for name, shape in shapes.items())
        raise ValueError(f"{told}: must be (heads, {count}), the same for all.")
    return list(found.values())


def checked_numbers(
    name: str, value, axes: int | None = None, shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """An array of finite numbers with so many axes and this shape, where these are given."""
    try:
        array = np.asarray(value)
        # A list of strings of digits would be numbers for numpy.
        array = array.astype(float) if array.dtype.kind in "iuf" else None
    except (TypeError, ValueError):
        array = None
    if array is None:
        raise ValueError(f"`{name}` = {value!r}: must be numbers.")
    if not array.size:
        raise ValueError(f"`{name}` is empty: must hold at least one number.")
    if axes not in (None, array.ndim):
        wanted = "one number a task" if axes == 1 else "a matrix"
        raise ValueError(f"`{name}` has shape {array.shape}: must be {wanted}.")
    if shape not in (None, array.shape):
        raise ValueError(f"`{name}` has shape {array.shape}: must be {shape}.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"`{name}` = {array.tolist()}: every number must be finite.")
    return array


def checked_positive(name: str, value: TasksLike, blocks: Blocks) -> Float[np.ndarray, " I"]:
    """One positive number a task."""
    found = checked_numbers(name, value, 1, blocks.sizes.shape)
    if not np.all(found > 0):
        raise ValueError(
            f"`{name}` = {found.tolist()}: must be positive; zero would stay for ever."
        )
    return found


def checked_imbalance(name: str, value: ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """One finite number, or one for each singular value."""
    found = checked_numbers(name, value)
    if found.shape not in ((), shape):
        raise ValueError(f"`{name}` has shape {found.shape}: must be one number, or {shape}.")
    return np.broadcast_to(found, shape)


def checked_number(name: str, value, allowed: str, holds: Callable[[float], bool]) -> float:
    """`value` as one number of which something holds: what `allowed` says."""
    try:
        number = np.nan if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        number = np.nan
    if np.isnan(number) or not holds(number):
        told = repr(value) if isinstance(value, str) else value
        raise ValueError(f"`{name}` = {told}: must be {allowed}.")
    return number


def checked_width(width: int) -> int:
    """E, a whole number from 1 up."""
    return checked_whole("width", width)


def checked_fractions(fractions: Sequence[float]) -> Float[np.ndarray, " F"]:
    """Parts of a way, between 0 and 1 without these."""
    found = checked_numbers("fractions", fractions)
    if found.ndim != 1 or not np.all((found > 0) & (found < 1)):
        raise ValueError(
            f"`fractions` = {found.tolist()}: must be a list of numbers above 0 and below 1."
        )
    return found


def checked_owners(owners, blocks: Blocks) -> np.ndarray:
    """The head of each task, a whole number from 0 up."""
    found = np.asarray(owners)
    if found.shape != blocks.sizes.shape:
        raise ValueError(f"`owners` = {found.tolist()}: must name a head for each task.")
    if found.dtype.kind not in "iuf" or not np.all((found >= 0) & (found == np.round(found))):
        raise ValueError(f"`owners` = {found.tolist()}: must be whole numbers from 0 up.")
    return found.astype(int)
