"""The matrices of the heads at the saved points of a run, in the coordinates of the task."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import numpy as np

from ..analysis import component_basis, input_variances
from ..circuits import in_coordinates, read_heads
from ..estimators import eigenvectors
from ..models import AbstractModel, AttentionStack
from ..tasks import AbstractTask, LinearRegression, Mixture, MultiTaskRegression
from ..trajectory import Trajectory


class Matrix(NamedTuple):
    """One matrix that every head has, and what its rows and columns stand for."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]


class Heads(NamedTuple):
    """The heads at some points of a run (T of them).

    **Fields:**

    - `attention`: the key-query circuits, (T, H, tokens, inputs).
    - `values`: the output-value circuits, (T, H, labels, tokens).
    - `omega`, `mu`: by head and label, as in `iclflow.analysis.Circuits`.
    - `models`: their weights as they are, with a leading axis.
    """

    attention: np.ndarray
    values: np.ndarray
    omega: np.ndarray
    mu: np.ndarray
    models: AbstractModel


@dataclasses.dataclass(frozen=True)
class Reader:
    """Reads the matrices of the heads off runs of one experiment.

    **Fields:**

    - `basis`: the eigenvectors of the inputs as columns, the largest eigenvalue first, for tasks
      that have them; matrices are seen in it.
    - `labels`: the names of the heads.
    - `matrices`: what every head has.
    """

    task: AbstractTask
    basis: np.ndarray | None
    labels: tuple[str, ...]
    matrices: tuple[Matrix, ...]

    def read(self, run: Trajectory) -> Heads:
        """The heads at every point of a run."""
        if isinstance(run.models, AttentionStack):
            return _of_stack(run.models)
        attention, values = run.map(read_heads)
        found = in_coordinates(attention, values, self.task, self.basis)
        return Heads(found.attention, found.values, found.omega, found.mu, run.models)


def reader_of(task: AbstractTask, model: AbstractModel) -> Reader:
    """What reads the heads of models of the shape of `model` on a task."""
    basis = component_basis(task)
    several = task.labels if isinstance(task, MultiTaskRegression) else 1
    letter = "x" if basis is None or not _distinct(task) else "e"
    inputs = tuple(f"{letter}{d + 1}" for d in range(task.dim))
    outputs = ("y",) if several == 1 else tuple(f"y{i + 1}" for i in range(several))
    tokens = inputs + outputs
    if isinstance(model, AttentionStack):
        layers, heads = model.key_query.shape[:2]
        names = [
            f"layer {layer + 1}, head {h + 1}" if layers > 1 else f"head {h + 1}"
            for layer in range(layers)
            for h in range(heads)
        ]
        square = (Matrix("KQ", tokens, tokens), Matrix("OV", tokens, tokens))
        return Reader(task, None, tuple(names), square)
    heads = eqx.filter_eval_shape(read_heads, model)[1].shape[0]
    matrices = (Matrix("KQ", tokens, inputs), Matrix("OV", outputs, tokens))
    return Reader(task, basis, tuple(f"head {h + 1}" for h in range(heads)), matrices)


def _distinct(task: AbstractTask) -> bool:
    """Whether some directions have more variance than others, so that components have a name."""
    assert isinstance(task, LinearRegression | Mixture)
    values = input_variances(task, np.asarray(eigenvectors(task)))
    return bool(np.ptp(values) > 1e-9 * values.max())


def _of_stack(models: AttentionStack) -> Heads:
    """The heads of all layers, one after the other. What they read is what earlier ones wrote."""
    blocks, values = (
        np.asarray(x).reshape(x.shape[0], -1, *x.shape[3:])
        for x in (models.key_query, models.value)
    )
    diagonal = np.diagonal(blocks[..., :-1, :-1], axis1=-2, axis2=-1)
    return Heads(blocks, values, diagonal.mean(-1)[..., None], values[..., -1, -1:], models)
