"""Finitely many task vectors as a regression task, and the moments by which attention sees them.

The loss of reduced linear attention depends on the tasks through M = E[wwᵀ] alone, so K task
vectors are a linear regression with this second moment. The full form sees more: w̄, M,
E[(wᵀΛw)w] and E[(wᵀΛw)²], and nothing else (derived in docs/theory/diversity.md).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_numbers
from ._types import Matrix, Vector


class TaskMoments(NamedTuple):
    """All that full linear attention sees of the law of task vectors.

    - `mean`: w̄. `second`: M = E[wwᵀ].
    - `cubic`: E[(wᵀΛw) w]. `quartic`: E[(wᵀΛw)²].
    """

    mean: Float[np.ndarray, " D"]
    second: Float[np.ndarray, "D D"]
    cubic: Float[np.ndarray, " D"]
    quartic: float


def with_tasks(
    task: LinearRegression, vectors: Matrix, shares: Vector | None = None
) -> LinearRegression:
    """The task with these task vectors in place of its prior, as far as reduced attention sees it.

    Its prior is N(0, M) with M = Σ_k p_k w_k w_kᵀ.

    **Arguments:**

    - `task`: has the inputs, the context lengths and the noise.
    - `vectors`: w_1 … w_K, one in a row.
    - `shares`: p_k, how often each is met; equally often without it.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(3), context=10, noise=0.1)
    >>> two = icl.theory.diversity.with_tasks(task, [[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]])
    >>> print(np.round(two.prior_covariance, 2))
    [[0.68 0.24 0.  ]
     [0.24 0.32 0.  ]
     [0.   0.   0.  ]]

    ```
    """
    rows, weights = check_vectors(task, vectors, shares)
    return with_second_moment(task, (rows.T * weights) @ rows)


def with_second_moment(task: LinearRegression, second: Matrix) -> LinearRegression:
    """The task with w ~ N(0, M): another set of tasks for the same inputs.

    **Arguments:**

    - `second`: M, positive semi-definite.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(3), context=10, noise=0.1)
    >>> fresh = icl.theory.diversity.with_second_moment(task, np.eye(3) / 3)
    >>> float(fresh.label_variance)
    1.1

    ```
    """
    second = check_numbers("second", second, 2, (task.dim, task.dim))
    return LinearRegression(
        covariance=np.asarray(task.covariance),
        context=task.contexts,
        context_probabilities=np.asarray(task.context_probabilities),
        noise=float(task.noise),
        noisy_query=task.noisy_query,
        prior_covariance=(second + second.T) / 2,
    )


def task_moments(
    task: LinearRegression, vectors: Matrix, shares: Vector | None = None
) -> TaskMoments:
    """w̄, M, E[(wᵀΛw)w] and E[(wᵀΛw)²] of task vectors, with the input covariance of `task`.

    ```pycon
    >>> task = icl.LinearRegression([2.0, 1.0], context=10)
    >>> found = icl.theory.diversity.task_moments(task, [[1.0, 0.0], [0.0, 1.0]])
    >>> print(found.mean, found.cubic, found.quartic)
    [0.5 0.5] [1.  0.5] 2.5

    ```
    """
    rows, weights = check_vectors(task, vectors, shares)
    power = np.einsum("kd,de,ke->k", rows, np.asarray(task.covariance, dtype=np.float64), rows)
    return TaskMoments(
        weights @ rows,
        (rows.T * weights) @ rows,
        (weights * power) @ rows,
        float(weights @ power**2),
    )


def check_vectors(
    task: LinearRegression, vectors: Matrix, shares: Vector | None = None
) -> tuple[Float[np.ndarray, "K D"], Float[np.ndarray, " K"]]:
    """Task vectors as rows of the dimension of `task`, and how often each is met."""
    rows = check_numbers("vectors", vectors, 2)
    if rows.shape[1] != task.dim:
        raise Refusal(
            f"`vectors` has shape {rows.shape}: must be (K, {task.dim}), one task in a row."
        )
    if shares is None:
        return rows, np.full(len(rows), 1 / len(rows))
    weights = check_numbers("shares", shares, 1, (len(rows),))
    if np.any(weights < 0) or abs(weights.sum() - 1) > 1e-9:
        raise Refusal(f"`shares` = {weights.tolist()}: must not be negative, and add up to 1.")
    return rows, weights
