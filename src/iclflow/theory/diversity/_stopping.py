"""When to stop training on few tasks: growth rates, drop times, and the best point of a test loss.

Few tasks lengthen the largest eigenvalue of M and shorten the first plateau. While a component
grows, the loss of a test may pass its minimum; for tasks of equal variance on white inputs, and for
one aligned head, the time of that minimum is known in closed form. Numbers are in units of τ, those
of Ẇ = −½∂L/∂W (derived in docs/theory/diversity.md).
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_number, check_positive, check_times, check_whole
from .._moments import Normaliser, commute, moments
from .._optimum import loss_of_matrix
from .._separate_dynamics import aligned_time, drop_offset
from .._separate_modes import modes
from ._components import components, losses_of_matrices, overshoot, parabola_on_test
from ._types import Numbers

# Variances that are meant to be equal are so up to rounding.
_EQUAL = 1e-10

Law = Literal["gaussian", "sphere"]


class BestStop(NamedTuple):
    """The best moment to stop, the test loss then, and the test loss at the end of the growth.

    `time` is infinite where the test loss falls to the end, 0 where it rises from the start.
    """

    time: float
    loss: float
    end: float


class _Growth(NamedTuple):
    """A = ς(t)·`matrix` with ς̇ = `rate`·ς(1 − ς/`strength`)."""

    matrix: Float[np.ndarray, "D D"]
    rate: float
    strength: float


def mean_growth_of_few_tasks(dim: int, count: int, law: Law = "gaussian") -> float:
    """E tr M² = d(1 + (d ± 1)/K) over K random tasks with E|w|² = d; g² = λ⁴ tr M² on white inputs.

    Few tasks shorten the first plateau: g_K/g_∞ ≈ √(1 + d/K).

    **Arguments:**

    - `law`: tasks are N(0, I) (+ 1), or of length √d, evenly on the sphere (− 1).

    ```pycon
    >>> icl.theory.diversity.mean_growth_of_few_tasks(10, 11)
    20.0

    ```
    """
    dim, count = check_whole("dim", dim), check_whole("count", count)
    if law not in ("gaussian", "sphere"):
        raise Refusal(f'`law` = {law!r}: must be "gaussian" or "sphere".')
    return dim * (1 + (dim + (1 if law == "gaussian" else -1)) / count)


def plateau_ratio(dim: float, count: float) -> float:
    """((1 − √(d/K))/(1 + √(d/K)))²: the first plateau over the last, for K random tasks, d and K
    large, white inputs and equal heads.

    The eigenvalues of M that are not zero fill (1 ± √(d/K))².

    ```pycon
    >>> round(icl.theory.diversity.plateau_ratio(10, 40), 4)
    0.1111

    ```
    """
    root = np.sqrt(check_positive("dim", dim) / check_positive("count", count))
    return float(((1 - root) / (1 + root)) ** 2)


def small_head_drop_times(
    task: LinearRegression, start: float, fraction: float = 0.5, normaliser: Normaliser = "context"
) -> Float[np.ndarray, " J"]:
    """When each component drops, one small aligned head with v₀ = `start` on each.

    t_j = 1/(c_jv₀) + x_f/(c_ja_j^⅓), with x_½ = −1.2533911927; `aligned_time` is exact for any v₀.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(2), context=10, noise=0.1)
    >>> two = icl.theory.diversity.with_tasks(task, [[1.0, 0.0], [0.0, 0.5]])
    >>> print(np.round(icl.theory.diversity.small_head_drop_times(two, 0.01), 1))
    [197.3 788.1]

    ```
    """
    start, found = check_positive("start", start), modes(task, normaliser)
    offset = drop_offset(fraction)
    return (1 / start + offset / np.cbrt(found.strengths)) / found.growth_rates


def equal_tasks_curve(
    task: LinearRegression,
    test: LinearRegression,
    times: Numbers,
    initial_strength: float,
    normaliser: Normaliser = "context",
) -> Float[np.ndarray, " T"]:
    """The test loss of merged attention along A = ς(t)P, for tasks of equal variance such as K
    orthogonal unit ones, on white inputs.

    1/ς = (1 − e^{−rt})/a* + e^{−rt}/ς₀ with r = 2λ²μ√K where M = μP, exact for U_h = v_hP/√K, whose
    ς₀ is Σ v_h²/√K.

    **Arguments:**

    - `test`: any test; `task` itself gives the training loss.
    - `initial_strength`: ς₀.

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(8), context=3)
    >>> two = diversity.with_tasks(task, np.eye(8)[:2])
    >>> fresh = diversity.with_second_moment(task, np.eye(8) / 8)
    >>> print(np.round(diversity.equal_tasks_curve(two, fresh, [0, 4, 40], 0.01), 4))
    [0.9951 0.9688 1.    ]

    ```
    """
    growth, first = _equal_growth(task, normaliser), check_positive("start", initial_strength)
    decay = np.exp(-growth.rate * check_times(np.asarray(times)))
    strength = 1 / ((1 - decay) / growth.strength + decay / first)
    return losses_of_matrices(test, strength[:, None, None] * growth.matrix, normaliser)


def equal_tasks_stop(
    task: LinearRegression,
    test: LinearRegression,
    initial_strength: float,
    normaliser: Normaliser = "context",
) -> BestStop:
    """The best moment to stop `equal_tasks_curve`: (1/r) ln[(a*/ς₀ − 1) x/(1 − x)], x = ã/a*.

    ã is where the test loss is smallest. For K orthogonal unit tasks, Λ = I and fresh isotropic
    ones the end is worse than the start where N + 1 < T(d − 2K), T = 1 + σ².

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(8), context=3)
    >>> two = diversity.with_tasks(task, np.eye(8)[:2])
    >>> fresh = diversity.with_second_moment(task, np.eye(8) / 8)
    >>> stop = diversity.equal_tasks_stop(two, fresh, 0.01)
    >>> round(stop.time, 4), round(stop.loss, 6), round(stop.end, 6)
    (2.7519, 0.9375, 1.0)

    ```
    """
    growth, first = _equal_growth(task, normaliser), check_positive("start", initial_strength)
    at = moments(test, normaliser)
    drive = float(np.sum(at.drive * growth.matrix))
    curvature = float(np.sum(growth.matrix * (at.second_moment @ growth.matrix @ at.covariance)))
    best, end = drive / curvature, growth.strength
    loss = lambda strength: float(at.label_variance - 2 * strength * drive
                                  + strength**2 * curvature)  # fmt: skip
    if best >= end:
        return BestStop(np.inf, loss(end), loss(end))
    if best <= first:
        return BestStop(0.0, loss(first), loss(end))
    share = best / end
    odds = (end / first - 1) * share / (1 - share)
    return BestStop(float(np.log(odds)) / growth.rate, loss(best), loss(end))


def aligned_stop(
    task: LinearRegression,
    test: LinearRegression,
    start: float,
    component: int = 0,
    normaliser: Normaliser = "context",
) -> BestStop:
    """The best moment to stop one aligned head of rank one on one component, all else at zero.

    The head passes v³ = a_jf̃_j/f_j at (1/c_ja_j^⅓)[−1/u + F(u)] from v₀/a_j^⅓ to (f̃_j/f_j)^⅓: see
    `aligned_time`. Λ and M must commute, and the test have the same inputs.

    **Arguments:**

    - `start`: v₀.
    - `component`: j, by variance m_j from the largest down.

    ```pycon
    >>> diversity = icl.theory.diversity
    >>> task = icl.LinearRegression(np.ones(8), context=3)
    >>> two = diversity.with_tasks(task, [[1.0, *[0] * 7], [0, 0.5, *[0] * 6]])
    >>> fresh = diversity.with_second_moment(task, np.eye(8) / 8)
    >>> stop = diversity.aligned_stop(two, fresh, 0.05)
    >>> round(stop.time, 3), round(stop.loss, 6), round(stop.end, 6)
    (37.686, 0.96875, 1.020408)

    ```
    """
    start = check_positive("start", start)
    if not commute(task):
        raise Refusal("`task` has Λ and M that do not commute: no head stays aligned.")
    found, learned = components(task, normaliser), modes(task, normaliser)
    j = check_whole("component", component, 0, found.count - 1)
    size, rate = float(learned.strengths[j]), float(learned.growth_rates[j])
    steps = overshoot(task, test, normaliser)
    drive, curvature = (x[j] for x in parabola_on_test(found, task, test, normaliser))
    blank = loss_of_matrix(test, np.zeros((test.dim, test.dim)), normaliser)
    loss = lambda f: float(blank - 2 * f * drive + f**2 * curvature)
    end, best = float(found.strengths[j]), float(steps.best[j])
    first = check_number("start", start, "below the strength of the component",
                         lambda v: v**3 < size) ** 3 * end / size  # fmt: skip
    if best >= end:
        return BestStop(np.inf, loss(end), loss(end))
    if best <= first:
        return BestStop(0.0, loss(first), loss(end))
    time = aligned_time(np.cbrt(size * best / end), start, rate, size)
    return BestStop(float(time), loss(best), loss(end))


def _equal_growth(task: LinearRegression, normaliser: Normaliser) -> _Growth:
    """The growth of A along P for Λ = λI and M = μP."""
    at, found = moments(task, normaliser), components(task, normaliser)
    value = float(at.covariance[0, 0])
    white = np.max(np.abs(at.covariance - value * np.eye(task.dim))) <= _EQUAL * value
    if not white or np.ptp(found.variances) > _EQUAL * found.variances[0]:
        raise Refusal(
            "`task` must have white inputs, and tasks of equal variance in their span, such as "
            "orthogonal ones of equal length."
        )
    projector = found.directions @ found.directions.T
    return _Growth(projector, 2 * float(np.linalg.norm(at.drive)), found.strengths[0] / value)
