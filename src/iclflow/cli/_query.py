"""`iclflow query SWEEP "SELECT …"`: the table of a sweep, asked in SQL."""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..config import InputError
from ._errors import Parser, add_json


def main(arguments: Sequence[str]) -> int:
    """Answers one SELECT."""
    parser = Parser(
        "query",
        "Asks the table of a sweep, called `results`, in SQL as DuckDB knows it. Settings are "
        "columns by their dotted names, such as model.scale. Nothing can be changed.",
    )
    add_sweep(parser)
    parser.add_argument(
        "query", metavar="SQL", nargs="?", default="SELECT * FROM results",
        help='such as "SELECT model.scale, median(final_loss) FROM results GROUP BY ALL"',
    )  # fmt: skip
    parser.add_argument("--csv", action="store_true", help="print the answer as CSV")
    add_json(parser)
    options = parser.parse_args(arguments)
    if options.json and options.csv:
        raise InputError("`--json` and `--csv`: both are given, must be at most one.")
    names, rows = table_of(options).ask(options.query)
    if options.json:
        from ..sweep import plain

        answer = [dict(zip(names, map(plain, row))) for row in rows]
        print(json.dumps(answer, indent=2, default=str))
    elif options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
    else:
        _print(names, rows)
    return 0


def add_sweep(parser: Parser) -> None:
    """The argument that says which sweep."""
    parser.add_argument("sweep", metavar="SWEEP", help="its folder, or the name of one in --root")
    parser.add_argument("--root", default="sweeps", metavar="DIR", help="where (default: sweeps)")


def table_of(options):
    """The table of the sweep that the options name; a note if it is not complete."""
    from ..sweep import Table, sweep_tables

    folder = Path(options.sweep)
    if not folder.is_dir():
        root = Path(options.root)
        found = [
            path.parent
            for path in sorted(root.glob("*/sweep.toml"))
            if options.sweep in (path.parent.name, path.parent.name.rpartition("-")[0])
        ]
        if len(found) != 1:
            fits = f"fits {len(found)} sweeps" if found else "is no sweep"
            raise InputError(f"`SWEEP` = {options.sweep!r} {fits} in `{root}`: give a folder.")
        folder = found[0]
    files, complete = sweep_tables(folder)
    if not complete:
        print(f"iclflow: {folder} is not complete: this is what is done.", file=sys.stderr)
    return Table(files)


def _print(names: list[str], rows: list[tuple]) -> None:
    from ._tables import plain_table, print_wide

    table = plain_table(*names)
    for row in rows:
        table.add_row(*(_shown(value) for value in row))
    print_wide(table, 80 + 40 * len(names))


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return f"[{', '.join(_shown(entry) for entry in value)}]"
    return str(value)
