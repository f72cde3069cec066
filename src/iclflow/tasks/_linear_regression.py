"""In-context linear regression: y = w·x + noise, a fresh w for every sequence."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, ScalarLike

from ..eigen import eigh
from ..errors import InputError
from ..runtime.precision import as_float
from ._base import Sequences
from ._check import (
    Lengths,
    check_array,
    check_contexts,
    check_count,
    check_covariance,
    check_flag,
    check_nonnegative,
    check_probabilities,
    check_vector,
)
from ._draw import draw_sequences
from ._regression import AbstractRegression

# Replaces σ² = 0 in logarithms: far below every noise that is set on purpose, and not subnormal.
_NOISE_FLOOR = 1e-200
# Without noise, labels fit if their squared residual is below this share of their square: rounding
# leaves about 1e-30.
_FITS = 1e-10
# Eigenvalues count as zero if they are below the largest times this many rounding errors.
_ROUNDINGS = 1e3


class _WhitenedContext(NamedTuple):
    """A context in coordinates where the prior of w is N(0, I).

    **Fields:**

    - `root`: Γ^½.
    - `values`, `vectors`: of Σ x̃x̃ᵀ with x̃ = Γ^½x. Values are exactly zero in directions that the
      context says nothing about, without rounding.
    - `along`: Σ x̃ r in the basis of these vectors.
    - `residual`: r = y − w₀·x.
    """

    root: Float[Array, "D D"]
    values: Float[Array, "*batch D"]
    vectors: Float[Array, "*batch D D"]
    along: Float[Array, "*batch D"]
    residual: Float[Array, "*batch N"]


class LinearRegression(AbstractRegression):
    """One label: inputs x ~ N(0, Λ), task vector w ~ N(w₀, Γ), labels y = w·x + ε with Var ε = σ².

    A task vector that is the same in every sequence is the case Γ = 0.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31, noise=0.1)
    >>> sequences = task.sample(jr.key(0), 1000)
    >>> sequences.x.shape, sequences.y.shape, sequences.x_query.shape
    ((1000, 31, 4), (1000, 31, 1), (1000, 4))
    >>> error = sequences.squared_error(task.bayes_predict(sequences))
    >>> print(f"{error.mean():.2f} of the label's {task.label_variance:.2f}")
    0.12 of the label's 1.10
    ```
    """

    # Numbers are array leaves, so that a sweep over them compiles once; shapes are static.
    covariance: Float[Array, "D D"]
    prior_mean: Float[Array, " D"]
    prior_covariance: Float[Array, "D D"]
    noise: Float[Array, ""]
    context_probabilities: Float[Array, " K"]
    contexts: tuple[int, ...] = eqx.field(static=True)
    noisy_query: bool = eqx.field(static=True)

    def __init__(
        self,
        eigenvalues: ArrayLike | Sequence[float] | None = None,
        context: Lengths = 31,
        *,
        covariance: ArrayLike | Sequence[Sequence[float]] | None = None,
        noise: ScalarLike = 0.0,
        prior_mean: ArrayLike | Sequence[float] | None = None,
        prior_covariance: ArrayLike | Sequence[Sequence[float]] | None = None,
        context_probabilities: ArrayLike | Sequence[float] | None = None,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `eigenvalues`: of the input covariance Λ, which is then diagonal; or give `covariance`.
        - `context`: N, the number of labelled pairs; several lengths make it vary.
        - `covariance`: Λ as a full matrix, any positive-definite one.
        - `noise`: σ², the variance of the label noise.
        - `prior_mean`, `prior_covariance`: w₀ (default 0) and Γ (default I).
        - `context_probabilities`: of each length in `context` (default: all equal).
        - `noisy_query`: whether the query label has noise too.
        """
        matrix = _input_covariance(eigenvalues, covariance)
        dim = matrix.shape[0]
        mean = np.zeros(dim) if prior_mean is None else prior_mean
        prior = np.eye(dim) if prior_covariance is None else prior_covariance
        self.contexts = check_contexts(context)
        count = len(self.contexts)
        shares = np.full(count, 1 / count)
        if context_probabilities is not None:
            shares = check_probabilities("context_probabilities", context_probabilities, count)
        self.covariance = as_float(matrix)
        self.prior_mean = as_float(check_vector("prior_mean", mean, dim))
        self.prior_covariance = as_float(
            check_covariance("prior_covariance", prior, dim=dim, definite=False)
        )
        self.noise = as_float(check_nonnegative("noise", noise))
        self.context_probabilities = as_float(shares)
        self.noisy_query = check_flag("noisy_query", noisy_query)

    @property
    def dim(self) -> int:
        return self.covariance.shape[0]

    @property
    def output_rotation(self) -> None:
        return None

    @property
    def parts(self) -> tuple["LinearRegression", ...]:
        return (self,)

    @property
    def masks(self) -> Float[Array, "1 D"]:
        return jnp.ones((1, self.dim), self.covariance.dtype)

    @property
    def input_basis(self) -> Float[np.ndarray, "D D"] | None:
        covariance = np.asarray(self.covariance)
        if np.array_equal(covariance, np.diag(np.diagonal(covariance))):
            return None
        return np.linalg.eigh(covariance)[1]

    @property
    def weight_second_moment(self) -> Float[Array, "D D"]:
        """M = E[w wᵀ] = Γ + w₀ w₀ᵀ."""
        return _second_moment(self.prior_covariance, self.prior_mean)

    @property
    def label_variance(self) -> Float[Array, ""]:
        """E[y²] of a context label."""
        return _label_variance(self.covariance, self.weight_second_moment, self.noise)

    # Each method is one compiled program: without it every operation would be compiled by itself.
    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        def values(key: PRNGKeyArray, x: Array) -> Array:
            w = jr.normal(key, (count, self.dim), x.dtype) @ symmetric_root(self.prior_covariance)
            return jnp.einsum("pnd,pd->pn", x, w + self.prior_mean)[..., None]

        return draw_sequences(
            key,
            count,
            self.dim,
            values,
            self.noise,
            self.noisy_query,
            self.contexts,
            probabilities=self.context_probabilities,
            root=symmetric_root(self.covariance),
        )

    @eqx.filter_jit
    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        mean, _ = self.posterior(sequences)
        return jnp.einsum("...d,...d->...", mean, sequences.x_query)[..., None]

    @eqx.filter_jit
    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        _, covariance = self.posterior(sequences)
        query = sequences.x_query
        variance = jnp.einsum("...d,...de,...e->...", query, covariance, query) + self.query_noise
        return variance[..., None]

    @eqx.filter_jit
    def posterior(self, sequences: Sequences) -> tuple[Array, Array]:
        """Mean and covariance of w given the context; exact for singular Γ and for σ² = 0."""
        root, values, vectors, along, _ = self._whitened_context(sequences)
        seen = values > 0
        # Directions that the context says nothing about keep their prior. The inner `where` keeps
        # divisions by zero out of gradients.
        inverse = jnp.where(seen, 1 / jnp.where(seen, values + self.noise, 1.0), 0.0)
        shrink = jnp.where(seen, self.noise * inverse, 1.0)
        mean = self.prior_mean + jnp.einsum("...de,...e->...d", vectors, inverse * along) @ root
        basis = root @ vectors
        return mean, jnp.einsum("...de,...e,...fe->...df", basis, shrink, basis)

    def log_evidence(self, sequences: Sequences) -> Float[Array, "*batch"]:
        """log p(x₁, y₁, …, x_N, y_N, x_q), the context length included, up to powers of 2π."""
        inputs = -0.5 * self._input_misfit(sequences)
        return self.label_evidence(sequences) + inputs + self._log_length(sequences)

    @eqx.filter_jit
    def label_evidence(self, sequences: Sequences) -> Float[Array, "*batch"]:
        """log p(y₁, …, y_N | x₁, …, x_N), up to powers of 2π.

        With σ² = 0 the labels either fit exactly or they do not; among tasks that fit, each
        further direction in which w varies makes the same labels infinitely less likely. A
        floor under σ² turns that limit into a large finite number.
        """
        _, values, _, along, residual = self._whitened_context(sequences)
        seen = values > 0
        safe = jnp.where(seen, values, 1.0)
        explained = jnp.where(seen, along**2 / safe, 0.0)
        left = jnp.maximum(jnp.sum(residual**2, -1) - jnp.sum(explained, -1), 0.0)
        floor = jnp.where(self.noise > 0, self.noise, _NOISE_FLOOR)
        fits = left <= _FITS * jnp.sum(sequences.y**2, (-1, -2))
        misfit = jnp.where(self.noise > 0, left / floor, jnp.where(fits, 0.0, jnp.inf))
        misfit = misfit + jnp.sum(explained / (safe + self.noise), -1)
        volume = jnp.where(seen, jnp.log(safe + self.noise) - jnp.log(floor), 0.0)
        return -0.5 * (misfit + jnp.sum(volume, -1) + sequences.length * jnp.log(floor))

    @eqx.filter_jit
    def _input_misfit(self, sequences: Sequences) -> Float[Array, "*batch"]:
        """−2 log p of the inputs: Σ xᵀΛ⁻¹x + log det Λ over context and query."""
        # Padding has x = 0 and adds nothing to the squares.
        precision = jnp.linalg.inv(self.covariance)
        square = jnp.einsum("...nd,de,...ne->...", sequences.x, precision, sequences.x)
        query = sequences.x_query
        square = square + jnp.einsum("...d,de,...e->...", query, precision, query)
        return square + (sequences.length + 1) * jnp.linalg.slogdet(self.covariance)[1]

    @eqx.filter_jit
    def _log_length(self, sequences: Sequences) -> Float[Array, "*batch"]:
        # Zero, so that the logarithm is −∞, for lengths that this task does not have.
        same = sequences.length[..., None] == jnp.asarray(self.contexts, self.covariance.dtype)
        return jnp.log(jnp.sum(jnp.where(same, self.context_probabilities, 0.0), -1))

    def _whitened_context(self, sequences: Sequences) -> _WhitenedContext:
        root = symmetric_root(self.prior_covariance)
        x = sequences.x @ root  # padding rows are zero and add nothing
        known = jnp.where(sequences.mask(), sequences.x @ self.prior_mean, 0.0)
        residual = sequences.y[..., 0] - known
        values, vectors = eigh(jnp.einsum("...nd,...ne->...de", x, x))
        tiny = values[..., -1:] * _ROUNDINGS * jnp.finfo(values.dtype).eps
        values = jnp.where(values > tiny, values, 0.0)
        along = jnp.einsum("...de,...nd,...n->...e", vectors, x, residual)
        return _WhitenedContext(root, values, vectors, along, residual)


def isotropic(
    dim: int, context: Lengths = 40, noise: ScalarLike = 0.1, **options: Any
) -> LinearRegression:
    """White inputs x ~ N(0, I) and task vectors w ~ N(0, I/D), so that E(w·x)² = 1: the setting
    of arXiv 2503.12734.

    **Arguments:**

    - `dim`: D.
    - `options`: further ones of `LinearRegression`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> task.label_variance.round(3), task.weight_second_moment.diagonal()
    (Array(1.1, dtype=float64), Array([0.2, 0.2, 0.2, 0.2, 0.2], dtype=float64))
    ```
    """
    identity = np.eye(check_count("dim", dim))
    return LinearRegression(
        covariance=identity,
        context=context,
        noise=noise,
        **{"prior_covariance": identity / dim, **options},
    )


def with_context(task: LinearRegression, length: int) -> LinearRegression:
    """The same task with contexts of one other length.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> icl.tasks.with_context(task, 10).contexts
    (10,)
    ```
    """
    return LinearRegression(
        covariance=task.covariance,
        context=length,
        noise=float(task.noise),
        prior_mean=task.prior_mean,
        prior_covariance=task.prior_covariance,
        noisy_query=task.noisy_query,
    )


def white_regression(
    contexts: tuple[int, ...],
    noisy_query: bool,
    prior_covariance: Float[Array, "D D"],
    noise: Float[Array, ""],
) -> LinearRegression:
    """Regression on white inputs, as a part of the Bayes predictors of other tasks. The prior and
    the noise may be traced, and so are not checked."""
    dim = prior_covariance.shape[0]
    # Made from plain numbers, which pass the checks, and then filled with the real ones.
    whole = LinearRegression(np.ones(dim), contexts, noisy_query=noisy_query)
    return eqx.tree_at(
        lambda task: (task.prior_covariance, task.noise), whole, (prior_covariance, noise)
    )


def _input_covariance(eigenvalues: Any, covariance: Any) -> Float[np.ndarray, "D D"]:
    """Λ, from its eigenvalues or as it is given."""
    if (eigenvalues is None) == (covariance is None):
        raise ValueError("Give exactly one of `eigenvalues` and `covariance`.")
    if covariance is not None:
        return check_covariance("covariance", covariance, definite=True)
    values = check_array("eigenvalues", eigenvalues, 1)
    if values.min() <= 0:
        raise InputError(
            "eigenvalues", problem=f"holds {values.min():.6g}", allowed="all must be positive"
        )
    return np.diag(values)


@jax.jit
def _second_moment(covariance: Array, mean: Array) -> Array:
    return covariance + jnp.outer(mean, mean)


@jax.jit
def _label_variance(covariance: Array, second_moment: Array, noise: Array) -> Array:
    return jnp.sum(covariance * second_moment) + noise


def symmetric_root(matrix: Float[Array, "D D"]) -> Float[Array, "D D"]:
    """The symmetric square root of a positive semi-definite matrix."""
    values, vectors = jnp.linalg.eigh(matrix)
    # Rounding can make zero eigenvalues slightly negative.
    return (vectors * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T
