"""The figure on how stochastic gradient descent leaves one head per task."""

import numpy as np

from ... import theory
from ...drawing import Drawing
from ...drawing.marks import plot_theory
from ...drawing.style import COLOURS, canvas, legend_above, level_names, levels, shades
from ...tasks import isotropic
from ...theory import multitask
from .. import Lab, figure
from .runs_escape import (
    GONE,
    Escapes,
    Setting,
    escape_runs,
    escape_setting,
    paper_tier,
    seed_of,
    trained,
)

# Imbalances of the flows that are drawn beside the runs, as a share of μ at the start.
_IMBALANCES = (1e-2, 1e-4, 0.0)
# Rate, batch and end of the runs whose loss is drawn at the default tier.
_QUIET, _QUIET_END = (0.01, 40), 64.0


@figure(
    "multitask/escape",
    "Several tasks: training on data leaves one head per task",
    """Three heads on three equal tasks, full K, Q, V and O from a balanced start, trained by plain
    stochastic gradient descent on drawn sequences. (a) The loss of the runs at each rate η and
    batch B (mean over the runs, smoothed), between the plateau of one head per task and the
    bound for three heads, both exact at this length; flow of the closed form with a relative
    imbalance of 10⁻², 10⁻⁴ and 0 of O and V beside it (dashed): in balance it never leaves. (b)
    Weights of heads on their own label and on the others, in single runs. (c) When heads have
    reached −0.1 on the labels of others: medians and quartiles of all heads, and theory (line,
    band), from the computed noise of slopes. At the default tier blocks have 6 coordinates and
    L = 40, and (a, b) have a larger batch than (c); at the paper tier, with a decade of rates
    and of batches, all are as in Figure 1.""",
)
def escape(lab: Lab) -> Drawing:
    """Loss and heads over time, and the time of leaving."""
    setting, runs = escape_setting(lab), escape_runs(lab)
    # Small batches show times of leaving, but hide the plateau in noise: two runs with less.
    shown = runs if paper_tier(lab) else [trained(lab, setting, *_QUIET, 2, _QUIET_END)]
    figure, (a, b, c) = canvas("double", 3.0, 1, 3, width_ratios=(1.25, 1.0, 1.0))
    data: dict[str, np.ndarray] = {}
    _draw_losses(a, setting, shown, data)
    _draw_weights(b, shown[0], data)
    _draw_times(c, lab, setting, runs, data)
    legend_above(figure, a, b, c, columns=4)
    settings = {
        "size": setting.size, "tasks": 3, "heads": 3, "context": setting.length, "noise": 0.0,
        "rates": [run.rate for run in runs], "batches": [run.batch for run in runs],
        "runs": len(runs[0].losses), "left_at": -GONE,
    }  # fmt: skip
    return Drawing(figure, data, settings)


def _draw_losses(panel, setting: Setting, runs: list[Escapes], data: dict) -> None:
    own = theory.one_head_optimum(isotropic(setting.size, setting.length, 0.0))
    plateau = setting.width * own.loss
    bound = multitask.finite_bound(setting.task, 3).loss
    end = float(runs[0].times[-1])
    for run, colour in zip(runs, shades(len(runs))):
        smooth = _smoothed(run.losses.mean(0))
        panel.plot(run.times, smooth, color=colour, lw=1.2, label=_name(run))
        data |= {f"time_{run.rate:g}_{run.batch}": run.times}
        data |= {f"loss_{run.rate:g}_{run.batch}": run.losses}
    fine = np.linspace(0.0, end, 301)
    for delta in _IMBALANCES:
        imbalance = multitask.relative_imbalance(setting.values[1], delta)
        imbalance = np.where(np.eye(3) > 0, 0.0, imbalance)
        flow = multitask.spectral_flow(
            setting.task, fine, *setting.values, setting.width, value_imbalance=imbalance
        )
        plot_theory(panel, fine, flow.loss)
        data |= {f"flow_loss_{delta:g}": flow.loss}
    plot_theory(panel, [], [], "theory")
    levels(panel, [plateau, bound])
    names = [f"one head\nper task {plateau:.2f}", f"bound {bound:.2f}"]
    level_names(panel, [plateau, bound], names)
    data |= {"flow_time": fine, "plateau": np.asarray(plateau), "bound": np.asarray(bound)}
    top = 1.1 * setting.width
    panel.set(xlim=(0, end), ylim=(0.8 * bound, top), yscale="log", xlabel="time", ylabel="loss")
    ticks = [tick for tick in (2, 3, 4, 6, 8, 10, 15, 20, 30) if 0.8 * bound < tick < top]
    panel.set_yticks(ticks, [str(tick) for tick in ticks])
    panel.minorticks_off()


def _smoothed(losses: np.ndarray, points: int = 7) -> np.ndarray:
    """Means over neighbouring points; fewer at the ends."""
    weight = np.convolve(np.ones_like(losses), np.ones(points), "same")
    return np.convolve(losses, np.ones(points), "same") / weight


def _draw_weights(panel, run: Escapes, data: dict) -> None:
    mu, others = run.mu, run.others
    for n in range(min(3, len(mu))):
        for head in range(3):
            first = n == 0 and head == 0
            panel.plot(run.times, mu[n, :, head, head], color=COLOURS[0], lw=0.8,
                       label="weight on the own label" if first else None)  # fmt: skip
            panel.plot(run.times, others[n, :, head], color=COLOURS[1], lw=0.8,
                       label="mean weight on other labels" if first else None)  # fmt: skip
    panel.axhline(0.0, color="0.6", lw=0.7)
    panel.set(xlim=(0, run.times[-1]), xlabel="time", ylabel="μ")
    data |= {"mu": mu, "mu_time": run.times}


def _draw_times(panel, lab: Lab, setting: Setting, runs: list[Escapes], data: dict) -> None:
    seed, shares = seed_of(lab, setting, 80.0), np.array([0.25, 0.5, 0.75])
    ratios = [run.ratio for run in runs]
    fine = np.geomspace(min(ratios) / 12, max(ratios) * 2, 30)
    at = lambda ratio: multitask.leaving_quantiles(seed, ratio, shares).mean(1)
    low, middle, high = np.array([at(ratio) for ratio in fine]).T
    panel.fill_between(1 / fine, low, high, color="0.88", lw=0)
    plot_theory(panel, 1 / fine, middle)
    for run, colour in zip(runs, shades(len(runs))):
        times = np.quantile(run.left(), shares)
        bars = [[times[1] - times[0]], [times[2] - times[1]]]
        panel.errorbar([1 / run.ratio], times[1:2], bars, fmt="s", color=colour, mfc="none", lw=1)
        data |= {f"left_{run.rate:g}_{run.batch}": run.left()}
    panel.set(xscale="log", xlabel="batch over rate, B/η", ylabel="time of leaving")
    panel.minorticks_off()
    data |= {"theory_ratio": fine, "theory_quantiles": np.array([low, middle, high])}


def _name(run: Escapes) -> str:
    return f"η = {run.rate:g}, B = {run.batch}"
