"""Proportional limits: d and L to infinity with d/L → γ; and how far from Bayes each predictor is.

In this limit the large-context loss is exact, plain and centred steps agree, and no number of
structured heads does better than one step. Derived in docs/theory/softmax.md.
"""

from typing import NamedTuple

import numpy as np

from ..errors import Refusal
from ._check import check_positive
from ._softmax_setting import Isotropic, Setting
from ._softmax_steps import debiased_optimum
from ._softmax_wishart import bayes_risk_isotropic


class ProportionalRisks(NamedTuple):
    """Risks at d/L → γ, the noise of the query included.

    - `step`: one gradient step of the best size, plain or centred, and any number of structured
      softmax heads from two up.
    - `one_head`: one softmax head with the best ω and μ, that is kernel regression, scaled.
    - `bayes`: the smallest risk there is.
    """

    step: float
    one_head: float
    bayes: float


def proportional_risks(ratio: float, noise: float) -> ProportionalRisks:
    """The limits of the risks of one step, one head and Bayes at γ = `ratio`."""
    ratio, noise = check_positive("ratio", ratio), Setting(1, 1, noise).noise
    odds = (1 + noise) * ratio
    step, head = odds / (1 + odds), np.e * odds / (1 + np.e * odds)
    if noise == 0:
        return ProportionalRisks(step, head, max(1 - 1 / ratio, 0.0))
    bayes = ridge_risk_limit(ratio * noise, ratio, noise)
    return ProportionalRisks(noise + step, noise + head, bayes)


def ridge_risk_limit(penalty: float, ratio: float, noise: float) -> float:
    """The limit of `ridge_risk` with the penalty ρ = zL, z = `penalty` > 0.

    With the Stieltjes transform m(z) = E (x/L + z)⁻¹ of the eigenvalues x of XXᵀ, which solves
    γzm² + (1 − γ + z)m = 1, the excess risk is −z²m′ + σ²γ(m + zm′). Bayes is z = γσ².
    """
    ratio, noise = check_positive("ratio", ratio), Setting(1, 1, noise).noise
    penalty = check_positive("penalty", penalty)
    linear = 1 - ratio + penalty
    root = np.hypot(linear, 2 * np.sqrt(ratio * penalty))
    # Of the two equal forms of the root of the quadratic, the one that adds.
    if linear > 0:
        m = 2 / (linear + root)
    else:
        m = (root - linear) / (2 * ratio * penalty)
    slope = -(ratio * m**2 + m) / root
    shrunk = -(penalty**2) * slope
    return float(noise + shrunk + noise * ratio * (m + penalty * slope))


def excess_over_bayes(task: Isotropic) -> float:
    """Excess risk of the best debiased step over that of Bayes, at finite d and L; σ² > 0.

    For L ≫ d it tends to 1 + 1/σ² + 1/(dσ²), unbounded as σ → 0: "near optimal" holds up to a
    factor that the noise sets.
    """
    at = Setting.of(task)
    if not at.noise > 0:
        raise Refusal(f"`noise` = {at.noise:g}: must be positive; without noise Bayes is exact.")
    best = debiased_optimum(at).risk
    return (best - at.noise) / (bayes_risk_isotropic(at) - at.noise)
