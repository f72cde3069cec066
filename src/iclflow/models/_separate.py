"""Circuits with separate low-rank keys and queries (ATTN_S of arXiv 2501.16265)."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray, ScalarLike

from ._circuits import AbstractValueCircuits, check_parts, pad_keys
from ._initialise import Scheme, separate_weights


class Separate(AbstractValueCircuits):
    """Key-query K_h Q_hᵀ of rank R, and one output-value matrix per head.

    **Fields:**

    - `value`: a_h over all entries of a token, or over labels alone if blind.
    - `K`: keys over all entries of a token, or over inputs alone if blind.
    - `Q`: queries over inputs.

    Blind linear attention with one label predicts ŷ = Σ_h v_h βᵀ K_h Q_hᵀ x_q.
    """

    value: Float[Array, "H I V"]
    K: Float[Array, "H K R"]
    Q: Float[Array, "H D R"]

    def __check_init__(self):
        check_parts(self, self.K.shape[-2], self.value.shape[-1])

    @staticmethod
    def of(
        v: Float[ArrayLike, " H"], K: Float[ArrayLike, "H D R"], Q: Float[ArrayLike, "H D R"]
    ) -> "Separate":
        """Blind circuits with one label, from v_h, K_h and Q_h."""
        return Separate(jnp.asarray(v)[:, None, None], jnp.asarray(K), jnp.asarray(Q))

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        rank: int = 1,
        scale: ScalarLike = 1e-2,
        scheme: Scheme = "gaussian",
        *,
        blind: bool = True,
    ) -> "Separate":
        """Random weights of size `scale` for one label; `scheme` says which. What blind circuits
        lack starts at zero."""
        v, K, Q = separate_weights(key, dim, heads, rank, scale, scheme)
        found = Separate.of(v, K, Q)
        return found if blind else found.embed()

    @property
    def dim(self) -> int:
        return self.Q.shape[-2]

    @property
    def blind(self) -> bool:
        return self.K.shape[-2] == self.dim

    @property
    def coefficient_rank(self) -> int:
        return self.heads * self.K.shape[-1]

    def kq(self) -> Float[Array, "H T D"]:
        # Padded after the product, which would otherwise multiply zeros.
        blocks = jnp.einsum("har,hbr->hab", self.K, self.Q)
        return pad_keys(blocks, self.labels) if self.blind else blocks

    def embed(self) -> "Separate":
        if not self.blind:
            return self
        return Separate(self.ov(), pad_keys(self.K, self.labels), self.Q)
