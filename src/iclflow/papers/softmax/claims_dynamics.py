"""Claims on arXiv 2503.12734 on how ω and μ move in training."""

import numpy as np

from .. import Checks, Given, Lab, claim, claim_on_run
from .._needs import accurate_flow
from .needs import PAIR
from .runs import DIM, SIGNS
from .runs_descent import RATE, dynamics_given, matrix_pair_flow, run_numbers

_FIGURES = ("softmax/dynamics",)


@claim(
    "softmax/reduced-flow",
    """In training the two numbers ω and μ of a head follow the reduced gradient flow of the pair, a
    step of rate η being a time of 2η: ω jumps up, then drifts down while μ drifts up.""",
    source="notebook: dynamics plots; the exact flow is derived in docs/theory/softmax.md",
    tolerance_reason="""Euler steps of 0.02 in time shift the rise by about half a step, 0.5 % of
    the weights at its steepest, and gradients keep the noise of a batch: 1.5 % of the weights
    together.""",
    figures=_FIGURES,
)
def reduced_flow(lab: Lab) -> Checks:
    """ω(t) and μ(t) of both heads against the flow by theory."""
    run = dynamics_given(lab).run
    # The flow is that of half the loss, so that a step of rate η is a time of 2η.
    w, mu = lab.compute(matrix_pair_flow, 2 * RATE * run.times)
    omegas, mus = run_numbers(run)
    yield lab.relative("ω(t)", w[1:, None] * SIGNS, omegas[1:], 0.015)
    yield lab.relative("μ(t)", mu[1:, None] * SIGNS, mus[1:], 0.015)


@claim_on_run(
    "softmax/structured-manifold",
    """Heads that start as multiples of the identity stay multiples of the identity, and opposite
    heads stay opposite.""",
    source="code: funcs (ω and μ of each head); derived in docs/theory/softmax.md",
    on=dynamics_given,
    tolerance_reason="""Off the manifold there is the noise of the batches alone, which full-batch
    training would not have: it makes entries of about 0.5 % of ω, so that the share of the norm
    along the identity is below one by some 1e-4, and lets ω and μ of the two heads differ by a
    fraction of a per cent.""",
    needs=(*PAIR, accurate_flow),
    tolerance_on_any_run="A symmetry of every risk: rounding alone, 1e-6 after long times.",
    figures=_FIGURES,
)
def structured_manifold(given: Given, lab: Lab) -> Checks:
    """The ratios of ω and of μ of the two heads along the run, and how much of matrices is along
    the identity."""
    omega, mu = run_numbers(given.run)
    if given.own:
        matrices = np.asarray(given.run.models.circuits.U)
        shares = np.abs(omega) * DIM**0.5 / np.linalg.norm(matrices, axis=(2, 3))
        least = float(shares.min())
        yield lab.close("rest of the share along the identity", 0.0, 1 - least, 1e-3, scale=1.0)
    allowed = given.tolerance(0.01, lambda: 1e-6)
    for name, each in {"ω": omega, "μ": mu}.items():
        ratios = each[:, 1] / each[:, 0]
        yield lab.close(f"{name} of the second head / {name} of the first", -1.0, ratios, allowed)
