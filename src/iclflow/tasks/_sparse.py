"""Sparse linear regression: only a few coordinates matter, others in every sequence."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..precision import as_float
from ._base import Sequences
from ._check import checked_nonnegative
from ._design import AbstractDesignedTask, Design, checked_count
from ._linear_regression import white_regression

# The Bayes predictor weighs every possible set of coordinates.
LARGEST_SUPPORTS = 4096


class SparseRegression(AbstractDesignedTask):
    """y = w·x + ε where s coordinates, drawn at random, have w_j ~ N(0, v/s), the others w_j = 0.

    E(w·x)² = v.
    """

    design: Design
    variance: Float[Array, ""]
    sparsity: int = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        context=40,
        *,
        sparsity: int = 3,
        variance=1.0,
        noise=0.0,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `dim`, `context`, `noise`, `noisy_query`: as in `LinearRegression`.
        - `sparsity`: s, at most `dim`.
        - `variance`: v, of the noiseless label.
        """
        self.design = Design(dim, context, noise, noisy_query)
        self.sparsity = checked_count("sparsity", sparsity, self.design.dim)
        self.variance = as_float(checked_nonnegative("variance", variance))

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        def values(key, x):
            return jnp.einsum("pnd,pd->pn", x, self._weights(key, count))

        return self.design.sample(key, count, values)

    def _weights(self, key: PRNGKeyArray, count: int) -> Float[Array, "count D"]:
        key_size, key_place = jr.split(key)
        dtype = self.variance.dtype
        size = jnp.sqrt(self.variance / self.sparsity)
        w = size * jr.normal(key_size, (count, self.dim), dtype)
        rank = jnp.argsort(jr.uniform(key_place, (count, self.dim), dtype), -1)
        return jnp.where(rank < self.sparsity, w, 0.0)

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch"]:
        weight, means, _ = self._posterior(sequences)
        return jnp.sum(weight * means, 0)

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch"]:
        weight, means, within = self._posterior(sequences)
        mean = jnp.sum(weight * means, 0)
        return jnp.sum(weight * (within + (means - mean) ** 2), 0)

    def _posterior(self, sequences: Sequences):
        """Of every possible set of coordinates: its probability given the context, and the mean
        and the variance of the query label under it."""
        supports = math.comb(self.dim, self.sparsity)
        if supports > LARGEST_SUPPORTS:
            raise TypeError(
                f"The Bayes predictor of {self.sparsity} coordinates out of {self.dim} weighs "
                f"{supports} sets: it is computed for {LARGEST_SUPPORTS} at most."
            )
        places = np.asarray(list(itertools.combinations(range(self.dim), self.sparsity)))
        masks = np.zeros((supports, self.dim))
        np.put_along_axis(masks, places, 1, 1)
        design = self.design

        def of_support(mask):
            prior = jnp.diag(mask * self.variance / self.sparsity)
            task = white_regression(design.contexts, design.noisy_query, prior, design.noise)
            return (
                task.label_evidence(sequences),
                task.bayes_predict(sequences),
                task.bayes_variance(sequences),
            )

        # One set after the other: all at once would need memory for every set and sequence.
        evidence, means, within = jax.lax.map(of_support, as_float(masks))
        return jax.nn.softmax(evidence, axis=0), means, within
