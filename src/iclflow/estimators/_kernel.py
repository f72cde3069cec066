"""Kernel regression: what one softmax head computes."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from ..runtime.precision import as_float
from ..tasks import Sequences
from ._base import AbstractEstimator, masked_context


class KernelRegression(AbstractEstimator):
    """ŷ = c Σₙ pₙ yₙ with p = softmax(ω x·x_q): the labels averaged with an exponential kernel.

    With inputs of one length this is the estimator of Nadaraya and Watson with a Gaussian kernel.
    """

    omega: Float[Array, ""]
    factor: Float[Array, ""]

    def __init__(self, omega: ScalarLike, factor: ScalarLike = 1.0):
        self.omega = as_float(omega)
        self.factor = as_float(factor)

    @property
    def name(self) -> str:
        return "kernel regression"

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        scores = self.omega * jnp.einsum("...nd,...d->...n", sequences.x, sequences.x_query)
        weights = jax.nn.softmax(scores, where=sequences.mask(), axis=-1)
        _, y = masked_context(sequences)
        return self.factor * jnp.einsum("...n,...ni->...i", weights, y)
