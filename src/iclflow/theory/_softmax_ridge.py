"""Ridge regression and Bayes: traces of the resolvent of a Wishart matrix, and proportional limits.

The risk of ridge regression on an isotropic task needs T_k = E tr(XXᵀ + ρI)⁻ᵏ alone, an average
over single eigenvalues. Their joint density |Π(x_i − x_j)| Π x_i^{(m−1)/2} e^{−x_i/2}, m = |L − d|,
is integrated by de Bruijn's formula: averages of products are Pfaffians, and the logarithmic
derivative of a Pfaffian is the density of one eigenvalue.

As d, L → ∞ with d/L → γ, the large-context loss is exact, plain and centred steps agree, and no
number of structured heads does better than one step. Derived in docs/theory/softmax.md.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ..errors import Refusal
from ._check import check_positive, check_whole
from ._softmax_setting import Isotropic, Setting
from ._softmax_steps import debiased_optimum

# Gauss–Legendre nodes per panel: exact to rounding for functions that turn a few times in it.
_NODES = 16
# The nodes reach this far beyond √d + √L, where the density of √x ends: e^−(9²/2) < 1e-17.
_MARGIN = 9


class WishartSpectrum(NamedTuple):
    """A rule for E Σ g(x_i) over the eigenvalues of XXᵀ, X being d × L with entries N(0, 1).

    E Σ g = `weights`·g(`values`) + `zeros`·g(0): the min(d, L) eigenvalues that are not zero have a
    density, and `zeros` = max(d − L, 0) are zero. The nodes crowd at 0, so that g may vary on any
    scale down to 1e-14.
    """

    values: Float[np.ndarray, " Q"]
    weights: Float[np.ndarray, " Q"]
    zeros: int


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


@lru_cache(maxsize=256)
def wishart_spectrum(dim: int, length: int) -> WishartSpectrum:
    """The density of the eigenvalues of XXᵀ at finite d and L, as a rule (de Bruijn's formula).

    **Example:**

    ```pycon
    >>> spectrum = icl.theory.wishart_spectrum(dim=4, length=10)
    >>> # E tr XXᵀ = dL, and E tr(XXᵀ)⁻¹ = d/(L − d − 1).
    >>> round(float(spectrum.weights @ spectrum.values), 6)
    40.0
    >>> round(float(spectrum.weights @ (1 / spectrum.values)), 6)
    0.8
    ```
    """
    dim, length = check_whole("dim", dim), check_whole("length", length)
    size, power = min(dim, length), abs(length - dim)
    nodes, weights, running = _panels(np.sqrt(dim) + np.sqrt(length) + _MARGIN)
    phi = _laguerre_functions(size, power, nodes)
    # ψ_k(y) = ∫ sgn(y′ − y) φ_k(y′) dy′, with the integral up to y panel by panel.
    totals = phi @ weights
    psi = totals[:, None] - 2 * running(phi)
    skew = (phi * weights) @ psi.T
    skew = (skew - skew.T) / 2
    if size % 2:  # a Pfaffian needs an even size: the extra function pairs with integrals
        skew = np.block([[skew, totals[:, None]], [-totals[None, :], np.zeros((1, 1))]])
        psi = np.vstack([psi, np.ones_like(nodes)])
        phi = np.vstack([phi, np.zeros_like(nodes)])
    density = np.sum(phi * np.linalg.solve(skew.T, psi), axis=0)
    return WishartSpectrum(nodes**2, weights * density, max(dim - length, 0))


def resolvent_traces(dim: int, length: int, penalty: float) -> tuple[float, float]:
    """T₁ = E tr(XXᵀ + ρI)⁻¹ and T₂ = E tr(XXᵀ + ρI)⁻² for X of d rows and L columns, ρ > 0.

    **Example:**

    ```pycon
    >>> first, second = icl.theory.resolvent_traces(dim=4, length=10, penalty=0.5)
    >>> round(first, 4), round(second, 4)
    (0.6649, 0.1982)
    >>> X = np.random.default_rng(0).normal(size=(20_000, 4, 10))
    >>> values = np.linalg.eigvalsh(X @ X.swapaxes(1, 2))
    >>> round(float(np.mean(np.sum(1 / (values + 0.5), 1))), 3)
    0.664
    ```
    """
    penalty = check_positive("penalty", penalty)
    spectrum = wishart_spectrum(dim, length)
    inverse = 1 / (spectrum.values + penalty)
    first = spectrum.weights @ inverse + spectrum.zeros / penalty
    second = spectrum.weights @ inverse**2 + spectrum.zeros / penalty**2
    return float(first), float(second)


def ridge_risk(task: Isotropic, penalty: float) -> float:
    """Risk of the minimiser of Σ(y_l − w·x_l)² + ρ|w|²: σ² + ρ²T₂/d + σ²(T₁ − ρT₂).

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=10, noise=0.1)
    >>> [round(icl.theory.ridge_risk(task, penalty), 4) for penalty in (0.1, 0.4, 1.6)]
    [0.174, 0.1686, 0.1979]
    >>> round(icl.theory.bayes_risk_isotropic(task), 4)
    0.1686
    ```
    """
    at = Setting.of(task)
    first, second = _traces(at, penalty)
    return at.noise + penalty**2 * second / at.dim + at.noise * (first - penalty * second)


def bayes_risk_isotropic(task: Isotropic) -> float:
    """The smallest risk of any predictor: ridge with ρ = dσ², σ² + σ²E tr(XXᵀ + dσ²I)⁻¹.

    Without noise the part of β outside the span of the context is all that is left: (1 − L/d)₊.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=10, noise=0.1)
    >>> round(icl.theory.bayes_risk_isotropic(task), 4)
    0.1686
    >>> # No penalty does better than dσ².
    >>> round(icl.theory.ridge_risk(task, penalty=4 * 0.1), 4)
    0.1686
    ```
    """
    at = Setting.of(task)
    if at.noise == 0:
        return max(1 - at.length / at.dim, 0.0)
    first, _ = _traces(at, at.dim * at.noise)
    return at.noise + at.noise * first


def proportional_risks(ratio: float, noise: float) -> ProportionalRisks:
    """σ² + c/(1 + c) of one step, c = (1 + σ²)γ, and of one head, c = e(1 + σ²)γ; and Bayes.

    γ = `ratio`; Bayes is `ridge_risk_limit` with the penalty γσ².

    **Example:**

    ```pycon
    >>> risks = icl.theory.proportional_risks(ratio=0.1, noise=0.1)
    >>> round(risks.step, 4), round(risks.one_head, 4), round(risks.bayes, 4)
    (0.1991, 0.3302, 0.111)
    >>> task = icl.theory.Setting(dim=200, length=2000, noise=0.1)
    >>> round(icl.theory.gradient_step_optimum(task).risk, 4)
    0.1995
    ```
    """
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

    **Example:**

    ```pycon
    >>> round(icl.theory.ridge_risk_limit(penalty=0.05, ratio=0.4, noise=0.1), 4)
    0.1605
    >>> task = icl.isotropic(dim=80, context=200, noise=0.1)
    >>> round(icl.theory.ridge_risk(task, penalty=0.05 * 200), 4)
    0.1609
    ```
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

    **Example:**

    ```pycon
    >>> for length in (40, 1000):
    ...     task = icl.isotropic(dim=4, context=length, noise=0.1)
    ...     print(round(icl.theory.excess_over_bayes(task), 3))
    ...
    10.781
    13.379
    >>> # 1 + 1/σ² + 1/(dσ²) for long contexts.
    >>> 1 + 1 / 0.1 + 1 / (4 * 0.1)
    13.5
    ```
    """
    at = Setting.of(task)
    if not at.noise > 0:
        raise Refusal(f"`noise` = {at.noise:g}: must be positive; without noise Bayes is exact.")
    best = debiased_optimum(at).risk
    return (best - at.noise) / (bayes_risk_isotropic(at) - at.noise)


