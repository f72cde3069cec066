"""Merged key-query attention, A = Σ v_h U_h: its stationary points, and how it leaves the origin.

arXiv 2501.16265 calls them two stationary points; they are two sets (docs/theory/linear.md):

- the saddles {v = 0, ⟨U_h, S⟩ = 0 for all h}, loss L(0), Hessian index exactly H everywhere;
- the minima {Σ v_h U_h = A*}, loss L*, all of them global;

where S = ΛMΛ (times E[N/c] where attention divides by c instead of N) drives the weights at A = 0.
Gradient flow τ dW/dt = −½ ∂L/∂W reads τ v̇_h = ⟨U_h, E⟩, τ U̇_h = v_h E with E = S − C A Λ. Times
are in units of τ.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import KeyQueries, PerHead, Times, check_whole
from ._moments import Normaliser, moments
from ._optimum import optimal_loss, optimal_matrix


class StationarySet(NamedTuple):
    """One connected family of stationary points.

    `hessian_index` counts negative and `hessian_nullity` zero eigenvalues of the Hessian; where
    the nullity equals the `dimension`, no direction is flat except along the set.
    """

    name: Literal["saddles", "minima"]
    loss: float
    dimension: int
    hessian_index: int
    hessian_nullity: int


def merged_stationary_sets(
    task: LinearRegression, heads: int, normaliser: Normaliser = "context"
) -> tuple[StationarySet, StationarySet]:
    """The saddles around the origin, of dimension H(D² − 1) and index H, and the global minima, of
    dimension H(D² + 1) − D², with their losses.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> for found in icl.theory.merged_stationary_sets(task, heads=3):
    ...     print(found.name, round(found.loss, 4), found.dimension, found.hessian_index)
    ...
    saddles 1.0 9 3
    minima 0.1302 11 0
    ```
    """
    check_whole("heads", heads)
    unstable_direction(task, normaliser)  # a task that drives nothing has one set, not two
    square = task.dim**2
    at_zero, best = moments(task, normaliser).label_variance, optimal_loss(task, normaliser)
    # H conditions ⟨U_h, S⟩ = 0 and v = 0 at the saddles; D² conditions A = A* at the minima.
    flat_saddle = heads * (square - 1)
    flat_minimum = heads * (square + 1) - square
    return (
        StationarySet("saddles", at_zero, flat_saddle, heads, flat_saddle),
        StationarySet("minima", best, flat_minimum, 0, flat_minimum),
    )


def merged_stationary_set_of(
    task: LinearRegression,
    v: PerHead,
    U: KeyQueries,
    tolerance: float = 1e-8,
    normaliser: Normaliser = "context",
) -> Literal["saddles", "minima"] | None:
    """Which of the two sets of `merged_stationary_sets` the weights lie in, or None.

    **Arguments:**

    - `tolerance`: on the distance to the saddles in units of √‖A*‖, the size of balanced weights
      at the minima, and on ‖A − A*‖ in units of ‖A*‖.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> v, U = icl.theory.merged_minimum_point(task, share=np.array([1.0, 2.0]))
    >>> icl.theory.merged_stationary_set_of(task, v, U)
    'minima'
    >>> icl.theory.merged_stationary_set_of(task, 0 * v, 0 * U)
    'saddles'
    >>> icl.theory.merged_stationary_set_of(task, 0.5 * v, 0.5 * U) is None
    True
    ```
    """
    v, U = check_merged(task, v, U)
    _, direction = unstable_direction(task, normaliser)
    optimum = optimal_matrix(task, normaliser)
    size = np.linalg.norm(optimum)
    if np.sqrt(np.sum(v**2) + np.sum(_along(U, direction) ** 2)) <= tolerance * np.sqrt(size):
        return "saddles"
    matrix = np.einsum("h,hde->de", v, U)
    return "minima" if np.linalg.norm(matrix - optimum) <= tolerance * size else None


def merged_saddle_point(
    task: LinearRegression, U: KeyQueries, normaliser: Normaliser = "context"
) -> tuple[Float[np.ndarray, " H"], Float[np.ndarray, "H D D"]]:
    """The saddle nearest to weights (v, U), whatever v: v = 0 and U − ⟨U, Ê⟩ Ê with Ê = S/‖S‖.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> v, U = icl.theory.merged_saddle_point(task, U=np.eye(2)[None])
    >>> U.round(3)
    array([[[-0.206,  0.   ],
            [ 0.   ,  0.464]]])
    >>> icl.theory.merged_stationary_set_of(task, v, U)
    'saddles'
    ```
    """
    v, U = check_merged(task, np.zeros(np.shape(U)[0]), U)
    _, direction = unstable_direction(task, normaliser)
    return v, U - _along(U, direction)[:, None, None] * direction


def merged_minimum_point(
    task: LinearRegression, share: Float[ArrayLike, " H"], normaliser: Normaliser = "context"
) -> tuple[Float[np.ndarray, " H"], Float[np.ndarray, "H D D"]]:
    """The balanced minimum with v ∝ `share`: U_h = v_h A*/‖A*‖ and |v|² = ‖A*‖.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> v, U = icl.theory.merged_minimum_point(task, share=np.array([1.0, 2.0]))
    >>> v.round(3)
    array([0.719, 1.438])
    >>> A = np.einsum("h,hde->de", v, U)
    >>> bool(np.allclose(A, icl.theory.optimal_matrix(task)))
    True
    ```
    """
    share = np.asarray(share, dtype=np.float64)
    if share.ndim != 1 or not share.any():
        raise Refusal(f"`share` = {share}: must be a vector that is not zero.")
    optimum = optimal_matrix(task, normaliser)
    size = np.linalg.norm(optimum)
    v = share / np.linalg.norm(share) * np.sqrt(size)
    return v, v[:, None, None] * optimum / size


def merged_escape_rates(
    task: LinearRegression, U: KeyQueries, normaliser: Normaliser = "context"
) -> Float[np.ndarray, " H"]:
    """Growth rates, in 1/τ and from the largest down, of the H unstable modes at a saddle.

    With κ an eigenvalue of the Gram matrix ⟨U_i, C U_j Λ⟩ the rate is ½(√(κ² + 4g²) − κ), at most
    g = ‖S‖, the rate at the origin: large key-query weights slow the escape down.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> for size in (0.0, 0.5, 2.0):
    ...     print(icl.theory.merged_escape_rates(task, U=size * turn[None]).round(3))
    ...
    [0.394]
    [0.361]
    [0.126]
    >>> round(icl.theory.growth_rate(task), 3)
    0.394
    ```
    """
    _, U = merged_saddle_point(task, U, normaliser)
    m = moments(task, normaliser)
    rate, _ = unstable_direction(task, normaliser)
    gram = np.einsum("ide,df,jfg,ge->ij", U, m.second_moment, U, m.covariance, optimize=True)
    kappa = np.linalg.eigvalsh((gram + gram.T) / 2)
    # The same rate without the difference of two close numbers.
    return 2 * rate**2 / (np.sqrt(kappa**2 + 4 * rate**2) + kappa)


def merged_conserved(v: PerHead, U: KeyQueries) -> Float[np.ndarray, "H H"]:
    """v_i v_j − ⟨U_i, U_j⟩: gradient flow conserves every entry.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> v, U = np.array([0.12, 0.23]), 0.11 * np.stack([np.eye(2), -np.eye(2)])
    >>> icl.theory.merged_conserved(v, U).round(4)
    array([[-0.0098,  0.0518],
           [ 0.0518,  0.0287]])
    >>> v, U = icl.theory.early_weights(task, v, U, np.array([5.0]))
    >>> icl.theory.merged_conserved(v[0], U[0]).round(4)
    array([[-0.0098,  0.0518],
           [ 0.0518,  0.0287]])
    ```
    """
    v, U = np.asarray(v, dtype=np.float64), np.asarray(U, dtype=np.float64)
    return np.outer(v, v) - np.einsum("ide,jde->ij", U, U)


def unstable_direction(
    task: LinearRegression, normaliser: Normaliser = "context"
) -> tuple[float, Float[np.ndarray, "D D"]]:
    """g = ‖S‖ and Ê = S/g: how fast A leaves the origin, and in which direction.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> rate, direction = icl.theory.unstable_direction(task)
    >>> round(rate, 4), direction.round(3)
    (0.394, array([[0.914, 0.   ],
           [0.   , 0.406]]))
    >>> # Λ² has the norm (0.6⁴ + 0.4⁴)^½.
    >>> round((0.6**4 + 0.4**4) ** 0.5, 4)
    0.394
    ```
    """
    drive = moments(task, normaliser).drive
    rate = float(np.linalg.norm(drive))
    if rate == 0:
        raise Refusal("`task` has E[wwᵀ] = 0: there is nothing to learn.")
    return rate, drive / rate


def growth_rate(task: LinearRegression, normaliser: Normaliser = "context") -> float:
    """g = ‖ΛMΛ‖: near the origin the weights grow as e^{gt/τ} and A as e^{2gt/τ}.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> round(icl.theory.growth_rate(task), 4)
    0.394
    >>> v, U, times = np.array([1e-6]), np.zeros((1, 2, 2)), np.array([20.0, 21.0])
    >>> v, U = icl.theory.early_weights(task, v, U, times)
    >>> round(float(np.log(v[1, 0] / v[0, 0])), 4)
    0.394
    ```
    """
    return unstable_direction(task, normaliser)[0]


def growing_amplitudes(
    task: LinearRegression, v: PerHead, U: KeyQueries, normaliser: Normaliser = "context"
) -> Float[np.ndarray, " H"]:
    """p_h = (v_h + ⟨U_h, Ê⟩)/2, the part of each head that grows; A → (Σ p_h²) e^{2gt/τ} Ê.

    Small initial weights matter through Σ p_h² alone.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> v, U = np.array([0.01, 0.01]), 0.01 * np.stack([np.eye(2), -np.eye(2)])
    >>> icl.theory.growing_amplitudes(task, v, U).round(5)
    array([ 0.01207, -0.00207])
    ```
    """
    v, U = check_merged(task, v, U)
    return (v + _along(U, unstable_direction(task, normaliser)[1])) / 2


def early_weights(
    task: LinearRegression,
    v: PerHead,
    U: KeyQueries,
    times: Times,
    normaliser: Normaliser = "context",
) -> tuple[Float[np.ndarray, "T H"], Float[np.ndarray, "T H D D"]]:
    """v(t) and U(t) while A is still small: v cosh gt + ⟨U, Ê⟩ sinh gt, and likewise along Ê.

    The force is then the constant S, and the flow linear; A has a relative error of ‖CAΛ‖/‖S‖.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> v, U = np.array([0.001]), np.zeros((1, 2, 2))
    >>> v, U = icl.theory.early_weights(task, v, U, np.array([0.0, 10.0]))
    >>> v.round(4)
    array([[0.001 ],
           [0.0172]])
    >>> U[1].round(4)
    array([[[0.0121, 0.    ],
            [0.    , 0.0121]]])
    ```
    """
    v, U = check_merged(task, v, U)
    rate, direction = unstable_direction(task, normaliser)
    phase = rate * np.asarray(times, dtype=np.float64)[:, None]
    along = _along(U, direction)
    v_t = v * np.cosh(phase) + along * np.sinh(phase)
    along_t = along * np.cosh(phase) + v * np.sinh(phase)
    return v_t, U + (along_t - along)[..., None, None] * direction


def check_merged(
    task: LinearRegression, v: ArrayLike, U: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """`v` and `U` as float64 arrays, (H,) and (H, D, D)."""
    v, U = np.asarray(v, dtype=np.float64), np.asarray(U, dtype=np.float64)
    if v.ndim != 1 or U.shape != (v.shape[0], task.dim, task.dim):
        raise Refusal(
            f"`v` has shape {v.shape} and `U` {U.shape}: must be (H,) and "
            f"(H, {task.dim}, {task.dim})."
        )
    return v, U


def _along(U: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """⟨U_h, Ê⟩ of each head."""
    return np.einsum("hde,de->h", U, direction)
