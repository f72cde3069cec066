"""What checks of runs of linear attention have in common."""

import numpy as np

from .. import theory
from ._base import Inconclusive
from ._on_runs import Given


def normaliser_of(given: Given):
    return given.config.model.normaliser


def allowed_drift(given: Given) -> float:
    return 1000 * getattr(given.config.flow, "rtol")


def loss_at_zero(given: Given) -> float:
    return float(theory.loss_of_matrix(given.task, np.zeros((given.task.dim,) * 2)))


def allowed_at_end(given: Given, last: float) -> float:
    """How far above its limit a run that counts as converged may be."""
    run = given.run
    if run.result.name != "converged":
        raise Inconclusive(f"the run is not converged: {run.result.name} at {given.end:.4g}")
    # A run may start above the loss of predicting zero.
    way = max(float(run.losses[0]), loss_at_zero(given)) - last
    return 2 * getattr(given.config.flow, "tolerance") * way
