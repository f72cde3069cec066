"""`iclflow query FOLDER "SELECT …"`: the tables of a sweep or a watched training, in SQL."""

import contextlib
import csv
import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import InputError
from ..files import to_plain
from ._arguments import Parser, check_kind, kind_of
from ._streams import note, print_json, say

if TYPE_CHECKING:
    from ..sweeps import Table

# Rows of the overview, and columns that it leaves out.
_FIRST, _TECHNICAL = 5, ("hash", "not_measured")
_LEAST_NEEDED = ("last_time", "initial_loss")
# Characters per line where no terminal has a width, and per value where a table is too wide.
_WIDEST, _LONGEST = 240, 16
# The memory limit of DuckDB counts neither the rows that it returns nor long texts: the process may
# take this many times the limit.
_MEMORY_FACTOR = 2
# Address space that a thread and its memory arena reserve without using it.
_FOR_THREADS = 2**29


def main(arguments: Sequence[str]) -> int:
    """Prints the result of one SELECT."""
    parser = Parser(
        "query",
        "Queries the table of a sweep, called `results`, in the SQL of DuckDB. Settings are "
        "columns with dotted names, such as model.scale. A training that `icl.watch` recorded has "
        "one row per look in it, and the tables `distances`, `lengths` and `heads`. Nothing can be "
        "changed.",
    )
    add_sweep(parser)
    parser.flag(
        "query",
        'such as "SELECT model.scale, median(final_loss) FROM results GROUP BY ALL" (default: '
        "shows the columns and the first runs; all runs with --csv and --json)",
        "SQL",
        nargs="?",
    )
    parser.switch("--csv", "print the result as CSV")
    parser.add_json()
    options = parser.parse_args(arguments)
    if options.json and options.csv:
        raise InputError("`--json` and `--csv`: both are given, must be at most one.")
    with parser.name_flags(arguments), open_table(options, watched=True) as table:
        if options.query is None and not (options.json or options.csv):
            return _overview(table)
        names, rows = table.ask("SELECT * FROM results" if options.query is None else options.query)
    if options.json:
        _check_names(names)
        print_json([to_plain(dict(zip(names, row))) for row in rows])
    elif options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
    else:
        _print(names, rows)
    return 0


def _overview(table) -> int:
    """Shows which columns there are, and the first rows."""
    from ..report import count_of

    for name, columns in table.tables.items():
        _, [(count,)] = table.ask(f"SELECT count(*) FROM {name}")
        kinds = ", ".join(f"{column} ({kind.lower()})" for column, kind in columns.items())
        rows = count_of(count, "run") if "run" in columns else f"{name}, {count_of(count, 'row')}"
        say(f"{rows}, {count_of(len(columns), 'column')}: {kinds}\n", 2)
    # What matters least comes last, where a narrow terminal has no room for it.
    columns = table.tables["results"]
    shown = [name for name, kind in columns.items() if name not in _TECHNICAL and "[" not in kind]
    shown.sort(key=lambda name: name in _LEAST_NEEDED)
    names = ", ".join(f'"{name}"' for name in shown)
    _print(*table.ask(f"SELECT {names} FROM results ORDER BY ALL LIMIT {_FIRST}"))
    return 0


def _check_names(names: Sequence[str]) -> None:
    # DuckDB allows equal names; a JSON object would keep only the last.
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputError(f"`{name}` names two columns: JSON needs a name for each, by AS.")


def add_sweep(parser: Parser) -> None:
    """Adds the arguments that name a sweep and limit a query."""
    parser.flag("sweep", "folder of a sweep, or its name in --root", "SWEEP")
    parser.flag("--root", "where (default: sweeps)", "DIR", default="sweeps")
    words = "stop a query that takes longer (default: 60; 0: no limit)"
    parser.flag("--timeout", words, "SECONDS", type=float, default=60.0)
    words = "stop a query that needs more memory (default: 2; 0: no limit)"
    parser.flag("--memory", words, "GIB", type=float, default=2.0)


@contextlib.contextmanager
def open_table(options: Any, watched: bool = False) -> Iterator["Table"]:
    """Opens the table of the sweep that the options name, with their limits; if `watched`, or those
    of a watched training. A note says if the sweep is not complete."""
    for name in ("timeout", "memory"):
        if not 0 <= getattr(options, name) < math.inf:
            raise InputError(f"`--{name}` = {getattr(options, name)}: must be a number from 0 up.")
    memory = int(options.memory * 2**30) or None
    folder = Path(options.sweep)
    if watched and kind_of(folder) == "folder of a watched training":
        from ..watching import open_tables

        table = open_tables(folder, options.timeout or None, memory)
        with _limit_memory(memory):
            yield table
        return
    check_kind(options.sweep, "folder of a sweep")
    from ..store import sweep_tables
    from ..sweeps import Table

    if not folder.is_dir():
        root = Path(options.root)
        known = [path.parent for path in sorted(root.glob("*/sweep.toml"))]
        found = [
            path for path in known if options.sweep in (path.name, path.name.rpartition("-")[0])
        ]
        if len(found) != 1:
            fits = f"fits {len(found)} sweeps" if found else "is not a sweep"
            names = [path.name for path in found or known]
            allowed = f", or one of {', '.join(names)}" if names else ""
            allowed += "" if known else "; `iclflow sweep FILE` makes one"
            raise InputError(
                f"`SWEEP` = {options.sweep!r} {fits} in `{root}`: give a folder{allowed}."
            )
        folder = found[0]
    files, complete = sweep_tables(folder)
    if not complete:
        note(f"{folder} is not complete: only the runs that are done are shown.")
    table = Table(files, options.timeout or None, memory)
    with _limit_memory(memory):
        yield table


@contextlib.contextmanager
def _limit_memory(size: int | None) -> Iterator[None]:
    """Limits the address space of this process, so that a query of more than `size` bytes fails
    instead of filling the machine."""
    statistics = Path("/proc/self/statm")  # Linux only
    if size is None or not statistics.exists():
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_AS)
    # The first entry of statm is the address space in pages.
    limit = int(statistics.read_text().split()[0]) * resource.getpagesize()
    limit += _MEMORY_FACTOR * size + _FOR_THREADS
    fits = [most for most in (limit, *before) if most != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(fits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _print(names: list[str], rows: list[tuple]) -> None:
    from ._tables import plain_table, print_wide

    cells = [[_format(value) for value in row] for row in rows]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDEST
    # First long values are cut, then columns dropped from the right: settings come first.
    if _width(names, cells) > room:
        cells = [[_shorten(text) for text in row] for row in cells]
        kept = len(names)
        while kept > 1 and _width(names[:kept], cells) > room:
            kept -= 1
        dropped = ""
        if kept < len(names):
            dropped = f"the last {len(names) - kept} of {len(names)} columns are left out and "
        remedy = "name columns, or give --csv or --json"
        note(f"the table is wide: {dropped}long values are cut: {remedy}.")
        names = names[:kept]
    table = plain_table(*names)
    for row in cells:
        table.add_row(*row[: len(names)])
    print_wide(table, _width(names, cells) + 2)


def _width(names: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """The width of a table of these columns, with a space on each side and one between them."""
    return sum(
        max(len(name), *(len(row[i]) for row in cells), 0) + 3 for i, name in enumerate(names)
    )


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _format(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return f"[{', '.join(_format(entry) for entry in value)}]"
    return str(value)
