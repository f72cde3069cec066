"""L/d × noise: the loss of trained attention and of estimators over Bayes."""

import numpy as np

from ... import theory
from ...drawing import Drawing
from ...drawing.panels import cells
from ...drawing.style import COLOURS, THEORY, canvas, log_ticks
from ...tasks import isotropic
from .. import Swept, diagram
from .._diagram import values

# More cells than this leave no room for two numbers in each.
_MOST_CELLS = 6
# Names in the table and in the legend.
_KINDS = {
    "fresh_loss": "trained pair",
    "gradient_step_risk": "gradient step",
    "debiased_step_risk": "debiased step",
    "fresh_bayes": "Bayes",
}


@diagram(
    "softmax",
    "L/d × noise: trained attention and estimators over Bayes",
    """A pair of softmax heads on isotropic regression, d = 5, trained on the large-context loss
    and tested on 20 000 fresh sequences. (a) Its excess loss, beyond the noise σ², over that
    of Bayes; in brackets what theory gives for the best debiased gradient step. (b) Excess
    losses at one noise: the pair, one gradient step of the best size, plain and debiased
    (exact, by the project's estimators), and Bayes (on the same sequences); dashed: theory
    at every length, exact at finite d and L.""",
    smoke={
        "base": {"flow": {"steps": 8000}},
        "axes": {"task.context": [10], "task.noise": [0.1, 1.0]},
    },
    paper_tier={
        "axes": {
            "task.context": [5, 8, 10, 15, 20, 30, 40, 60, 80, 120, 160],
            "task.noise": values(0.01, 1.0, 13, log=True),
        }
    },
)
def ratio(swept: Swept) -> Drawing:
    """Excess losses over that of Bayes, and of each estimator along L/d."""
    dim = swept.config.task.dim
    rows = swept.rows("task.context", "task.noise", *_KINDS, "fresh_error")
    lengths, noises = (sorted({row[i] for row in rows}) for i in (0, 1))
    table = {(row[0], row[1]): np.asarray(row[2:], float) for row in rows}
    grid = np.asarray([[table[length, noise] for length in lengths] for noise in noises])
    excess = grid[..., :4] - np.asarray(noises)[:, None, None]
    over = excess[..., 0] / excess[..., 3]
    expected = np.asarray(
        [[theory.excess_over_bayes(isotropic(dim, n, noise)) for n in lengths] for noise in noises]
    )
    figure, (a, b) = canvas("double", 3.1, 1, 2)
    few = max(over.shape) <= _MOST_CELLS
    texts = [
        [f"{x:.3g}\n({y:.3g})" if few else "" for x, y in zip(*pair)]
        for pair in zip(over, expected)
    ]
    ratios = [f"{n / dim:g}" for n in lengths]
    image = cells(a, np.log(over), ratios, [f"{noise:.2g}" for noise in noises], texts)
    bar = figure.colorbar(image, ax=a, label="excess loss over that of Bayes")
    shown = [t for t in (1, 1.5, 2, 3, 5, 10, 20, 50, 100) if over.min() <= t <= over.max()]
    bar.set_ticks(np.log(shown).tolist(), labels=[f"{t:g}" for t in shown])
    a.set(xlabel="L/d", ylabel="noise σ²")
    # Of two noises the lower one, where estimators differ more.
    middle = len(noises) // 2 if len(noises) > 2 else 0
    curves = _draw_lines(b, dim, np.asarray(lengths), noises[middle], excess[middle])
    data = {"length": np.asarray(lengths), "noise": np.asarray(noises), "over_bayes": over}
    data |= {"theory_over_bayes": expected, "excess": excess, "fresh_error": grid[..., 4]} | curves
    return Drawing(figure, data, {"dim": dim}, _findings(data))


def _draw_lines(panel, dim: int, lengths: np.ndarray, noise: float, excess) -> dict:
    """The excess loss of each estimator at one noise, and theory at every length."""
    fine = np.unique(np.geomspace(lengths[0], lengths[-1], 40).round().astype(int)).tolist()
    tasks = [isotropic(dim, n, noise) for n in fine]
    curves = {
        "theory_step": [theory.gradient_step_optimum(task).risk - noise for task in tasks],
        "theory_debiased": [theory.debiased_optimum(task).risk - noise for task in tasks],
        "theory_bayes": [theory.bayes_risk_isotropic(task) - noise for task in tasks],
    }
    for i, curve in enumerate(curves.values()):
        panel.loglog(np.asarray(fine) / dim, curve, **THEORY, label=None if i else "theory")
    for i, (label, marker) in enumerate(zip(_KINDS.values(), "osD^")):
        size = 7 if i == 0 else 4  # the pair lies on the debiased step
        panel.plot(lengths / dim, excess[:, i], marker, mfc="none", ms=size, mew=1.1,
                   color=COLOURS[i], label=label)  # fmt: skip
    panel.set(xlabel="L/d", ylabel=f"excess loss, σ² = {noise:g}")
    log_ticks(panel.xaxis, [n / dim for n in lengths])
    log_ticks(panel.yaxis, [t for t in (1e-3, 1e-2, 0.03, 0.1, 0.3, 1) if t >= excess.min()])
    panel.legend(loc="lower left")
    return {"theory_length": np.asarray(fine)} | {
        name: np.asarray(curve) for name, curve in curves.items()
    }


def _findings(data: dict[str, np.ndarray]) -> str:
    """What was measured, as the end of the caption."""
    pair, debiased = data["excess"][..., 0], data["excess"][..., 2]
    low, high = data["over_bayes"].min(), data["over_bayes"].max()
    worst = np.max(data["fresh_error"] / pair)
    return (
        f"Measured: the excess of the pair is {low:.3g} to {high:.3g} times that of Bayes, and "
        f"{np.min(pair / debiased):.3f} to {np.max(pair / debiased):.3f} times that of the best "
        f"debiased step, with a standard error of {100 * worst:.1f} % or less."
    )
