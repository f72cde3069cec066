"""Figures 1 to 4 of arXiv 2405.11751, from theory with the authors' parameters."""

import numpy as np

from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import canvas, legend_above, log_ticks, shades
from ...theory import diversity
from .. import Lab, figure
from .runs_data import DIM, NOISE, RATIO, data_errors

_CONTEXTS, _RIDGE = (1.0, 10.0, 100.0), 1e-5


@figure(
    "diversity/learning-curves",
    "Errors against the amount of data: double descent",
    """ICL (a) and IDG (b) errors in the proportional limit for κ = ½, ρ = .01, λ = 10⁻⁵ (lines),
    and least squares on drawn sequences at d = 12 and α = 1 (circles). Crosses are theory at this
    size, with the correction: near the peak the limit is too low. (c) A task of its own for each
    sequence, α = 10, and three penalties.""",
    number=1,
)
def learning_curves(lab: Lab) -> Drawing:
    """Curves over τ, with simulation at small size."""
    tau, found = np.geomspace(0.1, 4, 400), data_errors(lab)
    curves = [diversity.proportional_limit(tau, alpha, RATIO, NOISE, _RIDGE) for alpha in _CONTEXTS]
    penalties = (1e-5, 0.1, 1.0)
    ridges = [diversity.proportional_limit(tau, 10.0, np.inf, NOISE, p).test for p in penalties]
    drawn, panels = canvas("double", 2.7, 1, 3)
    for alpha, curve, colour in zip(_CONTEXTS, curves, shades(3)):
        for panel, errors in zip(panels, (curve.test, curve.in_distribution)):
            panel.plot(tau, errors, color=colour, label=f"α = {alpha:g}")
    real = np.isfinite(found.corrected)
    plot_circles(panels[0], found.share[real], found.test[real], shades(3)[0], "drawn, d = 12")
    panels[0].plot(found.share[real], found.corrected[real], "x", color="0.3", ms=4,
                   label="corrected theory")  # fmt: skip
    plot_circles(panels[1], found.share[real], found.inside[real], shades(3)[0])
    for penalty, errors, colour in zip(penalties, ridges, shades(3)):
        panels[2].plot(tau, errors, color=colour, label=f"λ = {penalty:g}")
    panels[2].legend()
    for panel, name in zip(panels, ("ICL error", "IDG error", "ICL error")):
        panel.set(xscale="log", yscale="log", xlabel="τ = n/d²", ylabel=name)
        log_ticks(panel.xaxis, (0.1, 0.3, 1, 3))
    legend_above(drawn, panels[0])
    data = {"tau": tau, "alpha": np.array(_CONTEXTS), "penalty": np.array(penalties)}
    data |= {"icl": np.array([c.test for c in curves]), "icl_penalty": np.array(ridges)}
    data |= {"idg": np.array([c.in_distribution for c in curves])}
    data |= {f"drawn_{name}": value for name, value in found._asdict().items()}
    return Drawing(drawn, data, {"tasks": RATIO, "noise": NOISE, "dim": DIM, "penalty": _RIDGE})


@figure(
    "diversity/context-length",
    "Errors against the length of contexts",
    """IDG (a; τ = ½, ρ = ½) and ICL errors (b; τ = ½, ρ = .1; c; τ = 20, ρ = ½) in the proportional
    limit without penalty, for several numbers of tasks κ. Circles: the smallest error, where there
    is one.""",
    number=2,
)
def context_length(lab: Lab) -> Drawing:
    """Curves over α, with their minima."""
    del lab  # theory alone
    context = np.geomspace(0.1, 1000, 2000)
    settings = (
        (0.5, 0.5, (0.1, 0.3, 0.5, 0.7, 2.0), "in_distribution", "IDG error"),
        (0.5, 0.1, (0.2, 0.4, 0.5, 0.6, 1.5), "test", "ICL error"),
        (20.0, 0.5, (0.25, 0.75, 1.0, 1.1, 2.0), "test", "ICL error"),
    )
    drawn, panels = canvas("double", 2.6, 1, 3)
    data: dict[str, np.ndarray] = {"alpha": context}
    for panel, letter, (tau, rho, tasks, field, name) in zip(panels, "abc", settings):
        for kappa, colour in zip(tasks, shades(len(tasks))):
            errors = getattr(diversity.proportional_limit(tau, context, kappa, rho), field)
            panel.plot(context, errors, color=colour, label=f"κ = {kappa:g}")
            best = int(np.argmin(errors))
            if best < len(context) - 1:
                plot_circles(panel, context[best], errors[best], colour)
            data[f"{letter}_{kappa:g}"] = errors
        panel.set(xscale="log", yscale="log", xlabel="α = N/d", ylabel=name)
        log_ticks(panel.xaxis, (0.1, 1, 10, 100, 1000))
        log_ticks(panel.yaxis, (0.5, 1, 2, 5))
        lowest = min(data[f"{letter}_{kappa:g}"].min() for kappa in tasks)
        panel.set(ylim=(lowest / 1.1, 6))
        panel.legend(fontsize=6)
    return Drawing(drawn, data, {"panels": [list(s[:3]) for s in settings]})


