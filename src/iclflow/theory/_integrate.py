"""Flows: the one call of SciPy's integrator, and when a loss has fallen by given fractions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from jaxtyping import Float

from ..errors import Refusal

# `times` may hold 0 alone, but LSODA needs an interval, and never ends on one of 1e-300.
_SHORTEST = 1e-9
# The longest flow tried: a loss not reached by then may never be reached.
_LATEST = 1e5


def integrate(
    flow: str,
    velocity: Callable[[float, np.ndarray], Any],
    start: Any,
    end: float,
    method: str = "LSODA",
    t_eval: np.ndarray | None = None,
    **options: Any,
) -> Any:
    """Solves ẋ = velocity(t, x) from x = `start` at t = 0 to t = `end`.

    **Arguments:**

    - `flow`: the subject of the error message.
    - `method`: SciPy's. The default switches to an implicit rule where it must: the time scales
      of most of these flows differ by 10⁶ and more.
    - `t_eval`: when to report the state; SciPy's own steps without it.
    - `options`: further ones of `scipy.integrate.solve_ivp`.
    """
    span = (0.0, max(end, _SHORTEST))
    places: Any = slice(None)
    if t_eval is not None:  # SciPy refuses equal times
        t_eval, places = np.unique(t_eval, return_inverse=True)
    solution = scipy.integrate.solve_ivp(velocity, span, start, method, t_eval, **options)
    if not solution.success:
        raise RuntimeError(f"{flow} could not be integrated: {solution.message}")
    solution.y = solution.y[:, places]
    return solution


def first_times(
    loss_until: Callable[[float], Callable[[float], float]],
    levels: tuple[float, float],
    fractions: Float[np.ndarray, " F"],
    end: float,
    complaint: str,
) -> Float[np.ndarray, " F"]:
    """When a loss has first fallen by each of `fractions` of the way between two levels.

    A fraction that is gone from the start has time 0.

    **Arguments:**

    - `loss_until`: follows a flow up to a time; returns its loss as a function of time.
    - `levels`: where the way begins and ends.
    - `end`: the first guess of how far to follow the flow.
    - `complaint`: what is wrong if a fraction is never reached; may use `{end}` and `{gone}`.
    """
    first, last = levels
    while True:
        loss = loss_until(end)
        gone = lambda time: (first - loss(time)) / (first - last)
        if gone(end) >= np.max(fractions):
            when = lambda part: scipy.optimize.brentq(lambda t: gone(t) - part, 0.0, end)
            return np.array([when(part) if gone(0.0) < part else 0.0 for part in fractions])
        if end > _LATEST:
            raise Refusal(complaint.format(end=end, gone=gone(end)))
        end *= 4
