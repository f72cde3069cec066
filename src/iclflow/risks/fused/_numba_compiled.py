"""How functions of the fused pass are compiled by Numba."""

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

from ...runtime import cache_folder

try:
    import fcntl
except ImportError:  # not on every system
    fcntl = None

nb: Any = numba  # the types that it states for its decorators are narrower than what they take
# Sums may be reordered and products contracted; infinities and NaN keep their meaning.
_FAST = {"contract", "nsz", "arcp", "reassoc"}
# Of what Numba can spread over cores, only loops that say so.
_OTHERS = ("comprehension", "reduction", "inplace_binop", "setitem", "numpy", "stencil", "fusion")
# Seconds to wait for another process that compiles, which takes half a minute, and between looks.
_LONGEST_WAIT, _POLL = 120.0, 0.1
_LOOPS = {"prange": True} | dict.fromkeys(_OTHERS, False)


class NoSafeThreads(RuntimeError):
    """Numba has no threads here that several programs of XLA may use at once."""


def compiled(function: Callable) -> Callable:
    """`function` as machine code, which those that XLA calls take in and keep."""
    return nb.njit(inspect.unwrap(function), fastmath=_FAST, error_model="numpy")


def on_all_cores(function: Callable) -> Callable:
    """The same, with `numba.prange` spread over cores and nothing else, and kept between runs."""
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
    if nb.threading_layer() == "workqueue":  # somebody else has started them
        raise NoSafeThreads("threads of another kind are running")
    return _kept(partial(nb.cfunc, nb.int64(nb.types.CPointer(nb.int64))), function)


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Of processes that start together one compiles; the others wait, and read what it kept.

    They wait for a minute or two at most: a process that was stopped keeps its lock for ever.
    """
    folder = _folder()
    if folder is None or fcntl is None:
        yield
        return
    with open(folder / "lock", "w") as handle:
        # Some shared file systems have no locks: there each process compiles for itself.
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
    """What a decorator of Numba makes of `function`, kept between runs where there is a folder for
    it. (What a checker of shapes may have put around it, which Numba cannot read, is taken off.)"""
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
    """Where machine code is kept: a folder for every version of these sources, since Numba does not
    see when a function that another one calls has changed. None if it cannot be made."""
    here = Path(__file__).parent
    sources = sorted([*here.glob("_numba*.py"), here / "_philox.py"])
    version = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    try:
        folder = cache_folder().parent / "numba" / version
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a user without a home has no cache either
        return None
    return folder if os.access(folder, os.W_OK) else None
