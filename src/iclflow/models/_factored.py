"""Circuits with separate Q, K, V and O of any width, as they are trained in arXiv 2503.12734."""

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ._circuits import AbstractCircuits, check_parts, pad_keys, pad_values
from ._initialise import FactoredScheme, factored_weights
from ._products import product_of_columns


class Factored(AbstractCircuits):
    """Key-query K_hᵀQ_h/√E and output-value O_hV_h, with heads of width E.

    **Fields:**

    - `K`, `Q`: over all entries of a token, or over inputs alone if blind. The query token is
      (x_q; 0), so that the columns of Q for labels are idle.
    - `V`: over all entries of a token, or over labels alone if blind.
    - `O`: the rows of the output projection that are read, those of the labels.

    Where the parts that blind circuits lack are zero they stay zero in gradient flow, because no
    label is likelier than its opposite (arXiv 2402.19442).
    """

    K: Float[Array, "H E K"]
    Q: Float[Array, "H E K"]
    V: Float[Array, "H E V"]
    O: Float[Array, "H I E"]  # noqa: E741

    def __check_init__(self):
        check_parts(self, self.K.shape[-1], self.V.shape[-1])

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        width: int | None = None,
        scale: ScalarLike | None = None,
        scheme: FactoredScheme = "default",
        *,
        labels: int = 1,
        blind: bool = False,
    ) -> "Factored":
        """Initial weights.

        **Arguments:**

        - `width`: E; by default D + I, the size of a token.
        - `scale`: s; by default 1 for the scheme `"default"`, else 1e-2.
        - `scheme`: `"default"`: every entry is U(−s/√n, s/√n), n inputs of its linear layer: D + I
          for Q, K, V and H·E for O. `"gaussian"`: every entry is N(0, s²). `"small_identity"`:
          all four are s times the identity. `"opposite"`: the same, with −Q and −O in every
          second head.
        """
        K, Q, V, O = factored_weights(key, dim, labels, heads, width, scale, scheme)  # noqa: E741
        if blind:
            # Drawn whole, then cut: a key gives the same weights with and without the rest.
            return Factored(K[..., :dim], Q[..., :dim], V[..., dim:], O)
        return Factored(K, Q, V, O)

    @property
    def heads(self) -> int:
        return self.K.shape[-3]

    @property
    def dim(self) -> int:
        return self.K.shape[-1] - (0 if self.blind else self.labels)

    @property
    def labels(self) -> int:
        return self.O.shape[-2]

    @property
    def width(self) -> int:
        """E, the width of keys and values."""
        return self.K.shape[-2]

    @property
    def blind(self) -> bool:
        return self.V.shape[-1] == self.labels

    def ov(self) -> Float[Array, "H I T"]:
        blocks = product_of_columns(jnp.swapaxes(self.O, 1, 2), self.V)
        return pad_values(blocks, self.dim) if self.blind else blocks

    def kq(self) -> Float[Array, "H T D"]:
        blocks = product_of_columns(self.K, self.Q[:, :, : self.dim]) / self.width**0.5
        return pad_keys(blocks, self.labels) if self.blind else blocks

    def embed(self) -> "Factored":
        if not self.blind:
            return self
        on_inputs = lambda factor: jnp.pad(factor, ((0, 0), (0, 0), (0, self.labels)))
        return Factored(on_inputs(self.K), on_inputs(self.Q), pad_values(self.V, self.dim), self.O)
