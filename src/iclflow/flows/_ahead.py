"""Steps on a sampled risk, with the random numbers of several steps drawn at once.

Drawn inside a compiled loop, random numbers are computed again for every use of them on a CPU, and
one small batch at a time on a GPU. Every step still has a key of its own, so that what is drawn
does not depend on how many steps are drawn together.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from ..models import AbstractModel
from ..risks import AbstractBatchRisk, AbstractSampledRisk

# What is drawn at once: on a CPU what stays in its cache (but two steps at least, while these fit
# into memory with ease), elsewhere what keeps it busy.
_CPU_BYTES, _CPU_MOST_BYTES, _BYTES = 2**21, 2**28, 2**24


class Blocks(NamedTuple):
    """How the steps between two looks are cut into blocks.

    **Fields:**

    - `size`: steps in a block.
    - `once`: whether every stretch is a single step.
    - `even`: whether every stretch is a whole number of blocks.
    """

    size: int
    once: bool
    even: bool

    @staticmethod
    def cut(strides: np.ndarray, most: int) -> "Blocks":
        """Blocks of at most `most` steps, as few and as equal as can be."""
        longest = int(strides.max())
        size = -(-longest // -(-longest // max(1, most)))
        return Blocks(size, bool(np.all(strides == 1)), bool(np.all(strides % size == 0)))


def steps_at_once(
    risk: AbstractSampledRisk, model: AbstractModel, key: PRNGKeyArray, members: int
) -> int:
    """How many steps may be drawn together."""
    drawn = jax.tree.leaves(eqx.filter_eval_shape(risk.randomness, key, model))
    size = members * sum(leaf.size * leaf.dtype.itemsize for leaf in drawn)
    if jax.default_backend() != "cpu":
        return _BYTES // size
    return max(_CPU_BYTES // size, min(2, _CPU_MOST_BYTES // size))


def draw_ahead(
    risk: AbstractSampledRisk,
    model: AbstractModel | None,
    keys_of: Callable[[Any, Array], PRNGKeyArray],
    step: Callable[[Any, AbstractBatchRisk], Any],
    state: Any,
    count: Array | int,
    blocks: Blocks,
) -> Any:
    """The state after `count` steps from `state`, a pytree.

    **Arguments:**

    - `model`: one like those that the steps are taken on.
    - `keys_of`: `keys_of(state, n)` is the key of the n-th step from `state`.
    - `step`: `step(state, drawn)` is the state after one step on the risk that was drawn.
    """

    def block(number: Array | int, state: Any) -> Any:
        keys = jax.vmap(lambda ahead: keys_of(state, ahead))(jnp.arange(blocks.size))
        parts = jax.vmap(lambda key: risk.randomness(key, model))(keys)
        if blocks.even:
            return jax.lax.scan(lambda *at: (step(at[0], risk.on(at[1])), None), state, parts)[0]

        def one(index: Array, state: Any) -> Any:
            return step(state, risk.on(jax.tree.map(lambda leaf: leaf[index], parts)))

        left = jnp.minimum(blocks.size, count - number * blocks.size)
        return jax.lax.fori_loop(0, left, one, state)

    if blocks.once:
        return block(0, state)
    whole = count // blocks.size if blocks.even else -(-count // blocks.size)
    return jax.lax.fori_loop(0, whole, block, state)
