"""Attention with separate low-rank keys and queries (ATTN_S of arXiv 2501.16265)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ._attention import AbstractAttention, Activation
from ._base import Normaliser
from ._initialise import Scheme, separate_weights
from ._single import check_single


class SeparateKQ(AbstractAttention):
    """Reduced form: ŷ = Σ_h v_h βᵀ K_h Q_hᵀ x_q (linear), the blocks u and h absent."""

    v: Float[Array, " H"]
    K: Float[Array, "H D R"]
    Q: Float[Array, "H D R"]
    activation: Activation = eqx.field(static=True, default="linear")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=True)

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        rank: int = 1,
        scale: ScalarLike = 1e-2,
        scheme: Scheme = "gaussian",
        **options,
    ) -> "SeparateKQ":
        """Random weights of size `scale`; `scheme` says which. `options` are fields."""
        v, K, Q = separate_weights(key, dim, heads, rank, scale, scheme)
        return SeparateKQ(v=v, K=K, Q=Q, **options)

    @property
    def reduced(self) -> bool:
        return True

    def ov(self) -> Float[Array, "H T"]:
        return jnp.pad(self.v[:, None], ((0, 0), (self.K.shape[1], 0)))

    def kq(self) -> Float[Array, "H T D"]:
        blocks = jnp.einsum("hdr,her->hde", self.K, self.Q)
        return jnp.pad(blocks, ((0, 0), (0, 1), (0, 0)))

    @property
    def coefficient_rank(self) -> int:
        return self.K.shape[-3] * self.K.shape[-1]


class FullSeparateKQ(AbstractAttention):
    """Full form: value rows a = (u; v), keys over tokens (D+1, R), queries over inputs (D, R)."""

    value: Float[Array, "H T"]
    key: Float[Array, "H T R"]
    query: Float[Array, "H D R"]
    activation: Activation = eqx.field(static=True, default="linear")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=True)

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        rank: int = 1,
        scale: ScalarLike = 1e-2,
        scheme: Scheme = "gaussian",
        **options,
    ) -> "FullSeparateKQ":
        """As `SeparateKQ.init`; u and the label row of the keys start at zero."""
        model = SeparateKQ.init(key, dim, heads, rank, scale, scheme, **options)
        return FullSeparateKQ.embed(model)

    @staticmethod
    def embed(model: SeparateKQ) -> "FullSeparateKQ":
        """The same function as `model`, with the blocks u and h there and zero."""
        check_single(model)
        keys = jnp.pad(model.K, ((0, 0), (0, 1), (0, 0)))
        return FullSeparateKQ(
            value=model.ov(),
            key=keys,
            query=model.Q,
            activation=model.activation,
            normaliser=model.normaliser,
            self_attention=model.self_attention,
        )

    @property
    def reduced(self) -> bool:
        return False

    def ov(self) -> Float[Array, "H T"]:
        return self.value

    def kq(self) -> Float[Array, "H T D"]:
        return jnp.einsum("har,hbr->hab", self.key, self.query)
