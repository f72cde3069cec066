"""The in-context algorithm of linear attention on a plateau, and the one to compare it with.

On plateau m of separate key-query attention, ŷ = Σ_{d≤m} a_d* (e_d·β)(e_d·x_q): one preconditioned
gradient step from zero, or principal component regression with *population* components and *fixed*,
shrunk inverse variances (arXiv 2501.16265; docs/theory/linear.md says in which sense).
"""

import numpy as np
from jaxtyping import Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import check_whole
from ._moments import AlignedMoments, Normaliser, aligned_moments, context_gains, moments

# Eigenvalues that are meant to be equal are so up to rounding.
_TIE = 1e-10


def shrinkage(
    task: LinearRegression, normaliser: Normaliser = "context"
) -> Float[np.ndarray, " D"]:
    """λ_d a_d*, from the largest λ_d down: attention's inverse variance relative to the true one.

    For M = I, [1 + (1 + (tr Λ + σ²)/λ_d)/N]⁻¹. Needs Λ and M to commute.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> icl.theory.shrinkage(task).round(3)
    array([0.899, 0.877, 0.838, 0.738])
    >>> icl.theory.shrinkage(icl.LinearRegression([0.4, 0.3, 0.2, 0.1], context=1000)).round(3)
    array([0.997, 0.996, 0.994, 0.989])
    ```
    """
    aligned = aligned_moments(task, normaliser)
    return aligned.eigenvalues * aligned.optimum


def plateau_matrix(
    task: LinearRegression, components: int, normaliser: Normaliser = "context"
) -> Float[np.ndarray, "D D"]:
    """A on plateau m: Σ_{d≤m} a_d* e_d e_dᵀ over the m largest components. Needs M ∝ I.

    For other M components are not learnt in the order of the eigenvalues of Λ. Where λ_m and
    λ_{m+1} tie the plateau is not unique; one choice of components is returned.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> A = icl.theory.plateau_matrix(task, components=2)
    >>> np.diag(A).round(3)
    array([2.246, 2.925, 0.   , 0.   ])
    >>> bool(np.allclose(icl.theory.plateau_matrix(task, 4), icl.theory.optimal_matrix(task)))
    True
    ```
    """
    aligned = _isotropic(task, components, normaliser)
    basis = aligned.basis[:, :components]
    return (basis * aligned.optimum[:components]) @ basis.T


def plateau_risk(
    task: LinearRegression, components: int, normaliser: Normaliser = "context"
) -> float:
    """The loss of `plateau_matrix` (arXiv 2501.16265, Eq. 19, with noise and any lengths).

    For M = I, tr Λ + σ_q² − Σ_{d≤m} λ_d [1 + (1 + (tr Λ + σ²)/λ_d)/N]⁻¹.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> [round(icl.theory.plateau_risk(task, m), 4) for m in range(5)]
    [1.0, 0.6406, 0.3774, 0.2098, 0.136]
    >>> A = icl.theory.plateau_matrix(task, components=2)
    >>> round(icl.theory.loss_of_matrix(task, A), 4)
    0.3774
    ```
    """
    aligned = _isotropic(task, components, normaliser)
    gain = aligned.drive[:components] @ aligned.optimum[:components]
    return float(moments(task, normaliser).label_variance - gain)


def subspace_least_squares_risk(task: LinearRegression, components: int) -> float:
    """The risk of ordinary least squares in the span of the top m population components.

    (Σ_{d>m} λ_d M_dd + σ_q²) + (Σ_{d>m} λ_d M_dd + σ²) m/(N − m − 1), averaged over the lengths N.
    What the subspace misses acts as label noise, independent of what it sees.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression([0.4, 0.3, 0.2, 0.1], context=31, noise=0.1)
    >>> [round(icl.theory.subspace_least_squares_risk(task, m), 3) for m in range(5)]
    [1.1, 0.724, 0.429, 0.222, 0.115]
    >>> [round(icl.theory.plateau_risk(task, m), 3) for m in range(5)]
    [1.1, 0.743, 0.482, 0.317, 0.245]
    ```
    """
    context_gains(task)  # refuses other kinds of tasks
    m = check_whole("components", components, 0, task.dim)
    values, basis = np.linalg.eigh(np.asarray(task.covariance, dtype=np.float64))
    values, basis = values[::-1], basis[:, ::-1]
    weight = np.einsum("de,df,fe->e", basis, np.asarray(task.weight_second_moment), basis)
    tied = 0 < m < task.dim and values[m - 1] - values[m] <= _TIE * values[0]
    if tied and _differ(weight):
        raise Refusal(
            f"`components` = {m}: eigenvalues {m} and {m + 1} of Λ tie and M is not isotropic, so "
            "the top components are not unique."
        )
    missed = float(values[m:] @ weight[m:])
    excess = 0.0
    for length, probability in zip(task.contexts, np.asarray(task.context_probabilities)):
        variance = missed + float(task.noise)
        # Without noise and with every component, m pairs already determine w: no excess.
        if m == 0 or probability == 0 or (variance == 0 and length >= m):
            continue
        if length < m + 2:
            raise Refusal(
                f"`components` = {m}: least squares has a finite risk only for context lengths "
                f"from {m + 2} up, and `task` has length {length}."
            )
        excess += probability * variance * m / (length - m - 1)
    return float(missed + float(task.query_noise) + excess)


def _isotropic(task: LinearRegression, components: int, normaliser: Normaliser) -> AlignedMoments:
    """The aligned moments, for tasks whose components are learnt in the order of Λ."""
    aligned = aligned_moments(task, normaliser)
    check_whole("components", components, 0, task.dim)
    if _differ(aligned.weight_eigenvalues):
        raise Refusal(
            "M = E[wwᵀ] of `task` is not a multiple of the identity: its plateaus are not ordered "
            "by the eigenvalues of Λ."
        )
    return aligned


def _differ(eigenvalues: np.ndarray) -> bool:
    return bool(np.ptp(eigenvalues) > _TIE * np.max(eigenvalues))
