"""`iclflow plot SWEEP --x … --y …`: curves and phase diagrams of a sweep."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..files import read_regular, write_atomic
from ._errors import Parser, add_json
from ._query import add_sweep, table_of
from ._streams import note

_LOG = ("x", "y", "hue")
_FORMATS = (".png", ".pdf", ".svg")


def main(arguments: Sequence[str]) -> int:
    """Draws one figure of a sweep."""
    parser = Parser(
        "plot",
        "Draws the table of a sweep: the median over all runs with the same x, with quartiles; or, "
        "where y is a swept setting too, a phase diagram whose colour is the median of hue. "
        "Values that are true or false are drawn as the share of runs.",
        epilog="x, y, hue and facet are columns, or SQL expressions of columns, such as "
        "'task.eigenvalues[2] / task.eigenvalues[1]', or \"result = 'converged'\".",
    )
    add_sweep(parser)
    parser.add_argument("--x", required=True, metavar="COLUMN", help="horizontal axis")
    parser.add_argument("--y", required=True, metavar="COLUMN", help="vertical axis")
    parser.add_argument("--hue", metavar="COLUMN", help="one curve per value; or the colour")
    parser.add_argument("--facet", metavar="COLUMN", help="one panel per value")
    parser.add_argument("--where", metavar="CONDITION", help="only these runs, such as seed < 4")
    parser.add_argument("--kind", choices=("auto", "line", "heat"), default="auto",
                        help="curves or a phase diagram")  # fmt: skip
    parser.add_argument(
        "--statistic", choices=("auto", "median", "mean", "share"), default="auto",
        help="over runs with the same x: the median with quartiles, the mean with its standard "
        "error, or the share where it is true with its 95 %% interval",
    )  # fmt: skip
    parser.add_argument("--log", default="", metavar="x,y,hue", help="which axes are logarithmic")
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="a .png, .pdf or .svg, overwritten if it exists (default: named after the plot)",
    )
    add_json(parser)
    options = parser.parse_args(arguments)
    logarithmic = tuple(part for part in options.log.split(",") if part)
    for part in logarithmic:
        if part not in _LOG:
            raise InputError(f"`--log` = {options.log}: must be some of x, y and hue, with commas.")
    out = Path(options.out) if options.out else None
    if out is not None and out.suffix not in _FORMATS:
        raise InputError(f"`--out` = {out}: must end in .png, .pdf or .svg.")
    from ..sweeps import Plot

    columns = (options.x, options.y, options.hue, options.facet, options.where)
    plot = Plot(*columns, options.kind, logarithmic, options.statistic)
    if out is None:
        out = Path(f"{Path(options.sweep).name}-{plot.name}.png")
    with table_of(options) as table:
        content, kind = plot.draw(table, out.suffix.removeprefix("."), note), plot.kind_of(table)
    # A default name may be that of a file of the user.
    if not options.out and os.path.lexists(out) and read_regular(out) != content:
        raise InputError(f"`{out}` is there already: give --out {out} to overwrite it.")
    write_atomic(out, content)
    if options.json:
        print(json.dumps({"file": str(out), "kind": kind}))
    else:
        print(f"drawn in {out}")
    return 0
