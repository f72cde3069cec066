"""One layer of attention, linear or softmax, from a value row and a key-query block per head."""

import abc
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..tasks import AbstractSequences, Sequences
from ._base import AbstractModel, Form, Normaliser, attention_length

Activation = Literal["linear", "softmax"]


def check_fields(activation, normaliser, self_attention) -> None:
    """Refuses words that would be taken for others."""
    for name, value, allowed in (
        ("activation", activation, get_args(Activation)),
        ("normaliser", normaliser, get_args(Normaliser)),
        ("self_attention", self_attention, (True, False)),
    ):
        if not any(value is word or value == word for word in allowed):
            words = ", ".join(repr(word) for word in allowed)
            raise ValueError(f"`{name}` = {value!r}: must be one of {words}.")


class AbstractAttention(AbstractModel[Sequences]):
    """Multi-head attention read at the query's label position.

    Head h has a value row a_h = (u_h; v_h) over tokens z = (x; y) and a key-query block
    B_h = (U_h; h_hᵀ) from query inputs to tokens. All other entries of the attention matrices
    multiply the zero in the query token or feed outputs that nobody reads, receive no gradient,
    and are not stored. (In shapes, T = D + 1 is the size of a token.)
    """

    activation: eqx.AbstractVar[Activation]
    normaliser: eqx.AbstractVar[Normaliser]
    self_attention: eqx.AbstractVar[bool]

    def __check_init__(self):
        check_fields(self.activation, self.normaliser, self.self_attention)

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
    def label_blind(self) -> bool:
        """Whether the attention weights are the same whatever the labels are."""
        return self.reduced

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
        scale = 1 / attention_length(sequences.length, self.normaliser)
        if self.reduced and self.activation == "linear":
            beta = scale[..., None] * jnp.einsum("...nd,...n->...d", sequences.x, sequences.y)
            return jnp.einsum("...d,de,...e->...", beta, self.coefficients(), sequences.x_query)
        tokens = attended_tokens(sequences, self.self_attention)
        values = jnp.einsum("...na,ha->...hn", tokens, self.ov())
        scores = jnp.einsum("...na,hab,...b->...hn", tokens, self.kq(), sequences.x_query)
        if self.activation == "linear":
            return scale * jnp.sum(values * scores, (-1, -2))
        weights = softmax_weights(scores, sequences, self.self_attention)
        return jnp.sum(weights * values, (-1, -2))


def attended_tokens(sequences: AbstractSequences, self_attention: bool) -> Array:
    """The tokens that a query attends to: z = (x; y) of the context, and (x_q; 0) if asked."""
    labels = sequences.y if sequences.y.ndim == sequences.x.ndim else sequences.y[..., None]
    tokens = jnp.concatenate([sequences.x, labels], -1)
    if not self_attention:
        return tokens
    widths = [(0, 0)] * (sequences.x_query.ndim - 1) + [(0, labels.shape[-1])]
    query = jnp.pad(sequences.x_query, widths)
    return jnp.concatenate([tokens, query[..., None, :]], -2)


def softmax_weights(
    scores: Float[Array, "*batch H N"], sequences: AbstractSequences, self_attention: bool
) -> Float[Array, "*batch H N"]:
    """The softmax of scores over the tokens that a query attends to; padding gets no weight."""
    mask = sequences.mask()
    if self_attention:
        mask = jnp.concatenate([mask, jnp.ones_like(mask[..., :1])], -1)
    return jax.nn.softmax(scores, where=mask[..., None, :], axis=-1)
