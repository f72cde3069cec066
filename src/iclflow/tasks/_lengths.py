"""Context lengths: sequences of several lengths in one array."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray


def cut_to_length(
    key: PRNGKeyArray,
    x: Float[Array, "count M D"],
    y: Float[Array, "count M ..."],
    contexts: tuple[int, ...],
    probabilities: Float[Array, " K"] | None = None,
) -> tuple[Array, Array, Array, Array, Array]:
    """Inputs and labels as the fields of sequences: the last position becomes the query, and
    positions beyond a random context length become padding.

    **Arguments:**

    - `contexts`: the lengths; the longest is M − 1.
    - `probabilities`: of each of them; by default all equal.
    """
    if len(contexts) == 1:
        length = jnp.full(x.shape[0], contexts[0], x.dtype)
        return x[:, :-1], y[:, :-1], x[:, -1], y[:, -1], length
    lengths = jnp.asarray(contexts, x.dtype)
    length = jr.choice(key, lengths, (x.shape[0],), p=probabilities)
    keep = jnp.arange(x.shape[1] - 1) < length[:, None]
    labelled = keep.reshape(keep.shape + (1,) * (y.ndim - 2))
    return (
        jnp.where(keep[..., None], x[:, :-1], 0.0),
        jnp.where(labelled, y[:, :-1], 0.0),
        x[:, -1],
        y[:, -1],
        length,
    )
