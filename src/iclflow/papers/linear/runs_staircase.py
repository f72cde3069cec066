"""Runs of separate keys and queries: drops one by one, how long plateaus last, where heads stop."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import analysis, theory
from ...flows import gradient_flow, gradient_flow_ensemble, init_many
from ...models import Attention, Separate
from ...risks import risk
from ...trajectory import Trajectory
from .. import Lab, once
from .runs import eight_components, four_components

ALIGNED_STARTS = (0.01, 0.02, 0.015, 0.03)


@once
def aligned_run(lab: Lab) -> Trajectory:
    """Four heads, each exactly aligned with one component."""
    v = jnp.asarray(ALIGNED_STARTS)
    weights = (jnp.eye(4) * v)[:, :, None]
    model = Attention(Separate.of(v, weights, weights))
    return gradient_flow(model, risk(four_components(), model), end=4500.0)


@once
def cascade_times(lab: Lab, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and measured drop times, a row a seed."""
    task = four_components()
    models = init_many(Attention.separate, jr.split(jr.key(8), seeds), dim=4, heads=4, scale=1e-4)
    runs = gradient_flow_ensemble(models, risk(task, models), solver="implicit")
    levels = theory.plateau_losses(task)
    predicted = [theory.staircase(task, run.at(0)).drop_times for run in runs]
    measured = [analysis.drop_times(run, levels=levels) for run in runs]
    return np.array(predicted), np.array(measured)


HEAD_SHAPES = ((1, 1), (2, 1), (3, 1), (1, 2), (1, 3))


@once
def head_losses(lab: Lab, heads: int, rank: int, seeds: int) -> np.ndarray:
    """Where runs from small weights are after a long time."""
    models = init_many(
        Attention.separate, jr.split(jr.key(9), seeds), dim=4, heads=heads, rank=rank, scale=0.01
    )
    return gradient_flow_ensemble(models, risk(four_components(), models)).final_losses


# Of keys and queries, and of their first weights.
RANKS = (1, 2, 4, 8)
SCALES = (1e-2, 1e-3)


def plateau_durations(run: Trajectory) -> np.ndarray:
    """How long the loss rests between half-drop m and half-drop m + 1, for m = 0 … D − 1."""
    levels = theory.plateau_losses(eight_components())
    return np.diff(np.concatenate([[0.0], analysis.drop_times(run, levels=levels)]))
