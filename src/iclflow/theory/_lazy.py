"""From rich to lazy: how merged attention learns from initial weights that are not small.

White inputs have an exact solution for every imbalance between v and U; for any inputs, large
weights freeze the kernel and make learning a sum of exponentials. Times are in units of τ.
Derived in docs/theory/linear.md.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import ArrayLike, Float, Real

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import check_whole
from ._merged_dynamics import white_drop_time, white_loss_of_strength, white_strength
from ._merged_landscape import check_heads
from ._moments import Normaliser, moments, white_moments
from ._optimum import optimal_loss, optimal_matrix


class WhiteInterpolation(NamedTuple):
    """σ(t) with A = σ(t) I, and the loss."""

    strength: Float[np.ndarray, " T"]
    loss: Float[np.ndarray, " T"]


def white_interpolation(
    task: LinearRegression,
    times: Real[ArrayLike, " T"],
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
    """
    white = white_moments(task, normaliser)
    times = np.asarray(times, dtype=np.float64)
    root = np.sqrt(white.dim)
    start = nu * omega / root
    delta = abs((nu - omega) * (nu + omega))
    if delta == 0:
        if start <= 0:
            raise Refusal(
                f"`nu` = {nu} and `omega` = {omega}: balanced weights of opposite or no sign never "
                "leave the saddle; give |ν| ≠ |ω| or νω > 0."
            )
        strength = white_strength(task, times, start, normaliser)
        return WhiteInterpolation(strength, white_loss_of_strength(task, strength, normaliser))
    alpha = root * white.drive
    beta = white.curvature * delta / 2
    rate = np.hypot(alpha, beta)
    u_plus = (alpha + rate) / beta
    u_minus = -1 / u_plus  # their product is −1; the difference in its definition would cancel
    u_start = np.exp(np.arcsinh(2 * root * start / delta))
    ratio = (u_start - u_plus) / (u_start - u_minus) * np.exp(-2 * rate * times)
    u = (u_plus - ratio * u_minus) / (1 - ratio)
    strength = delta / (4 * root) * (u - 1 / u)
    return WhiteInterpolation(strength, white_loss_of_strength(task, strength, normaliser))


def crossover_imbalance(task: LinearRegression, normaliser: Normaliser = "context") -> float:
    """|δ| = 2‖A*‖, where the white solution passes from rich (smaller) to lazy (larger)."""
    return float(2 * np.linalg.norm(optimal_matrix(task, normaliser)))


def crossover_scale(
    task: LinearRegression, heads: int, normaliser: Normaliser = "context"
) -> float:
    """The standard deviation s of Gaussian weights with H s² = ‖A*‖: smaller is rich."""
    size = np.linalg.norm(optimal_matrix(task, normaliser))
    return float(np.sqrt(size / check_whole("heads", heads)))


def frozen_kernel(
    v: Float[ArrayLike, " H"], U: Float[ArrayLike, "H D D"]
) -> Float[np.ndarray, "D*D D*D"]:
    """Θ = (Σ v_h²) I + Σ vec U_h vec U_hᵀ (rows first): τ d vec A/dt = Θ vec E at these weights."""
    v, U = np.asarray(v, dtype=np.float64), np.asarray(U, dtype=np.float64)
    rows = U.reshape(len(v), -1)
    return np.sum(v**2) * np.eye(rows.shape[1]) + rows.T @ rows


def frozen_kernel_loss(
    task: LinearRegression,
    v: Float[ArrayLike, " H"],
    U: Float[ArrayLike, "H D D"],
    times: Real[ArrayLike, " T"],
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, " T"]:
    """L(t) of the linear flow whose kernel stays what it is at the initial weights.

    Exact for very large weights; the error falls as (H s²/‖A*‖)⁻². Costs O(D⁶).
    """
    v, U = check_heads(task, v, U)
    rates, amplitudes = _frozen_modes(task, v, U, normaliser)
    decay = np.exp(-2 * np.outer(np.asarray(times, dtype=np.float64), rates))
    return optimal_loss(task, normaliser) + decay @ amplitudes**2


def frozen_kernel_rates(
    task: LinearRegression,
    v: Float[ArrayLike, " H"],
    U: Float[ArrayLike, "H D D"],
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, " D*D"]:
    """The D² rates of that linear flow, in 1/τ and increasing; the loss decays at twice these."""
    v, U = check_heads(task, v, U)
    return _frozen_modes(task, v, U, normaliser)[0]


def white_sharpness(
    task: LinearRegression, initial_strength: float, normaliser: Normaliser = "context"
) -> float:
    """ρ = t₁₀/t₉₀ of the loss drop for white inputs: 1 is a step, .0458 a pure exponential."""
    early = white_drop_time(task, initial_strength, 0.1, normaliser)
    return early / white_drop_time(task, initial_strength, 0.9, normaliser)


def _frozen_modes(task: LinearRegression, v, U, normaliser: Normaliser):
    """Rates and initial amplitudes; the excess loss is Σ amplitude² e^{−2·rate·t}."""
    m = moments(task, normaliser)
    root = np.kron(scipy.linalg.sqrtm(m.second_moment), scipy.linalg.sqrtm(m.covariance))
    # In coordinates where the excess loss is a squared length the flow matrix is symmetric.
    rates, modes = np.linalg.eigh(root @ frozen_kernel(v, U) @ root)
    gap = np.einsum("h,hde->de", v, U) - optimal_matrix(task, normaliser)
    return rates, modes.T @ (root @ gap.ravel())
