"""The interface of risks: the expected loss of a model on a task, differentiable and scalar."""

import abc
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel

# A table that is used up to more than this share is replaced: the next step may pass its end.
TABLE_FULL = 0.9
"""A table that is used up to more than this share is replaced by a wider one.

**Example:**

```pycon
>>> icl.risks.TABLE_FULL
0.9
```
"""


class AbstractRisk(eqx.Module):
    """The expected squared error of a model. All numbers in it are array leaves, so that risks
    of one shape can be stacked and swept in one program.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20)
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2, scale=0.5)
    >>> risk = icl.risk(task, model)
    >>> value, slope = risk.value_and_gradient(model)
    >>> less = jax.tree.map(lambda w, g: w - 0.01 * g, model, slope)
    >>> bool(risk(less) < value)
    True
    ```
    """

    kind: ClassVar[str]
    stochastic: ClassVar[bool] = False
    # Whether a gradient takes milliseconds, longer than all else in a step of a solver.
    costly: ClassVar[bool] = False
    # Whether its flows drift slowly most of the time: an explicit solver would need too many steps.
    stiff: ClassVar[bool] = False
    # Solver steps tried between two snapshots of a run, where a step is slow; None: the usual many.
    tries_at_once: ClassVar[int | None] = None
    # The most evaluations that a descent spends on deciding what to save.
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
        """The reach of a table that makes this risk cheap around some models; None if there is no
        such table, or if it does not pay.

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

        - `report`: called with the finished share of the table, between 0 and 1.
        """
        raise TypeError(f"{type(self).__name__} has no table.")

    def table_used(self, model: AbstractModel) -> Float[Array, ""] | float:
        """The share of a table's reach that these weights use; beyond 1 the risk is undefined."""
        return 0.0


class AbstractCoefficientRisk(AbstractRisk):
    """A risk that reads a model only through its `coefficients()`, with a closed-form slope.

    The slope is one product with the moments; the chain rule through the few products that make the
    coefficients does the rest. That is about half the work of differentiating the risk itself.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20)
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> risk = icl.risk(task, model)
    >>> isinstance(risk, icl.risks.AbstractCoefficientRisk)
    True
    >>> jnp.allclose(risk.of_coefficients(model.coefficients()), risk(model)).item()
    True
    ```
    """

    def coefficients_of(self, model: AbstractModel) -> Array:
        """The coefficients of `model`, after a check that this risk applies to it."""
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
