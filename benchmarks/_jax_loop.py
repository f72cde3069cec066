"""The peer: the same training loop in JAX alone, as a user would write it: one compiled scan."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray

from iclflow.models import Attention
from iclflow.tasks import Sequences


class Weights(NamedTuple):
    """Of all heads; the output is that of the label."""

    Q: Float[Array, "H R T"]
    K: Float[Array, "H R T"]
    V: Float[Array, "H R T"]
    O: Float[Array, "H I R"]  # noqa: E741


class PlainScan:
    """Adam on fresh batches, in float32, for one model or for many at once.

    **Arguments:**

    - `models`: whose weights to start from, with a leading axis where they are many.
    - `batch`, `context`, `noise`: as in `SampledRisk` on `isotropic`.
    """

    def __init__(
        self,
        models: Attention,
        batch: int,
        context: int,
        noise: float,
        learning_rate: float,
    ):
        circuits = models.circuits
        arrays = [getattr(circuits, name) for name in "QKVO"]
        self._weights = Weights(*(jnp.asarray(x, jnp.float32) for x in arrays))
        self._batch, self._context, self._noise = batch, context, noise
        self._rule = optax.adam(learning_rate)
        self._many = circuits.K.ndim == 4
        train = jax.vmap(self._train, (0, 0, None)) if self._many else self._train
        self._compiled = jax.jit(train, static_argnums=2)

    def run(self, steps: int) -> None:
        """Trains for so many steps, and waits for the last."""
        keys = jr.split(jr.key(1), len(self._weights.K)) if self._many else jr.key(1)
        jax.block_until_ready(self._compiled(self._weights, keys, steps))

    def _train(self, weights: Weights, key: PRNGKeyArray, steps: int) -> Weights:
        def step(state, key):
            weights, moments = state
            gradient = jax.grad(lambda weights: loss(weights, self._drawn(key)))(weights)
            change, moments = self._rule.update(gradient, moments)
            return (jax.tree.map(jnp.add, weights, change), moments), None

        start = weights, self._rule.init(weights)
        (end, _), _ = jax.lax.scan(step, start, jr.split(key, steps))
        return end

    def _drawn(self, key: PRNGKeyArray) -> Sequences:
        dim = self._weights.K.shape[-1] - 1
        inputs, task, noise = jr.split(key, 3)
        size = self._batch, self._context + 1
        x = jr.normal(inputs, (*size, dim), jnp.float32)
        w = jr.normal(task, (self._batch, dim), jnp.float32) / np.float32(np.sqrt(dim))
        drawn = jr.normal(noise, size, jnp.float32)
        y = jnp.einsum("pld,pd->pl", x, w) + np.float32(np.sqrt(self._noise)) * drawn
        length = jnp.full(self._batch, self._context, jnp.float32)
        y = y[..., None]
        return Sequences(x[:, :-1], y[:, :-1], x[:, -1], y[:, -1], length)


def loss(weights: Weights, sequences: Sequences) -> Float[Array, ""]:
    """The mean squared error at the query."""
    tokens = jnp.concatenate([sequences.x, sequences.y], -1)
    label = jnp.zeros_like(sequences.x_query[:, :1])
    query = jnp.concatenate([sequences.x_query, label], -1)
    queries = jnp.einsum("hrt,pt->phr", weights.Q, query)
    keys = jnp.einsum("hrt,plt->phlr", weights.K, tokens)
    values = jnp.einsum("hrt,plt->phlr", weights.V, tokens)
    scores = jnp.einsum("phr,phlr->phl", queries, keys) / weights.K.shape[1] ** 0.5
    attended = jnp.einsum("phl,phlr->phr", jax.nn.softmax(scores, -1), values)
    return jnp.mean((jnp.einsum("phr,hir->pi", attended, weights.O) - sequences.y_query) ** 2)
