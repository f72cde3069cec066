"""Sparse linear regression: only a few coordinates matter, others in every sequence."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..limits import MAX_SUPPORTS
from ..runtime.precision import as_float
from ._base import Sequences
from ._check import Lengths, check_count
from ._design import AbstractDesignedTask, Design
from ._mixture import total_variance


class SparseRegression(AbstractDesignedTask):
    """y = w·x + ε where s coordinates, drawn at random, have w_j ~ N(0, v/s), the others w_j = 0.

    E(w·x)² = v.
    """

    design: Design
    sparsity: int = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        context: Lengths = 40,
        *,
        sparsity: int = 3,
        variance: ScalarLike = 1.0,
        noise: ScalarLike = 0.0,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `dim`, `context`, `noise`, `noisy_query`: as in `LinearRegression`.
        - `sparsity`: s, at most `dim`.
        - `variance`: v, of the noiseless label.
        """
        self.design = Design(dim, context, variance, noise, noisy_query)
        self.sparsity = check_count("sparsity", sparsity, self.dim)

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        def values(key: PRNGKeyArray, x: Array) -> Array:
            return jnp.einsum("pnd,pd->pn", x, self._weights(key, count))

        return self.draw(key, count, values)

    def _weights(self, key: PRNGKeyArray, count: int) -> Float[Array, "count D"]:
        key_size, key_place = jr.split(key)
        dtype = self.variance.dtype
        size = jnp.sqrt(self.variance / self.sparsity)
        w = size * jr.normal(key_size, (count, self.dim), dtype)
        # A random permutation: s places, drawn without repetition, hold a rank below s.
        rank = jnp.argsort(jr.uniform(key_place, (count, self.dim), dtype), -1)
        return jnp.where(rank < self.sparsity, w, 0.0)

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        weight, means, _ = self._posterior(sequences)
        return jnp.sum(weight * means, 0)

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        return total_variance(*self._posterior(sequences))

    def _posterior(
        self, sequences: Sequences
    ) -> tuple[Float[Array, "S *batch 1"], Float[Array, "S *batch 1"], Float[Array, "S *batch 1"]]:
        """Of every possible set of coordinates: its probability given the context, and the mean
        and the variance of the query label under it."""
        supports = math.comb(self.dim, self.sparsity)
        if supports > MAX_SUPPORTS:
            raise TypeError(
                f"The Bayes predictor of {self.sparsity} coordinates out of {self.dim} weighs "
                f"{supports} sets: it is computed for {MAX_SUPPORTS} at most."
            )
        places = np.asarray(list(itertools.combinations(range(self.dim), self.sparsity)))
        masks = np.zeros((supports, self.dim))
        np.put_along_axis(masks, places, 1, 1)

        def judge(mask: Array) -> tuple[Array, Array, Array]:
            task = self.regression(mask * self.variance / self.sparsity)
            return (
                task.label_evidence(sequences),
                task.bayes_predict(sequences),
                task.bayes_variance(sequences),
            )

        # One set after the other: all at once would need memory for every set and sequence.
        evidence, means, within = jax.lax.map(judge, as_float(masks))
        return jax.nn.softmax(evidence, axis=0)[..., None], means, within
