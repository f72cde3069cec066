"""The full form of linear attention on finitely many tasks: it sees more than M, and stores w̄.

ŷ = Σ θ_abc G_ab x_q,c depends on the tasks through w̄, M, E[(wᵀΛw)w] and E[(wᵀΛw)²] alone. With few
tasks the layer stores the mean task: better on its own tasks, worse on fresh ones, by an amount of
the order |w̄|² ~ 1/K (derived in docs/theory/diversity.md).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...tasks import LinearRegression
from .._in_weight import TokenAverages, TokenMoments, assemble_moments, steady_state, token_moments
from .._moments import Normaliser
from ._tasks import TaskMoments, task_moments
from ._types import Matrix, Vector


class FullOptimum(NamedTuple):
    """The best full attention on a set of tasks: its coefficients and losses.

    `test` is its loss on another task, NaN where none was given.
    """

    coefficients: Float[np.ndarray, "a b e"]
    train: float
    test: float


def full_moments(
    task: LinearRegression,
    seen: TaskMoments,
    normaliser: Normaliser = "context",
    self_attention: bool = True,
) -> TokenMoments:
    """The moments in the loss of full linear attention on tasks with these four moments.

    A token (x; y) has, given w, the covariance Λ + e⊗Λw + Λw⊗e + (wᵀΛw + σ²)e⊗e, e being the label.
    Averages of two of these and of one times w need w̄, M, E[(wᵀΛw)w] and E[(wᵀΛw)²] alone.

    **Arguments:**

    - `task`: has the inputs, the context lengths and the noise.
    - `seen`: of the tasks, from `task_moments`.
    - `self_attention`: whether the query attends to itself.

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(2), context=10, noise=0.1)
    >>> seen = diversity.task_moments(task, np.eye(2))
    >>> diversity.full_moments(task, seen).second.shape
    (3, 3, 2, 3, 3, 2)

    ```
    """
    dim, noise = task.dim, float(task.noise)
    covariance = np.asarray(task.covariance, dtype=np.float64)
    inputs, label = np.pad(covariance, (0, 1)), np.zeros((dim + 1, dim + 1))
    label[-1, -1] = 1.0
    # cross[i] is e⊗Λw + Λw⊗e for w = e_i: linear in w.
    cross = np.zeros((dim, dim + 1, dim + 1))
    cross[:, -1, :-1] = cross[:, :-1, -1] = covariance.T
    power = float(np.sum(covariance * seen.second))
    mixed = seen.cubic + noise * seen.mean
    first = inputs + np.tensordot(seen.mean, cross, 1) + (power + noise) * label
    fixed = inputs + (power + noise) * label
    along = np.tensordot(seen.mean, cross, 1)
    weighed = np.tensordot(mixed, cross, 1)
    spread = seen.quartic + 2 * noise * power + noise**2 - (power + noise) ** 2
    pair = lambda a, b: np.multiply.outer(a, b)
    both = (
        pair(fixed, fixed) + spread * pair(label, label)
        + pair(inputs, along) + pair(along, inputs)
        + pair(label, weighed) + pair(weighed, label)
        + np.einsum("iab,ij,jcd->abcd", cross, seen.second, cross)
    )  # fmt: skip
    with_task = (
        np.multiply.outer(inputs, seen.mean)
        + np.einsum("iab,ij->abj", cross, seen.second)
        + np.multiply.outer(label, mixed)
    )
    averages = TokenAverages(first, both, with_task, seen.mean, power + float(task.query_noise))
    return assemble_moments(task, averages, normaliser, self_attention)


def full_optimum(
    task: LinearRegression,
    vectors: Matrix,
    test: LinearRegression | None = None,
    shares: Vector | None = None,
    normaliser: Normaliser = "context",
    self_attention: bool = True,
) -> FullOptimum:
    """The best full attention on finitely many tasks, and its loss on another task.

    D + 1 merged heads can represent it.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(3), context=8)
    >>> found = icl.theory.diversity.full_optimum(task, [[0.0, 0.6, 0.8]])
    >>> round(found.train, 8) == round(2 / 31, 8)
    True

    ```
    """
    seen = task_moments(task, vectors, shares)
    trained = full_moments(task, seen, normaliser, self_attention)
    best = steady_state(trained)
    tested = np.nan
    if test is not None:
        tested = token_moments(test, normaliser, self_attention).loss(best)
    return FullOptimum(best, trained.loss(best), tested)
