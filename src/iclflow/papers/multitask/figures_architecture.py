"""The figure of arXiv 2402.19442 that explains multi-head softmax attention and its parts."""

from typing import Any

import numpy as np

from ...drawing import Axes, Drawing
from ...drawing.style import COLOURS, WIDTHS, fixed_canvas
from .. import Lab, figure

_HEIGHT = 3.95
# Colours of parts that read inputs, and of those that read labels.
_X, _Y = COLOURS[5], COLOURS[4]
_INPUT: dict[str, Any] = {"facecolor": _X + "55", "edgecolor": "0.25", "lw": 0.8}
_LABEL: dict[str, Any] = {"facecolor": _Y + "77", "edgecolor": "0.25", "lw": 0.8}
_ZERO: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.45", "lw": 0.8, "hatch": "//////"}
_PLAIN: dict[str, Any] = {"facecolor": "white", "edgecolor": "0.25", "lw": 0.8}
# Scores whose softmax the small bar chart shows.
_SCORES = np.array([0.3, -0.8, 1.2, -0.2, 0.6, -1.1])
# Heights of the rows of scores and of values, in inches as all places here.
_UP, _DOWN = 2.72, 0.98


@figure(
    "multitask/architecture",
    "Multi-head softmax attention and its parts",
    """Tokens hold an input x and labels y; the query has no labels. Of the keys K, queries Q
    and values V some columns read inputs and some read labels. What acts are the products W
    and U: rows of W that read labels, W_Y, and columns of U that read inputs, U_X.
    Decomposable weights have zeros there (hatched), and gradient flow of the factors keeps
    them: scores then depend on inputs alone, and outputs are means of labels. Q_Y never acts,
    because it meets the zero of the query.""",
    number=2,
)
def architecture(lab: Lab) -> Drawing:
    """Tokens, the weights of a head in their parts, and what decomposability leaves of them."""
    from matplotlib.patches import FancyBboxPatch

    del lab  # nothing is computed
    figure, place = fixed_canvas(WIDTHS["double"], _HEIGHT)
    panel = place(0.0, 0.0, WIDTHS["double"], _HEIGHT)
    panel.set(xlim=(0, WIDTHS["double"]), ylim=(0, _HEIGHT))
    panel.axis("off")
    for shift in (0.14, 0.07, 0.0):
        sheet = FancyBboxPatch(
            (1.72 + shift, 0.3 + shift), 3.98, 3.38, boxstyle="round,pad=0,rounding_size=0.08",
            facecolor="white" if shift else "0.98", edgecolor="0.6", lw=0.8,
        )  # fmt: skip
        panel.add_patch(sheet)
    _text(panel, 3.71, 3.53, "head h of H", weight="bold")
    _draw_tokens(panel)
    _draw_scores(panel)
    _draw_values(panel)
    weights = _draw_output(panel)
    _draw_key(panel)
    data = {"scores": _SCORES, "weights": weights}
    return Drawing(figure, data, {"shown": "one head of H, L tokens and a query"})


def _draw_tokens(panel: Axes) -> None:
    """Draws inputs above labels, one column per token; the query's label is unknown."""
    _text(panel, 0.75, 3.53, "tokens", weight="bold")
    for column in range(4):
        left = 0.42 + 0.17 * column
        _box(panel, left, 1.55, 0.17, 1.3, _INPUT)
        _box(panel, left, 1.13, 0.17, 0.38, _LABEL)
    _box(panel, 1.22, 1.55, 0.17, 1.3, _INPUT)
    _box(panel, 1.22, 1.13, 0.17, 0.38, _PLAIN, "0")
    _text(panel, 0.76, 3.0, r"$x_1\ldots x_L$")
    _text(panel, 1.305, 3.0, "$q$")
    _text(panel, 0.76, 0.98, r"$y_1\ldots y_L$")
    _text(panel, 0.24, 2.2, "X")
    _text(panel, 0.24, 1.32, "Y")
    _text(panel, 1.305, 3.25, "query")
    for row in (_UP, _DOWN):
        _arrow(panel, (1.45, (_UP + _DOWN) / 2), (1.86, row))


