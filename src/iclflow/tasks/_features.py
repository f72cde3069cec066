"""Regression on fixed nonlinear features: y = w·φ(x) + ε with Gaussian w, so Bayes is known."""

import abc
import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..errors import InputError
from ..runtime.precision import as_float
from ._base import Sequences
from ._check import Lengths, check_nonnegative, is_whole
from ._design import AbstractDesignedTask, Design

# The fourth moment of he_k grows like 9^k: batches of any size would be noise beyond this.
LARGEST_DEGREE = 12


class AbstractFeatureRegression(AbstractDesignedTask):
    """Labels that are linear in known features of the inputs, with a fresh Gaussian w each time."""

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
        """The sequences with φ(x) for x; features of the padding are not zero by themselves."""
        features = jnp.where(sequences.mask()[..., None], self.features(sequences.x), 0.0)
        query = self.features(sequences.x_query)
        return eqx.tree_at(lambda s: (s.x, s.x_query), sequences, (features, query))


class QuadraticRegression(AbstractFeatureRegression):
    """f(x) = Σ_j w_j x_j²/√3 with w ~ N(0, v I/D), so that E f² = v (arXiv 2208.01066)."""

    design: Design

    def __init__(
        self,
        dim: int,
        context: Lengths = 40,
        *,
        variance: ScalarLike = 1.0,
        noise: ScalarLike = 0.0,
        noisy_query: bool = True,
    ):
        """**Arguments:**

        - `dim`, `context`, `noise`, `noisy_query`: as in `LinearRegression`.
        - `variance`: v, of the noiseless label.
        """
        self.design = Design(dim, context, variance, noise, noisy_query)

    def features(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch F"]:
        return x**2 / 3**0.5

    def weight_variances(self) -> Float[Array, " F"]:
        return jnp.full(self.dim, 1 / self.dim, self.variance.dtype) * self.variance


class HermiteRegression(AbstractFeatureRegression):
    """f(x) = β·x + Σ_j c_j he_k(x_j): a linear part, and one of Hermite degree k.

    β ~ N(0, s I/D) and c ~ N(0, V I/D), with he_k = He_k/√k! of unit variance: the two parts are
    uncorrelated, with variances s and V. What is learnt on linear tasks transfers to the first and
    sees the second as noise that grows with |x|², E[f_k²|x|²] = V(D + 2k).
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
        if not is_whole(degree) or not 2 <= degree <= LARGEST_DEGREE:
            raise InputError("degree", degree, f"must be a whole number from 2 to {LARGEST_DEGREE}")
        self.design = Design(dim, context, variance, noise, noisy_query)
        self.degree = int(degree)
        self.signal = as_float(check_nonnegative("signal", signal))

    def features(self, x: Float[Array, "*batch D"]) -> Float[Array, "*batch F"]:
        return jnp.concatenate([x, hermite(x, self.degree)], -1)

    def weight_variances(self) -> Float[Array, " F"]:
        each = jnp.stack([self.signal, self.variance]) / self.dim
        return jnp.repeat(each, self.dim)


def hermite(x: Float[Array, "*batch"], degree: int) -> Float[Array, "*batch"]:
    """he_k(x) = He_k(x)/√k!, orthonormal under N(0, 1)."""
    before, now = jnp.zeros_like(x), jnp.ones_like(x)
    for k in range(degree):
        before, now = now, x * now - k * before
    return now / math.sqrt(math.factorial(degree))
