"""Anisotropic inputs: small softmax heads implement centred, preconditioned gradient descent.

Inputs x, q ~ N(0, Λ), M = E[ββᵀ], noise σ². Small heads with Σμ_h = 0 return
ŷ = (1/L) Σ y_l (x_l − x̄)·Γq with Γ = Σ μ_hW_h (arXiv 2503.12734). The optimum is exact at finite L.
Uncentred steps are those of linear attention: `optimal_matrix` and `optimal_loss`. Derived in
docs/theory/softmax.md.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import KeyQueries, PerHead
from ._moments import Moments, moments
from ._optimum import check_matrix
from ._softmax_setting import only_length


class OneHeadMatrix(NamedTuple):
    """The best single head by the large-context loss: W and μ, Γ = μW, and the loss."""

    key_query: Float[np.ndarray, "D D"]
    mu: float
    matrix: Float[np.ndarray, "D D"]
    loss: float


def debiased_matrix(task: LinearRegression) -> Float[np.ndarray, "D D"]:
    """Γ* = [MΛ + (tr(MΛ) + σ²)/L · I]⁻¹ M, the best preconditioner of a centred step.

    For β ~ N(0, I/d) it is [Λ + (tr Λ + dσ²)/L · I]⁻¹.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression([1.5, 0.5], 40, noise=0.1, prior_covariance=np.eye(2) / 2)
    >>> icl.theory.debiased_matrix(task).round(3)
    array([[0.643, 0.   ],
           [0.   , 1.802]])
    >>> # [Λ + (tr Λ + dσ²)/L · I]⁻¹
    >>> (1 / (np.array([1.5, 0.5]) + (2.0 + 2 * 0.1) / 40)).round(3)
    array([0.643, 1.802])
    ```
    """
    return _shrink(moments(task), _label_spread(task))


def debiased_matrix_risk(task: LinearRegression, matrix: Float[ArrayLike, "D D"]) -> float:
    """Risk of ŷ = (1/L) Σ y_l (x_l − x̄)·Γq for any Γ, exact at finite L.

    tr(ΛM) + σ_q² − 2k⟨S, Γ⟩ + k⟨Γ, (S + (tr(MΛ) + σ²)/L · Λ) Γ Λ⟩ with S = ΛMΛ, k = (L − 1)/L.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression([1.5, 0.5], 40, noise=0.1, prior_covariance=np.eye(2) / 2)
    >>> matrix = icl.theory.debiased_matrix(task)
    >>> round(icl.theory.debiased_matrix_risk(task, matrix), 4)
    0.175
    >>> round(icl.theory.debiased_matrix_risk(task, np.eye(2)), 4)
    0.4358
    ```
    """
    m, length = moments(task), only_length(task)
    kept = (length - 1) / length
    # The normaliser "context" has ḡ = 1, so `drive` is ΛMΛ itself.
    second = kept * (m.drive + _label_spread(task) * m.covariance)
    centred = m._replace(drive=kept * m.drive, second_moment=second)
    return centred.loss(check_matrix(task, matrix))


def debiased_matrix_optimum(task: LinearRegression) -> float:
    """The risk at Γ*; for β ~ N(0, I/d), with λ_j the eigenvalues of Λ and ρ = (tr Λ + dσ²)/L,

    σ² + (1/d) Σ λ_j (1 − (L−1)/L · λ_j/(λ_j + ρ)).

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> round(icl.theory.debiased_matrix_optimum(task), 4)
    0.2216
    >>> round(icl.theory.debiased_optimum(task).risk, 4)
    0.2216
    ```
    """
    return debiased_matrix_risk(task, debiased_matrix(task))


def one_head_matrix(task: LinearRegression) -> OneHeadMatrix:
    """One head by the large-context loss: Γ* with the regulariser times e, scores of variance one.

    Γ = [MΛ + e(tr(MΛ) + σ²)/L · I]⁻¹ M, W = Γ/μ with μ² = tr(ΛΓᵀΛΓ).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression([1.5, 0.5], 40, noise=0.1, prior_covariance=np.eye(2) / 2)
    >>> head = icl.theory.one_head_matrix(task)
    >>> np.diag(head.key_query).round(3), round(head.mu, 3), round(head.loss, 4)
    (array([0.509, 1.292]), 1.191, 0.2255)
    >>> loss = icl.theory.softmax_matrix_loss(task, head.key_query[None], np.array([head.mu]))
    >>> round(loss, 4)
    0.2255
    ```
    """
    m = moments(task)
    matrix = _shrink(m, np.e * _label_spread(task))
    mu = float(np.sqrt(np.sum(matrix * (m.covariance @ matrix @ m.covariance))))
    loss = m.label_variance - np.sum(m.drive * matrix)
    return OneHeadMatrix(matrix / mu, mu, matrix, float(loss))


def softmax_matrix_loss(task: LinearRegression, key_query: KeyQueries, mu: PerHead) -> float:
    """The large-context loss L̃ of heads with any W_h, for inputs of any covariance.

    tr[M(I − ΛΓ)Λ(I − ΛΓ)ᵀ] + σ_q² + (tr(MΛ) + σ²)/L Σ_hk μ_hμ_k exp tr(ΛW_hᵀΛW_k), Γ = Σ μ_hW_h.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> omega, mu = np.array([0.2, -0.2]), np.array([2.0, -2.0])
    >>> key_query = omega[:, None, None] * np.eye(4)
    >>> round(icl.theory.softmax_matrix_loss(task, key_query, mu), 4)
    0.2107
    >>> round(icl.theory.softmax_large_context_loss(task, omega, mu), 4)
    0.2107
    ```
    """
    m = moments(task)
    heads, mu = np.asarray(key_query, dtype=np.float64), np.asarray(mu, dtype=np.float64)
    if heads.shape != (len(mu), task.dim, task.dim):
        raise Refusal(
            f"`key_query` has shape {heads.shape}: must be ({len(mu)}, {task.dim}, {task.dim}) for "
            "these `mu` and this `task`."
        )
    matrix = np.einsum("h,hde->de", mu, heads)
    spread = m.covariance @ heads @ m.covariance
    overlap = np.exp(np.einsum("hde,kde->hk", spread, heads))
    # Without the fluctuations of β, C is ΛMΛ.
    bias = m._replace(second_moment=m.drive).loss(matrix)
    return float(bias + _label_spread(task) * mu @ overlap @ mu)


def _label_spread(task: LinearRegression) -> float:
    """(tr(MΛ) + σ²)/L."""
    return moments(task).context_variance / only_length(task)


def _shrink(m: Moments, penalty: float) -> np.ndarray:
    """[MΛ + penalty · I]⁻¹ M."""
    if penalty == 0:
        raise Refusal("`task` has labels that are always zero: every matrix is optimal.")
    product = m.weight_second_moment @ m.covariance
    return np.linalg.solve(product + penalty * np.eye(len(product)), m.weight_second_moment)
