"""The large-context loss of structured softmax heads, its gradient and its minima.

For L → ∞ and d → ∞ with dω² = O(1) (arXiv 2503.12734), with κ = Σ μ_hω_h,

    L̃ = 1 + σ² − 2κ + κ² + (1 + σ²)/L Σ_hk μ_hμ_k exp(dω_hω_k).

At fixed d its 1/L term is wrong: `softmax_first_order_loss` has the right one. Derived in
docs/theory/softmax.md.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from ._softmax_setting import Isotropic, Setting, check_softmax_heads


class HeadGradient(NamedTuple):
    """∂L/∂ω_h and ∂L/∂μ_h."""

    omega: Float[np.ndarray, " H"]
    mu: Float[np.ndarray, " H"]


class BestHead(NamedTuple):
    """ω, μ and the loss of the best single head."""

    omega: float
    mu: float
    loss: float


def softmax_large_context_loss(
    task: Isotropic, omega: Float[ArrayLike, " H"], mu: Float[ArrayLike, " H"]
) -> float:
    """L̃(ω, μ), the noise of the query label included."""
    return large_context_value(*check_softmax_heads(omega, mu), Setting.of(task))


def softmax_large_context_gradient(
    task: Isotropic, omega: Float[ArrayLike, " H"], mu: Float[ArrayLike, " H"]
) -> HeadGradient:
    """∂L̃/∂ω and ∂L̃/∂μ; gradient flow moves at −½ of it."""
    at = Setting.of(task)
    return HeadGradient(*(-2 * f for f in large_context_force(*check_softmax_heads(omega, mu), at)))


def optimal_mu(task: Isotropic, omega: Float[ArrayLike, " H"]) -> Float[np.ndarray, " H"]:
    """The μ that minimise L̃ at given ω: (ωωᵀ + (1 + σ²)/L exp(dωωᵀ))⁻¹ω.

    Heads with equal ω share what they need equally. `optimal_mu_from` does it for any loss.
    """
    at = Setting.of(task)
    omega, _ = check_softmax_heads(omega, omega)
    quadratic = np.outer(omega, omega) + at.spread * kernel(omega, at)
    return np.linalg.lstsq(quadratic, omega, rcond=None)[0]


def large_context_one_head(task: Isotropic) -> BestHead:
    """The minimum of L̃ for one head: ω = d^−½, μ = √d/(1 + c), c = e(1 + σ²)d/L, σ² + c/(1 + c).

    One head is kernel regression with the kernel exp(ω x·q), scaled by μ.
    """
    at = Setting.of(task)
    odds = np.e * at.spread * at.dim
    return BestHead(at.dim**-0.5, at.dim**0.5 / (1 + odds), at.noise + odds / (1 + odds))


def large_context_pair(task: Isotropic, w: float) -> float:
    """min over μ of L̃ for the heads (±w, ±μ): σ² + c/(1 + c), c = (1 + σ²)/L sinh(dw²)/w².

    It falls as w → 0, down to its infimum σ² + c/(1 + c), c = (1 + σ²)d/L: by L̃ the pair shrinks
    for ever. The exact loss has a minimum inside: `pair_optimum`.
    """
    at = Setting.of(task)
    odds = at.spread * (np.sinh(at.dim * w**2) / w**2 if w != 0 else at.dim)
    return at.noise + odds / (1 + odds)


def kernel(omega: np.ndarray, at: Setting) -> np.ndarray:
    """exp(dω_hω_k), the overlap of the attention of two heads in units of 1/L."""
    return np.exp(at.dim * np.outer(omega, omega))


def large_context_value(omega: np.ndarray, mu: np.ndarray, at: Setting) -> float:
    """L̃, unchecked."""
    spread = mu @ kernel(omega, at) @ mu
    return float(at.noise + (1 - mu @ omega) ** 2 + at.spread * spread)


def large_context_force(omega: np.ndarray, mu: np.ndarray, at: Setting):
    """−½∂L̃/∂ω and −½∂L̃/∂μ, unchecked."""
    left = 1 - mu @ omega
    overlap = at.spread * kernel(omega, at)
    return mu * (left - at.dim * (overlap @ (mu * omega))), omega * left - overlap @ mu
