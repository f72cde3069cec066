"""`iclflow reproduce NAME`: one figure, its data and its settings."""

import difflib
import json
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ._activity import Activity, alone
from ._errors import Parser, add_json
from ._interrupts import Interrupts
from ._start import start


def main(arguments: Sequence[str]) -> int:
    """Draws one figure into a folder, or lists all."""
    parser = Parser("reproduce", "Draws one figure of a paper: PDF, PNG, its data, its settings.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as linear/staircase")
    parser.add_argument("--list", action="store_true", help="list the figures")
    parser.add_argument("--out", metavar="DIR", default="figures", help="where to write")
    parser.add_argument("--tier", choices=("smoke", "default", "paper"), default="default")
    add_json(parser)
    options = parser.parse_args(arguments)
    if not options.list and options.name is None:
        raise InputError("`NAME` is missing: `iclflow reproduce --list` lists the figures.")
    start(briefly=True)
    from ..figures import FIGURES

    if options.list:
        return _list(FIGURES, options.json)
    if options.name not in FIGURES:
        close = difflib.get_close_matches(options.name, FIGURES, n=1)
        remedy = f"did you mean {close[0]}?" if close else "`--list` lists the figures."
        raise InputError(f"`NAME` = {options.name!r} is not a figure: {remedy}")
    return _draw(FIGURES[options.name], Path(options.out), options.tier, options.json)


def _list(figures, as_json: bool) -> int:
    if as_json:
        keys = ("name", "title", "caption", "paper")
        print(json.dumps([{k: getattr(f, k) for k in keys} for f in figures.values()], indent=2))
    else:
        width = max((len(name) for name in figures), default=0)
        for name, figure in figures.items():
            print(f"{name:<{width}}  {figure.title}")
    return 0


def _draw(figure, folder: Path, tier: str, as_json: bool) -> int:
    from ..claims import Lab
    from ..figures import save_drawing
    from ..store import result_folder

    begin = time.perf_counter()
    stem = figure.name.replace("/", "-")
    stop = Interrupts("nothing was kept")
    with stop, result_folder(folder), Activity(f"drawing {figure.name}"), alone():
        drawing = figure.draw(Lab(tier))
        files = [str(path) for path in save_drawing(drawing, folder, stem)]
    seconds = time.perf_counter() - begin
    if as_json:
        result = {key: getattr(figure, key) for key in ("name", "title", "caption")}
        result |= {"files": files, "seconds": round(seconds, 3)}
        print(json.dumps(result, indent=2))
    else:
        print(f"{figure.title} ({seconds:.1f} s)")
        wrap = textwrap.TextWrapper(80, "  ", "  ", break_on_hyphens=False)
        print(wrap.fill(figure.caption))
        for file in files:
            print(f"  {file}")
    return 0
