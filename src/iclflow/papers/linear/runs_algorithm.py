"""The models on plateaus of a staircase, and fresh sequences to try them on."""

import jax.random as jr
import numpy as np

from ... import analysis
from ...models import AbstractModel
from ...tasks import LinearRegression, Sequences
from .. import Lab, once
from .runs import four_components, separate_run

SEQUENCES = 20_000
OTHER_CONTEXTS = (8, 16, 62, 124)
FRESH = 60_000


def plateau_models(lab: Lab) -> list[AbstractModel]:
    """The model in the middle of each plateau of a staircase, the final one included."""
    run = separate_run(lab, 1e-3)
    found = analysis.plateaus(run)
    return [run.model_at((p.start + p.end) / 2) for p in found[:-1]] + [run.final]


def prediction_distances(lab: Lab, estimators, strength: float = 1.0) -> list[float]:
    """Relative distance in prediction between each plateau's model and its estimator, which may
    be made stronger by a factor."""
    sequences = lab.compute(lambda: four_components().sample(jr.key(13), SEQUENCES))
    distances = []
    for model, estimator in zip(plateau_models(lab)[1:], estimators):
        measured = np.asarray(model.predict(sequences))
        predicted = strength * np.asarray(estimator.predict(sequences))
        distances.append(
            float(np.sqrt(np.mean((measured - predicted) ** 2) / np.mean(measured**2)))
        )
    return distances


@once
def sequences_of_length(lab: Lab, length: int) -> Sequences:
    task = LinearRegression(np.diag(four_components().covariance), length)
    return task.sample(jr.key(length), FRESH)
