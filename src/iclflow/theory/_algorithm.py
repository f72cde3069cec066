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
    """
    aligned = aligned_moments(task, normaliser)
    return aligned.eigenvalues * aligned.optimum


def plateau_matrix(
    task: LinearRegression, components: int, normaliser: Normaliser = "context"
) -> Float[np.ndarray, "D D"]:
    """A on plateau m: Σ_{d≤m} a_d* e_d e_dᵀ over the m largest components. Needs M ∝ I.

    For other M components are not learnt in the order of the eigenvalues of Λ. Where λ_m and
    λ_{m+1} tie the plateau is not unique; one choice of components is returned.
    """
    aligned = _isotropic(task, components, normaliser)
    basis = aligned.basis[:, :components]
    return (basis * aligned.optimum[:components]) @ basis.T


def plateau_risk(
    task: LinearRegression, components: int, normaliser: Normaliser = "context"
) -> float:
    """The loss of `plateau_matrix` (arXiv 2501.16265, Eq. 19, with noise and any lengths).

    For M = I, tr Λ + σ_q² − Σ_{d≤m} λ_d [1 + (1 + (tr Λ + σ²)/λ_d)/N]⁻¹.
    """
    aligned = _isotropic(task, components, normaliser)
    gain = aligned.drive[:components] @ aligned.optimum[:components]
    return float(moments(task, normaliser).label_variance - gain)


def subspace_least_squares_risk(task: LinearRegression, components: int) -> float:
    """The risk of ordinary least squares in the span of the top m population components.

    (Σ_{d>m} λ_d M_dd + σ_q²) + (Σ_{d>m} λ_d M_dd + σ²) m/(N − m − 1), averaged over the lengths N.
    What the subspace misses acts as label noise, independent of what it sees.
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
