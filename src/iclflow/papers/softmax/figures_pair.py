"""Figures of arXiv 2503.12734: the loss of two opposite heads, exact and approximate."""

from typing import Any

import numpy as np
from scipy.interpolate import RectBivariateSpline

from ... import theory
from ...drawing import Drawing
from ...drawing.marks import plot_theory
from ...drawing.style import COLOURS, LEVEL, canvas, legend_above, log_ticks
from .. import Lab, figure
from .runs import DIM, NOISE, SETTING, SIGNS, paper_task
from .runs_exact import REPORTED, START, exact_map, pair_curve, pair_loss

_SETTING = SETTING | {"start_omega": START, "start_mu": START}
# Narrow bands in the flat valley, wide ones on its slopes.
_LEVELS = (0.22, 0.23, 0.24, 0.25, 0.27, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0)
_LEVELS_NAMED = (0.22, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0)
# Ranges of the map of errors: L/d and ω.
_RATIOS, _OMEGAS = (1.0, 1000.0), (0.02, 0.6)


@figure(
    "softmax/landscape",
    "Softmax attention: the landscape of a pair, approximate and exact",
    """Loss of two heads (ω, μ), (−ω, −μ) on d = 5, L = 40, σ² = 0.1: (a) the
    large-context approximation and (b) the exact loss at finite L, each with its own gradient
    flow from (0.1, 0.1) up to the same time. The approximation has its infimum at ω → 0; the
    exact loss has a minimum (star), at the end of a flat valley along which trained models
    are still on their way (square: reported values). The floor of the valley runs along the
    weights whose step 2μω is the best one of debiased gradient descent (dashed), which such
    heads become as ω → 0. Bands are narrower in the valley.""",
)
def landscape(lab: Lab) -> Drawing:
    """The loss of a pair over (ω, μ), approximate and exact, with the path of gradient flow."""
    from matplotlib.colors import BoundaryNorm

    count = lab.scaled(20, 100, 200)
    omega, mu = np.geomspace(0.02, 0.8, count), np.geomspace(0.08, 20, count)
    exact, approximate = exact_map(omega, mu), _large_context_map(omega, mu)
    run = pair_curve(lab)
    start = START * SIGNS
    flow = theory.large_context_flow(paper_task(), run.times, start, start)
    paths = {
        "approximate": (flow.omega[:, 0], flow.mu[:, 0]),
        "exact": (run.omega[:, 0], run.mu[:, 0]),
    }
    figure, panels = canvas("double", 3.1, 1, 2, sharey=True)
    names = ("large-context approximation", "exact")
    for panel, values, path, name in zip(panels, (approximate, exact), paths.values(), names):
        bands = BoundaryNorm(_LEVELS, 256, extend="max")
        look: Any = {"norm": bands, "cmap": "viridis", "extend": "max"}
        shown = panel.contourf(omega, mu, values, _LEVELS, **look)
        panel.plot(*path, color="white", lw=3.4)  # a rim, to be seen on every band
        panel.plot(*path, color=COLOURS[1], label="gradient flow")
        panel.plot(START, START, "o", ms=6, color="white", mec="black", label="its start")
        panel.set(xscale="log", yscale="log", xlabel="ω", title=name)
        panel.set(xlim=(omega[0], omega[-1]), ylim=(mu[0], mu[-1]))
        log_ticks(panel.xaxis, (0.02, 0.05, 0.1, 0.2, 0.5))
        log_ticks(panel.yaxis, (0.1, 0.3, 1, 3, 10))
    figure.colorbar(shown, ax=panels.tolist(), label="loss", ticks=_LEVELS_NAMED, format="%.2f")
    optimum = theory.pair_optimum(paper_task())
    panels[1].plot(optimum.w, optimum.mu, "*", ms=11, color="white", mec="black", zorder=4,
                   label="optimum (theory)")  # fmt: skip
    panels[1].plot(*REPORTED, "s", ms=5.5, color="white", mec="black", zorder=4,
                   label="reported, trained")  # fmt: skip
    step = theory.debiased_optimum(paper_task()).step
    plot_theory(panels[1], omega, step / (2 * omega), "debiased step (theory)")
    panels[0].set_ylabel("μ")
    legend_above(figure, panels[1])
    data = {"omega": omega, "mu": mu, "exact": exact, "approximate": approximate}
    data |= {"time": run.times, "optimum": np.asarray([optimum.w, optimum.mu])}
    data["debiased_step"] = np.asarray(step)
    for name, path in paths.items():
        data |= {f"path_omega_{name}": path[0], f"path_mu_{name}": path[1]}
    settings = {"reported": REPORTED, "end": float(run.times[-1]), "risk": "exact, eight digits"}
    return Drawing(figure, data, _SETTING | settings)


