"""Figures of arXiv 2402.19442 on softmax itself: its regimes, and what it regularises."""

from collections.abc import Callable

import numpy as np

from ...drawing import Axes, Drawing
from ...drawing.marks import plot_circles, plot_theory, remark
from ...drawing.style import COLOURS, LEVEL, canvas, legend_above, log_ticks
from ...tasks import isotropic
from ...theory import multitask
from .. import Lab, figure
from .figures_losses import A_TASK, LENGTH, PENALTIES, RATIOS
from .runs_curved import sample_softmax

_LENGTHS = (100, 10_000)
_SHORT = (20, 100)
_DIM = 10


@figure(
    "multitask/regimes",
    "Softmax: exponential and saturated attention",
    """Attention p over L normal scores of standard deviation a, exact (lines) and by Monte
    Carlo (circles with standard errors, most of them smaller than the circles). (a, b) E|p|²
    relative to e^{a²}/L, which is 1 for small a, and 0.63 (a) and 0.71 (b) at √(½ log L);
    dashed with its first correction. From √(2 log L) on single points win. (c) The signal that
    a head returns, a(1 − E|p|²), and (d) its variance E|p|², with the laws a and e^{a²}/L for
    long contexts (dashed): beyond the exponential regime the signal saturates, and with it the
    variance.""",
)
def regimes(lab: Lab) -> Drawing:
    """How concentrated attention is, against the deviation of its scores."""
    draws = lab.scaled(200, 2000, 20_000)
    figure, panels = canvas("double", 4.9, 2, 2)
    data: dict[str, np.ndarray] = {}
    for panel, length, colour in zip(panels, _LENGTHS, COLOURS):
        edges = multitask.regime_edges(length)
        end = 1.45 * edges.saturated
        fine, marked = np.linspace(0.0, end, 200), np.linspace(0.0, 0.97 * end, 15)[1:]
        exact = np.asarray([multitask.concentration(a, length) for a in fine])
        first = fine[fine < 1.25 * edges.exponential]
        order = np.asarray([multitask.exponential_concentration(a, length) for a in first])
        # Long contexts get fewer draws: they cost more, and fluctuate less.
        count = min(draws, 6_000_000 // length)
        sampled = [sample_softmax(a, length, count, seed) for seed, a in enumerate(marked)]
        sampled = np.asarray(sampled).reshape(len(marked), 4)
        scale = lambda a, length=length: length * np.exp(-(a**2))
        panel.plot(fine, scale(fine) * exact, color=colour, label=f"exact, L = {length:,}")
        plot_theory(panel, first, np.where(order > 0, scale(first) * order, np.nan))
        panel.errorbar(marked, scale(marked) * sampled[:, 0], scale(marked) * sampled[:, 1],
                       fmt="o", mfc="none", color=colour, zorder=6)  # fmt: skip
        low = scale(end) * exact[-1]
        panel.set(yscale="log", ylim=(low / 2, (2 / low) ** 0.15), xlim=(0, end))
        panel.set(ylabel="L E|p|² exp(−a²)")
        _name_regimes(panel, edges, end)
        for below, values, error in zip(panels[2:], sampled[:, [2, 0]].T, sampled[:, [3, 1]].T):
            below.errorbar(marked, values, error, fmt="o", mfc="none", color=colour, zorder=6)
        panels[2].plot(fine, fine * (1 - exact), color=colour)
        panels[3].plot(fine, exact, color=colour)
        rising = fine[fine**2 < np.log(length)]
        plot_theory(panels[3], rising, np.exp(rising**2) / length)
        name = f"L{length}"
        data |= {f"deviation_{name}": fine, f"concentration_{name}": exact}
        data |= {f"expansion_deviation_{name}": first, f"expansion_{name}": order}
        data |= {f"sampled_deviation_{name}": marked, f"sampled_{name}": sampled}
        data |= {f"edges_{name}": np.asarray(edges)}
    plot_theory(panels[2], [0, 2.5], [0, 2.5])
    for panel in panels:
        panel.set_xlabel("standard deviation of scores a")
    panels[2].set(ylabel=r"signal $E\,\Sigma_\ell\,p_\ell s_\ell$")
    panels[3].set(ylabel="variance E|p|²", yscale="log")
    plot_theory(panels[1], [], [], "for long contexts")
    panels[1].errorbar([], [], [], fmt="o", mfc="none", color="0.4", label="Monte Carlo")
    legend_above(figure, panels[0], panels[1])
    settings = {"contexts": _LENGTHS, "draws": draws, "seed": "0, 1, …"}
    return Drawing(figure, data, settings | {"edges": "√(½ log L), √(2 log L)"})


def _name_regimes(panel: Axes, edges: multitask.RegimeEdges, end: float) -> None:
    """Draws the edges of the regimes, and names the regimes between them."""
    ends = (0.0, *edges, end)
    for low, high, name in zip(ends, ends[1:], ("exponential", "crossover", "saturated")):
        panel.annotate(name, ((low + high) / 2, 0.99), xycoords=("data", "axes fraction"),
                       ha="center", va="top")  # fmt: skip
    for edge, name in zip(edges, (r"$\sqrt{\frac{1}{2}\log L}$", r"$\sqrt{2\log L}$")):
        panel.axvline(edge, ymax=0.9, **LEVEL)
        remark(panel, name, (edge, panel.get_ylim()[0]), (3, 3), va="bottom", color="0.3")


@figure(
    "multitask/regularisation",
    "Softmax: implicit regularisation",
    """(a) The part of the signal that comes back, on average: one head per task (1/(1 +
    eφd̄/L)), ridge regression with two penalties, counted for each sample, and Bayes; lines
    for large d and L, circles sampled at L = 100. (b) The penalty with which ridge returns as
    much as one head per task: in proportion to d̄/L, about 5.4 times that of Bayes for small
    d̄/L and 4.4 for large ones; the penalty 5 at d̄ = 1.1 L. Signal and noise of a task are 1.
    (c) The score variance dω² and (d) the concentration E|p|² of the best single head (d = 10,
    exact) relative to no noise. That noise favours spread-out attention, as a summary of the
    paper says, is so for L = 20, by some per cent; for L = 100 noise makes attention
    sharper.""",
)
def regularisation(lab: Lab) -> Drawing:
    """How much attention shrinks, beside ridge, and how noise changes its spread."""
    ratios = np.geomspace(*RATIOS, 120)
    marked = np.geomspace(*RATIOS, lab.scaled(5, 9, 15))
    at = [A_TASK.blocks(LENGTH * ratio) for ratio in ratios]
    same = [multitask.same_shrinkage(each) for each in at]
    step = np.asarray([each.step[0] for each in same])
    bayes = lambda ratio: ratio * A_TASK.blocks(1.0).noise[0]  # z = γσ²/(λd)
    ridges: dict[str, tuple[Callable, object, object]] = {
        f"ridge {p:g}": (lambda _, p=p: p, colour, "-") for p, colour in zip(PENALTIES, COLOURS[1:])
    }
    ridges["Bayes"] = (bayes, "0.25", "-.")
    figure, (a, b, c, d) = canvas("double", 4.9, 2, 2)
    a.plot(ratios, step, color=COLOURS[0], label="one head per task", zorder=4)
    data = {"ratio": ratios, "step": step, "marked_ratio": marked}
    draws = lab.scaled(2, 8, 40)
    spectra = [_spectra(ratio, draws) for ratio in marked]
    dots = np.asarray([_sample_head(ratio, 250 * draws) for ratio in marked])
    plot_circles(a, marked, dots, COLOURS[0])
    data["sampled_step"] = dots
    for name, (penalty, colour, dashes) in ridges.items():
        line = np.asarray([_ridge_gain(penalty(ratio), ratio) for ratio in ratios])
        dots = np.asarray([np.mean(x / (x + penalty(r))) for r, x in zip(marked, spectra)])
        a.plot(ratios, line, color=colour, ls=dashes, lw=1.6, label=name)
        plot_circles(a, marked, dots, colour)
        b.plot(ratios, penalty(ratios) + 0 * ratios, color=colour, ls=dashes, lw=1.6)
        key = name.replace(" ", "_")
        data |= {f"returned_{key}": line, f"sampled_{key}": dots}
    plot_circles(a, [], [], "0.4", "sampled, L = 100")
    penalty = np.asarray([each.penalty[0] for each in same])
    data |= {"same_penalty": penalty, "same_time": np.asarray([each.time[0] for each in same])}
    b.plot(ratios, penalty, color=COLOURS[0])
    plot_theory(b, ratios, (2 * np.e - 1) * ratios, "(eφ − 1) d̄/L")
    for panel, name in ((a, "part of the signal returned"), (b, "equivalent ridge penalty")):
        panel.set(xscale="log", xlabel="d̄ / L", ylabel=name)
        log_ticks(panel.xaxis, (0.05, 0.1, 0.2, 0.5, 1, 2, 5))
    a.set_ylim(0, 1.03)
    b.set_yscale("log")
    _draw_spread(c, d, lab, data)
    legend_above(figure, a, b, c, columns=4)
    settings = {"context": LENGTH, "signal": "1 per task", "noise": 1.0, "penalties": PENALTIES}
    settings |= {"draws": draws, "seed": 0, "dim_of_spread": _DIM, "contexts_of_spread": _SHORT}
    return Drawing(figure, data, settings)


def _draw_spread(c: Axes, d: Axes, lab: Lab, data: dict[str, np.ndarray]) -> None:
    """Score variance and concentration of the best head against noise, relative to none."""
    noises = np.append(0.0, np.geomspace(0.03, 10, lab.scaled(4, 10, 24)))
    data["noise"] = noises
    shown = np.where(noises > 0, noises, 0.01)
    for length, colour in zip(_SHORT, COLOURS[4:]):
        found = [multitask.best_head_spread(isotropic(_DIM, length, noise)) for noise in noises]
        for panel, part in ((c, "score_variance"), (d, "concentration")):
            values = np.asarray([getattr(each, part) for each in found])
            panel.plot(shown, values / values[0], "o-", color=colour, mfc="none", lw=1.4,
                       label=f"best head, L = {length}")  # fmt: skip
            data[f"{part}_L{length}"] = values
    for panel, name in ((c, "score variance dω²"), (d, "concentration E|p|²")):
        panel.axhline(1.0, **LEVEL)
        panel.set(xscale="log", xlabel="noise σ² (signal 1)", ylabel=f"{name},\nrelative to σ = 0")
        panel.set_xticks([0.01, 0.1, 1, 10], ["0", "0.1", "1", "10"])
        panel.set_ylim(0.925, 1.055)


def _ridge_gain(penalty: float, ratio: float) -> float:
    """1 − zm(z), the part of the signal that ridge returns, by the Marchenko–Pastur law."""
    linear = 1 - ratio + penalty
    return 1 - 2 * penalty / (linear + np.hypot(linear, 2 * np.sqrt(ratio * penalty)))


def _spectra(ratio: float, draws: int) -> np.ndarray:
    """Eigenvalues of the covariances of sampled contexts, including zeros."""
    rng, size = np.random.default_rng(0), round(LENGTH * ratio)
    inputs = rng.normal(size=(draws, size, LENGTH)) / LENGTH**0.5
    if size > LENGTH:  # the same eigenvalues, but for zeros
        inputs = inputs.swapaxes(1, 2)
    values = np.maximum(np.linalg.eigvalsh(inputs @ inputs.swapaxes(1, 2)), 0.0)
    return np.pad(values, ((0, 0), (0, size - values.shape[1])))


def _sample_head(ratio: float, draws: int) -> float:
    """The part of the signal that the head of a task returns on sampled contexts: μ E[r Σps]/d."""
    rng, size = np.random.default_rng(0), round(LENGTH * ratio)
    omega, mu = (float(x[0, 0]) for x in multitask.limit_heads(A_TASK.blocks(size)))
    length, scores = np.sqrt(rng.chisquare(size, draws)), rng.normal(size=(draws, LENGTH))
    weight = np.exp(omega * length[:, None] * scores)
    means = np.sum(weight * scores, 1) / np.sum(weight, 1)
    return float(mu * np.mean(length * means) / size)
