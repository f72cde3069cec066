"""`iclflow plot SWEEP --x … --y …`: curves and phase diagrams of a sweep."""

import os
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..files import read_regular, write_atomic
from ._arguments import Parser
from ._query import add_sweep, open_table
from ._streams import note, print_json

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
    parser.flag("--x", "horizontal axis", "COLUMN", required=True)
    parser.flag("--y", "vertical axis", "COLUMN", required=True)
    parser.flag("--hue", "one curve per value; in a phase diagram, the colour", "COLUMN")
    parser.flag("--facet", "one panel per value", "COLUMN")
    words = "only these runs, such as seed < 4 (result IS NOT NULL: also those that diverged)"
    parser.flag("--where", words, "CONDITION")
    kinds = ("auto", "line", "heat")
    parser.flag("--kind", "curves or a phase diagram", choices=kinds, default="auto")
    parser.flag(
        "--statistic",
        "over runs with the same x: the median with quartiles, the mean with its standard error, "
        "or the share where it is true with its 95 %% interval",
        choices=("auto", "median", "mean", "share"),
        default="auto",
    )
    parser.flag("--log", "which axes are logarithmic", "x,y,hue", default="")
    words = "a .png, .pdf or .svg, overwritten if it exists (default: named after the plot)"
    parser.flag("--out", words, "FILE")
    parser.add_json()
    options = parser.parse_args(arguments)
    logarithmic = tuple(part for part in options.log.split(",") if part)
    for part in logarithmic:
        if part not in _LOG:
            raise InputError(f"`--log` = {options.log}: must be some of x, y and hue, with commas.")
    # Checked before the table is read, which may take long.
    out = Path(options.out) if options.out else None
    if out is not None and out.suffix not in _FORMATS:
        raise InputError(f"`--out` = {out}: must end in .png, .pdf or .svg.")
    from ..sweeps import Plot

    columns = (options.x, options.y, options.hue, options.facet, options.where)
    plot = Plot(*columns, options.kind, logarithmic, options.statistic)
    if out is None:
        out = Path(f"{Path(options.sweep).name}-{plot.name}.png")
    with parser.name_flags(arguments), open_table(options) as table:
        content, kind = plot.draw(table, out.suffix.removeprefix("."), note), plot.kind_of(table)
    # A default name may be that of a file of the user.
    if not options.out and os.path.lexists(out) and read_regular(out) != content:
        raise InputError(f"`{out}` is there already: give --out {out} to overwrite it.")
    write_atomic(out, content)
    if options.json:
        print_json({"file": str(out), "kind": kind})
    else:
        print(f"drawn in {out}")
    return 0
