"""Checks of user input. Every message names the field, its value and what is allowed."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from ..files import shorten


def checked_array(name: str, value, ndim: int) -> np.ndarray:
    """`value` as a finite array with `ndim` axes."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"`{name}` = {value!r}: must be an array of numbers.") from None
    if array.ndim != ndim:
        raise ValueError(f"`{name}` has {array.ndim} axes (shape {array.shape}): must have {ndim}.")
    if array.size == 0:
        raise ValueError(f"`{name}` is empty: must hold at least one number.")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"`{name}` holds NaN or infinity: every entry must be finite.")
    return array


def checked_nonnegative(name: str, value) -> float:
    """`value` as a finite number that is not negative."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"`{name}` = {value!r}: must be a number.") from None
    if not np.isfinite(number) or number < 0:
        raise ValueError(f"`{name}` = {value}: must be finite and not negative.")
    return number


def is_whole(value) -> bool:
    """Whether `value` is a whole number, of whatever type; True, False and "3" are not."""
    if isinstance(value, bool | np.bool_ | str | bytes):
        return False
    try:
        return float(value).is_integer()
    except (TypeError, ValueError):
        return False


def is_real(value) -> bool:
    """Whether `value` is one real number, of whatever type; True, False and "3" are not."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return False
    return array.ndim == 0 and array.dtype.kind in "iuf"


def check_key(key) -> None:
    """Refuses what is no random key, and no array of them, such as a seed."""
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        raise TypeError(
            f"`key` = {shorten(key)}: must be a random key, such as `jax.random.key(0)`."
        )


def checked_contexts(value) -> tuple[int, ...]:
    """Context lengths: one positive whole number, or several different ones."""
    lengths = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(is_whole(length) and length >= 1 for length in lengths):
        raise ValueError(f"`context` = {value}: must be a whole number from 1 up, or several.")
    if not lengths or len(set(lengths)) != len(lengths):
        raise ValueError(f"`context` = {value}: needs at least one length, each listed once.")
    return tuple(int(length) for length in lengths)


def checked_covariance(name: str, matrix, *, dim: int | None = None, definite: bool) -> np.ndarray:
    """A symmetric matrix, positive definite (`definite`) or at least positive semi-definite."""
    matrix = checked_array(name, matrix, 2)
    if matrix.shape[0] != matrix.shape[1] or (dim is not None and matrix.shape[0] != dim):
        wanted = "square" if dim is None else f"({dim}, {dim})"
        raise ValueError(f"`{name}` has shape {matrix.shape}: must be {wanted}.")
    scale = np.max(np.abs(matrix))
    if np.max(np.abs(matrix - matrix.T)) > 1e-10 * scale:
        raise ValueError(f"`{name}` is not symmetric: must equal its transpose.")
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    # Rounding makes the zero eigenvalues of a semi-definite matrix negative by about 1e-16.
    if smallest <= 0 if definite else smallest < -1e-12 * scale:
        kind = "definite" if definite else "semi-definite"
        raise ValueError(f"`{name}` has an eigenvalue {smallest:.6g}: must be positive {kind}.")
    return (matrix + matrix.T) / 2
