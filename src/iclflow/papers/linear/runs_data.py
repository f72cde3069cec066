"""Runs on drawn sequences and on mixtures of tasks, and fresh sequences to test models on."""

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import analysis
from ...config import Config
from ...experiment import build_model
from ...flows import (
    Ensemble,
    SaveAtDrops,
    SaveEvenly,
    SaveLogSpaced,
    adam_rule,
    descend_ensemble,
    gradient_descent,
    gradient_flow,
    gradient_flow_ensemble,
    sgd_rule,
)
from ...models import AbstractModel, Attention, Merged, TwoLayerLinear
from ...risks import SampledRisk, dataset_risk, exact_quadratic_risk, risk
from ...tasks import LinearRegression, RandomLabels, Sequences, in_context_in_weight
from ...trajectory import Trajectory
from .. import Lab, once, study
from .runs import four_components, merged_model, plateau_middles, separate_run, white_task

# Sequences on which predictions on plateaus are compared.
SEQUENCES = 20_000
OTHER_CONTEXTS = (8, 16, 62, 124)
# Sequences of each other context length.
FRESH = 100_000

# Shares p of fresh tasks, and how long the mixtures are trained.
FRACTIONS = (0.02, 0.2, 0.4, 0.6, 0.8, 1.0)
END = 3e4


def plateau_models(lab: Lab) -> list[AbstractModel]:
    """The model in the middle of each plateau of a staircase, and the trained one."""
    run = separate_run(lab, 1e-3)
    return [*plateau_middles(run)[:-1], run.final]


def prediction_distances(lab: Lab, estimators: Iterable[Any], strength: float = 1.0) -> list[float]:
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


def losses_at_length(lab: Lab, model: AbstractModel, length: int, normalised: bool) -> np.ndarray:
    """The squared errors of a model on fresh sequences of another length, attention divided by
    that length, or by the length of training."""
    divided, plain = _both_losses(lab, model, length)
    return divided if normalised else plain


@once
def _both_losses(lab: Lab, model: AbstractModel, length: int) -> tuple[np.ndarray, np.ndarray]:
    # The sequences are not kept: those of all lengths take a gigabyte.
    task = LinearRegression(np.diag(four_components().covariance), length)
    sequences = task.sample(jr.key(length), FRESH)
    predictions = model.predict(sequences)
    gains = (1.0, length / four_components().contexts[0])
    divided, plain = (np.asarray(sequences.squared_error(g * predictions)) for g in gains)
    return divided, plain


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


# Fresh sequences of a step for the softmax twins, and sequences on which their loss is measured.
FRESH_BATCH, HELD_OUT = 8192, 4000


@once
def softmax_drops(lab: Lab, merged: bool, seeds: int) -> list[int]:
    """The number of drops of softmax twins from many initial weights, with all blocks trainable and
    all N + 1 tokens attended to, trained on fresh sequences at every step.

    The loss is that on sequences of its own, the same at all moments.
    """
    config, task = softmax_study(merged), four_components()
    config = config.model_copy(update={"model": config.model.model_copy(update={"form": "full"})})
    models = [build_model(config, key)[0] for key in jr.split(jr.key(35), seeds)]
    rate, steps = descent_settings(config).values()
    data, keys = SampledRisk(task, FRESH_BATCH, precision="float32"), jr.split(jr.key(36), seeds)
    save = SaveEvenly(151)
    runs = descend_ensemble(models, data, sgd_rule(rate), steps, keys=keys, save=save)
    lab.hash_runs(runs)
    held_out = dataset_risk(task.sample(jr.key(37), HELD_OUT), models[0])
    losses = eqx.filter_jit(lambda models: jax.lax.map(held_out, models))
    return [analysis.drop_count(run.times, np.asarray(losses(run.models))) for run in runs]


