"""The experiments of the claims on the dynamics of arXiv 2402.19442, each computed once."""

import itertools

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...flows import (
    Ensemble,
    SaveAtTimes,
    SaveEvenly,
    gradient_descent,
    gradient_flow,
    gradient_flow_ensemble,
)
from ...models import Attention, BalancedSpectral, Spectral
from ...risks import risk
from ...tasks import MultiTaskRegression, Sequences
from ...theory import multitask
from ...trajectory import Trajectory
from .. import Lab, once

# Figure 1 of the paper: three equal tasks without noise. Its times are half of ours.
SIZES, CONTEXT, WIDTH = (10, 10, 10), 100, 30
OWN, OTHER, READ = 0.01, 0.008, 0.2
END = 60.0
# Tasks that differ in all that they can differ in.
UNEQUAL_SIZES, UNEQUAL_CONTEXT, UNEQUAL_WIDTH = (4, 6, 10), 50, 20
UNEQUAL_SIGNAL, UNEQUAL_NOISE = (1.0, 0.5, 2.0), (0.5, 1.0, 0.2)
# A problem so small that its data can be closed under its symmetries.
SMALL_SIZES, SMALL_CONTEXT, SMALL_NOISE = (1, 2), 6, 0.1
DATA_COUNT, DATA_RATE, DATA_STEPS = 512, 0.02, 500
SMALL_OMEGA, SMALL_MU = ((0.3, 0.2), (0.2, 0.3)), ((0.5, 0.3), (0.3, 0.5))


