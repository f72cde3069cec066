"""The linear networks that linear attention is equivalent to (arXiv 2501.16265, Section 3–4).

Both act on the cubic features z = vec(β x_qᵀ) = x_q ⊗ β: block c of z holds β x_q,c.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..tasks import Sequences
from ._base import AbstractModel, Form, Normaliser, attention_length
from ._merged import MergedKQ
from ._separate import SeparateKQ
from ._single import check_single


def cubic_features(sequences: Sequences, normaliser: Normaliser) -> Float[Array, "*batch DD"]:
    """z = x_q ⊗ β for each sequence."""
    beta = jnp.einsum("...nd,...n->...d", sequences.x, sequences.y)
    beta = beta / attention_length(sequences.length, normaliser)[..., None]
    features = sequences.x_query[..., :, None] * beta[..., None, :]
    return features.reshape(*features.shape[:-2], -1)


class TwoLayerLinear(AbstractModel[Sequences]):
    """A fully connected linear network with one hidden layer: ŷ = w₂ᵀ W₁ z."""

    W1: Float[Array, "H DD"]
    w2: Float[Array, " H"]
    normaliser: Normaliser = eqx.field(static=True, default="context")

    @staticmethod
    def from_attention(model: MergedKQ) -> "TwoLayerLinear":
        """The network whose hidden unit h is head h: W₁ row h = vec(U_h) column by column."""
        check_single(model)
        heads = model.v.shape[0]
        return TwoLayerLinear(
            jnp.swapaxes(model.U, 1, 2).reshape(heads, -1), model.v, model.normaliser
        )

    def to_attention(self) -> MergedKQ:
        """The attention whose head h is hidden unit h."""
        heads, features = self.W1.shape
        dim = round(features**0.5)
        blocks = jnp.swapaxes(self.W1.reshape(heads, dim, dim), 1, 2)
        return MergedKQ(v=self.w2, U=blocks, normaliser=self.normaliser)

    @property
    def form(self) -> Form:
        return "bilinear"

    def network(self, z: Float[Array, "*batch DD"]) -> Float[Array, "*batch"]:
        """The network itself, on features."""
        return (z @ self.W1.T) @ self.w2

    def coefficients(self) -> Array:
        return _response_to_unit_features(self.network, self.W1.shape[1])

    def predict(self, sequences: Sequences) -> Float[Array, "*batch"]:
        return self.network(cubic_features(sequences, self.normaliser))


class ConvolutionalLinear(AbstractModel[Sequences]):
    """A sum of H three-layer linear networks: convolution, full row, scalar.

    Network h slides one kernel of size D with stride D and R output channels over the D blocks
    of z, weighs the D·R results with a full row, and multiplies by a scalar.
    """

    kernel: Float[Array, "H R D"]
    row: Float[Array, "H R D"]
    scalar: Float[Array, " H"]
    normaliser: Normaliser = eqx.field(static=True, default="context")

    @staticmethod
    def from_attention(model: SeparateKQ) -> "ConvolutionalLinear":
        """The networks whose kernels are the keys, rows the queries, scalars the values."""
        check_single(model)
        return ConvolutionalLinear(
            jnp.swapaxes(model.K, 1, 2), jnp.swapaxes(model.Q, 1, 2), model.v, model.normaliser
        )

    def to_attention(self) -> SeparateKQ:
        """The attention whose head h is network h."""
        keys, queries = (jnp.swapaxes(part, 1, 2) for part in (self.kernel, self.row))
        return SeparateKQ(v=self.scalar, K=keys, Q=queries, normaliser=self.normaliser)

    @property
    def form(self) -> Form:
        return "bilinear"

    def network(self, z: Float[Array, "*batch DD"]) -> Float[Array, "*batch"]:
        """The networks themselves, on features, by an actual strided convolution."""
        heads, rank, dim = self.kernel.shape
        signal = z.reshape(-1, 1, dim * dim)
        kernels = self.kernel.reshape(heads * rank, 1, dim)
        hidden = jax.lax.conv_general_dilated(signal, kernels, (dim,), "VALID")
        hidden = hidden.reshape(*z.shape[:-1], heads, rank, dim)
        return jnp.einsum("...hrd,hrd,h->...", hidden, self.row, self.scalar)

    def coefficients(self) -> Array:
        return _response_to_unit_features(self.network, self.kernel.shape[2] ** 2)

    @property
    def coefficient_rank(self) -> int:
        return self.kernel.shape[-3] * self.kernel.shape[-2]

    def predict(self, sequences: Sequences) -> Float[Array, "*batch"]:
        return self.network(cubic_features(sequences, self.normaliser))


def _response_to_unit_features(network, size: int) -> Array:
    """A with network(x_q ⊗ β) = βᵀ A x_q, read off by feeding the network every unit vector."""
    dim = round(size**0.5)
    return network(jnp.eye(size)).reshape(dim, dim).T
