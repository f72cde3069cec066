"""How many cores and threads this process may use."""

import os

# Where the linear algebra libraries of NumPy read how many threads to use.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def usable_cores() -> int:
    """The cores that this process may use, which can be fewer than there are."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def use_one_thread() -> None:
    """Limits NumPy's linear algebra to one thread, in this process if NumPy is not loaded yet, and
    in every process that it starts.

    With more threads it rounds differently, and rows of a sweep must not depend on how many cores a
    machine has. Where several processes share the cores, waiting threads slow down the others.
    """
    os.environ.update(dict.fromkeys(_THREADS, "1"))
