"""The first order in 1/L of the loss of structured softmax heads, exact in d.

Derived in docs/theory/softmax.md.
"""

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ._softmax_setting import Isotropic, Setting, check_softmax_heads


def softmax_first_order_loss(
    task: Isotropic, omega: Float[ArrayLike, " H"], mu: Float[ArrayLike, " H"]
) -> float:
    """L₁(ω, μ), with L = L₁ + O(L⁻²) at fixed d; needs |ω| < 1/√2.

    With κ = Σ μ_hω_h and F_k(z) = (1 − 2z)^{−d/2−k}, the averages of |q|-dependent exponentials,

        L₁ = σ² + (1 − κ)² + (1/L) { 2(1 − κ) Σ μ_hω_h F₁(ω_h²)
             + Σ μ_hμ_k [(1 + σ²) F₀(ω_hω_k) + ω_hω_k F₁(ω_hω_k)] }.

    Good at small weights; at ω ~ d^−½ it needs L ≫ F₁.
    """
    at = Setting.of(task)
    omega, mu = check_softmax_heads(omega, mu)
    if np.max(np.abs(omega)) >= 0.5**0.5:
        raise Refusal(
            f"`omega` = {omega}: must lie below 1/√2 in size; beyond, averages over the query "
            "diverge and there is no expansion in 1/L."
        )
    learned = mu @ omega
    products = np.outer(omega, omega)
    decay = (1 - 2 * products) ** (-at.dim / 2)
    overlap = mu @ ((1 + at.noise) * decay + products * decay / (1 - 2 * products)) @ mu
    bias = 2 * (1 - learned) * np.sum(mu * omega * (1 - 2 * omega**2) ** (-at.dim / 2 - 1))
    return float(at.noise + (1 - learned) ** 2 + (bias + overlap) / at.length)
