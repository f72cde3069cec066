"""The components that separate key-query attention learns, for any input covariance and prior.

With B = C^½ A Λ^½ and Y = C^−½ S Λ^−½ = Σ_j y_j u_j w_jᵀ (singular values, largest first) the loss
is L = L(0) − ‖Y‖² + ‖Y − B‖². Every stationary function of A = Σ_h v_h K_h Q_hᵀ keeps a subset of
the terms of Y, and learning component j lowers the loss by y_j² (derived in docs/theory/linear.md;
for w ~ N(0, I) the components are the eigenvectors of Λ, arXiv 2501.16265, Section 4).
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import check_whole
from ._moments import Normaliser, moments

# Gains that are meant to be equal differ by rounding; closer ones act as equal in practice too.
_TIE = 1e-9
# Gains below this share of the largest are rounding.
_NO_GAIN = 1e-12


class Modes(NamedTuple):
    """The components of a task, from the largest gain down; component j is column j.

    - `gains`: y_j; the loss falls by y_j² when component j is learned. All are positive.
    - `growth_rates`: c_j in τ dv/dt = c_j v², for a small balanced head along component j; λ_j² m_j
      (times ḡ) where Λ and M commute.
    - `strengths`: a_j, the size of component j in A*: v_j³ of a balanced head that has learned it.
    - `left`, `right`: unit vectors; A* = Σ_j a_j left_j right_jᵀ.
    - `groups`: components of equal gain. In a group of more than one, the vectors are one choice
      among infinitely many.
    - `start`: L(0) = tr(ΛM) + σ_q², the loss before anything is learned.
    """

    gains: Float[np.ndarray, " J"]
    growth_rates: Float[np.ndarray, " J"]
    strengths: Float[np.ndarray, " J"]
    left: Float[np.ndarray, "D J"]
    right: Float[np.ndarray, "D J"]
    groups: tuple[tuple[int, ...], ...]
    start: float

    @property
    def count(self) -> int:
        """J, how many components there are to learn: D unless M is singular."""
        return self.gains.shape[0]

    @property
    def degenerate(self) -> bool:
        """Whether some gains are equal, so that stationary functions form a continuum."""
        return len(self.groups) < self.count

    def group_of(self, component: int) -> int:
        """The number of the group that a component belongs to; gains fall with it."""
        return next(g for g, members in enumerate(self.groups) if component in members)

    def loss(self, components: Iterable[int]) -> float:
        """L_S = L(0) − Σ_{j ∈ S} y_j²."""
        return float(self.start - np.sum(self.gains[list(components)] ** 2))

    def matrix(self, components: Iterable[int]) -> Float[np.ndarray, "D D"]:
        """A_S = Σ_{j ∈ S} a_j left_j right_jᵀ."""
        chosen = list(components)
        return (self.left[:, chosen] * self.strengths[chosen]) @ self.right[:, chosen].T


def modes(task: LinearRegression, normaliser: Normaliser = "context") -> Modes:
    """The components of a task, the singular vectors of Y = C^−½ S Λ^−½ = Σ_j y_j u_j w_jᵀ.

    With norms p_j = |C^−½ u_j| and r_j = |Λ^−½ w_j| growth rates are y_j/(p_j r_j), strengths
    y_j p_j r_j.

    **Arguments:**

    - `normaliser`: what attention divides by: `"context"` N, `"tokens"` N + 1, `"none"` 1.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> found = icl.theory.modes(task)
    >>> found.growth_rates.round(3), found.strengths.round(3)
    (array([0.16, 0.09, 0.04, 0.01]), array([2.246, 2.925, 4.189, 7.381]))
    >>> round(found.loss([0, 1]), 4)
    0.3774
    >>> bool(np.allclose(found.matrix(range(4)), icl.theory.optimal_matrix(task)))
    True
    ```
    """
    m = moments(task, normaliser)
    if not m.drive.any():
        raise Refusal("`task` has E[wwᵀ] = 0: there is nothing to learn.")
    root_left, root_right = _inverse_root(m.second_moment), _inverse_root(m.covariance)
    u, gains, w = np.linalg.svd(root_left @ m.drive @ root_right)
    # A singular M leaves directions about which sequences carry no information: no components.
    real = gains > _NO_GAIN * gains[0]
    gains, left, right = gains[real], (root_left @ u)[:, real], (root_right @ w.T)[:, real]
    norm_left, norm_right = np.linalg.norm(left, axis=0), np.linalg.norm(right, axis=0)
    cuts = np.flatnonzero(gains[:-1] - gains[1:] > _TIE * gains[0]) + 1
    groups = tuple(tuple(int(j) for j in g) for g in np.split(np.arange(gains.size), cuts))
    return Modes(
        gains=gains,
        growth_rates=gains / (norm_left * norm_right),
        strengths=gains * norm_left * norm_right,
        left=left / norm_left,
        right=right / norm_right,
        groups=groups,
        start=m.label_variance,
    )


def subset_loss(
    task: LinearRegression, components: Iterable[int], normaliser: Normaliser = "context"
) -> float:
    """L_S = tr(ΛM) + σ_q² − Σ_{j ∈ S} y_j², the loss when the components in S are learned.

    **Arguments:**

    - `components`: S; component 0 has the largest gain.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> [round(icl.theory.subset_loss(task, s), 4) for s in ([], [0], [1], [0, 1, 2, 3])]
    [1.0, 0.6406, 0.7368, 0.136]
    >>> round(icl.theory.optimal_loss(task), 4)
    0.136
    ```
    """
    found = modes(task, normaliser)
    return found.loss(check_components(found, components))


def plateau_losses(
    task: LinearRegression, count: int | None = None, normaliser: Normaliser = "context"
) -> Float[np.ndarray, " levels"]:
    """L_{0 … m−1} for m = 0 … `count`: the plateaus of a small initialisation.

    They are visited in this order where growth rates and gains fall together, as they do for
    w ~ N(0, I); `learning_order` says when they do not.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> icl.theory.plateau_losses(task).round(4)
    array([1.    , 0.6406, 0.3774, 0.2098, 0.136 ])
    >>> icl.theory.plateau_losses(task, count=2).round(4)
    array([1.    , 0.6406, 0.3774])
    ```
    """
    found = modes(task, normaliser)
    count = found.count if count is None else check_whole("count", count, 0, found.count)
    return found.start - np.concatenate([[0.0], np.cumsum(found.gains[:count] ** 2)])


def check_room(found: Modes, heads: int, rank: int) -> int:
    """min(J, HR), the largest number of components that H heads of rank R can learn."""
    return min(found.count, check_whole("heads", heads) * check_whole("rank", rank))


def check_components(found: Modes, components: Iterable[int]) -> tuple[int, ...]:
    """`components` as sorted, different, existing indices."""
    last = found.count - 1
    chosen = tuple(sorted(check_whole("components", j, 0, last) for j in components))
    if len(set(chosen)) != len(chosen):
        raise Refusal(f"`components` = {chosen}: each may be listed once.")
    return chosen


def _inverse_root(matrix: np.ndarray) -> np.ndarray:
    """The inverse of the symmetric square root of a positive-definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors / np.sqrt(values)) @ vectors.T
