"""Training runs of softmax heads on correlated inputs and on two tasks, computed once."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...flows import Rule, SaveEvenly, descend, sgd
from ...models import Attention, Diagonal, Merged
from ...risks import IntegratedRisk
from ...tasks import Estimate, LinearRegression, MultiTaskRegression
from ...trajectory import Trajectory
from .. import Lab, once
from .runs import CONTEXT, DIM, NOISE, cosine_adam
from .runs_dynamics import RATE, dynamics_sizes

# Weights from which training comes near the end of the slow manifold soon: attention that is
# nearly flat, and values that make up for it.
_OMEGA, _MU = 0.05, 3.0
# The heads that there are places for; fewer heads leave places empty.
PLACES = 5


def anisotropic_task() -> LinearRegression:
    """Inputs with six-fold different variances; β ~ N(0, I/d).

    They are given in their eigenbasis: in another one the same heads would be turned alike.
    """
    return LinearRegression(
        (2.4, 1.6, 1.0, 0.6, 0.4), CONTEXT, noise=NOISE, prior_covariance=np.eye(DIM) / DIM
    )


@once
def anisotropic_run(lab: Lab) -> Trajectory:
    """Two opposite heads with full key-query matrices, which start off the eigenbasis."""
    signs = jnp.asarray([1.0, -1.0])
    start = jnp.eye(DIM) + 0.5 * jr.normal(jr.key(12), (DIM, DIM))
    model = Attention(
        Merged.of(_MU * signs, _OMEGA * signs[:, None, None] * start),
        activation="softmax",
        self_attention=False,
    )
    # The sizes of the run on the isotropic task: one program serves both.
    batch, steps = dynamics_sizes(lab)
    data = IntegratedRisk(anisotropic_task(), batch, precision="float32")
    return sgd(model, data, RATE, steps, key=jr.key(7), save=SaveEvenly(21), progress=False)


def anisotropic_mean(lab: Lab) -> Attention:
    """The weights around which the second half of the run fluctuates."""
    run = anisotropic_run(lab)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[len(run) // 2 :].mean(0)), run.models)


def two_tasks() -> MultiTaskRegression:
    """Two tasks that read four of six coordinates each, and share two."""
    return MultiTaskRegression([[0, 1, 2, 3], [2, 3, 4, 5]], 6, 48, noise=NOISE)


@once
def two_task_run(lab: Lab, heads: int, seed: int = 0) -> Trajectory:
    """`heads` heads with an ω for each coordinate and a μ for each task, trained by Adam.

    The model has places for more heads. Those that are not there hold zeros, which the factor of
    the update rule keeps: one program serves every number of heads.
    """
    task, (steps, batch) = two_tasks(), two_task_sizes(lab)
    key_omega, key_mu = jr.split(jr.key(20 + seed))
    there = (jnp.arange(PLACES) < heads).astype(float)[:, None]
    model = Attention(
        Diagonal(
            0.6 * _OMEGA * there * jr.normal(key_omega, (PLACES, task.dim)),
            _MU * there * jr.normal(key_mu, (PLACES, task.labels)),
            task.dim,
        )
    )
    moving = [
        jnp.broadcast_to(there, x.shape).reshape(-1)
        for x in (model.circuits.omega, model.circuits.mu)
    ]
    rule = Rule(cosine_adam(0.05, steps), jnp.concatenate(moving))
    data = IntegratedRisk(task, batch, precision="float32")
    return descend(model, data, rule, steps, key=jr.key(8), save=SaveEvenly(3), progress=False)


def two_task_sizes(lab: Lab) -> tuple[int, int]:
    """Steps and batch of a run on two tasks."""
    return lab.scaled(2000, 3000, 50_000), lab.scaled(64, 64, 256)


@once
def two_task_excess(lab: Lab, heads: int, seed: int = 0) -> Estimate:
    """Mean over the two tasks of the final loss beyond the noise, on fresh contexts."""
    sampled = IntegratedRisk(two_tasks(), 5000, precision="float32")
    count = lab.scaled(20_000, 40_000, 400_000)
    found = sampled.estimate(two_task_run(lab, heads, seed).final, jr.key(9), count)
    return Estimate(found.value / 2 - NOISE, found.standard_error / 2)
