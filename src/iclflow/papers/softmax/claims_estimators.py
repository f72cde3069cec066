"""Claims on arXiv 2503.12734 that compare heads with the estimators of statistics, one by one and
in a table of results, as it is stated and as it is measured."""

import numpy as np

from ... import theory
from ...analysis import Sampled
from ...risks import exact_softmax_risk, risk
from ...tasks import isotropic
from .. import Checks, Lab, claim, once
from .._sampling import drawn_losses, ridge
from .runs import CONTEXT, DIM, NOISE, SETTING, SIGNS, paper_task, structured_heads
from .runs_exact import best_linear
from .runs_sampling import best_pair, heads, sampled_distances, sampled_losses, step

_FIGURES = ("softmax/estimators",)
_DRAWN = "Monte Carlo over inputs, with β and all noise averaged over by hand: "
# Where centring is measured: (d, L, σ²).
_CENTRED = ((5, 40, 0.1), (10, 20, 0.1), (4, 6, 1.0))
# Where linear attention is compared with the pair: (d, L).
_COMPARED = ((DIM, CONTEXT), (10, 20), (1, 10))
# Where the distance from Bayes is measured: (d, L, σ²), over L/d and then over noise.
_DISTANCES = (
    (5, 5, 0.1), (5, 40, 0.1), (5, 400, 0.1), (5, 40, 0.01), (5, 40, 1.0), (5, 40, 10.0),
    (20, 2, 0.1),
)  # fmt: skip

# Stated errors of several softmax heads, one head, linear attention and Bayes, by (d, L).
STATED = {
    (10, 20): (0.052, 0.089, 0.061, 0.048),
    (20, 40): (0.031, 0.058, 0.037, 0.028),
    (10, 100): (0.011, 0.023, 0.014, 0.010),
}
PREDICTORS = ("several heads", "one head", "linear attention", "Bayes")


@claim(
    "softmax/centring-costs-a-sample",
    """Debiased gradient descent with L samples has exactly the risk of plain gradient descent with
    L − 1, each with its best step: with inputs of mean zero, centring is a small loss.""",
    source="notebook, Analysis; derived in docs/theory/softmax.md",
    tier="smoke",
    tolerance_reason=_DRAWN + "four standard errors, each below 0.2 % of the loss; the change of L "
    "by one is 1.3 % to 2.7 % here.",
    figures=_FIGURES,
)
def centring(lab: Lab) -> Checks:
    """The risk of the debiased step, drawn, against the closed form of the plain one at L − 1."""
    count = lab.scaled(80_000, 100_000, 1_000_000)
    lab.note(settings=_CENTRED, contexts=count)
    values, errors = np.array([_centred_loss(lab, *at, count) for at in _CENTRED]).T
    best = lambda *setting: theory.gradient_step_optimum(isotropic(*setting)).risk
    risk_with = lambda less: np.array([best(d, n - less, noise) for d, n, noise in _CENTRED])
    other = (values - risk_with(0)) / errors
    yield lab.sampled("risk, against that of L − 1", risk_with(1), values, errors)
    name = "least distance from that of L, in standard errors"
    yield lab.at_least(name, 4.0, min(other))


@once
def _centred_loss(lab: Lab, dim: int, length: int, noise: float, count: int) -> Sampled:
    """The loss of the best debiased step, drawn."""
    weights = step(theory.debiased_optimum(isotropic(dim, length, noise)).step, centred=True)
    return sampled_losses({"step": weights}, dim, length, noise, count)["step"]


@claim(
    "softmax/linear-attention-better",
    """The best linear attention is one plain gradient step of size L/(L + A), A = d + 1 + dσ², and
    slightly better than the best pair of softmax heads: by 1.3 % at the paper's sizes. Where the
    context is short the order depends on d: by 2.5 % at d = 10, L = 20, but 0.9 % worse than the
    pair at d = 1, L = 10.""",
    source="notebook, Analysis (0.2410 and 0.2414), corrected",
    tier="smoke",
    tolerance_reason="""The risk is quadratic and its minimum a linear solve: rounding is all there
    is. Exact losses of the best pair by quadratures of theory and of the library, which share no
    code and agree to eight digits: 1e-7.""",
    figures=_FIGURES,
)
def linear_attention(lab: Lab) -> Checks:
    """The minimum of the exact risk of linear attention, beside the best pair."""
    lab.note(**SETTING, attention="linear, divided by L", risk="exact")
    model = lab.compute(best_linear, DIM, CONTEXT)
    exact = risk(paper_task(), model, "exact")
    loss, slope = exact.value_and_gradient(model)
    largest = max(np.abs(slope.circuits.U).max(), np.abs(slope.circuits.v).max())
    best = theory.gradient_step_optimum(paper_task())
    yield lab.close("step", best.step * np.eye(DIM), model.coefficients(), 1e-9)
    yield lab.close("largest slope there", 0.0, largest, 1e-9, scale=1.0)
    yield lab.close("loss", best.risk, float(loss), 1e-9)
    compared = [_pair_over_linear(lab, *at) for at in _COMPARED]
    predicted, measured = np.array(compared).T
    lab.note(compared=_COMPARED, pair_over_linear=measured.round(5))
    yield lab.relative("loss of the pair / loss of linear attention", predicted, measured, 1e-7)