def descent_settings(config: Config) -> dict[str, Any]:
    """The learning rate and the number of steps of gradient descent."""
    return {name: getattr(config.flow, name) for name in ("learning_rate", "steps")}


def data_settings(config: Config) -> dict[str, Any]:
    """The settings of gradient descent on a finite set of sequences, for claims to note."""
    names = ("heads", "rank", "scale") if config.model.kind == "separate" else ("heads", "scale")
    model = {name: getattr(config.model, name) for name in names}
    return {"sequences": getattr(config.risk, "sequences"), **model, **descent_settings(config)}


# The starts at which attention and its network are compared: the size of v and that of U.
STARTS = ((1e-2, 1e-2), (1.0, 1.0), (1.0, 1e-2))
# Rates at which all of them are stable, for the rules below.
OPTIMISER_STEPS = 300
OPTIMISERS = {
    "gradient descent": lambda: sgd_rule(0.02),
    "momentum 0.9": lambda: sgd_rule(0.004, 0.9),
    "Adam": lambda: adam_rule(0.01),
}


@once
def optimiser_losses(lab: Lab, name: str, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses of merged attention and of its network from three starts, by one optimiser, on 500
    drawn sequences; `factor`: on the first weight of the network's second layer."""
    task = four_components()
    sequences = task.sample(jr.key(20), 500)
    unit = merged_model(1.0)
    models = [
        Attention(Merged.of(size_v * unit.circuits.v, size_u * unit.circuits.U))
        for size_v, size_u in STARTS
    ]
    networks = [TwoLayerLinear.from_attention(model) for model in models]
    networks = [TwoLayerLinear(n.W1, n.w2.at[0].multiply(factor)) for n in networks]
    found = [
        descend_ensemble(
            members,
            dataset_risk(sequences, members[0]),
            OPTIMISERS[name](),
            OPTIMISER_STEPS,
            save=SaveEvenly(61),
        )
        for members in (models, networks)
    ]
    lab.hash_runs(found)
    attention, network = (np.array([run.losses for run in runs]) for runs in found)
    return attention, network


# The authors' merged run in our units: their weights times √N, rate times N.
AUTHORS_MERGED = {"scale": 1e-6 * 31**0.5, "rate": 0.001 * 31, "steps": 6001}


def whiten_tasks(sequences: Sequences) -> Sequences:
    """Sequences without noise whose task vectors have mean 0 and second moment I over the set, as
    the authors draw them."""
    x, y = np.asarray(sequences.x), np.asarray(sequences.y)
    # Four of the exact labels give the task vector.
    w = np.linalg.solve(x[:, :4], y[:, :4])[..., 0]
    values, vectors = np.linalg.eigh(np.cov(w.T, bias=True))
    w = (w - w.mean(axis=0)) @ (vectors / np.sqrt(values)) @ vectors.T
    labels = np.einsum("pnd,pd->pn", x, w)[..., None]
    query = np.einsum("pd,pd->p", np.asarray(sequences.x_query), w)[..., None]
    labels, query = jnp.asarray(labels), jnp.asarray(query).reshape(sequences.y_query.shape)
    return Sequences(sequences.x, labels, sequences.x_query, query, sequences.length)


@once
def overlap_distances(lab: Lab, count: int, sets: int) -> np.ndarray:
    """The largest distance between the loss curves of full attention and of its network, trained on
    the same `count` drawn sequences from the authors' weights, for several data sets."""
    scale, rate, steps = AUTHORS_MERGED.values()
    start = merged_model(scale)
    models = (start.embed(), TwoLayerLinear.from_attention(start))
    risks: tuple[list, list] = ([], [])
    for key in jr.split(jr.key(21), sets):
        sequences = whiten_tasks(four_components().sample(key, count))
        for model, each in zip(models, risks):
            each.append(dataset_risk(sequences, model))
    full, network = runs = [
        descend_ensemble([m] * sets, each, sgd_rule(rate), steps, save=SaveEvenly(601))
        for m, each in zip(models, risks)
    ]
    lab.hash_runs(runs)
    return np.array([np.abs(a.losses - b.losses).max() for a, b in zip(full, network)])


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
    model = merged_model(getattr(config.model, "scale"), config.model.heads)
    network = TwoLayerLinear.from_attention(model)
    network = TwoLayerLinear(network.W1, network.w2.at[0].multiply(first_weight))
    return compare_descents(config, mirrored, model.embed(), network)


@once
def label_blocks(lab: Lab, rank: int | None) -> tuple[float, float, float]:
    """The largest entry of the value row on x and of the key row on y after training with all
    blocks on fresh tasks, and the distance of the predictions from those of v, U (or K, Q) alone.

    **Arguments:**

    - `rank`: of separate keys and queries; None for merged ones.
    """
    task = four_components()
    if rank is None:
        model = Attention.merged(jr.key(18), 4, 8, 1e-2).embed()
    else:
        model = Attention.separate(jr.key(18), dim=4, heads=4, rank=rank, scale=0.1).embed()
    exact = exact_quadratic_risk(task, model)
    final = gradient_flow(model, exact, end=1000.0, save=SaveEvenly(2), rtol=1e-8).final
    circuits = final.circuits
    rows = circuits.key_query if rank is None else circuits.K
    value, key = (float(np.abs(block).max()) for block in (circuits.value[..., :-1], rows[:, -1]))
    sequences = task.sample(jr.key(19), 1000)
    beta = np.einsum("pnd,pn->pd", sequences.x, sequences.y[..., 0]) / task.contexts[0]
    if rank is None:
        matrices = np.asarray(circuits.key_query)[:, :-1]
    else:
        matrices = np.einsum("hdr,her->hde", circuits.K[:, :-1], circuits.Q)
    short = np.einsum("h,pd,hde,pe->p", circuits.v, beta, matrices, sequences.x_query)
    return value, key, float(np.abs(short - final.predict(sequences)[..., 0]).max())


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


# The authors' run with --icl in our units, as AUTHORS_MERGED; it ends at 124 τ.
AUTHORS_MIXTURE = {"scale": 1e-6 * 31**0.5, "rate": 5e-4 * 31, "steps": 4001}


@once
def mixture_curves(lab: Lab, sets: int) -> tuple[np.ndarray, np.ndarray]:
    """Half-drop time, train and in-context loss at the end, one row each, for every share p > 0.02
    of fresh tasks: of the exact flow, and of descents on several drawn data sets (last axis)."""
    task, (scale, rate, steps) = white_task(0.25), AUTHORS_MIXTURE.values()
    model = Attention.merged(jr.key(23), 4, 8, scale).embed()
    mixtures = [in_context_in_weight(task, p) for p in FRACTIONS[1:]]
    risks = [exact_quadratic_risk(each, model) for each in mixtures]
    end = 2 * rate * steps
    flows = gradient_flow_ensemble([model] * len(risks), risks, end=end)
    keys = jr.split(jr.key(24), (len(mixtures), sets))
    drawn = [
        dataset_risk(each.sample(key, 5000), model)
        for each, own in zip(mixtures, keys)
        for key in own
    ]
    members = [model] * len(drawn)
    descents = descend_ensemble(members, drawn, sgd_rule(rate), steps, save=SaveEvenly(801))
    lab.hash_runs([flows, descents])
    in_context = exact_quadratic_risk(task, model)

    def measure(run: Trajectory, clock: float) -> list[float]:
        levels = [run.losses[0], run.losses[-1]]
        half = clock * analysis.drop_times(run, levels=levels)[0]
        return [half, float(run.losses[-1]), float(in_context(run.final))]

    exact = np.array([measure(run, 1.0) for run in flows]).T
    found = np.array([measure(run, 2 * rate) for run in descents]).T
    return exact, found.reshape(3, len(mixtures), sets)


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
