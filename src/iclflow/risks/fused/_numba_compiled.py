"""How functions of the fused pass are compiled by Numba."""

import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numba

nb: Any = numba  # the types that it states for its decorators are narrower than what they take
# Sums may be reordered and products contracted; infinities and NaN keep their meaning.
_FAST = {"contract", "nsz", "arcp", "reassoc"}
# Of what Numba can spread over cores, only loops that say so.
_OTHERS = ("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil", "fusion")
_LOOPS = {"prange": True} | dict.fromkeys(_OTHERS, False)


class NoSafeThreads(RuntimeError):
    """Numba has no threads here that several programs of XLA may use at once."""


def compiled(function: Callable) -> Callable:
    """`function` as machine code, kept between runs."""
    return _kept(nb.njit, function, fastmath=_FAST, error_model="numpy")


def on_all_cores(function: Callable) -> Callable:
    """The same, with `numba.prange` spread over cores, and nothing else."""
    return _kept(nb.njit, function, parallel=_LOOPS)


def handler(function: Callable):
    """`function` of a pointer to words as one that XLA can call."""
    # Threads that wait must leave their core to others: a busy machine would stand still otherwise.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if nb.config.THREADING_LAYER == "default":
        nb.config.THREADING_LAYER = "threadsafe"
    try:  # starts them: code that is loaded from a former run does not do so itself
        nb.get_num_threads()
    except ValueError as error:
        raise NoSafeThreads(str(error)) from error
    return _kept(partial(nb.cfunc, nb.int64(nb.types.CPointer(nb.int64))), function)


def _kept(decorator: Callable, function: Callable, **options):
    """What a decorator of Numba makes of `function`, kept between runs where there is a folder for
    it. (What a checker of shapes may have put around it, which Numba cannot read, is taken off.)"""
    function = inspect.unwrap(function)
    try:
        return decorator(cache=True, **options)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return decorator(**options)(function)
