"""How weights approach and leave the limit of gradient flow: tails, and a half-stable saddle.

With one head per task a negative weight on the label of another task lowers the loss. With
μ = (Δ/2) sinh θ, Δ = o² − v², the flow there is θ̇ = −g_i: a positive μ decays as e^{−gt}, crosses
zero after a time of (1/g) log(4μ/Δ), and grows as e^{gt} on the other side. In balance it never
reaches zero. Derived in docs/theory/multitask.md.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from .._check import HeadsLike, check_number, check_numbers, check_whole
from ._blocks import Blocks, Tasks
from ._loss import Heads


class ConvergenceRates(NamedTuple):
    """Rates of the weights on other tasks, as balanced flow approaches its limit.

    - `omega`: ϱ_h for the head of task h: its ω on other tasks falls as 1/(const + ϱ_h t).
    - `mu`: g_i for label i: weights of other heads on it fall as e^{−g_i t}.
    """

    omega: Float[np.ndarray, " I"]
    mu: Float[np.ndarray, " I"]


def limit_heads(task: Tasks) -> tuple[Heads, Heads]:
    """ω and μ of `gradient_flow_limit`: d_i^−½ and √d_i/(1 + e/κ_i) on a head's task, else zero.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> omega, mu = icl.theory.multitask.limit_heads(task)
    >>> omega.round(3), mu.round(3)
    (array([[0.5, 0. ],
           [0. , 0.5]]), array([[1.601, 0.   ],
           [0.   , 1.601]]))
    >>> icl.theory.multitask.loss(task, omega, mu).round(4)
    array([0.1995, 0.1995])
    >>> icl.theory.multitask.gradient_flow_limit(task).losses.round(4)
    array([0.1995, 0.1995])
    ```
    """
    blocks = Blocks.of(task)
    own = np.sqrt(blocks.sizes) / (1 + np.e / blocks.samples)
    return np.diag(blocks.sizes**-0.5), np.diag(own)


def convergence_rates(task: Tasks, width: int) -> ConvergenceRates:
    """ϱ_h = 2e λ_h d_h φ_h μ_h²/(L√E) and g_i = 2λ_i d_i φ_i μ_i/L at the limit.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> rates = icl.theory.multitask.convergence_rates(task, width=20)
    >>> rates.omega.round(4), rates.mu.round(4)
    (array([0.0714, 0.0714]), array([0.0734, 0.0734]))
    >>> # A small weight on the label of another task falls at this rate.
    >>> omega, mu = np.eye(2) / 2 + 1e-3, 1.6 * np.eye(2) + 1e-3
    >>> times = [0.0, 100.0, 110.0]
    >>> flow = icl.theory.multitask.spectral_flow(task, times, omega, mu, width=20)
    >>> round(float(np.log(flow.mu[1, 0, 1] / flow.mu[2, 0, 1])) / 10, 3)
    0.073
    ```
    """
    blocks, width = Blocks.of(task), check_whole("width", width)
    mu = np.diag(limit_heads(blocks)[1])
    spread = 2 * blocks.power * blocks.phi / blocks.length * mu
    return ConvergenceRates(np.e / width**0.5 * mu * spread, spread)


def tail_excess(task: Tasks, omega: HeadsLike) -> float:
    """The excess loss over the limit due to small ω on other tasks.

    (e/L) Σ_hj λ_h d_h φ_h μ_h² d_j ω_hj² over j ≠ h. Along `convergence_rates` it falls as 1/t².

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> omega, mu = icl.theory.multitask.limit_heads(task)
    >>> near = omega + 0.01 * (1 - np.eye(2))
    >>> print(f"{icl.theory.multitask.tail_excess(task, near):.3e}")
    1.277e-04
    >>> floor = icl.theory.multitask.gradient_flow_limit(task).loss
    >>> print(f"{icl.theory.multitask.loss(task, near, mu).sum() - floor:.3e}")
    1.278e-04
    ```
    """
    blocks = Blocks.of(task)
    mu = np.diag(limit_heads(blocks)[1])
    omega = check_numbers("omega", omega, 2, (len(mu), len(mu)))
    off = np.where(np.eye(len(mu)) > 0, 0.0, omega)
    cost = np.e / blocks.length * blocks.power * blocks.phi * mu**2
    return float(np.sum(cost[:, None] * blocks.sizes * off**2))


def escape_rate(task: Tasks) -> Float[np.ndarray, " I"]:
    """g_i = ∂L/∂μ_hi at the limit, the rate of escape of the weights of other heads on label i.

    For h ≠ i it is 2λ_i d_i φ_i μ_i/L, the same for all other heads. For Δ = 0 they never escape.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> icl.theory.multitask.escape_rate(task).round(4)
    array([0.0734, 0.0734])
    >>> # It is the slope of the loss in a weight on the label of another task.
    >>> omega, mu = icl.theory.multitask.limit_heads(task)
    >>> icl.theory.multitask.slopes(task, omega, mu).mu.round(4)
    array([[-0.    ,  0.0734],
           [ 0.0734, -0.    ]])
    ```
    """
    return convergence_rates(task, 1).mu


def relative_imbalance(mu: ArrayLike, delta: float) -> np.ndarray:
    """Δ = o² − v² of o = √μ(1 + δ) and v = √μ/(1 + δ), as `spectral_flow` takes it.

    **Example:**

    ```pycon
    >>> mu = np.array([0.5, 1.0])
    >>> icl.theory.multitask.relative_imbalance(mu, delta=0.01).round(5)
    array([0.0199, 0.0398])
    >>> o, v = np.sqrt(mu) * 1.01, np.sqrt(mu) / 1.01
    >>> (o**2 - v**2).round(5)
    array([0.0199, 0.0398])
    ```
    """
    delta = check_number("delta", delta, "finite and above -1", lambda x: -1 < x < np.inf)
    return np.asarray(check_numbers("mu", mu) * 2 * np.sinh(2 * np.log1p(delta)))


def escape_time(task: Tasks, start: float, end: float, imbalance: float) -> Float[np.ndarray, " I"]:
    """How long weights on labels of others take from `start` > 0 to −`end` < 0, near the limit.

    [arcsinh(2 start/Δ) + arcsinh(2 end/Δ)]/g_i: about (2/g_i) log(1/Δ), and infinite in balance.

    **Arguments:**

    - `imbalance`: Δ = o² − v² of these weights; `relative_imbalance` converts a relative one.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> for imbalance in (1e-3, 1e-6, 0.0):
    ...     print(icl.theory.multitask.escape_time(task, 0.1, 0.1, imbalance).round(1))
    ...
    [163.3 163.3]
    [351.6 351.6]
    [inf inf]
    >>> # A thousand times less imbalance takes 2 ln(1000)/g longer.
    >>> (2 * np.log(1000) / icl.theory.multitask.escape_rate(task)).round(1)
    array([188.3, 188.3])
    ```
    """
    rate = escape_rate(task)
    sizes = {"start": start, "end": end}
    way = [
        check_number(name, size, "a size: finite, not negative", lambda x: 0 <= x < np.inf)
        for name, size in sizes.items()
    ]
    imbalance = check_number("imbalance", imbalance, "finite", lambda x: abs(x) < np.inf)
    # Without imbalance no weight crosses zero, not even from zero itself.
    if imbalance == 0:
        return np.full_like(rate, np.inf)
    return np.sum(np.arcsinh(2 * np.array(way) / abs(imbalance))) / rate
