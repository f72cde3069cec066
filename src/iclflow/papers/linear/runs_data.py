"""Runs on drawn sequences and on mixtures of tasks, and fresh sequences to test models on."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...config import Config
from ...experiment import build_model
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
from .. import Lab, once, study
from .runs import four_components, merged_model, plateau_middles, separate_run, white_task

# Sequences on which predictions on plateaus are compared.
SEQUENCES = 20_000
OTHER_CONTEXTS = (8, 16, 62, 124)
# Sequences of each other context length.
FRESH = 60_000

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


# Gradient descent on fixed sequences ------------------------------------------------------------


def softmax_study(merged: bool) -> Config:
    """The softmax twins of the paper's Figure 5."""
    return study(f"linear/figure-five-{'merged' if merged else 'separate'}")


@once
def softmax_run(lab: Lab, merged: bool) -> Trajectory:
    """The softmax twin, trained on sequences of a fixed key, whatever the seed of the study."""
    config = softmax_study(merged)
    model, _ = build_model(config, jr.key(0))
    count, (rate, steps) = getattr(config.risk, "sequences"), descent_settings(config).values()
    data = risk(four_components(), model, "dataset", sequences=count, key=jr.key(5))
    return gradient_descent(model, data, rate, steps, save=SaveAtDrops())


def descent_settings(config: Config) -> dict[str, Any]:
    """The learning rate and the number of steps of gradient descent."""
    return {name: getattr(config.flow, name) for name in ("learning_rate", "steps")}


def data_settings(config: Config) -> dict[str, Any]:
    """The settings of gradient descent on a finite set of sequences, for claims to note."""
    names = ("heads", "rank", "scale") if config.model.kind == "separate" else ("heads", "scale")
    model = {name: getattr(config.model, name) for name in names}
    return {"sequences": getattr(config.risk, "sequences"), **model, **descent_settings(config)}


def draw_sequences(config: Config, mirrored: bool) -> Sequences:
    """The data set of a study; if `mirrored`, half as many sequences and the same with all labels
    negated."""
    count = getattr(config.risk, "sequences")
    sequences = four_components().sample(jr.key(3), count // 2 if mirrored else count)
    if not mirrored:
        return sequences
    negated = Sequences(
        sequences.x, -sequences.y, sequences.x_query, -sequences.y_query, sequences.length
    )
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), sequences, negated)


def compare_descents(
    config: Config, mirrored: bool, *models: AbstractModel
) -> tuple[Trajectory, ...]:
    """Gradient descent of several models on the same sequences."""
    sequences, steps = draw_sequences(config, mirrored), descent_settings(config)
    return tuple(
        gradient_descent(model, dataset_risk(sequences, model), **steps, save=SaveEvenly(101))
        for model in models
    )


@once
def network_runs(lab: Lab, mirrored: bool, first_weight: float = 1.0) -> tuple[Trajectory, ...]:
    """Full attention and its network, trained from the same weights on the same sequences.

    **Arguments:**

    - `mirrored`: whether the data set is closed under a change of sign of all labels.
    - `first_weight`: a factor on the first weight of the network's second layer.
    """
    config = study("linear/merged-data")
    model = merged_model(getattr(config.model, "scale"))
    network = TwoLayerLinear.from_attention(model)
    network = TwoLayerLinear(network.W1, network.w2.at[0].multiply(first_weight))
    return compare_descents(config, mirrored, model.embed(), network)


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


def block_sizes(runs: Ensemble) -> dict[str, np.ndarray]:
    """The largest weight in each block of the final models."""
    finals = [run.final.circuits for run in runs]
    parts = {
        "v": [weights.value[..., -1] for weights in finals],
        "U": [weights.key_query[:, :-1] for weights in finals],
        "u": [weights.value[..., :-1] for weights in finals],
        "h": [weights.key_query[:, -1] for weights in finals],
    }
    return {
        name: np.array([float(np.max(np.abs(each))) for each in blocks])
        for name, blocks in parts.items()
    }
