"""Attention with separate Q, K, V and O of any width, as it is trained in arXiv 2503.12734."""

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ._attention import AbstractAttention, Activation
from ._base import Normaliser
from ._initialise import FactoredScheme, factored_weights
from ._products import product_of_columns


class FactoredAttention(AbstractAttention):
    """Key-query K_hᵀQ_h/√E and output-value O_hV_h, with heads of width E.

    The query token is (x_q; 0), so the last column of the key-query product is idle; only the
    label's row of the output projection is read, and O_h is that row.
    """

    K: Float[Array, "H E T"]
    Q: Float[Array, "H E T"]
    V: Float[Array, "H E T"]
    O: Float[Array, "H E"]  # noqa: E741
    activation: Activation = eqx.field(static=True, default="softmax")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        width: int | None = None,
        scale: ScalarLike | None = None,
        scheme: FactoredScheme = "default",
        **options,
    ) -> "FactoredAttention":
        """Initial weights. `options` are fields.

        **Arguments:**

        - `width`: E; by default D + 1, the size of a token.
        - `scale`: s; by default 1 for the scheme `"default"`, else 1e-2.
        - `scheme`: `"default"`: every entry is U(−s/√n, s/√n), n inputs of its linear layer: D + 1
          for Q, K, V and H·E for O. `"gaussian"`: every entry is N(0, s²). `"small_identity"`:
          all four are s times the identity. `"opposite"`: the same, with −Q and −O in every
          second head.
        """
        K, Q, V, O = factored_weights(key, dim, 1, heads, width, scale, scheme)  # noqa: E741
        return FactoredAttention(K=K, Q=Q, V=V, O=O[:, 0], **options)

    @property
    def reduced(self) -> bool:
        return False

    def ov(self) -> Float[Array, "H T"]:
        return product_of_columns(self.O[:, :, None], self.V)[:, 0]

    def kq(self) -> Float[Array, "H T D"]:
        return factored_kq(self.K, self.Q, self.K.shape[2] - 1)


def factored_kq(
    K: Float[Array, "H E T"], Q: Float[Array, "H E T"], dim: int
) -> Float[Array, "H T D"]:
    """KᵀQ/√E, for queries that have D inputs and no labels."""
    return product_of_columns(K, Q[:, :, :dim]) / K.shape[1] ** 0.5
