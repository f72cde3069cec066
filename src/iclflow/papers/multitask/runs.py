"""The runs behind the claims and figures on the dynamics of arXiv 2402.19442."""

import itertools
from typing import Any

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
from ...models import Attention, Spectral
from ...risks import risk
from ...tasks import MultiTaskRegression, Sequences
from ...theory import multitask
from ...trajectory import Trajectory
from .. import Lab, once, study, task_settings

# Figure 1 of the paper: three equal tasks without noise. Our times are twice those of the paper,
# whose flow follows −∂L/∂W where ours follows −½ ∂L/∂W.
PHASES = task_settings("multitask/phases")
SIZES, CONTEXT = tuple(map(len, PHASES["coordinates"])), PHASES["context"]
WIDTH = sum(SIZES)
_phases: Any = study("multitask/phases")
END = _phases.flow.end
# ω of a head on its own task and on the others, and every μ, at the start.
OWN, READ = _phases.model.omega, _phases.model.mu
OTHER = OWN * (1 - _phases.model.spread)
FULL_WEIGHTS = "full K, Q, V and O in random frames"
# Draws these frames.
FRAMES = 3

UNEQUAL = task_settings("multitask/all-unequal")
UNEQUAL_SIZES = tuple(map(len, UNEQUAL["coordinates"]))
UNEQUAL_WIDTH = sum(UNEQUAL_SIZES)

# A problem so small that its data can be closed under its symmetries: 8 sign flips of coordinates,
# 4 of labels, and 2 orders of the coordinates within blocks.
DATA: Any = study("multitask/data-set")
_SYMMETRIES = 8 * 4 * 2
_DATA_OMEGA, _DATA_MU = ((0.3, 0.2), (0.2, 0.3)), ((0.5, 0.3), (0.3, 0.5))

# Relative imbalances of O and V, and the times of the reference losses, by other code.
IMBALANCES = (1e-1, 1e-3, 1e-4, 1e-5, 1e-6)
IMBALANCED_TIMES = (60.0, 120.0, 200.0, 2e4)


def blocks_of_sizes(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Coordinates 0, 1, … in blocks of these sizes."""
    edges = np.cumsum((0, *sizes)).tolist()
    return tuple(tuple(range(first, last)) for first, last in itertools.pairwise(edges))


def paper_task(**rotations) -> MultiTaskRegression:
    """The task of Figure 1."""
    return MultiTaskRegression(**PHASES, noise=0.0, **rotations)


def paper_values() -> tuple[np.ndarray, np.ndarray]:
    """ω and μ at the start of Figure 1: head i is ahead of the others on task i."""
    return np.where(np.eye(3) > 0, OWN, OTHER), np.full((3, 3), READ)


def paper_heads(
    omega: np.ndarray, mu: np.ndarray, value_imbalance: np.ndarray | float = 0.0
) -> Attention:
    """Heads on the task of Figure 1 with these singular values, as four factors."""
    sets = blocks_of_sizes(SIZES)
    imbalance = jnp.asarray(value_imbalance)
    return Attention(Spectral.of(omega, mu, sets, width=WIDTH, value_imbalance=imbalance))


def paper_start(value_imbalance: float | np.ndarray = 0.0) -> Attention:
    """The heads at the start of Figure 1."""
    return paper_heads(*paper_values(), value_imbalance)


def full_start() -> Attention:
    """The same start as full factors K, Q, V and O in random frames."""
    return Attention(paper_start().circuits.factored(jr.key(FRAMES)))


def note_paper(lab: Lab, **more) -> None:
    """Records the settings of Figure 1 for a claim."""
    omega, mu = paper_values()
    lab.note(
        sizes=SIZES, context=CONTEXT, noise=0.0, heads=3, width=WIDTH, omega=omega, mu=mu, **more
    )


@once
def full_flow(lab: Lab) -> Trajectory:
    """Gradient flow of full factors on the large-context risk."""
    model = full_start()
    return gradient_flow(
        model, risk(paper_task(), model, "large_context"), end=END, save=SaveEvenly(241),
        progress=False,
    )  # fmt: skip


def balanced_flow(lab: Lab) -> Trajectory:
    """A long flow with one weight for each pair of factors, which keeps them balanced.

    (With four factors rounding grows into an imbalance: from exact balance these leave the saddle
    between t = 120 and 200.)
    """
    return lab.run(study("multitask/limit"))


@once
def imbalanced_flows(lab: Lab) -> Ensemble:
    """The start of Figure 1 with O a little larger than V, with four factors per head and task."""
    _, mu = paper_values()
    models = [paper_start(multitask.relative_imbalance(mu, delta)) for delta in IMBALANCES]
    times = np.union1d(np.arange(0.0, 100.0, 0.5), IMBALANCED_TIMES)
    return gradient_flow_ensemble(
        models, risk(paper_task(), models[0], "large_context"), end=IMBALANCED_TIMES[-1],
        save=SaveAtTimes(tuple(times)), solver="implicit", progress=False,
    )  # fmt: skip


def imbalanced_theory(times: np.ndarray, delta: float) -> multitask.SpectralFlow:
    """Theory's flow of the singular values from the same starts."""
    omega, mu = paper_values()
    imbalance = multitask.relative_imbalance(mu, delta)
    return multitask.spectral_flow(paper_task(), times, omega, mu, WIDTH, value_imbalance=imbalance)


def paper_limits() -> tuple[float, float]:
    """The loss of one head per task, where balanced flow ends, and the infimum of three heads."""
    task = paper_task()
    return multitask.gradient_flow_limit(task).loss, multitask.lower_bound(task, 3).loss


def unequal_task() -> MultiTaskRegression:
    """Three tasks of different sizes, signals and noises; losses exclude the query's noise."""
    return MultiTaskRegression(**UNEQUAL, noisy_query=False)


def rotated_task() -> MultiTaskRegression:
    """The task of Figure 1 with random rotations of inputs and labels."""
    turn = lambda seed, size: np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]
    return paper_task(input_rotation=turn(1, sum(SIZES)), output_rotation=turn(2, len(SIZES)))


