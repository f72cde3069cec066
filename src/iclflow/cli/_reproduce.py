"""`iclflow reproduce NAME`: one figure, its data and its settings."""

import difflib
import json
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..files import OwnFiles
from ._activity import Activity, alone
from ._errors import OTHER_FOLDER, Parser, add_json
from ._interrupts import Interrupts, ignore_signals, report_kept
from ._start import start
from ._sweep_progress import completed, use_one_thread

# Figures whose names begin so are drawn from sweeps.
_SWEEPS = "sweeps/"


def main(arguments: Sequence[str]) -> int:
    """Draws one figure into a folder, or lists all."""
    parser = Parser(
        "reproduce",
        "Draws one figure: PDF, PNG, its data, its settings. Those called sweeps/… compute a sweep "
        "first, which stays beside them: one that was stopped goes on where it stood, and one that "
        "is there is drawn at once.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as linear/staircase")
    parser.add_argument("--list", action="store_true", help="list the figures")
    parser.add_argument("--out", metavar="DIR", default="figures", help="where to write")
    parser.add_argument("--tier", choices=("smoke", "default", "paper"), default="default")
    add_json(parser)
    options = parser.parse_args(arguments)
    if not options.list and options.name is None:
        raise InputError("`NAME` is missing: `iclflow reproduce --list` lists the figures.")
    if options.name is not None and options.name.startswith(_SWEEPS):
        use_one_thread()
    start(briefly=True)
    from ..diagrams import DIAGRAMS
    from ..figures import FIGURES

    everything = {**FIGURES, **DIAGRAMS}
    if options.list:
        return _list(everything, options.json)
    if options.name not in everything:
        close = difflib.get_close_matches(str(options.name), everything, n=1)
        remedy = f"did you mean {close[0]}?" if close else "`--list` lists the figures."
        raise InputError(f"`NAME` = {options.name!r} is not a figure: {remedy}")
    folder = Path(options.out)
    if options.name in DIAGRAMS:
        return _sweep(DIAGRAMS[options.name], folder, options.tier, options.json)
    return _draw(FIGURES[options.name], folder, options.tier, options.json)


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
    _check_free(folder, figure)
    stop = Interrupts("nothing was kept")
    with stop, result_folder(folder), Activity(f"drawing {figure.name}"), alone():
        drawing = figure.draw(Lab(tier))
        files = [str(path) for path in save_drawing(drawing, folder, _stem(figure))]
    ignore_signals()
    _say(figure, figure.caption, files, time.perf_counter() - begin, as_json)
    return 0


def _sweep(diagram, folder: Path, tier: str, as_json: bool) -> int:
    """Computes what is missing of a sweep, and draws it."""
    from ..diagrams import Swept
    from ..engines import LocalEngine
    from ..figures import save_drawing
    from ..store import result_folder
    from ..sweep import SweepFolder, batches_of

    begin = time.perf_counter()
    _check_free(folder, diagram)
    sweep = diagram.sweep(tier)
    activity, path = Activity(diagram.name), folder / sweep.folder_name

    def waiting() -> None:
        activity.update(f"{sweep.name}: waiting for another process that computes it")

    with result_folder(folder), activity:
        with report_kept(path), Interrupts(), SweepFolder.locked(path, sweep, waiting) as locked:
            completed(sweep, batches_of(sweep), locked, LocalEngine(), activity)
        activity.update(f"drawing {diagram.name}")
        with Interrupts(f"the sweep is in {path}, and the same command draws it"), alone():
            drawing = diagram.draw(Swept(sweep, path), tier)
            files = [str(file) for file in save_drawing(drawing, folder, _stem(diagram))]
    ignore_signals()
    seconds = time.perf_counter() - begin
    _say(diagram, drawing.caption, [*files, str(path)], seconds, as_json)
    return 0


def _check_free(folder: Path, figure) -> None:
    """Refuses a folder with files of the figure's names that are not ours."""
    from ..figures import SUFFIXES

    names = [f"{_stem(figure)}.{suffix}" for suffix in SUFFIXES]
    OwnFiles(folder, remedy=OTHER_FOLDER).check(names)


def _stem(figure) -> str:
    return figure.name.replace("/", "-")


def _say(figure, caption: str, files: list[str], seconds: float, as_json: bool) -> None:
    if as_json:
        result = {"name": figure.name, "title": figure.title, "caption": caption}
        print(json.dumps(result | {"files": files, "seconds": round(seconds, 3)}, indent=2))
        return
    print(f"{figure.title} ({seconds:.1f} s)")
    wrap = textwrap.TextWrapper(80, "  ", "  ", break_on_hyphens=False)
    print(wrap.fill(caption))
    for file in files:
        print(f"  {file}")
