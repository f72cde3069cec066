"""Positions and labels on the axes of a figure."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TICKS = 7
_LONGEST = 20
# Inches: the width of a digit, the space between two labels, the height of a line of text.
_DIGIT, _ROOM, _LINE = 0.065, 0.1, 0.16


def place_values(values: Iterable[Any]) -> dict[Any, float]:
    """The position of each value of x: numbers at their value, others one after the other."""
    ordered = sort_values(values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in ordered):
        return {value: float(value) for value in ordered}
    return {value: float(i) for i, value in enumerate(ordered)}


def set_scales(
    axis: "Axes", log: Sequence[str], places: dict[Any, float], whole: bool, width: float
) -> None:
    """Sets logarithmic scales, and ticks at the values if there are few."""
    from matplotlib.ticker import MaxNLocator

    if any(isinstance(key, bool) or key != place for key, place in places.items()):
        set_labels(axis, list(places), np.asarray(list(places.values())), width)
    elif "x" in log:
        axis.set_xscale("log")
    elif all(isinstance(key, int) for key in places) and len(places) <= 2 * MOST_TICKS:
        axis.set_xticks(list(places))
    if "y" in log:
        axis.set_yscale("log")
    elif whole:
        axis.yaxis.set_major_locator(MaxNLocator(MOST_TICKS, integer=True))


def panel_width(figure: "Figure", panels: int) -> float:
    """The width of a panel in inches, without labels and legends."""
    return 0.8 * figure.get_figwidth() / min(panels, 3)


def set_labels(axis: "Axes", values: Sequence[Any], at: np.ndarray, width: float) -> None:
    """Labels values of x, evenly thinned so that labels do not touch; long ones are rotated."""
    brief = [value_text(value, 2) for value in values]
    texts = brief if len(set(brief)) == len(brief) else [value_text(value) for value in values]
    longest = max(map(len, texts))
    fit = int(width / (_DIGIT * longest + _ROOM))
    rotated = fit < min(len(texts), 3)
    every = -(-len(texts) // (int(width / _LINE) if rotated else fit))
    axis.set_xticks(at[::every], texts[::every], rotation=90 if rotated else 0)


def wrap(text: str, width: float) -> str:
    """Breaks a text into lines of at most `width` inches."""
    return "\n".join(textwrap.wrap(text, int(width / _DIGIT)))


def axis_name(statistic: str, text: str) -> str:
    """The label of an axis; the median, which is the default, is not named."""
    return text if statistic == "median" else f"{statistic} of {text}"


def sort_values(values: Iterable[Any]) -> list[Any]:
    """Sorts values; different types, such as numbers and None, are sorted by type first."""
    kind = lambda value: (value is None, isinstance(value, str), isinstance(value, tuple))
    return sorted(values, key=lambda value: (*kind(value), 0 if value is None else value))


def value_text(value: Any, digits: int = 3) -> str:
    """A value as a short label."""
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    parts = value if isinstance(value, tuple) else [str(value)]
    text = ", ".join(part if isinstance(part, str) else value_text(part, digits) for part in parts)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
