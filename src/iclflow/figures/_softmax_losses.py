"""Figures of arXiv 2503.12734: losses of heads and of estimators, exact and approximate."""

import equinox as eqx
import jax
import numpy as np
from matplotlib.colors import LogNorm

from .. import theory
from ..claims import Lab
from ..claims._softmax_exact_runs import START, Path, exact_flow, one_head_loss, pair_loss
from ..claims._softmax_runs import CONTEXT, DIM, NOISE, structured
from ..risks import ExactSoftmaxRisk, exact_softmax_risk
from ..tasks import isotropic
from ._base import Drawing
from ._style import COLOURS, LEVEL, THEORY, canvas, legend_above, shades

_SIGNS = np.asarray([1.0, -1.0])
_SETTING = {"dim": DIM, "context": CONTEXT, "noise": NOISE}


def estimators(lab: Lab) -> Drawing:
    """Losses of estimators and of the best heads against the context length."""
    lengths = np.unique(np.geomspace(8, 1000, lab.scaled(5, 8, 40)).astype(int))
    heads = [theory.one_head_optimum(DIM, n, NOISE) for n in lengths]
    pairs = [theory.pair_optimum(DIM, n, NOISE) for n in lengths]
    curves = {
        "one head": [each.loss for each in heads],
        "pair": [each.loss for each in pairs],
        "debiased GD": [theory.debiased_optimum(DIM, n, NOISE).risk for n in lengths],
        "GD = linear attention": [
            theory.gradient_step_optimum(DIM, n, NOISE).risk for n in lengths
        ],
        "any heads, bound": [theory.any_heads_bound(DIM, n, NOISE) for n in lengths],
        "Bayes": [theory.bayes_risk_isotropic(DIM, int(n), NOISE) for n in lengths],
    }
    measured = [
        np.asarray([one_head_loss(h.omega, h.mu, n) for h, n in zip(heads, lengths)]),
        np.asarray([pair_loss(p.w, p.mu, n) for p, n in zip(pairs, lengths)]),
    ]
    figure, (a, b) = canvas("double", 2.9, 1, 2)
    for panel, subtract in ((a, 0.0), (b, NOISE)):
        for i, (name, values) in enumerate(curves.items()):
            style = {"color": COLOURS[i], "lw": 1.6, "label": name}
            panel.plot(lengths, np.asarray(values) - subtract, **style)
        for i, values in enumerate(measured):
            panel.plot(lengths, values - subtract, "o", ms=4, mfc="none", color=COLOURS[i])
    a.axhline(NOISE, **LEVEL)
    a.set(xscale="log", xlabel="context length L", ylabel="loss", ylim=(0, None))
    b.set(xscale="log", yscale="log", xlabel="context length L", ylabel="loss − σ²")
    b.plot([], [], "o", ms=4, mfc="none", color="0.4", label="exact risk")
    legend_above(figure, b, columns=4)
    data = {"length": lengths} | {k.replace(" ", "_"): np.asarray(v) for k, v in curves.items()}
    data |= {"measured_one_head": measured[0], "measured_pair": measured[1]}
    return Drawing(figure, data, {"dim": DIM, "noise": NOISE})


