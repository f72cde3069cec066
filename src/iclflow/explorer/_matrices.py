"""The matrices of the heads at the saved points of a run, in the coordinates of the task."""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from ..analysis import circuits, component_basis, input_variances
from ..estimators import eigenvectors
from ..models import (
    AbstractModel,
    AttentionStack,
    ConvolutionalLinear,
    MergedKQ,
    MultiMergedKQ,
    SeparateKQ,
    TwoLayerLinear,
    assemble,
)
from ..tasks import AbstractTask, LinearRegression, Mixture, MultiTaskRegression
from ..trajectory import Trajectory

# Points that are looked at together, few or many: two programs serve runs of every length.
_SIZES = (16, 256)
_BYTES = 2**25


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
        models = _as_attention(run.models)
        if isinstance(models, AttentionStack):
            return _of_stack(models)
        attention, values = _by_point(models, len(run))
        heads = attention.shape[1]
        # The heads of all points side by side are the heads of one model. They are put there as
        # they are: to convert them, JAX would compile a program for every number of points.
        together = MultiMergedKQ(
            value=jax.device_put(values.reshape(-1, *values.shape[2:])),
            key_query=jax.device_put(attention.reshape(-1, *attention.shape[2:])),
        )
        found = circuits(together, self.task, self.basis)
        each = lambda part: part.reshape(-1, heads, *part.shape[1:])
        return Heads(
            *(each(found.attention), each(found.values), each(found.omega), each(found.mu)),
            run.models,
        )


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
    source: Any = _as_attention(jax.tree.map(lambda leaf: np.asarray(leaf)[None], model))
    heads = eqx.filter_eval_shape(eqx.filter_vmap(lambda m: m.ov()), source).shape[1]
    matrices = (Matrix("KQ", tokens, inputs), Matrix("OV", outputs, tokens))
    return Reader(task, basis, tuple(f"head {h + 1}" for h in range(heads)), matrices)


def _distinct(task: AbstractTask) -> bool:
    """Whether some directions have more variance than others, so that components have a name."""
    assert isinstance(task, LinearRegression | Mixture)
    values = input_variances(task, np.asarray(eigenvectors(task)))
    return bool(np.ptp(values) > 1e-9 * values.max())


def _as_attention(models: AbstractModel) -> AbstractModel:
    """The attention that the linear networks are equivalent to; other models as they are."""
    if isinstance(models, TwoLayerLinear):
        rows = np.asarray(models.W1)
        dim = round(rows.shape[-1] ** 0.5)
        blocks = np.swapaxes(rows.reshape(*rows.shape[:-1], dim, dim), -1, -2)
        fields = {"v": models.w2, "U": blocks}
        return assemble(MergedKQ, {**fields, **_OPTIONS, "normaliser": models.normaliser})
    if isinstance(models, ConvolutionalLinear):
        keys, queries = (np.swapaxes(np.asarray(x), -1, -2) for x in (models.kernel, models.row))
        fields = {"v": models.scalar, "K": keys, "Q": queries}
        return assemble(SeparateKQ, {**fields, **_OPTIONS, "normaliser": models.normaliser})
    return models


_OPTIONS = {"activation": "linear", "self_attention": True}


def _of_stack(models: AttentionStack) -> Heads:
    """The heads of all layers, one after the other. What they read is what earlier ones wrote."""
    blocks, values = (
        np.asarray(x).reshape(x.shape[0], -1, *x.shape[3:])
        for x in (models.key_query, models.value)
    )
    diagonal = np.diagonal(blocks[..., :-1, :-1], axis1=-2, axis2=-1)
    return Heads(blocks, values, diagonal.mean(-1)[..., None], values[..., -1, -1:], models)


def _by_point(models: AbstractModel, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The key-query and the output-value circuits at each point, as in `Heads`."""
    leaves, structure = jax.tree.flatten(models)
    one = _of_one_point(structure, tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves))
    weight = sum(8 * int(np.prod(part.shape)) for part in one)
    largest = max(1, min(_SIZES[-1], _BYTES // weight))
    size = min(_SIZES[0], largest) if count <= _SIZES[0] else largest
    parts = []
    for begin in range(0, count, size):
        # The last point stands in for those that are missing, for the sake of one shape.
        places = np.minimum(np.arange(begin, begin + size), count - 1)
        some = jax.tree.map(lambda leaf: np.asarray(leaf)[places], models)
        parts.append([np.asarray(part)[: count - begin] for part in _stacked(some)])
    if not parts:
        return np.zeros((0, *one[0].shape[1:])), np.zeros((0, *one[1].shape[1:]))
    attention, values = (np.concatenate(each) for each in zip(*parts))
    return attention, values


@functools.lru_cache(maxsize=64)
def _of_one_point(structure: Any, leaves: tuple[tuple[tuple[int, ...], Any], ...]) -> Any:
    """The shapes of the circuits of one point. Remembered: runs are told in many pieces."""
    shapes = [jax.ShapeDtypeStruct((1, *shape), dtype) for shape, dtype in leaves]
    return eqx.filter_eval_shape(_stacked, jax.tree.unflatten(structure, shapes))


@eqx.filter_jit
def _stacked(models: Any) -> tuple[Any, Any]:
    """The circuits of models with a leading axis, with an axis of labels."""
    attention, values = eqx.filter_vmap(lambda model: (model.kq(), model.ov()))(models)
    return attention, values[:, :, None] if values.ndim == 3 else values
