"""Random functions with a known Bayes predictor: linear in features of x, or in a few inputs."""

import abc
import itertools
import math
from typing import Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..limits import MAX_SUPPORTS
from ..runtime.precision import as_float
from ._base import Sequences
from ._check import Lengths, check_count, check_nonnegative
from ._mixture import total_variance
from ._random_functions import AbstractFunctionTask, Design, DesignOptions

# The fourth moment of he_k grows like 9^k: batches of any size would be noise beyond this.
LARGEST_DEGREE = 12


class AbstractFeatureRegression(AbstractFunctionTask):
    """y = w·φ(x) + ε with known features φ and Gaussian w: Bayes is ridge regression on φ."""

    @abc.abstractmethod
    def features(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch F"]:
        """φ(x)."""

    @abc.abstractmethod
    def weight_variances(self) -> Float[Array, " F"]:
        """The prior variance of each entry of w."""

    @eqx.filter_jit
    def sample(self, key: PRNGKeyArray, count: int) -> Sequences:
        def values(key: PRNGKeyArray, x: Array) -> Array:
            variances = self.weight_variances()
            w = jr.normal(key, (count, variances.shape[0]), x.dtype) * jnp.sqrt(variances)
            return jnp.einsum("pnf,pf->pn", self.features(x), w)

        return self.draw(key, count, values)

    def bayes_predict(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        return self.regression(self.weight_variances()).bayes_predict(self._in_features(sequences))

    def bayes_variance(self, sequences: Sequences) -> Float[Array, "*batch 1"]:
        return self.regression(self.weight_variances()).bayes_variance(self._in_features(sequences))

    def _in_features(self, sequences: Sequences) -> Sequences:
        """The sequences with φ(x) in place of x."""
        # φ(0) need not be 0: padding is set to zero again.
        features = jnp.where(sequences.mask()[..., None], self.features(sequences.x), 0.0)
        query = self.features(sequences.x_query)
        return eqx.tree_at(lambda s: (s.x, s.x_query), sequences, (features, query))


class QuadraticRegression(AbstractFeatureRegression):
    """f(x) = Σ_j w_j x_j²/√3 with w ~ N(0, v I/D), so that E f² = v (arXiv 2208.01066).

    **Example:**

    ```pycon
    >>> task = icl.QuadraticRegression(dim=3, context=20, noise=0.1)
    >>> task.features(jnp.array([1.0, 0.0, 2.0])).round(3)
    Array([0.577, 0.   , 2.309], dtype=float64)
    >>> sequences = task.sample(jr.key(0), 1000)
    >>> sequences.squared_error(task.bayes_predict(sequences)).mean().round(1)
    Array(0.1, dtype=float64)
    ```
    """

    design: Design

    def __init__(self, dim: int, context: Lengths = 40, **options: Unpack[DesignOptions]):
        """Arguments as in `Design`."""
        self.design = Design(dim, context, **options)

    def features(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch F"]:
        # E x⁴ = 3 for a standard normal x.
        return x**2 / 3**0.5

    def weight_variances(self) -> Float[Array, " F"]:
        return jnp.full(self.dim, 1 / self.dim, self.variance.dtype) * self.variance


class HermiteRegression(AbstractFeatureRegression):
    """f(x) = β·x + Σ_j c_j he_k(x_j): a linear part, and one of Hermite degree k.

    β ~ N(0, s I/D) and c ~ N(0, V I/D), with he_k = He_k/√k! of unit variance: the two parts are
    uncorrelated, with variances s and V. What is learnt on linear tasks transfers to the first and
    sees the second as noise that grows with |x|², E[f_k²|x|²] = V(D + 2k).

    **Example:**

    ```pycon
    >>> task = icl.HermiteRegression(dim=3, context=20, degree=2, signal=1.0, variance=0.5)
    >>> task.features(jnp.array([1.0, 0.0, 2.0])).round(2)
    Array([ 1.  ,  0.  ,  2.  ,  0.  , -0.71,  2.12], dtype=float64)
    >>> task.weight_variances().round(3)
    Array([0.333, 0.333, 0.333, 0.167, 0.167, 0.167], dtype=float64)
    ```
    """

    design: Design
    signal: Float[Array, ""]
    degree: int = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        context: Lengths = 40,
        *,
        degree: int = 2,
        variance: ScalarLike = 0.5,
        signal: ScalarLike = 1.0,
        noise: ScalarLike = 0.0,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `dim`, `context`, `noise`, `noisy_query`: as in `LinearRegression`.
        - `degree`: k, from 2 to 12.
        - `variance`: V, of the part of degree k.
        - `signal`: s, the variance of the linear part.
        """
        self.design = Design(dim, context, variance, noise, noisy_query)
        # Degree 1 would be the linear part again.
        self.degree = check_count("degree", degree, LARGEST_DEGREE, least=2)
        self.signal = as_float(check_nonnegative("signal", signal))

    def features(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch F"]:
        return jnp.concatenate([x, hermite(x, self.degree)], -1)

    def weight_variances(self) -> Float[Array, " F"]:
        each = jnp.stack([self.signal, self.variance]) / self.dim
        return jnp.repeat(each, self.dim)


def hermite(x: Float[Array, "*batch"], degree: int) -> Float[Array, "*batch"]:
    """he_k(x) = He_k(x)/√k!, orthonormal under N(0, 1).

    **Example:**

    ```pycon
    >>> x = jr.normal(jr.key(0), (100_000,))
    >>> he2, he3 = icl.tasks.hermite(x, 2), icl.tasks.hermite(x, 3)
    >>> (he2**2).mean().round(1), abs((he2 * he3).mean()) < 0.05
    (Array(1., dtype=float64), Array(True, dtype=bool))
    ```
    """
    before, now = jnp.zeros_like(x), jnp.ones_like(x)
    for k in range(degree):
        before, now = now, x * now - k * before
    return now / math.sqrt(math.factorial(degree))


class SparseRegression(AbstractFunctionTask):
    """y = w·x + ε where s coordinates, drawn at random, have w_j ~ N(0, v/s), the others w_j = 0.

    E(w·x)² = v.

    **Example:**

    ```pycon
    >>> task = icl.SparseRegression(dim=10, context=8, sparsity=2, noise=0.01)
    >>> sequences = task.sample(jr.key(0), 500)
    >>> task.bayes_variance(sequences).mean().round(2)
    Array(0.02, dtype=float64)
    >>> ridge = icl.estimators.Ridge(0.1).predict(sequences)
    >>> sequences.squared_error(ridge).mean().round(1)
    Array(0.3, dtype=float64)
    ```
    """

    design: Design
    sparsity: int = eqx.field(static=True)

    def __init__(
        self,
        dim: int,
        context: Lengths = 40,
        *,
        sparsity: int = 3,
        **options: Unpack[DesignOptions],
    ):
        """**Arguments:**

        - `dim`, `context`, `options`: as in `Design`.
        - `sparsity`: s, at most `dim`.
        """
        self.design = Design(dim, context, **options)
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
        # All sets are equally likely before the context, so that evidence alone decides.
        return jax.nn.softmax(evidence, axis=0)[..., None], means, within
