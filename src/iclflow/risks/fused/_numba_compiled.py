"""How functions of the fused pass are compiled by Numba, and how XLA calls them.

XLA hands a handler one pointer, to a frame of words of 64 bits; its layout is fixed by XLA's
interface for foreign functions (`xla/ffi/api/c_api.h`, which every copy of jaxlib brings along).
Once for every handler it queries the version of that interface instead of a computation.
"""

import contextlib
import hashlib
import inspect
import os
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, TextIO

import numba
import numpy as np
from numba import carray  # pyright: ignore[reportPrivateImportUsage]
from numba.core import cgutils
from numba.extending import intrinsic

from ...runtime import cache_folder

try:
    import fcntl
except ImportError:  # not on every system
    fcntl = None

nb: Any = numba  # the types that it states for its decorators are narrower than what they take
# Sums may be reordered and products contracted; infinities and NaN keep their meaning.
_FAST = {"contract", "nsz", "arcp", "reassoc"}
# Numba may spread only explicit `prange` loops over cores: all else it would split is too small.
_OTHERS = ("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil", "fusion")
# Seconds to wait for another process that compiles, which takes half a minute, and between polls.
_LONGEST_WAIT, _POLL = 120.0, 0.1
_LOOPS = {"prange": True} | dict.fromkeys(_OTHERS, False)

# Places in a frame, in words: an extension, the interface, arguments and results.
_EXTENSION, _INTERFACE, _STAGE, _ARGUMENTS, _RESULTS = 1, 2, 4, 9, 14
_EXECUTE, _METADATA = 3, 1
# Versions 0.3 to 0.5 of the interface, those of jaxlib 0.10 to 0.12, have this layout. (A version
# is a word with the second number in its upper half.)
_KNOWN = (3 << 32, 4 << 32, 5 << 32)
# Places in an extension and in what it points to, in an interface, and in a buffer.
_TYPE, _POINTER, _VERSION, _OWN_VERSION, _DATA = 1, 3, 3, 4, 3


class NoSafeThreads(RuntimeError):
    """Numba has no threads here that several programs of XLA may use at once."""


def compiled(function: Callable) -> Callable:
    """`function` as machine code, to be inlined in and cached with the functions that XLA calls."""
    return nb.njit(inspect.unwrap(function), fastmath=_FAST, error_model="numpy")


def on_all_cores(function: Callable) -> Callable:
    """The same with `numba.prange` spread over cores, cached between runs."""
    return _kept(nb.njit, function, parallel=_LOOPS)


def handler(function: Callable):
    """`function` of a pointer to words as one that XLA can call."""
    # Threads that wait must give up their core: spinning would stop a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if nb.config.THREADING_LAYER == "default":
        nb.config.THREADING_LAYER = "threadsafe"
    try:  # starts the threads: code from the cache does not do so itself
        nb.get_num_threads()
    except ValueError as error:
        raise NoSafeThreads(str(error)) from error
    if nb.threading_layer() == "workqueue":  # started by another library
        raise NoSafeThreads("threads of another kind are running")
    return _kept(partial(nb.cfunc, nb.int64(nb.types.CPointer(nb.int64))), function)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Of processes that start together one compiles; the others wait, and read its cache.

    They wait for two minutes at most: a process that was stopped keeps its lock for ever.
    """
    folder = _folder()
    if folder is None or fcntl is None:
        yield
        return
    with open(folder / "lock", "w") as handle:
        # Some shared file systems have no locks: each process then compiles for itself.
        end = time.monotonic() + _LONGEST_WAIT
        with contextlib.suppress(OSError):
            while not _lock(handle) and time.monotonic() < end:
                time.sleep(_POLL)
        yield


def _lock(handle: TextIO) -> bool:
    """Takes the lock of a file, unless another process has it."""
    assert fcntl is not None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kept(decorator: Callable, function: Callable, **options):
    """`function` under a decorator of Numba, cached between runs if there is a folder. (Wrappers of
    a shape checker are removed: Numba cannot read them.)"""
    function, folder = inspect.unwrap(function), _folder()
    if folder is None:
        return decorator(**options)(function)
    before = nb.config.CACHE_DIR
    nb.config.CACHE_DIR = str(folder)
    try:
        return decorator(cache=True, **options)(function)
    finally:
        nb.config.CACHE_DIR = before


@cache
def _folder() -> Path | None:
    """The cache folder of machine code: one for every version of these sources, since Numba does
    not notice changes in the callees of a function. None if it cannot be made."""
    here = Path(__file__).parent
    sources = sorted([*here.glob("_numba*.py"), here / "_philox.py"])
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    try:
        folder = cache_folder().parent / "numba" / version
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a user without a home has no cache either
        return None
    return folder if os.access(folder, os.W_OK) else None


def _as_pointer(typing, address):
    """A number as a pointer."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return nb.types.voidptr(address), generate


_pointer = intrinsic(inspect.unwrap(_as_pointer))


@compiled
def words_at(address, count):
    """Words of 64 bits at an address in memory that XLA owns."""
    return carray(_pointer(address), count, np.int64)


@compiled
def is_question(frame):
    """Answers a query of the interface's version, and returns whether the call was one. The answer
    is XLA's own version if its frames have this layout, else 0: XLA then refuses the handler."""
    extension = frame[_EXTENSION]
    if extension != 0 and np.int32(words_at(extension, 4)[_TYPE]) == _METADATA:
        metadata = words_at(words_at(extension, 4)[_POINTER], 4)
        version = words_at(frame[_INTERFACE], 5)[_OWN_VERSION]
        metadata[_VERSION] = version if version in _KNOWN else 0
        return True
    return np.int32(frame[_STAGE]) != _EXECUTE


@compiled
def argument(frame, place):
    """A pointer to the numbers of an argument."""
    return _pointer(words_at(words_at(frame[_ARGUMENTS], place + 1)[place], 4)[_DATA])


@compiled
def result(frame):
    """A pointer to the numbers of the one result."""
    return _pointer(words_at(words_at(frame[_RESULTS], 1)[0], 4)[_DATA])
