"""Attention with several labels whose keys and queries read inputs alone, and whose values labels
alone: the form that gradient flow keeps (arXiv 2402.19442)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ._attention import Activation
from ._base import Normaliser
from ._factored import factored_kq
from ._initialise import FactoredScheme, factored_weights
from ._multi_attention import AbstractMultiAttention, MultiFactored


class BlindFactored(AbstractMultiAttention):
    """Separate Q, K, V and O: key-query K_hᵀQ_h/√E on inputs, output-value O_hV_h on labels.

    `MultiFactored` without the parts of K that read labels and of V that read inputs. Where these
    are zero they stay zero in gradient flow, because no label is likelier than its opposite.
    """

    K: Float[Array, "H E D"]
    Q: Float[Array, "H E D"]
    V: Float[Array, "H E I"]
    O: Float[Array, "H I E"]  # noqa: E741
    activation: Activation = eqx.field(static=True, default="softmax")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        labels: int,
        heads: int,
        width: int | None = None,
        scale: ScalarLike | None = None,
        scheme: FactoredScheme = "default",
        **options,
    ) -> "BlindFactored":
        """As `MultiFactored.init`, without the parts that this model does not have."""
        K, Q, V, O = factored_weights(key, dim, labels, heads, width, scale, scheme)  # noqa: E741
        return BlindFactored(K=K[..., :dim], Q=Q[..., :dim], V=V[..., dim:], O=O, **options)

    @property
    def labels(self) -> int:
        return self.O.shape[-2]

    @property
    def label_blind(self) -> bool:
        return True

    def ov(self) -> Float[Array, "H I T"]:
        blocks = jnp.einsum("hie,hej->hij", self.O, self.V)
        return jnp.pad(blocks, ((0, 0), (0, 0), (self.K.shape[2], 0)))

    def kq(self) -> Float[Array, "H T D"]:
        blocks = factored_kq(self.K, self.Q, self.K.shape[2])
        return jnp.pad(blocks, ((0, 0), (0, self.labels), (0, 0)))

    def embedded(self) -> MultiFactored:
        """The same attention with all parts of K, Q and V, those missing here being zero."""
        dim, labels = self.K.shape[2], self.labels
        on_inputs = lambda factor: jnp.pad(factor, ((0, 0), (0, 0), (0, labels)))
        return MultiFactored(
            K=on_inputs(self.K),
            Q=on_inputs(self.Q),
            V=jnp.pad(self.V, ((0, 0), (0, 0), (dim, 0))),
            O=self.O,
            activation=self.activation,
            normaliser=self.normaliser,
            self_attention=self.self_attention,
        )