def landscape(lab: Lab) -> Drawing:
    """The loss of a pair over (ω, μ), approximate and exact, with the path of gradient flow."""
    count = lab.scaled(10, 20, 80)
    omega, mu = np.geomspace(0.02, 0.8, count), np.geomspace(0.5, 20, count)
    grid = np.stack(np.meshgrid(omega, mu), -1).reshape(-1, 2)
    exact = np.reshape([pair_loss(w, m) for w, m in grid], (count, count))
    approximate = np.reshape(
        [
            theory.softmax_large_context_loss(w * _SIGNS, m * _SIGNS, DIM, CONTEXT, NOISE)
            for w, m in grid
        ],
        (count, count),
    )
    run = pair_curve(lab)
    path = run.omega[:, 0], run.mu[:, 0]
    flow = theory.large_context_flow(run.times, 0.1 * _SIGNS, 0.1 * _SIGNS, DIM, CONTEXT, NOISE)
    figure, panels = canvas("double", 3.0, 1, 2, sharey=True)
    optimum = theory.pair_optimum(DIM, CONTEXT, NOISE)
    levels = NOISE + np.geomspace(0.1205, 2.0, 16)
    names = ("large-context approximation", "exact")
    for panel, values, name in zip(panels, (approximate, exact), names):
        shown = panel.contourf(
            omega,
            mu,
            np.clip(values, levels[0], levels[-1]),
            levels,
            norm=LogNorm(),
            cmap="viridis",
        )
        panel.set(xscale="log", yscale="log", xlabel="ω", title=name)
        panel.set(xlim=(omega[0], omega[-1]), ylim=(mu[0], mu[-1]))
    figure.colorbar(shown, ax=panels.tolist(), label="loss", format="%.2f")
    panels[0].plot(flow.omega[:, 0], flow.mu[:, 0], color=COLOURS[1], label="gradient flow")
    panels[1].plot(*path, color=COLOURS[1], label="gradient flow")
    panels[1].plot(optimum.w, optimum.mu, "*", ms=11, color="white", mec="black", label="optimum")
    panels[1].plot(0.13, 3.45, "s", ms=6, mfc="none", mec="white", mew=1.5,
                   label="values of a trained model")  # fmt: skip
    panels[0].set_ylabel("μ")
    legend_above(figure, panels[1])
    data = {"omega": omega, "mu": mu, "exact": exact, "approximate": approximate}
    data |= {"time": run.times, "path_omega": path[0], "path_mu": path[1]}
    return Drawing(figure, data, _SETTING | {"start": (0.1, 0.1)})


def manifold(lab: Lab) -> Drawing:
    """The pair along the exact gradient flow: landing, then drifting."""
    run = pair_curve(lab)
    omega, mu = run.omega[:, 0], run.mu[:, 0]
    late = run.times >= 100
    since = run.times[late] - run.times[late][0]
    drift = theory.slow_manifold(since, omega[late][0], DIM, CONTEXT, NOISE)
    optimum = theory.pair_optimum(DIM, CONTEXT, NOISE)
    figure, panels = canvas("double", 2.6, 1, 3)
    for panel, values, predicted, level, name in zip(
        panels,
        (omega, 2 * omega * mu, run.loss - optimum.loss),
        (drift.w, 2 * drift.w * drift.mu, drift.loss - optimum.loss),
        (optimum.w, optimum.gain, None),
        ("ω", "step 2μω", "loss − smallest"),
    ):
        panel.plot(run.times[1:], values[1:], label="exact gradient flow")
        panel.plot(run.times[late], predicted, label="slow manifold", **THEORY)
        if level is not None:
            panel.axhline(level, label="optimum", **LEVEL)
        panel.set(xscale="log", xlabel="time (τ)", ylabel=name)
    panels[0].set_yscale("log")
    panels[2].set(yscale="log", ylim=(1e-9, 1))
    legend_above(figure, panels[0])
    data = {"time": run.times, "omega": omega, "mu": mu, "loss": run.loss}
    data |= {"drift_time": run.times[late], "drift_omega": drift.w, "drift_loss": drift.loss}
    return Drawing(figure, data, _SETTING | {"start": (0.1, 0.1)})