def _traces(at: Setting, penalty: float) -> tuple[float, float]:
    length = check_whole("length", at.length)
    return resolvent_traces(check_whole("dim", at.dim), length, penalty)


def _laguerre_functions(count: int, power: int, y: np.ndarray) -> np.ndarray:
    """y^m e^{−y²/2} L_j^{(m)}(y²), j < `count`, of unit length in d(y²), by the recurrence."""
    x = y**2
    rows = np.empty((count, len(y)))
    rows[0] = np.exp(power * np.log(y) - x / 2 - scipy.special.gammaln(power + 1) / 2)
    before, off = np.zeros_like(y), 0.0
    for j in range(count - 1):
        following = np.sqrt((j + 1) * (j + 1 + power))
        new = ((2 * j + 1 + power - x) * rows[j] - off * before) / following
        before, off, rows[j + 1] = rows[j], following, new
    return rows


def _panels(end: float):
    """Gauss–Legendre panels on (0, `end`): nodes, weights, and the integral from 0 to each node."""
    fine = 2.0 ** np.arange(-23, 0)
    edges = np.concatenate([[0.0], fine, np.linspace(1, end, int(np.ceil(2 * (end - 1))) + 1)])
    unit, weight = scipy.special.roots_legendre(_NODES)
    half = np.diff(edges) / 2
    nodes = (edges[:-1, None] + half[:, None] * (1 + unit)).ravel()
    weights = (half[:, None] * weight).ravel()
    # Integrals of the interpolating polynomial from −1 to the nodes of one panel.
    legendre = np.polynomial.legendre
    powers = legendre.legvander(unit, _NODES - 1)
    integrals = legendre.legval(unit, legendre.legint(np.eye(_NODES), lbnd=-1)).T
    inside = integrals @ np.linalg.inv(powers)

    def running(functions: np.ndarray) -> np.ndarray:
        pieces = functions.reshape(len(functions), len(half), _NODES)
        local = np.einsum("jpn,mn->jpm", pieces, inside) * half[:, None]
        whole = np.einsum("jpn,n->jp", pieces, weight) * half
        start = np.cumsum(whole, axis=1) - whole
        return (local + start[:, :, None]).reshape(functions.shape)

    return nodes, weights, running
