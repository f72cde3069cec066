"""`iclflow reproduce NAME`: one figure, its data and its settings."""

import difflib
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

from ..config import InputError
from ..files import OTHER_FOLDER, OwnFiles
from ..runtime import Activity, hide_progress, start, use_one_thread
from ._arguments import Parser
from ._interrupts import Interrupts, ignore_signals, report_kept
from ._streams import print_json, say

# Prefix of figures that are drawn from sweeps.
_SWEEPS = "sweeps/"


def main(arguments: Sequence[str]) -> int:
    """Draws one figure into a folder, or lists all."""
    parser = Parser(
        "reproduce",
        "Draws one figure: PDF, PNG, its data, its settings. Figures called sweeps/… compute a "
        "sweep first and keep it beside the figure: a sweep that was stopped resumes, and a "
        "complete one is drawn at once.",
    )
    parser.flag("name", "such as linear/staircase", "NAME", nargs="?")
    parser.switch("--list", "list the figures")
    parser.flag("--out", "where to write (default: figures)", "DIR", default="figures")
    parser.add_tier()
    parser.add_json()
    options = parser.parse_args(arguments)
    if options.list:
        return _list(options.json)
    if options.name is None:
        raise InputError("`NAME` is missing: `iclflow reproduce --list` lists the figures.")
    # Before NumPy is loaded, which reads this only once.
    if options.name.startswith(_SWEEPS):
        use_one_thread()
    start(brief=True)
    from ..papers import DIAGRAMS, FIGURES

    everything = {**FIGURES, **DIAGRAMS}
    if options.name not in everything:
        close = difflib.get_close_matches(str(options.name), everything, n=1)
        remedy = f"did you mean {close[0]}?" if close else "`--list` lists the figures."
        raise InputError(f"`NAME` = {options.name!r} is not a figure: {remedy}")
    return _draw(everything[options.name], Path(options.out), options.tier, options.json)


def _list(as_json: bool) -> int:
    from ..papers import listed_figures

    figures = listed_figures()
    if as_json:
        keys = ("name", "title", "caption", "paper")
        print_json([{key: getattr(f, key) for key in keys} for f in figures])
    else:
        width = max((len(figure.name) for figure in figures), default=0)
        for figure in figures:
            say(f"{figure.name:<{width}}  {figure.title}", width + 2)
    return 0


def _draw(figure, folder: Path, tier: str, as_json: bool) -> int:
    """Draws a figure; one of a sweep computes the missing runs first."""
    from ..drawing import save_drawing
    from ..papers import Diagram, Lab
    from ..store import result_folder

    begin = time.perf_counter()
    _check_free(folder, figure)
    kept, others = "nothing was kept", []
    with result_folder(folder), Activity(figure.name) as activity:
        if isinstance(figure, Diagram):
            swept = _complete_sweep(figure, folder, tier, activity)
            draw = lambda: figure.draw(swept, tier)
            kept = f"the sweep is in {swept.folder}; the same command draws it"
            others = [str(swept.folder)]
        else:
            draw = lambda: figure.draw(Lab(tier))
        activity.update(f"drawing {figure.name}")
        with Interrupts(kept), hide_progress():
            drawing = draw()
            files = [str(path) for path in save_drawing(drawing, folder, _stem(figure))]
    ignore_signals()
    _print_result(figure, drawing.caption, files + others, time.perf_counter() - begin, as_json)
    return 0


def _complete_sweep(diagram, folder: Path, tier: str, activity: Activity):
    from ..sweeps import LocalEngine, SweepResults, complete, parse_sweep

    sweep = parse_sweep(diagram.data(tier))
    path = folder / sweep.folder_name
    with report_kept(path), Interrupts():
        complete(sweep, path, LocalEngine(), activity.update)
    return SweepResults(sweep, path)


def _check_free(folder: Path, figure) -> None:
    """Refuses a folder in which other programs' files have the names of the figure's files."""
    from ..drawing import SUFFIXES

    names = [f"{_stem(figure)}.{suffix}" for suffix in SUFFIXES]
    OwnFiles(folder, remedy=OTHER_FOLDER).check(names)


def _stem(figure) -> str:
    return figure.name.replace("/", "-")


def _print_result(figure, caption: str, files: list[str], seconds: float, as_json: bool) -> None:
    if as_json:
        result = {"name": figure.name, "title": figure.title, "caption": caption}
        print_json(result | {"files": files, "seconds": round(seconds, 3)})
        return
    print(f"{figure.title} ({seconds:.1f} s)")
    wrap = textwrap.TextWrapper(80, "  ", "  ", break_on_hyphens=False)
    print(wrap.fill(caption))
    for file in files:
        print(f"  {file}")
