"""Whole steps of training inside a GPU kernel: one program per model.

A step is: circuits from weights, the pass over fresh sequences, sums over lanes, the chain rule
back to the weights, and the update. The pass, the circuits and the update are the functions that
train without this kernel; what is here is their order, and barriers between what some threads
write and others read. Weights and the memory of the update live in arrays that one program alone
touches, in the precision in which they are given.

A kernel knows arrays whose size is a power of two. Vectors are therefore padded with zeros, after
a 1 that stands for "no second factor" in `Terms`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.extend.core import Literal
from jaxtyping import Array, Float, UInt32

from ...models import AbstractModel, Attention
from .._batch import as_dtype
from ._law import WhiteLaw
from ._pallas import FAST, counted, whole_block
from ._pass import Numbers, lanes_of
from ._philox import PLAIN
from ._products import Table, columns, linear_terms, padded, products_of
from ._spec import Spec, has_few_sums

# Warps of a program where there are few models and where there are many. Of a prototype of this
# kernel on an H200, with its 132 processors, a step of a model alone was shortest with the first,
# and 1 024 models were fastest with the second; this one has not been on a card yet. A thread has
# one sequence at a time.
_FEW_WARPS, _MANY_WARPS, _FEW_MODELS = 8, 4, 132
# How many sums over lanes are made side by side: a power of two.
_ROWS_AT_ONCE = 32
# Rows of a table that are written out; more are looped over.
_MOST_ROWS = 8

# A step of the optimiser: (constants, gradient, memory, weights) to (weights, memory), elementwise.
Update = Callable[[Any, Array, Any, Array], tuple[Array, Any]]


class Tables(NamedTuple):
    """What the circuits of white tokens are of weights, in two stages and back.

    **Fields:**

    - `circuits`: of the model, from its weights.
    - `white`: circuits of white tokens, from these.
    - `of_circuits`, `of_weights`: the slopes, by the chain rule.
    """

    circuits: Table
    white: Table
    of_circuits: Table
    of_weights: Table


def tables_of(
    law: WhiteLaw, spec: Spec, model_of: Callable[[Array], AbstractModel], size: int
) -> Tables | None:
    """The tables of models with `size` weights, or None if their circuits are not sums of products
    of two weights."""
    heads, token = spec.heads, spec.dim + spec.labels
    shapes = (heads, token, spec.dim), (heads, spec.labels, token)
    split = int(np.prod(shapes[0]))

    def circuits(weights: Array) -> Array:
        model = model_of(weights)
        assert isinstance(model, Attention)
        return jnp.concatenate([model.kq().ravel(), model.ov().ravel()])

    def white(law: WhiteLaw) -> Callable[[Array], Array]:
        def function(flat: Array) -> Array:
            kq, ov = flat[:split].reshape(shapes[0]), flat[split:].reshape(shapes[1])
            return jnp.concatenate([x.ravel() for x in law.whiten(kq, ov, spec.drawn)])

        return function

    products = products_of(circuits, size)
    if products is None:
        return None
    count = sum(int(np.prod(shape)) for shape in shapes)
    rng = np.random.default_rng(0)
    some = jax.tree.map(lambda x: rng.normal(size=jnp.shape(x)), as_dtype(law, jnp.float32))
    linear = linear_terms(white(as_dtype(law, jnp.float32)), white(some), count)
    back = linear._replace(row=linear.first, first=linear.row)
    rows = 1 + int(linear.row.max())
    return Tables(
        Table.of(products, padded(count)),
        Table.of(linear, padded(rows)),
        Table.of(back, padded(count)),
        Table.of(products.transposed(size), padded(size + 1)),
    )


def steps_in_kernel(
    law: WhiteLaw,
    spec: Spec,
    model_of: Callable[[Array], AbstractModel],
    update: Update,
    constants: Any,
    weights: Float[Array, " n"],
    memory: Any,
    *,
    models: int = 1,
    interpret: bool = False,
) -> Callable[[Any, Any, UInt32[Array, "steps 2"], Any], tuple[Array, Any]] | None:
    """A function from weights, the memory of the update, the words of steps and how many of these
    steps to take, to weights and memory after them. None for models that have no such kernel.

    **Arguments:**

    - `constants`: numbers of the update, which may be traced.
    - `weights`, `memory`: of one model, for their shapes.
    - `models`: how many are trained at a time.
    """
    size, leaves = weights.size, jax.tree.leaves(memory)
    known = all(jnp.shape(leaf) in ((), (size,)) for leaf in leaves)
    tables = tables_of(law, spec, model_of, size) if known and has_few_sums(spec) else None
    if tables is None:
        return None
    zeros = jnp.zeros((spec.heads, spec.entries, spec.dim)), jnp.zeros((spec.heads, 1))
    # Words and circuits are the kernel's own.
    given = law.numbers(jnp.zeros(2, jnp.uint32), *zeros, spec.drawn)[3:]
    return partial(_call, spec, update, constants, tables, given, models, interpret)


def _call(
    spec: Spec,
    update: Update,
    constants: Any,
    tables: Tables,
    given: Sequence[Array],
    models: int,
    interpret: bool,
    weights: Float[Array, " n"],
    memory: Any,
    words: UInt32[Array, "steps 2"],
    count: Any,
) -> tuple[Array, Any]:
    size, width = weights.size, tables.of_weights.first.shape[1]
    lanes = min(32 * _warps(models), pl.next_power_of_2(spec.batch))
    numbers, structure = jax.tree.flatten((constants, tables, tuple(given)))
    leaves, kind = jax.tree.flatten(memory)
    parts = [jnp.ravel(number) if jnp.ndim(number) == 0 else number for number in numbers]
    pad = lambda vector: jnp.pad(vector, (0, width - size))
    start = [pad(weights).at[size].set(1), *map(_as_vector(pad), leaves)]
    scratch = [tables.circuits, tables.white, tables.of_circuits, tables.of_weights]
    widths = [table.first.shape[1] for table in scratch]
    sums = _ROWS_AT_ONCE * pl.cdiv(1 + spec.slopes, _ROWS_AT_ONCE)

    def kernel(*refs: Any) -> None:
        words, count, *rest = refs
        inputs, rest = rest[: len(parts)], rest[len(parts) :]
        first, rest = rest[: len(start)], rest[len(start) :]
        state, own = rest[: len(start)], _Own(*rest[len(start) :])
        inputs = [ref[0] if jnp.ndim(x) == 0 else ref for ref, x in zip(inputs, numbers)]
        constants, tables, given = jax.tree.unflatten(structure, inputs)
        sync = _nothing if interpret else triton.debug_barrier
        for ref, out in zip(first, state):
            for part in columns(out.shape[0]) if out.shape[0] > 1 else [slice(0, 1)]:
                out[part] = ref[part]
        sync()

        def step(number: Any, _: Any) -> None:
            _follow(tables.circuits, state[0], state[0], own.circuits)
            sync()
            _follow(tables.white, own.circuits, None, own.white)
            sync()
            key = words[number, 0], words[number, 1]
            _pass(spec, Numbers(key, *_views(spec, own.white), *given), own, interpret, sync)
            sync()
            _follow(tables.of_circuits, _Offset(own.sums, 1), None, own.of_circuits,
                    1 / np.float32(spec.batch))  # fmt: skip
            sync()
            _follow(tables.of_weights, own.of_circuits, state[0], own.of_weights)
            # Numbers that all weights share are read before any thread replaces them.
            shared = [ref[0] if ref.shape[0] == 1 else None for ref in state]
            sync()
            _move(_typed(update), constants, state, shared, own.of_weights, kind, size)
            sync()

        jax.lax.fori_loop(jnp.int32(0), count[0], step, None)

    own = [*((n,) for n in (*widths, sums)), (sums, lanes)]
    given_shapes = [*start, *(jax.ShapeDtypeStruct(n, jnp.float32) for n in own)]
    operands = [words, jnp.asarray(count, jnp.int32)[None], *parts, *start]
    call = pl.pallas_call(
        kernel,
        grid=(1,),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in given_shapes],
        in_specs=[pl.BlockSpec(x.shape, partial(whole_block, x.ndim)) for x in operands],
        out_specs=[pl.BlockSpec(x.shape, partial(whole_block, x.ndim)) for x in given_shapes],
        compiler_params=triton.CompilerParams(num_warps=max(1, lanes // 32), num_stages=1),
        interpret=interpret,
        name="iclflow_training_steps",
    )
    after, *found = call(*operands)[: len(start)]
    found = [new[0] if jnp.ndim(old) == 0 else new[:size] for new, old in zip(found, leaves)]
    return after[:size], jax.tree.unflatten(kind, found)


class _Own(NamedTuple):
    """Arrays in which a program keeps what its threads tell each other."""

    circuits: Any
    white: Any
    of_circuits: Any
    of_weights: Any
    sums: Any
    lanes: Any


class _Offset(NamedTuple):
    """A vector, read from some place on."""

    ref: Any
    start: int

    def __getitem__(self, place: Any) -> Array:
        return self.ref[place + self.start]


class _View(NamedTuple):
    """Part of a vector, read with as many indices as an array of `shape` has."""

    ref: Any
    start: int
    shape: tuple[int, ...]

    def __getitem__(self, place: tuple[int, ...]) -> Array:
        return self.ref[self.start + int(np.ravel_multi_index(place, self.shape))]


def _views(spec: Spec, ref: Any) -> tuple[_View, _View]:
    kq = spec.heads, spec.entries, spec.dim
    ov = spec.heads, spec.labels, spec.dim + spec.labels
    return _View(ref, 0, kq), _View(ref, int(np.prod(kq)), ov)


def _pass(
    spec: Spec, numbers: Numbers, own: _Own, interpret: bool, sync: Callable[[], None]
) -> None:
    """The sums over a batch. Lanes are written to memory and read again row by row, which takes a
    few barriers for all sums where each sum over the threads of a program would take three."""
    functions = PLAIN if interpret else FAST
    rows, lanes = own.lanes.shape
    parts = pl.cdiv(spec.batch, lanes)

    def part(number: Any, _: Any) -> None:
        place = number * lanes + jnp.arange(lanes)
        slopes = lanes_of(spec, numbers, place.astype(jnp.uint32), functions)
        if parts > 1:
            sync()
        for row, value in enumerate(counted(spec, slopes, place)):
            before = own.lanes[row, :] if parts > 1 else value
            own.lanes[row, :] = (
                value if parts == 1 else jnp.where(number == 0, value, before + value)
            )

    if parts == 1:
        part(0, None)
    else:
        jax.lax.fori_loop(0, parts, part, None)
    sync()
    for start in range(0, rows, _ROWS_AT_ONCE):
        block = slice(start, start + _ROWS_AT_ONCE)
        own.sums[block] = jnp.sum(own.lanes[block, :], 1)


def _follow(table: Table, x: Any, y: Any, out: Any, scale: Any = None) -> None:
    """out = Σ factor · x · y by the rows of a table, in float32; without `y`, Σ factor · x."""
    for part in columns(out.shape[0]):

        def term(row: Any, part: slice = part) -> Array:
            found = table.factor[row, part] * x[table.first[row, part]].astype(jnp.float32)
            return found if y is None else found * y[table.second[row, part]].astype(jnp.float32)

        rows = table.first.shape[0]
        if rows <= _MOST_ROWS:
            total = sum((term(row) for row in range(1, rows)), term(0))
        else:
            total = jax.lax.fori_loop(1, rows, lambda row, sum: sum + term(row), term(0))
        out[part] = total if scale is None else total * scale


def _move(
    update: Update,
    constants: Any,
    state: Sequence[Any],
    shared: Sequence[Array | None],
    slopes: Any,
    kind: Any,
    size: int,
) -> None:
    """Updates weights, and the memory of the update."""
    for part in columns(slopes.shape[0]):
        weights, *memory = [
            ref[part] if one is None else one for ref, one in zip(state, shared)
        ]  # fmt: skip
        gradient = slopes[part].astype(weights.dtype)
        moved, after = update(constants, gradient, jax.tree.unflatten(kind, memory), weights)
        place = part.start + jnp.arange(part.stop - part.start)
        state[0][part] = jnp.where(place < size, moved, weights)
        for ref, one, new in zip(state[1:], shared[1:], jax.tree.leaves(after)):
            if one is None:
                ref[part] = new.astype(ref.dtype)
            else:
                ref[0] = new.astype(ref.dtype)


def _typed(function: Callable) -> Callable:
    """The same function, with a type for each of its numbers: the compiler of kernels takes powers
    of a number that has none, such as 0.9, for float32."""

    def evaluate(program: Any, arguments: Sequence[Any]) -> list[Any]:
        known = dict(zip(program.invars, arguments, strict=True))
        fixed = lambda name: name.aval.dtype.type(name.val)
        read = lambda name: fixed(name) if isinstance(name, Literal) else known[name]
        for each in program.eqns:
            inputs = [read(name) for name in each.invars]
            if each.primitive.name in ("jit", "pjit"):
                found = evaluate(each.params["jaxpr"].jaxpr, inputs)
            else:
                found = each.primitive.bind(*inputs, **each.params)
                found = found if each.primitive.multiple_results else [found]
            known.update(zip(each.outvars, found, strict=True))
        return [read(name) for name in program.outvars]

    def run(*arguments: Any) -> Any:
        traced, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        found = evaluate(traced.jaxpr, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return run


def _as_vector(pad: Callable[[Array], Array]) -> Callable[[Any], Array]:
    return lambda leaf: pad(leaf) if jnp.ndim(leaf) else jnp.asarray(leaf)[None]


def _warps(models: int) -> int:
    return _FEW_WARPS if models <= _FEW_MODELS else _MANY_WARPS


def _nothing() -> None:
    pass
