"""The circuits of a model in the coordinates of its task: rotations undone, labels told apart."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from ..models import AbstractModel, AttentionStack
from ..tasks import AbstractTask, LinearRegression, MultiTaskRegression


class Circuits(NamedTuple):
    """What the heads of one layer of attention attend to, and what they read.

    **Fields:**

    - `attention`: the key-query circuits, from query inputs (columns) to tokens (x; y) (rows).
    - `values`: the output-value circuits, one row for each label.
    - `masks`: 1 where a label depends on an input.
    """

    attention: Float[np.ndarray, "H T D"]
    values: Float[np.ndarray, "H I T"]
    masks: Float[np.ndarray, "I D"]

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.attention.shape[2]

    @property
    def diagonals(self) -> Float[np.ndarray, "H D"]:
        """The diagonals of the key-query blocks on the inputs."""
        return np.diagonal(self.attention[:, : self.dim], axis1=1, axis2=2)

    @property
    def omega(self) -> Float[np.ndarray, "H I"]:
        """ω_hi, the mean of the diagonal over the inputs that label i depends on."""
        return self.diagonals @ self.masks.T / self.masks.sum(1)

    @property
    def mu(self) -> Float[np.ndarray, "H I"]:
        """μ_hi, what head h carries from label i of a token to label i of the query."""
        return np.diagonal(self.values[:, :, self.dim :], axis1=1, axis2=2)

    @property
    def strength(self) -> Float[np.ndarray, "H I"]:
        """|μ_hi ω_hi|, what head h adds to the gradient step on label i, to first order."""
        return np.abs(self.mu * self.omega)


def has_circuits(model: AbstractModel) -> bool:
    """Whether a model is one layer of attention, with circuits `kq()` and `ov()`."""
    return hasattr(model, "kq") and hasattr(model, "ov")


def circuits(
    model: AbstractModel,
    task: AbstractTask | None = None,
    basis: Float[np.ndarray, "D D"] | None = None,
) -> Circuits:
    """The circuits of a model, seen in the coordinates in which its task is simple.

    **Arguments:**

    - `model`: any attention layer with circuits `kq()` and `ov()`.
    - `task`: if given, its rotations of inputs and of labels are undone, inputs with a covariance
      that is not diagonal are seen in its eigenvectors, and each label is read on the inputs that
      it depends on. Without it nothing is turned, and every label reads every input.
    - `basis`: the directions (columns) that are taken for the coordinates of the inputs, instead
      of those of the task.
    """
    if not has_circuits(model):
        raise TypeError(_no_circuits(model))
    source: Any = model
    attention, values = (np.asarray(x) for x in jax.device_get((source.kq(), source.ov())))
    values = values[:, None] if values.ndim == 2 else values
    dim, labels = attention.shape[2], values.shape[1]
    masks = np.ones((labels, dim))
    mix = None
    if task is not None:
        _check_sizes(model, task, dim, labels)
        basis = _own_basis(task) if basis is None else basis
    if isinstance(task, MultiTaskRegression):
        masks = np.asarray(task.masks, dtype=float)
        mix = task.output_rotation
    turn = _on_tokens(basis, mix, dim, labels)
    if turn is not None:
        attention = turn.T @ attention @ turn[:dim, :dim]
        values = turn[dim:, dim:].T @ values @ turn
    return Circuits(attention, values, masks)


def _own_basis(task: AbstractTask) -> np.ndarray | None:
    """The directions of the inputs in which a task is simple, if these are not the axes."""
    if isinstance(task, MultiTaskRegression):
        return None if task.input_rotation is None else np.asarray(task.input_rotation)
    if isinstance(task, LinearRegression):
        covariance = np.asarray(task.covariance)
        if np.any(covariance != np.diag(np.diagonal(covariance))):
            return np.linalg.eigh(covariance)[1]
    return None


def _on_tokens(basis, mix, dim: int, labels: int) -> np.ndarray | None:
    """The matrix that turns tokens (x; y): inputs by one matrix, labels by another."""
    if basis is None and mix is None:
        return None
    turn = np.eye(dim + labels)
    if basis is not None:
        turn[:dim, :dim] = basis
    if mix is not None:
        turn[dim:, dim:] = mix
    return turn


def _check_sizes(model: AbstractModel, task: AbstractTask, dim: int, labels: int) -> None:
    if dim != task.dim:
        raise ValueError(
            f"{type(model).__name__} has inputs of dimension {dim}: the task has {task.dim}."
        )
    wanted = task.labels if isinstance(task, MultiTaskRegression) else 1
    if labels != wanted:
        raise ValueError(
            f"{type(model).__name__} predicts {labels} label{'s' if labels > 1 else ''}: must "
            f"predict the {wanted} of the task."
        )


def _no_circuits(model: AbstractModel) -> str:
    name = type(model).__name__
    if isinstance(model, AttentionStack):
        return (
            f"{name} has no circuits `kq()` and `ov()`: it has a `key_query` and a `value` matrix "
            "in each of its layers, and what one layer reads is what the layers before it wrote. "
            "`which_algorithm` judges it by its predictions."
        )
    return f"{name} has no circuits `kq()` and `ov()`: must be one layer of attention."
