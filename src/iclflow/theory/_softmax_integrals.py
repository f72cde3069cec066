"""The exact loss of structured softmax heads at finite L and d, by quadrature.

Two heads of slopes a, a′ over the same normal scores need G = E[p·p′] and M = E[(p·s)(p′·s)]: a
double Laplace integral, one variable for each normalisation. One head is kernel regression with the
kernel exp(ω x·q), scaled by μ: it returns μ Σ y_l e^{ω x_l·q}/Σ e^{ω x_l·q}, the Nadaraya–Watson
estimator for μ = 1, and needs one-dimensional integrals alone (`attention_powers`). Derived in
docs/theory/softmax.md.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ..errors import Refusal
from ._check import PerHead
from ._softmax_losses import BestHead
from ._softmax_powers import (
    OVERFLOW,
    STEEPEST,
    STEP,
    attention_powers,
    chi_rule,
    log_average,
    log_grid,
    normal_rule,
)
from ._softmax_setting import Isotropic, Setting, check_softmax_heads


class SlopeMoments(NamedTuple):
    """E[p·p′] and E[(p·s)(p′·s)] of two heads with slopes a and a′ over L normal scores."""

    overlap: float
    signal: float


class HeadIntegrals(NamedTuple):
    """The averages that make the loss a quadratic form in μ.

    L = σ² + 1 − 2μ·b + μᵀ[M/d + ((d − 1)/d + σ²)G]μ, with b_h = E[r p_h·s]/d, G_hk = E[p_h·p_k]
    and M_hk = E[(p_h·s)(p_k·s)], r = |q| averaged too.
    """

    b: Float[np.ndarray, " H"]
    G: Float[np.ndarray, "H H"]
    M: Float[np.ndarray, "H H"]

    def quadratic(self, at: Setting) -> Float[np.ndarray, "H H"]:
        """M/d + ((d − 1)/d + σ²)G, the matrix of the quadratic form."""
        return np.asarray(self.M) / at.dim + at.across * np.asarray(self.G)


def slope_moments(slope: float, other: float, length: float) -> SlopeMoments:
    """E[p·p′] and E[(p·s)(p′·s)] of two heads with slopes a = ω|q| and a′ = ω′|q|, exact.

    **Example:**

    ```pycon
    >>> same = icl.theory.slope_moments(1.0, 1.0, length=40)
    >>> opposite = icl.theory.slope_moments(1.0, -1.0, length=40)
    >>> round(same.overlap, 4), round(opposite.overlap, 4)
    (0.0596, 0.0098)
    >>> round(icl.theory.attention_powers(1.0, length=40).second, 4)
    0.0596
    ```
    """
    large, small = sorted((float(slope), float(other)), key=abs, reverse=True)
    # Neither the order of the heads nor the sign of all scores matters.
    return _slope_moments(abs(large), small if large >= 0 else -small, float(length))


def head_integrals(task: Isotropic, omega: PerHead) -> HeadIntegrals:
    """b_h = E[r p_h·s]/d, G_hk = E[p_h·p_k], M_hk = E[(p_h·s)(p_k·s)] of W_h = ω_h I, r = |q|.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> found = icl.theory.head_integrals(task, omega=np.array([0.2, -0.2]))
    >>> found.b.round(4)
    array([ 0.1937, -0.1937])
    >>> found.G.round(4)
    array([[0.0293, 0.0215],
           [0.0215, 0.0293]])
    ```
    """
    at = Setting.of(task)
    omega, _ = check_softmax_heads(omega, omega)
    G, M = np.zeros((2, len(omega), len(omega)))
    b = np.zeros(len(omega))
    for r, weight in zip(*chi_rule(at.dim)):
        for h, slope in enumerate(omega * r):
            powers = attention_powers(slope, at.length)
            # Stein: E[p·s] = a(1 − E|p|²)
            b[h] += weight * r * slope * (1 - powers.second) / at.dim
            G[h, h] += weight * powers.second
            M[h, h] += weight * powers.signal(slope)
            for k in range(h):
                found = slope_moments(slope, omega[k] * r, at.length)
                G[h, k] += weight * found.overlap
                M[h, k] += weight * found.signal
    return HeadIntegrals(b, *(X + np.tril(X, -1).T for X in (G, M)))


def softmax_exact_loss(task: Isotropic, omega: PerHead, mu: PerHead) -> float:
    """The loss σ² + 1 − 2μ·b + μᵀ[M/d + ((d − 1)/d + σ²)G]μ, exact at finite d and real L ≥ 1.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> omega, mu = np.array([0.2, -0.2]), np.array([2.0, -2.0])
    >>> round(icl.theory.softmax_exact_loss(task, omega, mu), 4)
    0.2344
    >>> round(icl.theory.pair_loss(task, w=0.2, mu=2.0), 4)
    0.2344
    >>> round(icl.theory.softmax_large_context_loss(task, omega, mu), 4)
    0.2107
    ```
    """
    at = Setting.of(task)
    omega, mu = check_softmax_heads(omega, mu)
    found = head_integrals(at, omega)
    return float(at.noise + 1 - 2 * mu @ found.b + mu @ found.quadratic(at) @ mu)


def optimal_mu_from(task: Isotropic, integrals: HeadIntegrals) -> Float[np.ndarray, " H"]:
    """The μ with the smallest loss at given ω: [M/d + ((d − 1)/d + σ²)G]⁻¹ b.

    The loss there is σ² + 1 − μ·b. Heads with equal ω share equally.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> omega = np.array([0.2, -0.1])
    >>> mu = icl.theory.optimal_mu_from(task, icl.theory.head_integrals(task, omega))
    >>> mu.round(3)
    array([ 2.996, -3.025])
    >>> [round(icl.theory.softmax_exact_loss(task, omega, s * mu), 4) for s in (0.9, 1.0, 1.1)]
    [0.234, 0.2253, 0.234]
    ```
    """
    quadratic = integrals.quadratic(Setting.of(task))
    return np.linalg.lstsq(quadratic, np.asarray(integrals.b), rcond=None)[0]


def kernel_regression_risk(task: Isotropic, omega: float, mu: float = 1.0) -> float:
    """Risk of μ Σ y_l e^{ω x_l·q}/Σ e^{ω x_l·q}, exact; the loss of one head (ω, μ).

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> round(icl.theory.kernel_regression_risk(task, omega=0.5), 4)
    0.4713
    >>> # Scaled by a μ above one, it comes closer.
    >>> round(icl.theory.kernel_regression_risk(task, omega=0.5, mu=1.5), 4)
    0.3721
    ```
    """
    at = Setting.of(task)
    return _one_head_loss(at, mu, *_one_head(omega, at))


def one_head_optimum(task: Isotropic) -> BestHead:
    """The best single head at finite d and L: ω, μ and the exact loss σ² + 1 − 2μb + μ²c.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> best = icl.theory.one_head_optimum(task)
    >>> round(best.omega, 3), round(best.mu, 3), round(best.loss, 4)
    (0.577, 1.425, 0.3667)
    >>> round(icl.theory.kernel_regression_risk(task, best.omega, best.mu), 4)
    0.3667
    ```
    """
    return _best(Setting.of(task, shortest=2), lambda b, c: b / c)


def kernel_regression_optimum(task: Isotropic) -> BestHead:
    """The Nadaraya–Watson estimator (μ = 1) with its best ω, and its exact risk σ² + 1 − 2b + c.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> best = icl.theory.kernel_regression_optimum(task)
    >>> round(best.omega, 3), best.mu, round(best.loss, 4)
    (0.833, 1.0, 0.3847)
    >>> # A free μ does better.
    >>> round(icl.theory.one_head_optimum(task).loss, 4)
    0.3667
    ```
    """
    return _best(Setting.of(task, shortest=2), lambda b, c: 1.0)


def _one_head(omega: float, at: Setting) -> tuple[float, float]:
    """b and c = M/d + ((d − 1)/d + σ²)G of `HeadIntegrals` for one head."""
    b = c = 0.0
    for r, weight in zip(*chi_rule(at.dim)):
        powers = attention_powers(omega * r, at.length)
        b += weight * omega * r**2 * (1 - powers.second) / at.dim
        c += weight * (powers.signal(omega * r) / at.dim + at.across * powers.second)
    return float(b), float(c)


def _one_head_loss(at: Setting, mu: float, b: float, c: float) -> float:
    return float(at.noise + 1 - 2 * mu * b + mu**2 * c)


def _best(at: Setting, mu_of: Callable[[float, float], float]) -> BestHead:
    def head(log_omega: float) -> BestHead:
        omega = float(np.exp(log_omega))
        b, c = _one_head(omega, at)
        mu = mu_of(b, c)
        return BestHead(omega, mu, _one_head_loss(at, mu, b, c))

    # There is one valley in log ω in every case tried; the bracket is wide around ω = d^−½.
    low = -np.log(at.dim) / 2 - 4
    high = min(low + 6.5, np.log(STEEPEST / chi_rule(at.dim)[0][-1]))
    found = scipy.optimize.minimize_scalar(
        lambda log_omega: head(log_omega).loss,
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-9},
    )
    best = float(found.x)  # pyright: ignore[reportAttributeAccessIssue]
    if min(best - low, high - best) < 1e-4:
        raise Refusal(
            f"d = {at.dim:g}, L = {at.length:g}, σ² = {at.noise:g}: no best ω between "
            f"{np.exp(low):.3g} and {np.exp(high):.3g}; with so few samples the best head may be "
            "one that picks single points."
        )
    return head(best)


@lru_cache(maxsize=100_000)
def _slope_moments(slope: float, other: float, length: float) -> SlopeMoments:
    """The double Laplace integral in log t and log t′, for |a| ≥ |a′|."""
    s, weight = normal_rule(slope)
    rise, fall, gone = _tables(slope, length, s)
    rise_, fall_, gone_ = _tables(other, length, s)

    def average(left: np.ndarray, right: np.ndarray, values=weight) -> np.ndarray:
        return _product(left * values, right)

    missing = (gone @ weight)[:, None] + gone_ @ weight - average(gone, gone_)
    log_both = log_average(average(fall, fall_), missing)
    same = length * np.exp((length - 1) * log_both)
    apart = length * (length - 1) * np.exp((length - 2) * log_both)
    overlap = np.sum(same * average(rise, rise_))
    crossed = average(rise, fall_, weight * s) * average(fall, rise_, weight * s)
    signal = np.sum(same * average(rise, rise_, weight * s**2) + apart * crossed)
    return SlopeMoments(float(overlap * STEP**2), float(signal * STEP**2))


def _product(left: np.ndarray, right: np.ndarray, size: int = 16) -> np.ndarray:
    """left @ right.T in small blocks.

    BLAS starts no threads for small products; on a busy machine threads wait for one another far
    longer than the product takes.
    """
    rows, columns = len(left), len(right)
    blocks = [np.pad(x, ((0, -len(x) % size), (0, 0))) for x in (left, right)]
    left, right = (x.reshape(-1, size, x.shape[1]) for x in blocks)
    product = np.matmul(left[:, None], right[None].swapaxes(2, 3)).swapaxes(1, 2)
    return product.reshape(len(blocks[0]), -1)[:rows, :columns]


def _tables(slope: float, length: float, s: np.ndarray):
    """tu e^{−tu}, e^{−tu} and 1 − e^{−tu} for u = e^{as}, over x = log t and s."""
    x = log_grid(1, slope, length)
    scaled = np.exp(np.minimum(x[:, None] + slope * s, OVERFLOW))
    fall = np.exp(-scaled)
    return scaled * fall, fall, -np.expm1(-scaled)
