"""A function of one model, applied to every model of a stack."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError

# Models per batch, for short and for long stacks: two programs serve stacks of every length.
_SIZES = (16, 256)
# The memory that a batch may take, in bytes, as far as it can be estimated.
_BYTES = 2**26


def map_models(function: Callable[[Any], Any], models: Any) -> Any:
    """Applies a function of one model to each model of a stack; results get an axis in front.

    **Arguments:**

    - `function`: returns numbers, arrays or words, or tuples, lists and dictionaries of these. If
      JAX can trace it, it is compiled for many models at once; otherwise, such as with NumPy, it is
      called model by model. To find out, it is called once more than necessary.
    - `models`: a model with one more axis in front of every weight.

    **Example:**

    ```pycon
    >>> keys = jr.split(jr.key(0), 10)
    >>> models = icl.init_many(lambda key: icl.Attention.merged(key, dim=3, heads=2), keys)
    >>> norms = icl.models.map_models(lambda model: jnp.linalg.norm(model.coefficients()), models)
    >>> norms.shape
    (10,)
    ```
    """
    weights, structure = jax.tree.flatten(models)
    count = len(weights[0])
    one = jax.tree.unflatten(
        structure, [jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype) for leaf in weights]
    )
    try:
        program, shapes = jax.make_jaxpr(function, return_shape=True)(one)
    except Exception:
        # The function may be wrong, or just not traceable: calls with numbers will show.
        return _one_by_one(function, models, count)
    if count == 0:
        return jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), shapes)
    largest = max(1, min(_SIZES[-1], _BYTES // _bytes(program.jaxpr)))
    size = min(_SIZES[0], largest) if count <= _SIZES[0] else largest
    together = _compile(function)
    parts = []
    for begin in range(0, count, size):
        # The last batch is filled up with the last model, so that all have one shape.
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
    # A lambda or a local function is made anew for every call: a cache would keep each for ever.
    if "<" in getattr(function, "__qualname__", ""):
        return jax.jit(jax.vmap(function))
    return functools.partial(_together, function)


@eqx.filter_jit
def _together(function: Callable[[Any], Any], models: Any) -> Any:
    return jax.vmap(function)(models)


def _bytes(program: Any) -> int:
    """The size of all intermediate arrays of a program, as if none were freed."""
    arrays = [out.aval for step in steps_of(program) for out in step.outvars]
    return 1 + sum(array.size * array.dtype.itemsize for array in arrays)


def steps_of(program: Any) -> Iterator[Any]:
    """All equations of a jaxpr, and of those inside it: loops, branches, calls.

    **Example:**

    ```pycon
    >>> program = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(0.5)
    >>> [step.primitive.name for step in icl.models.steps_of(program)]
    ['sin', 'add']
    ```
    """
    is_program = lambda value: hasattr(value, "eqns")
    for step in program.eqns:
        yield step
        for inner in jax.tree.leaves(list(step.params.values()), is_leaf=is_program):
            if is_program(inner):
                yield from steps_of(inner)
