"""What attention learns from any set of tasks, and what a test on other tasks makes of it.

The loss of a single task w is wᵀR(A)w + r(A), whatever the tasks of training: training,
in-distribution, fresh and misaligned tasks are traces of one matrix R(A) with their second moments.
With M̂ = Λ^½MΛ^½ = Σ m_j u_ju_jᵀ the optimum is A* = Λ^−½ Σ f_j u_ju_jᵀ Λ^−½ and every stationary
function keeps a subset of its terms, whether or not Λ and M commute (docs/theory/diversity.md).
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._moments import Moments, Normaliser, context_gains, moments
from .._optimum import check_matrix, loss_of_matrix
from ._types import Matrix, Numbers, Stack

# Variances below this share of the largest are rounding of a singular M.
_NOTHING = 1e-12
# Two covariances that are meant to be the same differ by rounding.
_SAME = 1e-10


class TaskRisk(NamedTuple):
    """The loss of a task w is wᵀ·`matrix`·w + `constant`.

    The mean over tasks is tr(M·`matrix`) + `constant`, for any second moment M.
    """

    matrix: Float[np.ndarray, "D D"]
    constant: float

    def of(self, vectors: Numbers | Matrix) -> Float[np.ndarray, "..."]:
        """The loss of each of these task vectors."""
        w = np.asarray(vectors, dtype=np.float64)
        return np.asarray(np.einsum("...d,de,...e->...", w, self.matrix, w) + self.constant)

    def mean(self, second: Matrix) -> float:
        """The mean loss of tasks with the second moment M = `second`."""
        return float(np.sum(self.matrix * np.asarray(second)) + self.constant)


class Components(NamedTuple):
    """The components of a task, from the largest variance down; component j is column j.

    - `variances`: m_j, the eigenvalues of M̂ = Λ^½MΛ^½ that are not zero.
    - `strengths`: f_j = ḡm_j/(c̄₂m_j + c̄₁T), the share of component j that attention predicts.
    - `directions`: u_j, orthonormal.
    - `inverse_root`: Λ^−½, symmetric.
    """

    variances: Float[np.ndarray, " J"]
    strengths: Float[np.ndarray, " J"]
    directions: Float[np.ndarray, "D J"]
    inverse_root: Float[np.ndarray, "D D"]

    @property
    def count(self) -> int:
        """J = min(K, D) for K tasks in general position: the number of steps of the staircase."""
        return len(self.variances)

    def matrix(self, chosen: Iterable[int] | None = None) -> Float[np.ndarray, "D D"]:
        """A_S = Λ^−½ Σ_{j ∈ S} f_j u_ju_jᵀ Λ^−½; A* without an argument."""
        places = list(range(self.count) if chosen is None else chosen)
        at = self.inverse_root @ self.directions[:, places]
        return (at * self.strengths[places]) @ at.T


class Overshoot(NamedTuple):
    """How each step of the staircase changes the loss of a test on the same inputs.

    - `best`: f̃_j, the strength at which component j serves the test best.
    - `passes`: whether f_j > f̃_j, so that the test loss has its minimum before the step ends.
    - `raises`: whether f_j > 2f̃_j: the step as a whole raises the test loss.
    - `gain`: by how much the test loss falls to its best point.
    - `rise`: by how much it rises after its best point; 0 where the step ends before it.
    """

    best: Float[np.ndarray, " J"]
    passes: np.ndarray
    raises: np.ndarray
    gain: Float[np.ndarray, " J"]
    rise: Float[np.ndarray, " J"]


def task_risk(task: LinearRegression, A: Matrix, normaliser: Normaliser = "context") -> TaskRisk:
    """R(A) and r(A): the loss of each single task is wᵀR(A)w + r(A), for any A.

    R = Λ − ḡ(ΛAΛ + ΛAᵀΛ) + c̄₂ΛAΛAᵀΛ + c̄₁ tr(ΛAᵀΛA) Λ, r = σ_q² + c̄₁σ² tr(ΛAᵀΛA). Only the inputs,
    the context lengths and the noise of `task` are used.

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(2), context=10, noise=0.1)
    >>> one = diversity.with_tasks(task, [[1.0, 0.0]])
    >>> risk = diversity.task_risk(one, icl.theory.optimal_matrix(one))
    >>> print(np.round(risk.of([[1.0, 0.0], [0.0, 1.0]]), 4))
    [0.2736 1.1752]

    ```
    """
    gains, matrix = context_gains(task, normaliser), check_matrix(task, np.asarray(A))
    covariance = np.asarray(task.covariance, dtype=np.float64)
    read = covariance @ matrix @ covariance
    square = covariance @ matrix @ read.T
    size = float(np.sum(matrix * read))
    return TaskRisk(
        covariance
        - gains.drive * (read + read.T)
        + gains.signal * (square + square.T) / 2
        + gains.spread * size * covariance,
        float(task.query_noise + gains.spread * task.noise * size),
    )


def task_gap(
    task: LinearRegression,
    test: LinearRegression,
    A: Matrix,
    normaliser: Normaliser = "context",
) -> float:
    """g_task = L_test(A) − L_train(A), what generalisation to other tasks costs (arXiv 2405.11751).

    tr[(M_t − M) R(A)] where only the tasks differ.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(2), context=10, noise=0.1)
    >>> one = icl.theory.diversity.with_tasks(task, [[1.0, 0.0]])
    >>> fresh = icl.theory.diversity.with_second_moment(task, np.eye(2) / 2)
    >>> round(icl.theory.diversity.task_gap(one, fresh, icl.theory.optimal_matrix(one)), 4)
    0.4508

    ```
    """
    matrix = check_matrix(task, np.asarray(A))
    return loss_of_matrix(test, matrix, normaliser) - loss_of_matrix(task, matrix, normaliser)


def components(task: LinearRegression, normaliser: Normaliser = "context") -> Components:
    """The components m_j, f_j, u_j of any task, commuting or not.

    The steps of the loss are m_jf_j ("context": Σ m_jθ_j/(Nm_j + θ_j) is left, θ_j = T + m_j).

    ```pycon
    >>> task = icl.LinearRegression(np.ones(2), context=10, noise=0.1)
    >>> one = icl.theory.diversity.with_tasks(task, [[1.0, 0.0]])
    >>> found = icl.theory.diversity.components(one)
    >>> found.count, round(float(found.strengths[0]), 4)
    (1, 0.8264)

    ```
    """
    gains, m = context_gains(task, normaliser), moments(task, normaliser)
    root, inverse = roots(m.covariance)
    variances, directions = np.linalg.eigh(root @ m.weight_second_moment @ root)
    variances, directions = variances[::-1], directions[:, ::-1]
    if not variances[0] > 0:
        raise Refusal("`task` has E[wwᵀ] = 0: there is nothing to learn.")
    real = variances > _NOTHING * variances[0]
    variances, directions = variances[real], directions[:, real]
    residual = gains.signal * variances + gains.spread * m.context_variance
    return Components(variances, gains.drive * variances / residual, directions, inverse)


def levels_on_test(
    task: LinearRegression, test: LinearRegression, normaliser: Normaliser = "context"
) -> Float[np.ndarray, " levels"]:
    """L_test(A_{1…m}) for m = 0 … J: what another test shows on the plateaus of training.

    `plateau_losses` are the training losses there.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(2), context=10, noise=0.1)
    >>> one = icl.theory.diversity.with_tasks(task, [[1.0, 0.0]])
    >>> fresh = icl.theory.diversity.with_second_moment(task, np.eye(2) / 2)
    >>> print(np.round(icl.theory.diversity.levels_on_test(one, fresh), 4))
    [1.1    0.7244]

    ```
    """
    found = components(task, normaliser)
    levels = [found.matrix(range(m)) for m in range(found.count + 1)]
    return losses_of_matrices(test, np.stack(levels), normaliser)


def overshoot(
    task: LinearRegression, test: LinearRegression, normaliser: Normaliser = "context"
) -> Overshoot:
    """Which steps of training pass their best point on a test with the same inputs.

    While component j grows as a·u_ju_jᵀ the test loss changes by −2ḡat_j + a²(c̄₂t_j + c̄₁T_t), with
    t_j = u_jᵀΛ^½M_tΛ^½u_j and the gains of the test. It is smallest at a = f̃_j.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(8), context=3)
    >>> two = icl.theory.diversity.with_tasks(task, np.eye(8)[:2])
    >>> fresh = icl.theory.diversity.with_second_moment(task, np.eye(8) / 8)
    >>> icl.theory.diversity.overshoot(two, fresh).passes.tolist()
    [True, True]

    ```
    """
    found = components(task, normaliser)
    drive, curvature = parabola_on_test(found, task, test, normaliser)
    best, step = drive / curvature, found.strengths
    passes = step > best
    return Overshoot(
        best,
        passes,
        step > 2 * best,
        drive * best,
        np.where(passes, curvature * (step - best) ** 2, 0.0),
    )


def losses_of_matrices(
    test: LinearRegression,
    matrices: Numbers | Stack,
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, "..."]:
    """The loss of a test at each of several matrices A, such as those of a run.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(2), context=10, noise=0.1)
    >>> grow = np.array([0.0, 0.5])[:, None, None] * np.eye(2)
    >>> icl.theory.diversity.losses_of_matrices(task, grow).tolist()
    [2.1, 0.755]

    ```
    """
    m, A = moments(test, normaliser), np.asarray(matrices, dtype=np.float64)
    if A.shape[-2:] != m.covariance.shape:
        raise Refusal(f"`matrices` has shape {A.shape}: must be (…, {test.dim}, {test.dim}).")
    quadratic = np.sum(A * (m.second_moment @ A @ m.covariance), (-2, -1))
    return np.asarray(m.label_variance - 2 * np.sum(A * m.drive, (-2, -1)) + quadratic)


def parabola_on_test(
    found: Components, task: LinearRegression, test: LinearRegression, normaliser: Normaliser
) -> tuple[Float[np.ndarray, " J"], Float[np.ndarray, " J"]]:
    """p_j and q_j of the test loss −2ap_j + a²q_j of component j alone with the strength a."""
    at = moments(test, normaliser)
    require_same_inputs(task, at)
    gains = context_gains(test, normaliser)
    loads = found.inverse_root @ at.covariance @ found.directions
    variance = np.einsum("dj,de,ej->j", loads, at.weight_second_moment, loads)
    return gains.drive * variance, gains.signal * variance + gains.spread * at.context_variance


def require_same_inputs(task: LinearRegression, at: Moments) -> None:
    """Steps of the test loss add up only where training and test have the same Λ."""
    covariance = np.asarray(task.covariance, dtype=np.float64)
    if covariance.shape != at.covariance.shape or np.max(
        np.abs(covariance - at.covariance)
    ) > _SAME * np.max(covariance):
        raise Refusal("`test` has other inputs than `task`: must have the same covariance Λ.")


def roots(matrix: Float[np.ndarray, "D D"]) -> tuple[np.ndarray, np.ndarray]:
    """The symmetric square root of a positive-definite matrix, and its inverse."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