def approximation(lab: Lab) -> Drawing:
    """How far the large-context loss and its corrected first order are from the exact loss."""
    count = lab.scaled(5, 10, 40)
    ratios, omegas = np.geomspace(1, 1000, count), np.geomspace(0.02, 0.6, count)
    figure, panels = canvas("double", 2.9, 1, 2, sharey=True)
    errors = np.zeros((2, count, count))
    for i, ratio in enumerate(ratios):
        length = ratio * DIM
        gain = theory.debiased_optimum(DIM, length, NOISE).step
        heads = np.stack([omegas, gain / (2 * omegas)], -1)
        truth = [pair_loss(w, m, length) for w, m in heads]
        for j, (w, m) in enumerate(heads):
            arguments = (w * _SIGNS, m * _SIGNS, DIM, length, NOISE)
            errors[0, i, j] = theory.softmax_large_context_loss(*arguments) / truth[j] - 1
            errors[1, i, j] = theory.softmax_first_order_loss(*arguments) / truth[j] - 1
    names = ("large-context approximation", "corrected first order in 1/L")
    for panel, values, name in zip(panels, errors, names):
        shown = panel.pcolormesh(
            ratios,
            omegas,
            np.abs(values).T,
            norm=LogNorm(1e-4, 1),
            cmap="viridis",
            shading="nearest",
        )
        lines = panel.contour(ratios, omegas, np.abs(values).T, (0.01, 0.1), colors="white")
        panel.clabel(lines, fmt={0.01: "1 %", 0.1: "10 %"}, fontsize=7)
        panel.set(xscale="log", yscale="log", xlabel="L / d", title=name)
    panels[0].set_ylabel("ω of the pair")
    figure.colorbar(shown, ax=panels.tolist(), label="relative error of the loss", extend="both")
    data = {"ratio": ratios, "omega": omegas, "large_context": errors[0], "first_order": errors[1]}
    return Drawing(figure, data, {"dim": DIM, "noise": NOISE, "step": "optimal debiased"})


def context(lab: Lab) -> Drawing:
    """Trained at one context length, tested at others."""
    dim, trained_at = 10, 20
    lengths = np.geomspace(10, 10_000, lab.scaled(7, 16, 40))
    task = isotropic(dim, trained_at, NOISE)
    pair = theory.pair_optimum(dim, trained_at, NOISE)
    head = theory.one_head_optimum(dim, trained_at, NOISE)
    models = {
        "softmax pair": structured([pair.w, -pair.w], [pair.mu, -pair.mu], dim),
        "one softmax head": structured([head.omega], [head.mu], dim),
    }
    figure, panels = canvas("single", 3.3)
    panel, data = panels[0], {"length": lengths}
    for i, (name, model) in enumerate(models.items()):
        exact = exact_softmax_risk(task, digits=8)
        values = np.asarray([_loss(exact.at_length(n), model) for n in lengths])
        panel.plot(lengths, values, "o", ms=4, mfc="none", color=COLOURS[i], label=name)
        data[name.replace(" ", "_")] = values
    step = theory.gradient_step_optimum(dim, trained_at, NOISE).step
    own = [theory.gradient_step_risk(step, dim, n, NOISE) for n in lengths]
    summed = [theory.gradient_step_risk(step * n / trained_at, dim, n, NOISE) for n in lengths]
    again = [theory.gradient_step_optimum(dim, n, NOISE).risk for n in lengths]
    linear = {"linear, divided by L′": own, "linear, plain sum": summed, "retrained at L′": again}
    for i, (name, values) in enumerate(linear.items()):
        panel.plot(lengths, values, color=shades(3)[i], lw=1.5, label=name)
        data[f"linear_{i}"] = np.asarray(values)
    panel.axhline(NOISE, **LEVEL)
    panel.axvline(trained_at, color="0.6", lw=0.8, ls="-.", label="L in training")
    panel.set(xscale="log", yscale="log", xlabel="context length in the test L′", ylabel="loss")
    panel.set_ylim(0.08, 20)
    legend_above(figure, panel, columns=2)
    return Drawing(figure, data, {"dim": dim, "trained_at": trained_at, "noise": NOISE})


def pair_curve(lab: Lab) -> Path:
    """Exact gradient flow of the pair from (0.1, 0.1), far into the slow manifold."""
    end = {"smoke": 1e3, "default": 1e6, "paper": 1e7}[lab.tier]
    times = np.append(0.0, np.geomspace(0.05, end, 120))
    return lab.once("softmax pair curve", lambda: exact_flow(START * _SIGNS, START * _SIGNS, times))


@eqx.filter_jit
def _loss(exact: ExactSoftmaxRisk, model) -> jax.Array:
    return exact(model)
