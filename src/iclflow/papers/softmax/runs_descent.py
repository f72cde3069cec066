"""Heads trained by descent on the paper's task, on correlated inputs and on two tasks."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.integrate

from ... import theory
from ...config import Config
from ...experiment import build_model, build_task
from ...models import Attention, Diagonal, Merged
from ...risks import IntegratedRisk
from ...tasks import Estimate, LinearRegression, MultiTaskRegression
from ...trajectory import Trajectory
from .. import Given, Lab, find_study, once, study, task_settings
from .runs import DIM, NOISE, SETTING, SIGNS, paper_task, train_on

_DESCENT = find_study("softmax/descent").data
START_SIZE = _DESCENT["model"]["scale"]
# Gradient descent of this rate is the Euler scheme of the flow with time steps twice as long.
RATE = _DESCENT["flow"]["learning_rate"]
# Weights from which training comes near the end of the slow manifold soon: attention that is
# nearly flat, and values that make up for it.
_OMEGA, _MU = 0.05, 3.0
# Every model of two tasks has room for so many heads; unused heads are zero.
_MOST_HEADS = 5


def descent_config(lab: Lab, **sections: Any) -> Config:
    """The study of `dynamics_run`, at the size of the tier."""
    batch, steps = lab.scaled(512, 512, 1024), lab.scaled(1000, 1500, 6000)
    return study("softmax/descent", risk={"batch": batch}, flow={"steps": steps}, **sections)


def descent_settings(lab: Lab) -> dict[str, Any]:
    """The settings of `dynamics_run`, as claims and figures record them."""
    config: Any = descent_config(lab)
    return SETTING | {
        "heads": 2, "rate": RATE, "batch": config.risk.batch, "steps": config.flow.steps,
        "weights": "merged, attention blind to labels",
        "optimiser": "stochastic gradient descent, labels integrated out",
    }  # fmt: skip


@once
def dynamics_run(lab: Lab) -> Trajectory:
    """Two heads with full key-query matrices from ±0.1 I, trained by stochastic gradient descent.

    Labels are integrated out of every step: with so little noise the run follows the flow.
    """
    config = descent_config(lab)
    model, _ = build_model(config, jr.key(0))
    return train_on(config, model, 6)


def dynamics_given(lab: Lab) -> Given:
    """The run of `dynamics_run` as a claim's own, with its settings recorded."""
    lab.note(**descent_settings(lab), start=START_SIZE)
    return Given(descent_config(lab), paper_task(), dynamics_run(lab), own=True)


def run_numbers(run: Trajectory) -> tuple[np.ndarray, np.ndarray]:
    """ω and μ of all heads along a run; of a key-query matrix, ω is the mean of the diagonal."""
    circuits = run.models.circuits
    if isinstance(circuits, Diagonal):
        return np.asarray(circuits.omega), np.asarray(circuits.mu)[..., 0]
    matrices = np.asarray(circuits.U)
    return np.trace(matrices, axis1=2, axis2=3) / matrices.shape[-1], np.asarray(circuits.v)


