"""Approximate dynamics of emergence: a head alone with its own task (arXiv 2402.19442, Figure 3).

Early in training the head with the largest weight on a task takes it. Without all other heads two
equations for its ω and μ remain; and where μ follows ω, at its best value μ = ω/(ω² + c),
c = (φ/L)e^{dω²}, one remains:

    ω̇ = (2λ/√E) ω² c (1 − dω²)/(ω² + c)².

It is slow, ∝ ω²L/φ, then fast, then slow again near the fixed point d^−½. Derived in
docs/theory/multitask.md.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from .._check import (
    HeadsLike,
    TasksLike,
    check_fractions,
    check_heads,
    check_numbers,
    check_per_task,
    check_times,
    check_whole,
)
from .._integrate import first_times, integrate
from ._blocks import Blocks, Tasks
from ._solutions import gradient_flow_limit
from ._spectral_flow import phase_times

PerTask = Float[np.ndarray, " I"]
AnyTasks = Sequence[float] | Float[np.ndarray, "*T I"]


class OwnHeads(NamedTuple):
    """ω and μ of the one head of each task, and the losses of all tasks, along a flow."""

    times: Float[np.ndarray, " T"]
    omega: Float[np.ndarray, "T I"]
    mu: Float[np.ndarray, "T I"]
    losses: Float[np.ndarray, "T I"]

    @property
    def loss(self) -> Float[np.ndarray, " T"]:
        """The total loss."""
        return np.sum(self.losses, 1)


class PhaseTimes(NamedTuple):
    """When the loss has fallen by given fractions of its way, by three descriptions.

    - `full`: all heads and tasks (`phase_times`).
    - `own_heads`: each head alone with its own task.
    - `emergence`: the same with μ at its best from t = 0. It is early by the time that μ needs to
      get there; it predicts differences between fractions.
    """

    full: Float[np.ndarray, " F"]
    own_heads: Float[np.ndarray, " F"]
    emergence: Float[np.ndarray, " F"]


def own_head_flow(
    task: Tasks,
    times: Sequence[float] | Float[np.ndarray, " T"],
    omega: TasksLike,
    mu: TasksLike,
    width: int,
) -> OwnHeads:
    """Head i alone with task i, for every i: positive ω_i and μ_i from those at t = 0.

    ω̇/ω = (2λ/√E)[μ(1 − μω) − cdωμ²] and μ̇/μ = 2λd[ω(1 − μω) − cμ], c = (φ/L)e^{dω²}.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> flow = icl.theory.multitask.own_head_flow(
    ...     task, [0.0, 100.0, 1000.0], omega=[0.01, 0.02], mu=[0.1, 0.1], width=20
    ... )
    >>> flow.omega.round(3)
    array([[0.01 , 0.02 ],
           [0.035, 0.268],
           [0.316, 0.316]])
    >>> flow.loss.round(3)
    array([1.994, 1.348, 0.748])
    >>> round(icl.theory.multitask.gradient_flow_limit(task).loss, 3)
    0.748
    ```
    """
    times, blocks, width = check_times(times), Blocks.of(task), check_whole("width", width)
    omega, mu = check_per_task("omega", omega, blocks.count), check_per_task("mu", mu, blocks.count)
    return _own_heads(times, _pair(omega, mu, blocks, width, float(times[-1])), blocks)


def quasi_stationary_mu(task: Tasks, omega: AnyTasks) -> Float[np.ndarray, "*T I"]:
    """The best μ of a head alone with its task: ω/(ω² + (φ/L)e^{dω²}).

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> icl.theory.multitask.quasi_stationary_mu(task, np.array([0.1, 10**-0.5])).round(3)
    array([2.914, 1.979])
    >>> # At the fixed point it is the weight of the limit.
    >>> np.diag(icl.theory.multitask.limit_heads(task)[1]).round(3)
    array([1.979, 1.979])
    ```
    """
    blocks = Blocks.of(task)
    return _quasi_stationary(_check_omega(omega, blocks), blocks)


def emergence_velocity(task: Tasks, omega: AnyTasks, width: int) -> Float[np.ndarray, "*T I"]:
    """(2λ/√E) ω² c (1 − dω²)/(ω² + c)², the emergence equation (arXiv 2402.19442, Figure 3c).

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10], [0.1], [0.1], length=50)
    >>> omega = np.array([[0.01], [0.1], [10**-0.5]])
    >>> icl.theory.multitask.emergence_velocity(task, omega, width=20).round(5)
    array([[0.0002 ],
           [0.00831],
           [0.     ]])
    ```
    """
    blocks, width = Blocks.of(task), check_whole("width", width)
    return _velocity(_check_omega(omega, blocks), blocks, width)


def emergence_estimate(task: Tasks, omega: TasksLike, width: int) -> PerTask:
    """√E φ/(2λLω): when ω̇ = (2λL/φ√E)ω², the early equation, diverges; about when losses fall.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10], [0.1], [0.1], length=50)
    >>> (time,) = icl.theory.multitask.emergence_estimate(task, [0.01], width=20)
    >>> round(float(time), 2)
    49.19
    >>> times = [0.0, time, 2 * time]
    >>> flow = icl.theory.multitask.emergence_flow(task, times, omega=[0.01], width=20)
    >>> flow.loss.round(3)
    array([0.995, 0.725, 0.375])
    ```
    """
    blocks, width = Blocks.of(task), check_whole("width", width)
    omega = check_per_task("omega", omega, blocks.count)
    return width**0.5 * blocks.phi / (2 * blocks.signal * blocks.length * omega)


def emergence_flow(
    task: Tasks, times: Sequence[float] | Float[np.ndarray, " T"], omega: TasksLike, width: int
) -> OwnHeads:
    """Positive ω_i by the emergence equation, from those at t = 0.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10], [0.1], [0.1], length=50)
    >>> flow = icl.theory.multitask.emergence_flow(task, [0.0, 30.0, 60.0, 300.0], [0.01], width=20)
    >>> flow.omega[:, 0].round(3)
    array([0.01 , 0.025, 0.186, 0.316])
    >>> flow.loss.round(3)
    array([0.995, 0.973, 0.473, 0.374])
    ```
    """
    times, blocks, width = check_times(times), Blocks.of(task), check_whole("width", width)
    omega = check_per_task("omega", omega, blocks.count)
    return _own_heads(times, _alone(omega, blocks, width, float(times[-1])), blocks)


def approximate_phase_times(
    task: Tasks,
    omega: HeadsLike,
    mu: HeadsLike,
    width: int,
    fractions: Sequence[float] = (0.05, 0.5, 0.95),
) -> PhaseTimes:
    """Times of `phase_times`, `own_head_flow` and `emergence_flow` from a balanced start.

    Head i takes task i: ω_ii must be the largest in its column, H ≥ I. For the emergence equation
    the way begins at λd, the loss of predicting zero; for the others at their loss at t = 0. It
    ends at `gradient_flow_limit` for all.

    **Example:**

    ```pycon
    >>> task = icl.theory.multitask.Blocks([10, 10], [0.1, 0.1], [0.1, 0.1], length=50)
    >>> omega = mu = 0.005 + 0.02 * np.eye(2)
    >>> times = icl.theory.multitask.approximate_phase_times(task, omega, mu, width=20)
    >>> times.full.round(1)
    array([ 61.1,  85.8, 104.5])
    >>> times.own_heads.round(1)
    array([ 60.8,  85.6, 104.2])
    >>> times.emergence.round(1)
    array([ 1.4, 20.1, 38.6])
    ```
    """
    blocks, width = Blocks.of(task), check_whole("width", width)
    wanted = check_fractions(fractions)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    count = blocks.count
    if len(omega) < count or np.any(np.argmax(omega, 0) != np.arange(count)):
        raise Refusal("`omega` must have head i ahead of all others on task i.")
    full = phase_times(blocks, omega, mu, width, wanted.tolist())
    omega, mu = np.diag(omega[:count]).copy(), np.diag(mu[:count]).copy()
    pair = lambda end: _pair(omega, mu, blocks, width, end)
    alone = lambda end: _alone(omega, blocks, width, end)
    start = float(own_head_flow(blocks, [0.0], omega, mu, width).loss[0])
    last = gradient_flow_limit(blocks).loss
    complaint = (
        f"`fractions` = {wanted.tolist()}: must be reached; heads alone have not by t = {{end:g}}."
    )

    def when(solve: Callable, start: float) -> np.ndarray:
        def loss_until(end: float) -> Callable[[float], float]:
            solution = solve(end)
            return lambda time: float(_own_heads(np.array([time]), solution, blocks).loss[0])

        # The full flow is a good guess of how far to follow the others.
        return first_times(loss_until, (start, last), wanted, float(full.max()), complaint)

    return PhaseTimes(full, when(pair, start), when(alone, float(np.sum(blocks.power))))


def _pair(omega: PerTask, mu: PerTask, blocks: Blocks, width: int, end: float):
    """log ω and log μ of heads alone with their tasks, as functions of time."""

    def velocity(_, logs):
        omega, mu = np.exp(logs).reshape(2, -1)
        missed, cost = 1 - mu * omega, _cost(omega, blocks)
        pull = mu * missed - cost * blocks.sizes * omega * mu**2
        gain = omega * missed - cost * mu
        by_omega, by_mu = 2 * blocks.signal / width**0.5 * pull, 2 * blocks.power * gain
        return np.concatenate([by_omega, by_mu])

    return _follow_logs(velocity, np.concatenate([omega, mu]), end)


def _alone(omega: PerTask, blocks: Blocks, width: int, end: float):
    """log ω and log μ by the emergence equation, as functions of time."""

    def velocity(_, log):
        return _velocity(np.exp(log), blocks, width) / np.exp(log)

    solution = _follow_logs(velocity, omega, end)

    def both(times: np.ndarray) -> np.ndarray:
        log = solution(times)
        return np.vstack([log, np.log(_quasi_stationary(np.exp(log.T), blocks)).T])

    return both


def _follow_logs(velocity, start: np.ndarray, end: float):
    """The logarithms of weights along a flow: positive weights stay positive."""
    options = {"dense_output": True, "rtol": 1e-10, "atol": 1e-10}
    return integrate("The flow of heads alone", velocity, np.log(start), end, **options).sol


def _own_heads(times: np.ndarray, solution, blocks: Blocks) -> OwnHeads:
    omega, mu = np.exp(solution(times)).T.reshape(len(times), 2, -1).swapaxes(0, 1)
    spread = _cost(omega, blocks) * mu**2
    return OwnHeads(times, omega, mu, blocks.power * ((1 - mu * omega) ** 2 + spread))


def _velocity(omega: np.ndarray, blocks: Blocks, width: int) -> np.ndarray:
    cost = _cost(omega, blocks)
    rest = cost * (1 - blocks.sizes * omega**2) / (omega**2 + cost) ** 2
    return 2 * blocks.signal / width**0.5 * omega**2 * rest


def _quasi_stationary(omega: np.ndarray, blocks: Blocks) -> np.ndarray:
    return omega / (omega**2 + _cost(omega, blocks))


def _check_omega(omega: AnyTasks, blocks: Blocks) -> np.ndarray:
    found = check_numbers("omega", omega)
    if found.shape[-1:] != blocks.sizes.shape:
        raise Refusal(
            f"`omega` has shape {found.shape}: the last axis must be the {blocks.count} tasks."
        )
    return found


def _cost(omega: np.ndarray, blocks: Blocks) -> np.ndarray:
    return blocks.phi / blocks.length * np.exp(blocks.sizes * omega**2)