def blocks_of_sizes(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Coordinates 0, 1, … in blocks of these sizes."""
    edges = np.cumsum((0, *sizes)).tolist()
    return tuple(tuple(range(first, last)) for first, last in itertools.pairwise(edges))


def paper_task(**rotations) -> MultiTaskRegression:
    """The task of Figure 1."""
    sets = blocks_of_sizes(SIZES)
    return MultiTaskRegression(sets, context=CONTEXT, noise=0.0, signal=1.0, **rotations)


def unequal_task() -> MultiTaskRegression:
    """Three tasks of different sizes, signals and noises; losses are beyond the noise."""
    return MultiTaskRegression(
        blocks_of_sizes(UNEQUAL_SIZES), context=UNEQUAL_CONTEXT, noise=list(UNEQUAL_NOISE),
        signal=list(UNEQUAL_SIGNAL), noisy_query=False,
    )  # fmt: skip


def paper_start(value_imbalance: float | np.ndarray = 0.0) -> Attention:
    """Head i ahead of the others on task i."""
    imbalance = jnp.asarray(value_imbalance)
    return Attention(
        Spectral.of(*paper_values(), blocks_of_sizes(SIZES), width=WIDTH, value_imbalance=imbalance)
    )


def paper_values() -> tuple[np.ndarray, np.ndarray]:
    """ω and μ of `paper_start`."""
    return np.where(np.eye(3) > 0, OWN, OTHER), np.full((3, 3), READ)


@once
def full_flow(lab: Lab) -> Trajectory:
    """Gradient flow of full factors K, Q, V and O in random frames, on the large-context risk."""
    model = Attention(paper_start().circuits.factored(jr.key(3)))
    return gradient_flow(
        model, risk(paper_task(), model, "large_context"), end=END, save=SaveEvenly(241),
        progress=False,
    )  # fmt: skip


def rotated_task() -> MultiTaskRegression:
    """The task of Figure 1 with inputs and labels turned at random."""
    turn = lambda seed, size: np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
    return paper_task(input_rotation=turn(1, sum(SIZES)), output_rotation=turn(2, len(SIZES)))


def rotate_weights(model: Attention, task: MultiTaskRegression) -> Attention:
    """Factors in the coordinates of a task with rotations R and P, whose tokens hold Rx and Py."""
    inputs, outputs = task.input_rotation, task.output_rotation
    assert inputs is not None and outputs is not None
    leaves = (
        model.circuits.K @ inputs.T,
        model.circuits.Q @ inputs.T,
        model.circuits.V @ outputs.T,
        outputs @ model.circuits.O,
    )
    return eqx.tree_at(
        lambda m: (m.circuits.K, m.circuits.Q, m.circuits.V, m.circuits.O), model, leaves
    )


@once
def balanced_flow(lab: Lab) -> Trajectory:
    """One weight for each pair of factors, which cannot lose their balance, for a long time.

    (With four factors rounding grows into an imbalance: from exact balance these leave the saddle
    between t = 120 and 200.)
    """
    omega, mu = paper_values()
    model = Attention(BalancedSpectral.of(omega, mu, blocks_of_sizes(SIZES), width=WIDTH))
    times = (0.0, 60.0, 120.0, 200.0, 800.0, 2000.0, 2e4)
    # Stability would hold explicit steps to half a unit of time.
    return gradient_flow(
        model, risk(paper_task(), model, "large_context"), end=times[-1],
        save=SaveAtTimes(times), solver="implicit", progress=False,
    )  # fmt: skip


def small_task() -> MultiTaskRegression:
    """Two tasks on one and two coordinates."""
    return MultiTaskRegression(
        blocks_of_sizes(SMALL_SIZES), context=SMALL_CONTEXT, noise=SMALL_NOISE, signal=1.0
    )


@once
def data_flow(lab: Lab, closed: bool) -> Trajectory:
    """Whole tokens and full factors on a data set: closed under the symmetries of the task, or as
    drawn. Steps of descent compile sooner than flow, and keep what flow keeps."""
    task = small_task()
    start = Spectral.of(SMALL_OMEGA, SMALL_MU, task.coordinates, width=5)
    model = Attention(start.factored(jr.key(3)).embed())
    data = task.sample(jr.key(1), DATA_COUNT)
    if closed:
        # 8 flips of coordinates, 4 of labels, 2 orders: as many sequences as drawn.
        data = closed_under_symmetries(data[: DATA_COUNT // 64], task.coordinates)
    data_risk = risk(task, model, "dataset", sequences=data)
    return gradient_descent(
        model, data_risk, DATA_RATE, DATA_STEPS, save=SaveEvenly(21), progress=False
    )


def closed_under_symmetries(data: Sequences, coordinates: tuple[tuple[int, ...], ...]) -> Sequences:
    """All sequences that are as likely as those of `data`, by sign flips and permutations.

    A coordinate may change its sign, and trade places within its block, if its coefficient does
    the same: the labels stay. A label may change its sign, with its coefficients and its noise.
    """
    signs = lambda count: itertools.product((1.0, -1.0), repeat=count)
    orders = itertools.product(*(itertools.permutations(block) for block in coordinates))
    places = [np.concatenate(order).astype(int) for order in orders]
    moves = itertools.product(signs(data.x.shape[-1]), signs(data.labels), places)
    plain = [np.asarray(leaf) for leaf in (data.x, data.y, data.x_query, data.y_query, data.length)]
    copies = []
    for flip, turn, place in moves:
        x, y, x_query, y_query, length = plain
        copies.append(
            (x[..., place] * flip, y * turn, x_query[..., place] * flip, y_query * turn, length)
        )
    return Sequences(*(jnp.asarray(np.concatenate(parts)) for parts in zip(*copies)))


# Relative imbalances of O and V; and losses at four times, by other code. Those times are half of
# ours.
IMBALANCES = (1e-1, 1e-3, 1e-4, 1e-5, 1e-6)
IMBALANCED_TIMES = (60.0, 120.0, 200.0, 2e4)


@once
def imbalanced_flows(lab: Lab) -> Ensemble:
    """The start of Figure 1 with O a little larger than V, by four factors a head and task."""
    _, mu = paper_values()
    models = [paper_start(multitask.relative_imbalance(mu, delta)) for delta in IMBALANCES]
    times = np.union1d(np.arange(0.0, 100.0, 0.5), IMBALANCED_TIMES)
    return gradient_flow_ensemble(
        models, risk(paper_task(), models[0], "large_context"), end=IMBALANCED_TIMES[-1],
        save=SaveAtTimes(tuple(times)), solver="implicit", progress=False,
    )  # fmt: skip
