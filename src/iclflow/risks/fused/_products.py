"""Sums of products of two numbers, as tables that a kernel can follow.

Circuits are such sums of weights: a product for a matrix of two factors, one weight times 1 for a
merged matrix. Which weights belong to which entry is read off the derivatives of the circuits
themselves, so that no formula of theirs is written a second time.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

# Tables are as wide as arrays in a kernel must be: a power of two, or many times this one.
_WIDEST = 512


class Terms(NamedTuple):
    """Σ factor · x[first] · y[second], one term a place, to be added up into out[row].

    **Fields:**

    - `row`, `first`, `second`: whole numbers.
    - `factor`: numbers, which may be traced.
    """

    row: np.ndarray
    first: np.ndarray
    second: np.ndarray
    factor: ArrayLike

    def transposed(self, ones: int) -> "Terms":
        """The slopes in x, where x and y are one vector: Σ factor · slope[row] · y.

        **Arguments:**

        - `ones`: the place of a constant 1, which has no slope.
        """
        row = np.concatenate([self.first, self.second])
        first = np.concatenate([self.row, self.row])
        second = np.concatenate([self.second, self.first])
        factor = jnp.concatenate([jnp.asarray(self.factor)] * 2)
        kept = np.flatnonzero(row != ones)
        return Terms(row[kept], first[kept], second[kept], factor[kept])


class Table(NamedTuple):
    """Terms in rows of lanes: lane e of each row holds a term of out[e], or one whose factor is 0.

    **Fields:**

    - `first`, `second`: (terms, width), places in x and y.
    - `factor`: (terms, width).
    """

    first: Array
    second: Array
    factor: Array

    @staticmethod
    def of(terms: Terms, width: int) -> "Table":
        order = np.argsort(terms.row, kind="stable")
        rows = terms.row[order]
        place = np.arange(len(rows)) - np.searchsorted(rows, rows)
        most = int(place.max(initial=0)) + 1
        source = np.full((most, width), len(order))
        source[place, rows] = order
        filled = lambda values: jnp.asarray(np.append(values, 0)[source], jnp.int32)
        factor = jnp.append(jnp.asarray(terms.factor, jnp.float32), jnp.float32(0))
        return Table(filled(terms.first), filled(terms.second), factor[source])


def padded(size: int) -> int:
    """The width of a table for `size` numbers."""
    width = 1 << max(0, size - 1).bit_length()
    return width if width <= _WIDEST else -(-size // _WIDEST) * _WIDEST


def columns(width: int) -> list[slice]:
    """Parts of a table that a kernel treats at a time."""
    size = min(width, _WIDEST)
    return [slice(start, start + size) for start in range(0, width, size)]


def products_of(function: Callable[[Array], Array], size: int) -> Terms | None:
    """The terms of a function that is a sum of products of at most two of `size` numbers; the place
    `size` stands for a 1. None if the function is not of this kind."""
    with jax.ensure_compile_time_eval():
        slopes = jax.jit(jax.jacrev(function))
        at = lambda point: np.asarray(slopes(jnp.asarray(point)), float)
        number = np.arange(1.0, size + 1)
        point = np.random.default_rng(0).uniform(1, 2, size)
        linear = at(np.zeros(size))
        once, counted = at(np.ones(size)) - linear, at(number) - linear
        value = np.asarray(jax.jit(function)(jnp.asarray(point)), float)
    # In each slope there is one other number: its place is the ratio of two values.
    row, first = np.nonzero(once)
    factor = once[row, first]
    second = np.rint(counted[row, first] / factor).astype(int) - 1
    if np.any((second < 0) | (second >= size)):
        return None
    half = np.where(first == second, 0.5, 1.0)  # a square has its factor twice
    whole = first <= second
    single = np.nonzero(linear)
    terms = Terms(
        np.concatenate([row[whole], single[0]]),
        np.concatenate([first[whole], single[1]]),
        np.concatenate([second[whole], np.full(len(single[0]), size)]),
        np.concatenate([(factor * half)[whole], linear[single]]),
    )
    numbers = np.append(point, 1.0)
    found = np.zeros(len(value))
    np.add.at(found, terms.row, np.asarray(terms.factor) * numbers[terms.first]
              * numbers[terms.second])  # fmt: skip
    known = np.allclose(found, value, rtol=1e-5, atol=1e-5 * np.abs(value).max(initial=0))
    return terms if known else None


def linear_terms(
    function: Callable[[Array], Array], like: Callable[[Array], Array], size: int
) -> Terms:
    """The terms of a linear function of `size` numbers, whose coefficients may be traced.

    **Arguments:**

    - `like`: a function with coefficients that are known, nonzero wherever those of `function` may
      be.
    """
    with jax.ensure_compile_time_eval():
        pattern = np.asarray(jax.jit(jax.jacfwd(like))(jnp.zeros(size, jnp.float32)))
    row, first = np.nonzero(pattern)
    matrix: Float[Array, "rows n"] = jax.jacfwd(function)(jnp.zeros(size, jnp.float32))
    return Terms(row, first, np.zeros_like(row), matrix[row, first])
