"""The risk of L scalar layers, its force and its Hessian, for any spectral measure.

With p = Π(1 − γ_ls), p_l = Π_{j≠l}(1 − γ_js), p_lk likewise, and G = (s + c)p − c,

    R = E[p² + c(1 − p)²/s],   −½∂_lR = E[G p_l],
    ½∂_l∂_kR = E[s(s + c)p_lp_k] + (1 − δ_lk) E[s G p_lk]

(arXiv 2510.01098 has the first at c = 0 in its limit). Derived in docs/theory/depth.md.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import ArrayLike, Float, Real

from ...errors import Refusal
from .._check import Times, check_numbers
from ._spectrum import ScalarTask, Spectrum

Steps = Sequence[float] | Real[ArrayLike, " L"]
TimesLike = Sequence[float] | Times


def stack_risk(task: ScalarTask, steps: Steps) -> float:
    """R(γ) = E[p² + c(1 − p)²/s], the excess loss of L layers Γ_l = γ_lI over that of none.

    **Arguments:**

    - `steps`: γ_l, in the order of the layers, which does not matter.

    Rounding leaves about 1e-16 of the risk of no layer; `rational_optimum` has risks below that.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> round(icl.theory.depth.stack_risk(task, [0.5, 1.2]), 9)
    0.073

    ```
    """
    spectrum = Spectrum.of(task)
    p = residual(spectrum, check_steps(steps))
    return float(spectrum.mean(p**2) + spectrum.cost * spectrum.over((1 - p) ** 2))


def stack_loss(task: ScalarTask, steps: Steps) -> float:
    """The expected squared error of L layers Γ_l = γ_lI: σ_q² + P·R(γ), P = E(w·x)².

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> round(icl.theory.depth.stack_loss(task, [0.5, 1.2]), 9)
    0.365

    ```
    """
    spectrum = Spectrum.of(task)
    return spectrum.query_noise + spectrum.power * stack_risk(spectrum, steps)


def stack_force(task: ScalarTask, steps: Steps) -> Float[np.ndarray, " L"]:
    """F_l = −½ ∂R/∂γ_l = E[G p_l]; the flow Γ̇_l = −½ ∂L/∂Γ_l is γ̇_l = `speed`·F_l.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> icl.theory.depth.stack_force(task, [0.0, 0.0]).round(9)
    array([1., 1.])

    ```
    """
    spectrum, steps = Spectrum.of(task), check_steps(steps)
    p = residual(spectrum, steps)
    drive = (spectrum.values + spectrum.cost) * p - spectrum.cost
    return spectrum.mean(drive * without_one(spectrum, steps))


def stack_hessian(task: ScalarTask, steps: Steps) -> Float[np.ndarray, "L L"]:
    """½ ∂²R/∂γ_l∂γ_k: at a minimum its eigenvalues are the rates of the flow, over `speed`.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> best = icl.theory.depth.optimal_stack(task, 2).steps
    >>> icl.theory.depth.stack_hessian(task, best).round(4)  # diagonal at the optimum
    array([[1.7261, 0.    ],
           [0.    , 0.1552]])

    ```
    """
    spectrum, steps = Spectrum.of(task), check_steps(steps)
    s, factors = spectrum.values, 1 - steps[:, None] * spectrum.values
    drive = (s + spectrum.cost) * residual(spectrum, steps) - spectrum.cost
    left = without_one(spectrum, steps)
    found = (left * (spectrum.weights * s * (s + spectrum.cost))) @ left.T
    weight, (before, after) = spectrum.weights * s * drive, _around(factors)
    for first in range(len(steps) - 1):
        # p_lk is what lies before, between and after the two layers.
        between = np.cumprod(
            np.concatenate([before[first : first + 1], factors[first + 1 : -1]]), 0
        )
        extra = (between * after[first + 1 :]) @ weight
        found[first, first + 1 :] += extra
        found[first + 1 :, first] += extra
    return found


def residual(spectrum: Spectrum, steps: np.ndarray) -> np.ndarray:
    """p(s) = Π(1 − γ_l s) at the nodes of a spectrum."""
    return np.prod(1 - steps[:, None] * spectrum.values, axis=0)


def without_one(spectrum: Spectrum, steps: np.ndarray) -> np.ndarray:
    """p_l(s) = Π_{j≠l}(1 − γ_j s), one row for each layer."""
    before, after = _around(1 - steps[:, None] * spectrum.values)
    return before * after


def _around(factors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The products of all rows before each, and of all behind it."""
    ones = np.ones_like(factors[:1])
    before = np.concatenate([ones, np.cumprod(factors[:-1], axis=0)])
    behind = np.concatenate([ones, np.cumprod(factors[:0:-1], axis=0)])
    return before, behind[::-1]


def check_steps(steps: Steps) -> np.ndarray:
    """γ of one layer or more, finite numbers."""
    found = check_numbers("steps", steps)
    if found.ndim != 1:
        raise Refusal(f"`steps` has shape {found.shape}: must be one number per layer.")
    return found
