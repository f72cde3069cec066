"""The compiled program of training in steps.

Random numbers of several steps are drawn at once. Inside a compiled loop a CPU would compute them
again for every use, and a GPU would draw one small batch at a time. Every step still has its own
key, so that the numbers do not depend on how many steps are drawn together.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from ..models import AbstractModel
from ..risks import AbstractBatchRisk, AbstractRisk, AbstractSampledRisk
from ._layout import Layout
from ._members import over_members
from ._rules import Rule
from ._save import Thinned, Thinning

# The random numbers that are drawn at once. On a CPU they stay in its cache, except that two steps
# are drawn together if they take no more than 256 MiB.
_CPU_BYTES, _CPU_MOST_BYTES = 2**21, 2**28
# On a GPU: enough to keep it busy.
_GPU_BYTES = 2**24


class State(NamedTuple):
    """Everything that the next step depends on.

    The random key of step n is derived from `key` and n, so that a run can be resumed anywhere.
    `key` is None for runs without randomness.
    """

    step: Array | np.ndarray
    weights: Any  # vectors: of JAX in the program, of NumPy before it
    optimiser: Any
    key: PRNGKeyArray | None
    thinned: Thinned | None

    def fresh_key(self, ahead: Array | int = 0) -> PRNGKeyArray:
        """The key of this step, or of the step `ahead` of it."""
        assert self.key is not None
        return jr.fold_in(self.key, self.step + ahead)


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
        """As few blocks as possible of at most `most` steps, and as equal as possible."""
        longest = int(strides.max())
        size = -(-longest // -(-longest // max(1, most)))
        return Blocks(size, bool(np.all(strides == 1)), bool(np.all(strides % size == 0)))


def steps_at_once(
    risk: AbstractSampledRisk, model: AbstractModel, key: PRNGKeyArray, members: int
) -> int:
    """How many steps are drawn together."""
    drawn = jax.tree.leaves(eqx.filter_eval_shape(risk.randomness, key, model))
    size = members * sum(leaf.size * leaf.dtype.itemsize for leaf in drawn)
    if jax.default_backend() != "cpu":
        return _GPU_BYTES // size
    return max(_CPU_BYTES // size, min(2, _CPU_MOST_BYTES // size))


def draw_ahead(
    risk: AbstractSampledRisk,
    model: AbstractModel | None,
    keys_of: Callable[[Any, Array], PRNGKeyArray],
    step: Callable[[Any, AbstractBatchRisk], Any],
    state: Any,
    count: Array | int,
    blocks: Blocks,
    many: Callable[[Any, Any, Array | int], Any] | None = None,
) -> Any:
    """The state after `count` steps from `state`, a pytree.

    **Arguments:**

    - `model`: any model of the shape that is trained.
    - `keys_of`: `keys_of(state, n)` is the key of the n-th step from `state`.
    - `step`: `step(state, drawn)` is the state after one step on the drawn risk.
    - `many`: `many(state, parts, count)` is the state after so many steps on what `risk.randomness`
      drew, where there is a faster way than one step after another.
    """

    def block(number: Array | int, state: Any) -> Any:
        keys = jax.vmap(lambda ahead: keys_of(state, ahead))(jnp.arange(blocks.size))
        parts = jax.vmap(lambda key: risk.randomness(key, model))(keys)
        left = jnp.minimum(blocks.size, count - number * blocks.size)
        if many is not None:
            return many(state, parts, blocks.size if blocks.even else left)
        if blocks.even:
            return jax.lax.scan(lambda *at: (step(at[0], risk.on(at[1])), None), state, parts)[0]

        def one(index: Array, state: Any) -> Any:
            return step(state, risk.on(jax.tree.map(lambda leaf: leaf[index], parts)))

        return jax.lax.fori_loop(0, left, one, state)

    if blocks.once:
        return block(0, state)
    whole = count // blocks.size if blocks.even else -(-count // blocks.size)
    return jax.lax.fori_loop(0, whole, block, state)


def _jit_ahead(function: Callable) -> Callable:
    """`eqx.filter_jit` without waiting for the result, which must consist of arrays.

    Equinox waits for every call, so that it can word errors well. Here the next chunk must be
    computed while one is recorded.
    """

    @partial(jax.jit, static_argnums=(0, 1))
    @wraps(function)
    def compiled(structure: Any, static: tuple, dynamic: list) -> Any:
        leaves = [y if x is None else x for x, y in zip(dynamic, static)]
        return function(*jax.tree.unflatten(structure, leaves))

    @wraps(function)
    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        # Split as in `eqx.filter_jit`: everything but arrays selects the compiled program.
        dynamic = [x if eqx.is_array(x) else None for x in leaves]
        static = tuple(None if eqx.is_array(x) else x for x in leaves)
        return compiled(structure, static, dynamic)

    return call


@_jit_ahead
def advance(
    parts: tuple[Layout, Rule, bool | None, Thinning | None],
    risk: AbstractRisk,
    monitored: AbstractRisk | None,
    states: State,
    counts: Int[Array, " looks"],
    blocks: Blocks,
) -> tuple[State, tuple]:
    """Evaluates the loss, then takes the next of `counts` steps; and so on."""
    layout, rule, swept, thinning = parts

    def move(state: State, gradient: AbstractModel) -> State:
        parts = rule.factor, layout.vector(gradient), state.optimiser, state.weights
        weights, memory = rule.move(*parts)
        return state._replace(step=state.step + 1, weights=weights, optimiser=memory)

    def chunk(risks: tuple[AbstractRisk, AbstractRisk | None], state: State):
        risk, monitored = risks

        def step_on(state: State, drawn: AbstractRisk) -> State:
            return move(state, drawn.gradient(layout.model(state.weights)))

        def one_step(_, state: State) -> State:
            key = state.fresh_key() if risk.stochastic else None
            return move(state, risk.gradient(layout.model(state.weights), key))

        def to_next_look(state: State, count: Array):
            model = layout.model(state.weights)
            if monitored is None and not risk.stochastic:
                # The loss and the gradient of one risk share most of their work.
                loss, gradient = risk.value_and_gradient(model)
                after = move(state, gradient)
            else:
                reported = risk if monitored is None else monitored
                loss = reported(model, _report_key(reported, state))
                if isinstance(risk, AbstractSampledRisk):
                    parts = risk, model, State.fresh_key, step_on
                    many = _many_steps(layout, rule, risk, state, len(states.weights))
                    after = draw_ahead(*parts, state, count, blocks, many)
                    return after, (state.step, loss, state.weights)
                after = one_step(0, state)
            if not blocks.once:  # else there is no loop to compile
                after = jax.lax.fori_loop(1, count, one_step, after)
            return after, (state.step, loss, state.weights)

        def look(state: State, count: Array):
            after, (step, loss, weights) = to_next_look(state, count)
            if thinning is None:
                return after, (step, loss, weights, jnp.ones((), bool))
            time, before = jnp.asarray(step, float), state.thinned
            assert before is not None
            first = Thinned(time, loss, loss, loss)
            before = jax.tree.map(lambda new, old: jnp.where(step == 0, new, old), first, before)
            thinned, kept = thinning.look(before, time, loss.astype(float))
            return after._replace(thinned=thinned), (step, loss, weights, kept)

        return jax.lax.scan(look, state, counts)

    return over_members(chunk, swept, (risk, monitored), states)


def _many_steps(
    layout: Layout, rule: Rule, risk: AbstractSampledRisk, state: State, models: int
) -> Callable[[State, Any, Array | int], State] | None:
    """Many steps at a time, if `risk` offers them."""
    # Rules without a name may be anything; and models are taken apart before they have values.
    if not rule.name or any(map(eqx.is_array, jax.tree.leaves(layout.rest))):
        return None
    parts = layout.model, rule.move, rule.factor, state.weights, state.optimiser
    take = risk.steps(*parts, models)
    if take is None:
        return None

    def many(state: State, parts: Any, count: Array | int) -> State:
        weights, memory = take(state.weights, state.optimiser, parts, count)
        return state._replace(step=state.step + count, weights=weights, optimiser=memory)

    return many


def _report_key(risk: AbstractRisk, state: State) -> PRNGKeyArray | None:
    """A separate key: the reported loss must not be that of the training sequences."""
    return jr.fold_in(state.fresh_key(), 1) if risk.stochastic else None
