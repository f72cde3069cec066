"""Stacks at infinite context: every eigendirection learns by itself, in every layer at once.

S = Λ, and with r_lk = 1 − λ_kγ_lk the loss is Σ_k λ_km_k Y_k², Y_k = Π_l r_lk; noise drops out.
From Γ = 0 the untied flow ṙ_lk = −m_kλ_k³ Y_k²/r_lk keeps layers equal and gives
Y_k² = [1 + (2L − 2)m_kλ_k³t]^{−L/(L−1)}; r_lk² − r_jk² is conserved. Derived in
docs/theory/depth.md.
"""

import numpy as np
from jaxtyping import ArrayLike, Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._cascade import Staircase, cascade
from .._check import HeadsLike, PerHead, check_fraction, check_numbers, check_times, check_whole
from .._moments import aligned_moments, moments
from ._stack import TimesLike

# A context that is infinite to rounding.
_INFINITE = 10**15


def infinite_context_loss(
    task: LinearRegression, layers: int, times: TimesLike, tied: bool = False
) -> Float[np.ndarray, " T"]:
    """The loss along gradient flow from Γ_l = 0 as N → ∞: Σ λ_km_k Y_k²(t), and the query's noise.

    Result 4 of arXiv 2510.01098 has this up to a factor 2 of time. Λ and M must commute; the
    context length of the task is not used.

    **Arguments:**

    - `tied`: whether one Γ is used L times: then it is L times as fast.

    ```pycon
    >>> task = icl.LinearRegression([1.0, 0.5], context=20)
    >>> icl.theory.depth.infinite_context_loss(task, 2, [0.0, 1.0, 10.0]).round(6)
    array([1.5     , 0.431111, 0.043084])

    ```
    """
    rates, power, floor = _rates(task)
    times, layers = check_times(times), check_whole("layers", layers)
    clock = np.outer(times, rates) * (layers if tied else 1)
    return floor + _left(clock, layers) @ power


def direction_times(
    task: LinearRegression, layers: int, fraction: float = 0.5, tied: bool = False
) -> Float[np.ndarray, " D"]:
    """When a fraction of the loss of each eigendirection is gone as N → ∞, as 1/(m_kλ_k³).

    Directions are those of Λ, from the largest eigenvalue down; there are no plateaus.

    ```pycon
    >>> task = icl.LinearRegression([1.0, 0.5], context=20)
    >>> icl.theory.depth.direction_times(task, 1).round(6)  # ln 2/(2λ³)
    array([0.346574, 2.772589])

    ```
    """
    rates, _, _ = _rates(task)
    layers, left = check_whole("layers", layers), 1 - check_fraction(fraction)
    if layers == 1:
        clock = -np.log(left) / 2
    else:
        clock = np.expm1(-np.log(left) * (layers - 1) / layers) / (2 * layers - 2)
    return clock / (rates * (layers if tied else 1))


def shifted_loss(task: LinearRegression, shifted: LinearRegression, layers: int) -> float:
    """The loss on one task as N → ∞ of L layers trained to the end on another, both without end.

    Trained layers are Γ = Λ⁻¹ of a loop, whatever its depth, so that on inputs of covariance Λ′
    Π = (1 − Λ⁻¹Λ′)^L and the loss is tr Λ′ΠM′Πᵀ and the query's noise (Result 5 of arXiv
    2510.01098). Where an eigenvalue of 1 − Λ⁻¹Λ′ is beyond ±1, layers make it worse. Context
    lengths of the tasks are not used.

    **Arguments:**

    - `task`: that of training; nothing but its covariance is used.
    - `shifted`: that of the test.

    ```pycon
    >>> task = icl.LinearRegression([1.0, 0.5], context=20)
    >>> other = icl.LinearRegression([1.0, 0.6], context=20)
    >>> [round(icl.theory.depth.shifted_loss(task, other, count), 6) for count in (1, 2)]
    [0.024, 0.00096]

    ```
    """
    layers = check_whole("layers", layers)
    if shifted.dim != task.dim:
        raise Refusal(f"`shifted` has D = {shifted.dim}: must have that of `task`, {task.dim}.")
    inputs = np.asarray(moments(shifted).covariance)
    left = np.eye(task.dim) - np.linalg.solve(np.asarray(moments(task).covariance), inputs)
    product = np.linalg.matrix_power(left, layers)
    excess = np.trace(inputs @ product @ moments(shifted).weight_second_moment @ product.T)
    return float(shifted.query_noise) + float(excess)


