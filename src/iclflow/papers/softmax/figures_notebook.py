"""Figures of the notebooks of arXiv 2503.12734 that need no training: estimators over the length,
the dynamics of the large-context loss, norms of attention."""

import numpy as np

from ... import theory
from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import COLOURS, LEVEL, canvas, legend_above
from .. import Lab, figure
from .runs import DIM, NOISE, SIGNS, paper_task
from .runs_descent import run_numbers
from .runs_exact import REPORTED
from .runs_flows import PAIR, SMALL, stages_run
from .runs_notebook import (
    EST_LENGTHS,
    FIXED_DIM,
    FIXED_RATIO,
    NORM_OMEGAS,
    est_measured,
    est_theory,
    printed_estimators,
)
from .runs_sampling import attention_norms


@figure(
    "softmax/est-comparison",
    "Softmax attention: estimators over the context length (Est_comparison)",
    """The loss of the frozen pair (0.13, 3.45), of a plain and of a debiased gradient step of the
    same size, of the best single head of the large-context loss, and of ridge regression, which is
    Bayes, over the context length at d = 5, σ² = 0.1: exact formulas (dashed), and measured by the
    exact risk or on drawn contexts (circles). Crosses: the values that the newest notebook prints,
    on 50 000 sequences. (b) The same relative to the debiased step: below L = 24 (dotted) it is
    better than the plain one.""",
)
def est_comparison(lab: Lab) -> Drawing:
    """Losses of five predictors over the length."""
    drawn, panels = canvas("double", 2.9, 1, 2)
    a, b = panels
    expected, found, printed = est_theory(), est_measured(lab), printed_estimators()
    data: dict[str, np.ndarray] = {"length": np.asarray(EST_LENGTHS)}
    for i, name in enumerate(expected):
        plot_circles(a, EST_LENGTHS, found[name][0], COLOURS[i], name)
        plot_theory(a, EST_LENGTHS, expected[name], "theory" if i == 0 else None)
        newest = printed[name][1]
        a.plot(EST_LENGTHS, newest, "x", color="black", ms=3, zorder=6,
               label="printed" if i == 0 else None)  # fmt: skip
        data |= {name: found[name][0], f"theory {name}": expected[name], f"printed {name}": newest}
    for i, name in enumerate(("pair", "plain step", "debiased step")):
        place = list(expected).index(name)
        ratio = expected[name] / expected["debiased step"] - 1
        b.plot(EST_LENGTHS, 100 * ratio, color=COLOURS[place])
    b.axvline((DIM + DIM * NOISE) / (1 / (REPORTED[0] * REPORTED[1]) - 2), **LEVEL)
    a.set(xlabel="context length L", ylabel="loss", ylim=(0, None))
    b.set(xlabel="context length L", ylabel="above the debiased step, %")
    legend_above(drawn, a, columns=4)
    return Drawing(drawn, data, {"dim": DIM, "noise": NOISE, "pair": REPORTED})


@figure(
    "softmax/dynamic-approx",
    "Softmax attention: the dynamics of the large-context loss (Dynamic_approx)",
    """A pair of opposite heads from ω = μ = 0.001 by the gradient flow of the large-context loss:
    (a) ω and μ of the first head with the best μ for that ω, (b) the step μω of one head, (c) the
    loss. Circles: the flow of the library; dashed: theory. Dotted lines part the three stages of
    the notebook: ω and μ grow together up to t = 5.5; the loss falls up to 7.5; then ω falls and μ
    rises along the curve of the best μ.""",
)
def dynamic_approx(lab: Lab) -> Drawing:
    """ω, μ, their product and the loss of the pair over time."""
    run = stages_run(lab)
    omega, mu = (heads[:, 0] for heads in run_numbers(run))
    flow = theory.pair_flow(paper_task(), run.times, SMALL, SMALL, loss="large_context")
    late = run.times >= 7.5
    best = np.array([theory.optimal_mu(paper_task(), w * SIGNS)[0] for w in omega[late]])
    drawn, panels = canvas("double", 2.7, 1, 3)
    a, b, c = panels
    few = np.unique(np.geomspace(1, len(omega) - 1, 40).astype(int))
    shown = np.unique(
        np.concatenate([few, np.arange(50, 160, 12), np.arange(len(omega) - 8, len(omega))])
    )
    shown = shown[(shown > 0) & (shown < len(omega))]
    for panel, values, predicted, colour, name in (
        (a, omega, flow.w, COLOURS[0], "ω"), (a, mu, flow.mu, COLOURS[1], "μ"),
        (b, omega * mu, flow.w * flow.mu, COLOURS[2], "μω"),
        (c, run.losses, flow.loss, COLOURS[3], "loss"),
    ):  # fmt: skip
        plot_circles(panel, run.times[shown], values[shown], colour, name)
        plot_theory(panel, run.times[1:], predicted[1:], "theory" if name == "ω" else None)
    a.plot(run.times[late], best, color="0.45", lw=1.0, zorder=0, label="best μ at that ω")
    for panel in panels:
        for time in (5.5, 7.5):
            panel.axvline(time, **LEVEL)
        panel.set(xscale="log", xlabel="time", xlim=(1, None))
    a.set(ylabel="ω, μ of a head", yscale="log")
    b.set(ylabel="μω of a head")
    c.set(ylabel="large-context loss")
    legend_above(drawn, a, columns=4)
    data = {"time": run.times, "omega": omega, "mu": mu, "loss": np.asarray(run.losses)}
    data |= {"theory_omega": flow.w, "theory_mu": flow.mu, "theory_loss": flow.loss}
    return Drawing(drawn, data, PAIR)


@figure(
    "softmax/norm-histograms",
    "Softmax attention: how concentrated attention is (norm histograms)",
    """Histograms of the norm |p| of the attention weights of a head with key-query ωI over random
    contexts, for ω = 0.5 (left) and 0.35 (right). Upper row: at d = 5 the norm concentrates as the
    context grows. Lower row: at L/d = 8 it spreads towards 1 as d grows, where single tokens take
    all the attention. Dashed lines: the root of E|p|² by theory.""",
)
def norm_histograms(lab: Lab) -> Drawing:
    """Histograms of |p| over the sizes of the first commit."""
    drawn, panels = canvas("double", 4.2, 2, 2)
    count = lab.scaled(2000, 4000, 20_000)
    edges = np.linspace(0, 1, 61)
    data: dict[str, np.ndarray] = {"edges": edges}
    for row, sizes in enumerate((FIXED_DIM, FIXED_RATIO)):
        for column, omega in enumerate(NORM_OMEGAS):
            panel = panels[2 * row + column]
            for i, (length, dim) in enumerate(sizes):
                norms = lab.compute(attention_norms, omega, length, dim, count)
                heights = np.histogram(norms, edges, density=True)[0]
                panel.stairs(heights, edges, color=COLOURS[i], fill=True, alpha=0.35)
                panel.stairs(heights, edges, color=COLOURS[i], label=f"L = {length}, d = {dim}")
                task = theory.Setting(dim, length, NOISE)
                mean = theory.mean_square_attention(task, omega) ** 0.5
                panel.axvline(mean, color=COLOURS[i], ls="--", lw=1.2)
                data[f"omega {omega}, L {length}, d {dim}"] = heights
            panel.set(xlim=(0, 1), ylabel="density" if column == 0 else None)
            panel.set(xlabel="|p|" if row else None, title=None if row else f"ω = {omega}")
            panel.legend(loc="upper right", frameon=True)
    return Drawing(drawn, data, {"omega": NORM_OMEGAS, "contexts": count})
