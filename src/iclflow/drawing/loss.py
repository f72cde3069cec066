"""Plots of the loss of a run, with theory on top."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import shorten
from ._drawing import Axes

# Theory is drawn to `_PAST` times the end of the run, and further if it predicts a drop before
# `_SOON` times the end: the reader then sees which drop the run has missed.
_PAST, _SOON = 1.05, 1.2
# A predicted curve starts with this many points on each kind of axis. Points are added where it is
# steep, in at most `_ROUNDS` rounds, until no step is larger than `_STEEP` of its range.
_POINTS = 400
_STEEP = 0.02
_ROUNDS = 20
# The first moment on a logarithmic axis, as a share of the last; and the shortest step between two
# moments, as a share of the later one: shorter ones are invisible on any axis.
_FIRST, _SHORTEST = 1e-3, 1e-6
# A logarithmic time axis starts at a tenth of the time when the loss has moved by this share.
_MOVED = 0.01
# Runs with at most this many points have them marked: the lines between are not measurements.
FEW_POINTS = 50


def draw_loss(ax: Axes, times: np.ndarray, losses: np.ndarray, rests: bool = False) -> None:
    """Draws the loss of a run through its saved points.

    **Arguments:**

    - `rests`: whether the weights never move: a single point is then a level for all times.
    """
    style = {"color": "C0", "lw": 2, "label": "simulation"}
    if len(times) > 1 or not rests:
        ax.plot(times, losses, marker="o" if len(times) <= FEW_POINTS else None, ms=4, **style)
    else:
        ax.plot([0, 1], [losses[0]] * 2, **style)
        ax.set(xlim=(0, 1), xticks=())


def draw_theory(ax: Axes, theory: Any, times: np.ndarray) -> None:
    """Draws the curve, levels, drop times and references of a prediction, as far as it has them.

    **Arguments:**

    - `times`: the saved times of the run that theory is compared with.
    """
    drops = np.asarray(getattr(theory, "drop_times", ()), float)
    end = reach(times[-1], drops)
    if hasattr(theory, "loss") and end > 0:
        if callable(theory.loss):
            curve = curve_points(lambda moments: theory.loss(moments), times, end)
        else:
            curve = np.asarray(theory.times, float), np.asarray(theory.loss, float)
        ax.plot(*curve, ls="--", color="black", lw=1.2, label="theory")
    for i, level in enumerate(getattr(theory, "levels", ())):
        ax.axhline(level, ls=":", lw=0.9, color="0.45", label=None if i else "predicted levels")
    for i, time in enumerate(drops[drops <= end]):
        ax.axvline(time, ls=":", lw=0.9, color="C1", label=None if i else "predicted drops")
    references: Any = getattr(theory, "references", ())
    for i, (name, level) in enumerate(references):
        # Shifted dashes keep references visible where their levels coincide.
        style = (-3 * i, (3, 6)) if len(references) > 1 else ":"
        ax.axhline(level, ls=style, lw=1.3, color=f"C{1 + i % 8}", label=name)


def reach(last: float, drops: np.ndarray) -> float:
    """The end of the theory curve for a run that ended at `last`."""
    soon = [drop for drop in drops if drop <= _SOON * last]
    return _PAST * max([float(last), *soon])


def curve_points(
    curve: Callable[[np.ndarray], np.ndarray], times: np.ndarray, end: float, refine: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The times and losses of the points of a predicted curve, for a run saved at `times`.

    They include the times of the run up to `end`, and enough others for a linear and a logarithmic
    axis. The first one after 0 is no later than the first of the run: wherever the run is drawn,
    theory is drawn too.

    **Arguments:**

    - `refine`: whether to add times where the curve is steep, with one call of it per round.
    """
    times = np.asarray(times, float)
    inside = times[(times > 0) & (times <= end)]
    first = min(_FIRST * end, inside.min(initial=np.inf))
    straight, ratios = np.linspace(0.0, end, _POINTS), np.geomspace(first, end, _POINTS)
    moments = np.unique(np.concatenate([straight, ratios, inside]))
    if refine:
        return _refine(curve, moments)
    return moments, np.asarray(curve(moments), float)


def _refine(
    curve: Callable[[np.ndarray], np.ndarray], times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Adds times to `times` until the curve through them looks smooth."""
    losses = np.asarray(curve(times), float)
    known = losses[np.isfinite(losses)]
    largest = _STEEP * np.ptp(known) if known.size else np.inf
    for _ in range(_ROUNDS):
        # The bound on the step in time ends the search at a true jump.
        steep = np.flatnonzero(
            (np.abs(np.diff(losses)) > largest) & (np.diff(times) > _SHORTEST * times[1:])
        )
        if not steep.size:
            break
        between = (times[steep] + times[steep + 1]) / 2
        losses = np.insert(losses, steep + 1, np.asarray(curve(between), float))
        times = np.insert(times, steep + 1, between)
    return times, losses


def set_log_time(ax: Axes) -> None:
    """Makes the time axis logarithmic, without the point at t = 0."""
    # By default matplotlib clips t = 0 to the left edge and draws a flat line from there.
    ax.set_xscale("log", nonpositive="mask")


def first_shown(times: np.ndarray, losses: np.ndarray) -> float | None:
    """The left end of a logarithmic time axis, at the first saved time or later; None if the loss
    never moves."""
    moved = np.abs(losses - losses[0]) > _MOVED * np.ptp(losses)
    if not moved.any():
        return None
    return float(max(0.1 * times[np.argmax(moved)], times[times > 0][0]))


def one_panel(ax: Axes | None) -> Axes:
    """The given axes, or new ones."""
    return panels(ax)[0, 0]


def panels(axes: Any = None, rows: int = 1, columns: int = 1) -> np.ndarray:
    """The given axes, or those of a new figure, by row and column."""
    import matplotlib.pyplot as plt

    if axes is None:
        size = (6 if columns == 1 else 4.4 * columns, 3.6 if rows == 1 else 2.6 * rows)
        options: Any = {"figsize": size, "layout": "constrained", "sharex": True}
        return plt.subplots(rows, columns, squeeze=False, **options)[1]
    flat = np.ravel(np.asarray(axes, object))
    if len(flat) != rows * columns:
        raise ValueError(f"`axes` holds {len(flat)}: must hold {rows * columns}.")
    return flat.reshape(rows, columns)


def framed_legend(ax: Axes, **options: Any) -> None:
    """A legend on an opaque background, so that curves do not run through its text."""
    ax.legend(frameon=True, framealpha=1.0, edgecolor="none", **options)


def check_theory(theory: Any) -> None:
    """Raises a `TypeError` if `theory` is not a prediction that can be drawn."""
    loss = getattr(theory, "loss", None)
    known = ("levels", "drop_times", "references")
    if loss is None and not any(hasattr(theory, name) for name in known):
        raise TypeError(
            f"`theory` = {shorten(theory)}: must be a prediction with `levels`, `drop_times`, "
            "`loss(times)`, or `times` and the `loss` at them, such as "
            "`iclflow.theory.staircase(task, model)`."
        )
    if loss is None or callable(loss):
        return
    times, shape = getattr(theory, "times", ()), np.shape(loss)
    if len(shape) != 1 or np.shape(times) != shape:
        raise TypeError(
            f"`theory` = {shorten(theory)}: its `loss` must be a function of times, or a vector "
            "with one entry for each of its `times`, as that of `iclflow.theory.pair_flow`."
        )
