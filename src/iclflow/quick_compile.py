"""Less time to compile, for programs that compile much and run briefly."""

import os
from importlib.metadata import version

# XLA's processor backend makes its loops in one of two ways; the newer one takes half as long
# again to compile, and runs no faster here. Later versions have no other, and end the process at
# an option that they do not know.
_TWO_WAYS = ((0, 10), (0, 11))


def compile_quickly(optimise: bool = True) -> None:
    """Asks XLA for quick compilation, for programs; the library itself never does.

    To be called before the first array is made. What `XLA_FLAGS` already says stays in force.

    **Arguments:**

    - `optimise`: False saves on the last optimisations too, where next to nothing runs long.
    """
    known = tuple(int(part) for part in version("jaxlib").split(".")[:2])
    options = (
        ["--xla_cpu_use_fusion_emitters=false"] if _TWO_WAYS[0] <= known < _TWO_WAYS[1] else []
    )
    if not optimise:
        options.append("--xla_backend_optimization_level=0")
    said = os.environ.get("XLA_FLAGS", "")
    # The last of two that differ counts; what is said already need not be said again.
    new = [option for option in options if option not in said.split()]
    os.environ["XLA_FLAGS"] = " ".join([*new, said]).strip()
