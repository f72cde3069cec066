"""Results as text and tables for a terminal."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ._streams import say

# Nothing that loads JAX is imported before it is needed: lists and tables need none of it.
if TYPE_CHECKING:
    from ..experiment import Summary
    from ..papers import Claim, Outcome
    from ..sweeps import Share

# Characters where no terminal has a width: enough for the names of patterns and some settings.
_EMERGENCE_WIDTH = 140


def print_summary(summary: "Summary", closing: str, engine: object = None) -> None:
    """Prints the summary of a run, what computed its steps, and a closing line on where it is."""
    from ..trajectory import Result

    run, console = summary.run, Console(highlight=False)
    unit = "τ" if run.clock == "time" else "steps"
    grid = Table.grid(padding=(0, 2))
    steps = run.statistics.get("steps")
    grid.add_row("result", f"{run.result.name}: {run.result.value}")
    if run.result is not Result.stationary:  # such a run has no time
        end = f"{run.times[-1]:.6g} {unit}"
        grid.add_row("ended at", end + (f", {steps} steps" if steps else ""))
    grid.add_row("loss", summary.loss)
    grid.add_row("smallest reachable", _format(summary.floor, "not known"))
    grid.add_row("theory", summary.theory or "none that applies")
    if summary.division is not None:
        grid.add_row("phases", summary.division.phases)
        grid.add_row("shares of heads", summary.division.heads)
    if engine is not None:
        grid.add_row("steps by", str(engine))
    grid.add_row("seconds", f"{run.statistics.get('seconds', 0.0):.2f}")
    console.print(grid)
    if summary.plateaus:
        table = plain_table("plateau", "from", "to", "level", "predicted")
        for i, rest in enumerate(summary.plateaus):
            cells = (_format(x) for x in (rest.start, rest.end, rest.level, rest.predicted))
            table.add_row(str(i), *cells)
        console.print(table)
    if summary.drops:
        table = plain_table("drop", "predicted", "measured", "deviation")
        for i, drop in enumerate(summary.drops):
            error = drop.note or ("–" if drop.error is None else f"{100 * drop.error:.3g} %")
            table.add_row(str(i), _format(drop.predicted), _format(drop.measured), error)
        console.print(table)
    say(closing)


def print_claims(claims: Sequence["Claim"]) -> None:
    """Prints claims: id, tier, source and statement."""
    console = Console(highlight=False)
    for claim in claims:
        words = f"({claim.tier}; {claim.source})"
        if claim.fault:
            words += f" {claim.fault}: corrected in {claim.corrected_by}"
        console.print(Text(claim.id, style="bold"), Text(words))
        console.print(Padding(Text(claim.statement), (0, 0, 0, 4)))


def verdict_line(outcome: "Outcome", width: int, time: str = "") -> str:
    """One line on a claim: its verdict, its id in `width` characters, its error, and the reason."""
    from ..report import SIGNS, error_text

    error = "" if outcome.worst is None else error_text(outcome.worst)
    mark = f"{SIGNS[outcome.verdict]} {outcome.verdict:<12}"
    return f"{mark} {outcome.claim.id:<{width}}  {error:<19} {time}{outcome.reason}".rstrip()


# Where later lines of a verdict begin on a narrow terminal: below the id of the claim.
LATER = 15


def plain_table(*columns: str) -> Table:
    """A table with a line under its head; numbers are aligned to the right."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    return table


def print_emergence(shares: Sequence["Share"]) -> None:
    """Prints how often runs of a sweep ended in each pattern, with 95 % intervals."""
    if not shares:
        return
    table = plain_table("ended in", *shares[0].setting, "runs", "share", "95 % interval")
    for each in shares:
        interval = f"{100 * each.low:.1f} – {100 * each.high:.1f} %"
        cells: list[Any] = [*each.setting.values(), f"{each.runs} of {each.of}"]
        cells += [f"{100 * each.runs / each.of:.1f} %", interval]
        value = each.value if each.column == "roles" else f"{each.column}: {each.value}"
        table.add_row(value, *map(str, cells))
    print_wide(table, _EMERGENCE_WIDTH)


def print_wide(table: Table, width: int) -> None:
    """Prints a table, `width` characters wide where no terminal limits it, so that names stay
    whole."""
    _console(width).print(table)


def print_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, optional: Sequence[str]
) -> None:
    """Prints rows as `print_wide` does. On a narrow terminal it leaves out columns of `optional`,
    the first ones first, and says so."""
    console, left_out = _console(width), list[str]()
    wide = console.options.update_width(sys.maxsize)
    while True:
        kept = [i for i, name in enumerate(columns) if name not in left_out]
        table = plain_table(*(columns[i] for i in kept))
        for row in rows:
            table.add_row(*(row[i] for i in kept))
        fits = Measurement.get(console, wide, table).maximum <= console.width
        if fits or len(left_out) == len(optional):
            break
        left_out.append(optional[len(left_out)])
    console.print(table)
    if left_out:
        console.print(f"Left out at this width: {', '.join(left_out)}.", soft_wrap=True)


def _console(width: int) -> Console:
    known = None if sys.stdout.isatty() else width
    return Console(highlight=False, width=known, markup=False)


def _format(value: float | None, missing: str = "–") -> str:
    return missing if value is None else f"{value:.6g}"
