"""Layers that move the inputs too: a value block B on inputs, called GD++ in arXiv 2212.07677.

With scalar A_l = a_l I and B_l = b_l I inputs are multiplied by t_l(S) before layer l, and

    p(s) = Π_l (1 − a_l s t_l²),   t_{l+1} = t_l (1 − a_l b_l s t_l²),   t_1 = 1:

a polynomial of degree (3^L − 1)/2, with the risk of `stack_risk`. Its minima are many, and some are
bad. Derived in docs/theory/depth.md.
"""

from dataclasses import dataclass

import numpy as np
import scipy
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_numbers, check_whole
from ._spectrum import ScalarTask, Spectrum
from ._stack import Steps

# Degree (3^L − 1)/2: beyond three layers risks are averages of degree 80 and more.
_MOST_LAYERS = 3
# Minima are one if their risks agree to this share; searches end at 1e-10 of it.
_SAME = 1e-6
_MOST_ITERATIONS = 300


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
    return _risk(Spectrum.of(task), a, b)[0]


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
    options = {"gtol": 1e-9, "maxiter": _MOST_ITERATIONS}
    for _ in range(starts):
        start = rng.uniform(-1, 2, 2 * layers - 1) * scale
        result = scipy.optimize.minimize(
            _log_risk, start, args=(spectrum, layers), jac=True, options=options
        )
        risk = float(np.exp(result.fun))
        flat = np.max(np.abs(result.jac)) < 1e-6
        if flat and not any(abs(risk - other.risk) < _SAME * risk for other in found):
            a, b = _parts(result.x, layers)
            found.append(ValueBlockMinimum(a, b, risk))
    if not found:
        raise Refusal(f"`starts` = {starts}: no descent arrived; give more.")
    return tuple(sorted(found, key=lambda minimum: minimum.risk))


def _risk(spectrum: Spectrum, a: np.ndarray, b: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """R and its slopes in a and b: forwards through the layers, and back."""
    s, weights = spectrum.values, spectrum.weights
    inverse = np.divide(spectrum.cost * weights, s, out=np.zeros_like(s), where=s > 0)
    p, t, states = np.ones_like(s), np.ones_like(s), []
    for key_query, value in zip(a, b):
        seen = key_query * s * t**2
        states.append((p, t, seen))
        p, t = p * (1 - seen), t * (1 - value * seen)
    risk = float(weights @ p**2 + inverse @ (1 - p) ** 2)
    on_p, on_t = 2 * (weights * p - inverse * (1 - p)), np.zeros_like(s)
    slope_a, slope_b = np.zeros_like(a), np.zeros_like(b)
    for layer in reversed(range(len(a))):
        p, t, seen = states[layer]
        on_seen = -on_p * p - on_t * t * b[layer]
        slope_a[layer], slope_b[layer] = on_seen @ (s * t**2), -on_t @ (t * seen)
        on_p = on_p * (1 - seen)
        on_t = on_t * (1 - b[layer] * seen) + 2 * a[layer] * on_seen * s * t
    return risk, slope_a, slope_b


def _log_risk(weights: np.ndarray, spectrum: Spectrum, layers: int) -> tuple[float, np.ndarray]:
    """ln R and its slope: minima differ by powers of ten, and descents must not stop early."""
    risk, slope_a, slope_b = _risk(spectrum, *_parts(weights, layers))
    return float(np.log(risk)), np.concatenate([slope_a, slope_b[:-1]]) / risk


def _parts(weights: np.ndarray, layers: int) -> tuple[np.ndarray, np.ndarray]:
    """a and b; the last b, which does nothing, is zero."""
    return weights[:layers], np.append(weights[layers:], 0.0)
