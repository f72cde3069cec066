"""Any number of heads from small weights, by the large-context loss: who grows, and when.

Near the origin the flow is linear. The heads' growing parts p_h = (ω_h + μ_h)/2 all grow as eᵗ, but
for their sum, which the zero-sum term (1 + σ²)/L (Σμ)² holds back. So the sign of p_h says whether
head h will be positive or negative, and its size how large. Derived in docs/theory/softmax.md.
"""

from typing import NamedTuple

import numpy as np
import scipy.integrate
from jaxtyping import ArrayLike, Float, Real

from ._softmax_large_context import large_context_force
from ._softmax_setting import Setting, checked_setting, checked_softmax_heads, checked_times

# Where growth from small weights is handed over from the linear solution to the whole flow: the
# flow is linear up to terms of relative order |ω|².
_HANDOVER = 1e-3


class HeadFlow(NamedTuple):
    """ω_h(t), μ_h(t) and the loss of structured heads at `times`."""

    times: Float[np.ndarray, " T"]
    omega: Float[np.ndarray, "T H"]
    mu: Float[np.ndarray, "T H"]
    loss: Float[np.ndarray, " T"]


def large_context_flow(
    times: Real[ArrayLike, " T"],
    omega: Float[ArrayLike, " H"],
    mu: Float[ArrayLike, " H"],
    dim: int,
    length: float,
    noise: float,
) -> HeadFlow:
    """Gradient flow τẆ = −½∂L̃/∂W of all heads from (ω, μ) at t = 0, by a stiff solver."""
    at, times = checked_setting(dim, length, noise), checked_times(times)
    start = np.concatenate(checked_softmax_heads(omega, mu))
    path = _solved(at, start, times[-1], t_eval=times).y.T
    heads = len(start) // 2
    return HeadFlow(
        times, path[:, :heads], path[:, heads:], np.array([_loss(state, at) for state in path])
    )


def early_heads(
    times: Real[ArrayLike, " T"],
    omega: Float[ArrayLike, " H"],
    mu: Float[ArrayLike, " H"],
    length: float,
    noise: float,
    gain: float = 1.0,
) -> HeadFlow:
    """Small weights, in closed form: ω̇_h = gμ_h, μ̇_h = gω_h − (1 + σ²)/L Σμ, and the loss.

    **Arguments:**

    - `gain`: g = 1 for the large-context loss, 1 − 1/L for the exact one.
    """
    at, times = checked_setting(1, length, noise), checked_times(times)
    omega, mu = checked_softmax_heads(omega, mu)
    linear = _growth_matrix(len(omega), at, gain)
    rates, modes = np.linalg.eigh(linear)
    state = (np.exp(np.outer(times, rates)) * (modes.T @ np.concatenate([omega, mu]))) @ modes.T
    found, values = state[:, : len(omega)], state[:, len(omega) :]
    loss = 1 + at.noise - 2 * gain * np.sum(found * values, 1) + at.spread * values.sum(1) ** 2
    return HeadFlow(times, found, values, loss)


def growing_parts(
    omega: Float[ArrayLike, " H"], mu: Float[ArrayLike, " H"]
) -> Float[np.ndarray, " H"]:
    """p_h = (ω_h + μ_h)/2: by its sign head h becomes positive or negative.

    Heads with |p_h| far below the others lag behind, as dummies, and may still be turned round.
    """
    omega, mu = checked_softmax_heads(omega, mu)
    return (omega + mu) / 2


def sum_growth_rate(heads: int, length: float, noise: float) -> float:
    """The rate λ of Σω and Σμ, λ² + λH(1 + σ²)/L = 1: slower than the rate 1 of all else."""
    drag = heads * checked_setting(1, length, noise).spread / 2
    return float(1 / (np.hypot(drag, 1) + drag))


def emergence_time(
    omega: Float[ArrayLike, " H"],
    mu: Float[ArrayLike, " H"],
    dim: int,
    length: float,
    noise: float,
    fraction: float = 0.5,
) -> float:
    """When small weights have lost `fraction` of what one gradient step gains, by L̃.

    The linear growth is followed in closed form until the weights have size 1e-3, the rest by the
    whole flow: the time is ln(1/size) plus a number that depends on the directions of the heads.
    """
    at = checked_setting(dim, length, noise)
    omega, mu = checked_softmax_heads(omega, mu)
    if not 0 < fraction < 1:
        raise ValueError(f"`fraction` = {fraction}: must lie between 0 and 1.")
    size = np.linalg.norm(growing_parts(omega, mu))
    if size == 0:
        raise ValueError("`omega` = −`mu` in every head: these weights do not grow.")
    wait = max(float(np.log(_HANDOVER / size)), 0.0)
    early = early_heads(np.array([wait]), omega, mu, length, noise)
    start = np.concatenate([early.omega[0], early.mu[0]])
    # The gain of the best gradient step by L̃ is 1/(1 + (1 + σ²)d/L).
    level = 1 + at.noise - fraction / (1 + at.spread * at.dim)

    def reached(_, state):
        return _loss(state, at) - level

    reached.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    solution = _solved(at, start, 1e6, events=reached)
    if not len(solution.t_events[0]):
        raise ValueError(
            f"`fraction` = {fraction}: the heads do not lose that much; one head, or heads of one "
            "sign, stay above it."
        )
    return float(wait + solution.t_events[0][0])


def symmetrisation_rate(dim: int, length: float, noise: float) -> float:
    """The rate at which ω₁ + ω₂ of two opposite heads decays by L̃ at small dω²: (1 + σ²)d²η²/L.

    η = 1/(1 + (1 + σ²)d/L) is the gain on the slow manifold. Equal magnitudes are a product of the
    dynamics, and they come long before the drift has shrunk the weights.
    """
    at = checked_setting(dim, length, noise)
    return at.spread * at.dim**2 / (1 + at.spread * at.dim) ** 2


def _growth_matrix(heads: int, at: Setting, gain: float) -> np.ndarray:
    eye, ones = np.eye(heads), np.ones((heads, heads))
    return np.block([[0 * eye, gain * eye], [gain * eye, -at.spread * ones]])


def _loss(state: np.ndarray, at: Setting) -> float:
    omega, mu = np.split(state, 2)
    spread = mu @ np.exp(at.dim * np.outer(omega, omega)) @ mu
    return float(at.noise + (1 - mu @ omega) ** 2 + at.spread * spread)


def _solved(at: Setting, start: np.ndarray, end: float, **options):
    def velocity(_, state):
        omega, mu = np.split(state, 2)
        return np.concatenate(large_context_force(omega, mu, at))

    solution = scipy.integrate.solve_ivp(
        velocity,
        (0.0, max(end, 1e-300)),
        start,
        method="LSODA",
        rtol=1e-10,
        atol=1e-12 * min(np.linalg.norm(start), 1.0),
        **options,
    )
    if not solution.success:
        raise RuntimeError(f"The flow of the heads could not be integrated: {solution.message}")
    return solution
