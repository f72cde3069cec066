"""What unseen tasks cost more than those of training: on drawn data, and at very long contexts."""

import jax.random as jr
import numpy as np

from ...analysis import test_losses
from ...flows import gradient_flow_ensemble
from ...models import Attention
from ...risks import risk
from ...tasks import FiniteTasks
from .. import Lab, once
from .runs_data import Point, draw_tasks, errors_at
from .runs_tasks import unit_law

GAP_DIM, GAP_TASKS = 24, (0.25, 0.5, 1.0, 2.0, 4.0)
CORNER, CORNER_DIM, CORNER_CONTEXT, CORNER_NOISE = tuple(range(1, 8)), 4, 10**6, 0.1


def task_gaps(lab: Lab, tasks: float, sets: int) -> np.ndarray:
    """ICL minus IDG errors on drawn data, and in theory for the same tasks, for each set: τ = 2,
    α = 10, ρ = .01."""
    found = errors_at(lab, Point.of_ratios(GAP_DIM, 2.0, 10.0, tasks, 0.01), sets)
    return np.stack([each[:, 0] - each[:, 1] for each in (found.drawn, found.corrected)])


@once
def corner_losses(lab: Lab) -> np.ndarray:
    """The loss on unseen tasks at the end of a flow of merged attention, at each K of `CORNER`."""
    rng, law = np.random.default_rng(1), unit_law(CORNER_DIM, CORNER_CONTEXT, CORNER_NOISE)
    tasks = [FiniteTasks(draw_tasks(rng, count, CORNER_DIM), law) for count in CORNER]
    # Without noise on β nothing moves outside the span of the tasks: what weights hold there at the
    # start stays, and has to be small.
    model = Attention.merged(jr.key(0), dim=CORNER_DIM, heads=CORNER_DIM, scale=1e-4)
    risks = [risk(task, model) for task in tasks]
    runs = gradient_flow_ensemble([model] * len(tasks), risks, end=1e4)
    lab.hash_runs(runs)
    return np.array([test_losses(run, task).icl[-1] for run, task in zip(runs, tasks)])
