"""Which machine measured: a number without it means nothing."""

import importlib.metadata
import platform
import resource
import sys
from pathlib import Path

from iclflow.runtime import usable_cores

from ._row import load_average


def machine() -> dict[str, str | int | float]:
    """Processor, cores, versions and load of this machine."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "jax": _version("jax"),
        "torch": _version("torch"),
        "numba": _version("numba"),
        "device": _device(),
        "load": load_average(),
    }


def peak_memory() -> int:
    """The most memory that this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def missing_torch() -> str | None:
    """Why the peers cannot be timed, in one sentence; None if they can."""
    try:
        import torch  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return "This row needs PyTorch: install `iclflow[bench]`."
    return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _device() -> str:
    import jax

    return jax.devices()[0].device_kind


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
