"""Any number of heads from small weights, by the large-context loss: which grow, and when.

Near the origin the flow is linear. The growing parts p_h = (ω_h + μ_h)/2 of the heads grow as eᵗ,
except for their sum, which the zero-sum term (1 + σ²)/L (Σμ)² slows down. So the sign of p_h
decides whether head h becomes positive or negative, and its size how large. Derived in
docs/theory/softmax.md.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import Refusal
from ._check import PerHead, Times, check_fraction, check_times, check_whole
from ._integrate import integrate
from ._softmax_losses import large_context_force, large_context_value
from ._softmax_setting import Isotropic, Setting, check_softmax_heads

# The size of weights where the linear solution ends and the integration of the whole flow begins:
# the flow is linear up to terms of relative order |ω|².
_HANDOVER = 1e-3
# The loss reaches its level long before this time, or never.
_LATEST = 1e6


class HeadFlow(NamedTuple):
    """ω_h(t), μ_h(t) and the loss of structured heads at `times`."""

    times: Float[np.ndarray, " T"]
    omega: Float[np.ndarray, "T H"]
    mu: Float[np.ndarray, "T H"]
    loss: Float[np.ndarray, " T"]


def large_context_flow(task: Isotropic, times: Times, omega: PerHead, mu: PerHead) -> HeadFlow:
    """Gradient flow τẆ = −½∂L̃/∂W of all heads from (ω, μ) at t = 0, integrated numerically.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> omega, mu = np.array([0.02, -0.01]), np.array([0.01, -0.02])
    >>> flow = icl.theory.large_context_flow(task, np.array([0.0, 5.0, 20.0]), omega, mu)
    >>> flow.loss.round(3)
    array([1.099, 0.243, 0.212])
    >>> flow.mu[-1].round(2)
    array([ 0.92, -0.92])
    ```
    """
    at, times = Setting.of(task), check_times(times)
    start = np.concatenate(check_softmax_heads(omega, mu))
    path = _follow(at, start, times[-1], t_eval=times).y.T
    heads = len(start) // 2
    return HeadFlow(
        times, path[:, :heads], path[:, heads:], np.array([_loss(at, state) for state in path])
    )


def early_heads(
    task: Isotropic, times: Times, omega: PerHead, mu: PerHead, gain: float = 1.0
) -> HeadFlow:
    """Small weights, in closed form: ω̇_h = gμ_h, μ̇_h = gω_h − (1 + σ²)/L Σμ, and the loss.

    **Arguments:**

    - `gain`: g = 1 for the large-context loss, 1 − 1/L for the exact one.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> omega, mu = np.array([2e-4, -1e-4]), np.array([1e-4, -2e-4])
    >>> times = np.array([0.0, 2.0, 4.0])
    >>> icl.theory.early_heads(task, times, omega, mu).omega[-1].round(6)
    array([ 0.008225, -0.008155])
    >>> icl.theory.large_context_flow(task, times, omega, mu).omega[-1].round(6)
    array([ 0.008224, -0.008154])
    ```
    """
    at, times = Setting.of(task), check_times(times)
    omega, mu = check_softmax_heads(omega, mu)
    linear = _growth_matrix(len(omega), at, gain)
    rates, modes = np.linalg.eigh(linear)
    state = (np.exp(np.outer(times, rates)) * (modes.T @ np.concatenate([omega, mu]))) @ modes.T
    found, values = state[:, : len(omega)], state[:, len(omega) :]
    loss = 1 + at.noise - 2 * gain * np.sum(found * values, 1) + at.spread * values.sum(1) ** 2
    return HeadFlow(times, found, values, loss)


def growing_parts(omega: PerHead, mu: PerHead) -> Float[np.ndarray, " H"]:
    """p_h = (ω_h + μ_h)/2: by its sign head h becomes positive or negative.

    Heads with |p_h| far below the others stay small, as dummies, and may still change their sign.

    **Example:**

    ```pycon
    >>> omega, mu = np.array([0.02, -0.01, 0.01]), np.array([0.01, -0.02, -0.01])
    >>> icl.theory.growing_parts(omega, mu).round(3)
    array([ 0.015, -0.015,  0.   ])
    ```
    """
    omega, mu = check_softmax_heads(omega, mu)
    return (omega + mu) / 2


def sum_growth_rate(task: Isotropic, heads: int) -> float:
    """The rate λ of Σω and Σμ, λ² + λH(1 + σ²)/L = 1; differences of heads grow at rate 1.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> rate = icl.theory.sum_growth_rate(task, heads=8)
    >>> round(rate, 4)
    0.896
    >>> round(rate**2 + rate * 8 * 1.1 / 40, 4)
    1.0
    ```
    """
    drag = heads * Setting.of(task).spread / 2
    return float(1 / (np.hypot(drag, 1) + drag))


def emergence_time(task: Isotropic, omega: PerHead, mu: PerHead, fraction: float = 0.5) -> float:
    """When L̃ has fallen by `fraction` of the gain of one gradient step, 1/(1 + (1 + σ²)d/L).

    `early_heads` up to weights of size 1e-3, then `large_context_flow`: the time is ln(1/size) plus
    a number that depends on the directions of the heads.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> omega, mu = np.array([1e-3, -1e-3]), np.array([1e-3, -1e-3])
    >>> round(icl.theory.emergence_time(task, omega, mu), 3)
    6.07
    >>> # Ten times smaller weights take ln(10) longer.
    >>> round(icl.theory.emergence_time(task, omega / 10, mu / 10), 3)
    8.372
    ```
    """
    at = Setting.of(task)
    omega, mu = check_softmax_heads(omega, mu)
    check_fraction(fraction)
    size = np.linalg.norm(growing_parts(omega, mu))
    if size == 0:
        raise Refusal("`omega` = −`mu` in every head: these weights do not grow.")
    wait = max(float(np.log(_HANDOVER / size)), 0.0)
    early = early_heads(at, np.array([wait]), omega, mu)
    start = np.concatenate([early.omega[0], early.mu[0]])
    level = 1 + at.noise - fraction / (1 + at.spread * at.dim)

    def gap_to_level(_, state):
        return _loss(at, state) - level

    gap_to_level.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    solution = _follow(at, start, _LATEST, events=gap_to_level)
    if not len(solution.t_events[0]):
        raise Refusal(
            f"`fraction` = {fraction}: the loss does not fall that much; one head, or heads of one "
            "sign, stay above it."
        )
    return float(wait + solution.t_events[0][0])


class SignShare(NamedTuple):
    """A share of random starts, and its standard error."""

    value: float
    standard_error: float


def settled_one_sign_share(
    task: Isotropic, heads: int, size: float, starts: int = 4096, seed: int = 0
) -> SignShare:
    """The share of starts with ω, μ ~ N(0, size²) that end with heads of one sign, by L̃.

    Heads below a tenth of the strongest do not count. `one_sign_share` is the chance of equal signs
    at the start; the zero-sum term turns the weakest heads of one sign before they have grown.
    Integrated by the rule of Runge and Kutta for all starts at once, to a time of 30 after growth:
    enough for L of order Hd; for L ≫ Hd weak heads of the other sign are still dummies then.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40)
    >>> share = icl.theory.settled_one_sign_share(task, heads=3, size=0.01, starts=256)
    >>> round(share.value, 3), round(share.standard_error, 3)
    (0.098, 0.019)
    >>> icl.theory.one_sign_share(3)
    0.25
    ```
    """
    at, count = Setting.of(task), check_whole("heads", heads)
    rng = np.random.default_rng(seed)
    omega, mu = size * rng.standard_normal((2, check_whole("starts", starts), count))
    # From weights of this size on the heads are at their places within a time of 30.
    wait, step = max(float(np.log(1 / size)), 0.0), 0.1
    for _ in range(int((wait + 30) / step)):
        omega, mu = _runge_kutta(omega, mu, at, step)
    work = np.abs(omega * mu)
    # As heads are judged: those below a tenth of the strongest are dummies.
    active = work > 0.1 * work.max(1, keepdims=True)
    both = np.any(active & (omega > 0), 1) & np.any(active & (omega < 0), 1)
    share = float(np.mean(~both))
    return SignShare(share, float(np.sqrt(share * (1 - share) / starts)))


def _runge_kutta(omega: np.ndarray, mu: np.ndarray, at: Setting, step: float):
    """One step of the flow of L̃ for many starts at once, (starts, heads)."""

    def force(w: np.ndarray, m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        overlap = at.spread * np.exp(at.dim * w[:, :, None] * w[:, None, :])
        left = 1 - np.sum(w * m, 1, keepdims=True)
        pull = np.einsum("nhk,nk->nh", overlap, m * w)
        return m * (left - at.dim * pull), w * left - np.einsum("nhk,nk->nh", overlap, m)

    first = force(omega, mu)
    second = force(omega + step / 2 * first[0], mu + step / 2 * first[1])
    third = force(omega + step / 2 * second[0], mu + step / 2 * second[1])
    fourth = force(omega + step * third[0], mu + step * third[1])
    moves = [a + 2 * b + 2 * c + d for a, b, c, d in zip(first, second, third, fourth)]
    return omega + step / 6 * moves[0], mu + step / 6 * moves[1]


def symmetrisation_rate(task: Isotropic) -> float:
    """(1 + σ²)d²η²/L, the rate of decay of ω₁ + ω₂ of two opposite heads by L̃ at small dω².

    η = 1/(1 + (1 + σ²)d/L) is the gain on the slow manifold. The dynamics makes the magnitudes
    equal long before the drift has shrunk the weights.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=4, context=40, noise=0.1)
    >>> round(icl.theory.symmetrisation_rate(task), 4)
    0.3571
    >>> eta = icl.theory.debiased_optimum(task).step
    >>> round(1.1 / 40 * 4**2 * eta**2, 4)
    0.3571
    ```
    """
    at = Setting.of(task)
    return at.spread * at.dim**2 / (1 + at.spread * at.dim) ** 2


def _loss(at: Setting, state: np.ndarray) -> float:
    omega, mu = np.split(state, 2)
    return large_context_value(omega, mu, at)


def _growth_matrix(heads: int, at: Setting, gain: float) -> np.ndarray:
    eye, ones = np.eye(heads), np.ones((heads, heads))
    return np.block([[0 * eye, gain * eye], [gain * eye, -at.spread * ones]])


def _follow(at: Setting, start: np.ndarray, end: float, **options: Any) -> Any:
    def velocity(_, state):
        omega, mu = np.split(state, 2)
        return np.concatenate(large_context_force(omega, mu, at))

    # Small weights decide which heads grow: the absolute tolerance follows the start.
    options = {"rtol": 1e-10, "atol": 1e-12 * min(np.linalg.norm(start), 1.0), **options}
    return integrate("The flow of the heads", velocity, start, end, **options)
