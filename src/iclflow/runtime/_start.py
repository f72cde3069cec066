"""Start-up of a process that computes: precision, threads, compile cache, versions.

Compiling is most of the time of a short run: a gradient flow that starts in 2.3 s without the
cache (4 s with the implicit solver) starts in 0.8 s (1.6 s) with it. The solvers are stepped
directly, without the run-time error checks that keep a whole diffrax solve out of the cache, so
`EQX_ON_ERROR` can stay as it is.
"""

import os
import subprocess
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

# Where the linear algebra libraries of NumPy read how many threads to use.
_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
# Versions of jaxlib whose CPU backend emits loops in one of two ways. The newer way takes 1.5 times
# as long to compile and runs no faster here. Later versions have only that one, and end the
# process at an option that they do not know.
_TWO_EMITTERS = ((0, 10), (0, 11))
# Packages that decide the bits of a run. (With Numba, batches in float32 are drawn differently.)
NUMERICAL = ("iclflow", "jax", "jaxlib", "equinox", "diffrax", "optax", "numba")
"""The packages whose versions decide the bits of a run.

**Example:**

```pycon
>>> "jax" in icl.runtime.NUMERICAL
True
```
"""


def start(brief: bool = False, processor_only: bool = False) -> None:
    """Prepares the process to compute: float64, the compile cache, figures without a display.

    **Arguments:**

    - `brief`: whether it runs many short programs, so that compiling takes most of the time.
    - `processor_only`: do not use GPUs.

    **Example:**

    ```pycon
    >>> icl.runtime.start()
    >>> icl.runtime.precision.float64_enabled()
    True
    ```
    """
    # Figures go into files: no display is needed.
    os.environ.setdefault("MPLBACKEND", "Agg")
    if brief:
        compile_quickly()
    import jax

    from .precision import enable_float64

    if processor_only:
        jax.config.update("jax_platforms", "cpu")
    enable_float64()


def usable_cores() -> int:
    """The cores that this process may use, which can be fewer than there are.

    **Example:**

    ```pycon
    >>> icl.runtime.usable_cores() >= 1
    True
    ```
    """
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def use_one_thread() -> None:
    """Limits NumPy's linear algebra to one thread, in this process if NumPy is not loaded yet, and
    in every process that it starts.

    With more threads it rounds differently, and rows of a sweep must not depend on how many cores a
    machine has. Where several processes share the cores, waiting threads slow down the others.

    **Example:**

    ```pycon
    >>> import os
    >>> icl.runtime.use_one_thread()
    >>> os.environ["OPENBLAS_NUM_THREADS"]
    '1'
    ```
    """
    os.environ.update(dict.fromkeys(_THREADS, "1"))


def cache_folder() -> Path:
    """Where compiled programs are cached: in the user's cache folder of this system.

    **Example:**

    ```pycon
    >>> icl.runtime.cache_folder().name
    'compiled'
    ```
    """
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "iclflow" / "compiled"


def enable_compile_cache() -> Path | None:
    """Enables the compile cache. Programs call this; importing the library never does.

    `JAX_COMPILATION_CACHE_DIR` chooses another folder, `JAX_ENABLE_COMPILATION_CACHE=false` none; a
    folder that the program has given to JAX stays. Where no folder can be made, programs compile
    every time, and None is returned.

    **Example:**

    ```pycon
    >>> folder = icl.runtime.enable_compile_cache()
    >>> folder is None or folder.is_dir()
    True
    ```
    """
    import jax

    try:
        # JAX reads the variable of the environment into its setting.
        chosen: str | None = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
        folder = Path(chosen or cache_folder())
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

    **Example:**

    ```pycon
    >>> import os
    >>> icl.runtime.compile_quickly()
    >>> "xla" in os.environ["XLA_FLAGS"]
    True
    ```
    """
    options = [f"--{name}={str(value).lower()}" for name, value in _quick_options(optimise).items()]
    flags = os.environ.get("XLA_FLAGS", "")
    # XLA takes the last of two values, so those of the user come last.
    new = [option for option in options if option not in flags.split()]
    os.environ["XLA_FLAGS"] = " ".join([*new, flags]).strip()


def quick_options(optimise: bool = True) -> dict[str, bool | int]:
    """The `compiler_options` of `jax.jit` by which one program compiles faster on a CPU, whatever
    the options of the process. A GPU does not read them. Those in `XLA_FLAGS` keep their values.

    **Arguments:**

    - `optimise`: as in `compile_quickly`; False only for programs that never run on a GPU.

    **Example:**

    ```pycon
    >>> options = icl.runtime.quick_options()
    >>> all(name.startswith("xla_") for name in options)
    True
    ```
    """
    given = os.environ.get("XLA_FLAGS", "")
    return {key: value for key, value in _quick_options(optimise).items() if key not in given}


def _quick_options(optimise: bool) -> dict[str, bool | int]:
    known = tuple(int(part) for part in version("jaxlib").split(".")[:2])
    first, last = _TWO_EMITTERS
    options: dict[str, bool | int] = {}
    if first <= known < last:
        options["xla_cpu_use_fusion_emitters"] = False
    if not optimise:
        options["xla_backend_optimization_level"] = 0
    return options


def installed_versions(*packages: str) -> dict[str, str]:
    """The version of each package; "unknown" where it is not installed as one.

    **Example:**

    ```pycon
    >>> sorted(icl.runtime.installed_versions("jax", "no-such-package").items())[1]
    ('no-such-package', 'unknown')
    ```
    """
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "unknown"
    return found


def source_commit() -> str:
    """The commit of the checkout that this package is loaded from, with "-dirty" if tracked files
    differ from it; empty where there is no such checkout.

    **Example:**

    ```pycon
    >>> isinstance(icl.runtime.source_commit(), str)
    True
    ```
    """
    package = Path(__file__).resolve().parent.parent
    root = package.parent.parent
    # An installed package may lie inside somebody else's checkout.
    if package != root / "src" / "iclflow" or not (root / ".git").exists():
        return ""
    command = ("git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty")
    try:
        found = subprocess.run([*command, "--exclude", "*"], capture_output=True, text=True)
    except OSError:  # no git
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