def _large_context_map(omega: np.ndarray, mu: np.ndarray) -> np.ndarray:
    """At every (μ, ω): the loss is quadratic in μ, so that three values of μ give all."""
    loss = lambda w, m: theory.softmax_large_context_loss(paper_task(), w * SIGNS, m * SIGNS)
    nodes = mu[[0, len(mu) // 2, -1]]
    values = np.asarray([[loss(w, m) for w in omega] for m in nodes])
    return np.vander(mu, 3) @ np.linalg.solve(np.vander(nodes, 3), values)


@figure(
    "softmax/manifold",
    "Softmax attention: landing fast, drifting slowly",
    """Exact gradient flow of the pair from (0.1, 0.1). (a) Attention ω, (b) the step 2μω, (c)
    the loss above the smallest one. The step is right after a few units of time; from then
    on the pair drifts along the slow manifold (dashed: its own equation, started at t = 100)
    to the optimum (dotted).""",
)
def manifold(lab: Lab) -> Drawing:
    """The pair along the exact gradient flow: landing, then drifting."""
    run = pair_curve(lab)
    omega, mu = run.omega[:, 0], run.mu[:, 0]
    late = run.times >= 100  # on the manifold to a part in 10³
    since = run.times[late] - run.times[late][0]
    drift = theory.slow_manifold(paper_task(), since, omega[late][0])
    optimum = theory.pair_optimum(paper_task())
    figure, panels = canvas("double", 2.6, 1, 3)
    for panel, values, predicted, level, name in zip(
        panels,
        (omega, 2 * omega * mu, run.loss - optimum.loss),
        (drift.w, 2 * drift.w * drift.mu, drift.loss - optimum.loss),
        (optimum.w, optimum.gain, None),
        ("ω", "step 2μω", "loss − smallest"),
    ):
        panel.plot(run.times[1:], values[1:], label="gradient flow of the exact loss")
        plot_theory(panel, run.times[late], predicted, "slow manifold (theory)")
        if level is not None:
            panel.axhline(level, label="optimum (theory)", **LEVEL)
        panel.set(xscale="log", xlabel="time", ylabel=name)
    panels[0].set_yscale("log")
    log_ticks(panels[0].yaxis, (0.07, 0.1, 0.2, 0.3, 0.5))
    panels[2].set(yscale="log", ylim=(1e-9, 2))
    legend_above(figure, panels[0])
    data = {"time": run.times, "omega": omega, "mu": mu, "loss": run.loss}
    data |= {"drift_time": run.times[late], "drift_omega": drift.w, "drift_loss": drift.loss}
    settings = {"end": float(run.times[-1]), "manifold_from": float(run.times[late][0])}
    return Drawing(figure, data, _SETTING | settings)


@figure(
    "softmax/approximation",
    "Softmax attention: where the approximate losses are right",
    """Relative error of the loss of a pair, with the best debiased step, over the
    context length and the strength of attention: (a) the large-context approximation, which
    is too low (blue) but for strong attention on short contexts, and (b) the corrected first
    order in 1/L, which is too high, most where attention is strong, both against the exact
    loss at finite L. Lines are errors of ±1 % and ±10 %.""",
)
def approximation(lab: Lab) -> Drawing:
    """How far the large-context loss and its corrected first order are from the exact loss."""
    from matplotlib.colors import SymLogNorm
    from matplotlib.ticker import NullLocator

    count = lab.scaled(14, 16, 40)
    fine = lab.scaled(30, 70, 160)
    ratios, omegas = np.geomspace(*_RATIOS, fine), np.geomspace(*_OMEGAS, fine)
    truth = _exact_losses(ratios, omegas, count)
    errors = np.zeros((2, fine, fine))
    for i, length in enumerate(DIM * ratios):
        setting = theory.Setting(DIM, length, NOISE)  # lengths that are not whole
        for j, (w, m) in enumerate(zip(omegas, _mu(length, omegas))):
            arguments = (setting, w * SIGNS, m * SIGNS)
            errors[0, i, j] = theory.softmax_large_context_loss(*arguments) / truth[i, j] - 1
            errors[1, i, j] = theory.softmax_first_order_loss(*arguments) / truth[i, j] - 1
    figure, panels = canvas("double", 2.9, 1, 2, sharey=True)
    names = ("large-context approximation", "corrected first order in 1/L")
    # Places of the labels, on parts of the lines that are straight.
    places = (((6.0, 0.04), (200.0, 0.04)), ((7.0, 0.33), (9.0, 0.04)))
    for panel, values, name, where in zip(panels, errors, names, places):
        scale = SymLogNorm(1e-3, linscale=0.5, vmin=-1, vmax=1)
        look: Any = {"norm": scale, "cmap": "RdBu_r", "shading": "gouraud", "rasterized": True}
        shown = panel.pcolormesh(ratios, omegas, values.T, **look)
        panel.set(xscale="log", yscale="log", xlabel="L / d", title=name)
        percent = {-0.1: "−10 %", -0.01: "−1 %", 0.01: "1 %", 0.1: "10 %"}
        black: Any = {"colors": "black", "linewidths": 1.2, "linestyles": "solid"}
        lines = panel.contour(ratios, omegas, values.T, list(percent), **black)
        for text in panel.clabel(lines, fmt=percent, fontsize=8, inline_spacing=2, manual=where):
            # Upright lines are read upwards, whichever way the contour was followed.
            text.set_rotation(90 if abs(text.get_rotation()) % 180 > 80 else text.get_rotation())
        log_ticks(panel.yaxis, (0.02, 0.05, 0.1, 0.2, 0.5))
        panel.yaxis.set_minor_locator(NullLocator())
    panels[0].set_ylabel("ω of the pair")
    bar = figure.colorbar(
        shown, ax=panels.tolist(), label="approximate / exact loss − 1", extend="max"
    )
    bar.set_ticks([-1, -0.1, -0.01, 0, 0.01, 0.1, 1])
    bar.ax.set_yticklabels(["−100 %", "−10 %", "−1 %", "0", "1 %", "10 %", "100 %"])
    bar.ax.yaxis.set_minor_locator(NullLocator())
    data = {"ratio": ratios, "omega": omegas, "exact": truth}
    data |= {"large_context": errors[0], "first_order": errors[1]}
    settings = {"dim": DIM, "noise": NOISE, "step": "optimal debiased", "exact_nodes": count}
    return Drawing(figure, data, settings | {"ratios": _RATIOS, "omegas": _OMEGAS})


def _mu(length: float, omegas: np.ndarray) -> np.ndarray:
    """The μ that gives the pair the best step of debiased gradient descent."""
    return theory.debiased_optimum(theory.Setting(DIM, length, NOISE)).step / (2 * omegas)


def _exact_losses(ratios: np.ndarray, omegas: np.ndarray, count: int) -> np.ndarray:
    """The exact loss on a fine grid, from `count` × `count` points and a spline of order 5 between.

    In logarithms the loss is so smooth that 16 points leave an error below 1e-4.
    """
    nodes = np.geomspace(*_RATIOS, count), np.geomspace(*_OMEGAS, count)
    losses = [
        [pair_loss(w, m, DIM * ratio) for w, m in zip(nodes[1], _mu(DIM * ratio, nodes[1]))]
        for ratio in nodes[0]
    ]
    spline = RectBivariateSpline(np.log(nodes[0]), np.log(nodes[1]), np.log(losses), kx=5, ky=5)
    return np.exp(spline(np.log(ratios), np.log(omegas)))
