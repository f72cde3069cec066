"""The exact loss of structured softmax heads at finite L and d, by quadrature.

Two heads of slopes a, a′ over the same normal scores need G = E[p·p′] and M = E[(p·s)(p′·s)]: a
double Laplace integral, one variable for each normalisation. Derived in docs/theory/softmax.md.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from ._softmax_powers import (
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


def slope_moments(slope: float, other: float, length: float) -> SlopeMoments:
    """The averages of two heads at fixed slopes a = ω|q| and a′ = ω′|q|, exact."""
    large, small = sorted((float(slope), float(other)), key=abs, reverse=True)
    # Neither the order of the heads nor the sign of all scores matters.
    return _slope_moments(abs(large), small if large >= 0 else -small, float(length))


def head_integrals(task: Isotropic, omega: Float[ArrayLike, " H"]) -> HeadIntegrals:
    """b, G and M of heads with W_h = ω_h I, averaged over the query and the context."""
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


def softmax_exact_loss(
    task: Isotropic, omega: Float[ArrayLike, " H"], mu: Float[ArrayLike, " H"]
) -> float:
    """The loss of structured heads, exact at finite L and d; any real L ≥ 1."""
    at = Setting.of(task)
    omega, mu = check_softmax_heads(omega, mu)
    found = head_integrals(at, omega)
    quadratic = found.M / at.dim + at.across * found.G
    return float(at.noise + 1 - 2 * mu @ found.b + mu @ quadratic @ mu)


def optimal_mu_from(task: Isotropic, integrals: HeadIntegrals) -> Float[np.ndarray, " H"]:
    """The μ with the smallest loss at given ω: [M/d + ((d − 1)/d + σ²)G]⁻¹ b.

    The loss there is σ² + 1 − μ·b. Heads with equal ω share equally.
    """
    at = Setting.of(task)
    quadratic = np.asarray(integrals.M) / at.dim + at.across * np.asarray(integrals.G)
    return np.linalg.lstsq(quadratic, np.asarray(integrals.b), rcond=None)[0]


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

    Below a certain size BLAS starts no threads; on a busy machine these wait for one another far
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
    scaled = np.exp(np.minimum(x[:, None] + slope * s, 700.0))
    fall = np.exp(-scaled)
    return scaled * fall, fall, -np.expm1(-scaled)
