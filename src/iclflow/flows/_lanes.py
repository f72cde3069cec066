"""A function of one member as a program over many, each in its own lane.

`jax.vmap` puts the members first, and the products of their small matrices become loops that are
slow on every processor. Here the members come last: every operation runs over them in full vectors,
and sums of a few products are written out. The function is traced for one member, and its
operations are repeated one after the other, with the lanes as last axis. Operations without a rule
here use `jax.vmap`. Measured on 36 weights: a step of a solver takes a third of the time.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from math import prod
from operator import add
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn, Literal
from jaxtyping import Array

# The inputs of one operation, shared or in lanes, and its results in lanes; None to use `jax.vmap`.
Inputs = list[Any]
Results = Sequence[Array] | None

# Longer sums are left to the compiler, which loops over them: written out, the program would grow.
_LONGEST_SUM = 64


class _Lanes(NamedTuple):
    """A value that differs between lanes, with the lanes as last axis."""

    values: Any


def over_lanes(function: Callable, count: int, shared: Any, swept: Any) -> Any:
    """`function(shared, member)` of every member.

    **Arguments:**

    - `count`: the number of members.
    - `shared`: arrays that all members share.
    - `swept`: arrays with the members as last axis, like those of the result.
    """
    # Traced on shapes alone: nothing is computed here.
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[:-1], x.dtype), swept)
    traced, shape = jax.make_jaxpr(function, return_shape=True)(shared, one)
    arguments = [*jax.tree.leaves(shared), *map(_Lanes, jax.tree.leaves(swept))]
    results = _evaluate(traced.jaxpr, traced.consts, arguments, count)
    leaves = [_broadcast_lanes(result, count) for result in results]
    return jax.tree.unflatten(jax.tree.structure(shape), leaves)


def _evaluate(jaxpr: Any, constants: Sequence, arguments: Sequence, count: int) -> list:
    known = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments)))
    fixed = lambda name: jnp.asarray(name.val, name.aval.dtype)
    read = lambda name: fixed(name) if isinstance(name, Literal) else known[name]
    for equation in jaxpr.eqns:
        results = _apply(equation, [read(name) for name in equation.invars], count)
        known.update(zip(equation.outvars, results))
    return [read(name) for name in jaxpr.outvars]


def _apply(equation: JaxprEqn, inputs: Inputs, count: int) -> list:
    primitive, settings = equation.primitive, equation.params
    if primitive.name in _CALLS:
        called = settings.get("jaxpr") or settings["call_jaxpr"]
        open_form = getattr(called, "jaxpr", called)
        return _evaluate(open_form, getattr(called, "consts", ()), inputs, count)
    # A value that all lanes share is computed once.
    if not any(isinstance(value, _Lanes) for value in inputs):
        found = primitive.bind(*inputs, **settings)
        return list(found) if primitive.multiple_results else [found]
    rule = _RULES.get(primitive.name)
    found = None if rule is None else rule(equation, inputs, count)
    if found is None:
        found = _vmap(equation, inputs, count)
    return [_Lanes(values) for values in found]


def _vmap(equation: JaxprEqn, inputs: Inputs, count: int) -> Sequence[Array]:
    axes = [-1 if isinstance(value, _Lanes) else None for value in inputs]
    bare = [value.values if isinstance(value, _Lanes) else value for value in inputs]
    bind = lambda *values: equation.primitive.bind(*values, **equation.params)
    found = jax.vmap(bind, in_axes=axes, out_axes=-1, axis_size=count)(*bare)
    return found if equation.primitive.multiple_results else [found]


def _with_lanes(value: Any) -> Array:
    """The values with an axis for the lanes, of length 1 where all are equal."""
    return value.values if isinstance(value, _Lanes) else jnp.asarray(value)[..., None]


def _broadcast_lanes(value: Any, count: int) -> Array:
    """The values, repeated for every lane."""
    values = _with_lanes(value)
    return jnp.broadcast_to(values, (*values.shape[:-1], count))


def _elementwise(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    values = [_with_lanes(value) for value in inputs]
    shape = np.broadcast_shapes(*(each.shape for each in values))
    values = [jnp.broadcast_to(each, shape) for each in values]
    return [equation.primitive.bind(*values, **equation.params)]


def _reduce(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    """Operations on axes that are counted from the front, where a last axis changes nothing."""
    return [equation.primitive.bind(inputs[0].values, **equation.params)]


def _broadcast(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    shape = (*equation.params["shape"], count)
    axes = (*equation.params["broadcast_dimensions"], len(shape) - 1)
    return [lax.broadcast_in_dim(inputs[0].values, shape, axes)]


def _reshape(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    return [inputs[0].values.reshape(*equation.params["new_sizes"], count)]


def _transpose(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    order = equation.params["permutation"]
    return [inputs[0].values.transpose(*order, len(order))]


def _slice(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    settings = equation.params
    strides = settings["strides"]
    first, last = (*settings["start_indices"], 0), (*settings["limit_indices"], count)
    steps = None if strides is None else (*strides, 1)
    return [lax.slice(inputs[0].values, first, last, steps)]


def _concatenate(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    parts = [_broadcast_lanes(value, count) for value in inputs]
    return [lax.concatenate(parts, equation.params["dimension"])]


def _pad(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    if isinstance(inputs[1], _Lanes):
        return None
    padding = (*equation.params["padding_config"], (0, 0, 0))
    return [lax.pad(_broadcast_lanes(inputs[0], count), inputs[1], padding)]


def _sum(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    values, axes = inputs[0].values, tuple(equation.params["axes"])
    terms = prod(values.shape[axis] for axis in axes)
    if not 0 < terms <= _LONGEST_SUM:
        return [jnp.sum(values, axes, dtype=values.dtype)]
    parts = _front(values, axes).reshape(terms, *_without(values.shape, axes))
    return [reduce(add, parts)]


def _product(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    (left_sum, right_sum), (left_batch, right_batch) = equation.params["dimension_numbers"]
    left, right = _with_lanes(inputs[0]), _with_lanes(inputs[1])
    wanted = equation.params["preferred_element_type"]
    if wanted is not None:
        left, right = left.astype(wanted), right.astype(wanted)
    terms = prod(left.shape[axis] for axis in left_sum)
    if not 0 < terms <= _LONGEST_SUM:
        return None
    left = _front(left, (*left_sum, *left_batch))
    right = _front(right, (*right_sum, *right_batch))
    sums, batch = len(left_sum), len(left_batch)
    common = left.shape[sums : sums + batch]
    own, other = left.shape[sums + batch : -1], right.shape[sums + batch : -1]
    left = left.reshape(terms, *common, *own, *(1 for _ in other), left.shape[-1])
    right = right.reshape(terms, *common, *(1 for _ in own), *other, right.shape[-1])
    return [reduce(add, (a * b for a, b in zip(left, right)))]


def _front(values: Array, axes: Sequence[int]) -> Array:
    return values.transpose(*axes, *(i for i in range(values.ndim) if i not in axes))


def _without(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    return [size for axis, size in enumerate(shape) if axis not in axes]


def _cond(equation: JaxprEqn, inputs: Inputs, count: int) -> Results:
    chosen, *operands = inputs
    branches = equation.params.get("branches")
    if branches is None:
        return None

    def evaluate(branch: Any, values: Inputs) -> list[Array]:
        results = _evaluate(branch.jaxpr, branch.consts, values, count)
        return [_broadcast_lanes(result, count) for result in results]

    if isinstance(chosen, _Lanes):  # lanes take different branches: all branches are computed
        found = zip(*(evaluate(branch, operands) for branch in branches))
        which = chosen.values
        return [lax.select_n(jnp.broadcast_to(which, cases[0].shape), *cases) for cases in found]
    swept = [isinstance(value, _Lanes) for value in operands]
    bare = [value.values if isinstance(value, _Lanes) else value for value in operands]
    made = [
        lambda *values, branch=branch: evaluate(
            branch, [_Lanes(value) if lanes else value for value, lanes in zip(values, swept)]
        )
        for branch in branches
    ]
    return lax.switch(jnp.asarray(chosen, int), made, *bare)


_CALLS = {
    *("jit", "call", "closed_call", "eval_jaxpr", "custom_jvp_call", "custom_vjp_call", "remat2"),
}
_ELEMENTWISE = (
    *("add", "sub", "mul", "div", "neg", "abs", "sign", "max", "min", "rem", "add_any", "square"),
    *("exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "pow", "integer_pow", "logistic"),
    *("tanh", "sin", "cos", "erf", "floor", "ceil", "round", "clamp", "copy", "stop_gradient"),
    *("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "xor", "is_finite", "select_n"),
    "convert_element_type",
)
_REDUCTIONS = ("reduce_max", "reduce_min", "reduce_and", "reduce_or", "squeeze")
_RULES: dict[str, Callable] = {
    **{name: _elementwise for name in _ELEMENTWISE},
    **{name: _reduce for name in _REDUCTIONS},
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "pad": _pad,
    "reduce_sum": _sum,
    "dot_general": _product,
    "cond": _cond,
}
