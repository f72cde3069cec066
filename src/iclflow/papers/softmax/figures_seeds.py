"""Figure of arXiv 2503.12734: where random initialisations of two and of three heads end."""

import numpy as np

from ... import theory
from ...analysis import Patterns
from ...drawing import Axes, Drawing
from ...drawing.marks import plot_bars, plot_theory
from ...drawing.style import COLOURS, LEVEL, THEORY, canvas, legend_above
from ...trajectory import Trajectory
from .. import Lab, figure
from .checks_trained import is_one_sign, is_zero_sum
from .runs import SIGNS, blind_ensemble, final_patterns, paper_task, seed_settings
from .runs_heads import CANCELS

_COUNTS = (2, 3)


@figure(
    "softmax/seeds",
    "Softmax attention: heads of one sign stay at a larger loss",
    """Random initialisations of merged heads whose attention does not see labels, trained by
    Adam; steps, batch and seeds are in the settings. (a) Where two heads end: on the curve of
    pairs with the best μ (blue, theory), or, if both grow with the same sign, near the single
    best head, whose μ they share (black, theory for multiples of the identity). (b) Why
    trapped heads lie beside that line: their key-query matrices W are no multiples of the
    identity. Each has an antisymmetric part, a quarter to two fifths of its norm, opposite in
    the two heads. With it the loss is about 0.6 % below that of the shared head, and four
    times as many steps of four times the batch leave it there. (c) The imbalance of the
    output-value entries along training, recorded at the points: median and 10 to 90 % of
    seeds; below the dotted line, 5 %, they count as cancelled. (d) The share of seeds that
    end with one sign, with binomial standard errors, and the chance that H random signs are
    equal (dashed).""",
)
def seeds(lab: Lab) -> Drawing:
    """Where random initialisations of merged heads end."""
    runs = {count: blind_ensemble(lab, count) for count in _COUNTS}
    found = final_patterns(lab, 2)
    trapped = np.asarray([is_one_sign(each) for each in found])
    ends = np.asarray([[(h.omega, h.mu) for h in each.heads] for each in found])
    turns = np.asarray([_antisymmetric_share(np.asarray(run.final.circuits.U)) for run in runs[2]])
    sums = np.asarray([_sums(run) for run in runs[2]])
    figure, panels = canvas("double", 4.6, 2, 2)
    a, b, c, d = panels
    groups = ((False, "both signs", COLOURS[0]), (True, "one sign", COLOURS[1]))
    for flag, name, colour in groups:
        if not np.any(trapped == flag):
            continue
        omega, mu = ends[trapped == flag].reshape(-1, 2).T
        style = {"ls": "none", "marker": "o", "ms": 3, "mfc": "none", "color": colour}
        a.plot(omega, mu, label=name, **style)
        b.plot(np.abs(omega), turns[trapped == flag].ravel(), **style)
        low, middle, high = np.quantile(sums[trapped == flag], (0.1, 0.5, 0.9), axis=0)
        c.fill_between(runs[2][0].times, low, high, color=colour, alpha=0.2, lw=0)
        c.plot(runs[2][0].times, middle, color=colour, lw=1.0, marker="o", ms=3)
    best = theory.one_head_optimum(paper_task())
    curve = _slow_manifold()
    for sign in (1, -1):
        a.plot(sign * curve[0], sign * curve[1], color=COLOURS[0], lw=1.0, ls=THEORY["ls"],
               zorder=0, label="pairs with the best μ (theory)" if sign > 0 else None)  # fmt: skip
        label = "one head, shared (theory)" if sign > 0 else None
        plot_theory(a, [sign * best.omega] * 2, [0, sign * best.mu], label)
    a.set(xlabel="ω", ylabel="μ", xlim=(-0.7, 0.7), ylim=(-2.3, 2.3))
    b.plot(best.omega, 0, "kX", ms=6, clip_on=False)
    b.annotate("one head, shared\n(theory)", (best.omega, 0), (-7, 0), va="center", ha="right",
               textcoords="offset points")  # fmt: skip
    b.set(xlabel="|ω|", ylabel="antisymmetric share of W", ylim=(-0.06, None))
    c.axhline(CANCELS, **LEVEL)
    c.set(xlabel="step", ylabel="|Σμ| / Σ|μ|", yscale="log", ylim=(2e-4, 2))
    data = {"omega_mu": ends, "one_sign": trapped, "antisymmetric_share": turns}
    data |= {"step": runs[2][0].times, "zero_sum": sums}
    data |= {"theory_pair_omega": curve[0], "theory_pair_mu": curve[1]}
    data |= _draw_shares(d, [final_patterns(lab, count) for count in _COUNTS])
    legend_above(figure, a)
    keys = {"gradients": "labels integrated out", "seed_weights": 3, "seed_sequences": 4}
    return Drawing(figure, data, seed_settings(lab, _COUNTS) | keys)


def _draw_shares(panel: Axes, finals: list[list[Patterns]]) -> dict[str, np.ndarray]:
    """The share of seeds of one sign for each number of heads, and that of random signs."""
    lost = np.asarray([np.mean([is_one_sign(each) for each in found]) for found in finals])
    kept = np.asarray([np.mean([is_zero_sum(each) for each in found]) for found in finals])
    expected = np.asarray([theory.one_sign_share(count) for count in _COUNTS])
    error = np.sqrt(lost * (1 - lost) / len(finals[0]))
    panel.errorbar(_COUNTS, lost, error, fmt="o", ms=4.5, capsize=3, lw=1.3, color=COLOURS[1],
                   label="measured ± standard error")  # fmt: skip
    plot_bars(panel, _COUNTS, expected, 0.3, r"$2^{1-H}$ (theory)")
    panel.set(xlabel="heads H", ylabel="share of one sign", xticks=_COUNTS)
    panel.set(xlim=(1.5, 3.5), ylim=(0, 0.8))
    panel.legend(loc="upper right")
    return {"share_one_sign": lost, "share_both": kept, "theory_share": expected}


def _slow_manifold() -> tuple[np.ndarray, np.ndarray]:
    """ω of a pair, and the μ that is best for it by the exact loss."""
    omega = np.geomspace(0.2, 0.68, 25)  # the range of the panel
    integrals = [theory.head_integrals(paper_task(), w * SIGNS) for w in omega]
    return omega, np.asarray([theory.optimal_mu_from(paper_task(), at)[0] for at in integrals])


def _antisymmetric_share(matrices: np.ndarray) -> np.ndarray:
    """‖W − Wᵀ‖ / 2‖W‖ of each head."""
    turned = (matrices - np.swapaxes(matrices, 1, 2)) / 2
    return np.linalg.norm(turned, axis=(1, 2)) / np.linalg.norm(matrices, axis=(1, 2))


def _sums(run: Trajectory) -> np.ndarray:
    """|Σμ| / Σ|μ| along a run."""
    mu = np.asarray(run.models.circuits.v)
    return np.abs(mu.sum(1)) / np.abs(mu).sum(1)
