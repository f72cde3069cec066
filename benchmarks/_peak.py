"""What a machine can do at most: from its units and clock, and from a stream through its memory."""

import subprocess
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from iclflow.runtime import usable_cores

from ._operations import Operations
from ._row import measure

# Of a multiprocessor of an NVIDIA card since Ampere, a cycle: operations of all kinds together,
# whole numbers, and functions, for which there are few units.
_ISSUED, _INTEGERS, _FUNCTIONS = 128, 64, 16
# Vector instructions that a core of a processor starts in a cycle, and what a function is made of.
_PORTS, _POLYNOMIAL = 2, 12


class Peak(NamedTuple):
    """Operations a second, kind by kind; the slowest kind decides.

    **Fields:**

    - `together`, `integers`, `functions`: of all kinds, and of the two that have own units.
    - `polynomial`: operations that a function is made of, where it has no unit.
    - `words`: how these came about.
    """

    together: float
    integers: float
    functions: float
    polynomial: int
    words: str

    @staticmethod
    def here() -> "Peak | None":
        """Of the device that is used by default; None where it is not known."""
        if jax.default_backend() == "cpu":
            return _processor()
        return _card() if jax.default_backend() == "gpu" else None

    def seconds(self, operations: Operations) -> float:
        """The least that these can take, on all units at once."""
        functions = operations.functions
        together = operations.floats + operations.integers + self.polynomial * functions
        return max(
            together / self.together,
            operations.integers / self.integers,
            functions / self.functions,
        )


def streaming_rate() -> float:
    """Bytes that can be read and written in a second, measured on an array beyond all caches."""
    count = 2**24 if jax.default_backend() == "cpu" else 2**28
    array, rounds = jnp.zeros(count, jnp.float32), 8
    passed = jax.jit(lambda x: jax.lax.fori_loop(0, rounds, lambda _, x: x + 1, x))
    run = lambda: jax.block_until_ready(passed(array))
    run()
    return 2 * 4 * count * rounds / measure(run, 5).median


def _card() -> Peak | None:
    units = getattr(jax.devices()[0], "core_count", None)
    ask = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
        clock = 1e6 * float(told.split()[0])
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return None
    if not units:
        return None
    rate = units * clock
    words = f"{units} × {_ISSUED} lanes (whole numbers {_INTEGERS}, functions {_FUNCTIONS})"
    return Peak(
        _ISSUED * rate,
        _INTEGERS * rate,
        _FUNCTIONS * rate,
        1,
        f"{words} at {1e-9 * clock:.3g} GHz",
    )


def _processor() -> Peak | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    clocks = [float(line.split(":")[1]) for line in lines if line.startswith("cpu MHz")]
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    if not clocks or "avx2" not in flags:
        return None
    lanes, cores, clock = (16 if "avx512f" in flags else 8), usable_cores(), 1e6 * max(clocks)
    rate = cores * _PORTS * lanes * clock
    words = f"{cores} cores × {_PORTS} × {lanes} lanes at {1e-9 * clock:.3g} GHz; a function is "
    return Peak(rate, rate, float("inf"), _POLYNOMIAL, f"{words}{_POLYNOMIAL} operations")
