"""The linear networks that linear attention is equivalent to (arXiv 2501.16265, Section 3–4).

Both act on the cubic features z = vec(β x_qᵀ) = x_q ⊗ β: block c of z holds β x_q,c.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from ..tasks import Sequences, check_sequences
from ._attention import Attention, C
from ._base import AbstractModel, Form, Normaliser, attention_length
from ._merged import Merged
from ._separate import Separate
from ._single import check_single


def cubic_features(sequences: Sequences, normaliser: Normaliser) -> Float[Array, "*batch DD"]:
    """z = x_q ⊗ β for each sequence of one label."""
    check_sequences(sequences)
    beta = jnp.einsum("...nd,...n->...d", sequences.x, sequences.y[..., 0])
    beta = beta / attention_length(sequences.length, normaliser)[..., None]
    features = sequences.x_query[..., :, None] * beta[..., None, :]
    return features.reshape(*features.shape[:-2], -1)


class TwoLayerLinear(AbstractModel):
    """A fully connected linear network with one hidden layer: ŷ = w₂ᵀ W₁ z."""

    W1: Float[Array, "H DD"]
    w2: Float[Array, " H"]
    normaliser: Normaliser = eqx.field(static=True, default="context")

    @staticmethod
    def from_attention(model: Attention) -> "TwoLayerLinear":
        """The network whose hidden unit h is head h of merged attention: W₁ row h = vec(U_h),
        column by column."""
        circuits = _blind_circuits(model, Merged)
        rows = jnp.swapaxes(circuits.U, 1, 2).reshape(circuits.heads, -1)
        return TwoLayerLinear(rows, jnp.asarray(circuits.v), model.normaliser)

    def to_attention(self) -> Attention:
        """The attention whose head h is hidden unit h."""
        heads, features = self.W1.shape
        dim = round(features**0.5)
        blocks = jnp.swapaxes(self.W1.reshape(heads, dim, dim), 1, 2)
        return Attention(Merged.of(self.w2, blocks), normaliser=self.normaliser)

    @property
    def form(self) -> Form:
        return "bilinear"

    def network(self, z: Float[Array, "*batch DD"]) -> Float[Array, "*batch"]:
        """The network itself, on features."""
        return (z @ self.W1.T) @ self.w2

    def coefficients(self) -> Array:
        return _response_to_features(self.network, self.W1.shape[1], self.W1.dtype)

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return self.network(cubic_features(sequences, self.normaliser))[..., None]


class ConvolutionalLinear(AbstractModel):
    """A sum of H three-layer linear networks: convolution, full row, scalar.

    Network h slides one kernel of size D with stride D and R output channels over the D blocks
    of z, weighs the D·R results with a full row, and multiplies by a scalar.
    """

    kernel: Float[Array, "H R D"]
    row: Float[Array, "H R D"]
    scalar: Float[Array, " H"]
    normaliser: Normaliser = eqx.field(static=True, default="context")

    @staticmethod
    def from_attention(model: Attention) -> "ConvolutionalLinear":
        """The networks whose kernels are the keys of separate attention, rows the queries, scalars
        the values."""
        circuits = _blind_circuits(model, Separate)
        kernel, row = (jnp.swapaxes(factor, 1, 2) for factor in (circuits.K, circuits.Q))
        return ConvolutionalLinear(kernel, row, jnp.asarray(circuits.v), model.normaliser)

    def to_attention(self) -> Attention:
        """The attention whose head h is network h."""
        keys, queries = (jnp.swapaxes(part, 1, 2) for part in (self.kernel, self.row))
        circuits = Separate.of(self.scalar, keys, queries)
        return Attention(circuits, normaliser=self.normaliser)

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
        size = self.kernel.shape[2] ** 2
        return _response_to_features(self.network, size, self.kernel.dtype)

    @property
    def coefficient_rank(self) -> int:
        return self.kernel.shape[-3] * self.kernel.shape[-2]

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return self.network(cubic_features(sequences, self.normaliser))[..., None]


def _response_to_features(network: Callable[[Array], Array], size: int, dtype: DTypeLike) -> Array:
    """A with network(x_q ⊗ β) = βᵀ A x_q: the slope of the network, which is linear in its
    features. (To feed it every unit vector would take D⁴ numbers.)"""
    dim = round(size**0.5)
    return jax.grad(network)(jnp.zeros(size, dtype)).reshape(dim, dim).T


def _blind_circuits(model: Attention, kind: type[C]) -> C:
    """The circuits of linear attention that has an equivalent network."""
    check_single(model)
    if model.form != "bilinear" or not isinstance(model.circuits, kind):
        raise TypeError(
            f"{type(model.circuits).__name__} attention ({model.activation}) has no such network: "
            f"must be linear, with blind {kind.__name__} circuits."
        )
    return model.circuits
