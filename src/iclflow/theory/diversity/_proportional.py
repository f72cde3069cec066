"""The proportional limit of training on data: d, N, K and n large, K/d, N/d and n/d² fixed.

White inputs, random tasks of unit label power: arXiv 2405.11751. One formula for every amount of
data and every penalty, with one root; Lu et al. give two branches without penalty. Tasks and tests
of any covariance: arXiv 2509.26551, here without an average over random matrices (derived in
docs/theory/diversity.md).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_number, check_numbers
from ._roots import exponential_root, falling_root
from ._types import Matrix, Numbers, Values


class LimitRisks(NamedTuple):
    """Errors in the limit, the noise of the query included.

    - `test`: on fresh tasks (ICL). `in_distribution`: on fresh sequences of the training tasks.
    - `ridge`: ξ, the effective penalty.
    """

    test: Float[np.ndarray, "..."]
    in_distribution: Float[np.ndarray, "..."]
    ridge: Float[np.ndarray, "..."]

    @property
    def gap(self) -> Float[np.ndarray, "..."]:
        """g_task, the error on fresh tasks above that on the training tasks."""
        return self.test - self.in_distribution


class _Ratios(NamedTuple):
    """τ, α, κ, ρ and λ, broadcast."""

    data: np.ndarray
    context: np.ndarray
    tasks: np.ndarray
    noise: np.ndarray
    penalty: np.ndarray


def proportional_limit(
    data: Numbers, context: Numbers, tasks: Numbers, noise: Numbers, penalty: Numbers = 0.0
) -> LimitRisks:
    """ICL and IDG errors at τ = n/d², α = N/d, κ = K/d, ρ = σ² (arXiv 2405.11751).

    With v = q + ξ, q = (1 + ρ)/α and the resolvent m = M_κ(v) of a Wishart matrix, ξ solves
    1 − τ + τλ/ξ = ξ M_κ(q + ξ); ξ = 0 if λ = 0 and τ ≥ 1.

    **Arguments:**

    - `data`: τ; infinite is training in the population.
    - `tasks`: κ; infinite gives each sequence a task of its own.
    - `noise`: ρ, the noise over the power of labels.
    - `penalty`: λ = dη, in the units of arXiv 2405.11751.

    ```pycon
    >>> found = icl.theory.diversity.proportional_limit([0.5, 1.5], 10, 0.5, 0.01)
    >>> found.test.round(6).tolist(), found.in_distribution.round(6).tolist()
    ([0.820849, 1.223564], [0.246343, 0.1686])

    ```
    """
    at = _ratios(data, context, tasks, noise, penalty)
    q = (1 + at.noise) / at.context
    xi = _ridge(at, q)
    v = q + xi
    m, slope = wishart_resolvent(v, at.tasks)
    inside = _in_distribution(at, xi, v, m, slope)
    per_data = inside / at.data
    bent = 1 - 2 * v * m - v**2 * slope
    tested = 1 + at.noise - 2 * (1 - v * m) + (1 + q) * (bent + per_data * (m + xi * slope))
    return LimitRisks(np.asarray(tested), np.asarray(inside), xi)


def wishart_resolvent(
    x: Numbers, ratio: Numbers
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """M_κ(x) = lim (1/d) tr (M + x)⁻¹ and its slope, M that of K = κd white tasks.

    2/(b + √(b² + 4x/κ)) with b = x + 1 − 1/κ.

    ```pycon
    >>> value, slope = icl.theory.diversity.wishart_resolvent(1.0, 1.0)
    >>> round(float(value), 6), round(float(slope), 6)
    (0.618034, -0.447214)

    ```
    """
    x, inverse = np.asarray(x, dtype=np.float64), 1 / np.asarray(ratio, dtype=np.float64)
    b = x + 1 - inverse
    root = np.hypot(b, 2 * np.sqrt(x * inverse))
    # Of the two equal forms of the root of the quadratic, the one that adds.
    with np.errstate(divide="ignore", invalid="ignore"):
        m = np.where(b >= 0, 2 / (b + root), (root - b) / (2 * x * inverse))
        slope = -(m**2) / 2 * (1 + (x + 1 + inverse) / root)
    return m, np.asarray(slope)


def aligned_limit(
    train: Matrix,
    test: Matrix,
    data: float,
    context: float,
    tasks: float,
    noise: float,
    penalty: float = 0.0,
) -> LimitRisks:
    """The limit for training tasks of covariance C and tests of covariance C_t, both of trace d
    (arXiv 2509.26551): `test` is the error on tasks of covariance C_t.

    F = [(1 − 1/κ + (v/κ)m) C + v]⁻¹ takes the place of the mean resolvent of the drawn tasks.

    **Arguments:**

    - `train`, `test`: C and C_t, symmetric, in the units of w/|w|·√d.

    ```pycon
    >>> rising = np.diag(np.arange(1.0, 6.0)) / 3
    >>> limit = icl.theory.diversity.aligned_limit
    >>> round(float(limit(rising, rising, 4.0, 2.0, 2.0, 0.1).test), 4)
    0.6465
    >>> round(float(limit(rising, rising[::-1, ::-1], 4.0, 2.0, 2.0, 0.1).test), 4)
    0.7989

    ```
    """
    train, test = (check_numbers(name, c, 2) for name, c in (("train", train), ("test", test)))
    if train.shape != test.shape or train.shape[0] != train.shape[1]:
        raise Refusal(f"`test` has shape {test.shape}: must be that of `train`, a square.")
    at = _ratios(data, context, tasks, noise, penalty)
    values, basis = np.linalg.eigh(train)
    if values[0] < -1e-12 * values[-1] or not values[-1] > 0:
        raise Refusal("`train` must be positive semi-definite, and not zero.")
    values, power = np.maximum(values, 0.0), float(np.mean(values))
    q = float((power + at.noise) / at.context)
    kappa = float(at.tasks)
    resolve = lambda xi: _resolve(values, q + xi, kappa)
    xi = _aligned_ridge(at, q, power, resolve)
    v = q + xi
    m, slope, F, F2 = resolve(xi)
    inside = float(_in_distribution(at, np.asarray(xi), np.asarray(v), m, slope))
    per_data = inside / float(at.data)
    seen = np.einsum("di,de,ei->i", basis, test, basis)
    reach = (float(np.mean(seen)) + at.noise) / at.context
    bent = 1 - 2 * v * m - v**2 * slope + per_data * (m + xi * slope)
    along = np.mean(seen * (v**2 * F2 + per_data * (F - xi * F2)))
    tested = at.noise + reach * bent + along
    return LimitRisks(np.asarray(tested), np.asarray(inside), np.asarray(xi))


def long_context_growth(data: Numbers, tasks: Numbers, noise: Numbers) -> Float[np.ndarray, "..."]:
    """lim e_ICL/α as α → ∞ without penalty: longer contexts hurt without bound if κ < min(τ, 1).

    ρ/(1 + ρ) times (1 − κ)/(τ − 1) for τ > 1, (τ − κ)/(1 − τ) for κ < τ < 1. Least squares fits the
    noise in directions outside the span of the tasks. Zero elsewhere.

    ```pycon
    >>> round(float(icl.theory.diversity.long_context_growth(2.0, 0.5, 0.25)), 6)
    0.1

    ```
    """
    at = _ratios(data, 1.0, tasks, noise, 0.0)
    tau, kappa = at.data, at.tasks
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(tau > 1, (1 - kappa) / (tau - 1), (tau - kappa) / (1 - tau))
    return np.where(kappa < np.minimum(tau, 1), at.noise / (1 + at.noise) * slope, 0.0)


def long_context_limit(data: float, tasks: float, noise: float) -> float:
    """lim e_ICL as α → ∞ without penalty, ρ(1 + κ/((κ − 1)(τ − 1))), for κ > 1 and τ > 1.

    ```pycon
    >>> round(icl.theory.diversity.long_context_limit(2.0, 2.0, 0.1), 6)
    0.3

    ```
    """
    above = lambda x: x > 1
    tau = check_number("data", data, "above 1", above)
    kappa = check_number("tasks", tasks, "above 1", above)
    rho = check_number("noise", noise, "not negative", lambda x: 0 <= x < np.inf)
    return rho * (1 + 1 / ((1 - 1 / kappa) * (tau - 1)))


def _ratios(data: Numbers, context: Numbers, tasks: Numbers, noise: Numbers, penalty: Numbers):
    """The ratios as arrays of one shape, checked."""
    given = {"data": data, "context": context, "tasks": tasks, "noise": noise, "penalty": penalty}
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in given.items()}
    for name, array in arrays.items():
        endless = name in ("data", "tasks")
        least = array > 0 if name in ("data", "context", "tasks") else array >= 0
        if not np.all(least) or not np.all(endless | np.isfinite(array)):
            sign = "positive" if name in ("data", "context", "tasks") else "not negative"
            raise Refusal(
                f"`{name}` = {array.tolist()}: must be {sign}{'' if endless else ' and finite'}."
            )
    return _Ratios(*np.broadcast_arrays(*arrays.values()))


def _ridge(at: _Ratios, q: Values) -> np.ndarray:
    """ξ for white tasks: the one positive root of 1 − τ + τλ/ξ = ξ M_κ(q + ξ)."""
    tau, penalty = at.data, at.penalty
    free = (penalty == 0) & (tau >= 1)
    # ξM lies between 0 and ξM(q), and above ξ/(ξ + q + 1).
    with np.errstate(invalid="ignore"):
        low = np.maximum(penalty, (1 - tau) / wishart_resolvent(q, at.tasks)[0])
        high = (q + 1) / tau + penalty
    endless = np.isinf(tau) & (penalty > 0)  # no data: the penalty alone
    fixed = free | endless
    low, high = np.where(fixed, 1.0, low), np.where(fixed, 1.0, high)
    tau = np.where(fixed, 1.0, tau)

    def surplus(xi: np.ndarray) -> Values:
        return 1 - tau + tau * penalty / xi - xi * wishart_resolvent(q + xi, at.tasks)[0]

    return np.where(free, 0.0, np.where(endless, penalty, falling_root(surplus, low, high)))


def _in_distribution(at: _Ratios, xi: Values, v: Values, m: Values, slope: Values) -> Values:
    """e_IDG = (ρ + v − v²m − ξ(1 − 2vm − v²m′))/(1 − (1 − 2ξm − ξ²m′)/τ)."""
    left = at.noise + v - v**2 * m - xi * (1 - 2 * v * m - v**2 * slope)
    with np.errstate(divide="ignore"):
        return left / (1 - (1 - 2 * xi * m - xi**2 * slope) / at.data)


def _resolve(values: np.ndarray, v: float, kappa: float):
    """m, m′ and the eigenvalues of F and of F₂, its analogue of a square, at v."""
    power = float(np.mean(values))
    if np.isinf(kappa):
        g = 1.0
    else:
        # With g = 1 − 1/κ + (v/κ)m: the mean of gc/(gc + v) is κ(1 − g).
        excess = lambda u: float(np.mean(values / (values + v * np.exp(-u)))) - kappa * -np.expm1(u)
        low = np.log(kappa * v / (power + kappa * v))
        g = exponential_root(excess, low - 1e-3, 0.0)
    F = 1 / (g * values + v)
    m, b, a = float(np.mean(F)), float(np.mean(F**2)), float(np.mean(F**2 * values))
    slope = -(b + m / kappa * a) / (1 + v / kappa * a)
    return np.asarray(m), np.asarray(slope), F, F**2 * ((m + v * slope) / kappa * values + 1)


def _aligned_ridge(at: _Ratios, q: float, power: float, resolve) -> float:
    """ξ for tasks of any covariance, by the same equation."""
    tau, penalty = float(at.data), float(at.penalty)
    if penalty == 0 and tau >= 1:
        return 0.0
    if np.isinf(tau):
        return penalty

    def surplus(u: float) -> float:
        xi = float(np.exp(u))
        return 1 - tau + tau * penalty / xi - xi * float(resolve(xi)[0])

    low = max(penalty, (1 - tau) / float(resolve(0.0)[0]))
    high = (q + power) / tau + penalty
    return exponential_root(surplus, np.log(low) - 1e-9, np.log(high) + 1e-9)