def rotate_weights(model: Attention, task: MultiTaskRegression) -> Attention:
    """Factors in the coordinates of a task with rotations R and P, whose tokens hold Rx and Py."""
    inputs, outputs = task.input_rotation, task.output_rotation
    assert inputs is not None and outputs is not None
    factors = lambda model: tuple(getattr(model.circuits, name) for name in "KQVO")
    K, Q, V, O = factors(model)  # noqa: E741
    rotated = (K @ inputs.T, Q @ inputs.T, V @ outputs.T, outputs @ O)
    return eqx.tree_at(factors, model, rotated)


def small_task() -> MultiTaskRegression:
    """Two tasks, on one coordinate and on two."""
    return MultiTaskRegression(**task_settings("multitask/data-set"))


@once
def data_flow(lab: Lab, closed: bool) -> Trajectory:
    """Full factors on whole tokens, trained on a data set.

    **Arguments:**

    - `closed`: whether the data are closed under the symmetries of the task, or as drawn.
    """
    task, count = small_task(), DATA.risk.sequences
    # Unlike the study's, these μ differ, so that no symmetry of the start helps.
    start = Spectral.of(_DATA_OMEGA, _DATA_MU, task.coordinates, width=DATA.model.width)
    model = Attention(start.factored(jr.key(FRAMES)).embed())
    data = task.sample(jr.key(1), count)
    if closed:
        data = closed_under_symmetries(data[: count // _SYMMETRIES], task.coordinates)
    # Descent compiles faster than flow, and conserves the same forms.
    return gradient_descent(
        model, risk(task, model, "dataset", sequences=data), DATA.flow.learning_rate,
        DATA.flow.steps, save=SaveEvenly(DATA.save.count), progress=False,
    )  # fmt: skip


def closed_under_symmetries(data: Sequences, coordinates: tuple[tuple[int, ...], ...]) -> Sequences:
    """All sequences that are as likely as those of `data`, by sign flips and permutations.

    A coordinate may change its sign, or swap places within its block, if its coefficient does the
    same: the labels stay. A label may change its sign, with its coefficients and its noise.
    """
    signs = lambda count: itertools.product((1.0, -1.0), repeat=count)
    orders = itertools.product(*(itertools.permutations(block) for block in coordinates))
    places = [np.concatenate(order).astype(int) for order in orders]
    moves = itertools.product(signs(data.x.shape[-1]), signs(data.labels), places)
    x, y, x_query, y_query, length = map(
        np.asarray, (data.x, data.y, data.x_query, data.y_query, data.length)
    )
    copies = [
        (x[..., place] * flip, y * turn, x_query[..., place] * flip, y_query * turn, length)
        for flip, turn, place in moves
    ]
    return Sequences(*(jnp.asarray(np.concatenate(parts)) for parts in zip(*copies)))