def _draw_scores(panel: Axes) -> None:
    """Draws keys and queries, and the scores of their product."""
    for left, name in ((1.92, "K"), (2.7, "Q")):
        _box(panel, left, _UP - 0.2, 0.42, 0.4, _INPUT, f"${name}_X$")
        _box(panel, left + 0.42, _UP - 0.2, 0.25, 0.4, _LABEL, f"${name}_Y$")
    _text(panel, 2.645, _UP + 0.42, r"$W = K^{\!\top} Q/\sqrt{E}$")
    _note(panel, 2.645, _UP - 0.35, r"each $E \times (d + I)$")
    _arrow(panel, (3.43, _UP), (3.68, _UP))
    _box(panel, 3.75, _UP - 0.2, 0.45, 0.45, _INPUT, "$W_X$")
    _box(panel, 3.75, _UP - 0.45, 0.45, 0.25, _ZERO)
    _note(panel, 3.975, _UP - 0.6, "$W_Y = 0$")
    _arrow(panel, (4.26, _UP), (4.5, _UP))
    _text(panel, 5.06, _UP + 0.26, "scores")
    _text(panel, 5.06, _UP, r"$s_\ell = x_\ell^\top W_X\,q$")
    _arrow(panel, (5.06, _UP - 0.2), (5.06, _UP - 0.44))


def _draw_values(panel: Axes) -> None:
    """Draws values and outputs, and the parts of the tokens that their product reads."""
    _box(panel, 1.92, _DOWN - 0.2, 0.42, 0.4, _INPUT, "$V_X$")
    _box(panel, 2.34, _DOWN - 0.2, 0.25, 0.4, _LABEL, "$V_Y$")
    _box(panel, 2.82, _DOWN - 0.14, 0.42, 0.28, _PLAIN, "$O$")
    _text(panel, 2.58, _DOWN + 0.42, "$U = O\\,V$")
    _note(panel, 2.255, _DOWN - 0.35, r"$E \times (d + I)$")
    _note(panel, 3.03, _DOWN - 0.29, r"$I \times E$")
    _arrow(panel, (3.31, _DOWN), (3.56, _DOWN))
    _box(panel, 3.63, _DOWN - 0.14, 0.42, 0.28, _ZERO)
    _box(panel, 4.05, _DOWN - 0.14, 0.3, 0.28, _LABEL, "$U_Y$")
    _note(panel, 3.84, _DOWN - 0.29, "$U_X = 0$")
    _arrow(panel, (4.41, _DOWN), (4.62, _DOWN))


def _draw_output(panel: Axes) -> np.ndarray:
    """Draws the softmax as bars, the mean of labels below, and the sum over heads; returns the
    attention weights."""
    from matplotlib.patches import Rectangle

    weights = np.exp(_SCORES) / np.sum(np.exp(_SCORES))
    floor = _UP - 0.95
    for column, weight in enumerate(weights):
        left = 4.66 + 0.135 * column
        panel.add_patch(Rectangle((left, floor), 0.1, 1.1 * weight, facecolor="0.45", lw=0))
    panel.plot([4.62, 5.5], [floor, floor], color="0.25", lw=0.8)
    _text(panel, 5.06, floor - 0.14, r"$p = \mathrm{softmax}(s)$")
    _arrow(panel, (5.06, floor - 0.28), (5.06, _DOWN + 0.22))
    _text(panel, 5.13, _DOWN, r"$\sum_\ell\, p_\ell\, U_Y\, y_\ell$")
    middle = (_UP + _DOWN) / 2
    _arrow(panel, (5.6, _DOWN), (6.12, middle - 0.17))
    _text(panel, 6.25, middle, r"$\sum_h$", size=11)
    _arrow(panel, (6.4, middle), (6.62, middle))
    _box(panel, 6.66, middle - 0.19, 0.2, 0.38, _LABEL, r"$\hat y$")
    _text(panel, 6.4, 3.53, "prediction", weight="bold")
    return weights


def _draw_key(panel: Axes) -> None:
    """Draws the key to colours and hatching."""
    entries = ((_INPUT, "reads inputs (X)"), (_LABEL, "reads labels (Y)"),
               (_ZERO, "zero if decomposable"), (_PLAIN, "not split"))  # fmt: skip
    for (look, name), left in zip(entries, (0.95, 2.4, 3.85, 5.55)):
        _box(panel, left, 0.06, 0.2, 0.14, look)
        panel.text(left + 0.27, 0.12, name, ha="left", va="center")


def _box(panel: Axes, left: float, low: float, wide: float, high: float, look, name="") -> None:
    """Draws a matrix, with its name in the middle."""
    from matplotlib.patches import Rectangle

    panel.add_patch(Rectangle((left, low), wide, high, **look))
    if name:
        _text(panel, left + wide / 2, low + high / 2, name)


def _text(panel: Axes, x: float, y: float, words: str, **options) -> None:
    panel.text(x, y, words, ha="center", va="center", **options)


def _note(panel: Axes, x: float, y: float, words: str) -> None:
    """Writes the size or the name of a matrix outside its box."""
    _text(panel, x, y, words, color="0.25")


def _arrow(panel: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    look = {"arrowstyle": "-|>", "color": "0.25", "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
    panel.annotate("", end, start, arrowprops=look | {"mutation_scale": 8})
