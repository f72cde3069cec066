"""How the loss of a run is drawn, with theory on top of it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Theory is drawn to a little past the run, and to past a drop that it predicts soon after.
_PAST, _SOON = 1.05, 1.2
# Its curve starts from so many points on each kind of axis and gets more where it is steep, until
# it moves by no more than this share of its range from one to the next.
_POINTS = 400
_STEEP = 0.02
_ROUNDS = 20
# Its first moment on a logarithmic axis, as a share of the last; and the shortest step between two
# moments, as a share of the later one: no axis could show a shorter one.
_FIRST, _SHORTEST = 1e-3, 1e-6
# Before a tenth of the moment at which the loss has moved by this share, a logarithmic axis would
# show nothing.
_MOVED = 0.01
# So few points are marked: the lines between them are no measurement.
FEW_POINTS = 50


def draw_loss(ax: "Axes", times: np.ndarray, losses: np.ndarray, rests: bool = False) -> None:
    """The curve of a run, through its points and no further.

    **Arguments:**

    - `rests`: whether the weights never move: then a single point is a level for all time.
    """
    style = {"color": "C0", "lw": 2, "label": "simulation"}
    if len(times) > 1 or not rests:
        ax.plot(times, losses, marker="o" if len(times) <= FEW_POINTS else None, ms=4, **style)
    else:
        ax.plot([0, 1], [losses[0]] * 2, **style)
        ax.set(xlim=(0, 1), xticks=())


def draw_theory(ax: "Axes", theory: Any, times: np.ndarray) -> None:
    """Whatever a prediction offers, a curve, levels, drop times, for a run saved at `times`."""
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
        # Dashes that take turns: of levels that coincide every one is seen.
        style = (-3 * i, (3, 6)) if len(references) > 1 else ":"
        ax.axhline(level, ls=style, lw=1.3, color=f"C{1 + i % 8}", label=name)


def reach(last: float, drops: np.ndarray) -> float:
    """Up to when theory is drawn for a run that ended at `last`."""
    soon = [drop for drop in drops if drop <= _SOON * last]
    return _PAST * max([float(last), *soon])


def curve_points(
    curve: Callable[[np.ndarray], np.ndarray], times: np.ndarray, end: float, refine: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The moments at which a predicted curve is drawn for a run saved at `times`, and its losses.

    They are the moments of the run itself and, up to `end`, as many others as a linear and a
    logarithmic axis need. The first after 0 is no later than the first of the run: where the run
    is drawn, so is theory, and a line is never drawn on beyond its last point.

    **Arguments:**

    - `refine`: whether to add moments where the curve is steep, with a call of it each round.
    """
    times = np.asarray(times, float)
    inside = times[(times > 0) & (times <= end)]
    first = min(_FIRST * end, inside.min(initial=np.inf))
    straight, ratios = np.linspace(0.0, end, _POINTS), np.geomspace(first, end, _POINTS)
    moments = np.unique(np.concatenate([straight, ratios, inside]))
    if refine:
        return _smooth(curve, moments)
    return moments, np.asarray(curve(moments), float)


def set_log_time(ax: "Axes") -> None:
    """Makes the time axis logarithmic. The start, t = 0, has no place on it and is left out:
    by default the line from it would be drawn flat from the left edge to the next point."""
    ax.set_xscale("log", nonpositive="mask")


def first_shown(times: np.ndarray, losses: np.ndarray) -> float | None:
    """Where a logarithmic time axis starts, if the loss moves at all: not before the run has a
    point on it."""
    moved = np.abs(losses - losses[0]) > _MOVED * np.ptp(losses)
    if not moved.any():
        return None
    return float(max(0.1 * times[np.argmax(moved)], times[times > 0][0]))


def one_panel(ax: "Axes | None") -> "Axes":
    """The axes given, or new ones."""
    return panels(ax)[0, 0]


def panels(axes: Any = None, rows: int = 1, columns: int = 1) -> np.ndarray:
    """The axes given, or those of a new figure, by row and column."""
    import matplotlib.pyplot as plt

    if axes is None:
        size = (6 if columns == 1 else 4.4 * columns, 3.6 if rows == 1 else 2.6 * rows)
        options: Any = {"figsize": size, "layout": "constrained", "sharex": True}
        return plt.subplots(rows, columns, squeeze=False, **options)[1]
    flat = np.ravel(np.asarray(axes, object))
    if len(flat) != rows * columns:
        raise ValueError(f"`axes` holds {len(flat)}: must hold {rows * columns}.")
    return flat.reshape(rows, columns)


def framed_legend(ax: "Axes", **options: Any) -> None:
    """A legend on ground of its own: lines that run through it do not run through its words."""
    ax.legend(frameon=True, framealpha=1.0, edgecolor="none", **options)


def check_theory(theory: Any) -> None:
    """Refuses what is no prediction."""
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


def _smooth(
    curve: Callable[[np.ndarray], np.ndarray], times: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The curve at `times` and at as many moments between as it takes to look smooth."""
    losses = np.asarray(curve(times), float)
    known = losses[np.isfinite(losses)]
    largest = _STEEP * np.ptp(known) if known.size else np.inf
    for _ in range(_ROUNDS):
        # A true jump would be halved for ever.
        halved = np.flatnonzero(
            (np.abs(np.diff(losses)) > largest) & (np.diff(times) > _SHORTEST * times[1:])
        )
        if not halved.size:
            break
        between = (times[halved] + times[halved + 1]) / 2
        losses = np.insert(losses, halved + 1, np.asarray(curve(between), float))
        times = np.insert(times, halved + 1, between)
    return times, losses
