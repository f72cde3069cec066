"""Initialisation scale × time: from plateaus to the lazy regime."""

from typing import Any

import numpy as np

from ... import theory
from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.panels import log_edges, pale_map
from ...drawing.style import COLOURS, LEVEL, THEORY, canvas, curve_until, levels, shades
from ...errors import BeyondLimit
from ...tasks import LinearRegression
from ...theory import Staircase
from .. import Swept, diagram
from .._diagram import values
from .._needs import regression

# Curves in the second panel, and points of time in the first.
_CURVES = 5
_TIMES = 600


@diagram(
    "linear",
    "Initialisation scale × time: from plateaus to the lazy regime",
    """Separate linear attention of four heads of rank one on four components, by exact
    gradient flow. (a) How much of the way from the loss of no learning to the smallest loss is
    done, for the first seed; dashed: the half-drop times that the cascade computes from the
    initial weights alone, as far as they come sooner from larger weights. Ticks of the
    colours are the levels that theory gives. (b) The losses at some of the scales, the levels
    (dotted) and the curves of the cascade (dashed). (c) The number of plateaus, the last one
    included, over all seeds: theory has D + 1 for small weights, and Hs³ = ‖A*‖ (dotted) as
    the order at which learning becomes lazy. (d) The largest relative error of a predicted
    drop time, for seeds with as many drops as predicted.""",
    smoke={"seeds": 2, "axes": {"model.scale": values(0.005, 0.5, 4, log=True)}},
    paper_tier={"seeds": 24, "axes": {"model.scale": values(0.001, 3.0, 81, log=True)}},
)
def scale(swept: Swept) -> Drawing:
    """The share of the way down over time and scale, with the drop times of the cascade on top."""
    task = regression(swept.config)
    rests = theory.plateau_losses(task)
    scales, firsts, stairs = _runs(swept)
    runs = [swept.trajectory(number) for number in firsts]
    # All curves are drawn to the same end: runs that converge stay at their last loss.
    end = 2 * max(run.times[-1] for run in runs)
    times = np.geomspace(1.0, end, _TIMES)
    # Nothing is drawn after the end of a run that did not converge: it is not known to stay there.
    done = np.asarray([np.interp(times, *curve_until(run, end), right=np.nan) for run in runs])
    done = (rests[0] - done) / (rests[0] - rests[-1])
    figure, panels = canvas("double", 5.0, 2, 2)
    a, b, c, d = panels
    image = a.pcolormesh(
        log_edges(times), log_edges(scales), done, cmap=pale_map(), vmin=0, vmax=1, rasterized=True
    )
    drops = _drop_curves(stairs)
    for i, row in enumerate(drops.T):
        plot_theory(a, row, scales, None if i else "drop times by theory")
    a.set(xscale="log", yscale="log", xlabel="time (τ)", ylabel="scale s", xlim=(1, end))
    a.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    bar = figure.colorbar(image, ax=a, label="share of the way down", extend="min")
    shares = (rests[0] - rests) / (rests[0] - rests[-1])
    bar.set_ticks(shares, labels=[f"{share:.2f}" for share in shares])
    data = {"time": times, "scale": scales, "share_done": done, "theory_drop_times": drops}
    data |= {"theory_levels": rests}

    chosen = np.unique(np.linspace(0, len(scales) - 1, _CURVES).round().astype(int))
    for i, colour in zip(chosen, shades(len(chosen))):
        time, loss = curve_until(runs[i], end)
        b.semilogx(time[1:], loss[1:], color=colour, label=f"{scales[i]:.2g}")
        data |= {f"time_{i}": time, f"loss_{i}": loss}
        if stairs[i] is not None and np.isfinite(drops[i, -1]):
            plot_theory(b, times, stairs[i].loss(times))
            data[f"theory_loss_{i}"] = stairs[i].loss(times)
    levels(b, rests)
    plot_theory(b, [], [], "theory")
    b.set(xlabel="time (τ)", ylabel="loss", xlim=(1, end), ylim=(0, 1.15 * rests[0]))
    b.legend(title="scale s", loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.6)

    counts = _by_scale(swept, swept.column("plateaus"))
    errors = _errors(swept)
    crossover = _crossover(task, swept.config.model.heads)
    _draw_counts(c, scales, counts, task.dim + 1)
    _draw_errors(d, scales, errors)
    for panel in (c, d):
        panel.axvline(crossover, **LEVEL)
    c.annotate(
        "Hs³ = ‖A*‖", (crossover, 0.4), (-3, 0), xycoords=("data", "axes fraction"),
        textcoords="offset points", rotation=90, va="bottom", ha="right", color="0.3",
    )  # fmt: skip
    data |= {"plateaus": counts, "theory_plateaus": np.asarray(task.dim + 1)}
    data |= {"drop_time_error": errors, "crossover": np.asarray(crossover)}
    return Drawing(figure, data, {}, _findings(scales, counts, errors, task.dim + 1))


