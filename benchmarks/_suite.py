"""What every suite does around its measurements."""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from ._machine import machine
from ._row import Row
from ._table import print_table


def report(suite: str, run: Callable[..., list[Row]], quiet: bool, quick: bool) -> dict[str, Any]:
    """Runs a suite, prints it as a table unless `quiet`, and returns it ready for JSON."""
    import jax
    from rich.console import Console

    # What compilation costs can only be measured if programs are compiled.
    jax.config.update("jax_enable_compilation_cache", False)
    console = Console(stderr=True)
    with console.status("starting") if sys.stderr.isatty() else _Silent() as status:
        rows = run(lambda title: status.update(f"measuring: {title}"), quick)
    here = machine()
    if not quiet:
        print_table(rows, here)
    return {"suite": suite, "machine": here, "rows": [row.to_json() for row in rows]}


@dataclasses.dataclass(frozen=True)
class _Silent:
    """Stands in for a status line off a terminal."""

    def __enter__(self) -> "_Silent":
        return self

    def __exit__(self, *_) -> None:
        pass

    def update(self, title: str) -> None:
        pass