def _pair_over_linear(lab: Lab, dim: int, length: int) -> tuple[float, float]:
    """The ratio of the smallest losses by theory, and as the library has it."""
    task = isotropic(dim, length, NOISE)
    best, linear = theory.pair_optimum(task), lab.compute(best_linear, dim, length)
    pair = structured_heads(best.w * SIGNS, best.mu * SIGNS, dim)
    softmax = float(exact_softmax_risk(task, digits=8)(pair))
    expected = best.loss / theory.gradient_step_optimum(task).risk
    return expected, softmax / float(risk(task, linear, "exact")(linear))


@claim(
    "softmax/near-bayes",
    "The trained model is near Bayes-optimal.",
    source="abstract ('up to a proportional factor'), read without it; summary: 0.052, 0.048",
    tier="smoke",
    tolerance_reason="""As stated, an excess risk 8 % above that of Bayes; 10 % is given. The ratio
    is drawn to 1 %.""",
    figures=_FIGURES,
    corrected_by="softmax/distance-from-bayes",
    overread=True,
)
def near_bayes(lab: Lab) -> Checks:
    """Excess risk of the best debiased step over that of Bayes at the paper's sizes."""
    lab.note(**SETTING, contexts=_count(lab))
    ratio = _excess_ratio(lab, DIM, CONTEXT, NOISE)
    yield lab.close("excess / excess of Bayes", 0.052 / 0.048, ratio.value, 0.1)


@claim(
    "softmax/distance-from-bayes",
    """The debiased step that heads implement has an excess risk above that of Bayes by a factor
    that the noise sets: 1 + 1/σ² + 1/(dσ²) for L ≫ d. It is near optimal where noise is large (1.03
    at d = 5, L = 40, σ² = 10) or the context far shorter than d (1.05 at L/d = 0.1), and far from
    it at low noise (9.9 at the paper's sizes, 91 at σ² = 0.01).""",
    source="abstract, made exact; derived in docs/theory/softmax.md",
    tier="smoke",
    tolerance_reason=_DRAWN + "four standard errors, each at most 0.7 % of the ratio. The limit of "
    "long contexts is left by 1/L: 3 % at L/d = 80.",
    figures=_FIGURES,
)
def distance_from_bayes(lab: Lab) -> Checks:
    """The ratio of excess risks over L/d and noise, drawn, against its exact value."""
    found = [_excess_ratio(lab, *setting) for setting in _DISTANCES]
    exact = np.array([theory.excess_over_bayes(isotropic(*setting)) for setting in _DISTANCES])
    lab.note(settings=_DISTANCES, contexts=_count(lab), ratios=[round(r.value, 3) for r in found])
    values, errors = np.array(found).T
    dim, _, noise = _DISTANCES[2]
    limit = 1 + 1 / noise + 1 / (dim * noise)
    yield lab.sampled("ratio", exact, values, errors)
    yield lab.relative("limit of L ≫ d, at L/d = 80", limit, values[2], 0.05)


def _count(lab: Lab) -> int:
    """How many contexts are drawn."""
    return lab.scaled(10_000, 20_000, 400_000)


@once
def _excess_ratio(lab: Lab, dim: int, length: int, noise: float) -> Sampled:
    """Excess of the best debiased step over that of Bayes on the same contexts."""
    best = theory.debiased_optimum(isotropic(dim, length, noise)).step
    predictors = {"debiased": step(best, centred=True), "bayes": ridge(dim * noise)}
    drawn = drawn_losses(predictors, dim, length, noise, _count(lab))
    return Sampled.ratio(drawn["debiased"] - noise, drawn["bayes"] - noise)


@claim(
    "softmax/ridge-minus-bias",
    "The pair predicts with the ridge estimator minus a bias term.",
    source="summary",
    tier="smoke",
    tolerance_reason="""A name: the estimator whose predictions are nearest, and 5 % of the
    prediction, which would pass as an approximation. Distances are drawn to 1 % of themselves.""",
    figures=_FIGURES,
    corrected_by="softmax/debiased-gradient-descent",
)
def ridge_minus_bias(lab: Lab) -> Checks:
    """The distance of the best pair's predictions from ridge regression and from gradient steps."""
    found = lab.compute(_pair_distances)
    lab.note(**SETTING, distances=found)
    name, nearest = "ridge regression", min(found, key=lambda each: found[each])
    yield lab.equal("nearest estimator", name, nearest, wrong="a plain step")
    yield lab.close("distance from ridge regression", 0.0, found[name], 0.05, scale=1.0)


