"""Compiled functions that return before their result has been computed."""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import equinox as eqx
import jax


def jit_ahead(function: Callable) -> Callable:
    """`eqx.filter_jit` for a function whose outputs are arrays, without waiting for them.

    Equinox waits for every call, so that it can word errors well. A loop that looks at one chunk
    while the next is computed must not.
    """

    @partial(jax.jit, static_argnums=(0, 1))
    @wraps(function)
    def compiled(structure: Any, static: tuple, dynamic: list) -> Any:
        leaves = [y if x is None else x for x, y in zip(dynamic, static)]
        return function(*jax.tree.unflatten(structure, leaves))

    @wraps(function)
    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        # Split as `eqx.filter_jit` does: what is no array decides which program it is.
        dynamic = [x if eqx.is_array(x) else None for x in leaves]
        static = tuple(None if eqx.is_array(x) else x for x in leaves)
        return compiled(structure, static, dynamic)

    return call
