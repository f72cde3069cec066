"""The figures of a report: drawn, saved beside it, and kept for the page."""

import contextlib
import io
import time
from collections.abc import Sequence
from pathlib import Path

from ..claims import Lab
from ..report import ReportFigure
from ._activity import Activity

# Pictures with very many points are smaller as pixels than as curves.
_LARGEST_SVG = 600_000
# Inches: that of two columns of print. Narrower figures are shown as much narrower.
_FULL_WIDTH = 7.0
# What `save_drawing` writes.
_SUFFIXES = ("pdf", "png", "npz", "toml")


def draw_figures(
    names: Sequence[str], lab: Lab, folder: Path, activity: Activity
) -> list[ReportFigure]:
    """Draws figures by name. One that cannot be drawn says so on the page and stops nobody else."""
    from ..figures import FIGURES

    drawn = []
    for i, name in enumerate(name for name in names if name in FIGURES):
        activity.update(f"figure {name}", i / len(names))
        drawn.append(_draw(FIGURES[name], lab, folder))
        if drawn[-1].problem:
            activity.line(f"✗ figure {name}: {drawn[-1].problem}")
    return drawn


def remove_others(drawn: Sequence[ReportFigure], folder: Path) -> None:
    """Removes figures of an earlier report that are not in this one, and nothing else."""
    from ..figures import FIGURES

    kept = {figure.name for figure in drawn if not figure.problem}
    for name in FIGURES.keys() - kept:
        for suffix in _SUFFIXES:
            (folder / f"{_stem(name)}.{suffix}").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not there, or not empty
        folder.rmdir()


def _stem(name: str) -> str:
    return name.replace("/", "-")


def _draw(figure, lab: Lab, folder: Path) -> ReportFigure:
    from ..figures import save_drawing

    begin = time.perf_counter()
    shown = {key: getattr(figure, key) for key in ("name", "title", "caption", "paper")}
    try:
        drawing = figure.draw(lab)
        save_drawing(drawing, folder, _stem(figure.name))
        share = min(1.0, drawing.figure.get_figwidth() / _FULL_WIDTH)
        image, media_type = _image(drawing.figure)
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        seconds = time.perf_counter() - begin
        return ReportFigure(**shown, image=None, media_type="", config={}, seconds=seconds,
                            problem=problem)  # fmt: skip
    return ReportFigure(
        **shown,
        image=image,
        media_type=media_type,
        config=drawing.config,
        seconds=time.perf_counter() - begin,
        share=share,
    )


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
