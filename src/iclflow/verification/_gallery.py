"""The figures of a report: drawn, saved beside it, and rendered for the page."""

import io
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..config import out_of_memory
from ..drawing import SUFFIXES, save_drawing
from ..papers import FIGURES, Figure, Lab
from ..report import ReportFigure

# Bytes. Figures with very many points are smaller as PNG than as SVG.
_LARGEST_SVG = 600_000
# Inches: two columns of print. Narrower figures are shown narrower by the same factor.
_FULL_WIDTH = 7.0
# The subfolder of a report for its figures.
_FOLDER = "figures"


def draw(name: str, lab: Lab, folder: Path) -> ReportFigure:
    """Draws a figure and saves it. If that fails, the page shows the error instead."""
    figure, begin = FIGURES[name], time.perf_counter()
    try:
        drawing = figure.draw(lab)
        save_drawing(drawing, folder, _stem(name))
        share = min(1.0, drawing.figure.get_figwidth() / _FULL_WIDTH)
        image, media_type = _image(drawing.figure)
    except Exception as error:
        return not_drawn(name, describe_error(error), time.perf_counter() - begin)
    return ReportFigure(
        **_describe(figure),
        image=image,
        media_type=media_type,
        config=drawing.config,
        seconds=time.perf_counter() - begin,
        share=share,
    )


def describe_error(error: Exception) -> str:
    """An error in one line, or that memory ran out, whichever library says so."""
    return out_of_memory(error) or f"{type(error).__name__}: {' '.join(str(error).split())}"


def not_drawn(name: str, problem: str, seconds: float = 0.0) -> ReportFigure:
    """A figure that could not be drawn, with the reason."""
    return ReportFigure(**_describe(FIGURES[name]), image=None, media_type="", config={},
                        seconds=seconds, problem=problem)  # fmt: skip


def figure_files(figures: Iterable[str]) -> list[str]:
    """The names of the files that figures are saved as."""
    return [f"{_FOLDER}/{_stem(name)}.{suffix}" for name in figures for suffix in SUFFIXES]


def read_figures(drawn: Sequence[ReportFigure], folder: Path) -> dict[str, bytes]:
    """The content of the files of all figures that could be drawn, by name."""
    names = figure_files(figure.name for figure in drawn if not figure.problem)
    return {name: (folder / Path(name).name).read_bytes() for name in names}


def _stem(name: str) -> str:
    return name.replace("/", "-")


def _describe(figure: Figure) -> dict[str, Any]:
    return {key: getattr(figure, key) for key in ("name", "title", "caption", "paper")}


def _image(figure) -> tuple[bytes, str]:
    """The figure as SVG, or as PNG where that is smaller. Closes the figure."""
    import matplotlib.pyplot as plt

    try:
        vector = _render(figure, "svg")
        if len(vector) <= _LARGEST_SVG:
            return vector, "image/svg+xml"
        return _render(figure, "png"), "image/png"
    finally:
        plt.close(figure)


def _render(figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=160)
    return buffer.getvalue()
