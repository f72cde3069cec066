"""The circuits of a model in the coordinates of its task, with rotations undone."""

from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from .errors import InputError
from .models import (
    AbstractModel,
    AttentionStack,
    ConvolutionalLinear,
    TwoLayerLinear,
    map_models,
    name_of,
)
from .tasks import AbstractRegression, AbstractTask

Role = Literal["positive", "negative", "opposing", "dummy"]
# A head weaker than this share of the strongest is a dummy.
DUMMY_SHARE = 0.1
"""A head is a dummy if its step is below this share of the largest one.

**Example:**

```pycon
>>> from iclflow.circuits import DUMMY_SHARE
>>> DUMMY_SHARE
0.1
```
"""


class Circuits(NamedTuple):
    """The circuits of the heads of one layer of attention.

    Of one model, or of many, such as all points of a run, with axes for these in front.

    **Fields:**

    - `attention`: the key-query circuits, from query inputs (columns) to tokens (x; y) (rows).
    - `values`: the output-value circuits, one row for each label.
    - `masks`: 1 where a label depends on an input.
    """

    attention: Float[np.ndarray, "*points H T D"]
    values: Float[np.ndarray, "*points H I T"]
    masks: Float[np.ndarray, "I D"]

    @property
    def dim(self) -> int:
        """D, the number of inputs."""
        return self.attention.shape[-1]

    @property
    def diagonals(self) -> Float[np.ndarray, "*points H D"]:
        """The diagonals of the key-query blocks on the inputs."""
        return np.diagonal(self.attention[..., : self.dim, :], axis1=-2, axis2=-1)

    @property
    def omega(self) -> Float[np.ndarray, "*points H I"]:
        """ω_hi, the mean of the diagonal over the inputs that label i depends on."""
        return self.diagonals @ self.masks.T / self.masks.sum(1)

    @property
    def mu(self) -> Float[np.ndarray, "*points H I"]:
        """μ_hi, what head h carries from label i of a token to label i of the query."""
        return np.diagonal(self.values[..., self.dim :], axis1=-2, axis2=-1)

    @property
    def strength(self) -> Float[np.ndarray, "*points H I"]:
        """|μ_hi ω_hi|, the part of head h in the gradient step on label i, to first order."""
        return np.abs(self.mu * self.omega)

    @property
    def together(self) -> Float[np.ndarray, "*points I D D"]:
        """Σ_h μ_hi W_h + u_hi w_hiᵀ, the sum of all heads for label i: W is the key-query block on
        inputs, w its row at label i, and u the output-value row on inputs.

        For linear attention this is A in ŷ = βᵀAx_q, and for softmax attention to first order.
        """
        dim = self.dim
        through_labels = np.einsum("...hi,...hde->...ide", self.mu, self.attention[..., :dim, :])
        crossed = self.values[..., :dim], self.attention[..., dim:, :]
        return through_labels + np.einsum("...hid,...hie->...ide", *crossed)


def has_circuits(model: AbstractModel) -> bool:
    """Whether a model is one layer of attention, with circuits `kq()` and `ov()`.

    **Example:**

    ```pycon
    >>> icl.analysis.has_circuits(icl.Attention.merged(jr.key(0), dim=2, heads=1))
    True
    ```
    """
    return hasattr(model, "kq") and hasattr(model, "ov")


def circuits(
    model: AbstractModel,
    task: AbstractTask | None = None,
    basis: Float[np.ndarray, "D D"] | None = None,
) -> Circuits:
    """The circuits of a model in the coordinates in which its task is diagonal.

    **Arguments:**

    - `model`: any attention layer with circuits `kq()` and `ov()`.
    - `task`: if given, its rotations of inputs and of labels are undone, a covariance that is not
      diagonal is diagonalised, and each label is read on the inputs that it depends on. Without it
      nothing is rotated, and every label reads every input.
    - `basis`: directions (columns) to use as coordinates of the inputs, instead of the task's.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> found = icl.analysis.circuits(pair, task)
    >>> found.omega.round(2), found.mu.round(2)
    (array([[ 0.13],
           [-0.13]]), array([[ 3.45],
           [-3.45]]))
    ```
    """
    if not has_circuits(model):
        raise TypeError(_no_circuits(model))
    attention, values = (np.asarray(part) for part in jax.device_get(read_heads(model)))
    return in_coordinates(attention, values, task, basis, name_of(model))


def stacked_circuits(
    models: AbstractModel,
    task: AbstractTask | None = None,
    basis: Float[np.ndarray, "D D"] | None = None,
) -> Circuits:
    """The circuits of a stack of models, such as `Trajectory.models`, with the axis of the stack in
    front. Arguments as in `circuits`; see `read_heads` for models that are not one layer.

    **Example:**

    ```pycon
    >>> from iclflow.circuits import stacked_circuits
    >>> models = icl.init_many(lambda key: icl.Attention.merged(key, 2, 1), jr.split(jr.key(0), 4))
    >>> stacked_circuits(models).attention.shape
    (4, 1, 3, 2)
    ```
    """
    attention, values = map_models(read_heads, models)
    return in_coordinates(attention, values, task, basis, name_of(models))


