"""Exponential and saturation: how concentrated attention is over scores of a given deviation.

Scores with the standard deviation a, a² = ⟨h, h⟩, give E|p|² = e^{a²}/L while a² is well below
½ log L, and single points win from a = √(2 log L) on. Derived in docs/theory/multitask.md.
"""

from typing import Literal, NamedTuple

import numpy as np
import scipy.optimize

from ...errors import Refusal
from .._softmax_powers import STEEPEST, attention_powers

AttentionRegime = Literal["exponential", "crossover", "saturated"]


class RegimeEdges(NamedTuple):
    """Standard deviations of scores at which attention changes its nature.

    - `exponential`: √(½ log L), well below which E|p|² is about e^{a²}/L; at it E|p|² is 0.63 of
      that for L = 100, 0.71 for 10⁴ and 0.80 for 10⁶.
    - `saturated`: √(2 log L), from which a few points hold all weight.
    """

    exponential: float
    saturated: float


def regime_edges(length: float) -> RegimeEdges:
    """The two thresholds for contexts of a given length."""
    log = np.log(_check_length(length))
    return RegimeEdges(float(np.sqrt(log / 2)), float(np.sqrt(2 * log)))


def attention_regime(deviation: float, length: float) -> AttentionRegime:
    """The regime of scores with a given standard deviation."""
    edges = regime_edges(length)
    if _check_deviation(deviation) <= edges.exponential:
        return "exponential"
    return "saturated" if deviation > edges.saturated else "crossover"


def concentration(deviation: float, length: float) -> float:
    """E|p|², exact: 1/L for attention to all points alike, 1 for attention to one."""
    deviation, length = _check_deviation(deviation), _check_length(length)
    return attention_powers(deviation, length).second


def exponential_concentration(deviation: float, length: float) -> float:
    """E|p|² to first order in 1/L: (q/L)[1 + (3(q − 1) − 2(q² − 1))/L], q = e^{a²}."""
    if _check_deviation(deviation) > 18:
        raise Refusal(f"`deviation` = {deviation}: must be at most 18; e^{{2a²}} is too large.")
    q = np.exp(deviation**2)
    correction = (3 * (q - 1) - 2 * (q**2 - 1)) / _check_length(length)
    return float(q / length * (1 + correction))


def frozen_concentration(deviation: float, length: float) -> float:
    """The limit of E|p|² for L → ∞ at a fixed a/√(2 log L): 1 − √(2 log L)/a beyond 1, and 0 below.

    That is the random energy model. It is a guide only: at L = 100 and a = 6 the exact value is
    0.595, and this one 0.494.
    """
    edge = regime_edges(length).saturated
    return max(1 - edge / deviation, 0.0) if _check_deviation(deviation) > 0 else 0.0


def expansion_reach(length: float, error: float) -> float:
    """The deviation at which `exponential_concentration` is off by a given relative error, exactly.

    Up to there it is better than that.
    """
    if not 1e-10 < error < 1:
        raise Refusal(f"`error` = {error}: must be between 1e-10 and 1.")

    def excess(deviation: float) -> float:
        exact = concentration(deviation, length)
        return abs(exponential_concentration(deviation, length) / exact - 1) - error

    # In steps, because the error is not said to rise all the way; and from where it is tiny.
    high = 0.05
    while excess(high) < 0 and high < STEEPEST:
        high += 0.05
    return float(scipy.optimize.brentq(excess, max(high - 0.05, 0.0), high))  # pyright: ignore[reportArgumentType]


def _check_length(length: float) -> float:
    if not 1 < length < np.inf:
        raise Refusal(f"`length` = {length}: must be finite and above 1.")
    return float(length)


def _check_deviation(deviation: float) -> float:
    if not 0 <= deviation < np.inf:
        raise Refusal(f"`deviation` = {deviation}: must be finite and not negative.")
    return float(deviation)
