"""The one call of SciPy's integrator of ordinary differential equations."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.integrate


def integrate(
    flow: str,
    velocity: Callable[[float, np.ndarray], Any],
    start: Any,
    end: float,
    method: str = "LSODA",
    **options: Any,
) -> Any:
    """The solution of ẋ = velocity(t, x) from x = `start` at t = 0 to t = `end`.

    **Arguments:**

    - `flow`: what is integrated, for the message where it fails.
    - `method`: SciPy's. Most of these flows have time scales that differ by 10⁶ and more, which
      the default is made for: it becomes implicit where it must.
    - `options`: further ones of `scipy.integrate.solve_ivp`.
    """
    solution = scipy.integrate.solve_ivp(velocity, (0.0, end), start, method, **options)
    if not solution.success:
        raise RuntimeError(f"{flow} could not be integrated: {solution.message}")
    return solution
