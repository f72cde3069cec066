"""What a program does once, before its first array: float64, the compile cache, a quiet plotter."""

import os


def start(briefly: bool = False) -> None:
    """Makes the process ready to compute.

    **Arguments:**

    - `briefly`: many programs that each run for a moment.
    """
    # Figures go into files: never look for a display.
    os.environ.setdefault("MPLBACKEND", "Agg")
    from ..compile_cache import enable_compile_cache
    from ..precision import enable_float64
    from ..quick_compile import compile_quickly

    if briefly:
        compile_quickly()
    enable_float64()
    enable_compile_cache()
