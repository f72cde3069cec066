"""Panels that several diagrams share: pale colour maps and grids of labelled cells."""

from collections.abc import Sequence

import numpy as np

from ._drawing import Axes

# The part of a colour map that is used: dark enough to tell values apart, pale enough for black
# text and theory lines on top.
_PALE = (0.02, 0.68)


def pale_map(name: str = "Blues"):
    """A colour map of one hue on which black lines and numbers are readable."""
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap

    colours = matplotlib.colormaps[name](np.linspace(*_PALE, 256))
    return LinearSegmentedColormap.from_list(f"pale {name}", colours)


def log_edges(centres: np.ndarray) -> np.ndarray:
    """The edges of cells around logarithmically spaced centres."""
    half = np.sqrt(centres[1:] / centres[:-1])
    return np.concatenate([centres[:1] / half[:1], centres[:-1] * half, centres[-1:] * half[-1:]])


def cells(
    panel: Axes,
    values: np.ndarray,
    across: Sequence[int] | Sequence[str],
    up: Sequence[int] | Sequence[str],
    texts: Sequence[Sequence[str]],
    limits: tuple[float, float] | None = None,
):
    """Draws a grid of cells over two settings, with a text in each cell."""
    low, high = limits or (float(np.nanmin(values)), float(np.nanmax(values)))
    image = panel.pcolormesh(
        values, cmap=pale_map(), vmin=low, vmax=high, edgecolors="white", lw=1.0
    )
    for j, row in enumerate(texts):
        for i, text in enumerate(row):
            panel.text(i + 0.5, j + 0.5, text, ha="center", va="center", linespacing=1.15)
    panel.set_xticks(np.arange(len(across)) + 0.5, [str(value) for value in across])
    panel.set_yticks(np.arange(len(up)) + 0.5, [str(value) for value in up])
    panel.tick_params(length=0)
    return image
