"""Merged and separate attention, trained on the same few sequences."""

from typing import Literal, NamedTuple

import jax
import jax.random as jr
import numpy as np

from ...analysis import task_operator
from ...flows import gradient_flow_ensemble
from ...models import Attention
from ...risks import dataset_risk
from ...tasks import FiniteTasks, Sequences
from .. import Lab, once
from .runs_tasks import unit_law

Kind = Literal["merged", "separate"]
KINDS: tuple[Kind, ...] = ("merged", "separate")

DIM, CONTEXT, TASKS, SEQUENCES, NOISE = 4, 8, 4, 10, 0.1
# Numbers of sequences below, at and above the D² = 16 that determine A.
CURVE = (4, 7, 10, 13, 16, 20, 28, 48)
_END = 1e4


class Ends(NamedTuple):
    """Where training ends on each data set: its matrices, their losses on unseen tasks and on the
    data, the value weights, and the key-query matrices of the start."""

    matrices: np.ndarray
    icl: np.ndarray
    train: np.ndarray
    values: np.ndarray
    starts: np.ndarray


def initial(kind: Kind) -> Attention:
    """Small weights; separate heads leave zero slowly, so theirs are larger."""
    if kind == "merged":
        return Attention.merged(jr.key(6), dim=DIM, heads=DIM, scale=1e-2)
    return Attention.separate(jr.key(7), dim=DIM, heads=DIM, scale=0.1)


def draw_sets(sets: int, count: int) -> list[Sequences]:
    """Data sets, each with K random unit tasks of its own."""
    law, found = unit_law(DIM, CONTEXT, NOISE), []
    for tasks, data in jr.split(jr.key(5), (sets, 2)):
        found.append(FiniteTasks.draw(tasks, TASKS, law, "sphere").sample(data, count))
    return found


def features(sequences: Sequences) -> np.ndarray:
    """βx_qᵀ of each sequence."""
    x, y = np.asarray(sequences.x), np.asarray(sequences.y)[..., 0]
    beta = np.einsum("pnd,pn->pd", x, y) / CONTEXT
    return beta[:, :, None] * np.asarray(sequences.x_query)[:, None, :]


@once
def trained_ends(lab: Lab, kind: Kind, count: int, sets: int) -> Ends:
    """Gradient flow of attention of one kind on `sets` data sets of `count` sequences."""
    model = initial(kind)
    risks = [dataset_risk(each, model) for each in draw_sets(sets, count)]
    runs = gradient_flow_ensemble([model] * sets, risks, end=_END, gradient_tolerance=1e-9)
    lab.hash_runs(runs)
    finals = runs.finals
    assert isinstance(finals, Attention)
    matrices = np.asarray(jax.vmap(lambda each: each.coefficients())(finals))
    return Ends(
        matrices,
        unseen_losses(matrices),
        runs.final_losses,
        np.asarray(finals.circuits.value)[..., 0, 0],
        np.asarray(getattr(model.circuits, "key_query", 0.0)),
    )


def unseen_losses(matrices: np.ndarray) -> np.ndarray:
    """The exact loss of each matrix on unseen unit tasks."""
    return task_operator(matrices, unit_law(DIM, CONTEXT, NOISE)).risk(np.eye(DIM) / DIM)


@once
def least_squares_losses(lab: Lab, count: int, sets: int) -> np.ndarray:
    """The loss on unseen tasks of least squares of least norm, by singular values."""
    del lab
    drawn = draw_sets(sets, count)
    rows = np.array([features(each).reshape(count, -1) for each in drawn])
    labels = np.array([np.asarray(each.y_query)[:, :1] for each in drawn])
    return unseen_losses((np.linalg.pinv(rows) @ labels).reshape(sets, DIM, DIM))
