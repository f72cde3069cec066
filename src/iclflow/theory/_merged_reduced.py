"""Training of merged attention for a general covariance: an exact reduced ODE.

Heads that are multiples of one another, v_h = ρ_h ν and U_h = ρ_h Ω with |ρ| = 1, stay so. Then
A = νΩ, τ ν̇ = ⟨Ω, E⟩, τ Ω̇ = ν E, and ν² − ‖Ω‖² is kept: exact, for any Λ, M and any number of
heads. Balanced (ν = ‖Ω‖) it reads τ Ȧ = ‖A‖E + A⟨A, E⟩/‖A‖. Where Λ and M commute and Ω is
diagonal in their eigenbasis, D numbers remain. Times are in units of τ. Derived in
docs/theory/linear.md.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float, Real

from ..errors import Refusal
from ..tasks import LinearRegression
from ._integrate import integrate
from ._merged_dynamics import growing_amplitudes
from ._merged_landscape import check_heads, unstable_direction
from ._moments import Normaliser, aligned_moments, moments
from ._optimum import optimal_loss, optimal_matrix


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


class Valley(NamedTuple):
    """The quadratic loss around its minimum: E(a) = curvature(a* − a), in either coordinates."""

    optimum: np.ndarray
    curvature: Callable[[np.ndarray], np.ndarray]

    def excess(self, a: np.ndarray) -> float:
        gap = a - self.optimum
        return float(np.sum(gap * self.curvature(gap)))


def reduced_start(v: Float[ArrayLike, " H"], U: Float[ArrayLike, "H D D"]) -> ReducedStart:
    """The exact start of `reduced_flow` for heads that are multiples of one another."""
    v, U = np.asarray(v, dtype=np.float64), np.asarray(U, dtype=np.float64)
    stacked = np.concatenate([v[:, None], U.reshape(len(v), -1)], axis=1)
    sizes = np.linalg.svd(stacked, compute_uv=False)
    if len(sizes) > 1 and sizes[1] > 1e-10 * sizes[0]:
        raise Refusal(
            "The heads (v_h, U_h) are not multiples of one another: the reduced flow is exact only "
            "if they are. For small weights of any shape use `growing_start`."
        )
    return ReducedStart(np.einsum("h,hde->de", v, U), float(np.sum(v**2) - np.sum(U**2)))


def growing_start(
    task: LinearRegression,
    v: Float[ArrayLike, " H"],
    U: Float[ArrayLike, "H D D"],
    normaliser: Normaliser = "context",
) -> ReducedStart:
    """The start that small weights of any shape are equivalent to: A(0) = (Σ p_h²) Ê, balanced."""
    v, U = check_heads(task, v, U)
    _, direction = unstable_direction(task, normaliser)
    size = float(np.sum(growing_amplitudes(task, v, U, normaliser) ** 2))
    return ReducedStart(size * direction, 0.0)


def reduced_flow(
    task: LinearRegression,
    times: Real[ArrayLike, " T"],
    start: Float[ArrayLike, "*shape"],
    imbalance: float = 0.0,
    normaliser: Normaliser = "context",
) -> ReducedFlow:
    """Integrates the reduced ODE of merged attention.

    **Arguments:**

    - `times`: when to report, increasing, from 0 up.
    - `start`: A(0) as a (D, D) matrix, for any task; or its D components in the common eigenbasis
      of Λ and M (eigenvalues of Λ from the largest down), for tasks that have one.
    - `imbalance`: ν² − ‖Ω‖², 0 for balanced weights. A start at A = 0 needs it positive.
    """
    times = np.asarray(times, dtype=np.float64)
    if times.ndim != 1 or not len(times) or times[0] < 0 or np.any(np.diff(times) < 0):
        raise Refusal("`times` must be a vector that does not decrease, from 0 up.")
    valley = valley_of(task, np.ndim(start), normaliser)
    state = split_start(valley, start, imbalance)
    solution = integrate_reduced(valley, state, times[-1], t_eval=times)
    matrix = (solution.y[0] * solution.y[1:]).T.reshape(-1, *valley.optimum.shape)
    floor = optimal_loss(task, normaliser)
    return ReducedFlow(times, matrix, floor + np.asarray([valley.excess(a) for a in matrix]))


def valley_of(task: LinearRegression, ndim: int, normaliser: Normaliser) -> Valley:
    if ndim == 1:
        aligned = aligned_moments(task, normaliser)
        return Valley(aligned.optimum, lambda gap: aligned.curvature * gap)
    if ndim == 2:
        m = moments(task, normaliser)
        optimum = optimal_matrix(task, normaliser)
        return Valley(optimum, lambda gap: m.second_moment @ gap @ m.covariance)
    raise Refusal(f"`start` has {ndim} axes: must be (D, D), or (D,) in the eigenbasis.")


def split_start(valley: Valley, start, imbalance: float) -> np.ndarray:
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
    # Of the two equal forms, the one that adds.
    square = (root + imbalance) / 2 if imbalance >= 0 else 2 * size**2 / (root - imbalance)
    nu = np.sqrt(square)
    return np.concatenate([[nu], (start / nu).ravel()])


def integrate_reduced(valley: Valley, state: np.ndarray, end: float, **options):
    shape = valley.optimum.shape

    def velocity(_, state):
        nu, omega = state[0], state[1:].reshape(shape)
        force = valley.curvature(valley.optimum - nu * omega)
        return np.concatenate([[np.sum(omega * force)], (nu * force).ravel()])

    # On the plateau the small weights decide, so the absolute tolerance follows the start.
    return integrate(
        "The reduced flow",
        velocity,
        state,
        end,
        "DOP853",
        rtol=1e-11,
        atol=1e-13 * np.linalg.norm(state),
        **options,
    )