@figure(
    "diversity/longer-contexts",
    "Where longer contexts hurt",
    """The context length α at which the ICL error is smallest, for τ = ½ (a) and τ = 20 (b),
    without penalty. White: the error falls up to α = 1000. To the left of κ = min(τ, 1) (dashed,
    theory) it diverges in proportion to α.""",
    number=3,
)
def longer_contexts(lab: Lab) -> Drawing:
    """Maps of the best context over κ and ρ."""
    del lab  # theory alone
    tasks, noise = np.linspace(0.1, 2.1, 81), np.geomspace(0.01, 1.0, 60)
    context = np.geomspace(0.01, 1000, 300)
    drawn, panels = canvas("double", 2.7, 1, 2)
    data: dict[str, np.ndarray] = {"tasks": tasks, "noise": noise}
    images = []
    for panel, tau in zip(panels, (0.5, 20.0)):
        errors = diversity.proportional_limit(
            tau, context[:, None, None], tasks, noise[:, None]
        ).test
        best = np.argmin(errors, axis=0)
        shown = np.where(best < len(context) - 1, np.log10(context[best]), np.nan)
        images.append(panel.pcolormesh(tasks, noise, shown, vmin=-0.5, vmax=3, rasterized=True))
        plot_theory(panel, [min(tau, 1)] * 2, [0.01, 1])
        panel.set(yscale="log", xlabel="κ = K/d", ylabel="ρ", title=f"τ = {tau:g}")
        data[f"best_{tau:g}"] = shown
    drawn.colorbar(images[0], ax=list(panels), label="log₁₀ α*")
    return Drawing(drawn, data, {"context": [0.01, 1000]})


@figure(
    "diversity/task-gap",
    "What fresh tasks cost, against the number of tasks",
    """g_task, the ICL error above the IDG error, in the proportional limit without penalty, ρ = .01
    and τ = .2α. One layer of linear attention needs about as many tasks as dimensions; beyond, the
    gap falls as 1/κ (dashed).""",
    number=4,
)
def task_gap(lab: Lab) -> Drawing:
    """The gap over κ for several contexts."""
    del lab  # theory alone
    tasks, contexts = np.geomspace(0.08, 95.7, 200), (6.0, 10.0, 20.0, 40.0)
    drawn, (panel,) = canvas("single", 2.6)
    gaps = []
    for alpha, colour in zip(contexts, shades(4)):
        gaps.append(diversity.proportional_limit(0.2 * alpha, alpha, tasks, 0.01).gap)
        panel.plot(tasks, gaps[-1], color=colour, label=f"α = {alpha:g}")
    many = tasks[tasks > 3]
    law = gaps[-1][-1] * tasks[-1] / many
    plot_theory(panel, many, law, "∝ 1/κ")
    panel.set(xscale="log", yscale="log", xlabel="κ = K/d", ylabel="ICL − IDG error")
    log_ticks(panel.xaxis, (0.1, 1, 10, 100))
    panel.legend()
    data = {"tasks": tasks, "alpha": np.array(contexts), "gap": np.array(gaps), "law": law}
    return Drawing(drawn, data | {"law_tasks": many}, {"noise": 0.01, "data": ".2α"})
