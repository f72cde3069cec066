"""Claims on arXiv 2503.12734 on what a single head computes."""

import numpy as np

from ... import theory
from ...analysis import Algorithm, Head, patterns, which_algorithm
from ...estimators import DebiasedGradientStep, GradientStep, KernelRegression
from .. import Checks, Lab, claim, once
from .runs import note_training, paper_task, trained_run

_FIGURES = ("softmax/estimators",)
_KERNEL = "kernel regression"


@claim(
    "softmax/one-head-kernel-regression",
    """A single trained head is kernel regression with an exponential kernel, scaled, at the best
    width and scale for this task.""",
    source="Section 3, one head; the optimum is derived in docs/theory/softmax.md",
    tolerance_reason="""Weights keep the noise of the last steps: 2 % of ω and μ, which cost a
    thousandth of the loss, and 5 % in prediction for all entries of the matrices together.""",
    figures=_FIGURES,
)
def one_head(lab: Lab) -> Checks:
    """ω and μ of the trained H = 1 model, and which estimator it equals."""
    note_training(lab, 1)
    best, head = theory.one_head_optimum(paper_task()), _trained_head(lab)
    found = _one_head_algorithm(lab)
    sizes = [abs(head.omega), abs(head.mu)]
    yield lab.relative("|ω| and |μ|", np.array([best.omega, best.mu]), sizes, 0.02)
    other = "one debiased gradient step"
    yield lab.equal("nearest estimator", _KERNEL, found.best.name, wrong=other)
    name = "distance from the best kernel regression"
    yield lab.at_most(name, 0.05, found[_KERNEL].distance)


@claim(
    "softmax/one-head-biased-step",
    "A single trained head is one gradient step without debiasing.",
    source="the functional equivalence of a summary",
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
    yield lab.close("distance", 0.0, found[name].distance, 0.05, wrong=0.01)


def _trained_head(lab: Lab) -> Head:
    return patterns(trained_run(lab, 1).final).heads[0]


@once
def _one_head_algorithm(lab: Lab) -> Algorithm:
    """The trained head beside kernel regression with the best weights, and gradient steps."""
    best = theory.one_head_optimum(paper_task())
    # (ω, μ) and (−ω, −μ) have the same loss, and the start decides between them.
    sign = np.sign(_trained_head(lab).omega)
    kernel = KernelRegression(sign * best.omega, sign * best.mu)
    others = (kernel, GradientStep(1.0), DebiasedGradientStep(1.0))
    count = lab.scaled(5000, 10_000, 20_000)
    model = trained_run(lab, 1).final
    return which_algorithm(model, paper_task(), count=count, estimators=others)
