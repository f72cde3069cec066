"""Exact flows on few tasks, with losses on unseen ones."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...analysis import TestLosses, test_losses
from ...flows import SaveAtTimes, gradient_flow_ensemble
from ...models import Attention, Merged, Separate
from ...risks import risk
from ...tasks import FiniteTasks, LinearRegression
from ...theory import diversity
from .. import Lab, once

# Two tasks in four dimensions, on inputs whose covariance does not commute with theirs.
FOUR = {"eigenvalues": (0.4, 0.3, 0.2, 0.1), "context": 31, "noise": 0.1}
# N and K of orthogonal unit tasks: of the last two, one overshoots and ends below its start.
DIM, NOISE = 8, 0.3
SETTINGS = ((3, 2), (4, 2), (5, 2), (20, 4))
# N and K of random unit tasks in twenty dimensions (docs/theory/diversity.md, section 4).
MANY, RANDOM = 20, ((10, 5), (10, 10), (10, 40), (40, 10))
VALUES = (0.01, 0.02, -0.015)
# An aligned head starts with these weights.
START = 0.05


def waves(dim: int, count: int) -> np.ndarray:
    """Unit task vectors w_ki ∝ cos(1 + 2k + 3i + ki), k and i from 0."""
    k, i = np.arange(count)[:, None], np.arange(dim)
    rows = np.cos(1 + 2 * k + 3 * i + k * i)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def unit_law(dim: int, context: int, noise: float) -> LinearRegression:
    """White inputs, and unseen tasks of mean square norm one."""
    return LinearRegression(
        np.ones(dim), context=context, noise=noise, prior_covariance=np.eye(dim) / dim
    )


def seen(task: FiniteTasks) -> LinearRegression:
    """The tasks of training as theory takes them, by their second moment."""
    return diversity.with_tasks(task.fresh, task.vectors)


def wave_tasks() -> FiniteTasks:
    """The two tasks of `FOUR`."""
    return FiniteTasks(waves(4, 2), LinearRegression(**FOUR))


@once
def fewer_heads(lab: Lab) -> list[TestLosses]:
    """The losses of separate attention with one, two and three heads of rank one on `wave_tasks`.

    Heads that are zero stay so: all three runs have one shape.
    """
    task, full = wave_tasks(), Attention.separate(jr.key(3), dim=4, heads=3, scale=0.1)
    c, models = full.circuits, []
    for heads in (1, 2, 3):
        on = (jnp.arange(3) < heads)[:, None, None]
        models.append(Attention(Separate.of(c.v * on[:, 0, 0], c.K * on, c.Q * on)))
    runs = gradient_flow_ensemble(models, risk(task, full), end=1e5)
    lab.hash_runs(runs)
    return [test_losses(run, task) for run in runs]


def orthogonal_tasks(context: int, count: int) -> FiniteTasks:
    """K orthogonal unit tasks on white inputs."""
    return FiniteTasks(np.eye(DIM)[:count], unit_law(DIM, context, NOISE))


@once
def orthogonal_runs(lab: Lab) -> list[tuple[TestLosses, float]]:
    """The losses of merged attention along the projector on orthogonal tasks, and the strength with
    which it starts, for each of `SETTINGS`."""
    tasks = [orthogonal_tasks(*setting) for setting in SETTINGS]
    values, models = np.array(VALUES), []
    for _, count in SETTINGS:
        matrix = np.diag(np.arange(DIM) < count) / np.sqrt(count)
        models.append(Attention(Merged.of(values, values[:, None, None] * matrix)))
    risks = [risk(task, model) for task, model in zip(tasks, models)]
    save = SaveAtTimes(np.linspace(0.05, 30.0, 600))
    runs = gradient_flow_ensemble(models, risks, end=30.0, save=save, rtol=1e-10)
    lab.hash_runs(runs)
    starts = [float(np.sum(values**2)) / count**0.5 for _, count in SETTINGS]
    return [(test_losses(run, task), start) for run, task, start in zip(runs, tasks, starts)]


def aligned_task() -> FiniteTasks:
    """Three tasks in six dimensions, on white inputs and short contexts."""
    return FiniteTasks(waves(6, 3), unit_law(6, 4, 0.2))


@once
def aligned_run(lab: Lab) -> TestLosses:
    """The losses of one head that starts along the first component of its tasks."""
    task = aligned_task()
    top = np.linalg.eigh(np.asarray(task.weight_second_moment))[1][:, -1]
    column = START * top[None, :, None]
    model = Attention(Separate.of(jnp.array([START]), jnp.asarray(column), jnp.asarray(column)))
    save = SaveAtTimes(np.append(np.linspace(1.0, 40.0, 20), np.linspace(42.0, 48.0, 400)))
    (run,) = gradient_flow_ensemble([model], risk(task, model), end=60.0, save=save, rtol=1e-10)
    lab.hash_runs([run])
    return test_losses(run, task)


@once
def random_runs(lab: Lab) -> list[TestLosses]:
    """The losses of merged attention from small weights on random unit tasks, for each of
    `RANDOM`."""
    rng, tasks = np.random.default_rng(0), []
    for context, count in RANDOM:
        rows = rng.standard_normal((count, MANY))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        tasks.append(FiniteTasks(rows, unit_law(MANY, context, 0.1)))
    model = Attention.merged(jr.key(0), dim=MANY, heads=2, scale=1e-3)
    risks = [risk(task, model) for task in tasks]
    save = SaveAtTimes(np.linspace(0.25, 150.0, 600))
    runs = gradient_flow_ensemble([model] * len(risks), risks, end=150.0, save=save)
    lab.hash_runs(runs)
    return [test_losses(run, task) for run, task in zip(runs, tasks)]
