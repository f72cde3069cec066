"""How long nearly tied layers stay a loop: the plateau of untied layers, from their weights.

Layers that differ by δ follow the loop until differences have grown to order one. On the way the
mean obeys γ̇ = F(γ), and differences grow as e^∫κ(γ)dt, exactly to first order in δ; without noise
∫κ dt = ln(F(0)/F)/(2L − 1). Then the flow leaves γ° along a line through it. The two parts
together give t = κ⁻¹(ln 1/δ + K), with a number K that belongs to the direction of the differences.
Derived in docs/theory/depth.md.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import BeyondLimit, Refusal
from .._check import check_fraction, check_times
from .._integrate import integrate
from ._best_steps import local_minimum
from ._loop import loop_rates, tied_force, tied_loop
from ._optimum import stack_bound
from ._spectrum import ScalarTask, Spectrum
from ._stack import Steps, TimesLike, check_steps, stack_force, stack_risk

# Where linear growth is handed over to the flow: the error is of this order, rounding 1e-16 of it.
_SMALL = 1e-5
_TOLERANCE: dict[str, Any] = {"rtol": 1e-11, "atol": 1e-13}


class LoopEscape(NamedTuple):
    """The plateau of nearly tied layers.

    - `time`: when R has fallen by the given fraction of the way from the loop to the end.
    - `rate`: κ, in units of the task's flow; a spread δ costs ln(1/δ)/κ.
    - `constant`: K of t = κ⁻¹(ln 1/δ + K), δ the largest difference to the mean of the layers.
    - `levels`: R of the loop, and where the flow ends.
    """

    time: float
    rate: float
    constant: float
    levels: tuple[float, float]


def loop_escape(task: ScalarTask, steps: Steps, fraction: float = 0.5) -> LoopEscape:
    """When layers with nearly equal initial steps stop being a loop.

    Exact as δ → 0; the relative error is of the order δ. Spreads that are too large are refused.

    **Arguments:**

    - `steps`: γ_l at t = 0, not all equal, with a mean below γ°.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> found = icl.theory.depth.loop_escape(task, [1e-6, -1e-6])
    >>> round(found.constant, 4), round(found.time, 3)
    (-1.3813, 51.975)

    ```
    """
    spectrum, steps, fraction = Spectrum.of(task), check_steps(steps), check_fraction(fraction)
    layers, mean = len(steps), float(steps.mean())
    spread = float(np.max(np.abs(steps - mean)))
    if layers < 2 or spread == 0:
        raise Refusal("`steps` are equal: exactly tied layers stay a loop for ever.")
    loop = tied_loop(spectrum, layers)
    if not loop.rate > 0:
        raise Refusal("The loop is stable at this noise: layers become equal, and stay so.")
    if not mean < loop.step:
        raise Refusal(f"`steps` have the mean {mean:g}: must be below γ° = {loop.step:g}.")
    if len(set(steps.tolist())) < layers:
        raise Refusal("Two of `steps` are equal: those layers stay tied for ever.")
    grown = _growth(spectrum, layers, mean)
    fall, levels = _fall(spectrum, (steps - mean) / spread, loop.step, fraction)
    constant = loop.rate * fall - grown + np.log(_SMALL)
    rate = loop.rate * spectrum.speed
    if not constant > np.log(spread):
        raise BeyondLimit(
            f"`steps` differ by {spread:.3g}: too much for them to stay a loop at all."
        )
    return LoopEscape(float((constant - np.log(spread)) / rate), rate, float(constant), levels)


def stack_flow(
    task: ScalarTask, steps: Steps, times: TimesLike, tied: bool = False
) -> Float[np.ndarray, "T L"]:
    """γ_l(t) of Γ̇_l = −½ ∂L/∂Γ_l from Γ_l = γ_lI: γ̇_l = `speed`·F_l, or their sum if tied.

    **Arguments:**

    - `steps`: γ_l at t = 0.
    - `tied`: whether one step is used L times; all `steps` must then be equal.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=20)
    >>> icl.theory.depth.stack_flow(task, [0.01, -0.01], [1.0, 60.0]).round(6)
    array([[0.408112, 0.373252],
           [1.249333, 0.515371]])

    ```
    """
    spectrum, steps, times = Spectrum.of(task), check_steps(steps), check_times(times)
    if tied and np.any(steps != steps[0]):
        raise Refusal("`steps` differ: a loop has one step.")
    factor = spectrum.speed * (len(steps) if tied else 1)
    velocity = lambda _, now: factor * stack_force(spectrum, now)
    found = integrate(
        "The flow of a stack",
        velocity,
        steps,
        float(times[-1]),
        t_eval=times,
        **_TOLERANCE,
    )
    return found.y.T


def _growth(spectrum: Spectrum, layers: int, start: float) -> float:
    """lim ∫₀ᵗ (κ(γ) − κ°) dt along the tied flow from γ(0) = `start`, in units without speed.

    In γ it is ∫ (κ − κ°)/F dγ, whose integrand is smooth up to γ°.
    """
    loop = tied_loop(spectrum, layers)

    def integrand(step: float) -> float:
        force = tied_force(spectrum, layers, step)
        return (loop_rates(spectrum, layers, step)[0] - loop.rate) / force

    nodes, weights = np.polynomial.legendre.leggauss(60)
    half = (loop.step - start) / 2
    return float(half * weights @ [integrand(start + half * (1 + node)) for node in nodes])


def _fall(
    spectrum: Spectrum, direction: np.ndarray, step: float, fraction: float
) -> tuple[float, tuple[float, float]]:
    """From γ° + small·`direction`: when the loss has fallen, and the levels of the fall."""
    start = step + _SMALL * direction
    velocity = lambda _, now: stack_force(spectrum, now)
    loop = tied_loop(spectrum, len(direction))
    last = stack_risk(spectrum, np.full(len(direction), step))
    end = _end(spectrum, start)
    level = last + fraction * (end - last)

    def event(_: float, now: np.ndarray) -> float:
        return stack_risk(spectrum, now) - level

    vars(event)["terminal"] = True
    latest = 100 * (1 - np.log(_SMALL)) / loop.rate
    found = integrate(
        "The escape from a loop",
        velocity,
        start,
        latest,
        events=event,
        **_TOLERANCE,
    )
    if not found.t_events[0].size:
        raise Refusal("The flow does not reach the given fraction of its fall in any usual time.")
    return float(found.t_events[0][0]), (last, end)


def _end(spectrum: Spectrum, start: np.ndarray) -> float:
    """R where the flow from here ends: without noise there is but one minimum."""
    if spectrum.cost == 0:
        return stack_bound(spectrum, len(start))
    velocity = lambda _, now: stack_force(spectrum, now)
    late = 100 * (1 - np.log(_SMALL)) / tied_loop(spectrum, len(start)).rate
    found = integrate("The escape from a loop", velocity, start, late, **_TOLERANCE)
    return stack_risk(spectrum, local_minimum(spectrum, found.y[:, -1]))
