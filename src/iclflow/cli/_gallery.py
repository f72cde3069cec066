"""The figures of a report: drawn, saved beside it, and kept for the page."""

import io
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..claims import Lab
from ..config import out_of_memory
from ..report import ReportFigure

# Pictures with very many points are smaller as pixels than as curves.
_LARGEST_SVG = 600_000
# Inches: that of two columns of print. Narrower figures are shown as much narrower.
_FULL_WIDTH = 7.0
# Where figures go, in the folder of a report.
_FOLDER = "figures"


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


def names_of(figures: Iterable[str]) -> list[str]:
    """The files that figures are saved as."""
    from ..figures import SUFFIXES

    return [f"{_FOLDER}/{_stem(name)}.{suffix}" for name in figures for suffix in SUFFIXES]


def contents_of(drawn: Sequence[ReportFigure], workshop: Path) -> dict[str, bytes]:
    """The files of those figures that could be drawn, by the names that they are kept under."""
    names = names_of(figure.name for figure in drawn if not figure.problem)
    return {name: (workshop / Path(name).name).read_bytes() for name in names}


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
