"""The further features G_yyx_q that arXiv 2405.11751 keeps beside β ⊗ x_q.

G_yy = (1/N) Σ y² is one column of the full form. It sees the mean task: E[G_yyβ] and E[y_qG_yyx_q]
are proportional to E[(wᵀΛw + σ²)Λw]. So it moves the threshold to n = D(D + 1), and stores w̄ where
tasks are few (derived in docs/theory/diversity.md).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...tasks import LinearRegression
from .._check import check_positive
from .._moments import Moments, Normaliser, context_gains
from ._tasks import TaskMoments, task_moments
from ._types import Matrix


class LabelColumn(NamedTuple):
    """The scale κ of the features κG_yyx_q, and the moments of the training tasks."""

    scale: float
    seen: TaskMoments


def label_column(
    task: LinearRegression, vectors: Matrix, scale: float | None = None
) -> LabelColumn:
    """The column G_yyx_q for `data_risks` and `corrected_risks`.

    **Arguments:**

    - `vectors`: the K tasks of training.
    - `scale`: κ; without it 1/√D, that of arXiv 2405.11751. Above the threshold it is irrelevant.

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(4), context=10, noise=0.1)
    >>> few = diversity.with_tasks(task, np.eye(4)[:2])
    >>> column = diversity.label_column(few, np.eye(4)[:2])
    >>> float(diversity.data_risks(few, 20, label_column=column).in_distribution)
    inf

    ```
    """
    kappa = task.dim**-0.5 if scale is None else check_positive("scale", scale)
    return LabelColumn(kappa, task_moments(task, vectors))


def extend_moments(
    scale: float,
    task: LinearRegression,
    m: Moments,
    normaliser: Normaliser,
    seen: TaskMoments | None = None,
) -> tuple[Float[np.ndarray, "R R"], Float[np.ndarray, "R D"]]:
    """C and S of the features (β, κG_yy) ⊗ x_q; of the Gaussian prior of `task` without `seen`.

    E[G_yyβ] = E[N(N + 2)/c²] h, E G_yy² = E[N(N + 2)/c²] E(wᵀΛw + σ²)² and E[y_qG_yyx_q] = ḡh with
    h = ΛE[(wᵀΛw + σ²)w].
    """
    gains, seen = context_gains(task, normaliser), seen or _prior_moments(task, m)
    noise, power = float(task.noise), float(np.sum(m.covariance * m.weight_second_moment))
    along = m.covariance @ (seen.cubic + noise * seen.mean)
    square = seen.quartic + 2 * noise * power + noise**2
    both = gains.signal + gains.spread
    cross = scale * both * along[:, None]
    corner = np.array([[scale**2 * both * square]])
    second = np.block([[m.second_moment, cross], [cross.T, corner]])
    return second, np.concatenate([m.drive, scale * gains.drive * along[None]])


def _prior_moments(task: LinearRegression, m: Moments) -> TaskMoments:
    """The moments of w ~ N(w₀, Γ)."""
    mean = np.asarray(task.prior_mean, dtype=np.float64)
    spread = np.asarray(task.prior_covariance, dtype=np.float64) @ m.covariance
    read = m.covariance @ mean
    power = float(np.trace(spread) + mean @ read)
    quartic = power**2 + 2 * float(np.sum(spread * spread.T)) + 4 * float(read @ spread @ mean)
    return TaskMoments(mean, m.weight_second_moment, power * mean + 2 * spread @ mean, quartic)
