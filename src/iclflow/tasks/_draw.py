"""How tasks draw their sequences: inputs, noisy labels, and context lengths."""

from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray


def draw_tokens(
    keys: tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray],
    shape: tuple[int, int, int],
    values: Callable[[PRNGKeyArray, Float[Array, "count M D"]], Float[Array, "count M I"]],
    noise: Float[Array, "*I"],
    noisy_query: bool,
    root: Float[Array, "D D"] | None = None,
) -> tuple[Float[Array, "count M D"], Float[Array, "count M I"]]:
    """Gaussian inputs of sequences and their labels, the query in the last position.

    **Arguments:**

    - `keys`: of the inputs, of the functions and of the noise.
    - `shape`: (count, M, D), with M − 1 pairs in a context.
    - `values`: `values(key, x)` draws one function for each sequence and applies it.
    - `noise`: the variance that is added, one number or one for each label.
    - `noisy_query`: whether the query has noise too.
    - `root`: the square root of the input covariance; by default inputs are white.
    """
    key_x, key_values, key_noise = keys
    x = jr.normal(key_x, shape, noise.dtype)
    x = x if root is None else x @ root
    y = values(key_values, x)
    added = jnp.sqrt(noise) * jr.normal(key_noise, y.shape, noise.dtype)
    # Drawn for the query too: whether it has noise changes no other number.
    return x, y + (added if noisy_query else added.at[:, -1].set(0.0))


def cut_to_length(
    key: PRNGKeyArray,
    x: Float[Array, "count M D"],
    y: Float[Array, "count M I"],
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
    return (
        jnp.where(keep[..., None], x[:, :-1], 0.0),
        jnp.where(keep[..., None], y[:, :-1], 0.0),
        x[:, -1],
        y[:, -1],
        length,
    )
