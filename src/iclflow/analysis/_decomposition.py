"""How far attention is from decomposable: one number per head and task, and nothing else
(arXiv 2402.19442)."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..circuits import Circuits, circuits, stacked_circuits
from ..errors import InputError, Refusal
from ..models import AbstractModel, AbstractSpectral, Factored
from ..tasks import MultiTaskRegression
from ..trajectory import Trajectory
from ._heads import ratio

# The circuits of points that are measured together take at most this many bytes.
_BYTES = 2**26


class Preservation(NamedTuple):
    """Singular values and defects at each saved point of a run (T of them).

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3]], context=40)
    >>> start = lambda key: icl.Attention.balanced(key, task.coordinates, heads=2)
    >>> models = icl.init_many(start, jr.split(jr.key(0), 3))
    >>> run = icl.Trajectory(np.arange(3.0), np.ones(3), models)
    >>> kept = icl.decomposition(run, task).preservation
    >>> kept.omega.shape, bool(kept.largest.max() < 1e-12)
    ((3, 2, 2), True)
    ```
    """

    times: Float[np.ndarray, " T"]
    omega: Float[np.ndarray, "T H I"]
    mu: Float[np.ndarray, "T H I"]
    defects: dict[str, Float[np.ndarray, " T"]]

    @property
    def largest(self) -> Float[np.ndarray, " T"]:
        """The largest defect at each point."""
        return np.max(list(self.defects.values()), axis=0)


@dataclasses.dataclass(frozen=True)
class Decomposition:
    """The singular values of a model in the coordinates of its task, and what they do not describe.

    A decomposable head has the key-query circuit ω_hi on the diagonal of block i and the
    output-value circuit μ_hi on label i. Its factors are K = Ψ diag(k), Q = Ψ diag(q), with
    ω = kq/√E, and Oᵀ = Ξ diag(o), V = Ξ diag(v), with μ = ov, for orthonormal columns Ψ and Ξ.

    **Fields:**

    - `omega`, `mu`: ω_hi, the mean over the block, with its sign, and μ_hi.
    - `defects`: by name, the norm of a part that a decomposable model does not have, as a share of
      the norm of the whole, over all heads. Of the circuits: `"labels in key-query"`,
      `"off-diagonal key-query"`, `"uneven key-query"` (within blocks, or on inputs that no task
      reads), `"inputs in output-value"`, `"off-diagonal output-value"`. Of factors, for models that
      have them: `"labels in K"`, `"inputs in V"`; `"K"`, `"Q"`, `"V"` and `"O"` (KᵀK, QᵀQ, VᵀV and
      OOᵀ where they are off-diagonal or uneven); `"frame of K and Q"` and `"frame of O and V"` (the
      part of K, and of O, across the columns of Q and of V).
    - `key_imbalance`, `value_imbalance`: k² − q² and o² − v², the means over blocks; None for
      models without factors.
    - `preservation`: the same along a run; None for a model.
    """

    omega: Float[np.ndarray, "H I"]
    mu: Float[np.ndarray, "H I"]
    defects: dict[str, float]
    key_imbalance: Float[np.ndarray, "H I"] | None
    value_imbalance: Float[np.ndarray, "H I"] | None
    preservation: Preservation | None = None

    @property
    def largest(self) -> float:
        """The largest defect."""
        return max(self.defects.values())

    def is_decomposable(self, tolerance: float = 1e-6) -> bool:
        """Whether no defect is above `tolerance`."""
        if not tolerance >= 0:
            raise InputError("tolerance", tolerance, "must not be negative")
        return self.largest <= tolerance


def decomposition(source: AbstractModel | Trajectory, task: MultiTaskRegression) -> Decomposition:
    """Measures the singular values of a model, and how far it is from decomposable.

    **Arguments:**

    - `source`: a model of several labels, with circuits `kq()` and `ov()`; or a run, whose end is
      measured, and whose points are in `preservation`.
    - `task`: with blocks that do not overlap; its rotations are undone.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3]], context=40)
    >>> model = icl.Attention.balanced(jr.key(0), task.coordinates, heads=2)
    >>> found = icl.decomposition(model, task)
    >>> found.omega.round(3), found.is_decomposable()
    (array([[0.009, 0.01 ],
           [0.008, 0.009]]), True)
    ```
    """
    _check_task(task)
    blocks = np.asarray(task.masks, float)
    if not task.disjoint:
        raise Refusal(
            f"`coordinates` of `task` = {task.coordinates}: must be blocks that do not overlap."
        )
    parts = [_measure(*points, task, blocks) for points in circuits_along(source, task)]
    whole: _Measures = jax.tree.map(lambda *each: np.concatenate(each), *parts)
    # JAX sorts the keys of a dictionary: back to the order of the measurement.
    along = {name: whole.defects[name] for name in parts[0].defects}
    return Decomposition(
        omega=whole.omega[-1],
        mu=whole.mu[-1],
        defects={name: float(values[-1]) for name, values in along.items()},
        key_imbalance=None if whole.key_imbalance is None else whole.key_imbalance[-1],
        value_imbalance=None if whole.value_imbalance is None else whole.value_imbalance[-1],
        preservation=Preservation(np.asarray(source.times), whole.omega, whole.mu, along)
        if isinstance(source, Trajectory)
        else None,
    )


def circuits_along(
    source: AbstractModel | Trajectory, task: MultiTaskRegression
) -> Iterator[tuple[Any, Circuits]]:
    """The points of a run in batches, or a model as one point: stacked models, with their circuits
    in the coordinates of the task."""
    _check_task(task)
    is_run = isinstance(source, Trajectory)
    if is_run and len(source) == 0:
        raise Refusal("`source` is a run without points: must have at least one.")
    # One point first: it raises a clear error if it does not fit, and says how large a point is.
    one = circuits(source.final if is_run else source, task)
    if not is_run:
        models = jax.tree.map(lambda leaf: np.asarray(leaf)[None], source)
        yield models, one._replace(attention=one.attention[None], values=one.values[None])
        return
    size = max(1, _BYTES // (one.attention.nbytes + one.values.nbytes))
    for begin in range(0, len(source), size):
        some = source[begin : begin + size]
        yield some.models, stacked_circuits(some.models, task)


def _check_task(task: Any) -> None:
    if not isinstance(task, MultiTaskRegression):
        raise TypeError(f"`task` is a {type(task).__name__}: must be a MultiTaskRegression.")


class _Measures(NamedTuple):
    """The fields of `Decomposition`, with a leading axis over points."""

    omega: np.ndarray
    mu: np.ndarray
    defects: dict[str, np.ndarray]
    key_imbalance: np.ndarray | None
    value_imbalance: np.ndarray | None


def _measure(
    models: Any, found: Circuits, task: MultiTaskRegression, blocks: np.ndarray
) -> _Measures:
    dim, attention, values = found.dim, found.attention, found.values
    _, crossed, uneven = _split(attention[:, :, :dim], blocks)
    _, mixed, _ = _split(values[..., dim:], np.eye(len(blocks)))
    defects = {
        "labels in key-query": _share(attention[:, :, dim:], attention),
        "off-diagonal key-query": _share(crossed, attention),
        "uneven key-query": _share(uneven, attention),
        "inputs in output-value": _share(values[..., :dim], values),
        "off-diagonal output-value": _share(mixed, values),
    }
    keys = outputs = None
    held = getattr(models, "circuits", None)
    if isinstance(held, AbstractSpectral):
        k, q, o, v = (np.asarray(x) for x in eqx.filter_vmap(lambda c: c.factors())(held))
        keys, outputs = k**2 - q**2, o**2 - v**2
    elif isinstance(held, Factored):
        added, keys, outputs = _measure_factors(held, task, blocks)
        defects |= added
    return _Measures(found.omega, found.mu, defects, keys, outputs)


def _measure_factors(
    models: Factored, task: MultiTaskRegression, blocks: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Defects of K, Q, V and O, and their imbalances."""
    dim, labels = blocks.shape[1], len(blocks)
    turn = np.eye(dim) if task.input_rotation is None else np.asarray(task.input_rotation)
    mix = np.eye(labels) if task.output_rotation is None else np.asarray(task.output_rotation)
    K, V = np.asarray(models.K), np.asarray(models.V)
    defects = {
        "labels in K": _share(K[..., dim:], K),
        "inputs in V": _share(V[..., : V.shape[-1] - labels], V),
    }
    columns = {
        "K": (K[..., :dim] @ turn, blocks),
        # The query has no labels: the columns of Q for them have no effect.
        "Q": (np.asarray(models.Q)[..., :dim] @ turn, blocks),
        "V": (V[..., V.shape[-1] - labels :] @ mix, np.eye(labels)),
        "O": (np.swapaxes(np.asarray(models.O), -1, -2) @ mix, np.eye(labels)),
    }
    squares = {}
    for name, (factor, sets) in columns.items():
        gram = np.swapaxes(factor, -1, -2) @ factor
        squares[name], crossed, uneven = _split(gram, sets)
        defects[name] = np.hypot(_share(crossed, gram), _share(uneven, gram))
    for one, other in (("K", "Q"), ("O", "V")):
        across = _across(columns[one][0], columns[other][0])
        defects[f"frame of {one} and {other}"] = _share(across, columns[one][0])
    return defects, squares["K"] - squares["Q"], squares["O"] - squares["V"]


def _split(square: np.ndarray, blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The means of the diagonal over blocks, the off-diagonal part, and the diagonal less means."""
    diagonal = np.diagonal(square, axis1=-2, axis2=-1)
    means = diagonal @ blocks.T / blocks.sum(1)
    return means, square * (1 - np.eye(square.shape[-1])), diagonal - means @ blocks


def _across(columns: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The part of each column orthogonal to the other one; 0 where the other one is 0."""
    lengths = np.linalg.norm(others, axis=-2, keepdims=True)
    along = others / np.where(lengths > 0, lengths, 1.0)
    part = columns - along * np.sum(columns * along, -2, keepdims=True)
    return np.where(lengths > 0, part, 0.0)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """The norm of a part as a share of that of the whole, at each point."""
    return ratio(*(np.linalg.norm(x.reshape(len(x), -1), axis=1) for x in (part, whole)))
