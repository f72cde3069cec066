"""Claims on arXiv 2503.12734 on contexts that are longer than those of training."""

from collections.abc import Callable

import numpy as np

from ... import theory
from ...analysis import Sampled
from ...tasks import isotropic
from .. import Checks, Lab, claim, once
from .runs import CONTEXT, DIM, HEADS, NOISE, SIGNS, paper_task
from .runs_exact import LENGTHS, best_linear, linear_lengths, one_head_loss, pair_loss
from .runs_notebook import (
    EST_LENGTHS,
    HEAD_SEQUENCES,
    TESTED,
    head_errors,
    length_losses,
    printed_heads,
    trained_heads,
    trained_theory,
)
from .runs_sampling import best_pair, sampled_losses
from .runs_seeds import note_training, shown_heads

_FIGURES = ("softmax/context",)
# d, and the lengths of training and of the test, in a stated comparison.
_STATED = (10, 20, 100)
_NOTES = {
    "dim": DIM, "noise": NOISE, "trained_at": CONTEXT, "tested_at": LENGTHS, "risk": "exact"
}  # fmt: skip


@claim(
    "softmax/longer-contexts",
    """Heads trained at one context length go on improving at longer ones, from 10 to 10 000,
    towards σ² + (1 − Σμω)²: softmax attention averages.""",
    source="abstract (arXiv)",
    tolerance_reason="""Two quadratures that share no code agree to 1e-8 at every length. At L = 10
    000 the limit and its correction in 1/L leave 1e-7.""",
    figures=_FIGURES,
)
def longer_contexts(lab: Lab) -> Checks:
    """The best pair and the best single head of L = 40 at other lengths, by the exact risk."""
    lab.note(**_NOTES)
    best, single = theory.pair_optimum(paper_task()), theory.one_head_optimum(paper_task())
    tasks = [paper_task(length) for length in LENGTHS]
    expected = [theory.pair_loss(task, best.w, best.mu) for task in tasks]
    alone = [theory.kernel_regression_risk(task, single.omega, single.mu) for task in tasks]
    weights = best.w * SIGNS, best.mu * SIGNS
    lab.note(limit=theory.infinite_length_loss(paper_task(), *weights))
    pairs = lab.compute(_losses_at_lengths, pair_loss, best.w, best.mu)
    ones = lab.compute(_losses_at_lengths, one_head_loss, single.omega, single.mu)
    yield lab.close("loss of the pair", np.array(expected), pairs, 1e-7)
    yield lab.close("loss of one head", np.array(alone), ones, 1e-7)
    nearly = theory.softmax_first_order_loss(tasks[-1], *weights)
    name = "loss of the pair at L = 10 000, by the limit and its 1/L"
    yield lab.close(name, nearly, pairs[-1], 1e-6)
    name = "largest step of either from one length to the next"
    yield lab.at_most(name, 0.0, max(np.diff(pairs).max(), np.diff(ones).max()))


def _losses_at_lengths(loss: Callable[..., float], omega: float, mu: float) -> np.ndarray:
    return np.array([loss(omega, mu, length) for length in LENGTHS])


@claim(
    "softmax/trained-lengths",
    """Free heads trained at L = 40 and tested at 10 to 100 have the exact loss of structured heads
    with their ω and μ: of one head, or of a pair for two, four and eight.""",
    source="code: plots.ipynb, 'Head_num_comparison', for heads of our own",
    figures=("softmax/head-num-comparison",),
    tolerance_reason="""The loss of each seed is a difference to a model of known loss on the same
    sequences; entries of the matrices that theory leaves out cost up to 1 %, weak heads up to 1 %
    more at L = 10, where attention matters most: 2 %, of medians over seeds that end in the
    pattern. The short training has one, two and four heads.""",
)
def trained_lengths(lab: Lab) -> Checks:
    """Losses of trained heads at other lengths, by sampling, and of structured heads by theory."""
    note_training(lab, shown_heads(lab, *HEADS))
    lab.note(tested_at=TESTED)
    for heads in shown_heads(lab, *HEADS):
        expected, found = length_losses(lab, heads, TESTED)
        yield lab.relative(f"loss at L = {TESTED}, H = {heads}", expected, found, 0.02)


