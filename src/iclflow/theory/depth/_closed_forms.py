"""Closed forms of the best scalar stack: proportional limit, one coordinate, long contexts.

For d/N → φ the polynomials are Chebyshev's of the second kind: with z = (c + 1 + φ)/(2√φ) and
ζ = z − √(z² − 1) the bound is 1 − (ζ/√φ)(1 − ζ^{2L})/(1 − ζ^{2L+2}). For d = 1 they are Laguerre's.
For N → ∞ at fixed d, R_L ≃ h_L N^{−L} with norms h_L of the orthogonal polynomials of a Gaussian
matrix. Derived in docs/theory/depth.md.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from .._check import check_number, check_positive, check_whole
from ._optimum import determinant
from ._wishart import HIGHEST, gaussian_trace_moment


class SingleCoordinate(NamedTuple):
    """The best stack for inputs of one coordinate: its risk R, exactly, and its steps."""

    risk: Fraction
    steps: Float[np.ndarray, " L"]


def proportional_bound(ratio: float, layers: int, cost: float = 0.0) -> float:
    """The bound of L layers for d/N → φ = `ratio`; without noise 1/(1 + α + … + α^L), α = 1/φ.

    **Arguments:**

    - `cost`: c, the limit of dσ²/N for E(w·x)² = 1.

    ```pycon
    >>> [round(1 / icl.theory.depth.proportional_bound(0.5, count), 9) for count in (1, 2, 3)]
    [3.0, 7.0, 15.0]

    ```
    """
    layers, (root, zeta) = check_whole("layers", layers), _zeta(ratio, cost)
    return float(1 - zeta / root + proportional_distance(ratio, layers, cost))


def proportional_distance(ratio: float, layers: int, cost: float = 0.0) -> float:
    """`proportional_bound` less Bayes: ζ^{2L+1}(1 − ζ²)/(√φ(1 − ζ^{2L+2})), a factor ζ² a layer.

    ```pycon
    >>> round(icl.theory.depth.proportional_distance(0.5, 3), 9)  # Bayes is zero
    0.066666667

    ```
    """
    layers, (root, zeta) = check_whole("layers", layers), _zeta(ratio, cost)
    return float(zeta ** (2 * layers + 1) / root / _geometric(zeta, layers + 1))


def proportional_steps(ratio: float, layers: int) -> Float[np.ndarray, " L"]:
    """γ_l = 1/(1 + φ + 2√φ cos(πl/(L + 1))), the best steps for d/N → φ without noise.

    ```pycon
    >>> icl.theory.depth.proportional_steps(0.5, 3).round(6)
    array([0.4     , 0.666667, 2.      ])

    ```
    """
    ratio, layers = check_positive("ratio", ratio), check_whole("layers", layers)
    angles = np.pi * np.arange(1, layers + 1) / (layers + 1)
    return 1 / (1 + ratio + 2 * np.sqrt(ratio) * np.cos(angles))


def single_coordinate(length: int, layers: int) -> SingleCoordinate:
    """d = 1 without noise: R_L = 1/binom(N/2 + L, L), γ_l = N/(2x_l), x_l zeros of L_L^{(N/2)}.

    ```pycon
    >>> str(icl.theory.depth.single_coordinate(20, 3).risk)
    '1/286'

    ```
    """
    length, layers = check_whole("length", length), check_whole("layers", layers)
    risk = Fraction(1)
    for k in range(1, layers + 1):
        risk *= Fraction(2 * k, length + 2 * k)
    zeros, _ = scipy.special.roots_genlaguerre(layers, length / 2)
    return SingleCoordinate(risk, length / (2 * zeros[::-1]))


def long_context_factor(dim: int, layers: int) -> Fraction:
    """h_L in R_L ≃ h_L N^{−L} for N → ∞ at fixed d, without noise: d + 1, d² + 3d + 4, …

    **Arguments:**

    - `layers`: at most 12.

    ```pycon
    >>> [str(icl.theory.depth.long_context_factor(5, count)) for count in (1, 2)]
    ['6', '44']

    ```
    """
    layers = check_whole("layers", layers, 1, HIGHEST // 2)
    moment = [Fraction(gaussian_trace_moment(dim, (k,)), dim) for k in range(2 * layers + 1)]
    upper = [[moment[i + j] for j in range(layers + 1)] for i in range(layers + 1)]
    return determinant(upper) / determinant([row[:-1] for row in upper[:-1]])


def _zeta(ratio: float, cost: float) -> tuple[float, float]:
    """√φ and ζ."""
    root = np.sqrt(check_positive("ratio", ratio))
    cost = check_number("cost", cost, "finite, not negative", lambda x: 0 <= x < np.inf)
    # From z − 1, without cancellation: ζ → 1 where φ = 1 and c = 0.
    excess = (cost + (1 - root) ** 2) / (2 * root)
    return root, 1 / (1 + excess + np.sqrt(excess * (excess + 2)))


def _geometric(zeta: float, count: int) -> float:
    """1 + ζ² + … + ζ^{2(count − 1)}."""
    return float(np.sum(zeta ** (2.0 * np.arange(count))))
