"""Compilation: a cache of compiled programs in the user's cache folder, and faster compilation.

Compiling is most of the time of a short run: a gradient flow that starts in 2.3 s without the
cache (4 s with the implicit solver) starts in 0.8 s (1.6 s) with it. The solvers are stepped
directly, without the run-time error checks that keep a whole diffrax solve out of the cache, so
`EQX_ON_ERROR` can stay as it is.
"""

import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path

# Versions of jaxlib whose CPU backend emits loops in one of two ways. The newer way takes 1.5 times
# as long to compile and runs no faster here. Later versions have only that one, and end the
# process at an option that they do not know.
_TWO_EMITTERS = ((0, 10), (0, 11))


def cache_folder() -> Path:
    """Where compiled programs are cached: in the user's cache folder of this system."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "iclflow" / "compiled"


def enable_compile_cache() -> Path | None:
    """Enables the compile cache. Programs call this; importing the library never does.

    `JAX_COMPILATION_CACHE_DIR` chooses another folder, `JAX_ENABLE_COMPILATION_CACHE=false` none.
    Where no folder can be made, programs compile every time, and None is returned.
    """
    import jax

    try:
        folder = Path(os.environ.get("JAX_COMPILATION_CACHE_DIR") or cache_folder())
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a user without a home has no cache either
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # An entry that another process is still writing is compiled again.
    warnings.filterwarnings("ignore", "Error reading persistent compilation cache entry")
    # By default only programs that take a second to compile are cached; ours are many small ones.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


def compile_quickly(optimise: bool = True) -> None:
    """Makes XLA compile faster. Programs call this before the first array is made; importing the
    library never does. Options that are set in `XLA_FLAGS` keep their values.

    **Arguments:**

    - `optimise`: False also skips the last optimisations, for programs that run only briefly.
    """
    known = tuple(int(part) for part in version("jaxlib").split(".")[:2])
    first, last = _TWO_EMITTERS
    options = ["--xla_cpu_use_fusion_emitters=false"] if first <= known < last else []
    if not optimise:
        options.append("--xla_backend_optimization_level=0")
    flags = os.environ.get("XLA_FLAGS", "")
    # XLA takes the last of two values, so those of the user come last.
    new = [option for option in options if option not in flags.split()]
    os.environ["XLA_FLAGS"] = " ".join([*new, flags]).strip()
