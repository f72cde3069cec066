"""Steps of gradient descent that are the best for a task, or for a range of eigenvalues."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float

from ..errors import InputError, Refusal
from ..models import Normaliser
from ..risks import AbstractRisk, available_kinds, risk
from ..tasks import AbstractTask, check_count, is_real
from ._descent import GradientSteps


def best_gradient_steps(
    task: AbstractTask, steps: int, own: bool = False, normaliser: Normaliser = "context"
) -> GradientSteps:
    """The steps of gradient descent with the smallest exact risk on `task`.

    A search by gradients from the best of a grid of equal steps; with noise, where there may be
    several minima, one that is not below all others can be found.

    **Arguments:**

    - `steps`: L.
    - `own`: whether each step has its own size; they come largest first.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), 20, prior_covariance=np.eye(5) / 5)
    >>> for own in (False, True):
    ...     best = icl.estimators.best_gradient_steps(task, 2, own)
    ...     print(best.step_sizes.round(4), f"{best.exact_risk(task):.6f}")
    [0.7425] 0.099801
    [1.2496 0.5154] 0.072248
    ```
    """
    check_count("steps", steps)
    known = _exact(task, steps, normaliser)
    unit = task.dim / float(np.trace(np.asarray(getattr(task, "covariance"))))
    grid = unit * np.geomspace(0.05, 2.0, 30)
    # By value: a step that is too large may give a huge risk, but no error.
    risks = [float(_risk(known, GradientSteps(size, steps, normaliser), task.dim)) for size in grid]
    start = np.array([grid[int(np.nanargmin(risks))]])
    found = _descend(known, start, steps, normaliser, task.dim)
    if own and steps > 1:
        # Equal steps are a saddle: from the shape of the best steps on an interval.
        spread = 1 / (1 + 0.5 * np.cos((2 * np.arange(steps) + 1) * np.pi / (2 * steps)))
        found = _descend(known, found[0] * spread, steps, normaliser, task.dim)
    return GradientSteps(np.sort(found)[::-1].copy(), steps, normaliser)


def chebyshev_steps(
    lowest: float, highest: float, steps: int, normaliser: Normaliser = "context"
) -> GradientSteps:
    """The steps that leave least of a task in the worst case, at eigenvalues of S in an interval:
    one over the nodes of Chebyshev's polynomial on it.

    **Arguments:**

    - `lowest`, `highest`: the ends of the interval, above 0.

    **Example:**

    ```pycon
    >>> steps = icl.estimators.chebyshev_steps(0.5, 1.5, steps=2)
    >>> steps.step_sizes.round(4).tolist()
    [1.5469, 0.7388]
    ```
    """
    check_count("steps", steps)
    for name, value in (("lowest", lowest), ("highest", highest)):
        if not is_real(value) or not 0 < value < np.inf:
            raise InputError(name, value, "must be a number above 0")
    if highest < lowest:
        raise InputError("highest", highest, f"must not be below `lowest` = {lowest}")
    turns = np.cos((2 * np.arange(steps)[::-1] + 1) * np.pi / (2 * steps))
    nodes = (highest + lowest) / 2 + (highest - lowest) / 2 * turns
    return GradientSteps(1 / nodes, steps, normaliser)


def _exact(task: AbstractTask, steps: int, normaliser: Normaliser) -> AbstractRisk:
    stack = GradientSteps(1.0, steps, normaliser).stack(task.dim)
    if "exact" not in available_kinds(task, stack):
        raise Refusal(
            f"`steps` = {steps}: the exact risk of so many steps on this {type(task).__name__} is "
            "not known, so that the best ones are not either."
        )
    return risk(task, stack, "exact")


@eqx.filter_jit
def _risk(known: AbstractRisk, steps: GradientSteps, dim: int) -> Float[Array, ""]:
    return known(steps.stack(dim))


@eqx.filter_jit
def _slope(
    known: AbstractRisk, sizes: Float[Array, " S"], steps: int, normaliser: Normaliser, dim: int
) -> tuple[Float[Array, ""], Float[Array, " S"]]:
    value = lambda s: known(GradientSteps(s, steps, normaliser).stack(dim))
    return jax.value_and_grad(value)(sizes)


def _descend(
    known: AbstractRisk, start: np.ndarray, steps: int, normaliser: Normaliser, dim: int
) -> Float[np.ndarray, " S"]:
    def slope(sizes: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _slope(known, jnp.asarray(sizes), steps, normaliser, dim)
        return float(value), np.asarray(gradient)

    found: Any = scipy.optimize.minimize(
        slope, start, jac=True, method="BFGS", options={"gtol": 1e-12}
    )
    return np.asarray(found.x)