def matrix_pair_flow(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """w(t) and μ(t) of the pair by theory, where the attention of a head is a D × D matrix.

    The slope of the loss in W = ωI is (∂L/∂ω)I/D: ω moves D times slower than as one number. Both
    heads move along the slope of the loss of the pair, so that each has half of it.
    """
    step = 1e-5  # of central differences: the loss is good to 1e-8, and its slopes to 1e-6

    def velocity(_, state):
        w, mu = state
        loss = lambda w, mu: theory.pair_loss(paper_task(), w, mu)
        by_w = (loss(w + step, mu) - loss(w - step, mu)) / (2 * step)
        by_mu = (loss(w, mu + step) - loss(w, mu - step)) / (2 * step)
        return -by_w / (4 * DIM), -by_mu / 4

    start, span = [START_SIZE, START_SIZE], (0.0, times[-1])
    found = scipy.integrate.solve_ivp(
        velocity, span, start, "LSODA", t_eval=times, rtol=1e-6, atol=1e-9
    )
    return found.y[0], found.y[1]


def anisotropic_task() -> LinearRegression:
    """Inputs with six-fold different variances; β ~ N(0, I/d).

    The basis is that of the eigenvectors: in another one the same heads would be rotated alike.
    """
    task = build_task(study("softmax/anisotropic"))
    assert isinstance(task, LinearRegression)
    return task


@once
def anisotropic_run(lab: Lab) -> Trajectory:
    """Two opposite heads with full key-query matrices, which start off the eigenbasis."""
    # The random part is as large as the identity: nothing in the start is aligned with Λ.
    start = jnp.eye(DIM) + 0.5 * jr.normal(jr.key(12), (DIM, DIM))
    circuits = Merged.of(_MU * jnp.asarray(SIGNS), _OMEGA * SIGNS[:, None, None] * start)
    model = Attention(circuits, activation="softmax", self_attention=False)
    # The sizes of the run on the isotropic task: one program serves both.
    config = descent_config(lab, task=find_study("softmax/anisotropic").data["task"])
    return train_on(config, model, 7)


def anisotropic_mean(lab: Lab) -> Attention:
    """The weights around which the second half of the run fluctuates."""
    run = anisotropic_run(lab)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[len(run) // 2 :].mean(0)), run.models)


def two_task_config(lab: Lab) -> Config:
    """The study of two tasks, at the size of the tier."""
    steps, batch = lab.scaled(2000, 3000, 50_000), lab.scaled(64, 64, 256)
    flow = {"steps": steps, "learning_rate": 0.05}
    # Claims and figures read the final model alone.
    return study("softmax/two-tasks", risk={"batch": batch}, flow=flow, save={"count": 3})


def two_tasks() -> MultiTaskRegression:
    """Two tasks that read four of six coordinates each, and share two."""
    return MultiTaskRegression(**task_settings("softmax/two-tasks"))


def two_task_settings(lab: Lab, heads: Any) -> dict[str, Any]:
    """The settings of `two_task_run`, as claims and figures record them."""
    task = two_tasks()
    config: Any = two_task_config(lab)
    return {
        "coordinates": task.coordinates, "dim": task.dim, "context": task.contexts[0],
        "noise": NOISE, "heads": heads, "steps": config.flow.steps, "batch": config.risk.batch,
        "optimiser": "Adam, annealed, labels integrated out",
        "weights": "one ω per coordinate, one μ per task",
    }  # fmt: skip


@once
def two_task_run(lab: Lab, heads: int, seed: int = 0) -> Trajectory:
    """`heads` heads with an ω for each coordinate and a μ for each task, trained by Adam.

    The model has room for more heads. Those that are not there hold zeros, which the factor of
    the update rule keeps: one program serves every number of heads.
    """
    task = two_tasks()
    key_omega, key_mu = jr.split(jr.key(20 + seed))
    # 1 for heads that exist, 0 for those that only fill the shape.
    there = (jnp.arange(_MOST_HEADS) < heads).astype(float)[:, None]
    omega = 0.6 * _OMEGA * there * jr.normal(key_omega, (_MOST_HEADS, task.dim))
    mu = _MU * there * jr.normal(key_mu, (_MOST_HEADS, task.labels))
    moving = [jnp.broadcast_to(there, each.shape).reshape(-1) for each in (omega, mu)]
    model = Attention(Diagonal(omega, mu, task.dim))
    return train_on(two_task_config(lab), model, 8, jnp.concatenate(moving))


@once
def two_task_excess(lab: Lab, heads: int, seed: int = 0) -> Estimate:
    """Mean over the two tasks of the final loss beyond the noise, on fresh contexts."""
    sampled = IntegratedRisk(two_tasks(), 5000, precision="float32")  # 5000 bound the memory
    count = lab.scaled(20_000, 40_000, 400_000)
    found = sampled.estimate(two_task_run(lab, heads, seed).final, jr.key(9), count)
    return Estimate(found.value / 2 - NOISE, found.standard_error / 2)