def _pair_distances() -> dict[str, float]:
    predictors = {
        "the pair": best_pair(paper_task()),
        "a plain step": step(1.0),
        "a debiased step": step(1.0, centred=True),
        "ridge regression": ridge(DIM * NOISE),
    }
    return sampled_distances(predictors, DIM, CONTEXT, NOISE, 5000)


@once
def table_losses(lab: Lab, dim: int, length: int) -> dict[str, Sampled]:
    """Losses of the best predictor of each kind, drawn on the same contexts."""
    task = isotropic(dim, length, NOISE)
    single = theory.one_head_optimum(task)
    plain_step = step(theory.gradient_step_optimum(task).step)
    one_head = heads((single.omega,), (single.mu,))
    predictors = (best_pair(task), one_head, plain_step, ridge(dim * NOISE))
    return sampled_losses(dict(zip(PREDICTORS, predictors)), dim, length, NOISE, _count(lab))


_ROW_REASON = """5 % of each error, which is stated to two digits and measured as excess over a
    noise of 0.1 (none is stated). The ratio of linear attention to softmax heads is drawn to 1 %,
    and stated beyond what any number of heads can have at any noise and in any units."""


def _row(lab: Lab, dim: int, length: int) -> Checks:
    """Stated errors beside measured ones, and a ratio that no choice of units changes."""
    errors = multi, _, linear, _ = STATED[dim, length]
    found = table_losses(lab, dim, length)
    excess = np.array([found[name].value for name in PREDICTORS]) - NOISE
    possible = theory.linear_over_softmax_bound(isotropic(dim, length))
    lab.note(
        dim=dim, context=length, noise=NOISE, contexts=_count(lab),
        stated=dict(zip(PREDICTORS, errors)),
        measured_excess=dict(zip(PREDICTORS, excess.round(4).tolist())),
        largest_possible_ratio=round(possible, 4),
    )  # fmt: skip
    for name, stated, measured in zip(PREDICTORS, errors, excess):
        yield lab.relative(f"error of {name}", stated, float(measured), 0.05)
    name = "linear attention / several heads"
    yield lab.close(name, linear / multi, excess[2] / excess[0], 0.02)


@claim(
    "softmax/results-table-10-20",
    """At d = 10 and n = 20 the error is 0.052 with several softmax heads, 0.089 with one,
    0.061 with linear attention and 0.048 for Bayes.""",
    source="summary",
    tier="smoke",
    tolerance_reason=_ROW_REASON,
    figures=_FIGURES,
    corrected_by="softmax/results-table",
)
def row_10_20(lab: Lab) -> Checks:
    """The row d = 10, n = 20 of the table."""
    return _row(lab, 10, 20)


@claim(
    "softmax/results-table-20-40",
    """At d = 20 and n = 40 the error is 0.031 with several softmax heads, 0.058 with one,
    0.037 with linear attention and 0.028 for Bayes.""",
    source="summary",
    tier="smoke",
    tolerance_reason=_ROW_REASON,
    figures=_FIGURES,
    corrected_by="softmax/results-table",
)
def row_20_40(lab: Lab) -> Checks:
    """The row d = 20, n = 40 of the table."""
    return _row(lab, 20, 40)


@claim(
    "softmax/results-table-10-100",
    """At d = 10 and n = 100 the error is 0.011 with several softmax heads, 0.023 with one,
    0.014 with linear attention and 0.01 for Bayes.""",
    source="summary",
    tier="smoke",
    tolerance_reason=_ROW_REASON,
    figures=_FIGURES,
    corrected_by="softmax/results-table",
)
def row_10_100(lab: Lab) -> Checks:
    """The row d = 10, n = 100 of the table."""
    return _row(lab, 10, 100)


@claim(
    "softmax/results-table",
    """Losses of the best pair, the best single head, linear attention and Bayes at the sizes of the
    results table are those of their exact formulas: multi-head softmax attention halves the excess
    of a single head and is slightly worse than linear attention.""",
    source="summary, corrected; derived in docs/theory/softmax.md",
    tier="smoke",
    tolerance_reason="""Monte Carlo over inputs, with β and all noise averaged over by hand: four
    standard errors, each at most 0.5 % of the loss.""",
    figures=_FIGURES,
)
def table(lab: Lab) -> Checks:
    """All rows, in standard errors."""
    lab.note(settings=list(STATED), noise=NOISE, contexts=_count(lab))
    for dim, length in STATED:
        task, found = isotropic(dim, length, NOISE), table_losses(lab, dim, length)
        heads_alone = theory.pair_optimum(task).loss, theory.one_head_optimum(task).loss
        others = theory.gradient_step_optimum(task).risk, theory.bayes_risk_isotropic(task)
        exact = np.array([*heads_alone, *others])
        values, errors = np.array([found[name] for name in PREDICTORS]).T
        yield lab.sampled(f"losses at d = {dim}, n = {length}", exact, values, errors)
