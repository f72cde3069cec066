"""Both benchmarks of training in one table: `make bench`."""

from collections.abc import Callable
from typing import Any

from . import linear, softmax
from ._row import Row
from ._suite import report


def run(progress: Callable[[str], None] | None = None, quick: bool = False) -> list[Row]:
    """Linear attention, then softmax attention."""
    return linear.run(progress, quick) + softmax.run(progress, quick)


def main(quiet: bool = False, quick: bool = False) -> dict[str, Any]:
    """Runs the benchmark, prints it as a table unless `quiet`, and returns it ready for JSON."""
    return report("training", run, quiet, quick)
