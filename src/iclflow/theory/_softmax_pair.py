"""Two opposite heads (±w, ±μ) at finite L and d: the exact loss, and its minimum at a finite w.

With the gain η = 2μw the loss is σ² + 1 − 2ηb(w²) + η²c(w²), where b and c are smooth in w² and at
w = 0 those of debiased gradient descent. The slope in w² there is negative: the optimum sits at a
finite w*. The large-context loss has it at 0. Derived in docs/theory/softmax.md.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.polynomial import chebyshev

from ..errors import Refusal
from ._softmax_integrals import slope_moments
from ._softmax_powers import attention_powers, chi_rule
from ._softmax_setting import Isotropic, Setting
from ._softmax_steps import debiased_optimum

# The smallest slope at w = 0 that leaves three digits of w*: the slope is known to about 1e-12.
_FLAT = 1e-8


class PairForm(NamedTuple):
    """The loss of the pair, σ² + 1 − 2ηb + η²c, at one z = w²; `db`, `dc` are derivatives by z."""

    b: float
    c: float
    db: float
    dc: float

    @property
    def gain(self) -> float:
        """The best η = 2μw at this w."""
        return self.b / self.c

    @property
    def slope(self) -> float:
        """d/dz of the loss at the best η, −2ηb′ + η²c′: η itself need not be varied."""
        return self.gain * (self.gain * self.dc - 2 * self.db)


class BestPair(NamedTuple):
    """w, μ, the gain η = 2μw and the loss of the best pair of opposite heads."""

    w: float
    mu: float
    gain: float
    loss: float


def pair_loss(task: Isotropic, w: float, mu: float) -> float:
    """σ² + 1 − 2ηb(w²) + η²c(w²), the exact loss of (w, μ), (−w, −μ) at finite L and d; η = 2μw.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> round(icl.theory.pair_loss(task, w=0.2, mu=2.0), 4)
    0.2344
    >>> heads = np.array([0.2, -0.2]), np.array([2.0, -2.0])
    >>> round(icl.theory.softmax_exact_loss(task, *heads), 4)
    0.2344
    ```
    """
    at = Setting.of(task)
    form, gain = exact_pair(at, w).form(w**2), 2 * mu * w
    return at.noise + 1 - 2 * gain * form.b + gain**2 * form.c


def pair_effective_loss(task: Isotropic, w: float) -> float:
    """σ² + 1 − b²/c, the exact loss with the best μ at this w; at w = 0 that of debiased GD.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> [round(icl.theory.pair_effective_loss(task, w), 5) for w in (0.0, 0.1, 0.3)]
    [0.22162, 0.22159, 0.22527]
    >>> round(icl.theory.debiased_optimum(task).risk, 5)
    0.22162
    ```
    """
    at = Setting.of(task, shortest=2)
    form = exact_pair(at, w).form(w**2)
    return at.noise + 1 - form.b * form.gain


def pair_optimum(task: Isotropic) -> BestPair:
    """The minimum of σ² + 1 − b(w²)²/c(w²), the best pair at finite L and d; it has w > 0.

    The loss is exact to 1e-12. The minimum is flat: w has an error of 1e-6 for L up to some
    thousands, and contexts that leave fewer than three digits of it are refused. It needs L ≥ 2.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> best = icl.theory.pair_optimum(task)
    >>> round(best.w, 4), round(best.mu, 3), round(best.loss, 5)
    (0.0818, 5.515, 0.22158)
    >>> # Better than debiased gradient descent.
    >>> round(icl.theory.debiased_optimum(task).risk, 5)
    0.22162
    ```
    """
    at = Setting.of(task, shortest=2)
    if abs(pair_slope(at, debiased_optimum(at).step)) < _FLAT:
        raise Refusal(
            f"`length` = {at.length:g}: the minimum is too flat to be found in float64; its "
            "width is `leading_pair_width`, its loss that of `debiased_optimum`."
        )
    # From the known sign at 0 upward until the slope has changed: the first minimum.
    widest = leading_pair_width(at)
    while exact_pair(at, widest).form(widest**2).slope < 0:
        widest *= 1.5
    table = exact_pair(at, widest)
    found = scipy.optimize.root_scalar(
        lambda z: table.form(z).slope, bracket=(0.0, widest**2), xtol=1e-14, rtol=1e-12
    )
    form, w = table.form(found.root), float(found.root**0.5)
    return BestPair(w, form.gain / (2 * w), form.gain, at.noise + 1 - form.b * form.gain)


def pair_slope(task: Isotropic, gain: float) -> float:
    """∂L/∂w² at w = 0 and fixed η = 2μw, exact in d and L.

    −2η(d + 2)(L − 1)/L² · [η(L + d + 2 + dσ²)/L − 1]; at the best step of debiased GD it is
    −4(d + 2)(L − 1)/(L(L + d + dσ²)²) < 0.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> step = icl.theory.debiased_optimum(task).step
    >>> round(icl.theory.pair_slope(task, step), 4)
    -0.0119
    >>> w = 1e-3
    >>> rise = icl.theory.pair_loss(task, w, step / (2 * w)) - icl.theory.debiased_risk(task, step)
    >>> round(rise / w**2, 4)
    -0.0119
    ```
    """
    at = Setting.of(task)
    outer = 2 * gain * (at.dim + 2) * (at.length - 1) / at.length**2
    return outer * (1 - gain * (at.length + at.dim + 2 + at.dim * at.noise) / at.length)


def leading_pair_width(task: Isotropic) -> float:
    """w* for L ≫ d: w*² = 12/(L(d + 4)(d(1 + σ²) + 3)). The gain in loss is ∝ L⁻³: nearly flat.

    **Example:**

    ```pycon
    >>> for length in (100, 1000):
    ...     task = icl.isotropic(dim=4, context=length)
    ...     width = icl.theory.leading_pair_width(task)
    ...     print(round(width, 4), round(icl.theory.pair_optimum(task).w, 4))
    ...
    0.045 0.0473
    0.0142 0.0143
    ```
    """
    at = Setting.of(task)
    scale = at.length * (at.dim + 4) * (at.dim * (1 + at.noise) + 3)
    return (12 / scale) ** 0.5


class PairTable:
    """b and c of the pair as functions of w², from fits in the slope a = w|q|.

    The fits hold E Σp² and, divided by a², the differences G₊₊ − G₊₋ and M₊₊ − M₊₋, which would
    cancel at small w.
    """

    def __init__(self, at: Setting, steepest: float):
        radii, self.weights = chi_rule(at.dim)
        self.squares = radii**2
        self.at = at
        self.top = np.log1p(steepest**2)
        fits = _slope_fits(at.length, steepest)
        slopes = chebyshev.chebder(fits, scl=2 / self.top)
        self.fits = np.hstack([fits, np.vstack([slopes, np.zeros((1, 3))])])

    def form(self, z: float) -> PairForm:
        """b, c and their derivatives at z = w²."""
        at, squares, weights = self.at, self.squares, self.weights
        # Solvers try steps beyond the end of the table before they take smaller ones.
        angle = np.arccos(np.minimum(2 * np.log1p(z * squares) / self.top - 1, 1.0))
        basis = np.cos(np.arange(len(self.fits))[:, None] * angle)
        spread, overlap, signal, *slopes = self.fits.T @ basis
        # d/dz at fixed |q|, through log(1 + z|q|²).
        dspread, doverlap, dsignal = slopes * (squares / (1 + z * squares))
        weights = weights * squares
        return PairForm(
            float(weights @ (1 - spread) / at.dim),
            float(weights @ (signal / at.dim + at.across * overlap) / 2),
            float(-weights @ dspread / at.dim),
            float(weights @ (dsignal / at.dim + at.across * doverlap) / 2),
        )


def exact_pair(at: Setting, widest: float) -> PairTable:
    """The table for w up to `widest`."""
    steepest = max(abs(widest), 0.5 * at.dim**-0.5) * chi_rule(at.dim)[0][-1]
    # Rounded up to a power of √2, so that few tables are built.
    return PairTable(at, float(2 ** (np.ceil(2 * np.log2(1.001 * steepest)) / 2)))


@lru_cache(maxsize=64)
def _slope_fits(length: float, steepest: float) -> np.ndarray:
    """Chebyshev coefficients in log(1 + a²) of E Σp², (G₊₊ − G₊₋)/a² and (M₊₊ − M₊₋)/a²."""
    # Enough nodes for the coefficients to fall to rounding.
    count = int(np.ceil(24 + 3 * steepest))
    nodes = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    squares = np.expm1((1 + nodes) / 2 * np.log1p(steepest**2))
    rows = []
    for square in squares:
        slope = square**0.5
        powers = attention_powers(slope, length)
        opposite = slope_moments(slope, -slope, length)
        overlap = (powers.second - opposite.overlap) / square
        signal = (powers.signal(slope) - opposite.signal) / square
        rows.append((powers.second, overlap, signal))
    return chebyshev.chebfit(nodes, np.asarray(rows), count - 1)
