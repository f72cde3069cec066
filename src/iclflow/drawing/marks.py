"""Marks that most figures have: predicted curves, measured points, remarks beside them."""

from collections.abc import Iterable
from typing import Any

from ._types import Axes
from .style import THEORY

# `x` and `y` are whatever matplotlib draws: arrays, lists, single numbers.


def plot_theory(panel: Axes, x: Any, y: Any, label: str | None = None, **look: Any) -> None:
    """A predicted curve, on top of what it predicts."""
    panel.plot(x, y, label=label, **THEORY | look)


def plot_circles(
    panel: Axes, x: Any, y: Any, colour: Any = None, label: str | None = None, **look: Any
) -> None:
    """Measured points: open, so that a curve through them can be seen."""
    panel.plot(x, y, "o", mfc="none", color=colour, label=label, **look)


def remark(
    panel: Axes, words: str, at: tuple[Any, Any], offset: tuple[float, float], **look: Any
) -> None:
    """Words beside a point of a panel, shifted by `offset` in points."""
    panel.annotate(words, at, xytext=offset, textcoords="offset points", **look)


def plot_bars(
    panel: Axes, places: Iterable[Any], values: Iterable[Any], half: float, label: str
) -> None:
    """A predicted value at each of some places, as a short line of width 2 `half`."""
    for i, (place, value) in enumerate(zip(places, values)):
        plot_theory(panel, [place - half, place + half], [value, value], None if i else label)