def in_coordinates(
    attention: Float[np.ndarray, "*points H T D"],
    values: Float[np.ndarray, "*points H I T"],
    task: AbstractTask | None = None,
    basis: Float[np.ndarray, "D D"] | None = None,
    name: str = "The model",
) -> Circuits:
    """Key-query and output-value circuits of a model called `name`, as in `circuits`.

    **Example:**

    ```pycon
    >>> from iclflow.circuits import in_coordinates
    >>> in_coordinates(np.ones((1, 3, 2)), np.ones((1, 1, 3))).dim
    2
    ```
    """
    dim, labels = attention.shape[-1], values.shape[-2]
    # Without a task, every label depends on every input.
    masks = np.ones((labels, dim))
    mix = None
    if task is not None:
        _check_sizes(name, task, dim, labels)
    if isinstance(task, AbstractRegression):
        basis = task.input_basis if basis is None else basis
        masks = np.asarray(task.masks, dtype=float)
        mix = task.output_rotation
    turn = _on_tokens(basis, mix, dim, labels)
    # Skipped where nothing is rotated: products with the identity would only cost time.
    if turn is not None:
        attention = turn.T @ attention @ turn[:dim, :dim]
        values = turn[dim:, dim:].T @ values @ turn
    return Circuits(attention, values, masks)


def read_heads(model: AbstractModel) -> tuple[Float[Array, "H T D"], Float[Array, "H I T"]]:
    """The key-query and the output-value circuit of each head.

    The heads of a linear network are those of the equivalent attention. The heads of a stack are
    those of all layers, one after the other, with the output to the label; their input is the
    output of earlier layers.

    **Example:**

    ```pycon
    >>> from iclflow.circuits import read_heads
    >>> stack = icl.AttentionStack.init(jr.key(0), dim=2, heads=1, depth=3)
    >>> [part.shape for part in read_heads(stack)]
    [(3, 3, 2), (3, 1, 3)]
    ```
    """
    if isinstance(model, AttentionStack):
        tokens = model.key_query.shape[-1]
        blocks, outputs = (
            weights.reshape(-1, tokens, tokens) for weights in (model.key_query, model.value)
        )
        # Of the columns for queries the inputs, of the rows for outputs the label.
        return blocks[:, :, :-1], outputs[:, -1:]
    source: Any = model
    if isinstance(model, TwoLayerLinear | ConvolutionalLinear):
        source = model.to_attention()
    if not has_circuits(source):
        raise TypeError(_no_circuits(model))
    return source.kq(), source.ov()


def head_roles(
    omega: Float[np.ndarray, " H"],
    mu: Float[np.ndarray, " H"],
    dummy_share: float = DUMMY_SHARE,
    largest: float | None = None,
) -> tuple[Role, ...]:
    """The role of each head, from its attention ω and its output μ.

    To first order head h adds μ_h ω_h to the step η = Σ μω. A head is a **dummy** if |μ_h ω_h| is
    below `dummy_share` of the `largest` (by default that of these heads); otherwise **positive** if
    ω > 0 and μ > 0, **negative** if ω < 0 and μ < 0, and **opposing** if their signs differ: it
    then works against the others.

    **Example:**

    ```pycon
    >>> icl.analysis.head_roles(np.array([0.13, -0.13, 0.01]), np.array([3.45, -3.45, 0.02]))
    ('positive', 'negative', 'dummy')
    ```
    """
    strengths = np.abs(np.asarray(mu) * np.asarray(omega))
    least = dummy_share * (strengths.max(initial=0.0) if largest is None else largest)

    def role(strength: float, w: float, m: float) -> Role:
        # `<=`: if all strengths are zero, all heads are dummies.
        if strength <= least:
            return "dummy"
        if (w > 0) != (m > 0):
            return "opposing"
        return "positive" if w > 0 else "negative"

    return tuple(role(s, w, m) for s, w, m in zip(strengths, omega, mu))


def _on_tokens(
    basis: np.ndarray | None, mix: Array | None, dim: int, labels: int
) -> np.ndarray | None:
    """The block-diagonal rotation of tokens (x; y), or None if nothing is rotated."""
    if basis is None and mix is None:
        return None
    turn = np.eye(dim + labels)
    if basis is not None:
        turn[:dim, :dim] = basis
    if mix is not None:
        turn[dim:, dim:] = mix
    return turn


def _check_sizes(name: str, task: AbstractTask, dim: int, labels: int) -> None:
    if dim != task.dim:
        raise InputError(f"{name} has inputs of dimension {dim}: the task has {task.dim}.")
    if labels != task.labels:
        raise InputError(
            f"{name} predicts {labels} label{'s' if labels > 1 else ''}: must "
            f"predict the {task.labels} of the task."
        )


def _no_circuits(model: AbstractModel) -> str:
    name = name_of(model)
    if isinstance(model, AttentionStack):
        return (
            f"{name} has no circuits `kq()` and `ov()`: it has a `key_query` and a `value` matrix "
            "in each of its layers, and a layer reads the output of the layers before it. "
            "`which_algorithm` judges it by its predictions."
        )
    return f"{name} has no circuits `kq()` and `ov()`: must be one layer of attention."
