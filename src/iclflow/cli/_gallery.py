"""The figures of a report: drawn, saved beside it, and kept for the page."""

import contextlib
import io
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..claims import Lab
from ..config import out_of_memory
from ..report import ReportFigure

# Pictures with very many points are smaller as pixels than as curves.
_LARGEST_SVG = 600_000
# Inches: that of two columns of print. Narrower figures are shown as much narrower.
_FULL_WIDTH = 7.0
# What `save_drawing` writes.
_SUFFIXES = ("pdf", "png", "npz", "toml")


def draw(name: str, lab: Lab, folder: Path) -> ReportFigure:
    """Draws a figure and saves it. One that cannot be drawn says so on the page, and stops nobody
    else."""
    from ..figures import FIGURES, save_drawing

    figure, begin = FIGURES[name], time.perf_counter()
    try:
        drawing = figure.draw(lab)
        save_drawing(drawing, folder, _stem(name))
        share = min(1.0, drawing.figure.get_figwidth() / _FULL_WIDTH)
        image, media_type = _image(drawing.figure)
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        problem = out_of_memory(error) or problem
        return not_drawn(name, problem, time.perf_counter() - begin)
    return ReportFigure(
        **_shown(figure),
        image=image,
        media_type=media_type,
        config=drawing.config,
        seconds=time.perf_counter() - begin,
        share=share,
    )


def not_drawn(name: str, problem: str, seconds: float = 0.0) -> ReportFigure:
    """A figure of which there is nothing but the reason."""
    from ..figures import FIGURES

    return ReportFigure(**_shown(FIGURES[name]), image=None, media_type="", config={},
                        seconds=seconds, problem=problem)  # fmt: skip


def keep(drawn: Sequence[ReportFigure], workshop: Path, folder: Path) -> None:
    """Moves figures to where they stay, and removes those of an earlier report that are not in
    this one, and nothing else."""
    folder.mkdir(exist_ok=True)
    for figure in drawn:
        if not figure.problem:
            for suffix in _SUFFIXES:
                name = f"{_stem(figure.name)}.{suffix}"
                os.replace(workshop / name, folder / name)
    _remove_others(drawn, folder)


def _remove_others(drawn: Sequence[ReportFigure], folder: Path) -> None:
    from ..figures import FIGURES

    kept = {figure.name for figure in drawn if not figure.problem}
    for name in FIGURES.keys() - kept:
        for suffix in _SUFFIXES:
            (folder / f"{_stem(name)}.{suffix}").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not there, or not empty
        folder.rmdir()


def _stem(name: str) -> str:
    return name.replace("/", "-")


def _shown(figure) -> dict[str, Any]:
    return {key: getattr(figure, key) for key in ("name", "title", "caption", "paper")}


def _image(figure) -> tuple[bytes, str]:
    """The picture as curves, or as pixels where that is smaller; then it is closed."""
    import matplotlib.pyplot as plt

    try:
        vector = _rendered(figure, "svg")
        if len(vector) <= _LARGEST_SVG:
            return vector, "image/svg+xml"
        return _rendered(figure, "png"), "image/png"
    finally:
        plt.close(figure)


def _rendered(figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=160)
    return buffer.getvalue()
