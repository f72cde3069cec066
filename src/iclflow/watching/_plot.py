"""The picture of a watched training: loss, distances from estimators, loss over context length."""

from collections.abc import Sequence

import numpy as np

from ..drawing import Axes
from ..drawing.style import COLOURS, LEVEL, canvas, style
from ..errors import InputError
from ._columns import named
from ._look import Look
from ._plot_heads import plot_heads

# Estimators that are drawn: those that come nearest at some moment.
_MOST_CURVES = len(COLOURS)
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)))
# Distances that are shown.
_NEAREST, _FARTHEST = 1e-4, 3.0


def plot(
    looks: Sequence[Look], bayes: float | None, axes: Sequence[Axes] | None = None
) -> Sequence[Axes]:
    """Draws loss, distances, and the loss over context lengths at the end; below them the heads, if
    they were read.

    **Arguments:**

    - `bayes`: the smallest loss that any predictor can have; None if it is not known.
    - `axes`: three panels to draw into, six with heads; by default a new figure.
    """
    with_heads = any(look.layers for look in looks)
    if axes is not None and len(axes) not in (3, 6):
        raise InputError(f"`axes` has {len(axes)} panels: must have three, or six with heads.")
    with style():
        if axes is None:
            rows, height = (2, 5.4) if with_heads else (1, 2.7)
            axes = list(canvas("double", height, rows=rows, across=3)[1])
        steps = np.array([look.step for look in looks])
        _plot_loss(axes[0], looks, steps, bayes)
        _plot_distances(axes[1], looks, steps)
        _plot_lengths(axes[2], looks)
        over_steps = list(axes[:2])
        if with_heads and len(axes) > 3:
            plot_heads(axes[3:], looks)
            over_steps += axes[3:]
        for panel in over_steps:
            panel.set_xlabel("step")
            if len(steps) > 1 and steps[-1] > 100 * max(steps[1], 1):
                panel.set_xscale("log", nonpositive="mask")
    return axes


def shown_estimators(looks: Sequence[Look], label: int = 0) -> list[str]:
    """The estimators of which one was the nearest to one label, the last one first; then those that
    came closest."""
    least: dict[str, float] = {}
    for look in looks:
        for each in look.distances[label] if look.distances else ():
            least[each.name] = min(least.get(each.name, np.inf), each.distance)
    nearest = named([look.nearest[label].name if look.distances else None for look in looks])
    closest = sorted(least, key=least.__getitem__)
    return list(dict.fromkeys([*nearest, *closest]))[:_MOST_CURVES]


def _plot_loss(panel: Axes, looks: Sequence[Look], steps: np.ndarray, bayes: float | None) -> None:
    values = np.array([look.loss.value for look in looks])
    errors = np.array([look.loss.standard_error for look in looks])
    panel.plot(steps, values, color=COLOURS[0], label="loss")
    panel.fill_between(steps, values - errors, values + errors, color=COLOURS[0], alpha=0.25, lw=0)
    if bayes is not None:
        panel.axhline(bayes, **LEVEL)
        # On the left: there the loss is still far above it.
        panel.annotate("Bayes", (0.02, bayes), xycoords=("axes fraction", "data"), ha="left",
                       va="bottom", color="0.35")  # fmt: skip
    panel.set_ylabel("loss ± standard error")
    panel.set_ylim(bottom=0)


def _plot_distances(panel: Axes, looks: Sequence[Look], steps: np.ndarray) -> None:
    least = 1.0
    for number, (name, colour) in enumerate(zip(shown_estimators(looks), COLOURS)):
        found = [
            next((each.distance for each in look.distances[0] if each.name == name), np.nan)
            if look.distances
            else np.nan
            for look in looks
        ]
        # Estimators may coincide: dashes show the one below.
        dashes = _DASHES[number % len(_DASHES)]
        panel.plot(steps, found, color=colour, label=name, lw=1.5, ls=dashes)
        least = min([least, *(each for each in found if each > 0)])
    panel.set_yscale("log")
    # Beyond these nobody can tell, or nothing is alike.
    panel.set_ylim(max(_NEAREST, least / 2), _FARTHEST)
    panel.set_ylabel("relative distance")
    if panel.lines:
        panel.legend(fontsize=6, loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2,
                     handlelength=1.2, columnspacing=0.8)  # fmt: skip


def _plot_lengths(panel: Axes, looks: Sequence[Look]) -> None:
    if not looks or not looks[-1].lengths:
        panel.set_visible(False)
        return
    last = looks[-1]
    values = [each.value for each in last.losses]
    panel.plot(last.lengths, values, "o-", ms=3, color=COLOURS[0], label="model")
    if last.excesses is not None:
        best = [loss - excess.value for loss, excess in zip(values, last.excesses)]
        panel.plot(last.lengths, best, color="0.45", ls=":", label="loss − excess")
        panel.legend(fontsize=6)
    panel.set_xlabel("context length")
    panel.set_ylabel(f"loss at step {last.step}")
    panel.set_ylim(bottom=0)
