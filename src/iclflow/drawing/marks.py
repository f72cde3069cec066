"""Marks that most figures share: predicted curves, measured points, annotations."""

from collections.abc import Iterable
from typing import Any

from ._drawing import Axes
from .style import THEORY

# `x` and `y` are anything that matplotlib draws: arrays, lists, single numbers.


def plot_theory(panel: Axes, x: Any, y: Any, label: str | None = None, **look: Any) -> None:
    """Draws a predicted curve, on top of the data."""
    panel.plot(x, y, label=label, **THEORY | look)


def plot_circles(
    panel: Axes, x: Any, y: Any, colour: Any = None, label: str | None = None, **look: Any
) -> None:
    """Draws measured points as open circles, so that a curve through them stays visible."""
    panel.plot(x, y, "o", mfc="none", color=colour, label=label, **look)


def remark(
    panel: Axes, words: str, at: tuple[Any, Any], offset: tuple[float, float], **look: Any
) -> None:
    """Writes text next to a point of a panel, shifted by `offset` (in typographic points)."""
    panel.annotate(words, at, xytext=offset, textcoords="offset points", **look)


def plot_bars(
    panel: Axes, places: Iterable[Any], values: Iterable[Any], half: float, label: str
) -> None:
    """Draws a predicted value at each place as a short line of width 2 `half`."""
    for i, (place, value) in enumerate(zip(places, values)):
        plot_theory(panel, [place - half, place + half], [value, value], None if i else label)
