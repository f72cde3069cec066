"""One layer of attention, linear or softmax, from a value row and a key-query block per head."""

import abc
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..tasks import Sequences
from ._base import AbstractModel, Form, Normaliser, attention_length

Activation = Literal["linear", "softmax"]


class AbstractAttention(AbstractModel):
    """Multi-head attention read at the query's label position.

    Head h has a value row a_h = (u_h; v_h) over tokens z = (x; y) and a key-query block
    B_h = (U_h; h_hᵀ) from query inputs to tokens. All other entries of the attention matrices
    multiply the zero in the query token or feed outputs that nobody reads, receive no gradient,
    and are not stored. (In shapes, T = D + 1 is the size of a token.)
    """

    activation: eqx.AbstractVar[Activation]
    normaliser: eqx.AbstractVar[Normaliser]
    self_attention: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def ov(self) -> Float[Array, "H T"]:
        """The output-value circuit: a_h, what each head reads from a token."""

    @abc.abstractmethod
    def kq(self) -> Float[Array, "H T D"]:
        """The key-query circuit: B_h, which tokens a query attends to."""

    @property
    @abc.abstractmethod
    def reduced(self) -> bool:
        """Whether the blocks that theory sets to zero (u_h, h_h) are absent."""

    @property
    def form(self) -> Form:
        if self.activation != "linear":
            return "general"
        return "bilinear" if self.reduced else "cubic"

    def coefficients(self) -> Array:
        if self.form == "general":
            return super().coefficients()
        ov, kq = self.ov(), self.kq()
        if self.reduced:
            return jnp.einsum("h,hde->de", ov[:, -1], kq[:, :-1])
        return jnp.einsum("ha,hbc->abc", ov, kq)

    def predict(self, sequences: Sequences) -> Float[Array, "*batch"]:
        if self.activation == "softmax":
            return self._predict_softmax(sequences)
        scale = 1 / attention_length(sequences.length, self.normaliser)
        if self.reduced:
            beta = scale[..., None] * jnp.einsum("...nd,...n->...d", sequences.x, sequences.y)
            return jnp.einsum("...d,de,...e->...", beta, self.coefficients(), sequences.x_query)
        tokens = _tokens(sequences, self.self_attention)
        values = jnp.einsum("...na,ha->...hn", tokens, self.ov())
        scores = jnp.einsum("...na,hab,...b->...hn", tokens, self.kq(), sequences.x_query)
        return scale * jnp.sum(values * scores, (-1, -2))

    def _predict_softmax(self, sequences: Sequences) -> Float[Array, "*batch"]:
        tokens = _tokens(sequences, self.self_attention)
        values = jnp.einsum("...na,ha->...hn", tokens, self.ov())
        scores = jnp.einsum("...na,hab,...b->...hn", tokens, self.kq(), sequences.x_query)
        mask = sequences.mask()
        if self.self_attention:
            mask = jnp.concatenate([mask, jnp.ones_like(mask[..., :1])], -1)
        weights = jax.nn.softmax(scores, where=mask[..., None, :], axis=-1)
        return jnp.sum(weights * values, (-1, -2))


def _tokens(sequences: Sequences, self_attention: bool) -> Array:
    """The tokens that a query attends to: z = (x; y) of the context, and (x_q; 0) if asked."""
    tokens = jnp.concatenate([sequences.x, sequences.y[..., None]], -1)
    if not self_attention:
        return tokens
    query = jnp.pad(sequences.x_query, [(0, 0)] * (sequences.x_query.ndim - 1) + [(0, 1)])
    return jnp.concatenate([tokens, query[..., None, :]], -2)
