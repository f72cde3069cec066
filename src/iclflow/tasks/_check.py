"""Checks of user input. Each returns the value in the form in which it is stored, or raises an
error with the field, its value and what is allowed."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import InputError, shorten

# A context length, or several.
Lengths = int | Sequence[int]

# Probabilities that are typed in, such as 0.333333333, sum to 1 as far as they are written out.
_SUM_TOLERANCE = 1e-9
# How far apart the two halves of a symmetric matrix may be, and how far below zero an eigenvalue
# of a semi-definite one, both relative to its largest entry: rounding leaves about 1e-16.
_SYMMETRY_TOLERANCE = 1e-10
_EIGENVALUE_TOLERANCE = 1e-12


def check_array(name: str, value: Any, ndim: int) -> Float[np.ndarray, "..."]:
    """`value` as a finite array with `ndim` axes."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(name, value, "must be an array of numbers") from None
    if array.ndim != ndim:
        raise InputError(
            name,
            problem=f"has {array.ndim} axes (shape {array.shape})",
            allowed=f"must have {ndim}",
        )
    if array.size == 0:
        raise InputError(name, problem="is empty", allowed="must hold at least one number")
    if not np.all(np.isfinite(array)):
        raise InputError(
            name, problem="holds NaN or infinity", allowed="every entry must be finite"
        )
    return array


def check_nonnegative(name: str, value: Any) -> float:
    """`value` as a finite number that is not negative."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(name, value, "must be a number") from None
    if not np.isfinite(number) or number < 0:
        raise InputError(name, value, "must be finite and not negative")
    return number


def check_flag(name: str, value: Any) -> bool:
    """`value` as True or False. Words are refused: bool("no") is True."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(name, value, "must be True or False")
    return bool(value)


def is_whole(value: Any) -> bool:
    """Whether `value` is a whole number, of whatever type; True, False and "3" are not.

    **Example:**

    ```pycon
    >>> [icl.tasks.is_whole(value) for value in (2, 2.0, 2.5, True, "3")]
    [True, True, False, False, False]
    ```
    """
    if isinstance(value, bool | np.bool_ | str | bytes):
        return False
    try:
        return float(value).is_integer()
    except (TypeError, ValueError):
        return False


def is_real(value: Any) -> bool:
    """Whether `value` is one real number, of whatever type; True, False and "3" are not.

    **Example:**

    ```pycon
    >>> [icl.tasks.is_real(value) for value in (2, jnp.array(0.5), True, "3", [1.0])]
    [True, True, False, False, False]
    ```
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        return False
    return array.ndim == 0 and array.dtype.kind in "iuf"


def check_key(key: Any) -> None:
    """Refuses anything but a random key or an array of them, such as a seed.

    **Example:**

    ```pycon
    >>> icl.tasks.check_key(jr.key(0))
    >>> try:
    ...     icl.tasks.check_key(0)
    ... except TypeError as error:
    ...     print(error)
    `key` = 0: must be a random key, such as `jax.random.key(0)`.
    ```
    """
    dtype = getattr(key, "dtype", None)
    if dtype is None or not (jnp.issubdtype(dtype, jax.dtypes.prng_key) or dtype == jnp.uint32):
        raise TypeError(
            f"`key` = {shorten(key)}: must be a random key, such as `jax.random.key(0)`."
        )


def check_draw(key: Any, count: Any) -> None:
    """Refuses arguments of `sample` that cannot work, such as a seed in place of a key."""
    check_key(key)
    # The count is a shape: it must be known when the program is compiled.
    if isinstance(count, jax.Array | np.generic | np.ndarray):
        raise InputError("count", problem="is an array", allowed="must be an `int` of Python")
    if not isinstance(count, int) or count < 0:
        raise InputError("count", count, "must be a whole number of sequences")


def check_count(name: str, value: Any, largest: int | None = None, least: int = 1) -> int:
    """`value` as a whole number from `least` up, or to `largest`.

    **Example:**

    ```pycon
    >>> icl.tasks.check_count("heads", 4.0)
    4
    >>> try:
    ...     icl.tasks.check_count("heads", 0, largest=64)
    ... except ValueError as error:
    ...     print(error)
    `heads` = 0: must be a whole number from 1 to 64.
    ```
    """
    if not is_whole(value) or value < least or (largest is not None and value > largest):
        limit = "up" if largest is None else f"to {largest}"
        raise InputError(name, value, f"must be a whole number from {least} {limit}")
    return int(value)


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> None:
    """Refuses all but the allowed values: an unknown word would silently mean another setting.

    **Example:**

    ```pycon
    >>> icl.tasks.check_choice("kind", "exact", ("exact", "sampled"))
    >>> try:
    ...     icl.tasks.check_choice("kind", "exakt", ("exact", "sampled"))
    ... except ValueError as error:
    ...     print(error)
    `kind` = 'exakt': must be one of 'exact', 'sampled'.
    ```
    """
    choices = tuple(allowed)
    if not any(value is choice or value == choice for choice in choices):
        raise InputError(name, value, f"must be one of {', '.join(map(repr, choices))}")


def check_probabilities(name: str, value: Any, count: int) -> Float[np.ndarray, " K"]:
    """`value` as `count` probabilities that sum to 1."""
    shares = check_array(name, value, 1)
    if shares.shape != (count,) or shares.min() < 0:
        raise InputError(name, value, f"must be {count} numbers that are not negative")
    if abs(shares.sum() - 1) > _SUM_TOLERANCE:
        raise InputError(name, problem=f"sum to {shares.sum()}", allowed="must be 1")
    return shares


def check_vector(name: str, value: Any, dim: int) -> Float[np.ndarray, " D"]:
    """`value` as a vector with `dim` entries."""
    vector = check_array(name, value, 1)
    if vector.shape != (dim,):
        raise InputError(name, problem=f"has {vector.shape[0]} entries", allowed=f"must have {dim}")
    return vector


def check_contexts(value: Any) -> tuple[int, ...]:
    """Context lengths: one positive whole number, or several different ones."""
    lengths = tuple(value) if isinstance(value, Iterable) else (value,)
    if not all(is_whole(length) and length >= 1 for length in lengths):
        raise InputError("context", value, "must be a whole number from 1 up, or several")
    if not lengths or len(set(lengths)) != len(lengths):
        raise InputError("context", value, "needs at least one length, each listed once")
    return tuple(int(length) for length in lengths)


def check_covariance(
    name: str, matrix: Any, *, dim: int | None = None, definite: bool
) -> Float[np.ndarray, "D D"]:
    """A symmetric matrix, positive definite (`definite`) or at least positive semi-definite."""
    matrix = check_array(name, matrix, 2)
    if matrix.shape[0] != matrix.shape[1] or (dim is not None and matrix.shape[0] != dim):
        wanted = "square" if dim is None else f"({dim}, {dim})"
        raise InputError(name, problem=f"has shape {matrix.shape}", allowed=f"must be {wanted}")
    scale = np.max(np.abs(matrix))
    if np.max(np.abs(matrix - matrix.T)) > _SYMMETRY_TOLERANCE * scale:
        raise InputError(name, problem="is not symmetric", allowed="must equal its transpose")
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest <= 0 if definite else smallest < -_EIGENVALUE_TOLERANCE * scale:
        kind = "definite" if definite else "semi-definite"
        raise InputError(
            name, problem=f"has an eigenvalue {smallest:.6g}", allowed=f"must be positive {kind}"
        )
    # Exactly symmetric from here on: the two halves may differ by rounding.
    return (matrix + matrix.T) / 2
