"""The moments of softmax attention for many slopes at once: each on the cheapest grid that is
accurate enough, differentiable any number of times, in bounded memory."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from ._softmax_grids import Accuracy, Scalar
from ._softmax_moments import Order, moments
from ._softmax_plans import LinePlan, Plan, ProductPlan, RidgePlan, Sizes

# The number of slopes is rounded up to a multiple of this, so that few programs are compiled.
_PADDING = 512
# Added to the exponent of the neglected part. With 3 the errors of single terms are about
# 10^−digits (measured); a sum has some dozens of them.
_MARGIN = 4
# The least exponent: below, the estimates of ends and errors are too rough to save anything.
_LEAST_TAIL = 8


class _Kind(NamedTuple):
    """A kind of grid, and the size of its blocks: heads that are not steep need one block."""

    plan: type
    sizes: Sizes


_HEAD = (_Kind(LinePlan, Sizes(40, 1, 40)),)
_PAIR = (_Kind(ProductPlan, Sizes(40, 40, 40)), _Kind(RidgePlan, Sizes(72, 40, 96)))


def head_moments(
    slope: Float[Array, " n"],
    length: Float[Array, " n"],
    weight: Float[Array, " n"],
    digits: int,
    check: bool = False,
) -> Float[Array, "n moments"]:
    """E|p|² and E(p·s)² of p = softmax(slope · s) over `length` tokens s ~ N(0, 1).

    **Arguments:**

    - `length`: any real number from 1 up; the cost does not depend on it.
    - `weight`: of each moment in the sum that is wanted. Those of small weight are computed less
      precisely, those of weight zero not at all: they are returned as zeros.
    - `digits`: of precision of that sum; see `ExactSoftmaxRisk`.
    - `check`: adds a third moment, which should be 1.
    """
    evaluate = _evaluator(_HEAD, check, ((0, 0),))
    # One more digit: single heads are so cheap that pairs should make all of the error.
    return evaluate(_tails(weight, digits + 1), slope, length)[:, 0]


def pair_moments(
    first: Float[Array, " n"],
    second: Float[Array, " n"],
    length: Float[Array, " n"],
    weight: Float[Array, " n"],
    digits: int,
    check: bool = False,
) -> Float[Array, "n moments"]:
    """E[p·p′] and E[(p·s)(p′·s)] of two heads with these slopes; see `head_moments`."""
    evaluate = _evaluator(_PAIR, check, ((0, 0, 0),))
    # The moments are symmetric, the grids are not: they expect the steeper head first.
    swap = jnp.abs(second) > jnp.abs(first)
    steep, flat = jnp.where(swap, second, first), jnp.where(swap, first, second)
    return evaluate(_tails(weight, digits), steep, flat, length)[:, 0]


def _tails(weight: Float[Array, " n"], digits: int) -> Float[Array, " n"]:
    """The accuracy that each moment needs for the sum; 0 for those that are not computed."""
    live = weight > 0
    tail = math.log(10.0) * digits + _MARGIN + jnp.log(jnp.where(live, weight, 1))
    return jnp.where(live, jnp.maximum(tail, _LEAST_TAIL), 0)


@functools.cache
def _evaluator(kinds: tuple[_Kind, ...], check: bool, orders: tuple[Order, ...]):
    """A function (tail, arguments of a moment…) -> (n, orders, moments): partial derivatives.

    Reverse mode through a choice among grids would keep the tables of all of them. There are few
    slopes and lengths, so that derivatives are computed on the chosen grid and handed to JAX;
    derivatives of these are computed in the same way.
    """

    def plans(tail: Scalar, *arguments: Scalar) -> list[Plan]:
        return [kind.plan.of(*arguments, Accuracy(tail)) for kind in kinds]

    def choose(tail: Scalar, *arguments: Scalar) -> tuple[Array, list[Array]]:
        """Which grid is the cheapest, and the numbers that place the nodes of each."""
        found = plans(jnp.maximum(tail, 1), *arguments)
        blocks = lambda plan, sizes: plan.blocks(sizes) * plan.normal.axis.blocks(sizes.normal)
        costs = [math.prod(k.sizes) * blocks(plan, k.sizes) for k, plan in zip(kinds, found)]
        numbers = [jnp.stack(jax.tree.leaves(plan)) for plan in found]
        return jnp.argmin(jnp.stack(costs)), numbers

    example = jax.eval_shape(plans, *[jnp.ones(())] * (1 + len(orders[0])))
    structures = [jax.tree.structure(plan) for plan in example]

    def branch(place: int):
        def compute(numbers: list[Array], *arguments: Scalar):
            plan = jax.tree.unflatten(structures[place], numbers[place])
            return moments(plan, arguments, kinds[place].sizes, orders, check)

        return compute

    branches = [branch(place) for place in range(len(kinds))]

    # One slope after the other, under `vmap` too: a vectorised choice would compute every grid. A
    # program by itself, so that all dimensions, digits and numbers of heads share it.
    @jax.jit
    def padded(tail: Array, *arguments: Array) -> Array:
        chosen, numbers = jax.vmap(choose)(tail, *arguments)
        order = jnp.argsort(tail <= 0, stable=True)

        def add(i: Array, found: Array) -> Array:
            pick = lambda x: x[order[i]]
            one = jax.lax.switch(
                pick(chosen), branches, jax.tree.map(pick, numbers), *map(pick, arguments)
            )
            return found.at[order[i]].set(one)

        zeros = jnp.zeros((len(tail), len(orders), 3 if check else 2))
        return jax.lax.fori_loop(0, jnp.sum(tail > 0), add, zeros)

    @custom_vmap
    def values(tail: Array, *arguments: Array) -> Array:
        fill = -len(tail) % _PADDING
        pad = lambda x, value: jnp.pad(x, (0, fill), constant_values=value)
        return padded(pad(tail, 0.0), *(pad(x, 1.0) for x in arguments))[: len(tail)]

    @values.def_vmap
    def _(size: int, batched: list[bool], *arguments: Array) -> tuple[Array, bool]:
        spread = lambda x, has: x if has else jnp.broadcast_to(x, (size, *x.shape))
        flat = [spread(x, has).reshape(-1) for x, has in zip(arguments, batched)]
        found = values(*flat)
        return found.reshape(size, -1, *found.shape[1:]), True

    @jax.custom_jvp
    def evaluate(tail: Array, *arguments: Array) -> Array:
        return values(tail, *arguments)

    @functools.partial(evaluate.defjvp, symbolic_zeros=True)
    def _(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
        moving = [i for i, t in enumerate(tangents[1:]) if not isinstance(t, SymbolicZero)]
        raised = {(o, i): _raise(o, i) for o in orders for i in moving}
        wanted = tuple(sorted({*orders, *raised.values()}))
        found = _evaluator(kinds, check, wanted)(*primals)
        at = {order: found[:, k] for k, order in enumerate(wanted)}
        value = jnp.stack([at[o] for o in orders], 1)
        slope = jnp.zeros_like(value)
        for i in moving:
            along = jnp.stack([at[raised[o, i]] for o in orders], 1)
            slope = slope + along * tangents[1 + i][:, None, None]
        return value, slope

    return evaluate


def _raise(order: Order, position: int) -> Order:
    return tuple(n + (i == position) for i, n in enumerate(order))
