"""Two softmax heads in training, and the flow that theory has for them."""

import jax.random as jr
import numpy as np
import scipy.integrate

from ... import theory
from ...flows import SaveEvenly, sgd
from ...models import Attention
from ...risks import IntegratedRisk
from ...trajectory import Trajectory
from .. import Lab, once
from .runs import DIM, paper_task

START_SIZE = 0.1
# Gradient descent of this rate is the Euler scheme of the flow with time steps twice as long.
RATE = 0.01


@once
def dynamics_run(lab: Lab) -> Trajectory:
    """Two heads with full key-query matrices from ±0.1 I, trained by stochastic gradient descent.

    Labels are integrated out of every step: with so little noise a run is one of the flow.
    """
    options = {"activation": "softmax", "self_attention": False}
    model = Attention.merged(jr.key(0), DIM, 2, START_SIZE, "opposite", **options)
    batch, steps = dynamics_sizes(lab)
    data = IntegratedRisk(paper_task(), batch, precision="float32")
    return sgd(model, data, RATE, steps, key=jr.key(6), save=SaveEvenly(21), progress=False)


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
        loss = lambda w, mu: theory.pair_loss(paper_task(), w, mu)
        step = 1e-5
        by_w = (loss(w + step, mu) - loss(w - step, mu)) / (2 * step)
        by_mu = (loss(w, mu + step) - loss(w, mu - step)) / (2 * step)
        return -by_w / (4 * DIM), -by_mu / 4

    found = scipy.integrate.solve_ivp(
        velocity,
        (0.0, times[-1]),
        [START_SIZE, START_SIZE],
        "LSODA",
        t_eval=times,
        rtol=1e-6,
        atol=1e-9,
    )
    return found.y[0], found.y[1]


def run_numbers(run: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ of both heads along a run, ω being the mean of the diagonal."""
    matrices = np.asarray(run.models.circuits.U)
    return np.trace(matrices, axis1=2, axis2=3) / matrices.shape[-1], np.asarray(
        run.models.circuits.v
    )
