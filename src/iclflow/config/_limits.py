"""How much memory this process may take, and errors that say that it ran out.

The machine, its containers and the limits of processes each allow some: the least counts.
"""

import errno
import functools
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

GIB = 2**30
"""Bytes in a GiB.

**Example:**

```pycon
>>> icl.config.GIB == 2**30
True
```
"""
# The share of a limit that a run may take: other processes need some, and estimates are not exact.
SHARE = 0.75
# A process reserves addresses that it never uses: stacks, libraries, the allocator's reserve.
# (Measured: a run of 0.9 GiB has 2.1 GiB of them.)
UNUSED_ADDRESSES = 1.25 * GIB
# What JAX and libraries in C++ say. JAX has no class of its own for this error.
_SAID = ("RESOURCE_EXHAUSTED", "Out of memory", "out of memory", "bad_alloc", "OutOfMemory")
_ASKED = re.compile(r"(?:allocat\w+|Unable to allocate)\s+([\d.]+)\s*(bytes|[KMGT])")
_UNITS = {"bytes": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Limit(NamedTuple):
    """A number of bytes, and who allows them, as the end of a sentence: "that this machine has".

    **Example:**

    ```pycon
    >>> limit = icl.config.memory_here()
    >>> 0 < limit.usable <= limit.size
    True
    ```
    """

    size: float
    words: str

    @property
    def usable(self) -> float:
        """The bytes that a run may take."""
        return SHARE * self.size

    @property
    def sentence(self) -> str:
        """The usable bytes, the limit, and who sets it, as part of a sentence."""
        return f"{self.usable / GIB:.3g} of the {self.size / GIB:.3g} GiB {self.words}"


def memory_here(now: bool = True) -> Limit:
    """The least of all limits.

    **Arguments:**

    - `now`: whether to count memory that other processes hold at the moment. Work that is under way
      need not stop because of them.

    **Example:**

    ```pycon
    >>> icl.config.memory_here(now=False).size > icl.config.GIB
    True
    ```
    """
    # Cached for a second: a sweep asks for each of its points.
    return _least(now, int(time.monotonic()))


@functools.lru_cache(maxsize=2)
def _least(now: bool, _second: int) -> Limit:
    root = Path("/")
    found = [*machine_limits(), *container_limits(root), *process_limits()]
    found += free_memory(root) if now else ()
    return min(found, key=lambda limit: limit.size, default=Limit(float("inf"), ""))


def machine_limits() -> Iterator[Limit]:
    """What the machine has."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        yield Limit(float(size), "that this machine has")
    except (AttributeError, OSError, ValueError):
        pass  # not every system knows it


def free_memory(root: Path) -> Iterator[Limit]:
    """The memory of the machine that is free, or held by this process already."""
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable" and value.split()[:1]:
            free = 1024.0 * int(value.split()[0]) + _held(root)
            yield Limit(free, "that are free on this machine")


def _held(root: Path) -> float:
    """The bytes that this process holds already."""
    pages = _text(root / "proc/self/statm").split()
    return float(os.sysconf("SC_PAGE_SIZE") * int(pages[1])) if len(pages) > 1 else 0.0


def container_limits(root: Path) -> Iterator[Limit]:
    """The limits of the control groups that this process is in, and of those around them."""
    top = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, place = rest.partition(":")
        if not controllers:  # version 2
            folders, name = (top, top / "unified"), "memory.max"
        elif "memory" in controllers.split(","):
            folders, name = (top / "memory",), "memory.limit_in_bytes"
        else:
            continue
        # In a container, its own group is often mounted at the top, whatever its path is.
        inside = Path(place.lstrip("/"))
        for group in {*(inside, *inside.parents)}:
            for folder in folders:
                text = _text(folder / group / name).strip()
                if text.isdigit():  # "max": none
                    yield Limit(float(text), "that this container allows")


def process_limits() -> Iterator[Limit]:
    """The limits that `ulimit` sets."""
    try:
        import resource
    except ImportError:  # a system without such limits
        return
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY:
        left = max(0.0, addresses - UNUSED_ADDRESSES)
        yield Limit(left, f"that are left of the {addresses / GIB:.3g} GiB of `ulimit -v`")
    data, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if data != resource.RLIM_INFINITY:
        yield Limit(float(data), "that `ulimit -d` allows")


def _text(path: Path) -> str:
    """The text of a system file; empty if it does not exist."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def out_of_memory(error: BaseException) -> str | None:
    """A sentence for an error that says that memory ran out, whoever raised it; else None.

    **Example:**

    ```pycon
    >>> icl.config.out_of_memory(MemoryError()) is not None, icl.config.out_of_memory(KeyError())
    (True, None)
    ```
    """
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
