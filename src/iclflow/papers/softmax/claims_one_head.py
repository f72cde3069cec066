"""Claims on arXiv 2503.12734 on what a single head computes."""

import numpy as np

from ... import theory
from ...analysis import Algorithm, which_algorithm
from ...estimators import DebiasedGradientStep, GradientStep, KernelRegression
from .. import Checks, Lab, claim, once
from .checks_trained import median
from .runs import paper_task
from .runs_heads import final_heads, trained_run
from .runs_seeds import note_training

_FIGURES = ("softmax/estimators",)
_KERNEL = "kernel regression"


@claim(
    "softmax/one-head-kernel-regression",
    """A single trained head is kernel regression with an exponential kernel, scaled, at the best
    width and scale for this task.""",
    tier="paper",
    source="notebook, TL;DR; the optimum is derived in docs/theory/softmax.md",
    tolerance_reason="""Weights keep the noise of the last steps: 2 % of ω and μ, medians over
    seeds, which cost a thousandth of the loss, and 5 % in prediction for all entries of the
    matrices together.""",
    figures=_FIGURES,
)
def one_head(lab: Lab) -> Checks:
    """ω and μ of trained models with one head, and which estimator the first of them equals."""
    note_training(lab, 1)
    best, found = theory.one_head_optimum(paper_task()), final_heads(lab, 1)
    nearest = _one_head_algorithm(lab)
    sizes = [median(np.abs(found.omega)), median(np.abs(found.mu))]
    yield lab.relative("|ω| and |μ|", np.array([best.omega, best.mu]), sizes, 0.02)
    other = "one debiased gradient step"
    yield lab.equal("nearest estimator", _KERNEL, nearest.best.name, wrong=other)
    name = "distance from the best kernel regression"
    yield lab.close(name, 0.0, nearest[_KERNEL].distance, 0.05, scale=1.0)


@claim(
    "softmax/one-head-biased-step",
    "A single trained head is one gradient step without debiasing.",
    tier="paper",
    source="summary",
    tolerance_reason="""A name: the estimator whose predictions are nearest; 5 % of the prediction
    would pass as an approximation.""",
    figures=_FIGURES,
    corrected_by="softmax/one-head-kernel-regression",
)
def one_head_biased(lab: Lab) -> Checks:
    """The distance of the trained H = 1 model from the gradient step that fits it best."""
    note_training(lab, 1)
    found, name = _one_head_algorithm(lab), "one gradient step"
    yield lab.equal("nearest estimator", name, found.best.name, wrong="least squares")
    yield lab.close("distance", 0.0, found[name].distance, 0.05, scale=1.0)


@once
def _one_head_algorithm(lab: Lab) -> Algorithm:
    """The trained head beside kernel regression with the best weights, and gradient steps."""
    best = theory.one_head_optimum(paper_task())
    # (ω, μ) and (−ω, −μ) have the same loss, and the start decides between them.
    sign = np.sign(final_heads(lab, 1).omega[0, 0])
    kernel = KernelRegression(sign * best.omega, sign * best.mu)
    others = (kernel, GradientStep(1.0), DebiasedGradientStep(1.0))
    count = lab.scaled(5000, 10_000, 20_000)
    model = trained_run(lab, 1).final
    return which_algorithm(model, paper_task(), count=count, estimators=others)
