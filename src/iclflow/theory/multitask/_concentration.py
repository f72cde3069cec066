"""How concentrated attention is: its regimes, and the regularisation that it implies.

Scores with the standard deviation a, a² = ⟨h, h⟩, give E|p|² = e^{a²}/L while a² is well below
½ log L; single points dominate from a = √(2 log L) on.

One head per task returns k_i = 1/(1 + c_i) of the signal, c_i = eφ_i d_i/L. Ridge regression and
early-stopped gradient flow on the context return a part too, so each has an equivalent strength.
Scores have the variance dω² = 1 at the optimum whatever the noise, in the closed form; the exact
loss at finite L moves it. Derived in docs/theory/multitask.md.
"""

from typing import Literal, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_number
from .._softmax_integrals import one_head_optimum
from .._softmax_powers import STEEPEST, attention_powers, chi_rule
from .._softmax_setting import Isotropic, Setting
from ._blocks import Blocks, Tasks

AttentionRegime = Literal["exponential", "crossover", "saturated"]

# The largest deviation a whose e^{2a²} is still finite.
_LARGEST = 18
# Steps of the search for the first deviation with a given error.
_SCAN = 0.05


class RegimeEdges(NamedTuple):
    """Standard deviations of scores that separate the regimes of attention.

    - `exponential`: √(½ log L), well below which E|p|² is about e^{a²}/L; at it E|p|² is 0.63 of
      that for L = 100, 0.71 for 10⁴ and 0.80 for 10⁶.
    - `saturated`: √(2 log L), from which a few points hold all weight.
    """

    exponential: float
    saturated: float


class Shrinkage(NamedTuple):
    """The strength of each method that returns the same part of the signal as one head per task.

    - `step`: k_i, that part; one gradient step from zero of this size returns it too.
    - `penalty`: z_i of ridge, counted per sample: c_i(1 − γ_i k_i), γ_i = d_i/L.
    - `time`: s_i of gradient flow on the context's mean squared error/2, stopped.

    The last two for d_i, L → ∞ at given γ_i.
    """

    step: Float[np.ndarray, " I"]
    penalty: Float[np.ndarray, " I"]
    time: Float[np.ndarray, " I"]


class Spread(NamedTuple):
    """The best single head at finite d and L, and how spread out its attention is.

    - `score_variance`: dω²; 1 in the closed form, at every noise.
    - `concentration`: E|p|², averaged over queries; its inverse counts the samples in use.
    - `loss`: the exact loss, with the noise of the query's label.
    """

    score_variance: float
    concentration: float
    loss: float


def regime_edges(length: float) -> RegimeEdges:
    """√(½ log L) and √(2 log L), the two thresholds for contexts of length L.

    **Example:**

    ```pycon
    >>> edges = icl.theory.multitask.regime_edges(length=100)
    >>> round(edges.exponential, 3), round(edges.saturated, 3)
    (1.517, 3.035)
    ```
    """
    log = np.log(_check_length(length))
    return RegimeEdges(float(np.sqrt(log / 2)), float(np.sqrt(2 * log)))


def attention_regime(deviation: float, length: float) -> AttentionRegime:
    """The regime of scores with a given standard deviation, by `regime_edges`.

    **Example:**

    ```pycon
    >>> [icl.theory.multitask.attention_regime(a, length=100) for a in (1.0, 2.0, 4.0)]
    ['exponential', 'crossover', 'saturated']
    ```
    """
    edges = regime_edges(length)
    if _check_deviation(deviation) <= edges.exponential:
        return "exponential"
    return "saturated" if deviation > edges.saturated else "crossover"


def concentration(deviation: float, length: float) -> float:
    """E|p|², exact (`attention_powers`): 1/L for uniform attention, 1 if it picks one point.

    **Example:**

    ```pycon
    >>> [round(icl.theory.multitask.concentration(a, length=100), 4) for a in (0.0, 1.0, 4.0, 20.0)]
    [0.01, 0.0255, 0.4229, 0.8749]
    ```
    """
    deviation, length = _check_deviation(deviation), _check_length(length)
    return attention_powers(deviation, length).second


def exponential_concentration(deviation: float, length: float) -> float:
    """E|p|² to first order in 1/L: (q/L)[1 + (3(q − 1) − 2(q² − 1))/L], q = e^{a²}.

    **Example:**

    ```pycon
    >>> round(icl.theory.multitask.exponential_concentration(0.5, length=1000), 6)
    0.001283
    >>> round(icl.theory.multitask.concentration(0.5, length=1000), 6)
    0.001283
    ```
    """
    if _check_deviation(deviation) > _LARGEST:
        raise Refusal(
            f"`deviation` = {deviation}: must be at most {_LARGEST}; e^{{2a²}} is too large."
        )
    q = np.exp(deviation**2)
    correction = (3 * (q - 1) - 2 * (q**2 - 1)) / _check_length(length)
    return float(q / length * (1 + correction))