@claim(
    "softmax/printed-lengths",
    """The errors that the authors print for their trained models, at lengths from 10 to 100, are
    those of structured heads with the ω of these models and the best μ for it: of one head, and of
    a pair for two, four and eight heads.""",
    source="""code: plots.ipynb, 'Head_num_comparison', whose first and newest commit print 76
    values each; the newest counts the noise of 0.1 twice""",
    figures=("softmax/head-num-comparison",),
    tolerance_reason="""Each value is a mean over 20 000 sequences (one head: 100 000). Its standard
    error is computed here, 1.3 % for a pair at L = 10, of which the value for two heads there,
    0.5730, is 2.1 below the exact one: four are allowed for. What the matrices hold beside ω may
    cost 1 % of the loss (`softmax/diagonal-kq`): 1 % of the means over lengths, of which the
    largest deviation was known to be 0.6 % when this was written.""",
)
def printed_lengths(lab: Lab) -> Checks:
    """The printed values beside exact losses, each and in the mean over lengths."""
    printed, errors = printed_heads(), head_errors(lab)
    lab.note(
        dim=DIM, noise=NOISE, trained_at=CONTEXT, tested_at=EST_LENGTHS, sequences=HEAD_SEQUENCES,
        omega_and_mu=trained_heads(), risk="exact",
    )  # fmt: skip
    values = np.array([printed[heads] for heads in printed])
    exact = np.array([[trained_theory(heads)] * 2 for heads in printed])
    error = np.array([errors[heads] for heads in printed])
    yield lab.sampled("all 152 printed values", exact, values, error)
    ratios = np.mean(values / exact, -1)
    lab.note(printed_over_exact=np.round(ratios, 4))
    name = "mean of printed / exact over lengths, by number of heads and commit"
    yield lab.close(name, np.ones_like(ratios), ratios, 0.01)


@claim(
    "softmax/linear-longer-contexts",
    """Linear attention that divides by the length improves on longer contexts as softmax attention
    does; without the division its loss grows as the square of the length.""",
    source="abstract (arXiv), for both normalisations of linear attention",
    tier="smoke",
    tolerance_reason="Both are closed forms in the best step, and the exact risk leaves rounding.",
    figures=_FIGURES,
)
def linear_longer_contexts(lab: Lab) -> Checks:
    """Linear attention trained at L = 40, with and without its 1/L, by the exact risk."""
    lab.note(**_NOTES)
    transfers = [theory.length_transfer(paper_task(), length) for length in LENGTHS]
    model = best_linear(DIM, CONTEXT)
    with_, without = (linear_lengths(model, CONTEXT, divided) for divided in (True, False))
    yield lab.relative("loss, divided by L", np.array([t.step for t in transfers]), with_, 1e-9)
    grown = np.array([t.unnormalised for t in transfers])
    yield lab.relative("loss, not divided", grown, without, 1e-9)


@claim(
    "softmax/linear-degrades",
    """Trained at n = 20 and tested at n = 100, softmax attention reaches 0.013 and linear attention
    degrades severely, to 0.078.""",
    source="summary, d = 10",
    tier="smoke",
    tolerance_reason="""10 % of the ratio, which no choice of units changes; it is drawn to 1 %.
    Without its division by the length linear attention does degrade, but 20-fold.""",
    figures=_FIGURES,
    corrected_by="softmax/linear-longer-contexts",
)
def linear_degrades(lab: Lab) -> Checks:
    """The ratio of the two losses at the longer context, with and without the division."""
    dim, short, long = _STATED
    softmax = _stated_pair(lab)
    model = best_linear(dim, short)
    lab.note(dim=dim, noise=NOISE, trained_at=short, tested_at=long, softmax=softmax.value)
    for divided, words in ((True, "divided by L"), (False, "not divided")):
        ratio = linear_lengths(model, short, divided, (long,))[0] / softmax.value
        yield lab.relative(f"linear / softmax, {words}", 0.078 / 0.013, ratio, 0.1)


@once
def _stated_pair(lab: Lab) -> Sampled:
    """The loss at the longer context of the pair that is best at the shorter one."""
    dim, short, long = _STATED
    pair = {"pair": best_pair(isotropic(dim, short, NOISE))}
    return sampled_losses(pair, dim, long, NOISE, lab.scaled(5000, 10_000, 100_000))["pair"]
