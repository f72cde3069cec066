"""Start-up of a program, before its first array: the command, a worker, a cluster node."""

import os

from ._compile import compile_quickly, enable_compile_cache


def start(brief: bool = False, processor_only: bool = False) -> None:
    """Prepares the process to compute: float64, the compile cache, figures without a display.

    **Arguments:**

    - `brief`: whether it runs many short programs, so that compiling takes most of the time.
    - `processor_only`: do not use GPUs.
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
    enable_compile_cache()
