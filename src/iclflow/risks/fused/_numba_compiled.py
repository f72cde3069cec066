"""How functions of the fused pass are compiled by Numba."""

import inspect
import os
from collections.abc import Callable
from typing import Any

import numba

nb: Any = numba  # the types that it states for its decorators are narrower than what they take
# Sums may be reordered and products contracted; infinities and NaN keep their meaning.
_FAST = {"contract", "nsz", "arcp", "reassoc"}

_OTHERS = ("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil", "fusion")
_LOOPS = {"prange": True} | dict.fromkeys(_OTHERS, False)


def compiled(function: Callable) -> Callable:
    """`function` as machine code, kept between runs. (What a type checker of shapes may have put
    around it, which Numba cannot read, is taken off.)"""
    options = dict(fastmath=_FAST, error_model="numpy", cache=True)
    return nb.njit(**options)(inspect.unwrap(function))


def on_all_cores(function: Callable) -> Callable:
    """The same, with `numba.prange` spread over cores, and nothing else."""
    return nb.njit(parallel=_LOOPS, cache=True)(inspect.unwrap(function))


def handler(function: Callable):
    """`function` of a pointer to words as one that XLA can call."""
    # Threads that wait must leave their core to others: a busy machine would stand still otherwise.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    # Starts them: code that is loaded from a former run does not do so itself.
    nb.get_num_threads()
    return nb.cfunc(nb.int64(nb.types.CPointer(nb.int64)), cache=True)(inspect.unwrap(function))
