"""Beyond the training task: other context lengths, and labels that are not linear.

Softmax attention averages, so what it learned at one length means the same at another. And the
small pair keeps the linear part of a label alone: the rest acts as noise that grows with |x|².
Derived in docs/theory/softmax.md.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ._check import check_whole
from ._softmax_setting import Isotropic, Setting, check_softmax_heads
from ._softmax_steps import (
    BestStep,
    debiased_optimum,
    debiased_risk,
    gradient_step_optimum,
    gradient_step_risk,
)


class LengthTransfer(NamedTuple):
    """Risks at a test length of predictors whose step was chosen at the training length.

    - `debiased`: the debiased step, that is a pair of small softmax heads.
    - `step`: the plain step divided by the test length, that is linear attention with its 1/L.
    - `unnormalised`: the plain step without division: it grows by test/training length.
    - `retrained`: the plain step chosen anew at the test length.
    """

    debiased: float
    step: float
    unnormalised: float
    retrained: float


def length_transfer(task: Isotropic, test_length: float) -> LengthTransfer:
    """Risks at `test_length` of the steps that are best on `task`, exact."""
    trained = Setting.of(task)
    tested = replace(trained, length=test_length)
    step = gradient_step_optimum(trained).step
    return LengthTransfer(
        debiased_risk(tested, debiased_optimum(trained).step),
        gradient_step_risk(tested, step),
        gradient_step_risk(tested, step * test_length / trained.length),
        gradient_step_optimum(tested).risk,
    )


def infinite_length_loss(
    task: Isotropic, omega: Float[ArrayLike, " H"], mu: Float[ArrayLike, " H"]
) -> float:
    """The loss of structured heads on contexts without end: σ² + (1 − Σ μ_hω_h)²."""
    omega, mu = check_softmax_heads(omega, mu)
    return float(Setting.of(task).noise + (1 - mu @ omega) ** 2)


def hermite_gain(omega: Float[ArrayLike, " H"], mu: Float[ArrayLike, " H"], degree: int) -> float:
    """Σ μ_hω_hᵏ: what heads on a long context return of a Hermite component of degree k.

    A head returns E f(z + ωq), z ~ N(0, I), that is ωᵏ times the leading monomials of the
    component. The pair (±w, ±μ) returns ηwᵏ⁻¹ of odd degrees and nothing of even ones.
    """
    omega, mu = check_softmax_heads(omega, mu)
    return float(mu @ omega ** check_whole("degree", degree, least=0))


def transfer_risk(
    task: Isotropic, step: float, components: Mapping[int, float], signal: float = 1.0
) -> float:
    """Risk of the debiased step on labels with Hermite components beside the linear one, exact.

    **Arguments:**

    - `components`: the variance V_k of the component of degree k. A component acts as label noise
      with E[f_k²|x|²] = V_k(d + 2k); a constant (k = 0) is removed by centring, and only its query
      value remains. Two components whose degrees differ by two must be uncorrelated (β, or their
      coefficients, of random sign), as they are in random functions.
    - `signal`: the variance of the linear part.
    """
    floor, slope, curvature = _transfer_form(task, components, signal)
    return floor - 2 * step * slope + step**2 * curvature


def transfer_optimum(
    task: Isotropic, components: Mapping[int, float], signal: float = 1.0
) -> BestStep:
    """The best debiased step on such labels, and its risk."""
    floor, slope, curvature = _transfer_form(task, components, signal)
    return BestStep(slope / curvature, floor - slope**2 / curvature)


def _transfer_form(
    task: Isotropic, components: Mapping[int, float], signal: float
) -> tuple[float, float, float]:
    """The risk as floor − 2η·slope + η²·curvature."""
    at = Setting.of(task, shortest=2)
    kept = (at.length - 1) / at.length
    variance = signal * (at.length + at.dim) + at.dim * at.noise
    for degree, share in components.items():
        check_whole("components", degree, least=0)
        if degree == 1 or not np.isfinite(share) or share < 0:
            raise Refusal(
                f"`components` holds {degree}: {share}: must map degrees other than 1 (the linear "
                "part is `signal`) to variances that are not negative."
            )
        if degree:
            variance += share * (at.dim + 2 * degree * kept)
    floor = at.noise + signal + sum(components.values())
    return floor, signal * kept, kept * variance / at.length
