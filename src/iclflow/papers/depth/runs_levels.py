"""Risks of stacks as functions of their steps, and their stationary points: exact risks and models,
which know no theory."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Float

from ...flows import SaveAtTimes, gradient_flow_ensemble
from ...models import ScalarStack
from ...risks import AbstractRisk, risk
from ...tasks import LinearRegression
from .. import Lab, once

# The setting of the public code of arXiv 2306.00297; E(w·x)² = 1.
DIM, CONTEXT = 5, 20
# By how much the layers of a flow differ at its start.
SPREADS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)


def white_task(noise: float = 0.0, dim: int = DIM, context: int = CONTEXT) -> LinearRegression:
    """White inputs with E(w·x)² = 1; the query's label has no noise."""
    prior = np.eye(dim) / dim
    return LinearRegression(
        np.ones(dim), context, noise=noise, prior_covariance=prior, noisy_query=False
    )


class Landscape:
    """The exact risk over the steps of a stack or loop, with its derivatives.

    **Arguments:**

    - `tied`: whether one step is used in all layers.
    """

    def __init__(self, task: LinearRegression, layers: int, tied: bool = False):
        self.count = 1 if tied else layers
        loss = risk(task, ScalarStack(jnp.zeros(self.count), task.dim, layers), "exact")
        # One program for all tasks with spectral rules of one size: the risk is an argument of it.
        given = lambda compiled: lambda steps: compiled(loss, steps, task.dim, layers)
        self.value, self.slope, self.curvature = map(given, (_value, _slope, _curvature))

    def lowest(self, start: np.ndarray) -> tuple[np.ndarray, float]:
        """Where a descent from `start` ends, and the risk there."""
        found = scipy.optimize.minimize(
            self.value, start, jac=self.slope, method="BFGS", options={"gtol": 1e-10}
        )
        return np.sort(found.x), float(found.fun)

    def stationary(self, start: np.ndarray) -> np.ndarray | None:
        """A point without slope, found from `start` by roots of the slope; None if none is."""
        found = scipy.optimize.root(self.slope, start, jac=self.curvature, tol=1e-13)
        steps = np.asarray(found.x)
        near = np.max(np.abs(self.slope(steps))) < 1e-10 and np.max(np.abs(steps)) < 20
        return steps if near else None


def _loss(risk: AbstractRisk, steps: jax.Array, dim: int, layers: int) -> jax.Array:
    return risk(ScalarStack(steps, dim, layers))


_value = jax.jit(_loss, static_argnums=(2, 3))
_slope = jax.jit(jax.grad(_loss, 1), static_argnums=(2, 3))
_curvature = jax.jit(jax.hessian(_loss, 1), static_argnums=(2, 3))


class FoundPoints(NamedTuple):
    """Stationary points of a stack, as far as a root finder came from random starts.

    - `points`: how many different ones; `risks`: their levels.
    - `indices`: the number of negative curvatures at each level.
    """

    points: int
    risks: Float[np.ndarray, " F"]
    indices: Float[np.ndarray, " F"]
    steps: Float[np.ndarray, "F L"]


@once
def found_points(lab: Lab, layers: int) -> FoundPoints:
    """Roots of the slope from random starts, each up to rounding counted once."""
    landscape, rng = Landscape(white_task(), layers), np.random.default_rng(layers)
    starts = rng.uniform(0.1, 2.5, (lab.scaled(60, 60, 200) * layers, layers))
    roots = [root for start in starts if (root := landscape.stationary(start)) is not None]
    points = np.unique(np.round(roots, 6), axis=0)
    levels = np.array([float(landscape.value(point)) for point in points])
    _, first = np.unique(np.round(levels, 7), return_index=True)
    negative = lambda point: int(np.sum(np.linalg.eigvalsh(landscape.curvature(point)) < 0))
    indices = np.array([negative(points[i]) for i in first])
    return FoundPoints(len(points), levels[first], indices, np.sort(points[first], axis=1))


class Escape(NamedTuple):
    """Exact flows of two layers from γ = (δ, −δ), for several δ: steps and losses over time."""

    spreads: Float[np.ndarray, " S"]
    times: Float[np.ndarray, " T"]
    steps: Float[np.ndarray, "S T 2"]
    losses: Float[np.ndarray, "S T"]

    def time_below(self, level: float) -> Float[np.ndarray, " S"]:
        """When each loss passes a level."""
        down = [np.interp(-np.log(level), -np.log(row), self.times) for row in self.losses]
        return np.array(down)


@once
def escapes(lab: Lab) -> Escape:
    """The flow of two untied layers that begin as a loop but for δ."""
    task, times = white_task(), np.linspace(0.0, 160.0, 1281)
    starts = jnp.array([[spread, -spread] for spread in SPREADS])
    models = jax.vmap(lambda steps: ScalarStack(steps, DIM, 2))(starts)
    exact = risk(task, ScalarStack(jnp.zeros(2), DIM, 2), "exact")
    # As exact as the smallest difference needs.
    runs = gradient_flow_ensemble(
        models, exact, end=float(times[-1]), save=SaveAtTimes(tuple(times[1:])),
        rtol=1e-12, atol=1e-16,
    )  # fmt: skip
    each = [runs[i] for i in range(len(SPREADS))]
    lab.hash_runs(runs)
    steps = np.array([np.asarray(run.models.gamma) for run in each])
    losses = np.array([np.asarray(run.losses) for run in each])
    return Escape(np.array(SPREADS), np.asarray(each[0].times), steps, losses)
