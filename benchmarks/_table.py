"""Rows as a table, for people."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ._row import Row

_WIDTH = 130


def print_table(rows: Sequence[Row], machine: Mapping[str, Any], console: Any = None) -> None:
    """Prints the rows under the machine that measured them."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if console is None:
        console = Console(highlight=False)
        # A file has no width of its own: give it one at which nothing wraps.
        console = console if console.is_terminal else Console(highlight=False, width=_WIDTH)
    console.print(Text(describe(machine)))
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column("")
    for column in ("median", "smallest – largest", "bar", "load"):
        table.add_column(column, justify="right", no_wrap=True)
    for group, members in groupby(rows, key=lambda row: row.group):
        table.add_row(Text(group, style="bold"))
        for row in members:
            name = Text(f"  {row.name}")
            if row.note:
                name.append(f"\n    {row.note}", style="dim")
            style = {True: "green", False: "red", None: ""}[row.met]
            load = f"{row.load:.1f}"
            cells = (Text(value_words(row), style), spread_words(row), bar_words(row), load)
            table.add_row(name, *cells)
        table.add_section()
    console.print(table)
    judged = [row for row in rows if row.met is not None]
    if judged:
        met = sum(bool(row.met) for row in judged)
        console.print(Text(f"{met} of {len(judged)} bars are met."))


def describe(machine: Mapping[str, Any]) -> str:
    """The machine in one line."""
    return (
        f"{machine['processor']}, {machine['cores']} cores; computing on {machine['device']}; "
        f"Python {machine['python']}, JAX {machine['jax']}, Numba {machine['numba']}, "
        f"PyTorch {machine['torch']}"
    )


def value_words(row: Row) -> str:
    return "–" if row.value is None else f"{number(row.value)} {row.unit}".rstrip()


def spread_words(row: Row) -> str:
    return "" if row.spread is None or row.repeats < 2 else " – ".join(map(number, row.spread))


def bar_words(row: Row) -> str:
    if row.bar is None:
        return ""
    sign = "≥" if row.bar.at_least else "≤"
    verdict = {True: "met", False: "MISSED", None: "–"}[row.met]
    return f"{sign} {number(row.bar.limit)} {verdict}"


def number(value: float) -> str:
    """Three digits; thousands spelled out, and powers of ten only for what is tiny."""
    if value != 0 and abs(value) < 1e-2:
        return f"{value:.1e}"
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= 1000 else f"{value:.3g}"
