"""Random contexts in lanes: what the sampled risks of linear regression draw."""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from ..eigen import eigh
from ..runtime.precision import float64_enabled
from ..tasks import AbstractRegression
from ._lanes import Lanes

Precision = Literal["float64", "float32"]


def draw_dtype(precision: Precision):
    """The type of random numbers: `precision`, or float32 if float64 is not switched on."""
    return jnp.float64 if precision == "float64" and float64_enabled() else jnp.float32


def normals(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Independent standard normal numbers, each made of 23 random bits.

    A random word of 64 bits becomes two of them, which halves the cost of the generator, and the
    same key draws the same numbers in float32 and in float64. Their law is symmetric and ends at
    5.3 standard deviations; its variance is 1 − 2e-7 and its fourth moment 3 − 1e-5.
    """
    if not float64_enabled():  # then there are no words of 64 bits
        return jr.normal(key, shape, dtype)
    *rows, lanes = shape
    count = math.prod(rows)
    words = jr.bits(key, (-(-count // 2), lanes), jnp.uint64)
    halves = jnp.concatenate([words.astype(jnp.uint32), (words >> 32).astype(jnp.uint32)])[:count]
    # Odd multiples of 2⁻²³ between −1 and 1: exact in float32, and never an end of the interval.
    odd = ((halves >> 8) | 1).astype(jnp.int32) - 2**23
    uniform = odd.astype(jnp.float32) * np.float32(2.0**-23)
    numbers = np.float32(math.sqrt(2)) * jax.lax.erf_inv(uniform)
    return numbers.astype(dtype).reshape(shape)


class Root(eqx.Module):
    """F with F Fᵀ a covariance; a vector where that is diagonal, which saves a product."""

    factor: Float[Array, " D"] | Float[Array, "D D"]

    @staticmethod
    def of(covariance: Float[Array, "D D"]) -> "Root":
        # A traced matrix has no values yet: it may or may not be diagonal.
        if isinstance(covariance, Tracer):
            values, vectors = eigh(covariance)
            return Root((vectors * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T)
        matrix = np.asarray(covariance)
        diagonal = np.diag(matrix)
        if np.array_equal(matrix, np.diag(diagonal)):
            return Root(jnp.asarray(np.sqrt(diagonal)))
        values, vectors = np.linalg.eigh(matrix)
        return Root(jnp.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T))

    @property
    def matrix(self) -> Float[Array, "D D"]:
        return jnp.diag(self.factor) if self.factor.ndim == 1 else self.factor

    def times(self, lanes: Float[Array, "*rows D P"]) -> Float[Array, "*rows D P"]:
        """F (symmetric, so also its transpose) applied to every vector."""
        factor = self.factor.astype(lanes.dtype)
        if factor.ndim == 1:
            return factor[:, None] * lanes
        return jnp.einsum("de,...ep->...dp", factor, lanes, precision="highest")


class Inputs(eqx.Module):
    """The law of contexts and queries without their labels: x ~ N(0, Λ), and the lengths."""

    root: Root
    probabilities: Float[Array, " K"]
    contexts: tuple[int, ...] = eqx.field(static=True)

    @staticmethod
    def of(task: AbstractRegression) -> "Inputs":
        return Inputs(Root.of(task.covariance), task.context_probabilities, task.contexts)

    @property
    def dim(self) -> int:
        return self.root.factor.shape[0]

    def draw(
        self, key: PRNGKeyArray, count: int, dtype: DTypeLike, extra: int = 0
    ) -> tuple[Lanes, Array]:
        """`count` contexts with their queries, and `extra` standard normals for each token and
        query, (N + 1, extra, count).

        The tokens hold x alone, zero at padding.
        """
        key_numbers, key_length = jr.split(key)
        longest = max(self.contexts)
        numbers = normals(key_numbers, (longest + 1, self.dim + extra, count), dtype)
        x = self.root.times(numbers[:, : self.dim])
        tokens, query, spare = x[:-1], x[-1], numbers[:, self.dim :]
        if len(self.contexts) == 1:
            return Lanes(tokens, query, jnp.full(count, longest, dtype), None), spare
        # In float32 whatever `dtype` is, so that the same key draws the same lengths.
        shares = self.probabilities.astype(jnp.float32)
        picked = jr.choice(key_length, len(self.contexts), (count,), p=shares)
        length = jnp.asarray(self.contexts, dtype)[picked]
        keep = jnp.arange(longest)[:, None] < length
        return Lanes(jnp.where(keep[:, None], tokens, 0.0), query, length, keep), spare
