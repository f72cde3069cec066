"""Stacks of attention layers: every token attends, and the residual stream carries the answer."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, ScalarLike

from ..errors import InputError
from ..tasks import Sequences, check_sequences
from ._attention import Activation, attended_tokens, check_fields
from ._base import AbstractModel, Normaliser, attention_length
from ._initialise import (
    FULL_SCHEMES,
    FullScheme,
    check_start,
    random_blocks,
    start_signs,
)


class AttentionStack(AbstractModel):
    """Layers Z ← Z + Σ_h A_h(Z) Z V_hᵀ on tokens (x; y) and the query (x_q; 0), which is last.

    A_h holds the softmax of the scores z_aᵀ B_h z_b over the keys a of every token b, or with
    linear activation the scores divided by N. The prediction is the query's label entry after the
    last layer.

    - `key_query`: B, rows for keys and columns for queries, and `value`: V; both (S, H, T, T), S
      sets of weights: one for all layers (tied) or one for each.
    - `causal`: whether a token attends only to itself and to earlier ones.
    - `self_attention`: whether the query is a key too; if not, all tokens attend to the context.

    **Example:**

    ```pycon
    >>> model = icl.AttentionStack.init(jr.key(0), dim=3, heads=1, depth=2, activation="linear")
    >>> sequences = icl.isotropic(dim=3, context=20).sample(jr.key(1), 5)
    >>> model.depth, model.tied, model.predict(sequences).shape
    (2, False, (5, 1))
    ```
    """

    key_query: Float[Array, "S H T T"]
    value: Float[Array, "S H T T"]
    depth: int = eqx.field(static=True)
    causal: bool = eqx.field(static=True, default=False)
    activation: Activation = eqx.field(static=True, default="softmax")
    normaliser: Normaliser = eqx.field(static=True, default="context")
    self_attention: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_fields(self)
        if self.key_query.shape[0] not in (1, self.depth):
            raise InputError(
                "key_query",
                problem=f"holds weights for {self.key_query.shape[0]} layers",
                allowed=f"must be 1 (tied) or `depth` = {self.depth}",
            )

    @staticmethod
    def init(
        key: PRNGKeyArray,
        dim: int,
        heads: int,
        depth: int,
        scale: ScalarLike = 1e-2,
        scheme: FullScheme = "gaussian",
        tied: bool = False,
        **options: Any,
    ) -> "AttentionStack":
        """Initial weights of size `scale`. `options` are fields.

        **Arguments:**

        - `depth`: how many layers.
        - `scheme`: `"gaussian"`: every entry is N(0, s²); `"default"`: U(−s/√T, s/√T);
          `"small_identity"`: B is s·I on the inputs and V carries the label to the label with
          weight s; `"opposite"`: the same, with both signs changed in every second head.
        - `tied`: whether all layers share one set of weights.
        """
        size = check_start(key, dim, heads, scale, scheme, FULL_SCHEMES, depth=depth)
        token = dim + 1
        shape = (1 if tied else depth, heads, token, token)
        if scheme in ("gaussian", "default"):
            blocks = random_blocks(key, (shape, shape), size, scheme, (token, token))
        else:
            signs = size * start_signs(heads, scheme, size.dtype)[:, None, None]
            # Key-query compares inputs, and value copies the label: one step of gradient descent.
            label = jnp.zeros(token, size.dtype).at[-1].set(1)
            blocks = [jnp.broadcast_to(signs * jnp.diag(d), shape) for d in (1 - label, label)]
        return AttentionStack(*blocks, depth=depth, **options)

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.key_query.shape[-1] - 1

    @property
    def tied(self) -> bool:
        """Whether all layers share one set of weights."""
        return self.key_query.shape[-4] == 1

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        check_sequences(sequences)
        # The query is in the stream even if it is no key: it has to carry the prediction.
        stream = attended_tokens(sequences, True)
        visible = self._visible(sequences)
        length = attention_length(sequences.length, self.normaliser)[..., None, None, None]
        for layer in range(self.depth):
            key_query, value = (w[0 if self.tied else layer] for w in (self.key_query, self.value))
            scores = jnp.einsum("...ka,hab,...qb->...hqk", stream, key_query, stream)
            if self.activation == "softmax":
                weights = jax.nn.softmax(scores, where=visible[..., None, :, :], axis=-1)
            else:
                # Linear scores of hidden tokens are set to zero: they need not be so by themselves.
                weights = jnp.where(visible[..., None, :, :], scores, 0.0) / length
            stream = stream + jnp.einsum("...hqk,...ka,hba->...qb", weights, stream, value)
        return stream[..., -1, -1:]

    def _visible(self, sequences: Sequences) -> Bool[Array, "*batch M M"]:
        """The keys (last axis) that each token may attend to, never padding."""
        mask = sequences.mask()
        query = jnp.full_like(mask[..., :1], self.self_attention)
        keys = jnp.concatenate([mask, query], -1)[..., None, :]
        # The query is last, so that a causal mask lets it attend to all others.
        tokens = keys.shape[-1]
        before = jnp.tril(jnp.ones((tokens, tokens), bool)) if self.causal else True
        return jnp.broadcast_to(keys & before, (*mask.shape[:-1], tokens, tokens))