def frozen_concentration(deviation: float, length: float) -> float:
    """The limit of E|p|² for L → ∞ at a fixed a/√(2 log L): 1 − √(2 log L)/a beyond 1, and 0 below.

    This is the random energy model. It is a guide only: at L = 100 and a = 6 it gives 0.494, and
    the exact value is 0.595.

    **Example:**

    ```pycon
    >>> for length in (100, 10_000):
    ...     frozen = icl.theory.multitask.frozen_concentration(8.0, length)
    ...     print(round(frozen, 3), round(icl.theory.multitask.concentration(8.0, length), 3))
    ...
    0.621 0.692
    0.464 0.529
    ```
    """
    edge = regime_edges(length).saturated
    return max(1 - edge / deviation, 0.0) if _check_deviation(deviation) > 0 else 0.0


def expansion_reach(length: float, error: float) -> float:
    """The deviation up to which `exponential_concentration` has at most a given relative error.

    The smallest root of |approximate/exact − 1| = `error`, by `concentration`.

    **Example:**

    ```pycon
    >>> reach = icl.theory.multitask.expansion_reach(length=1000, error=0.01)
    >>> round(reach, 3)
    1.326
    >>> approximate = icl.theory.multitask.exponential_concentration(reach, length=1000)
    >>> exact = icl.theory.multitask.concentration(reach, length=1000)
    >>> round(abs(approximate / exact - 1), 4)
    0.01
    ```
    """
    check_number("error", error, "between 1e-10 and 1", lambda x: 1e-10 < x < 1)

    def excess(deviation: float) -> float:
        exact = concentration(deviation, length)
        return abs(exponential_concentration(deviation, length) / exact - 1) - error

    # In small steps from zero: the error need not be monotonic, and the first root is wanted.
    high = _SCAN
    while excess(high) < 0 and high < STEEPEST:
        high += _SCAN
    return float(scipy.optimize.brentq(excess, max(high - _SCAN, 0.0), high))  # pyright: ignore[reportArgumentType]


def same_shrinkage(task: Tasks) -> Shrinkage:
    """k = 1/(1 + c), z = c(1 − γk) of ridge and the stopping time of E(1 − e^{−sx}) = k.

    The shrinkage of `gradient_flow_limit`, c_i = e/κ_i, γ_i = d_i/L, x Marchenko–Pastur.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 20], [0.1, 0.05], [0.1, 0.1], length=50)
    >>> same = icl.theory.multitask.same_shrinkage(task)
    >>> same.step.round(4), same.penalty.round(4), same.time.round(4)
    (array([0.6258, 0.4554]), array([0.5232, 0.9782]), array([1.0921, 0.6946]))
    >>> icl.theory.multitask.at_length(task, 50).steps.round(4)
    array([0.6258, 0.4554])
    ```
    """
    blocks = Blocks.of(task)
    odds = np.e / blocks.samples
    step, ratio = 1 / (1 + odds), blocks.sizes / blocks.length
    times = np.array([_stopping_time(k, gamma) for k, gamma in zip(step, ratio)])
    return Shrinkage(step, odds * (1 - ratio * step), times)


def best_head_spread(task: Isotropic) -> Spread:
    """dω² and E|p|² of `one_head_optimum` on an isotropic task, exact.

    **Example:**

    ```pycon
    >>> spread = icl.theory.multitask.best_head_spread(icl.isotropic(dim=4, context=40))
    >>> round(spread.score_variance, 3), round(spread.concentration, 4)
    (1.331, 0.0772)
    ```
    """
    at = Setting.of(task)
    best = one_head_optimum(at)
    radii, weights = chi_rule(at.dim)
    powers = [attention_powers(best.omega * r, at.length).second for r in radii]
    return Spread(at.dim * best.omega**2, float(weights @ np.array(powers)), best.loss)


def _stopping_time(step: float, ratio: float) -> float:
    """The time s with E(1 − e^{−sx}) = k over eigenvalues x of the context's covariance."""
    # Marchenko–Pastur in x = 1 + γ + 2√γ cos θ, without its part at zero, by Gauss–Chebyshev.
    unit, weight = scipy.special.roots_chebyu(400)
    x = 1 + ratio + 2 * np.sqrt(ratio) * unit
    weight = weight * 2 / (np.pi * x)
    missing = lambda log: float(weight @ -np.expm1(-np.exp(log) * x)) - step
    found = scipy.optimize.brentq(missing, -40.0, 40.0)
    return float(np.exp(float(found)))  # pyright: ignore[reportArgumentType]


def _check_length(length: float) -> float:
    return check_number("length", length, "finite and above 1", lambda x: 1 < x < np.inf)


def _check_deviation(deviation: float) -> float:
    allowed = "finite and not negative"
    return check_number("deviation", deviation, allowed, lambda x: 0 <= x < np.inf)
