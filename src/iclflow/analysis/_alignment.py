"""Which eigenvectors of the input covariance a model has learned, and when."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import ArrayLike, Float

from ..circuits import stacked_circuits
from ..estimators import PopulationPCR, eigenvectors
from ..models import AbstractModel, Attention, Normaliser, Separate
from ..tasks import AbstractTask
from ..trajectory import Trajectory
from ._heads import ratio


class Alignment(NamedTuple):
    """The weights of a run relative to the eigenvectors e_d of the input covariance.

    Components are numbered by eigenvalue, 0 for the largest; T counts the saved points.

    **Fields:**

    - `strengths`: e_dᵀ A e_d.
    - `off_diagonal`: the share of ‖A‖² that lies outside these, Σ_{d≠f} (e_dᵀ A e_f)² / ‖A‖².
    - `keys`, `queries`: the share of the squared norm of each head's keys (queries) that lies
      along e_d: a squared cosine where the rank is one. Rows sum to 1.
    """

    times: Float[np.ndarray, " T"]
    strengths: Float[np.ndarray, "T D"]
    off_diagonal: Float[np.ndarray, " T"]
    keys: Float[np.ndarray, "T H D"]
    queries: Float[np.ndarray, "T H D"]


def alignment(run: Trajectory, task: AbstractTask) -> Alignment:
    """The alignment of heads and of A with the eigenvectors of the inputs of `task`, over a run.

    Attention with a merged key-query matrix has no keys and queries: the columns and rows of U are
    taken instead.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> found = icl.analysis.alignment(run, task)
    >>> found.strengths[-1].round(2), found.off_diagonal[-1] < 1e-6
    (array([1.53, 2.24]), np.True_)
    ```
    """
    basis = np.asarray(eigenvectors(task))
    matrices, keys, queries = _read(run.models)
    rotated = basis.T @ matrices @ basis
    strengths = np.einsum("taa->ta", rotated)
    whole = np.sum(rotated**2, (1, 2))
    outside = np.maximum(whole - np.sum(strengths**2, -1), 0.0)
    return Alignment(
        np.asarray(run.times),
        strengths,
        ratio(outside, whole),
        _shares(basis, keys),
        _shares(basis, queries),
    )


def learned_components(
    matrix: Float[ArrayLike, "D D"],
    task: AbstractTask,
    fraction: float = 0.5,
    normaliser: Normaliser = "context",
) -> tuple[int, ...]:
    """The components that A has learned: those with e_dᵀ A e_d ≥ `fraction` · a_d*.

    a_d* is the strength with the smallest risk on `task` (see `PopulationPCR`). Components are
    numbered by eigenvalue, 0 for the largest.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> icl.analysis.learned_components(jnp.diag(jnp.array([1.5, 0.1])), task)
    (0,)
    ```
    """
    optimum = PopulationPCR(task, task.dim, normaliser)
    strengths = np.einsum("dk,de,ek->k", optimum.basis, np.asarray(matrix), optimum.basis)
    return tuple(int(d) for d in np.flatnonzero(strengths >= fraction * optimum.gains))


def learning_times(
    run: Trajectory, task: AbstractTask, fraction: float = 0.5
) -> Float[np.ndarray, " D"]:
    """When each component is learned: the first time that e_dᵀ A e_d reaches `fraction` · a_d*.

    a_d* is the strength with the smallest risk on `task`. NaN where that never happens.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> times = icl.analysis.learning_times(run, task)
    >>> bool(times[0] < times[1])
    True
    ```
    """
    optimum = PopulationPCR(task, task.dim, run.models.divides_by)
    strengths = alignment(run, task).strengths / np.asarray(optimum.gains)
    times = np.full(task.dim, np.nan)
    for d, strength in enumerate(strengths.T):
        reached = np.flatnonzero(strength >= fraction)
        if reached.size == 0:
            continue
        right = max(int(reached[0]), 1)
        near = slice(right - 1, right + 1)
        # `interp` is constant beyond its ends: a component that is learned at the start has time 0.
        times[d] = np.interp(fraction, strength[near], run.times[near])
    return times


def learning_order(run: Trajectory, task: AbstractTask, fraction: float = 0.5) -> tuple[int, ...]:
    """The components in the order in which a run learns them, without those it never learns.

    They are learned as in `learning_times`, and numbered by eigenvalue.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> icl.analysis.learning_order(run, task)
    (0, 1)
    ```
    """
    times = learning_times(run, task, fraction)
    return tuple(int(d) for d in np.argsort(times, kind="stable") if np.isfinite(times[d]))


def _read(models: AbstractModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, keys (T, H, D, R) and queries (T, H, D, R) of models with a leading axis over times."""
    if not isinstance(models, Attention):
        matrix = np.asarray(jax.vmap(lambda model: model.coefficients())(models))
        return matrix, matrix[:, None], np.swapaxes(matrix, 1, 2)[:, None]
    found, circuits = stacked_circuits(models), models.circuits
    matrix, blocks = found.together[:, 0], found.attention[:, :, : found.dim]
    if isinstance(circuits, Separate):
        return matrix, np.asarray(circuits.K)[:, :, : found.dim], np.asarray(circuits.Q)
    return matrix, blocks, np.swapaxes(blocks, 2, 3)


def _shares(basis: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    along = np.sum(np.einsum("dk,thdr->thkr", basis, vectors, optimize=True) ** 2, -1)
    return ratio(along, np.sum(along, -1, keepdims=True))
