"""Errors that say that memory ran out, whoever raised them, as one sentence."""

import errno
import re

from ._limits import GIB, memory_here

# What JAX, and what libraries in C++, say; errors of JAX have no class that could be asked for.
_SAID = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "bad_alloc", "OutOfMemory")
_ASKED = re.compile(r"(?:allocat\w+|Unable to allocate)\s+([\d.]+)\s*(bytes|[KMGT])")
_UNITS = {"bytes": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def out_of_memory(error: BaseException) -> str | None:
    """What to say of an error if it is that memory ran out; None if it is another."""
    if not _is_about_memory(error):
        return None
    asked = _ASKED.search(str(error))
    wanted = ""
    if asked is not None:
        wanted = f" ({float(asked[1]) * _UNITS[asked[2]] / GIB:.3g} GiB were asked for at once)"
    here = memory_here()
    return (
        f"This needs more memory than there is{wanted}: a run may take {here.sentence}. Smaller "
        "sizes, batches or data sets need less."
    )


def _is_about_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    raised = isinstance(error, RuntimeError) or type(error).__module__.startswith(("jax", "duckdb"))
    said = f"{type(error).__name__}: {error}"
    return raised and any(words in said for words in _SAID)