def layer_invariants(task: LinearRegression, steps: HeadsLike) -> Float[np.ndarray, "pairs D"]:
    """r_lk² − r_{l+1,k}², r_lk = 1 − λ_kγ_lk, which untied flow at infinite context conserves.

    So one layer alone drives its r_k to zero, the one with the smallest |r_k|; the others stop.

    **Arguments:**

    - `steps`: γ_lk, layers in rows, eigendirections of Λ from the largest eigenvalue down.

    ```pycon
    >>> task = icl.LinearRegression([1.0, 0.5], context=20)
    >>> icl.theory.depth.layer_invariants(task, [[0.1, 0.2], [0.0, 0.0]]).round(6)
    array([[-0.19, -0.19]])

    ```
    """
    values = aligned_moments(task).eigenvalues
    steps = check_numbers("steps", steps, 2)
    if steps.shape[1] != len(values):
        raise Refusal(f"`steps` has shape {steps.shape}: must be (layers, {len(values)}).")
    return -np.diff((1 - steps * values) ** 2, axis=0)


def pooled_cascade(
    task: LinearRegression,
    v: Float[ArrayLike, "L H"],
    K: Float[ArrayLike, "L H D 1"],
    Q: Float[ArrayLike, "L H D 1"],
) -> Staircase:
    """The staircase of a stack of separate rank-one heads at infinite context, from small weights.

    A direction that one layer has taken gives no drive to the others, so to leading order the
    stack is one layer with the heads of all layers: entry h of `heads` is head h % H of layer
    h // H. At finite context refinements O(1/N) of learned directions come in between; see
    `pair_level`.

    **Arguments:**

    - `v`, `K`, `Q`: weights at t = 0 of every head of every layer.

    ```pycon
    >>> task = icl.LinearRegression([1.0, 0.5], context=20)
    >>> v = np.array([[0.01], [0.02]])
    >>> K = 0.01 * np.array([[[[1.0], [0.2]]], [[[0.1], [1.5]]]])
    >>> icl.theory.depth.pooled_cascade(task, v, K, K).levels.round(6)
    array([1.5, 0.5, 0. ])

    ```
    """
    v, K, Q = (np.asarray(w, dtype=np.float64) for w in (v, K, Q))
    heads = v.shape + (task.dim, 1)
    if v.ndim != 2 or K.shape != heads or Q.shape != heads:
        raise Refusal(
            f"`v`, `K`, `Q` have shapes {v.shape}, {K.shape}, {Q.shape}: must be (L, H), "
            f"(L, H, {task.dim}, 1) and (L, H, {task.dim}, 1)."
        )
    long = LinearRegression(
        covariance=task.covariance,
        prior_mean=task.prior_mean,
        prior_covariance=task.prior_covariance,
        context=_INFINITE,
        noise=task.noise,
        noisy_query=task.noisy_query,
    )
    pool: PerHead = v.ravel()
    return cascade(long, pool, K.reshape(-1, task.dim, 1), Q.reshape(-1, task.dim, 1))


def _rates(task: LinearRegression) -> tuple[np.ndarray, np.ndarray, float]:
    """m_kλ_k³, λ_km_k and the noise of the query."""
    found = aligned_moments(task)
    power = found.eigenvalues * found.weight_eigenvalues
    return found.eigenvalues**2 * power, power, float(task.query_noise)


def _left(clock: np.ndarray, layers: int) -> np.ndarray:
    """Y² after the time `clock` in units of 1/(mλ³)."""
    if layers == 1:
        return np.exp(-2 * clock)
    return (1 + (2 * layers - 2) * clock) ** (-layers / (layers - 1))
