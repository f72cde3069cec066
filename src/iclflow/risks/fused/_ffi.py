"""The compiled pass of `_numba.py` as an operation of JAX."""

import contextlib
import ctypes
import sys
import threading
from collections.abc import Iterator
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._pass import Numbers
from ._spec import Spec

_TARGET = "iclflow_fused_pass"


@contextlib.contextmanager
def _announced(words: str) -> Iterator[None]:
    """Says on a terminal what takes so long, if it does."""
    say = lambda: print(f"iclflow: {words}", file=sys.stderr)
    timer = threading.Timer(2.0, say if sys.stderr.isatty() else lambda: None)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@cache
def available() -> bool:
    """Whether Numba is installed and can be used; the pass is then made known to XLA, under one
    name for all shapes."""
    try:
        from ._numba_compiled import NoSafeThreads
    except ImportError:
        return False
    try:
        with _announced("compiling vector instructions, once for this machine …"):
            from ._numba import fused_pass
    except NoSafeThreads:
        return False
    handler = jax.ffi.pycapsule(ctypes.cast(fused_pass.address, ctypes.c_void_p))
    jax.ffi.register_ffi_target(_TARGET, handler, platform="cpu")
    return True


@cache
def summed(spec: Spec):
    """A function from `Numbers` to (1 + kq + ov,) sums over the batch, which may be vmapped."""

    @jax.custom_batching.custom_vmap
    def one(*numbers):
        return _members(spec, 1, *(number[None] for number in numbers))[0]

    @one.def_vmap
    def many(count, batched, *numbers):
        own = lambda number, has: (
            number if has else jnp.broadcast_to(number, (count, *number.shape))
        )
        return _members(spec, count, *map(own, numbers, batched)), True

    return lambda numbers: one(*numbers)


def _members(spec: Spec, members: int, *numbers) -> Float[Array, "M rows"]:
    assert available()
    given = Numbers(*numbers)
    size = 1 + given.kq[0].size + given.ov[0].size
    contexts = np.asarray(spec.contexts, np.int32)
    shape = jax.ShapeDtypeStruct((members, size), jnp.float32)
    call = jax.ffi.ffi_call(_TARGET, shape, vmap_method="sequential")
    flags = spec.drawn, spec.reads_inputs, spec.diagonal
    shape_of_run = spec.slot, members, spec.batch, len(contexts), spec.longest
    sizes = spec.dim, spec.heads, spec.labels, *flags, *shape_of_run
    return call(np.asarray(sizes, np.int32), contexts, *given)
