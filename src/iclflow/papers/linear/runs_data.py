"""Runs on drawn sequences and on mixtures of tasks, and fresh sequences to test models on."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...flows import (
    Ensemble,
    SaveAtDrops,
    SaveEvenly,
    SaveLogSpaced,
    gradient_descent,
    gradient_flow_ensemble,
)
from ...models import AbstractModel, Attention, TwoLayerLinear
from ...risks import dataset_risk, exact_quadratic_risk, risk
from ...tasks import LinearRegression, RandomLabels, Sequences, in_context_in_weight
from ...trajectory import Trajectory
from .. import Lab, once
from .runs import four_components, merged_model, plateau_middles, separate_run, white_task

# Sequences on which predictions on plateaus are compared.
SEQUENCES = 20_000
OTHER_CONTEXTS = (8, 16, 62, 124)
# Sequences of each other context length.
FRESH = 60_000

NETWORK_SETTING = {
    "sequences": 500, "heads": 8, "scale": 1e-2, "learning_rate": 0.05, "steps": 1500,
}  # fmt: skip

# Learning rate and number of steps; sequences in the training set. The studies of the same names
# are shorter, for the explorer.
SOFTMAX_MERGED = (0.2, 1500)
SOFTMAX_SEPARATE = (0.5, 4000)
SOFTMAX_SEQUENCES = 1000

# Shares p of fresh tasks, and how long the mixtures are trained.
FRACTIONS = (0.02, 0.2, 0.4, 0.6, 0.8, 1.0)
END = 3e4


def plateau_models(lab: Lab) -> list[AbstractModel]:
    """The model in the middle of each plateau of a staircase, and the trained one."""
    run = separate_run(lab, 1e-3)
    return [*plateau_middles(run)[:-1], run.final]


def prediction_distances(lab: Lab, estimators, strength: float = 1.0) -> list[float]:
    """Relative distance in prediction between each plateau's model and its estimator, the
    predictions of which are multiplied by `strength`."""
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
def _sequences_of_length(lab: Lab, length: int) -> Sequences:
    task = LinearRegression(np.diag(four_components().covariance), length)
    return task.sample(jr.key(length), FRESH)


def losses_at_length(lab: Lab, model: AbstractModel, length: int, normalised: bool) -> np.ndarray:
    """The squared errors of a model on fresh sequences of another length, attention divided by
    that length, or by the length of training."""
    sequences = _sequences_of_length(lab, length)
    gain = 1.0 if normalised else length / four_components().contexts[0]
    return np.asarray(sequences.squared_error(gain * model.predict(sequences)))


@once
def softmax_run(lab: Lab, merged: bool) -> Trajectory:
    """The softmax twin, trained by gradient descent on a fixed set of sequences."""
    if merged:
        model = Attention.merged(jr.key(0), 4, 8, 1e-2, activation="softmax")
    else:
        model = Attention.separate(jr.key(0), 4, 8, 1, 5e-2, activation="softmax")
    rate, steps = SOFTMAX_MERGED if merged else SOFTMAX_SEPARATE
    data = risk(four_components(), model, "dataset", sequences=SOFTMAX_SEQUENCES, key=jr.key(5))
    return gradient_descent(model, data, rate, steps, save=SaveAtDrops())


# Attention and the linear networks that it is equivalent to ------------------------------------


def with_mirror_images(sequences: Sequences) -> Sequences:
    """Every sequence, and the same with all its labels negated."""
    negated = Sequences(
        sequences.x, -sequences.y, sequences.x_query, -sequences.y_query, sequences.length
    )
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), sequences, negated)


@once
def network_runs(lab: Lab, mirrored: bool, first_weight: float = 1.0) -> tuple[Trajectory, ...]:
    """Full attention and its network, trained from the same weights on the same sequences.

    **Arguments:**

    - `mirrored`: whether the data set is closed under a change of sign of all labels.
    - `first_weight`: a factor on the first weight of the network's second layer.
    """
    setting: dict[str, Any] = NETWORK_SETTING
    model, count = merged_model(setting["scale"]), setting["sequences"]
    sequences = four_components().sample(jr.key(3), count // 2 if mirrored else count)
    sequences = with_mirror_images(sequences) if mirrored else sequences
    network = TwoLayerLinear.from_attention(model)
    network = TwoLayerLinear(network.W1, network.w2.at[0].multiply(first_weight))
    steps = {name: setting[name] for name in ("learning_rate", "steps")}
    return tuple(descend_on(m, sequences, **steps) for m in (model.embed(), network))


def descend_on(model: AbstractModel, sequences: Sequences, **options) -> Trajectory:
    """Gradient descent on fixed sequences."""
    return gradient_descent(model, dataset_risk(sequences, model), **options, save=SaveEvenly(101))


# Mixtures of fresh tasks and one fixed task -----------------------------------------------------


def _train_on_mixtures(key: int, scale: float, **options: Any) -> Ensemble:
    """Full merged attention on mixtures, one run per share p, all as one program."""
    task = white_task(0.25)
    model = Attention.merged(jr.key(key), 4, 8, scale).embed()
    risks = [exact_quadratic_risk(in_context_in_weight(task, p), model) for p in FRACTIONS]
    return gradient_flow_ensemble([model] * len(FRACTIONS), risks, **options)


@once
def in_weight_runs(lab: Lab) -> Ensemble:
    """Mixtures from weights of 1e-2, until the losses are steady."""
    save = SaveLogSpaced(120, first=0.3)
    return _train_on_mixtures(16, 1e-2, end=END, save=save, rtol=1e-8)


@once
def escaping_runs(lab: Lab) -> Ensemble:
    """Mixtures from weights of 1e-6, until they have left the plateau before learning."""
    return _train_on_mixtures(17, 1e-6, end=120.0)


def test_losses(runs: Ensemble) -> tuple[np.ndarray, np.ndarray]:
    """In-context and in-weight test loss of the final models."""
    task, template = white_task(0.25), runs[0].final
    in_context = exact_quadratic_risk(task, template)
    in_weight = exact_quadratic_risk(RandomLabels(task, np.ones(4)), template)
    finals = [run.final for run in runs]
    return (
        np.array([float(in_context(m)) for m in finals]),
        np.array([float(in_weight(m)) for m in finals]),
    )
