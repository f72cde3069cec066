"""How many cores there are for us."""

import os


def usable_cores() -> int:
    """The cores that this process may use, which can be fewer than there are."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1
