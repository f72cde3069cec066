"""The style of all figures: sizes, colours, and how theory differs from simulation."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from cycler import cycler

from ._drawing import Axes, Axis, Figure

# Width of figures in one column and in two columns of a printed page, in inches.
WIDTHS = {"single": 3.4, "double": 7.0}

# Okabe and Ito's palette, which colour-blind readers can tell apart. Black is reserved for theory;
# yellow is missing because it is too faint for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, has all mathematical signs
    "mathtext.fontset": "dejavusans",
    "font.size": 8,
    "axes.labelsize": 8.5,
    "axes.titlesize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.4,
    "axes.prop_cycle": cycler(color=COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.minor.width": 0.5,
    "ytick.minor.width": 0.5,
    "lines.linewidth": 2.0,
    "lines.markersize": 4.5,
    "axes.formatter.use_mathtext": True,
    "axes.formatter.limits": (-3, 4),
    "figure.dpi": 100,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,  # whole fonts, so that text in the PDF stays text
    "figure.constrained_layout.h_pad": 0.05,
    "figure.constrained_layout.w_pad": 0.05,
}

# Theory is drawn on top of the data: thin, black, dashed, so that the data stay visible.
THEORY: dict[str, Any] = {"color": "black", "lw": 1.1, "ls": (0, (4, 2.2)), "zorder": 5}
LEVEL: dict[str, Any] = {"color": "0.45", "lw": 0.8, "ls": ":", "zorder": 1}


@contextmanager
def style() -> Iterator[None]:
    """Draws and saves with the settings of `RC`, whatever the user has configured."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)  # pyright: ignore[reportCallIssue, reportArgumentType]
        yield


def canvas(
    columns: Literal["single", "double"],
    height: float,
    rows: int = 1,
    across: int = 1,
    **options: Any,
) -> tuple[Figure, np.ndarray]:
    """An empty figure and its panels as a flat array, lettered if there are several.

    **Arguments:**

    - `columns`: the width, in columns of a printed page.
    - `height`: in inches.
    - `rows`, `across`: panels below and beside each other.
    - `options`: arguments of matplotlib's `subplots`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTHS[columns], height), layout="constrained")
    panels = np.atleast_1d(figure.subplots(rows, across, **options)).ravel()
    if len(panels) > 1:
        for letter, panel in zip("abcdefghijkl", panels):
            panel.set_title(letter, loc="left", fontweight="bold")
    return figure, panels


def fixed_canvas(width: float, height: float) -> tuple[Figure, Callable[..., Axes]]:
    """An empty figure, and a function that adds a panel at (left, bottom, width, height).

    All in inches: heat maps side by side then have cells of the same size.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))

    def place(left: float, bottom: float, across: float, up: float) -> Axes:
        return figure.add_axes((left / width, bottom / height, across / width, up / height))

    return figure, place


def colour_bar(figure: Figure, image: Any, panel: Axes, name: str, flat: bool = False) -> None:
    """The colour scale of a heat map, drawn in `panel`."""
    bar = figure.colorbar(image, cax=panel, orientation="horizontal" if flat else "vertical")
    bar.set_label(name)
    bar.outline.set_linewidth(0.7)  # pyright: ignore[reportCallIssue]


def shades(count: int) -> list[tuple[float, float, float, float]]:
    """Colours for an ordered family of curves, from dark to light."""
    import matplotlib

    # The map ends in a yellow that is too faint for lines.
    return [tuple(c) for c in matplotlib.colormaps["viridis"](np.linspace(0.0, 0.85, count))]  # pyright: ignore[reportReturnType]


def power_of_ten(value: float) -> str:
    """A positive number with two digits; very small and large ones as a power of ten."""
    if 1e-3 <= value < 1e4:
        return f"{value:.2g}"
    digits, exponent = f"{value:.1e}".split("e")
    return rf"${digits}\times10^{{{int(exponent)}}}$"


def log_ticks(axis: Axis, values: Iterable[float]) -> None:
    """Puts labels at these values of a logarithmic axis only: matplotlib's own would overlap."""
    from matplotlib.ticker import NullFormatter

    shown = list(values)
    axis.set_ticks(shown, [f"{value:g}" for value in shown])
    axis.set_minor_formatter(NullFormatter())


def smooth_curve(x: np.ndarray, y: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """Interpolates a smooth positive function by a cubic spline in logarithms.

    For predictions that take too long to compute at every point of a curve.
    """
    from scipy.interpolate import CubicSpline  # slow to load, and trajectories load this module

    return np.exp(CubicSpline(np.log(x), np.log(y))(np.log(fine)))


Outside = Literal["outside upper center", "outside lower center", "outside right upper"]


def legend_above(
    figure: Figure, *panels: Axes, columns: int | None = None, loc: Outside = "outside upper center"
) -> None:
    """One legend for these panels, above all of them or at `loc`, where it hides no data."""
    found: dict[str, Any] = {}
    for each in panels:
        for handle, label in zip(*each.get_legend_handles_labels()):
            found.setdefault(label, handle)
    figure.legend(
        list(found.values()),
        list(found),
        loc=loc,  # pyright: ignore[reportArgumentType]
        ncols=columns or len(found),
    )


def levels(panel: Axes, values: Iterable[float], label: str | None = None) -> None:
    """Faint horizontal lines at predicted values."""
    for i, value in enumerate(values):
        panel.axhline(value, label=None if i else label, **LEVEL)


def level_names(
    panel: Axes, values: Iterable[float], names: Iterable[str], gap: float = 0.0
) -> None:
    """Names horizontal lines outside the right edge of a panel, at least `gap` apart."""
    heights: list[float] = []
    for value, name in sorted(zip(values, names)):
        heights.append(max(value, heights[-1] + gap) if heights else value)
        panel.annotate(
            name,
            (1.0, heights[-1]),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            color="0.3",
            annotation_clip=False,
        )


def curve_until(run: Any, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Times and losses of a trajectory up to `end`; after convergence the loss stays constant."""
    run = run.between(0.0, end)
    if run.result.name != "converged" or run.times[-1] >= end:
        return run.times, run.losses
    return np.append(run.times, end), np.append(run.losses, run.losses[-1])
