"""Where the values of a figure go, and the words beside its axes."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TICKS = 7
_LONGEST = 20
# Of a digit of a label, of the room between two labels, and of a line of text, in inches.
_DIGIT, _ROOM, _LINE = 0.065, 0.1, 0.16


def places_of(values) -> dict[Any, float]:
    """Where each value of x goes: numbers where they are, others one after the other."""
    ordered = in_order(values)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in ordered):
        return {value: float(value) for value in ordered}
    return {value: float(i) for i, value in enumerate(ordered)}


def set_scales(
    axis: "Axes", log: Sequence[str], places: dict[Any, float], whole: bool, width: float
) -> None:
    """Logarithms where they are asked for, and ticks at the values where there are few."""
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
    """The width of a panel in inches, without what is beside it."""
    return 0.8 * figure.get_figwidth() / min(panels, 3)


def set_labels(axis: "Axes", values: Sequence[Any], at: np.ndarray, width: float) -> None:
    """Labels under values of x, evenly thinned so that none touches the next; long ones stand."""
    brief = [value_text(value, 2) for value in values]
    texts = brief if len(set(brief)) == len(brief) else [value_text(value) for value in values]
    longest = max(map(len, texts))
    fit = int(width / (_DIGIT * longest + _ROOM))
    stands = fit < min(len(texts), 3)
    every = -(-len(texts) // (int(width / _LINE) if stands else fit))
    axis.set_xticks(at[::every], texts[::every], rotation=90 if stands else 0)


def wrapped(text: str, width: float) -> str:
    """A text in lines that are not longer than so many inches."""
    return "\n".join(textwrap.wrap(text, int(width / _DIGIT)))


def axis_name(statistic: str, text: str) -> str:
    """What an axis shows; a median goes without saying."""
    return text if statistic == "median" else f"{statistic} of {text}"


def in_order(values) -> list[Any]:
    """In order; values of several kinds, such as numbers and None, by kind first."""
    kind = lambda value: (value is None, isinstance(value, str), isinstance(value, tuple))
    return sorted(values, key=lambda value: (*kind(value), 0 if value is None else value))


def value_text(value: Any, digits: int = 3) -> str:
    """A value as a label, which leaves room for the figure."""
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    parts = value if isinstance(value, tuple) else [str(value)]
    text = ", ".join(part if isinstance(part, str) else value_text(part, digits) for part in parts)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
