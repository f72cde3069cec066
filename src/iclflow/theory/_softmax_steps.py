"""One gradient step, plain and centred, and least squares: exact risks at every d and L.

The isotropic task of arXiv 2503.12734: x, q ~ N(0, I_d), β ~ N(0, I/d), noise σ². With
A = d + 1 + dσ² a plain step of the best size has the excess risk A/(L + A), a centred ("debiased")
one A/(L − 1 + A): **centring costs exactly one sample**. Derived in docs/theory/softmax.md.
"""

from typing import NamedTuple

from ..errors import Refusal
from ._check import check_whole
from ._softmax_setting import Isotropic, Setting


class BestStep(NamedTuple):
    """The step size with the smallest risk, and that risk (the noise of the query included)."""

    step: float
    risk: float


def gradient_step_risk(task: Isotropic, step: float) -> float:
    """Risk of ŷ = (η/L) Σ y_l x_l·q: σ² + 1 − 2η + η²(1 + A/L)."""
    at = Setting.of(task)
    return at.noise + 1 - 2 * step + step**2 * (1 + _label_spread(at) / at.length)


def gradient_step_optimum(task: Isotropic) -> BestStep:
    """η = L/(L + A) and the risk σ² + A/(L + A): what linear attention reaches."""
    at = Setting.of(task)
    total = at.length + _label_spread(at)
    return BestStep(at.length / total, at.noise + _label_spread(at) / total)


def debiased_risk(task: Isotropic, step: float) -> float:
    """Risk of ŷ = (η/L) Σ y_l (x_l − x̄)·q, the predictor of a pair of heads of small ω.

    σ² + 1 − 2η(L−1)/L + η²(L−1)(L + d + dσ²)/L²  (arXiv 2503.12734).
    """
    at = Setting.of(task)
    kept = (at.length - 1) / at.length
    curvature = kept * (at.length + at.dim * (1 + at.noise)) / at.length
    return at.noise + 1 - 2 * step * kept + step**2 * curvature


def debiased_optimum(task: Isotropic) -> BestStep:
    """η = 1/(1 + (1 + σ²)d/L), exact at finite L, and the risk σ² + A/(L − 1 + A)."""
    at = Setting.of(task)
    step = 1 / (1 + at.spread * at.dim)
    return BestStep(step, at.noise + _label_spread(at) / (at.length - 1 + _label_spread(at)))


def least_squares_risk(task: Isotropic) -> float:
    """Risk of least squares: σ² + σ²d/(L − d − 1); needs L ≥ d + 2, below it is infinite."""
    at = Setting.of(task)
    check_whole("length", at.length)
    room = at.length - at.dim - 1
    if room <= 0:
        raise Refusal(
            f"`length` = {at.length:g} and `dim` = {at.dim:g}: the risk of least squares is finite "
            "from `length` = `dim` + 2 on."
        )
    return at.noise + at.noise * at.dim / room


def _label_spread(at: Setting) -> float:
    """A = d + 1 + dσ²."""
    return at.dim + 1 + at.dim * at.noise
