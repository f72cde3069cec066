"""The best predictors of a family: linear in the labels, and ridge regression with one penalty."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InputError
from ..runtime.precision import check_made_in_float64
from ..tasks import (
    AbstractTask,
    Estimate,
    FiniteTasks,
    LinearRegression,
    Sequences,
    same_moments,
)
from ._base import AbstractEstimator
from ._least_squares import Ridge

# Contexts from which the best penalty is found.
_CONTEXTS = 1000
# The penalties that are compared first, in units of σ²/E w_i², and how far apart they are.
_PENALTIES = np.geomspace(1e-3, 1e3, 25)


class LabelLinear(AbstractEstimator):
    """The best predictor that is linear in the labels of the context.

    ŷ = x_qᵀ M X (Xᵀ M X + σ²)⁻¹ y, where the columns of X are inputs and M = E wwᵀ: the posterior
    mean for w ~ N(0, M), whatever the law of w. Attention whose weights do not read labels, with
    values that are labels, cannot do better, with any number of heads.

    **Example:**

    ```pycon
    >>> task = icl.FiniteTasks([[1.0, 0.0]], icl.isotropic(2, context=10, noise=0.1))
    >>> bound = icl.estimators.LabelLinear(task).bound(jr.key(0), 2000)
    >>> print(f"{bound.value:.4f}")
    0.1122
    ```

    **Fields:**

    - `regression`: the regression with w ~ N(0, M).
    """

    name: ClassVar[str] = "best label-linear"
    regression: LinearRegression

    def __init__(self, task: AbstractTask):
        """**Arguments:**

        - `task`: a `LinearRegression` or `FiniteTasks`, whose M, Λ and σ² it knows.
        """
        matched = same_moments(task)
        if not isinstance(matched, LinearRegression):
            raise TypeError(
                f"`task` is a {type(task).__name__}: must be a LinearRegression or FiniteTasks."
            )
        self.regression = eqx.tree_at(
            lambda law: (law.prior_mean, law.prior_covariance),
            matched,
            (jnp.zeros_like(matched.prior_mean), _second_moment(task, matched)),
        )

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return self.regression.bayes_predict(sequences)

    def bound(self, key: PRNGKeyArray, count: int = 100_000) -> Estimate:
        """Its risk on the task that it was made for, the smallest of all such predictors.

        It depends on the tasks through M alone, so that labels are averaged over in closed form.
        """
        return self.regression.bayes_risk(key, count)


def best_ridge(task: AbstractTask, key: PRNGKeyArray | None = None) -> Ridge:
    """Ridge regression with the penalty of the smallest risk on `task`.

    The risk is averaged over w, labels and the query in closed form, so that only contexts are
    sampled. Where w ~ N(0, γI) this is the Bayes predictor, and the penalty σ²/γ, without sampling.

    **Example:**

    ```pycon
    >>> ridge = icl.estimators.best_ridge(icl.isotropic(4, context=10, noise=0.1))
    >>> print(f"{ridge.penalty:.2f}")
    0.40
    ```

    **Arguments:**

    - `task`: a `LinearRegression` or `FiniteTasks`, with label noise.
    - `key`: draws the contexts; by default `jax.random.key(0)`.
    """
    check_made_in_float64(task=task)
    law = same_moments(task)
    if not isinstance(law, LinearRegression):
        raise TypeError(
            f"`task` is a {type(task).__name__}: must be a LinearRegression or FiniteTasks."
        )
    noise, moment = float(law.noise), np.asarray(_second_moment(task, law))
    size = float(np.trace(moment)) / law.dim
    if noise <= 0 or size <= 0:
        raise InputError(
            "task",
            problem="has no label noise" if noise <= 0 else "has no signal",
            allowed="needs both: else the best penalty is 0 or infinite",
        )
    if np.array_equal(moment, moment[0, 0] * np.eye(law.dim)):
        return Ridge(noise / size)
    risk = _RidgeRisk(law, moment, jr.key(0) if key is None else key)
    return Ridge(noise / size * risk.minimise(noise / size))


class _RidgeRisk:
    """The mean risk of ridge regression over sampled contexts, as a function of the penalty."""

    def __init__(self, law: LinearRegression, moment: np.ndarray, key: PRNGKeyArray):
        x = np.asarray(law.sample(key, _CONTEXTS).x)
        self.values, basis = np.linalg.eigh(np.einsum("pnd,pne->pde", x, x))
        turn = lambda matrix: np.einsum("pdi,de,pej->pij", basis, matrix, basis)
        self.inputs, self.moment = turn(np.asarray(law.covariance)), turn(moment)
        self.noise = float(law.noise)

    def __call__(self, penalty: float) -> float:
        """E tr Λ(λ² S M S + σ² S G S), with G = Σ xxᵀ and S = (G + λ)⁻¹, up to σ²."""
        shrunk = 1 / (self.values + penalty)
        bias = penalty**2 * np.einsum("pij,pi,pij,pj->p", self.inputs, shrunk, self.moment, shrunk)
        spread = self.noise * np.einsum("pii,pi->p", self.inputs, self.values * shrunk**2)
        return float(np.mean(bias + spread))

    def minimise(self, unit: float) -> float:
        """The best penalty, in this unit."""
        from scipy.optimize import minimize_scalar

        grid = np.log(_PENALTIES)
        of_log = lambda log: self(unit * np.exp(log))
        best = int(np.argmin([of_log(point) for point in grid]))
        near = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        found = minimize_scalar(of_log, bounds=near, method="bounded", options={"xatol": 1e-9})
        return float(np.exp(found.x))  # pyright: ignore[reportAttributeAccessIssue]


def _second_moment(task: AbstractTask, matched: LinearRegression) -> Float[Array, "D D"]:
    """M, without the rounding of a mean that is taken off and added again."""
    return (
        task.weight_second_moment
        if isinstance(task, FiniteTasks)
        else (matched.weight_second_moment)
    )
