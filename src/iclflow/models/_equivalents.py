"""The linear networks that linear attention is equivalent to (arXiv 2501.16265, Section 3–4).

Both act on the cubic features z = vec(β x_qᵀ) = x_q ⊗ β: block c of z holds β x_q,c.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..tasks import Sequences, check_sequences
from ._attention import Attention, C
from ._base import AbstractModel, Form, Normaliser, attention_length
from ._fields import check_single
from ._linear_circuits import Merged, Separate


def cubic_features(sequences: Sequences, normaliser: Normaliser) -> Float[Array, "*batch DD"]:
    """z = x_q ⊗ β for each sequence of one label.

    **Example:**

    ```pycon
    >>> sequences = icl.isotropic(dim=3).sample(jr.key(0), 4)
    >>> icl.models.cubic_features(sequences, "context").shape
    (4, 9)
    ```
    """
    check_sequences(sequences)
    beta = jnp.einsum("...nd,...n->...d", sequences.x, sequences.y[..., 0])
    beta = beta / attention_length(sequences.length, normaliser)[..., None]
    features = sequences.x_query[..., :, None] * beta[..., None, :]
    return features.reshape(*features.shape[:-2], -1)


class AbstractNetwork(AbstractModel):
    """A linear network on cubic features."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """D, the number of inputs."""

    @abc.abstractmethod
    def network(self, z: Float[Array, "*batch DD"]) -> Float[Array, "*batch"]:
        """The network itself, on features."""

    @property
    def form(self) -> Form:
        return "bilinear"

    def coefficients(self) -> Array:
        # A with network(x_q ⊗ β) = βᵀ A x_q is the slope of the network, which is linear in its
        # features. (To feed it every unit vector would take D⁴ numbers.)
        weight = jax.tree.leaves(self)[0]
        slope = jax.grad(self.network)(jnp.zeros(self.dim**2, weight.dtype))
        return slope.reshape(self.dim, self.dim).T

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return self.network(cubic_features(sequences, self.divides_by))[..., None]


class TwoLayerLinear(AbstractNetwork):
    """A fully connected linear network with one hidden layer: ŷ = w₂ᵀ W₁ z.

    **Example:**

    ```pycon
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> network = icl.TwoLayerLinear.from_attention(model)
    >>> sequences = icl.isotropic(dim=3).sample(jr.key(1), 4)
    >>> jnp.allclose(network.predict(sequences), model.predict(sequences)).item()
    True
    ```
    """

    W1: Float[Array, "H DD"]
    w2: Float[Array, " H"]
    normaliser: Normaliser = eqx.field(static=True, default="context")

    @staticmethod
    def from_attention(model: Attention) -> "TwoLayerLinear":
        """The network whose hidden unit h is head h of merged attention, with vec(U_h) in row h."""
        circuits = _blind_circuits(model, Merged)
        # Column by column, since z = x_q ⊗ β has the query as its slow index.
        rows = jnp.swapaxes(circuits.U, 1, 2).reshape(circuits.heads, -1)
        return TwoLayerLinear(rows, jnp.asarray(circuits.v), model.normaliser)

    def to_attention(self) -> Attention:
        """The attention whose head h is hidden unit h."""
        blocks = jnp.swapaxes(self.W1.reshape(-1, self.dim, self.dim), 1, 2)
        return Attention(Merged.of(self.w2, blocks), normaliser=self.normaliser)

    @property
    def dim(self) -> int:
        return round(self.W1.shape[-1] ** 0.5)

    def network(self, z: Float[Array, "*batch DD"]) -> Float[Array, "*batch"]:
        return (z @ self.W1.T) @ self.w2


class ConvolutionalLinear(AbstractNetwork):
    """A sum of H three-layer linear networks: convolution, full row, scalar.

    Network h slides one kernel of size D with stride D and R output channels over the D blocks
    of z, weighs the D·R results with a full row, and multiplies by a scalar.

    **Example:**

    ```pycon
    >>> model = icl.Attention.separate(jr.key(0), dim=3, heads=2)
    >>> network = icl.ConvolutionalLinear.from_attention(model)
    >>> sequences = icl.isotropic(dim=3).sample(jr.key(1), 4)
    >>> jnp.allclose(network.predict(sequences), model.predict(sequences)).item()
    True
    ```
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
    def dim(self) -> int:
        return self.kernel.shape[-1]

    @property
    def coefficient_rank(self) -> int:
        return self.kernel.shape[-3] * self.kernel.shape[-2]

    def network(self, z: Float[Array, "*batch DD"]) -> Float[Array, "*batch"]:
        # An actual strided convolution, as in the paper: this is what is compared with attention.
        heads, rank, dim = self.kernel.shape
        signal = z.reshape(-1, 1, dim * dim)
        kernels = self.kernel.reshape(heads * rank, 1, dim)
        hidden = jax.lax.conv_general_dilated(signal, kernels, (dim,), "VALID")
        hidden = hidden.reshape(*z.shape[:-1], heads, rank, dim)
        return jnp.einsum("...hrd,hrd,h->...", hidden, self.row, self.scalar)


def _blind_circuits(model: Attention, kind: type[C]) -> C:
    """The circuits of linear attention that has an equivalent network."""
    check_single(model)
    if model.form != "bilinear" or not isinstance(model.circuits, kind):
        raise TypeError(
            f"{type(model.circuits).__name__} attention ({model.activation}) has no such network: "
            f"must be linear, with blind {kind.__name__} circuits."
        )
    return model.circuits
