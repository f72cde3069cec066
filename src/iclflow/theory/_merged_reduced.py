"""Merged attention for a general covariance: an exact reduced ODE, and when the loss drops.

Heads that are multiples of one another, v_h = ρ_h ν and U_h = ρ_h Ω with |ρ| = 1, stay so. Then
A = νΩ, τ ν̇ = ⟨Ω, E⟩, τ Ω̇ = ν E, and ν² − ‖Ω‖² is conserved: exact, for any Λ, M and any number of
heads. Balanced (ν = ‖Ω‖) it reads τ Ȧ = ‖A‖E + A⟨A, E⟩/‖A‖. Where Λ and M commute and Ω is
diagonal in their eigenbasis, D numbers remain.

Small weights of any shape approach the one balanced solution that leaves the origin along Ê, so one
constant per task gives the time of the abrupt drop. Times are in units of τ. Derived in
docs/theory/linear.md.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import ArrayLike, Float

from ..errors import Refusal
from ..tasks import LinearRegression
from ._check import (
    KeyQueries,
    PerHead,
    Times,
    check_fraction,
    check_positive,
    check_times,
    check_whole,
)
from ._integrate import integrate
from ._merged_landscape import growing_amplitudes, growth_rate, unstable_direction
from ._moments import Normaliser, aligned_moments, commute, moments
from ._optimum import optimal_loss, optimal_matrix

# Heads are multiples of one another up to rounding.
_PARALLEL = 1e-10
# ‖A‖/‖A*‖ where the flow of `drop_constant` starts: it is off the line along Ê by this share.
_SMALL = 1e-12


class ReducedFlow(NamedTuple):
    """A(t) and the loss of the reduced ODE, at `times`.

    `matrix` is (T, D, D), or (T, D) when the start was given in the common eigenbasis.
    """

    times: Float[np.ndarray, " T"]
    matrix: Float[np.ndarray, "T *shape"]
    loss: Float[np.ndarray, " T"]


class ReducedStart(NamedTuple):
    """What `reduced_flow` starts from: A(0) and ν² − ‖Ω‖²."""

    matrix: Float[np.ndarray, "D D"]
    imbalance: float


class DropTime(NamedTuple):
    """Mean and standard deviation of a drop time over random initial weights."""

    mean: float
    standard_deviation: float


class _Valley(NamedTuple):
    """The quadratic loss around its minimum: E(a) = curvature(a* − a), in either coordinates."""

    optimum: np.ndarray
    curvature: Callable[[np.ndarray], np.ndarray]

    def excess(self, a: np.ndarray) -> float:
        gap = a - self.optimum
        return float(np.sum(gap * self.curvature(gap)))


def reduced_start(v: PerHead, U: KeyQueries) -> ReducedStart:
    """The exact start of `reduced_flow`, A = Σ v_h U_h and |v|² − ‖U‖², for parallel heads.

    **Example:**

    ```pycon
    >>> v = np.array([0.013, 0.024])
    >>> start = icl.theory.reduced_start(v, U=v[:, None, None] * np.eye(2))
    >>> start.matrix
    array([[0.000745, 0.      ],
           [0.      , 0.000745]])
    >>> round(start.imbalance, 6), round(float(v @ v - 2 * v @ v), 6)
    (-0.000745, -0.000745)
    ```
    """
    v, U = np.asarray(v, dtype=np.float64), np.asarray(U, dtype=np.float64)
    stacked = np.concatenate([v[:, None], U.reshape(len(v), -1)], axis=1)
    sizes = np.linalg.svd(stacked, compute_uv=False)
    if len(sizes) > 1 and sizes[1] > _PARALLEL * sizes[0]:
        raise Refusal(
            "The heads (v_h, U_h) are not multiples of one another: the reduced flow is exact only "
            "if they are. For small weights of any shape use `growing_start`."
        )
    return ReducedStart(np.einsum("h,hde->de", v, U), float(np.sum(v**2) - np.sum(U**2)))


def growing_start(
    task: LinearRegression, v: PerHead, U: KeyQueries, normaliser: Normaliser = "context"
) -> ReducedStart:
    """The start that small weights of any shape are equivalent to: A(0) = (Σ p_h²) Ê, balanced.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=4, scale=1e-3)
    >>> start = icl.theory.growing_start(task, model.circuits.v, model.circuits.U)
    >>> flow = icl.theory.reduced_flow(task, np.array([0.0, 20.0, 30.0]), *start)
    >>> flow.loss.round(3)
    array([1.   , 0.263, 0.132])
    ```
    """
    _, direction = unstable_direction(task, normaliser)
    size = float(np.sum(growing_amplitudes(task, v, U, normaliser) ** 2))
    return ReducedStart(size * direction, 0.0)


def reduced_flow(
    task: LinearRegression,
    times: Times,
    start: Float[ArrayLike, "*shape"],
    imbalance: float = 0.0,
    normaliser: Normaliser = "context",
) -> ReducedFlow:
    """Integrates the reduced ODE of merged attention, τ ν̇ = ⟨Ω, E⟩, τ Ω̇ = ν E with A = νΩ.

    **Arguments:**

    - `times`: when to report, increasing, from 0 up.
    - `start`: A(0) as a (D, D) matrix, for any task; or its D components in the common eigenbasis
      of Λ and M (eigenvalues of Λ from the largest down), for tasks that have one.
    - `imbalance`: ν² − ‖Ω‖², 0 for balanced weights. A start at A = 0 needs it positive.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> times = np.array([0.0, 10.0, 20.0, 80.0])
    >>> flow = icl.theory.reduced_flow(task, times, start=1e-4 * np.eye(2))
    >>> flow.loss.round(3)
    array([1.   , 0.787, 0.141, 0.13 ])
    >>> flow.matrix[-1].round(3)
    array([[1.471, 0.   ],
           [0.   , 2.128]])
    >>> icl.theory.optimal_matrix(task).round(3)
    array([[1.471, 0.   ],
           [0.   , 2.128]])
    ```
    """
    times = check_times(times)
    valley = _valley(task, np.ndim(start), normaliser)
    solution = _follow(valley, start, imbalance, times[-1], t_eval=times)
    matrix = (solution.y[0] * solution.y[1:]).T.reshape(-1, *valley.optimum.shape)
    floor = optimal_loss(task, normaliser)
    return ReducedFlow(times, matrix, floor + np.asarray([valley.excess(a) for a in matrix]))


def drop_constant(
    task: LinearRegression, fraction: float = 0.5, normaliser: Normaliser = "context"
) -> float:
    """K_f of `drop_time`, from one integration of the flow that leaves the origin along Ê.

    White inputs, M = I: K_f = ln(x/(1−x)) + ln(√D a*), x = 1 − √(1 − f).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.5, 0.5], context=20)
    >>> round(icl.theory.drop_constant(task), 4)
    0.0186
    >>> # The formula for white inputs.
    >>> x, a = 1 - np.sqrt(0.5), icl.theory.optimal_matrix(task)[0, 0]
    >>> round(float(np.log(x / (1 - x)) + np.log(np.sqrt(2) * a)), 4)
    0.0186
    ```
    """
    left = 1 - check_fraction(fraction)
    rate, direction = unstable_direction(task, normaliser)
    if commute(task):
        valley = _valley(task, 1, normaliser)
        direction = aligned_moments(task, normaliser).drive / rate
    else:
        valley = _valley(task, 2, normaliser)
    size = _SMALL * float(np.linalg.norm(valley.optimum))
    target = left * valley.excess(np.zeros_like(valley.optimum))

    def crossing(_, state):
        return valley.excess((state[0] * state[1:]).reshape(valley.optimum.shape)) - target

    crossing.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    # The event ends the integration; the end of the interval is never reached.
    solution = _follow(valley, size * direction, 0.0, 1e12 / rate, events=crossing)
    return float(2 * rate * solution.t_events[0][0] + np.log(size))


def drop_time(
    task: LinearRegression,
    v: PerHead,
    U: KeyQueries,
    fraction: float = 0.5,
    normaliser: Normaliser = "context",
) -> float:
    """When a fraction f of L(0) − L* is gone, from the initial weights alone.

    t_f = (τ/2g) [ln(1/Σ p_h²) + K_f], with a relative error that vanishes with the weights.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=4, scale=1e-3)
    >>> v, U = model.circuits.v, model.circuits.U
    >>> round(icl.theory.drop_time(task, v, U), 2)
    17.48
    >>> # Ten times smaller weights grow for ln(10)/g longer.
    >>> round(icl.theory.drop_time(task, v / 10, U / 10), 2)
    23.32
    >>> round(float(np.log(10)) / icl.theory.growth_rate(task), 2)
    5.84
    ```
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

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> drop = icl.theory.gaussian_drop_time(task, heads=4, scale=1e-3)
    >>> round(drop.mean, 2), round(drop.standard_deviation, 2)
    (17.08, 1.02)
    ```
    """
    check_whole("heads", heads)
    check_positive("scale", scale)
    rate = 2 * growth_rate(task, normaliser)
    log_size = 2 * np.log(scale) + scipy.special.digamma(heads / 2)
    return DropTime(
        float((drop_constant(task, fraction, normaliser) - log_size) / rate),
        float(np.sqrt(scipy.special.polygamma(1, heads / 2)) / rate),
    )


def tail_rates(
    task: LinearRegression, aligned: bool = True, normaliser: Normaliser = "context"
) -> Float[np.ndarray, " K"]:
    """Rates of approach of balanced A to A*, in 1/τ and increasing; the loss decays at twice these.

    They are the eigenvalues of (‖A*‖ I + vec A* vec A*ᵀ/‖A*‖)(C ⊗ Λ).

    **Arguments:**

    - `aligned`: only the D rates of motion within the common eigenbasis of Λ and M, the ones that
      small weights excite; otherwise all D² of them, for any task.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> icl.theory.tail_rates(task).round(3)
    array([0.278, 0.886])
    >>> icl.theory.tail_rates(task, aligned=False).round(3)
    array([0.278, 0.292, 0.422, 0.886])
    >>> # The loss decays at twice the smallest one.
    >>> loss = icl.theory.reduced_flow(task, np.array([0.0, 30.0, 31.0]), 0.1 * np.eye(2)).loss
    >>> floor = icl.theory.optimal_loss(task)
    >>> round(float(np.log((loss[1] - floor) / (loss[2] - floor))) / 2, 3)
    0.278
    ```
    """
    if aligned:
        spectrum = aligned_moments(task, normaliser)
        optimum, curvature = spectrum.optimum, np.diag(spectrum.curvature)
    else:
        m = moments(task, normaliser)
        optimum = optimal_matrix(task, normaliser).ravel()
        curvature = np.kron(m.second_moment, m.covariance)
    size = np.linalg.norm(optimum)
    # A product of two symmetric matrices: as a generalised problem, with the first one inverted.
    inverse_gain = (np.eye(len(optimum)) - np.outer(optimum, optimum) / (2 * size**2)) / size
    return scipy.linalg.eigh(curvature, inverse_gain, eigvals_only=True)


def _valley(task: LinearRegression, ndim: int, normaliser: Normaliser) -> _Valley:
    """The loss in the eigenbasis for a start with one axis, as a matrix for two."""
    if ndim == 1:
        aligned = aligned_moments(task, normaliser)
        return _Valley(aligned.optimum, lambda gap: aligned.curvature * gap)
    if ndim == 2:
        m = moments(task, normaliser)
        optimum = optimal_matrix(task, normaliser)
        return _Valley(optimum, lambda gap: m.second_moment @ gap @ m.covariance)
    raise Refusal(f"`start` has {ndim} axes: must be (D, D), or (D,) in the eigenbasis.")


def _follow(valley: _Valley, start: ArrayLike, imbalance: float, end: float, **options):
    """(ν, Ω) as one vector along the flow from νΩ = `start` with ν² − ‖Ω‖² = `imbalance`."""
    state, shape = _split(valley, start, imbalance), valley.optimum.shape

    def velocity(_, state):
        nu, omega = state[0], state[1:].reshape(shape)
        force = valley.curvature(valley.optimum - nu * omega)
        return np.concatenate([[np.sum(omega * force)], (nu * force).ravel()])

    # Small weights decide how long the plateau lasts: the absolute tolerance follows the start.
    options |= {"rtol": 1e-11, "atol": 1e-13 * np.linalg.norm(state)}
    return integrate("The reduced flow", velocity, state, end, "DOP853", **options)


def _split(valley: _Valley, start: ArrayLike, imbalance: float) -> np.ndarray:
    """(ν, Ω) with νΩ = `start` and ν² − ‖Ω‖² = `imbalance`, as one vector."""
    start = np.asarray(start, dtype=np.float64)
    if start.shape != valley.optimum.shape:
        raise Refusal(f"`start` has shape {start.shape}: must be {valley.optimum.shape}.")
    size = np.linalg.norm(start)
    if size == 0 and not imbalance > 0:
        raise Refusal(
            f"`start` is zero and `imbalance` = {imbalance}: the flow would not move; give a start "
            "that is not zero or a positive imbalance."
        )
    root = np.hypot(imbalance, 2 * size)
    # Of the two equal forms of ν², the one that adds.
    square = (root + imbalance) / 2 if imbalance >= 0 else 2 * size**2 / (root - imbalance)
    nu = np.sqrt(square)
    return np.concatenate([[nu], (start / nu).ravel()])
