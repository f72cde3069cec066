"""Benchmarks: what is promised about speed, measured on this machine in this run."""

import importlib
from typing import Any

from ._row import Bar as Bar
from ._row import Row as Row

SUITES = ("training", "linear", "softmax", "diversity", "sweeps", "scale", "engines")


def main(suite: str, *, quiet: bool = False, quick: bool = False) -> dict[str, Any]:
    """Runs one suite, prints it as a table unless `quiet`, and returns it ready for JSON.

    **Arguments:**

    - `suite`: one of `SUITES`.
    - `quick`: tiny sizes, for a look at what is measured; no bar is judged.
    """
    if suite not in SUITES:
        raise ValueError(f"`suite` = {suite!r}: must be one of {', '.join(SUITES)}.")
    return importlib.import_module(f".{suite}", __name__).main(quiet=quiet, quick=quick)
