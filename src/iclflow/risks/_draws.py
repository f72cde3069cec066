"""Random contexts in lanes, and their labels, drawn or averaged over: the laws of sampled risks."""

import math
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from ..eigen import eigh
from ..runtime.precision import check_made_in_float64, float64_enabled
from ..tasks import AbstractRegression, AbstractTask, LinearRegression, check_choice, check_count
from ._batch import as_dtype
from ._lanes import Lanes, fast_sum

Precision = Literal["float64", "float32"]


def check_draws(task: AbstractTask, batch: Any, precision: Any) -> int:
    """Checks what all risks on fresh sequences are made of, and returns the batch."""
    check_choice("precision", precision, get_args(Precision))
    check_made_in_float64(task=task)
    # Two at least: one sequence has no standard error.
    return check_count("batch", batch, least=2)


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


class LabelledInputs(eqx.Module):
    """Contexts with labels y = w·x + ε, w ~ N(w₀, Γ): the law of `LinearRegression`, in lanes.

    `noisy`: σ² > 0 is certain, so that the posterior needs no eigenvectors.
    """

    task: LinearRegression
    inputs: Inputs
    prior: Root
    noisy: bool = eqx.field(static=True)

    @staticmethod
    def of(task: LinearRegression) -> "LabelledInputs":
        known = not isinstance(task.noise, Tracer)
        noisy = known and bool(np.all(task.noise > 0))
        return LabelledInputs(task, Inputs.of(task), Root.of(task.prior_covariance), noisy)

    def draw(
        self, key: PRNGKeyArray, count: int, dtype: DTypeLike
    ) -> tuple[Lanes, Float[Array, "1 P"]]:
        """`count` sequences with tokens (x; y), and their query labels."""
        key_inputs, key_weights = jr.split(key)
        lanes, spare = self.inputs.draw(key_inputs, count, dtype, extra=1)
        task = as_dtype(self.task, dtype)
        noise = jnp.sqrt(task.noise) * spare[:, 0]
        w = self.prior.times(normals(key_weights, (task.dim, count), dtype))
        w = w + task.prior_mean[:, None]
        y = _dot(lanes.tokens, w) + noise[:-1]
        y = y if lanes.keep is None else jnp.where(lanes.keep, y, 0.0)
        y_query = _dot(lanes.query, w) + (noise[-1] if task.noisy_query else 0.0)
        tokens = jnp.concatenate([lanes.tokens, y[:, None]], 1)
        return eqx.tree_at(lambda lanes: lanes.tokens, lanes, tokens), y_query[None]

    def posterior(self, lanes: Lanes) -> tuple[Float[Array, "1 P"], Float[Array, "1 P"]]:
        """Mean of the noiseless query label and variance of the query label, given the context.

        With Γ = FFᵀ, x̃ = Fᵀx and S = Σ x̃x̃ᵀ + σ²I, the weights have mean w₀ + F S⁻¹ Σ x̃(y − w₀·x)
        and covariance σ² F S⁻¹ Fᵀ. One solution of S u = q̃ gives both numbers.
        """
        task = as_dtype(self.task, lanes.query.dtype)
        # Without noise S may be singular: the task knows how to invert it.
        if not self.noisy:
            sequences = lanes.sequences(jnp.zeros_like(lanes.length)[None])
            return task.bayes_predict(sequences).T, task.bayes_variance(sequences).T
        x, y, mean = lanes.tokens[:, :-1], lanes.tokens[:, -1], task.prior_mean[:, None]
        residual = y - _dot(x, mean)
        x, query = self.prior.times(x), self.prior.times(lanes.query)
        noise = task.noise * jnp.eye(task.dim, dtype=x.dtype)[..., None]
        solution = _solve(fast_sum(x[:, :, None] * x[:, None], 0) + noise, query)
        along = fast_sum(x * residual[:, None], 0)
        target = _dot(lanes.query, mean) + _dot(along, solution)
        return target[None], (task.noise * _dot(solution, query) + task.query_noise)[None]


class LabelMoments(eqx.Module):
    """The law of labels, from which means over all labels of a context follow: label j is
    w_j·x + ε_j, with independent w_j ~ N(mean_j, covariance_j) and independent noise.

    With `rotation` R the labels in the tokens are R times these.
    """

    mean: Float[Array, "J D"]
    covariance: Float[Array, "J D D"]
    noise: Float[Array, " J"]
    query_noise: Float[Array, " J"]
    rotation: Float[Array, "J J"] | None

    @staticmethod
    def of(task: AbstractRegression) -> "LabelMoments":
        parts = task.parts
        stacked = lambda name: jnp.stack([getattr(part, name) for part in parts])
        return LabelMoments(
            stacked("prior_mean"),
            stacked("prior_covariance"),
            stacked("noise"),
            stacked("query_noise"),
            task.output_rotation,
        )


def _dot(first: Float[Array, "*rows D P"], second: Float[Array, "D #P"]) -> Array:
    """Σ_d a_d b_d in every lane, as a sum of products, which XLA fuses with what follows."""
    products = [first[..., d, :] * second[d] for d in range(second.shape[0])]
    return sum(products[1:], products[0])


def _solve(matrix: Float[Array, "D D P"], right: Float[Array, "D P"]) -> Float[Array, "D P"]:
    """Solves a small system with a positive-definite matrix in every lane.

    Gauss–Jordan elimination without pivots, which such matrices do not need.
    """
    dim = matrix.shape[0]
    rows = jnp.concatenate([matrix, right[:, None]], 1)

    def eliminate(i: Array, rows: Array) -> Array:
        pivot = rows[i] / rows[i, i]
        factors = rows[:, i].at[i].set(0.0)
        return (rows - factors[:, None] * pivot).at[i].set(pivot)

    return jax.lax.fori_loop(0, dim, eliminate, rows)[:, -1]
