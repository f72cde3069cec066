"""How concentrated one softmax is over normal scores: exact one-dimensional Laplace integrals.

A head of strength ω attends, at a query of length r = |q|, with p = softmax(a s_l), a = ωr, over
s_l = x_l·q/r ~ N(0, 1). Writing 1/Zᵏ as ∫ tᵏ⁻¹e^{−tZ} dt/(k − 1)! makes the L points independent,
and leaves an integral over t = eˣ of averages over one point. In x a plain trapezoid rule is enough
at *every* slope: given Z the integrand is a shifted copy of e^{kx−eˣ}, whose Fourier transform
Γ(k + iν) is negligible at ν = 2π/step, and averages over Z cannot enlarge it. Derived in
docs/theory/softmax.md.

These integrals serve predictions: they are slow, and share no code with those of the risks.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy

from ..errors import Refusal
from ._softmax_setting import Isotropic, Setting

# Step in x = log t: |Γ(1 + 2πi/step)| < 1e-16.
STEP = 0.25
# Integrands are dropped where they are below e^−TAIL of their size.
TAIL = 38.0
# Tables grow as the square of the slope.
STEEPEST = 40.0
# e^x beyond this exponent is infinite; e^−(e^x) is 0 long before.
OVERFLOW = 700.0
# A normal score beyond this size has probability 2e-21; a χ_d radius this far from √d no more.
_FAR_SCORE, _FAR_RADIUS = 9.5, 8.5
# Weights of a rule below this share are below rounding.
_NO_WEIGHT = 1e-17
# The steepest slope where averages over one point are matrix products; above, correlations.
_FLAT = 0.5


class AttentionPowers(NamedTuple):
    """E Σp², E Σp³ and E (Σp²)² of p = softmax(a s_l) over L normal scores."""

    second: float
    third: float
    second_squared: float

    def signal(self, slope: float) -> float:
        """E (p·s)² = E P₂ + a²(1 − E P₂ − 6 E P₃ + 6 E P₂²), by Gaussian integration by parts."""
        rest = 1 - self.second - 6 * self.third + 6 * self.second_squared
        return self.second + slope**2 * rest


def attention_powers(slope: float, length: float) -> AttentionPowers:
    """E Σp², E Σp³ and E (Σp²)² of p = softmax(a s_l) for a head of slope a = ω|q|.

    E Σp² is 1/L for a = 0, e^{a²}/L while a² ≲ ½ log L, and grows to 1 beyond √(2 log L), where the
    softmax picks single points.

    **Example:**

    ```pycon
    >>> powers = icl.theory.attention_powers(slope=1.0, length=40)
    >>> round(powers.second, 4), round(powers.third, 5)
    (0.0596, 0.00707)
    >>> rows = np.exp(np.random.default_rng(0).normal(size=(20_000, 40)))
    >>> p = rows / rows.sum(1, keepdims=True)
    >>> round(float(np.mean(np.sum(p**2, 1))), 3)
    0.06
    ```
    """
    return _attention_powers(abs(float(slope)), float(length))


def mean_square_attention(task: Isotropic, omega: float) -> float:
    """E|p|² of a head with key-query ωI: the mean over |q| ~ χ_d of E Σp² at slope ω|q|.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> [round(icl.theory.mean_square_attention(task, omega), 4) for omega in (0.0, 0.5, 2.0)]
    [0.025, 0.0621, 0.44]
    ```
    """
    at = Setting.of(task)
    sizes, weights = chi_rule(at.dim)
    return float(sum(w * attention_powers(omega * r, at.length).second
                     for r, w in zip(sizes, weights)))  # fmt: skip


@lru_cache(maxsize=100_000)
def _attention_powers(slope: float, length: float) -> AttentionPowers:
    s, weight = normal_rule(slope)
    # All integrands fall at least as t² E Z² to the left.
    x = log_grid(2, slope, length)
    if slope >= _FLAT:  # steps of x and of as are the same: averages are correlations on one grid
        x = x[0] - STEP * (len(s) // 2) + STEP * np.arange(len(x) + len(s) - 1)
        average = lambda f: np.correlate(f, weight, "valid")
    else:
        x = x[:, None] + slope * s
        average = lambda f: f @ weight
    scaled = np.exp(np.minimum(x, OVERFLOW))
    fall = np.exp(-scaled)
    log_one = log_average(average(fall), average(-np.expm1(-scaled)))
    square = scaled * (scaled * fall)
    second, third, fourth = map(average, (square, scaled * square, scaled * (scaled * square)))
    same = length * np.exp((length - 1) * log_one) * STEP
    apart = length * (length - 1) * np.exp((length - 2) * log_one) * STEP
    squared = np.sum(same * fourth + apart * second**2) / 6
    return AttentionPowers(
        float(np.sum(same * second)), float(np.sum(same * third) / 2), float(squared)
    )


def normal_rule(slope: float) -> tuple[np.ndarray, np.ndarray]:
    """A trapezoid rule for s ~ N(0, 1), exact to rounding for functions of e^{x+as}."""
    step = min(0.5, STEP / slope) if slope > 0 else 0.5
    count = int(np.ceil(_FAR_SCORE / step))
    s = step * np.arange(-count, count + 1)
    weight = np.exp(-(s**2) / 2)
    return s, weight / weight.sum()


def chi_rule(dim: float, nodes: int = 48) -> tuple[np.ndarray, np.ndarray]:
    """A Gauss–Legendre rule for r = |q| ~ χ_d, nodes of no weight left out."""
    unit, weight = scipy.special.roots_legendre(nodes)
    low, high = max(dim**0.5 - _FAR_RADIUS, 0.0), dim**0.5 + _FAR_RADIUS
    r = low + (high - low) * (1 + unit) / 2
    logs = (dim - 1) * np.log(r) - r**2 / 2
    weight = weight * np.exp(logs - logs.max())
    weight = weight / weight.sum()
    kept = weight > _NO_WEIGHT
    return r[kept], weight[kept]


def log_grid(power: int, slope: float, length: float) -> np.ndarray:
    """x = log t from where (tZ)ᵏ is negligible, for all but rare Z, to where e^{−tZ} is."""
    slope = abs(slope)
    if slope > STEEPEST:
        raise Refusal(
            f"A head has |ω||q| = {slope:.4g} at some query: these integrals hold up to "
            f"{STEEPEST:.0f}. Beyond, attention picks single points."
        )
    # (tZ)ᵏ is negligible in the mean, or for every Z whose scores stay below `_FAR_SCORE`.
    mean = TAIL / power + np.log(length) + power * slope**2 / 2
    usual = TAIL / power + np.log(length) + _FAR_SCORE * slope
    # log Z ≥ a max s, and max s is below this with probability 1e-17.
    lowest = scipy.special.ndtri(10 ** (-17 / length))
    return np.arange(-min(mean, usual), np.log(TAIL) + 0.5 - slope * lowest, STEP)


def log_average(average: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """log of an average that is given with 1 minus itself: uses the more precise of the two."""
    close = missing < 0.5
    near = np.log1p(-np.where(close, missing, 0.0))
    return np.where(close, near, np.log(np.maximum(average, 1e-300)))
