"""The compiled pass of `_numba.py` as an operation of JAX."""

import contextlib
import ctypes
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ._pass import Numbers
from ._spec import Spec

_TARGET = "iclflow_fused_pass"


# Why there is no pass, once it was tried.
_failures: list[str] = []


@contextlib.contextmanager
def _announce(words: str) -> Iterator[None]:
    """Prints `words` on standard error if the block takes longer than two seconds."""
    timer = threading.Timer(2.0, lambda: print(f"iclflow: {words}", file=sys.stderr))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@cache
def available() -> bool:
    """Whether Numba is installed and works; the pass is then registered with XLA, under one name
    for all shapes. If that fails, batches are stored, and a warning says why."""
    if find_spec("numba") is None:
        return False
    try:
        from numba.core.errors import NumbaError

        from ._numba_compiled import NoSafeThreads, alone
    except ImportError as error:
        return _warn(error)
    try:
        jax.devices("cpu")  # XLA checks a handler at registration only if there is a CPU client
        words = "compiling vector instructions, half a minute, once for this machine …"
        with _announce(words), alone():
            from ._numba import fused_pass
        handler = jax.ffi.pycapsule(ctypes.cast(fused_pass.address, ctypes.c_void_p))
        jax.ffi.register_ffi_target(_TARGET, handler, platform="cpu")
    except (NoSafeThreads, NumbaError, jax.errors.JaxRuntimeError) as error:
        return _warn(error)
    return True


def why_not() -> str | None:
    """Why there is no pass here; None if there is one, as far as can be told without compiling."""
    if find_spec("numba") is None:
        return "Numba is not installed"
    return f"Numba cannot be used here: {_failures[-1]}" if _failures else None


def _warn(error: Exception) -> bool:
    reason = str(error).strip().splitlines()[0]
    _failures.append(reason)
    warnings.warn(f"Numba cannot be used here, training takes longer: {reason}", stacklevel=3)
    return False


@cache
def batch_sums(spec: Spec) -> Callable[[Numbers], Array]:
    """A function from `Numbers` to (1 + kq + ov,) sums over the batch, which may be vmapped."""

    @jax.custom_batching.custom_vmap
    def one(*numbers: Array) -> Array:
        return _members(spec, 1, *(number[None] for number in numbers))[0]

    @one.def_vmap
    def many(count: int, batched: list[bool], *numbers: Array) -> tuple[Array, bool]:
        own = lambda number, has: (
            number if has else jnp.broadcast_to(number, (count, *number.shape))
        )
        return _members(spec, count, *map(own, numbers, batched)), True

    return lambda numbers: one(*numbers)


def _members(spec: Spec, members: int, *numbers: Array) -> Float[Array, "M rows"]:
    assert available()
    given = Numbers(*numbers)
    size = 1 + given.kq[0].size + given.ov[0].size
    contexts = np.asarray(spec.contexts, np.int32)
    shape = jax.ShapeDtypeStruct((members, size), jnp.float32)
    call = jax.ffi.ffi_call(_TARGET, shape, vmap_method="sequential")
    return call(sizes_of(spec, members), contexts, *given)


def sizes_of(spec: Spec, members: int) -> np.ndarray:
    """The whole numbers of a pass, in the order that `_numba.py` names."""
    model = spec.dim, spec.heads, spec.labels, spec.drawn, spec.reads_inputs, spec.diagonal
    run = spec.slot, members, spec.batch, len(spec.contexts), spec.longest
    return np.asarray([*model, *run], np.int32)
