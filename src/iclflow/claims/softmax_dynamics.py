"""Claims on arXiv 2503.12734 on how ω and μ move in training."""

import jax.random as jr
import numpy as np
import scipy.integrate

from .. import theory
from ..flows import Linear, sgd
from ..models import MergedKQ
from ..risks import IntegratedRisk
from ..trajectory import Trajectory
from ._base import Check
from ._lab import Lab
from ._registry import claim
from ._softmax_runs import CONTEXT, DIM, NOISE, paper_task

_FIGURES = ("softmax/dynamics",)
_START = 0.1
# Gradient descent of this rate is the Euler scheme of the flow with time steps twice as long.
RATE = 0.01


def dynamics_run(lab: Lab) -> Trajectory:
    """Two heads with full key-query matrices from ±0.1 I, trained by stochastic gradient descent.

    Labels are integrated out of every step: with so little noise a run is one of the flow.
    """

    def compute() -> Trajectory:
        options = {"activation": "softmax", "self_attention": False}
        model = MergedKQ.init(jr.key(0), DIM, 2, _START, "opposite", **options)
        batch, steps = dynamics_sizes(lab)
        data = IntegratedRisk(paper_task(), batch, precision="float32")
        return sgd(model, data, RATE, steps, key=jr.key(6), save=Linear(21), progress=False)

    return lab.once("softmax dynamics", compute)


def dynamics_sizes(lab: Lab) -> tuple[int, int]:
    """Batch and steps of the run."""
    return lab.scaled(512, 512, 1024), lab.scaled(1000, 1500, 6000)


def matrix_pair_flow(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """w(t) and μ(t) of the pair by theory, where the attention of a head is a D × D matrix.

    The slope of the loss in W = ωI is (∂L/∂ω)I/D: ω moves D times slower than as one number. Both
    heads move in a slope of the loss of the pair, so that each has half of it.
    """

    def velocity(_, state):
        w, mu = state
        loss = lambda w, mu: theory.pair_loss(w, mu, DIM, CONTEXT, NOISE)
        step = 1e-5
        by_w = (loss(w + step, mu) - loss(w - step, mu)) / (2 * step)
        by_mu = (loss(w, mu + step) - loss(w, mu - step)) / (2 * step)
        return -by_w / (4 * DIM), -by_mu / 4

    found = scipy.integrate.solve_ivp(
        velocity, (0.0, times[-1]), [_START, _START], "LSODA", t_eval=times, rtol=1e-6, atol=1e-9
    )
    return found.y[0], found.y[1]


def run_numbers(run: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ of both heads along a run, ω being the mean of the diagonal."""
    matrices = np.asarray(run.models.U)
    return np.trace(matrices, axis1=2, axis2=3) / matrices.shape[-1], np.asarray(run.models.v)


def _note(lab: Lab) -> None:
    batch, steps = dynamics_sizes(lab)
    lab.note(
        dim=DIM, context=CONTEXT, noise=NOISE, heads=2, start=_START, rate=RATE,
        batch=batch, steps=steps, weights="merged, attention blind to labels",
        optimiser="stochastic gradient descent, labels integrated out",
    )  # fmt: skip


@claim(
    "softmax/reduced-flow",
    "In training the two numbers ω and μ of a head follow the reduced gradient flow of the pair, a "
    "step of rate η being a time of 2η: ω jumps up, then drifts down while μ drifts up.",
    source="the training dynamics; the exact flow is derived in docs/theory/softmax.md",
    tolerance_reason="Euler steps of 0.02 in time shift the rise by about half a step, 0.5 % of "
    "the weights at its steepest, and gradients keep the noise of a batch: 1.5 % of the weights "
    "together.",
    figures=_FIGURES,
)
def reduced_flow(lab: Lab) -> list[Check]:
    """ω(t) and μ(t) of both heads against the flow by theory."""
    run = dynamics_run(lab)
    _note(lab)
    w, mu = lab.once("softmax matrix flow", lambda: matrix_pair_flow(2 * RATE * run.times))
    omegas, mus = run_numbers(run)
    signs = np.array([1.0, -1.0])
    return [
        Check("ω(t)", lab.predict(w[1:, None] * signs), omegas[1:], 0.015, "relative"),
        Check("μ(t)", lab.predict(mu[1:, None] * signs), mus[1:], 0.015, "relative"),
    ]


@claim(
    "softmax/structured-manifold",
    "Heads that start as multiples of the identity stay multiples of the identity, and opposite "
    "heads stay opposite.",
    source="the invariance behind the reduced dynamics",
    tolerance_reason="Off the manifold there is the noise of the batches alone, which full-batch "
    "training would not have: it makes entries of about 0.5 % of ω, so that the share of the norm "
    "along the identity is below one by some 1e-4, and lets ω and μ of the two heads differ by a "
    "fraction of a per cent.",
    figures=_FIGURES,
)
def structured_manifold(lab: Lab) -> list[Check]:
    """The share of each matrix along the identity, and the sums of ω and μ, along the run."""
    run = dynamics_run(lab)
    _note(lab)
    matrices = np.asarray(run.models.U)
    omegas, mus = run_numbers(run)
    shares = np.abs(omegas) * DIM**0.5 / np.linalg.norm(matrices, axis=(2, 3))
    return [
        Check("smallest share along the identity", lab.predict(0.999, wrong=1.001), shares.min(),
              0.0, "at least"),
        Check("ω of the second head / ω of the first", lab.predict(-1.0),
              omegas[:, 1] / omegas[:, 0], 0.01),
        Check("μ of the second head / μ of the first", lab.predict(-1.0), mus[:, 1] / mus[:, 0],
              0.01),
    ]  # fmt: skip
