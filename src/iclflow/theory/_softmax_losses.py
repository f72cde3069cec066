"""Losses of structured softmax heads for long contexts, their gradients and minima.

For L → ∞ and d → ∞ with dω² = O(1) (arXiv 2503.12734), with κ = Σ μ_hω_h,

    L̃ = 1 + σ² − 2κ + κ² + (1 + σ²)/L Σ_hk μ_hμ_k exp(dω_hω_k).

At fixed d its 1/L term is wrong: `softmax_first_order_loss` has the right one.

Heads with one common ω and any μ_h of the right sum are one head. At the best single head they form
a set of stationary points of every loss of structured heads. By L̃ its Hessian has one negative
direction for each μ_h < 0, none if all are positive: then the set is a **local minimum**, above the
pair by the whole gain of debiasing. Derived in docs/theory/softmax.md.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import Refusal
from ._check import PerHead, check_whole
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


def softmax_large_context_loss(task: Isotropic, omega: PerHead, mu: PerHead) -> float:
    """L̃(ω, μ) of the module's formula, the noise of the query label included.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> omega, mu = np.array([0.2, -0.2]), np.array([2.0, -2.0])
    >>> round(icl.theory.softmax_large_context_loss(task, omega, mu), 4)
    0.2107
    >>> round(icl.theory.softmax_exact_loss(task, omega, mu), 4)
    0.2344
    ```
    """
    return large_context_value(*check_softmax_heads(omega, mu), Setting.of(task))


def softmax_large_context_gradient(task: Isotropic, omega: PerHead, mu: PerHead) -> HeadGradient:
    """∂L̃/∂ω and ∂L̃/∂μ; gradient flow moves at −½ of it.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> omega = np.array([0.2, -0.2])
    >>> gradient = icl.theory.softmax_large_context_gradient(task, omega, np.array([2.0, -2.0]))
    >>> gradient.omega.round(4), gradient.mu.round(4)
    (array([-0.4435,  0.4435]), array([-0.0446,  0.0446]))
    >>> mu = icl.theory.optimal_mu(task, omega)
    >>> bool(np.allclose(icl.theory.softmax_large_context_gradient(task, omega, mu).mu, 0))
    True
    ```
    """
    at = Setting.of(task)
    return HeadGradient(*(-2 * f for f in large_context_force(*check_softmax_heads(omega, mu), at)))


def optimal_mu(task: Isotropic, omega: PerHead) -> Float[np.ndarray, " H"]:
    """The μ that minimise L̃ at given ω: (ωωᵀ + (1 + σ²)/L exp(dωωᵀ))⁻¹ω.

    Heads with equal ω get equal μ. `optimal_mu_from` minimises the exact loss.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> omega = np.array([0.2, -0.2])
    >>> mu = icl.theory.optimal_mu(task, omega)
    >>> mu.round(3)
    array([ 2.251, -2.251])
    >>> round(icl.theory.softmax_large_context_loss(task, omega, mu), 4)
    0.1995
    >>> round(icl.theory.large_context_pair(task, w=0.2), 4)
    0.1995
    ```
    """
    at = Setting.of(task)
    omega, _ = check_softmax_heads(omega, omega)
    quadratic = np.outer(omega, omega) + at.spread * _kernel(omega, at)
    return np.linalg.lstsq(quadratic, omega, rcond=None)[0]


def large_context_one_head(task: Isotropic) -> BestHead:
    """The minimum of L̃ for one head: ω = d^−½, μ = √d/(1 + c), c = e(1 + σ²)d/L, σ² + c/(1 + c).

    One head is kernel regression with the kernel exp(ω x·q), scaled by μ.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> best = icl.theory.large_context_one_head(task)
    >>> round(best.omega, 3), round(best.mu, 3), round(best.loss, 4)
    (0.5, 1.54, 0.3302)
    >>> omega, mu = np.array([best.omega]), np.array([best.mu])
    >>> gradient = icl.theory.softmax_large_context_gradient(task, omega, mu)
    >>> bool(np.allclose([gradient.omega, gradient.mu], 0))
    True
    ```
    """
    at = Setting.of(task)
    odds = np.e * at.spread * at.dim
    return BestHead(at.dim**-0.5, at.dim**0.5 / (1 + odds), at.noise + odds / (1 + odds))


def large_context_pair(task: Isotropic, w: float) -> float:
    """min over μ of L̃ for the heads (±w, ±μ): σ² + c/(1 + c), c = (1 + σ²)/L sinh(dw²)/w².

    It falls as w → 0, down to its infimum σ² + c/(1 + c), c = (1 + σ²)d/L: by L̃ the pair shrinks
    for ever. The exact loss has its minimum at a finite w: `pair_optimum`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> [round(icl.theory.large_context_pair(task, w), 5) for w in (0.5, 0.1, 0.0)]
    [0.21447, 0.19912, 0.1991]
    ```
    """
    at = Setting.of(task)
    odds = at.spread * (float(np.sinh(at.dim * w**2)) / w**2 if w != 0 else at.dim)
    return at.noise + odds / (1 + odds)


def large_context_value(omega: np.ndarray, mu: np.ndarray, at: Setting) -> float:
    """L̃, unchecked."""
    spread = mu @ _kernel(omega, at) @ mu
    return float(at.noise + (1 - mu @ omega) ** 2 + at.spread * spread)


def large_context_force(omega: np.ndarray, mu: np.ndarray, at: Setting):
    """−½∂L̃/∂ω and −½∂L̃/∂μ, unchecked."""
    left = 1 - mu @ omega
    overlap = at.spread * _kernel(omega, at)
    return mu * (left - at.dim * (overlap @ (mu * omega))), omega * left - overlap @ mu


def softmax_first_order_loss(task: Isotropic, omega: PerHead, mu: PerHead) -> float:
    """L₁(ω, μ), with L = L₁ + O(L⁻²) at fixed d; needs |ω| < 1/√2.

    With κ = Σ μ_hω_h and F_k(z) = (1 − 2z)^{−d/2−k}, the averages of |q|-dependent exponentials,

        L₁ = σ² + (1 − κ)² + (1/L) { 2(1 − κ) Σ μ_hω_h F₁(ω_h²)
             + Σ μ_hμ_k [(1 + σ²) F₀(ω_hω_k) + ω_hω_k F₁(ω_hω_k)] }.

    Good at small weights; at ω ~ d^−½ it needs L ≫ F₁.

    **Example:**

    ```pycon
    >>> omega, mu = np.array([0.1, -0.1]), np.array([4.0, -4.0])
    >>> for length in (40, 400):
    ...     task = icl.isotropic(dim=4, context=length)
    ...     exact = icl.theory.softmax_exact_loss(task, omega, mu)
    ...     first_order = icl.theory.softmax_first_order_loss(task, omega, mu)
    ...     large_context = icl.theory.softmax_large_context_loss(task, omega, mu)
    ...     print(length, f"{first_order - exact:.1e}", f"{large_context - exact:.1e}")
    ...
    40 2.1e-03 -2.2e-02
    400 2.1e-05 -2.4e-03
    ```
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


def one_sign_share(heads: int) -> float:
    """2^{1−H}, the share of random small starts whose H heads all have growing parts of one sign.

    They end as one head if L ≫ Hd. At shorter contexts the zero-sum term changes the sign of some
    small heads in time, so this is an upper bound on the share of such runs.

    **Example:**

    ```pycon
    >>> [icl.theory.one_sign_share(heads) for heads in (1, 2, 3, 8)]
    [1.0, 0.5, 0.25, 0.0078125]
    ```
    """
    return 2.0 ** (1 - check_whole("heads", heads))


def shared_head_curvature(task: Isotropic, mu: PerHead) -> Float[np.ndarray, " H"]:
    """κ_h with L̃ = L̃* + Σ κ_hε_h² for ω_h = d^−½ + ε_h around the shared head, where Σ μ_hε_h = 0.

    κ_h = e(1 + σ²)d/L · M · μ_h, with M = Σμ the value of the best single head.

    **Arguments:**

    - `mu`: how the heads share M, with a positive sum; only the ratios matter.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> mu = np.array([2.0, -1.0])
    >>> icl.theory.shared_head_curvature(task, mu).round(3)
    array([ 1.418, -0.709])
    >>> icl.theory.shared_head_index(mu)
    1
    ```
    """
    at = Setting.of(task)
    shares, _ = check_softmax_heads(mu, mu)
    if not shares.sum() > 0:
        raise Refusal(f"`mu` = {mu}: must have a positive sum, that of the shared head.")
    total = large_context_one_head(at).mu
    return np.e * at.spread * at.dim * total**2 * shares / shares.sum()


def shared_head_index(mu: PerHead) -> int:
    """Negative eigenvalues of the Hessian of L̃ at the shared head: one per head with μ_h < 0.

    **Example:**

    ```pycon
    >>> icl.theory.shared_head_index(np.array([1.0, 2.0]))
    0
    >>> icl.theory.shared_head_index(np.array([3.0, -1.0]))
    1
    ```
    """
    shares, _ = check_softmax_heads(mu, mu)
    return int(np.sum(shares * np.sign(shares.sum()) < 0))


def _kernel(omega: np.ndarray, at: Setting) -> np.ndarray:
    """exp(dω_hω_k), the overlap of the attention of two heads in units of 1/L."""
    return np.exp(at.dim * np.outer(omega, omega))
