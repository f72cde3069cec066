"""Merged attention in closed form: white inputs of any imbalance, and the lazy limit of any inputs.

White inputs have an exact solution for every imbalance between v and U. For any inputs, large
weights freeze the kernel, and the loss is a sum of exponentials. Times are in units of τ. Derived
in docs/theory/linear.md.
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import KeyQueries, PerHead, Times, check_fraction, check_positive, check_whole
from ._merged_landscape import check_merged, growing_amplitudes
from ._moments import Normaliser, moments
from ._optimum import optimal_loss, optimal_matrix

# Matrices that are meant to be multiples of the identity are so up to rounding.
_TOLERANCE = 1e-10


class WhiteInterpolation(NamedTuple):
    """σ(t) with A = σ(t) I, and the loss."""

    strength: Float[np.ndarray, " T"]
    loss: Float[np.ndarray, " T"]


class _WhiteMoments(NamedTuple):
    """Λ = λI and M = mI: S = `drive`·I, C Λ = `curvature`·I, A* = `optimum`·I."""

    dim: int
    drive: float
    curvature: float
    optimum: float


def white_initial_strength(
    task: LinearRegression, v: PerHead, U: KeyQueries, normaliser: Normaliser = "context"
) -> float:
    """σ₀ = Σ p_h²/√D, the initial strength that `white_strength` needs for these weights.

    Exact for U_h = v_h I/√D, where it is Σ v_h²/√D (Σ v_h² is the w_init² of arXiv 2501.16265).
    For other small weights `white_strength` is right once the growing part dominates. Gaussian
    weights of standard deviation s have mean H s²/(2√D).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> v = np.array([0.01, 0.02])
    >>> U = v[:, None, None] * np.eye(2) / np.sqrt(2)
    >>> strength = icl.theory.white_initial_strength(task, v, U)
    >>> round(strength, 7), round(float(v @ v) / 2**0.5, 7)
    (0.0003536, 0.0003536)
    ```
    """
    dim = _white_moments(task, normaliser).dim
    return float(np.sum(growing_amplitudes(task, v, U, normaliser) ** 2) / np.sqrt(dim))


def white_strength(
    task: LinearRegression,
    times: Times,
    initial_strength: float,
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, " T"]:
    """σ(t) with A = σ(t) I for white inputs: a rescaled sigmoid (arXiv 2501.16265).

    1/σ(t) = (1 − e^{−rt/τ})/σ* + e^{−rt/τ}/σ₀ with r = 2√D λ² (M = I, one length), σ* = a*.

    **Arguments:**

    - `initial_strength`: σ₀ > 0, see `white_initial_strength`.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> icl.theory.white_strength(task, np.array([0.0, 5.0, 10.0, 20.0]), 0.01).round(3)
    array([0.01 , 0.288, 1.516, 1.739])
    >>> np.diag(icl.theory.optimal_matrix(task)).round(3)
    array([1.739, 1.739])
    ```
    """
    white = _white_moments(task, normaliser)
    check_positive("initial_strength", initial_strength)
    decay = np.exp(-white_rate(task, normaliser) * np.asarray(times, dtype=np.float64))
    return 1 / ((1 - decay) / white.optimum + decay / initial_strength)


def white_loss(
    task: LinearRegression,
    times: Times,
    initial_strength: float,
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, " T"]:
    """L(t) for white inputs: L* + D λC (σ(t) − σ*)².

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> times = np.array([0.0, 10.0, 20.0])
    >>> icl.theory.white_loss(task, times, 1e-3).round(4)
    array([0.999 , 0.4395, 0.1304])
    >>> icl.theory.reduced_flow(task, times, 1e-3 * np.eye(2)).loss.round(4)
    array([0.999 , 0.4395, 0.1304])
    ```
    """
    strength = white_strength(task, times, initial_strength, normaliser)
    return white_loss_of_strength(task, strength, normaliser)


def white_loss_of_strength(
    task: LinearRegression, strength: Float[ArrayLike, "*T"], normaliser: Normaliser = "context"
) -> Float[np.ndarray, "*T"]:
    """The loss of A = σ I for white inputs: L* + D λC (σ − σ*)².

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> icl.theory.white_loss_of_strength(task, np.array([0.0, 0.5, 1.0])).round(4)
    array([1.    , 0.5719, 0.2875])
    >>> round(icl.theory.loss_of_matrix(task, 0.5 * np.eye(2)), 4)
    0.5719
    ```
    """
    white = _white_moments(task, normaliser)
    gap = np.asarray(strength, dtype=np.float64) - white.optimum
    return np.asarray(optimal_loss(task, normaliser) + white.dim * white.curvature * gap**2)


def white_drop_time(
    task: LinearRegression,
    initial_strength: float,
    fraction: float = 0.5,
    normaliser: Normaliser = "context",
) -> float:
    """When a fraction f of L(0) − L* is gone for white inputs: σ = xσ*, x = 1 − √(1 − f).

    (τ/r) ln[(σ*/σ₀ − 1) x/(1 − x)], with the rate r of `white_rate`.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> time = icl.theory.white_drop_time(task, 1e-3, fraction=0.5)
    >>> round(time, 3)
    9.304
    >>> loss = icl.theory.white_loss(task, np.array([0.0, time, 1e3]), 1e-3)
    >>> round(float((1 - loss[1]) / (1 - loss[2])), 3)
    0.5
    ```
    """
    white = _white_moments(task, normaliser)
    check_positive("initial_strength", initial_strength)
    reached = 1 - np.sqrt(1 - check_fraction(fraction))
    odds = (white.optimum / initial_strength - 1) * reached / (1 - reached)
    if odds < 1:
        raise Refusal(
            f"`initial_strength` = {initial_strength}: the loss starts below `fraction` = "
            f"{fraction} of its drop; must be at most {reached * white.optimum:.6g}."
        )
    return float(np.log(odds) / white_rate(task, normaliser))


def white_rate(task: LinearRegression, normaliser: Normaliser = "context") -> float:
    """r = 2√D λ² (M = I, one length): the rate of the sigmoid, twice g.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> round(icl.theory.white_rate(task), 4), round(2 * 2**0.5 * 0.5**2, 4)
    (0.7071, 0.7071)
    ```
    """
    white = _white_moments(task, normaliser)
    return float(2 * np.sqrt(white.dim) * white.drive)


def white_sharpness(
    task: LinearRegression, initial_strength: float, normaliser: Normaliser = "context"
) -> float:
    """ρ = t₁₀/t₉₀ of the loss drop for white inputs: 1 is a step, .0458 a pure exponential.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> [round(icl.theory.white_sharpness(task, s), 3) for s in (1e-2, 1e-4, 1e-8)]
    [0.377, 0.65, 0.813]
    ```
    """
    early = white_drop_time(task, initial_strength, 0.1, normaliser)
    return early / white_drop_time(task, initial_strength, 0.9, normaliser)


def white_interpolation(
    task: LinearRegression,
    times: Times,
    nu: float,
    omega: float,
    normaliser: Normaliser = "context",
) -> WhiteInterpolation:
    """The exact flow for white inputs from v_h = ρ_h ν, U_h = ρ_h ω I/√D, |ρ| = 1.

    With δ = ν² − ω², σ = (|δ|/2√D) sinh 2θ and u = e^{2θ}, (u − u₊)/(u − u₋) decays as e^{−2Ωt/τ}
    with Ω = √(α² + β²), u± = (α ± Ω)/β, α = √D λ², β = ½ λC|δ|. Small |δ| gives the sigmoid of
    `white_strength` (rich), large |δ| from σ = 0 a pure exponential (lazy).

    **Arguments:**

    - `nu`, `omega`: the initial sizes of values and key-query weights. Their product may be
      negative unless |ν| = |ω|: such weights run into the saddle and stay.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> times = np.array([0.0, 5.0, 10.0])
    >>> rich = icl.theory.white_interpolation(task, times, nu=0.1, omega=0.1)
    >>> rich.loss.round(3)
    array([0.993, 0.799, 0.156])
    >>> lazy = icl.theory.white_interpolation(task, times / 100, nu=10.0, omega=0.0)
    >>> lazy.loss.round(3)
    array([1.   , 0.337, 0.179])
    ```
    """
    white = _white_moments(task, normaliser)
    times = np.asarray(times, dtype=np.float64)
    root = np.sqrt(white.dim)
    start = nu * omega / root
    delta = abs((nu - omega) * (nu + omega))
    if delta > 0:
        alpha = root * white.drive
        beta = white.curvature * delta / 2
        rate = np.hypot(alpha, beta)
        u_plus = (alpha + rate) / beta
        u_minus = -1 / u_plus  # their product is −1; the difference in its definition would cancel
        u_start = np.exp(np.arcsinh(2 * root * start / delta))
        ratio = (u_start - u_plus) / (u_start - u_minus) * np.exp(-2 * rate * times)
        u = (u_plus - ratio * u_minus) / (1 - ratio)
        strength = delta / (4 * root) * (u - 1 / u)
    elif start > 0:
        strength = white_strength(task, times, start, normaliser)
    else:
        raise Refusal(
            f"`nu` = {nu} and `omega` = {omega}: balanced weights of opposite or no sign never "
            "leave the saddle; give |ν| ≠ |ω| or νω > 0."
        )
    return WhiteInterpolation(strength, white_loss_of_strength(task, strength, normaliser))


def crossover_imbalance(task: LinearRegression, normaliser: Normaliser = "context") -> float:
    """|δ| = 2‖A*‖, where the white solution passes from rich (smaller) to lazy (larger).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> round(icl.theory.crossover_imbalance(task), 3)
    4.919
    ```
    """
    return float(2 * np.linalg.norm(optimal_matrix(task, normaliser)))


def crossover_scale(
    task: LinearRegression, heads: int, normaliser: Normaliser = "context"
) -> float:
    """The standard deviation s of Gaussian weights with H s² = ‖A*‖: smaller is rich.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> scale = icl.theory.crossover_scale(task, heads=8)
    >>> round(scale, 3)
    0.554
    >>> round(2 * 8 * scale**2, 3), round(icl.theory.crossover_imbalance(task), 3)
    (4.919, 4.919)
    ```
    """
    size = np.linalg.norm(optimal_matrix(task, normaliser))
    return float(np.sqrt(size / check_whole("heads", heads)))


def frozen_kernel(v: PerHead, U: KeyQueries) -> Float[np.ndarray, "D*D D*D"]:
    """Θ = (Σ v_h²) I + Σ vec U_h vec U_hᵀ (rows first): τ d vec A/dt = Θ vec E at these weights.

    **Example:**

    ```pycon
    >>> v, U = np.array([1.2]), np.array([[[1.1, 0.0], [0.0, 0.0]]])
    >>> icl.theory.frozen_kernel(v, U).round(4)
    array([[2.65, 0.  , 0.  , 0.  ],
           [0.  , 1.44, 0.  , 0.  ],
           [0.  , 0.  , 1.44, 0.  ],
           [0.  , 0.  , 0.  , 1.44]])
    ```
    """
    v, U = np.asarray(v, dtype=np.float64), np.asarray(U, dtype=np.float64)
    rows = U.reshape(len(v), -1)
    return np.sum(v**2) * np.eye(rows.shape[1]) + rows.T @ rows


def frozen_kernel_loss(
    task: LinearRegression,
    v: PerHead,
    U: KeyQueries,
    times: Times,
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, " T"]:
    """L(t) of the linear flow τ d vec A/dt = Θ vec E, Θ the `frozen_kernel` of the initial weights.

    Exact for very large weights; the error falls as (H s²/‖A*‖)⁻². Costs O(D⁶).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> v, U = np.array([30.0, -30.0]), np.ones((2, 2, 2))
    >>> icl.theory.frozen_kernel_loss(task, v, U, np.array([0.0, 0.001, 0.1])).round(3)
    array([1.   , 0.609, 0.13 ])
    >>> round(icl.theory.optimal_loss(task), 3)
    0.13
    ```
    """
    rates, amplitudes = _frozen_modes(task, *check_merged(task, v, U), normaliser)
    decay = np.exp(-2 * np.outer(np.asarray(times, dtype=np.float64), rates))
    return optimal_loss(task, normaliser) + decay @ amplitudes**2


def frozen_kernel_rates(
    task: LinearRegression, v: PerHead, U: KeyQueries, normaliser: Normaliser = "context"
) -> Float[np.ndarray, " D*D"]:
    """The D² rates of `frozen_kernel_loss`, in 1/τ and increasing: the eigenvalues of Θ (C ⊗ Λ).

    The loss decays at twice these.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> v, U = np.array([30.0, -30.0]), np.ones((2, 2, 2))
    >>> icl.theory.frozen_kernel_rates(task, v, U).round(1)
    array([135.5, 203.3, 294.1, 441.1])
    >>> curvature = np.kron(icl.theory.correlation_second_moment(task), task.covariance)
    >>> np.sort(np.linalg.eigvals(icl.theory.frozen_kernel(v, U) @ curvature).real).round(1)
    array([135.5, 203.3, 294.1, 441.1])
    ```
    """
    return _frozen_modes(task, *check_merged(task, v, U), normaliser)[0]


def _frozen_modes(task: LinearRegression, v, U, normaliser: Normaliser):
    """Rates and initial amplitudes; the excess loss is Σ amplitude² e^{−2·rate·t}."""
    m = moments(task, normaliser)
    root = np.kron(scipy.linalg.sqrtm(m.second_moment), scipy.linalg.sqrtm(m.covariance))
    # In coordinates where the excess loss is a squared length the flow matrix is symmetric.
    rates, modes = np.linalg.eigh(root @ frozen_kernel(v, U) @ root)
    gap = np.einsum("h,hde->de", v, U) - optimal_matrix(task, normaliser)
    return rates, modes.T @ (root @ gap.ravel())


def _white_moments(task: LinearRegression, normaliser: Normaliser) -> _WhiteMoments:
    """The moments as scalars; an error unless Λ and M are multiples of the identity."""
    full = moments(task, normaliser)
    for name, matrix in (("Λ", full.covariance), ("M = E[wwᵀ]", full.weight_second_moment)):
        mean = np.trace(matrix) / task.dim
        if np.max(np.abs(matrix - mean * np.eye(task.dim))) > _TOLERANCE * abs(mean):
            raise Refusal(
                f"White input needed: {name} of `task` must be a multiple of the identity."
            )
    drive = float(full.drive[0, 0])
    curvature = float(full.covariance[0, 0]) * float(full.second_moment[0, 0])
    if drive == 0:
        raise Refusal("`task` has E[wwᵀ] = 0: there is nothing to learn.")
    return _WhiteMoments(task.dim, drive, curvature, drive / curvature)