def _runs(swept: Swept) -> tuple[np.ndarray, list[int], list[Staircase | None]]:
    """The scales, the run of the first seed at each, and what theory predicts from its weights."""
    rows = swept.rows("model.scale", "run", "seed")
    first = [(s, run) for s, run, seed in rows if seed == swept.sweep.seeds[0]]
    task = regression(swept.config)
    runs = [run for _, run in first]
    stairs = [predict_staircase(task, swept.trajectory(run).at(0)) for run in runs]
    return np.asarray([s for s, _ in first]), runs, stairs


def predict_staircase(task: LinearRegression, model: Any) -> Staircase | None:
    """The cascade from these weights; None if they are so large that its drops trade places."""
    try:
        return theory.staircase(task, model)
    except BeyondLimit:
        return None


def _drop_curves(stairs: list[Staircase | None]) -> np.ndarray:
    """The drop times at each scale; NaN from the first scale on that has no cascade, or where a
    drop comes later than from smaller weights: the limit of small weights does not hold there."""
    most = max(len(each.drop_times) for each in stairs if each is not None)
    curves = np.full((len(stairs), most), np.nan)
    before = np.full(most, np.inf)
    for row, each in zip(curves, stairs):
        if each is None or len(each.drop_times) != most or np.any(each.drop_times >= before):
            break
        row[:] = before = each.drop_times
    return curves


def _by_scale(swept: Swept, values: np.ndarray) -> np.ndarray:
    """A column of the table as an array, scales × seeds."""
    return values.reshape(-1, len(swept.sweep.seeds))


def _errors(swept: Swept) -> np.ndarray:
    """The largest relative error of the predicted drop times of each run; NaN for one that has
    another number of drops, or no prediction."""
    task = regression(swept.config)
    found = []
    for run, measured in swept.rows("run", "drop_times"):
        stairs = predict_staircase(task, swept.trajectory(run).at(0))
        if stairs is None or measured is None or len(measured) != len(stairs.drop_times):
            found.append(np.nan)
            continue
        found.append(np.max(np.abs(np.asarray(measured) / stairs.drop_times - 1)))
    return _by_scale(swept, np.asarray(found))


def _crossover(task: LinearRegression, heads: int) -> float:
    """The scale at which Hs³ = ‖A*‖ (docs/theory/linear.md, Section 4)."""
    return float(np.cbrt(np.linalg.norm(theory.optimal_matrix(task)) / heads))


def _draw_counts(panel, scales: np.ndarray, counts: np.ndarray, predicted_count: int) -> None:
    low, middle, high = np.nanquantile(counts, (0, 0.5, 1), axis=1)
    panel.fill_between(scales, low, high, color=COLOURS[0], alpha=0.2, lw=0, label="all seeds")
    panel.semilogx(scales, middle, "o-", lw=1.2, ms=3.5, label="median over seeds")
    panel.axhline(predicted_count, label="small weights, theory", **THEORY)
    panel.set(xlabel="scale s", ylabel="plateaus", ylim=(0, predicted_count + 0.6))
    panel.legend(loc="lower left")


def _draw_errors(panel, scales: np.ndarray, errors: np.ndarray) -> None:
    known = np.isfinite(errors)
    for column in errors.T:
        panel.loglog(scales, column, "o", ms=2.5, color=COLOURS[0], mfc="none", mew=0.7)
    middle = np.asarray([np.median(row[k]) if k.any() else np.nan for row, k in zip(errors, known)])
    panel.plot(scales, middle, lw=1.4, color=COLOURS[1], label="median")
    # Through the smallest scale, where the limit is best.
    guide = middle[0] * (scales / scales[0]) ** 2
    kept = guide <= 1
    plot_theory(panel, scales[kept], guide[kept], "∝ s²")
    plot_circles(panel, [], [], COLOURS[0], "a seed", ms=2.5)
    panel.set(xlabel="scale s", ylabel="largest error of a drop time")
    panel.set(xlim=(scales[0] * 0.85, scales[-1] * 1.2), ylim=(None, 300))
    panel.legend(loc="upper left")


def _findings(scales: np.ndarray, counts: np.ndarray, errors: np.ndarray, expected: int) -> str:
    """What was measured, as the end of the caption."""
    all_seeds = np.all(counts == expected, axis=1)
    last = scales[: int(np.argmin(np.append(all_seeds, False)))]
    alone = scales[np.all(counts <= 1, axis=1)]
    words = f"Measured: {counts.shape[1]} seeds; "
    if len(last):
        words += f"all have {expected} plateaus up to s = {last[-1]:.2g}"
    else:
        words += f"at no scale all have {expected} plateaus"
    words += f", and one plateau, the end, from s = {alone[0]:.2g} on" if len(alone) else ""
    small = errors[0][np.isfinite(errors[0])]
    if small.size:
        largest = 100 * small.max()
        words += f"; at s = {scales[0]:.2g} drop times are off by {largest:.2g} % at most"
    return words + "."
