"""Layers that move the inputs too: a value block B on inputs, called GD++ in arXiv 2212.07677.

With scalar A_l = a_l I and B_l = b_l I inputs are multiplied by t_l(S) before layer l, and

    p(s) = Π_l (1 − a_l s t_l²),   t_{l+1} = t_l (1 − a_l b_l s t_l²),   t_1 = 1:

a polynomial of degree (3^L − 1)/2, with the risk of `stack_risk`. Its minima are many, and some are
bad. Derived in docs/theory/depth.md.
"""

from dataclasses import dataclass

import numpy as np
import scipy.optimize
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_numbers, check_whole
from ._spectrum import ScalarTask, Spectrum
from ._stack import Steps

# Degree (3^L − 1)/2: beyond three layers risks are averages of degree 80 and more.
_MOST_LAYERS = 3
# Minima are one if their risks agree to this share; searches end at 1e-10 of it.
_SAME = 1e-6
_COMPLEX_STEP = 1e-30


@dataclass(frozen=True, eq=False)
class ValueBlockMinimum:
    """A minimum of the risk of scalar layers with value blocks.

    - `key_query`, `value`: a_l and b_l; the last b does nothing.
    - `risk`: R there.
    """

    key_query: Float[np.ndarray, " L"]
    value: Float[np.ndarray, " L"]
    risk: float


def value_block_risk(task: ScalarTask, key_query: Steps, value: Steps) -> float:
    """R of layers with key-query a_lI and value blocks b_lI on inputs; b = 0 is `stack_risk`.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> round(icl.theory.depth.value_block_risk(task, [0.5, 1.2], [0, 0]), 9)
    0.073

    ```
    """
    a, b = check_numbers("key_query", key_query), check_numbers("value", value)
    if a.ndim != 1 or a.shape != b.shape:
        raise Refusal(
            f"`key_query` has shape {a.shape} and `value` {b.shape}: must be one number per layer."
        )
    return float(_risk(Spectrum.of(task), a, b))


def value_block_minima(
    task: ScalarTask, layers: int, starts: int = 60, seed: int = 0
) -> tuple[ValueBlockMinimum, ...]:
    """The minima that descents from random weights end in, the best first.

    Other starts may find more, and full matrices do better for three layers.

    **Arguments:**

    - `layers`: at most 3.
    - `starts`: how many descents.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> found = icl.theory.depth.value_block_minima(task, 2, starts=20)
    >>> round(5 * found[0].risk, 6)
    0.057501

    ```
    """
    spectrum, starts = Spectrum.of(task), check_whole("starts", starts)
    layers = check_whole("layers", layers, 1, _MOST_LAYERS)
    rng, found = np.random.default_rng(check_whole("seed", seed, 0)), []
    scale = 1 / float(spectrum.mean(spectrum.values))
    for _ in range(starts):
        start = rng.uniform(-1, 2, 2 * layers - 1) * scale
        result = scipy.optimize.minimize(
            _log_risk, start, args=(spectrum, layers), jac=_log_slope, options={"gtol": 1e-9}
        )
        risk = float(np.exp(result.fun))
        flat = np.max(np.abs(result.jac)) < 1e-6
        if flat and not any(abs(risk - other.risk) < _SAME * risk for other in found):
            a, b = _parts(result.x, layers)
            found.append(ValueBlockMinimum(a, b, risk))
    if not found:
        raise Refusal(f"`starts` = {starts}: no descent arrived; give more.")
    return tuple(sorted(found, key=lambda minimum: minimum.risk))


def _risk(spectrum: Spectrum, a: np.ndarray, b: np.ndarray):
    s = spectrum.values
    p, t = np.ones_like(s, dtype=a.dtype), np.ones_like(s, dtype=a.dtype)
    for key_query, value in zip(a, b):
        seen = key_query * s * t**2
        p, t = p * (1 - seen), t * (1 - value * seen)
    return spectrum.mean(p**2) + spectrum.cost * spectrum.over((1 - p) ** 2)


def _parts(weights: np.ndarray, layers: int) -> tuple[np.ndarray, np.ndarray]:
    """a and b; the last b, which does nothing, is zero."""
    return weights[:layers], np.append(weights[layers:], 0.0)


def _log_risk(weights: np.ndarray, spectrum: Spectrum, layers: int) -> float:
    # The logarithm: minima differ by powers of ten, and descents must not stop early.
    return float(np.log(_risk(spectrum, *_parts(weights, layers))))


def _log_slope(weights: np.ndarray, spectrum: Spectrum, layers: int) -> np.ndarray:
    """By a complex step, which is exact for polynomials up to rounding."""
    slope, value = np.empty(len(weights)), 1.0
    for place in range(len(weights)):
        moved = weights.astype(complex)
        moved[place] += _COMPLEX_STEP * 1j
        found = _risk(spectrum, *_parts(moved, layers))
        slope[place], value = found.imag / _COMPLEX_STEP, found.real
    return slope / value
