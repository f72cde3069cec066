"""Merged attention for a general covariance: when the loss drops, and how it settles after that.

Small weights of any shape fall onto the one balanced solution of the reduced ODE that leaves the
origin along Ê, so one constant per task gives the time of the abrupt drop. Times are in units of τ.
Derived in docs/theory/linear.md.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import check_whole
from ._merged_dynamics import check_fraction, growing_amplitudes, growth_rate
from ._merged_landscape import unstable_direction
from ._merged_reduced import integrate_reduced, split_start, valley_of
from ._moments import Normaliser, aligned_moments, commute, moments
from ._optimum import optimal_matrix


class DropTime(NamedTuple):
    """Mean and standard deviation of a drop time over random initial weights."""

    mean: float
    standard_deviation: float


def drop_constant(
    task: LinearRegression, fraction: float = 0.5, normaliser: Normaliser = "context"
) -> float:
    """K_f of `drop_time`: read once from the flow that leaves the origin along Ê.

    White inputs, M = I: K_f = ln(x/(1−x)) + ln(√D a*), x = 1 − √(1 − f).
    """
    left = 1 - check_fraction(fraction)
    rate, direction = unstable_direction(task, normaliser)
    if commute(task):
        valley = valley_of(task, 1, normaliser)
        start = aligned_moments(task, normaliser).drive / rate
    else:
        valley, start = valley_of(task, 2, normaliser), direction
    # The flow leaves the straight line along Ê at relative order ‖A‖/‖A*‖, here 1e-12.
    size = 1e-12 * float(np.linalg.norm(valley.optimum))
    target = left * valley.excess(np.zeros_like(valley.optimum))

    def crossing(_, state):
        return valley.excess((state[0] * state[1:]).reshape(valley.optimum.shape)) - target

    crossing.terminal = True
    state = split_start(valley, size * start, 0.0)
    solution = integrate_reduced(valley, state, 1e12 / rate, events=crossing)
    return float(2 * rate * solution.t_events[0][0] + np.log(size))


def drop_time(
    task: LinearRegression,
    v: Float[ArrayLike, " H"],
    U: Float[ArrayLike, "H D D"],
    fraction: float = 0.5,
    normaliser: Normaliser = "context",
) -> float:
    """When a fraction f of L(0) − L* is gone, from the initial weights alone.

    t_f = (τ/2g) [ln(1/Σ p_h²) + K_f], with a relative error that vanishes with the weights.
    """
    size = np.sum(growing_amplitudes(task, v, U, normaliser) ** 2)
    if size == 0:
        raise Refusal("`v` and `U` have no growing part (all p_h = 0): the loss never drops.")
    constant = drop_constant(task, fraction, normaliser)
    time = float((constant - np.log(size)) / (2 * growth_rate(task, normaliser)))
    if time <= 0:
        raise Refusal(
            f"`v` and `U` are too large: the formula is for small weights, and gives {time:.4g}."
        )
    return time


def gaussian_drop_time(
    task: LinearRegression,
    heads: int,
    scale: float,
    fraction: float = 0.5,
    normaliser: Normaliser = "context",
) -> DropTime:
    """Mean and spread of `drop_time` when every entry of v and U is N(0, `scale`²).

    Σ p_h² is then (s²/2) χ²_H, whose logarithm has mean ln s² + ψ(H/2) and variance ψ′(H/2).
    """
    check_whole("heads", heads)
    if not np.isfinite(scale) or scale <= 0:
        raise Refusal(f"`scale` = {scale}: must be finite and positive.")
    rate = 2 * growth_rate(task, normaliser)
    log_size = 2 * np.log(scale) + scipy.special.digamma(heads / 2)
    return DropTime(
        float((drop_constant(task, fraction, normaliser) - log_size) / rate),
        float(np.sqrt(scipy.special.polygamma(1, heads / 2)) / rate),
    )


def tail_rates(
    task: LinearRegression, aligned: bool = True, normaliser: Normaliser = "context"
) -> Float[np.ndarray, " K"]:
    """Rates, in 1/τ and increasing, at which balanced A approaches A*; the loss decays at twice.

    **Arguments:**

    - `aligned`: only the D rates of motion within the common eigenbasis of Λ and M, the ones that
      small weights excite; otherwise all D² of them, for any task.
    """
    if aligned:
        spectrum = aligned_moments(task, normaliser)
        optimum, curvature = spectrum.optimum, np.diag(spectrum.curvature)
    else:
        m = moments(task, normaliser)
        optimum = optimal_matrix(task, normaliser).ravel()
        curvature = np.kron(m.second_moment, m.covariance)
    size = np.linalg.norm(optimum)
    # The linearised flow is −(‖a‖ I + aaᵀ/‖a‖) × curvature, a product of two symmetric matrices.
    inverse_gain = (np.eye(len(optimum)) - np.outer(optimum, optimum) / (2 * size**2)) / size
    return scipy.linalg.eigh(curvature, inverse_gain, eigvals_only=True)
