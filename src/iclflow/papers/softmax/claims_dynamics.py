"""Claims on arXiv 2503.12734 on how ω and μ move in training."""

import numpy as np

from .. import Checks, Given, Lab, claim, on_run
from .._needs import accurate_flow
from .needs import PAIR
from .runs import CONTEXT, DIM, NOISE
from .runs_dynamics import (
    RATE,
    START_SIZE,
    dynamics_run,
    dynamics_sizes,
    matrix_pair_flow,
    run_numbers,
)

_FIGURES = ("softmax/dynamics",)


def _note(lab: Lab) -> None:
    batch, steps = dynamics_sizes(lab)
    lab.note(
        dim=DIM, context=CONTEXT, noise=NOISE, heads=2, start=START_SIZE, rate=RATE,
        batch=batch, steps=steps, weights="merged, attention blind to labels",
        optimiser="stochastic gradient descent, labels integrated out",
    )  # fmt: skip


@claim(
    "softmax/reduced-flow",
    """In training the two numbers ω and μ of a head follow the reduced gradient flow of the pair, a
    step of rate η being a time of 2η: ω jumps up, then drifts down while μ drifts up.""",
    source="the training dynamics; the exact flow is derived in docs/theory/softmax.md",
    tolerance_reason="""Euler steps of 0.02 in time shift the rise by about half a step, 0.5 % of
    the weights at its steepest, and gradients keep the noise of a batch: 1.5 % of the weights
    together.""",
    figures=_FIGURES,
)
def reduced_flow(lab: Lab) -> Checks:
    """ω(t) and μ(t) of both heads against the flow by theory."""
    run = dynamics_run(lab)
    _note(lab)
    w, mu = lab.compute(matrix_pair_flow, 2 * RATE * run.times)
    omegas, mus = run_numbers(run)
    signs = np.array([1.0, -1.0])
    yield lab.relative("ω(t)", w[1:, None] * signs, omegas[1:], 0.015)
    yield lab.relative("μ(t)", mu[1:, None] * signs, mus[1:], 0.015)


@on_run(
    *PAIR,
    accurate_flow,
    tolerance_reason="A symmetry of every risk: rounding alone, 1e-6 after long times.",
)
def structured_manifold_on_run(given: Given, lab: Lab) -> Checks:
    """The ratios of ω and of μ of the two heads along the run."""
    models = given.run.models
    pairs = {"ω": np.asarray(models.circuits.omega), "μ": np.asarray(models.circuits.mu)[..., 0]}
    for name, each in pairs.items():
        yield lab.close(
            f"{name} of the second head / {name} of the first", -1.0, each[:, 1] / each[:, 0], 1e-6
        )


@claim(
    "softmax/structured-manifold",
    """Heads that start as multiples of the identity stay multiples of the identity, and opposite
    heads stay opposite.""",
    source="the invariance behind the reduced dynamics",
    tolerance_reason="""Off the manifold there is the noise of the batches alone, which full-batch
    training would not have: it makes entries of about 0.5 % of ω, so that the share of the norm
    along the identity is below one by some 1e-4, and lets ω and μ of the two heads differ by a
    fraction of a per cent.""",
    figures=_FIGURES,
    on_run=structured_manifold_on_run,
)
def structured_manifold(lab: Lab) -> Checks:
    """The share of each matrix along the identity, and the sums of ω and μ, along the run."""
    run = dynamics_run(lab)
    _note(lab)
    matrices = np.asarray(run.models.circuits.U)
    omegas, mus = run_numbers(run)
    shares = np.abs(omegas) * DIM**0.5 / np.linalg.norm(matrices, axis=(2, 3))
    yield lab.at_least("smallest share along the identity", 0.999, shares.min(), wrong=1.001)
    yield lab.close(
        "ω of the second head / ω of the first", -1.0, omegas[:, 1] / omegas[:, 0], 0.01
    )
    yield lab.close("μ of the second head / μ of the first", -1.0, mus[:, 1] / mus[:, 0], 0.01)
