"""Scaling laws of stacks on power laws, λ_k ~ k^−ν and λ_kω_k ~ k^−(νβ+1): exponents and ranges.

Each law has the exponent that arXiv 2510.01098 prints and the one that its own sums give; where
both agree they are equal. The losses themselves are here too: in time at infinite context, and with
a width or a context alone. Derived in docs/theory/depth.md.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_number, check_numbers, check_positive, check_times, check_whole
from .._integrate import integrate
from ._search import find_root
from ._spectrum import Spectrum
from ._stack import Steps, TimesLike


class ScalingLaw(NamedTuple):
    """A law loss ~ x^−exponent.

    - `printed`: the exponent that the paper states; None where it states none.
    - `exponent`: the right one.
    - `holds`: where, in words.
    """

    printed: float | None
    exponent: float
    holds: str


def time_law(nu: float, beta: float) -> ScalingLaw:
    """Result 4, loss ~ t^−exponent at infinite context with one matrix Γ_l for a fixed covariance.

    Direction k is learned at t ~ 1/(ω_kλ_k³) ~ k^{2ν+νβ+1}, and what is left beyond k is k^−νβ.

    ```pycon
    >>> law = icl.theory.depth.time_law(1.5, 1.0)
    >>> law.printed, round(law.exponent, 4)
    (0.25, 0.2727)

    ```
    """
    nu, beta = _check(nu, beta)
    return ScalingLaw(
        beta / (nu + nu * beta + 1),
        nu * beta / (2 * nu + nu * beta + 1),
        "every depth, between the times of the first and of the last direction",
    )


def rotated_time_law(beta: float, degree: int = 1) -> ScalingLaw:
    """Result 8, loss ~ t^−exponent of deep loops on covariances rotated in every context.

    γ = w^n of a product of n weights: nβ/(nβ + 2). Γ itself is n = 1, merged layers are 2, separate
    ones 3, and the five factors of Result 9 are 5.

    ```pycon
    >>> [round(icl.theory.depth.rotated_time_law(1.0, n).exponent, 4) for n in (1, 2, 3, 5)]
    [0.3333, 0.5, 0.6, 0.7143]

    ```
    """
    beta, degree = check_positive("beta", beta), check_whole("degree", degree)
    exponent = degree * beta / (degree * beta + 2)
    printed = {1: beta / (2 + beta), 5: exponent}.get(degree)
    return ScalingLaw(printed, exponent, "as long as the loss is far above its end at this depth")


def depth_law(nu: float, beta: float, tied: bool) -> ScalingLaw:
    """Result 8, loss ~ L^−exponent at the optimum: β for a loop, (2 + ν)β for untied layers.

    The paper has β for both. That of untied layers is proved as an upper bound on the loss; finite
    contexts and finite learning rates do not reach it beyond four layers or so.

    ```pycon
    >>> icl.theory.depth.depth_law(1.5, 1.0, tied=False).exponent
    3.5

    ```
    """
    nu, beta = _check(nu, beta)
    where = "infinite context, exact minimum" + ("" if tied else ", steps on single eigenvalues")
    return ScalingLaw(beta, beta if tied else (2 + nu) * beta, where)


def width_law(nu: float, beta: float) -> ScalingLaw:
    """Result 8, loss ~ width^−exponent: ν·min(β, 1); the paper prints νβ.

    ```pycon
    >>> law = icl.theory.depth.width_law(1.5, 1.5)
    >>> law.printed, law.exponent
    (2.25, 1.5)

    ```
    """
    nu, beta = _check(nu, beta)
    return ScalingLaw(nu * beta, nu * min(beta, 1), "1 ≪ width ≪ dimension; printed: β < 1")


def context_law(nu: float, beta: float) -> ScalingLaw:
    """Result 8, loss ~ context^−exponent: ν·min(β, 2); the paper prints νβ.

    ```pycon
    >>> law = icl.theory.depth.context_law(1.5, 3.0)
    >>> law.printed, law.exponent
    (4.5, 3.0)

    ```
    """
    nu, beta = _check(nu, beta)
    return ScalingLaw(nu * beta, nu * min(beta, 2), "1 ≪ context ≪ dimension; printed: β < 2")


def shape_law(nu: float, beta: float, tied: bool) -> ScalingLaw:
    """Result 8, the depth that balances a width: L ~ width^exponent, printed as ν.

    Where width costs width^{−ν min(β, 1)} and depth L^{−β} (a loop) or L^{−(2+ν)β} (untied).

    ```pycon
    >>> icl.theory.depth.shape_law(1.5, 0.5, tied=True).exponent
    1.5

    ```
    """
    exponent = width_law(nu, beta).exponent / depth_law(nu, beta, tied).exponent
    return ScalingLaw(nu, exponent, "printed: loops with β < 1")


def power_law_loss(
    nu: float, beta: float, layers: int, times: TimesLike, modes: int = 10**6
) -> Float[np.ndarray, " T"]:
    """Σ_k λ_kω_k Y_k²(t) of untied flow from Γ = 0 at infinite context, with Σ λ_kω_k = 1.

    Y_k² = [1 + (2L − 2)ω_kλ_k³t]^{−L/(L−1)}, e^{−2ω_kλ_k³t} for one layer.

    ```pycon
    >>> times = 10.0 ** np.arange(6, 17)
    >>> losses = icl.theory.depth.power_law_loss(1.5, 1.0, 2, times, 10**9)
    >>> round(icl.theory.depth.fitted_exponent(times, losses), 3)  # `time_law`: 0.273
    0.273

    ```
    """
    spectrum, layers = Spectrum.power_law(nu, beta, modes), check_whole("layers", layers)
    # ω_kλ_k³ = λ_kω_k·λ_k²; a bin has the weight of several modes, the first of one.
    single = spectrum.weights[0] * spectrum.values ** (beta + 1 / nu)
    clock = np.outer(check_times(times), single * spectrum.values**2)
    if layers == 1:
        return np.exp(-2 * clock) @ spectrum.weights
    kept = (1 + (2 * layers - 2) * clock) ** (-layers / (layers - 1))
    return kept @ spectrum.weights


def deep_loop_loss(
    spectrum: Spectrum, times: TimesLike, degree: int = 1
) -> Float[np.ndarray, " T"]:
    """The loss E e^{−2as} of infinitely deep loops, with total step a = Lγ from 0.1 at t = 0.

    ȧ = n²a^{2−2/n} E[s e^{−2as}] for a = w^n, the flow of w along −½ ∂E e^{−2as}/∂w.

    **Arguments:**

    - `degree`: n.

    ```pycon
    >>> spectrum = icl.theory.depth.Spectrum.power_law(1.5, 1.0, 10**9)
    >>> times = 10.0 ** np.arange(4, 11)
    >>> losses = icl.theory.depth.deep_loop_loss(spectrum, times)
    >>> round(icl.theory.depth.fitted_exponent(times, losses), 3)  # `rotated_time_law`: 1/3
    0.334

    ```
    """
    times, degree = check_times(times), check_whole("degree", degree)
    s, weights = spectrum.values, spectrum.weights
    power = 2 - 2 / degree

    def velocity(log_time: float, log_step: np.ndarray) -> np.ndarray:
        # In logarithms: powers of ten of time, and of steps.
        drive = (s * np.exp(-2 * np.exp(log_step[0]) * s)) @ weights
        return np.array([np.exp(log_time + (power - 1) * log_step[0]) * degree**2 * drive])

    if not times[0] > 0:
        raise Refusal("`times` must be positive here: the flow is followed in their logarithm.")
    begin = np.log(1e-3 * min(times[0], 1.0))
    clock = np.log(times) - begin
    flow = lambda since, now: velocity(since + begin, now)
    found = integrate(
        "A deep loop", flow, np.log([0.1]), clock[-1], t_eval=clock, rtol=1e-9, atol=1e-10
    )
    return np.exp(-2 * np.exp(found.y[0])[:, None] * s) @ weights


def width_loss(spectrum: Spectrum, width: float) -> float:
    """Σ λω κ/(κ + λ) with Σ λ/(λ + κ) = width: what a random projection to this width leaves.

    The standard equivalent for wide projections of a spectrum of single modes.

    ```pycon
    >>> k = np.arange(1, 101.0)
    >>> spectrum = icl.theory.depth.Spectrum(k**-1.5, k**-2.5 / np.sum(k**-2.5))
    >>> round(icl.theory.depth.width_loss(spectrum, 10), 5)
    0.13606

    ```
    """
    ridge = _ridge(spectrum, "width", width)
    return float(spectrum.mean(ridge / (ridge + spectrum.values)))


def context_loss(spectrum: Spectrum, context: float) -> float:
    """κ²Σ λω/(λ + κ)²/(1 − (1/N)Σ λ²/(λ + κ)²), Σ λ/(λ + κ) = N: interpolation of N samples.

    What infinitely many steps on a context of N pairs without noise leave, N below the number of
    modes.

    ```pycon
    >>> k = np.arange(1, 101.0)
    >>> spectrum = icl.theory.depth.Spectrum(k**-1.5, k**-2.5 / np.sum(k**-2.5))
    >>> round(icl.theory.depth.context_loss(spectrum, 10), 5)
    0.06237

    ```
    """
    ridge = _ridge(spectrum, "context", context)
    s = spectrum.values
    overlap = np.sum((s / (s + ridge)) ** 2) / context
    return float(spectrum.mean((ridge / (ridge + s)) ** 2) / (1 - overlap))


def fitted_exponent(x: Steps, losses: Steps) -> float:
    """−slope of ln loss over ln x, by least squares.

    ```pycon
    >>> x = np.array([1.0, 2.0, 4.0])
    >>> round(icl.theory.depth.fitted_exponent(x, x**-1.5), 6)
    1.5

    ```
    """
    x, losses = check_numbers("x", x, 1), check_numbers("losses", losses, 1)
    if x.shape != losses.shape or len(x) < 2 or np.any(x <= 0) or np.any(losses <= 0):
        raise Refusal("`x` and `losses` must be as many positive numbers, two or more.")
    return -float(np.polynomial.polynomial.polyfit(np.log(x), np.log(losses), 1)[1])


def _ridge(spectrum: Spectrum, name: str, count: float) -> float:
    """κ with Σ_k λ_k/(λ_k + κ) = `count`, one mode for each value of the spectrum."""
    s = spectrum.values
    count = check_number(name, count, f"above 0 and below {len(s)}", lambda x: 0 < x < len(s))
    missing = lambda log_ridge: np.sum(s / (s + np.exp(log_ridge))) - count
    low, high = np.log(s.min()) - 40, np.log(s.max() * len(s) / count) + 1
    return float(np.exp(find_root(missing, low, high)))


def _check(nu: float, beta: float) -> tuple[float, float]:
    return check_positive("nu", nu), check_positive("beta", beta)
