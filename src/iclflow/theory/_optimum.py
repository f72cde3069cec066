"""The loss of reduced linear attention as a function of A, and its minimum.

Everything holds for any input covariance, prior, noise and mix of context lengths; for w ~ N(0, I)
and one length it is the converged solution of arXiv 2501.16265. Derived in docs/theory/linear.md.
"""

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._moments import Normaliser, moments


def correlation_second_moment(
    task: LinearRegression, normaliser: Normaliser = "context"
) -> Float[np.ndarray, "D D"]:
    """C = E[ββᵀ] of the in-context correlation β = (1/N) Σₙ yₙxₙ."""
    return moments(task, normaliser).second_moment


def optimal_matrix(
    task: LinearRegression, normaliser: Normaliser = "context"
) -> Float[np.ndarray, "D D"]:
    """A* = ḡ C⁻¹ ΛM, the matrix with the smallest loss.

    For one length, A* = [(1 + 1/N) MΛ + (tr(MΛ) + σ²)/N · I]⁻¹ M: the task matrix, shrunk.
    """
    m = moments(task, normaliser)
    if not m.second_moment.any():
        raise Refusal("`task` has labels that are always zero: every matrix A is optimal.")
    # S = ḡ ΛMΛ, so C A Λ = S reads C A = S Λ⁻¹.
    right = np.linalg.solve(m.covariance, m.drive).T
    return np.linalg.solve(m.second_moment, right)


def optimal_loss(task: LinearRegression, normaliser: Normaliser = "context") -> float:
    """L* = L(A*) = tr(ΛM) + σ_q² − ⟨S, A*⟩."""
    m = moments(task, normaliser)
    return float(m.label_variance - np.sum(m.drive * optimal_matrix(task, normaliser)))


def loss_of_matrix(
    task: LinearRegression, A: Float[ArrayLike, "D D"], normaliser: Normaliser = "context"
) -> float:
    """L(A) = E(y_q − βᵀ A x_q)², for any A."""
    m = moments(task, normaliser)
    matrix = check_matrix(task, A)
    quadratic = np.sum(matrix * (m.second_moment @ matrix @ m.covariance))
    return float(m.label_variance - 2 * np.sum(m.drive * matrix) + quadratic)


def loss_slope(
    task: LinearRegression, A: Float[ArrayLike, "D D"], normaliser: Normaliser = "context"
) -> Float[np.ndarray, "D D"]:
    """E(A) = −½ ∂L/∂A = S − C A Λ, the force that drives every flow of the weights."""
    m = moments(task, normaliser)
    return m.drive - m.second_moment @ check_matrix(task, A) @ m.covariance


def check_matrix(task: LinearRegression, A) -> np.ndarray:
    """`A` as a float64 array, (D, D)."""
    matrix = np.asarray(A, dtype=np.float64)
    if matrix.shape != (task.dim, task.dim):
        raise Refusal(
            f"`A` has shape {matrix.shape}: must be ({task.dim}, {task.dim}) for this `task`."
        )
    return matrix
