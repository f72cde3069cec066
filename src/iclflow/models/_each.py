"""A function of one model, applied to every model of a stack."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError

# Models that are computed together, few or many: two programs serve stacks of every length.
_SIZES = (16, 256)
# What these may take in memory, as far as it can be told.
_BYTES = 2**26


def map_models(function: Callable[[Any], Any], models: Any) -> Any:
    """What a function of one model gives for each of a stack: its result with an axis in front.

    **Arguments:**

    - `function`: returns numbers, arrays or words, or tuples, lists and dictionaries of these. One
      that JAX can trace is compiled, for many models at once; any other, such as one that computes
      with NumPy, is called model by model. To find out, it is called once more than it has to be.
    - `models`: a model whose weights all have an axis more in front.
    """
    weights, structure = jax.tree.flatten(models)
    count = len(weights[0])
    one = jax.tree.unflatten(
        structure, [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in weights]
    )
    try:
        program, shapes = jax.make_jaxpr(function, return_shape=True)(one)
    except Exception:
        # Whether the function is wrong or only leaves JAX, numbers will show.
        return _one_by_one(function, models, count)
    if count == 0:
        return jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), shapes)
    largest = max(1, min(_SIZES[-1], _BYTES // _bytes(program.jaxpr)))
    size = min(_SIZES[0], largest) if count <= _SIZES[0] else largest
    together = _compile(function)
    parts = []
    for begin in range(0, count, size):
        # The last model stands in for those that are missing, for the sake of one shape.
        places = np.minimum(np.arange(begin, begin + size), count - 1)
        some = jax.tree.map(lambda leaf: np.asarray(leaf)[places], models)
        result = jax.device_get(together(some))
        parts.append(jax.tree.map(lambda leaf: leaf[: count - begin], result))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _one_by_one(function: Callable[[Any], Any], models: Any, count: int) -> Any:
    if count == 0:
        raise ValueError("There is no model in this stack to apply `function` to.")
    results = [
        function(jax.tree.map(lambda leaf: jnp.asarray(leaf[i]), models)) for i in range(count)
    ]
    kinds = [jax.tree.structure(result) for result in results]
    for i, (result, kind) in enumerate(zip(results, kinds)):
        alien = [leaf for leaf in jax.tree.leaves(result) if np.asarray(leaf).dtype.hasobject]
        if alien or not jax.tree.leaves(result):
            raise TypeError(
                f"`function` returned {type((alien or [result])[0]).__name__} for model {i}: must "
                "return numbers, arrays or words, or tuples, lists and dictionaries of these."
            )
        shapes = [jax.tree.map(np.shape, each) for each in (results[0], result)]
        if kind != kinds[0] or shapes[0] != shapes[1]:
            raise InputError(
                "function",
                problem=f"returned {shapes[1]} (shapes) for model {i} and {shapes[0]} for model 0",
                allowed="must return the same for all",
            )
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(x) for x in leaves]), *results)


def _compile(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function for some models of a stack at once."""
    # One that was made for this call must not be kept, with its program, for ever after.
    if "<" in getattr(function, "__qualname__", ""):
        return jax.jit(jax.vmap(function))
    return functools.partial(_together, function)


@eqx.filter_jit
def _together(function: Callable[[Any], Any], models: Any) -> Any:
    return jax.vmap(function)(models)


def _bytes(program: Any) -> int:
    """Of everything that a program computes, as if nothing were ever dropped."""
    arrays = [out.aval for step in steps_of(program) for out in step.outvars]
    return 1 + sum(array.size * array.dtype.itemsize for array in arrays)


def steps_of(program: Any) -> Iterator[Any]:
    """All equations of a jaxpr, and of those inside it: loops, branches, calls."""
    is_program = lambda value: hasattr(value, "eqns")
    for step in program.eqns:
        yield step
        for inner in jax.tree.leaves(list(step.params.values()), is_leaf=is_program):
            if is_program(inner):
                yield from steps_of(inner)
