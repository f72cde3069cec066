"""In-context linear regression: y = w·x + noise, a fresh w for every sequence."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..eigen import eigh
from ..precision import as_float
from ._base import AbstractTask, Sequences
from ._check import (
    checked_array,
    checked_contexts,
    checked_covariance,
    checked_nonnegative,
    is_whole,
)
from ._lengths import cut_to_length


class LinearRegression(AbstractTask[Sequences]):
    """Inputs x ~ N(0, Λ), task vector w ~ N(w₀, Γ), labels y = w·x + ε with Var ε = σ².

    A task vector that is the same in every sequence is the case Γ = 0.
    """

    covariance: Float[Array, "D D"]
    prior_mean: Float[Array, " D"]
    prior_covariance: Float[Array, "D D"]
    noise: Float[Array, ""]
    context_probabilities: Float[Array, " K"]
    contexts: tuple[int, ...] = eqx.field(static=True)
    noisy_query: bool = eqx.field(static=True)

    def __init__(
        self,
        eigenvalues=None,
        context: Any = 31,
        *,
        covariance=None,
        noise=0.0,
        prior_mean=None,
        prior_covariance=None,
        context_probabilities=None,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `eigenvalues`: of the input covariance Λ, which is then diagonal; or give `covariance`.
        - `context`: N, the number of labelled pairs; several lengths make it vary.
        - `covariance`: Λ as a full matrix, any positive-definite one.
        - `noise`: σ², the variance of the label noise.
        - `prior_mean`, `prior_covariance`: w₀ (default 0) and Γ (default I).
        - `context_probabilities`: of each length in `context` (default: all equal).
        - `noisy_query`: whether the query label that is to be predicted carries noise too.
        """
        if (eigenvalues is None) == (covariance is None):
            raise ValueError("Give exactly one of `eigenvalues` and `covariance`.")
        if eigenvalues is not None:
            values = checked_array("eigenvalues", eigenvalues, 1)
            if values.min() <= 0:
                raise ValueError(f"`eigenvalues` holds {values.min():.6g}: all must be positive.")
            matrix = np.diag(values)
        else:
            matrix = checked_covariance("covariance", covariance, definite=True)
        dim = matrix.shape[0]
        mean = np.zeros(dim) if prior_mean is None else checked_array("prior_mean", prior_mean, 1)
        if mean.shape != (dim,):
            raise ValueError(f"`prior_mean` has {mean.shape[0]} entries: must have {dim}.")
        prior = np.eye(dim) if prior_covariance is None else prior_covariance
        self.contexts = checked_contexts(context)
        count = len(self.contexts)
        probabilities = np.full(count, 1 / count)
        if context_probabilities is not None:
            probabilities = checked_array("context_probabilities", context_probabilities, 1)
        if probabilities.shape != (count,) or probabilities.min() < 0:
            raise ValueError(
                f"`context_probabilities` must hold {count} numbers that are not negative."
            )
        if abs(probabilities.sum() - 1) > 1e-9:
            raise ValueError(f"`context_probabilities` sum to {probabilities.sum()}: must be 1.")
        self.covariance = as_float(matrix)
        self.prior_mean = as_float(mean)
        self.prior_covariance = as_float(
            checked_covariance("prior_covariance", prior, dim=dim, definite=False)
        )
        self.noise = as_float(checked_nonnegative("noise", noise))
        self.context_probabilities = as_float(probabilities)
        self.noisy_query = bool(noisy_query)

    @property
    def dim(self) -> int:
        return self.covariance.shape[0]

    @property
    def max_context(self) -> int:
        return max(self.contexts)

    @property
    def weight_second_moment(self) -> Float[Array, "D D"]:
        """M = E[w wᵀ] = Γ + w₀ w₀ᵀ."""
        return _second_moment(self.prior_covariance, self.prior_mean)

    @property
    def query_noise(self) -> Float[Array, ""]:
        """Variance of the noise on the query label: σ², or 0 if the query is noiseless."""
        return self.noise if self.noisy_query else jnp.zeros_like(self.noise)

    @property
    def label_variance(self) -> Float[Array, ""]:
        """E[y²] of a context label."""
        return _label_variance(self.covariance, self.weight_second_moment, self.noise)

    # What follows is compiled piece by piece: one by one, its operations would each be compiled.
    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        key_x, key_w, key_noise, key_length = jr.split(key, 4)
        longest, dim, dtype = self.max_context, self.dim, self.covariance.dtype
        x = jr.normal(key_x, (count, longest + 1, dim), dtype) @ _square_root(self.covariance)
        w = jr.normal(key_w, (count, dim), dtype) @ _square_root(self.prior_covariance)
        w = w + self.prior_mean
        noise = jnp.sqrt(self.noise) * jr.normal(key_noise, (count, longest + 1), dtype)
        if not self.noisy_query:
            noise = noise.at[:, -1].set(0.0)
        y = jnp.einsum("pnd,pd->pn", x, w) + noise
        return Sequences(
            *cut_to_length(key_length, x, y, self.contexts, self.context_probabilities)
        )

    @eqx.filter_jit
    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch"]:
        mean, _ = self.posterior(sequences)
        return jnp.einsum("...d,...d->...", mean, sequences.x_query)

    @eqx.filter_jit
    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch"]:
        _, covariance = self.posterior(sequences)
        query = sequences.x_query
        return jnp.einsum("...d,...de,...e->...", query, covariance, query) + self.query_noise

    @eqx.filter_jit
    def posterior(self, sequences: Sequences) -> tuple[Array, Array]:
        """Mean and covariance of w given the context; exact for singular Γ and for σ² = 0."""
        root, values, vectors, along, _ = self._whitened_context(sequences)
        seen = values > 0
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
        further direction in which w may vary makes the same labels infinitely less likely. A
        floor under σ² turns that limit into a large finite number.
        """
        _, values, _, along, residual = self._whitened_context(sequences)
        seen = values > 0
        safe = jnp.where(seen, values, 1.0)
        explained = jnp.where(seen, along**2 / safe, 0.0)
        left = jnp.maximum(jnp.sum(residual**2, -1) - jnp.sum(explained, -1), 0.0)
        floor = jnp.where(self.noise > 0, self.noise, 1e-200)
        fits = left <= 1e-10 * jnp.sum(sequences.y**2, -1)
        misfit = jnp.where(self.noise > 0, left / floor, jnp.where(fits, 0.0, jnp.inf))
        misfit = misfit + jnp.sum(explained / (safe + self.noise), -1)
        volume = jnp.where(seen, jnp.log(safe + self.noise) - jnp.log(floor), 0.0)
        return -0.5 * (misfit + jnp.sum(volume, -1) + sequences.length * jnp.log(floor))

    @eqx.filter_jit
    def _input_misfit(self, sequences: Sequences) -> Float[Array, "*batch"]:
        """−2 log p of the inputs: Σ xᵀΛ⁻¹x + log det Λ over context and query."""
        precision = jnp.linalg.inv(self.covariance)
        square = jnp.einsum("...nd,de,...ne->...", sequences.x, precision, sequences.x)
        query = sequences.x_query
        square = square + jnp.einsum("...d,de,...e->...", query, precision, query)
        return square + (sequences.length + 1) * jnp.linalg.slogdet(self.covariance)[1]

    @eqx.filter_jit
    def _log_length(self, sequences: Sequences) -> Float[Array, "*batch"]:
        same = sequences.length[..., None] == jnp.asarray(self.contexts, self.covariance.dtype)
        return jnp.log(jnp.sum(jnp.where(same, self.context_probabilities, 0.0), -1))

    def _whitened_context(self, sequences: Sequences):
        """The context in coordinates where the prior is N(0, I): Γ^½, spectrum, basis, Xᵀr, r.

        Eigenvalues that are zero but for rounding (directions that the context says nothing
        about) come back as exactly zero.
        """
        root = _square_root(self.prior_covariance)
        x = sequences.x @ root  # padding rows are zero and add nothing
        residual = sequences.y - jnp.where(sequences.mask(), sequences.x @ self.prior_mean, 0.0)
        values, vectors = eigh(jnp.einsum("...nd,...ne->...de", x, x))
        tiny = values[..., -1:] * 1e3 * jnp.finfo(values.dtype).eps
        values = jnp.where(values > tiny, values, 0.0)
        along = jnp.einsum("...de,...nd,...n->...e", vectors, x, residual)
        return root, values, vectors, along, residual


def isotropic(dim: int, context=40, noise=0.1, **options) -> LinearRegression:
    """White inputs x ~ N(0, I) and task vectors w ~ N(0, I/D), so that E(w·x)² = 1: the setting
    of arXiv 2503.12734.

    **Arguments:**

    - `dim`: D.
    - `options`: further ones of `LinearRegression`.
    """
    if not is_whole(dim) or dim < 1:
        raise ValueError(f"`dim` = {dim}: must be a whole number from 1 up.")
    identity = np.eye(int(dim))
    return LinearRegression(
        covariance=identity,
        context=context,
        noise=noise,
        **{"prior_covariance": identity / dim, **options},
    )


def white_regression(
    contexts: tuple[int, ...],
    noisy_query: bool,
    prior_covariance: Float[Array, "D D"],
    noise: Float[Array, ""],
) -> LinearRegression:
    """Regression on white inputs with a prior and a noise that may be traced, and so are not
    checked: what the Bayes predictors of other tasks are made of."""
    dim = prior_covariance.shape[0]
    whole = LinearRegression(np.ones(dim), contexts, noisy_query=noisy_query)
    return eqx.tree_at(
        lambda task: (task.prior_covariance, task.noise), whole, (prior_covariance, noise)
    )


@jax.jit
def _second_moment(covariance: Array, mean: Array) -> Array:
    return covariance + jnp.outer(mean, mean)


@jax.jit
def _label_variance(covariance: Array, second_moment: Array, noise: Array) -> Array:
    return jnp.sum(covariance * second_moment) + noise


def _square_root(matrix: Float[Array, "D D"]) -> Float[Array, "D D"]:
    """The symmetric square root of a positive semi-definite matrix."""
    values, vectors = jnp.linalg.eigh(matrix)
    return (vectors * jnp.sqrt(jnp.maximum(values, 0.0))) @ vectors.T
