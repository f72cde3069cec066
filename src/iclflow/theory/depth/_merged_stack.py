"""Stacks of merged layers Γ_l = v_lU_l from small weights: one layer after another.

Balanced weights on white inputs keep U_l ∝ I, and γ̇_l = 2√d γ_lF_l. All layers grow at the same
rate until the largest has made its step; then a fresh layer grows at 2√d E[((s + c)p_k − c)p_k]
beside k layers at their optimum. So the loss visits the levels 1, R_1, R_2, …, and stays at R_k for
a time that depends on the ratio of two initial steps. Derived in docs/theory/depth.md.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_times, check_whole
from .._integrate import integrate
from ._optimum import optimal_stack
from ._spectrum import Sizes, Spectrum
from ._stack import Steps, TimesLike, check_steps, residual, stack_force, stack_risk

_TOLERANCE: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-12}
# Steps of e⁵ are far beyond every optimum: a solver that tries larger ones is turned back the same.
_LARGE = 5.0
# A flow that has not made its drops after this many times its own estimate never will.
_PATIENCE = 20.0


@dataclass(frozen=True, eq=False)
class MergedLevels:
    """The staircase of merged layers from small unequal steps.

    - `levels`: R of the plateaus, 1, R_1, …, R_L.
    - `rates`: of growth of a fresh layer beside k = 0 … L − 1 learned ones.
    - `durations`: how long levels R_1 … R_{L−1} last, up to a constant each:
      ln(γ_k/γ_{k+1})_0 over the rate.
    """

    levels: Float[np.ndarray, " levels"]
    rates: Float[np.ndarray, " L"]
    durations: Float[np.ndarray, " plateaus"]


def merged_levels(task: LinearRegression | Sizes, steps: Steps) -> MergedLevels:
    """Levels, and how long each lasts, from small balanced layers with steps γ_l > 0 at t = 0.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> found = icl.theory.depth.merged_levels(task, [1e-4, 1e-7])
    >>> found.levels.round(6), found.rates.round(6), found.durations.round(4)
    (array([1.      , 0.230769, 0.072248]), array([4.472136, 0.846795]), array([8.1575]))

    ```
    """
    steps = _check_start(steps)
    levels = [1.0] + [optimal_stack(task, k + 1).risk for k in range(len(steps))]
    rates = np.array([fresh_layer_rate(task, k) for k in range(len(steps))])
    ratios = -np.diff(np.log(np.sort(steps)[::-1]))
    return MergedLevels(np.array(levels), rates, ratios / rates[1:])


def fresh_layer_rate(task: LinearRegression | Sizes, learned: int) -> float:
    """2√d·`speed`·E[((s + c)p_k − c)p_k]: how fast γ of a fresh merged layer grows beside k others.

    **Arguments:**

    - `learned`: k, the number of layers at their common optimum.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> round(icl.theory.depth.fresh_layer_rate(task, 1), 8)  # 2√d(m₃/m₂² − 1)
    0.84679497

    ```
    """
    spectrum, learned = Spectrum.of(task), check_whole("learned", learned, 0)
    best = optimal_stack(spectrum, learned).steps if learned else np.zeros(1)
    p, c = residual(spectrum, best), spectrum.cost
    drive = float(spectrum.mean(((spectrum.values + c) * p - c) * p))
    return float(2 * np.sqrt(Sizes.of(task).dim) * spectrum.speed * drive)


def merged_stack_flow(
    task: LinearRegression | Sizes, steps: Steps, times: TimesLike
) -> Float[np.ndarray, "T L"]:
    """γ_l(t) of balanced merged layers, γ̇_l = 2√d γ_l·`speed`·F_l, from γ_l > 0.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> icl.theory.depth.merged_stack_flow(task, [1e-4, 1e-7], [1.5, 30.0]).round(3)
    array([[0.074, 0.   ],
           [1.25 , 0.515]])

    ```
    """
    steps, times = _check_start(steps), check_times(times)
    found = _follow(task, steps, float(times[-1]), t_eval=times)
    return np.exp(found.y.T)


def merged_drop_times(task: LinearRegression | Sizes, steps: Steps) -> Float[np.ndarray, " L"]:
    """When R passes the middle between each level 1, R_1, …, R_L and the next, along the flow.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> icl.theory.depth.merged_drop_times(task, [1e-4, 1e-7]).round(4)
    array([ 1.8037, 10.2748])

    ```
    """
    spectrum, start = Spectrum.of(task), _check_start(steps)
    plan = merged_levels(task, start)
    middles = (plan.levels[1:] + plan.levels[:-1]) / 2
    estimate = np.sum(plan.durations) + np.sum(1 / plan.rates) - np.log(start.max()) / plan.rates[0]
    events = [_passing(spectrum, level) for level in middles]
    found = _follow(task, start, _PATIENCE * float(estimate), events=events)
    if not all(len(times) for times in found.t_events):
        raise Refusal("`steps` are too nearly equal: layers tie, and the loss stays above R_L.")
    return np.array([times[0] for times in found.t_events])


def _passing(spectrum: Spectrum, level: float):
    return lambda _, logs: stack_risk(spectrum, np.exp(logs)) - level


def _follow(task: LinearRegression | Sizes, steps: np.ndarray, end: float, **options):
    """The flow of ln γ_l: initial steps may be as small as 1e-300."""
    spectrum = Spectrum.of(task)
    factor = 2 * np.sqrt(Sizes.of(task).dim) * spectrum.speed
    velocity = lambda _, logs: factor * stack_force(spectrum, np.exp(np.minimum(logs, _LARGE)))
    return integrate(
        "The flow of merged layers",
        velocity,
        np.log(steps),
        end,
        **options,
        **_TOLERANCE,
    )


def _check_start(steps: Steps) -> np.ndarray:
    found = check_steps(steps)
    if not np.all(found > 0):
        raise Refusal(f"`steps` = {found.tolist()}: must be positive; a zero never moves.")
    return found
