"""How tasks draw their sequences: inputs, noisy labels, and context lengths."""

from collections.abc import Callable

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ._base import Sequences
from ._check import check_draw


def draw_sequences(
    key: PRNGKeyArray,
    count: int,
    dim: int,
    values: Callable[[PRNGKeyArray, Float[Array, "count M D"]], Float[Array, "count M I"]],
    noise: Float[Array, "*I"],
    noisy_query: bool,
    contexts: tuple[int, ...],
    *,
    probabilities: Float[Array, " K"] | None = None,
    root: Float[Array, "D D"] | None = None,
    rotations: tuple[Float[Array, "D D"] | None, Float[Array, "I I"] | None] = (None, None),
) -> Sequences:
    """Draws `count` sequences with Gaussian inputs.

    **Arguments:**

    - `values`: `values(key, x)` draws one function per sequence and applies it to its M inputs,
      those of the longest context and the query.
    - `noise`: the variance that is added to labels, one number or one per label.
    - `noisy_query`: whether the query label has noise too.
    - `contexts`, `probabilities`: the context lengths, by default all equally likely.
    - `root`: the square root of the input covariance; by default inputs are white.
    - `rotations`: of inputs and of labels, applied last.
    """
    check_draw(key, count)
    key_x, key_values, key_noise, key_length = jr.split(key, 4)
    x = jr.normal(key_x, (count, max(contexts) + 1, dim), noise.dtype)
    x = x if root is None else x @ root
    y = values(key_values, x)
    added = jnp.sqrt(noise) * jr.normal(key_noise, y.shape, noise.dtype)
    # Drawn for the query too: whether it has noise changes no other number.
    y = y + (added if noisy_query else added.at[:, -1].set(0.0))
    of_inputs, of_labels = rotations
    x = x if of_inputs is None else x @ of_inputs.T
    y = y if of_labels is None else y @ of_labels.T
    return _cut_to_length(key_length, x, y, contexts, probabilities)


def _cut_to_length(
    key: PRNGKeyArray,
    x: Float[Array, "count M D"],
    y: Float[Array, "count M I"],
    contexts: tuple[int, ...],
    probabilities: Float[Array, " K"] | None,
) -> Sequences:
    """Sequences whose last position is the query, padded beyond a random context length."""
    x, x_query, y, y_query = x[:, :-1], x[:, -1], y[:, :-1], y[:, -1]
    if len(contexts) == 1:
        return Sequences(x, y, x_query, y_query, jnp.full(len(x), contexts[0], x.dtype))
    length = jr.choice(key, jnp.asarray(contexts, x.dtype), (len(x),), p=probabilities)
    keep = (jnp.arange(x.shape[1]) < length[:, None])[..., None]
    return Sequences(jnp.where(keep, x, 0.0), jnp.where(keep, y, 0.0), x_query, y_query, length)
