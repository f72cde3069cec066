"""Gradient flow of the factors of decomposable heads, in their singular values alone.

Key-query is KᵀQ/√E and output-value OV, with singular values ω_hj = k_hj q_hj/√E and
μ_hi = o_hi v_hi in frames that do not move. The imbalances Δ = k² − q² and o² − v² are kept. With
Ẇ = −½ ∂L/∂W for every factor, and ω = (Δ/2√E) sinh θ or, in balance, ω = ±exp θ,

    θ̇_hj = −(1/√E d_j) ∂L/∂ω_hj,     and for μ     θ̇_hi = −∂L/∂μ_hi.

In balance no singular value changes its sign; the smallest imbalance lets it. Derived in
docs/theory/multitask.md.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float

from ...errors import Refusal
from .._check import check_times, check_whole
from .._integrate import integrate
from ._blocks import Blocks, Tasks
from ._check import (
    HeadsLike,
    check_fractions,
    check_heads,
    check_imbalance,
)
from ._first_times import first_times
from ._loss import quick_loss, slopes_at
from ._solutions import gradient_flow_limit

# Relative, of the logarithm of a singular value: losses are right to 1e-8.
_TOLERANCE = 1e-10


class SpectralFlow(NamedTuple):
    """Singular values and losses of all tasks along gradient flow."""

    times: Float[np.ndarray, " T"]
    omega: Float[np.ndarray, "T H I"]
    mu: Float[np.ndarray, "T H I"]
    losses: Float[np.ndarray, "T I"]

    @property
    def loss(self) -> Float[np.ndarray, " T"]:
        """The total loss."""
        return np.sum(self.losses, 1)


def spectral_flow(
    task: Tasks,
    times: Sequence[float] | Float[np.ndarray, " T"],
    omega: HeadsLike,
    mu: HeadsLike,
    width: int,
    key_imbalance: ArrayLike = 0.0,
    value_imbalance: ArrayLike = 0.0,
) -> SpectralFlow:
    """Singular values at `times`, from those at t = 0.

    **Arguments:**

    - `omega`, `mu`: at t = 0. Where there is balance they must not be zero: zeros would stay.
    - `width`: E, the width of keys and values.
    - `key_imbalance`, `value_imbalance`: k² − q² and o² − v², one number or one for each ω and μ.
    """
    times, blocks, width = check_times(times), Blocks.of(task), check_whole("width", width)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    keys = check_imbalance("key_imbalance", key_imbalance, omega.shape)
    values = check_imbalance("value_imbalance", value_imbalance, omega.shape)
    ways = (
        _Coordinate.of("omega", omega, keys, width**0.5),
        _Coordinate.of("mu", mu, values, 1.0),
    )
    solution = _follow(ways, omega.shape, blocks, width, float(times[-1]))
    return _values_at(solution, times, ways, omega.shape, blocks)


def phase_times(
    task: Tasks,
    omega: HeadsLike,
    mu: HeadsLike,
    width: int,
    fractions: Sequence[float] = (0.05, 0.5, 0.95),
) -> Float[np.ndarray, " F"]:
    """When a balanced start has made given fractions of the way from its loss to that of the limit.

    Warm-up ends at 5 % and emergence at 95 %; convergence is the rest.
    """
    blocks, width, wanted = (
        Blocks.of(task),
        check_whole("width", width),
        check_fractions(fractions),
    )
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    first, last = np.sum(quick_loss(omega, mu, blocks)), gradient_flow_limit(blocks).loss
    even = np.zeros_like(omega)
    ways = (_Coordinate.of("omega", omega, even, 1.0), _Coordinate.of("mu", mu, even, 1.0))

    def follow(end: float) -> Callable[[float], float]:
        solution = _follow(ways, omega.shape, blocks, width, end)

        def fraction_made(time: float) -> float:
            at = _values_at(solution, np.array([time]), ways, omega.shape, blocks)
            return float((first - at.loss[0]) / (first - last))

        return fraction_made

    complaint = lambda end, made: (
        f"`fractions` = {wanted.tolist()}: must be reached; after t = {end:g} the flow has "
        f"made {made:.3g} of the way to the loss of one head a task."
    )
    return first_times(follow, wanted, 10.0, complaint)


class _Coordinate(NamedTuple):
    """A singular value as a function of the coordinate θ in which the flow is simple."""

    start: np.ndarray
    value: Callable[[np.ndarray], np.ndarray]

    @staticmethod
    def of(name: str, at: np.ndarray, imbalance: np.ndarray, root: float) -> "_Coordinate":
        balanced = imbalance == 0
        if np.any(balanced & (at == 0)):
            raise Refusal(f"`{name}` has a zero without imbalance: it would stay for ever.")
        scale = np.where(balanced, np.sign(at), np.abs(imbalance) / (2 * root))
        safe = np.where(balanced, np.abs(at), 1.0)
        start = np.where(balanced, np.log(safe), np.arcsinh(at / np.where(balanced, 1.0, scale)))

        def value(theta: np.ndarray) -> np.ndarray:
            # Each where it is meant: the other may overflow.
            grown, bent = np.where(balanced, theta, 0), np.where(balanced, 0, theta)
            return scale * np.where(balanced, np.exp(grown), np.sinh(bent))

        return _Coordinate(start, value)


def _follow(ways, shape, blocks: Blocks, width: int, end: float):
    """The flow from 0 to `end`, as a function of time."""

    slopes, unit = slopes_at(blocks), width**0.5 * blocks.sizes

    def velocity(_, theta):
        omega, mu = (way.value(part.reshape(shape)) for way, part in zip(ways, np.split(theta, 2)))
        by_omega, by_mu = slopes(omega, mu)
        return -np.concatenate([(by_omega / unit).ravel(), by_mu.ravel()])

    start = np.concatenate([way.start.ravel() for way in ways])
    options = {"dense_output": True, "rtol": _TOLERANCE, "atol": _TOLERANCE}
    return integrate("The spectral flow", velocity, start, end, **options).sol


def _values_at(solution, times: np.ndarray, ways, shape, blocks: Blocks) -> SpectralFlow:
    theta = solution(times).T.reshape(len(times), 2, *shape)
    omega, mu = (np.stack([way.value(row) for row in theta[:, i]]) for i, way in enumerate(ways))
    losses = np.stack([quick_loss(w, m, blocks) for w, m in zip(omega, mu)])
    return SpectralFlow(times, omega, mu, losses)
