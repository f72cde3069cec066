"""One pass of attention over many sequences, one per lane.

The axis over sequences comes last, so that every operation runs over it in full vectors. Two
contractions with the tokens carry all the work, and each is the transpose of the other: the
backward pass costs what the forward pass does, and keeps nothing but the attention weights.
"""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from ..models import Attention, attention_length
from ..tasks import Sequences

# Slices that are added before the rest is summed: as many as fill the vector units (measured).
_SLICES = 8


class Lanes(eqx.Module):
    """Sequences side by side.

    **Fields:**

    - `tokens`: x, or (x; y) where the labels are drawn too; zero at padding.
    - `query`: x_q.
    - `length`: of each context.
    - `keep`: False at padding; None if all contexts have one length.
    """

    tokens: Float[Array, "N A P"]
    query: Float[Array, "D P"]
    length: Float[Array, " P"]
    keep: Bool[Array, "N P"] | None

    def part(self, start: Array, count: int) -> "Lanes":
        """`count` of the lanes, from number `start` on."""
        return jax.tree.map(lambda leaf: some_lanes(leaf, start, count), self)

    def sequences(self, y_query: Float[Array, "I P"]) -> Sequences:
        """The same, with the sequences along the first axis."""
        tokens, dim = jnp.moveaxis(self.tokens, -1, 0), self.query.shape[0]
        return Sequences(tokens[..., :dim], tokens[..., dim:], self.query.T, y_query.T, self.length)


def some_lanes(array: Shaped[Array, "*rows P"], start: Array, count: int) -> Array:
    """`count` lanes of an array, from number `start` on."""
    return jax.lax.dynamic_slice_in_dim(array, start, count, -1)


def attention(
    model: Attention,
    key_query: Float[Array, "H A D"],
    lanes: Lanes,
) -> tuple[Float[Array, "H M P"], Float[Array, "M A P"]]:
    """The attention weights of each head, and the tokens that they are for: those of the context,
    then the query's own if the model attends to it.

    **Arguments:**

    - `model`: only its kind of attention is read.
    - `key_query`: from query inputs to the entries of the tokens in `lanes`.
    """
    tokens, keep = lanes.tokens, lanes.keep
    if model.self_attention:
        # The query has no label: zeros fill its place.
        idle = tokens.shape[1] - lanes.query.shape[0]
        query = jnp.pad(lanes.query, ((0, idle), (0, 0)))
        tokens = jnp.concatenate([tokens, query[None]])
        keep = None if keep is None else jnp.concatenate([keep, jnp.ones_like(keep[:1])])
    scores = over_entries(jnp.einsum("had,dp->hap", key_query, lanes.query), tokens)
    if model.activation == "linear":
        return scores / attention_length(lanes.length, model.normaliser), tokens
    return _softmax(scores if keep is None else jnp.where(keep, scores, -jnp.inf)), tokens


@jax.custom_vjp
def over_entries(
    vectors: Float[Array, "H A P"], tokens: Float[Array, "M A P"]
) -> Float[Array, "H M P"]:
    """The scalar product of each head's vector with each token. Only `vectors` has a gradient."""
    return fast_sum(vectors[:, None] * tokens, 2)


@jax.custom_vjp
def over_tokens(
    weights: Float[Array, "H M P"], tokens: Float[Array, "M A P"]
) -> Float[Array, "H A P"]:
    """The weighted sum of all tokens for each head. Only `weights` has a gradient."""
    return fast_sum(weights[:, :, None] * tokens, 1)


# By hand: the transpose of a sum of slices would be a sum of padded slices, without full vectors.
over_entries.defvjp(
    lambda vectors, tokens: (over_entries(vectors, tokens), tokens),
    lambda tokens, slope: (over_tokens(slope, tokens), None),
)
over_tokens.defvjp(
    lambda weights, tokens: (over_tokens(weights, tokens), tokens),
    lambda tokens, slope: (over_entries(slope, tokens), None),
)


def fast_sum(array: Array, axis: int) -> Array:
    """The sum along one axis, in the way that is fast where it runs."""
    return jax.lax.platform_dependent(
        array, cpu=partial(_sum_of_slices, axis=axis), default=partial(jnp.sum, axis=axis)
    )


def _sum_of_slices(array: Array, axis: int) -> Array:
    """A sum for which XLA writes vector instructions on a CPU: slices are added first, and then the
    rest along the axis. A plain sum of products along an axis that is not the last gets none."""
    size = array.shape[axis]
    part = lambda start, stop: jax.lax.slice_in_dim(array, start, stop, axis=axis)
    slices = min(_SLICES, size)
    width = size // slices
    total = sum((part(i * width, (i + 1) * width) for i in range(1, slices)), part(0, width))
    total, rest = jnp.sum(total, axis), slices * width
    return total if rest == size else total + jnp.sum(part(rest, size), axis)


# With a derivative by hand, made of the weights: XLA would compute the exponentials again for every
# use of them.
@jax.custom_jvp
def _softmax(scores: Float[Array, "H M P"]) -> Float[Array, "H M P"]:
    exponentials = jnp.exp(scores - jnp.max(scores, 1, keepdims=True))
    return exponentials / jnp.sum(exponentials, 1, keepdims=True)


@_softmax.defjvp
def _softmax_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    weights, (slope,) = _softmax(*primals), tangents
    return weights, weights * (slope - jnp.sum(weights * slope, 1, keepdims=True))
