"""Attention with one merged key-query matrix per head (ATTN_M of arXiv 2501.16265)."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from ..precision import as_float
from ._attention import AbstractAttention, Activation
from ._base import Normaliser
from ._initialise import MergedScheme, merged_weights, random_blocks


class MergedKQ(AbstractAttention):
    """Reduced form: ŷ = Σ_h v_h βᵀ U_h x_q (linear), the blocks u and h absent."""

    v: Float[Array, " H"]
    U: Float[Array, "H D D"]
    activation: Activation = eqx.field(static=True, default="linear")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=True)

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        scale: ScalarLike = 1e-2,
        scheme: MergedScheme = "gaussian",
        **options,
    ) -> "MergedKQ":
        """Random weights of size `scale`; `scheme` says which. `options` are fields."""
        v, U = merged_weights(key, dim, heads, scale, scheme)
        return MergedKQ(v=v, U=U, **options)

    @property
    def reduced(self) -> bool:
        return True

    def ov(self) -> Float[Array, "H T"]:
        return jnp.pad(self.v[:, None], ((0, 0), (self.U.shape[1], 0)))

    def kq(self) -> Float[Array, "H T D"]:
        return jnp.pad(self.U, ((0, 0), (0, 1), (0, 0)))


class FullMergedKQ(AbstractAttention):
    """Full form: value rows a = (u; v) and key-query blocks B = (U; hᵀ), all trainable."""

    value: Float[Array, "H T"]
    key_query: Float[Array, "H T D"]
    activation: Activation = eqx.field(static=True, default="linear")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=True)

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        scale: ScalarLike = 1e-2,
        scheme: MergedScheme = "gaussian",
        **options,
    ) -> "FullMergedKQ":
        """As `MergedKQ.init`; u and h start at zero, but for the scheme `"default"`, which draws
        them too."""
        model = FullMergedKQ.embed(MergedKQ.init(key, dim, heads, scale, scheme, **options))
        if scheme != "default":
            return model
        value, block = model.value, model.key_query
        u, h = random_blocks(
            jr.fold_in(key, 1), [(heads, dim)] * 2, as_float(scale), "default", [dim + 1] * 2
        )
        return eqx.tree_at(
            lambda m: (m.value, m.key_query),
            model,
            (value.at[:, :-1].set(u), block.at[:, -1].set(h)),
        )

    @staticmethod
    def embed(model: MergedKQ) -> "FullMergedKQ":
        """The same function as `model`, with the blocks u and h there and zero."""
        return FullMergedKQ(
            value=model.ov(),
            key_query=model.kq(),
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
        return self.key_query
