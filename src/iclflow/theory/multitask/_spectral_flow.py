"""Gradient flow of the factors of decomposable heads, in their singular values alone.

Key-query is KᵀQ/√E and output-value OV, with singular values ω_hj = k_hj q_hj/√E and
μ_hi = o_hi v_hi in frames that do not move. The imbalances Δ = k² − q² and o² − v² are conserved.
With Ẇ = −½ ∂L/∂W for every factor, and ω = (Δ/2√E) sinh θ or, in balance, ω = ±exp θ,

    θ̇_hj = −(1/√E d_j) ∂L/∂ω_hj,     and for μ     θ̇_hi = −∂L/∂μ_hi.

In balance no singular value changes its sign; the smallest imbalance lets it.

While a task is not learned, ω̇ = aωμ and μ̇ = bωμ for every head, with a = 2λ/√E and b = 2λd: bω − aμ
is conserved, and both diverge after a time that is one over the logarithmic mean of bω and aμ at
t = 0. The head with the shortest time wins the task. Derived in docs/theory/multitask.md.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import ArrayLike, Float, Int

from ...errors import Refusal
from .._check import (
    HeadsLike,
    check_fractions,
    check_heads,
    check_imbalance,
    check_owners,
    check_times,
    check_whole,
)
from .._integrate import first_times, integrate
from ._blocks import Blocks, Tasks
from ._loss import Heads, quick_loss, slopes_at
from ._solutions import Solution, gradient_flow_limit, single_head

# Relative, of the logarithm of a singular value: losses are right to 1e-8.
_TOLERANCE = 1e-10
# Where bω and aμ differ by less than this share, their logarithmic mean is their mean.
_EQUAL = 1e-6


class SpectralFlow(NamedTuple):
    """ω, μ and the losses of all tasks along a flow."""

    times: Float[np.ndarray, " T"]
    omega: Float[np.ndarray, "T H I"]
    mu: Float[np.ndarray, "T H I"]
    losses: Float[np.ndarray, "T I"]

    @property
    def loss(self) -> Float[np.ndarray, " T"]:
        """The total loss."""
        return np.sum(self.losses, 1)


class _Coordinate(NamedTuple):
    """A singular value as a function of the coordinate θ in which the flow is simple."""

    start: np.ndarray
    value: Callable[[np.ndarray], np.ndarray]

    @staticmethod
    def of(name: str, at: np.ndarray, imbalance: np.ndarray, root: float) -> "_Coordinate":
        balanced = imbalance == 0
        if np.any(balanced & (at == 0)):
            raise Refusal(f"`{name}` has a zero without imbalance: it would never move.")
        scale = np.where(balanced, np.sign(at), np.abs(imbalance) / (2 * root))
        safe = np.where(balanced, np.abs(at), 1.0)
        start = np.where(balanced, np.log(safe), np.arcsinh(at / np.where(balanced, 1.0, scale)))

        def value(theta: np.ndarray) -> np.ndarray:
            # Each function sees only its own entries: on the others it may overflow.
            grown, bent = np.where(balanced, theta, 0), np.where(balanced, 0, theta)
            return scale * np.where(balanced, np.exp(grown), np.sinh(bent))

        return _Coordinate(start, value)


def spectral_flow(
    task: Tasks,
    times: Sequence[float] | Float[np.ndarray, " T"],
    omega: HeadsLike,
    mu: HeadsLike,
    width: int,
    key_imbalance: ArrayLike = 0.0,
    value_imbalance: ArrayLike = 0.0,
) -> SpectralFlow:
    """Singular values at `times` from those at t = 0, by the module's equations for θ̇.

    **Arguments:**

    - `omega`, `mu`: at t = 0. In balance they must not be zero: a zero never moves.
    - `width`: E, the width of keys and values.
    - `key_imbalance`, `value_imbalance`: k² − q² and o² − v², one number or one for each ω and μ.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> omega = mu = 0.01 + 0.02 * np.eye(2)
    >>> flow = icl.theory.multitask.spectral_flow(task, [0.0, 50.0, 1000.0], omega, mu, width=20)
    >>> flow.loss.round(3)
    array([1.996, 1.916, 0.749])
    >>> flow.omega[-1].round(3)
    array([[0.316, 0.005],
           [0.005, 0.316]])
    ```
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
    """When a balanced start has made given fractions of its way to `gradient_flow_limit`, in loss.

    Warm-up ends at 5 % and emergence at 95 %; convergence is the rest.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> omega = mu = 0.01 + 0.02 * np.eye(2)
    >>> times = icl.theory.multitask.phase_times(task, omega, mu, width=20)
    >>> times.round(2)
    array([46.86, 70.68, 89.28])
    >>> # By then the loss has fallen by 5, 50 and 95 %.
    >>> loss = icl.theory.multitask.spectral_flow(task, [0.0, *times], omega, mu, width=20).loss
    >>> last = icl.theory.multitask.gradient_flow_limit(task).loss
    >>> ((loss[0] - loss[1:]) / (loss[0] - last)).round(3)
    array([0.05, 0.5 , 0.95])
    ```
    """
    blocks, width = Blocks.of(task), check_whole("width", width)
    wanted = check_fractions(fractions)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    first, last = np.sum(quick_loss(omega, mu, blocks)), gradient_flow_limit(blocks).loss
    even = np.zeros_like(omega)
    ways = (_Coordinate.of("omega", omega, even, 1.0), _Coordinate.of("mu", mu, even, 1.0))

    def loss_until(end: float) -> Callable[[float], float]:
        solution = _follow(ways, omega.shape, blocks, width, end)
        values_at = lambda time: _values_at(solution, np.array([time]), ways, omega.shape, blocks)
        return lambda time: float(values_at(time).loss[0])

    complaint = (
        f"`fractions` = {wanted.tolist()}: must be reached; after t = {{end:g}} the flow has made "
        "{gone:.3g} of the way to the loss of one head per task."
    )
    return first_times(loss_until, (float(first), last), wanted, 10.0, complaint)


def head_starts(task: Tasks, omega: HeadsLike, mu: HeadsLike, width: int) -> Heads:
    """(bω − aμ)/ln(bω/aμ): one over the time in which a head alone with a task would diverge.

    **Arguments:**

    - `omega`, `mu`: at t = 0, all positive.
    - `width`: E, the width of keys and values.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> omega = mu = np.array([[0.02, 0.01], [0.01, 0.015]])
    >>> rates = icl.theory.multitask.head_starts(task, omega, mu, width=20)
    >>> rates.round(4)
    array([[0.0103, 0.0051],
           [0.0051, 0.0077]])
    >>> # Head 0 wins task 0, head 1 task 1.
    >>> flow = icl.theory.multitask.spectral_flow(task, [0.0, 1000.0], omega, mu, width=20)
    >>> flow.mu[-1].round(2)
    array([[1.98, 0.  ],
           [0.  , 1.98]])
    ```
    """
    blocks, width = Blocks.of(task), check_whole("width", width)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    if not (np.all(omega > 0) and np.all(mu > 0)):
        raise Refusal("`omega` and `mu` must be positive: other heads do not grow.")
    attend = 2 * blocks.power * omega
    read = 2 * blocks.signal / width**0.5 * mu
    # The noise of μ is neglected: it slows down all heads of a task alike.
    near = np.abs(attend - read) <= _EQUAL * attend
    ratio = np.where(near, 2.0, attend / read)
    return np.where(near, (attend + read) / 2, (attend - read) / np.log(ratio))


def divided_limit(task: Tasks, owners: Sequence[int] | Int[np.ndarray, " I"]) -> Solution:
    """`single_head` of the tasks of each head: where balanced starts end if `owners[i]` has task i.

    Tasks of one head share its score variance of 1 by water-filling; heads of different tasks are
    orthogonal and do not interact. With one task per head this is `gradient_flow_limit`.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10, 10], [0.1] * 3, [0.1] * 3, length=50)
    >>> icl.theory.multitask.divided_limit(task, owners=[0, 0, 1]).shares.round(4)
    array([0.1839, 0.1839, 0.3679])
    >>> round(icl.theory.multitask.divided_limit(task, owners=[0, 1, 2]).loss, 4)
    1.1227
    >>> round(icl.theory.multitask.gradient_flow_limit(task).loss, 4)
    1.1227
    ```
    """
    blocks = Blocks.of(task)
    owners = check_owners(owners, blocks.count)
    shares, losses = np.empty_like(blocks.sizes), np.empty_like(blocks.sizes)
    for head in np.unique(owners):
        own = owners == head
        found = single_head(
            Blocks(blocks.sizes[own], blocks.signal[own], blocks.noise[own], blocks.length)
        )
        shares[own], losses[own] = found.shares, found.losses
    return Solution(shares, losses)


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
