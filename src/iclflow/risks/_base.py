"""What every risk is: the expected loss of a model on a task, a differentiable scalar function."""

import abc
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel

# Weights that use more of a table than this need a wider one: the next step may pass its end.
TABLE_FULL = 0.9


class AbstractRisk(eqx.Module):
    """The expected squared error of a model. All numbers in it are array leaves, so that risks
    of one shape can be stacked and swept in one program."""

    kind: ClassVar[str]
    stochastic: ClassVar[bool] = False
    # Whether a gradient takes longer than all else in a step of a solver: milliseconds.
    costly: ClassVar[bool] = False
    # Whether its flows drift for most of their time: then steps that stability limits are too many.
    stiff: ClassVar[bool] = False
    # After how many tries of a solver, or looks, a run must be shown and kept; None: after many.
    tries_at_once: ClassVar[int | None] = None
    # How often descent looks at it, at most, to keep what moves.
    looks: ClassVar[int] = 20_000

    @abc.abstractmethod
    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The risk of `model`. Stochastic risks need a `key`, the others ignore it."""

    def gradient(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> AbstractModel:
        """The gradient with respect to the weights, shaped like the model."""
        return eqx.filter_grad(lambda m: self(m, key))(model)

    def value_and_gradient(self, model: AbstractModel, key: PRNGKeyArray | None = None):
        """The risk and its gradient, computed together."""
        return eqx.filter_value_and_grad(lambda m: self(m, key))(model)

    def floor(self, model: AbstractModel) -> Float[Array, ""] | None:
        """The smallest value that weights of this shape can reach, where it is known.

        Gradient flow stops there by itself; without it, it needs an end time.
        """
        return None

    def of_zero(self, model: AbstractModel) -> Float[Array, ""] | None:
        """The risk of predicting zero, where it is known: what there is to gain is below it."""
        return None

    def table_reach(self, models: AbstractModel) -> float | None:
        """How far the table must reach that makes this risk cheap around some models; None where
        there is no such table, or where it takes longer than what it saves.

        Gradient flow then runs on the table, and makes a wider one when weights leave it.

        **Arguments:**

        - `models`: with a leading axis, in NumPy.
        """
        return None

    def tabulate(
        self, reach: float, report: Callable[[float], object] | None = None
    ) -> "AbstractRisk":
        """The same risk from a table; see `table_reach`.

        **Arguments:**

        - `report`: called with the share of the table that is made, between 0 and 1.
        """
        raise TypeError(f"{type(self).__name__} has no table.")

    def table_used(self, model: AbstractModel) -> Float[Array, ""] | float:
        """The share of a table's reach that these weights use; beyond 1 the risk is undefined."""
        return 0.0


class AbstractCoefficientRisk(AbstractRisk):
    """A risk that sees a model only through its `coefficients()`, with a closed-form slope.

    One product with the moments gives the slope; the chain rule through the few products that
    make the coefficients gives the gradient. That is about half the work of differentiating
    the risk itself.
    """

    def coefficients_of(self, model: AbstractModel) -> Array:
        """The coefficients of `model`, once it is clear that this risk applies to it."""
        return model.coefficients()

    @abc.abstractmethod
    def of_coefficients(self, coefficients: Array) -> Float[Array, ""]:
        """The risk as a function of the coefficients."""

    @abc.abstractmethod
    def slope(self, coefficients: Array) -> Array:
        """The derivative of `of_coefficients`, in closed form."""

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return self.of_coefficients(self.coefficients_of(model))

    def gradient(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> AbstractModel:
        # The slope is linear algebra on moments; autodiff is left with the few products before it.
        coefficients, pull_back = self.pull_back(model)
        return pull_back(self.slope(coefficients))[0]

    def value_and_gradient(self, model: AbstractModel, key: PRNGKeyArray | None = None):
        coefficients, pull_back = self.pull_back(model)
        return self.of_coefficients(coefficients), pull_back(self.slope(coefficients))[0]

    def of_zero(self, model: AbstractModel) -> Float[Array, ""]:
        return self.of_coefficients(jnp.zeros_like(self.coefficients_of(model)))

    def pull_back(self, model: AbstractModel):
        """The coefficients of `model`, and the map from their slope to a gradient."""
        weights, rest = eqx.partition(model, eqx.is_inexact_array)
        return jax.vjp(lambda w: self.coefficients_of(eqx.combine(w, rest)), weights)
