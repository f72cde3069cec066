"""One gradient step, plain and centred, and least squares: exact risks at every d and L.

The isotropic task of arXiv 2503.12734: x, q ~ N(0, I_d), β ~ N(0, I/d), noise σ². With
A = d + 1 + dσ² a plain step of the best size has the excess risk A/(L + A), a centred ("debiased")
one A/(L − 1 + A): **centring costs exactly one sample**.

Heads with W_h = ω_h I and μ_h see the context through s_l = x_l·q/|q| alone, and weigh labels by
some c(|q|, s). The best c, whether heads can represent it or not, is proportional to s: that bounds
the loss of structured heads. For free key-query matrices only the Bayes risk is a bound.

Softmax attention averages, so a step means the same at every context length. A small pair keeps
only the linear part of a label: the rest acts as noise that grows with |x|². Derived in
docs/theory/softmax.md.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy

from ..errors import Refusal
from ._check import PerHead, check_whole
from ._softmax_setting import Isotropic, Setting, check_softmax_heads


class BestStep(NamedTuple):
    """The step size with the smallest risk, and that risk (the noise of the query included)."""

    step: float
    risk: float


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


def gradient_step_risk(task: Isotropic, step: float) -> float:
    """Risk of ŷ = (η/L) Σ y_l x_l·q: σ² + 1 − 2η + η²(1 + A/L).

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> [round(icl.theory.gradient_step_risk(task, step), 4) for step in (0.0, 0.5, 1.0)]
    [1.1, 0.3838, 0.235]
    ```
    """
    at = Setting.of(task)
    return at.noise + 1 - 2 * step + step**2 * (1 + _label_spread(at) / at.length)


def gradient_step_optimum(task: Isotropic) -> BestStep:
    """η = L/(L + A) and the risk σ² + A/(L + A): what linear attention reaches.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> best = icl.theory.gradient_step_optimum(task)
    >>> round(best.step, 4), round(best.risk, 4)
    (0.8811, 0.2189)
    >>> # Linear attention reaches it.
    >>> round(icl.theory.optimal_loss(task), 4)
    0.2189
    ```
    """
    at = Setting.of(task)
    total = at.length + _label_spread(at)
    return BestStep(at.length / total, at.noise + _label_spread(at) / total)


def debiased_risk(task: Isotropic, step: float) -> float:
    """Risk of ŷ = (η/L) Σ y_l (x_l − x̄)·q, the predictor of a pair of heads of small ω.

    σ² + 1 − 2η(L−1)/L + η²(L−1)(L + d + dσ²)/L²  (arXiv 2503.12734).

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> [round(icl.theory.debiased_risk(task, step), 4) for step in (0.0, 0.5, 1.0)]
    [1.1, 0.3956, 0.2323]
    ```
    """
    at = Setting.of(task)
    kept = (at.length - 1) / at.length
    curvature = kept * (at.length + at.dim * (1 + at.noise)) / at.length
    return at.noise + 1 - 2 * step * kept + step**2 * curvature


def debiased_optimum(task: Isotropic) -> BestStep:
    """η = 1/(1 + (1 + σ²)d/L), exact at finite L, and the risk σ² + A/(L − 1 + A).

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> best = icl.theory.debiased_optimum(task)
    >>> round(best.step, 4), round(best.risk, 4)
    (0.9009, 0.2216)
    >>> # Centring costs exactly one sample.
    >>> round(icl.theory.gradient_step_optimum(icl.isotropic(dim=4, context=39, noise=0.1)).risk, 4)
    0.2216
    ```
    """
    at = Setting.of(task)
    step = 1 / (1 + at.spread * at.dim)
    return BestStep(step, at.noise + _label_spread(at) / (at.length - 1 + _label_spread(at)))


def least_squares_risk(task: Isotropic) -> float:
    """Risk of least squares: σ² + σ²d/(L − d − 1); needs L ≥ d + 2, below it is infinite.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> round(icl.theory.least_squares_risk(task), 4)
    0.1114
    >>> round(icl.theory.ridge_risk(task, penalty=1e-9), 4)
    0.1114
    ```
    """
    at = Setting.of(task)
    check_whole("length", at.length)
    room = at.length - at.dim - 1
    if room <= 0:
        raise Refusal(
            f"`length` = {at.length:g} and `dim` = {at.dim:g}: the risk of least squares is finite "
            "from `length` = `dim` + 2 on."
        )
    return at.noise + at.noise * at.dim / room


def any_heads_bound(task: Isotropic) -> float:
    """σ² + E[B/(χ²_L + B)], B = d − 1 + dσ²: below the loss of every set of structured heads.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> round(icl.theory.any_heads_bound(task), 4)
    0.1818
    >>> pair, head = icl.theory.pair_optimum(task), icl.theory.one_head_optimum(task)
    >>> round(pair.loss, 4), round(head.loss, 4)
    (0.2216, 0.3667)
    ```
    """
    at = Setting.of(task)
    rest = at.dim * at.across
    if rest == 0:
        return at.noise

    # 1/(χ² + B) as a Laplace integral, with E e^{−tχ²} = (1 + 2t)^{−L/2}.
    def integrand(u: float) -> float:
        return float(np.exp(-u - at.length / 2 * np.log1p(2 * u / rest)))

    # The integrand falls on the scale 1/(1 + L/B). For long contexts that is narrow: without this
    # break the quadrature over the half-line would miss it. e^−40 is below rounding.
    scale = 40 / (1 + at.length / rest)
    near, _ = scipy.integrate.quad(integrand, 0, scale, epsabs=1e-14, epsrel=1e-13, limit=200)
    far, _ = scipy.integrate.quad(integrand, scale, np.inf, epsabs=1e-14, epsrel=1e-10, limit=200)
    return at.noise + near + far


def linear_over_softmax_bound(task: Isotropic) -> float:
    """The most by which structured softmax heads can beat linear attention, as a ratio of losses.

    (risk of the best gradient step)/(risk of any heads) ≤ this at every noise and in any units,
    whether or not the noise of the query is counted: it is the ratio at σ = 0, whatever the noise
    of `task`. No structured heads on this task have a larger ratio. For d = 1 there is no bound:
    the value is infinite.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.0)
    >>> round(icl.theory.linear_over_softmax_bound(task), 4)
    1.5242
    >>> best = icl.theory.gradient_step_optimum(task).risk
    >>> round(best / icl.theory.any_heads_bound(task), 4)
    1.5242
    >>> round(best / icl.theory.pair_optimum(task).loss, 4)
    0.9781
    ```
    """
    noiseless = replace(Setting.of(task), noise=0.0)
    bound = any_heads_bound(noiseless)
    return np.inf if bound == 0 else gradient_step_optimum(noiseless).risk / bound


def length_transfer(task: Isotropic, test_length: float) -> LengthTransfer:
    """Risks at `test_length` of the steps that are best on `task`, exact: `debiased_risk` and
    `gradient_step_risk` at the new length.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> found = icl.theory.length_transfer(task, test_length=160)
    >>> round(found.debiased, 4), round(found.unnormalised, 4), round(found.retrained, 4)
    (0.1382, 6.8909, 0.1326)
    ```
    """
    trained = Setting.of(task)
    tested = replace(trained, length=test_length)
    step = gradient_step_optimum(trained).step
    return LengthTransfer(
        debiased_risk(tested, debiased_optimum(trained).step),
        gradient_step_risk(tested, step),
        gradient_step_risk(tested, step * test_length / trained.length),
        gradient_step_optimum(tested).risk,
    )


def infinite_length_loss(task: Isotropic, omega: PerHead, mu: PerHead) -> float:
    """The loss of structured heads on contexts without end: σ² + (1 − Σ μ_hω_h)².

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> omega, mu = np.array([0.2, -0.2]), np.array([1.9, -1.9])
    >>> round(icl.theory.infinite_length_loss(task, omega, mu), 4)
    0.1576
    >>> longer = icl.theory.Setting(dim=4, length=1e6, noise=0.1)
    >>> round(icl.theory.softmax_exact_loss(longer, omega, mu), 4)
    0.1576
    ```
    """
    omega, mu = check_softmax_heads(omega, mu)
    return float(Setting.of(task).noise + (1 - mu @ omega) ** 2)


def hermite_gain(omega: PerHead, mu: PerHead, degree: int) -> float:
    """Σ μ_hω_hᵏ: the part of a Hermite component of degree k that heads return on a long context.

    A head returns E f(z + ωq), z ~ N(0, I), that is ωᵏ times the leading monomials of the
    component. The pair (±w, ±μ) returns ηwᵏ⁻¹ of odd degrees and nothing of even ones.

    **Example:**

    ```pycon
    >>> omega, mu = np.array([0.21, -0.21]), np.array([2.1, -2.1])
    >>> [round(icl.theory.hermite_gain(omega, mu, degree), 5) for degree in (1, 2, 3)]
    [0.882, 0.0, 0.0389]
    ```
    """
    omega, mu = check_softmax_heads(omega, mu)
    return float(mu @ omega ** check_whole("degree", degree, least=0))


def transfer_risk(
    task: Isotropic, step: float, components: Mapping[int, float], signal: float = 1.0
) -> float:
    """Risk of the debiased step on labels with Hermite components beside the linear one, exact.

    σ² + s + Σ V_k − 2ηns + η²n[s(L + d) + dσ² + Σ_{k>0} V_k(d + 2kn)]/L, s the variance of the
    linear part, n = (L − 1)/L.

    **Arguments:**

    - `components`: the variance V_k of the component of degree k. A component acts as label noise
      with E[f_k²|x|²] = V_k(d + 2k); a constant (k = 0) is removed by centring, and only its query
      value remains. Two components whose degrees differ by two must be uncorrelated (β, or their
      coefficients, of random sign), as they are in random functions.
    - `signal`: the variance of the linear part.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> round(icl.theory.transfer_risk(task, step=0.8, components={2: 0.5}), 4)
    0.7943
    >>> # Labels without further components are those of `debiased_risk`.
    >>> round(icl.theory.transfer_risk(task, step=0.8, components={}), 4)
    0.2326
    >>> round(icl.theory.debiased_risk(task, step=0.8), 4)
    0.2326
    ```
    """
    floor, slope, curvature = _transfer_form(task, components, signal)
    return floor - 2 * step * slope + step**2 * curvature


def transfer_optimum(
    task: Isotropic, components: Mapping[int, float], signal: float = 1.0
) -> BestStep:
    """The best debiased step on the labels of `transfer_risk`: η = b/c and the risk f − b²/c of a
    risk f − 2ηb + η²c.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> best = icl.theory.transfer_optimum(task, components={2: 0.5})
    >>> round(best.step, 4), round(best.risk, 4)
    (0.8273, 0.7934)
    >>> round(icl.theory.transfer_risk(task, best.step, components={2: 0.5}), 4)
    0.7934
    >>> # On linear labels alone the best step is larger.
    >>> round(icl.theory.debiased_optimum(task).step, 4)
    0.9009
    ```
    """
    floor, slope, curvature = _transfer_form(task, components, signal)
    return BestStep(slope / curvature, floor - slope**2 / curvature)


def _label_spread(at: Setting) -> float:
    """A = d + 1 + dσ²."""
    return at.dim + 1 + at.dim * at.noise


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
