"""Heat maps of a model's circuits: what each head attends to, and what it reads."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..circuits import Circuits, head_roles
from ._drawing import Axes, Figure

_MAP = "RdBu_r"
# The colour range of a circuit that is zero everywhere: matplotlib needs a positive one.
_TINY = 1e-300


def heads_figure(found: Circuits, title: str | None = None) -> Figure:
    """Key-query circuits in the upper row, output-value circuits below, one column per head."""
    from matplotlib.figure import Figure

    attention, values = found.attention, found.values
    heads, dim, labels = len(attention), found.dim, values.shape[1]
    roles = [""] * heads
    if labels == 1:
        roles = head_roles(found.omega[:, 0], found.mu[:, 0])
    width = max(3.4, 1.0 + 1.35 * heads)
    figure = Figure(figsize=(width, 2.3 + 0.22 * labels), layout="constrained")
    if title:
        figure.suptitle(title, fontsize="medium")
    panels = figure.subplots(2, heads, squeeze=False, height_ratios=(dim + labels, labels + 0.6))
    upper = _heat(panels[0], attention)
    lower = _heat(panels[1], values)
    figure.colorbar(upper, ax=panels[0].tolist(), shrink=0.9, pad=0.02, label="key-query")
    figure.colorbar(lower, ax=panels[1].tolist(), shrink=1.0, pad=0.02, aspect=5, label="out-value")
    for h in range(heads):
        panels[0, h].set_title(f"head {h + 1}" + (f"\n{roles[h]}" if roles[h] else ""))
        name_tokens(panels[0, h].set_yticks, dim, labels, h == 0)
        name_tokens(panels[0, h].set_xticks, dim, 0, True)
        name_tokens(panels[1, h].set_xticks, dim, labels, True)
        panels[1, h].set_yticks([])
    panels[0, 0].set_ylabel("key token")
    panels[1, 0].set_ylabel("label")
    return figure


def draw_circuit(panel: Axes, matrix: np.ndarray, limit: float | None = None):
    """Draws a matrix as a heat map, white at zero, with square cells."""
    limit = limit or float(np.max(np.abs(matrix), initial=_TINY))
    image = panel.imshow(matrix, cmap=_MAP, vmin=-limit, vmax=limit, aspect="equal")
    panel.spines[:].set_visible(True)
    return image


def _heat(panels, matrices: np.ndarray):
    """Draws one matrix per panel on a common colour scale; returns an image for the colour bar."""
    limit = float(np.max(np.abs(matrices), initial=_TINY))
    return [draw_circuit(panel, matrix, limit) for panel, matrix in zip(panels, matrices)][-1]


def name_tokens(set_ticks: Callable[..., Any], dim: int, labels: int, named: bool) -> None:
    """Puts ticks at the first and last input, and at every label."""
    places = sorted({0, dim - 1} | set(range(dim, dim + labels)))
    names = [f"$x_{{{i + 1}}}$" for i in range(dim)]
    names += ["$y$"] if labels == 1 else [f"$y_{{{i + 1}}}$" for i in range(labels)]
    set_ticks(places, [names[i] for i in places] if named else [])
