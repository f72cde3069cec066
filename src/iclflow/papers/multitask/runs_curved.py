"""Moments of softmax attention, and the exact loss of one head on labels that are not linear.

Labels are Σ_j β_j h(x_j) with the normalised Hermite polynomial h of degree k and β ~ N(0, I/d), so
that they have the variance 1 and different coordinates do not meet. With r = |q|, c = q_j/r and the
component s of a token along q, x_j = cs + √(1 − c²)z, where attention does not know z, and

h_k(x_j) = Σ_m C(k, m)^½ c^m (1 − c²)^{(k−m)/2} h_m(s) h_{k−m}(z).

The remaining means over attention p of powers of s follow through 1/Z = ∫ e^{−tZ} dt.
"""

import math

import numpy as np
import scipy.special

from ...analysis import Sampled

# Nodes of the integrals over s, log t, r and c (where the integrand is a polynomial): with these
# the moments are right to 1e-10 up to ωr = 3.
_SCORES = np.linspace(-9.0, 9.0, 241)
_LEVELS = np.arange(-34.0, 14.0, 0.1)
_RADII, _ANGLES = 40, 12


def curved_loss(omega: float, mu: float, dim: int, length: int, degree: int) -> float:
    """The loss, relative to that of predicting zero, on labels of a degree without noise."""
    half, weights = scipy.special.roots_genlaguerre(_RADII, dim / 2 - 1)
    cosine, shares = scipy.special.roots_jacobi(_ANGLES, (dim - 3) / 2, (dim - 3) / 2)
    weights, shares = weights / weights.sum(), shares / shares.sum()
    along = [_binomial(cosine, degree, m) @ shares for m in range(degree + 1)]
    total = 0.0
    for weight, radius in zip(weights, np.sqrt(2 * half)):
        # So far out, where attention is on a single token, the radius has no weight left.
        if weight < 1e-14:
            continue
        mean, square, own = attention_moments(omega * radius, length, degree)
        target = _hermite(radius * cosine, degree)
        returned = (target * cosine**degree) @ shares * mean
        spread = np.dot(along[:-1], own[:-1]) + along[-1] * square
        total += weight * (target**2 @ shares - 2 * mu * returned + mu**2 * spread)
    return float(total)


def attention_moments(slope: float, length: int, degree: int) -> tuple[float, float, np.ndarray]:
    """E Σ p h(s) and E (Σ p h(s))² of the degree, and E Σ p² h_m(s)² for all m up to it."""
    density = np.exp(-(_SCORES**2) / 2)
    density /= density.sum()
    shape = np.array([_hermite(_SCORES, m) for m in range(degree + 1)])
    level = _LEVELS - math.log(length) - slope**2 / 2
    power = level[:, None] + slope * _SCORES
    kept = np.exp(-np.exp(power))
    once, twice = np.exp(power) * kept, np.exp(2 * power) * kept
    log_rest = np.log(kept @ density + 1e-300)
    step, rest = _LEVELS[1] - _LEVELS[0], np.exp((length - 1) * log_rest)
    first = once @ (density * shape[-1])
    own = length * step * (shape**2 * density) @ (twice.T @ rest)
    pairs = length * (length - 1) * step * np.sum(first**2 * np.exp((length - 2) * log_rest))
    return float(length * step * first @ rest), float(own[-1] + pairs), own


def sample_softmax(deviation: float, length: int, draws: int, seed: int) -> list[Sampled]:
    """E|p|² and E Σ p s of attention p over scores a s, for standard normal s, by Monte Carlo."""
    rng, found = np.random.default_rng(seed), []
    # In batches of 100, which bounds the memory.
    for _ in range(-(-draws // 100)):
        scores = rng.normal(size=(100, length))
        weights = np.exp(deviation * (scores - scores.max(1, keepdims=True)))
        weights /= weights.sum(1, keepdims=True)
        found.append(np.stack([np.sum(weights**2, 1), np.sum(weights * scores, 1)], 1))
    return [Sampled.of(each) for each in np.concatenate(found).T]


def _hermite(x: np.ndarray, degree: int) -> np.ndarray:
    return scipy.special.eval_hermitenorm(degree, x) / math.sqrt(math.factorial(degree))


def _binomial(cosine: np.ndarray, degree: int, order: int) -> np.ndarray:
    """C(k, m) c^{2m} (1 − c²)^{k−m}."""
    return math.comb(degree, order) * cosine ** (2 * order) * (1 - cosine**2) ** (degree - order)
