"""What risks of single heads share: a task that they read, and how it changes with the length."""

import abc
import math
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..errors import InputError
from ..models import AbstractCircuits, AbstractModel, name_of
from ..runtime.precision import as_float
from ..tasks import is_whole
from ._base import AbstractRisk

# `typing.Self` would do, but beartype checks single methods and cannot know it.
_Task = TypeVar("_Task", bound="AbstractHeadTask")
_Risk = TypeVar("_Risk", bound="AbstractHeadRisk")
_Circuits = TypeVar("_Circuits", bound=AbstractCircuits)


class AbstractHeadTask(eqx.Module):
    """A task as far as a loss depends on it through the numbers ω and μ of each head."""

    # What to say to those who want an infinite context.
    limit: ClassVar[str] = ""

    lengths: eqx.AbstractVar[Float[Array, " K"]]
    probabilities: eqx.AbstractVar[Float[Array, " K"]]

    @property
    @abc.abstractmethod
    def of_zero(self) -> Float[Array, ""]:
        """The loss of predicting zero."""

    @abc.abstractmethod
    def heads(self, model: AbstractModel) -> tuple[Float[Array, "H *I"], Float[Array, "H *I"]]:
        """ω and μ of a model that fits."""

    def at_length(self: _Task, length: Any) -> _Task:
        """The same task with another context length, any real number from 1 up."""
        known = not isinstance(length, Tracer)
        plain = not isinstance(length, str) and np.ndim(length) == 0
        if known and not (plain and 1 <= float(length) < math.inf):
            raise InputError("length", length, f"must be at least 1 and finite{self.limit}")
        lengths = jnp.reshape(as_float(length), (1,))
        return eqx.tree_at(
            lambda task: (task.lengths, task.probabilities), self, (lengths, jnp.ones_like(lengths))
        )


class AbstractHeadRisk(AbstractRisk):
    """A risk of heads that are given by ω and μ."""

    task: eqx.AbstractVar[AbstractHeadTask]

    def of_zero(self, model: AbstractModel) -> Float[Array, ""]:
        return self.task.of_zero

    def at_length(self: _Risk, length: Any) -> _Risk:
        """The risk of the same models at another context length, any real number from 1 up."""
        return eqx.tree_at(lambda risk: risk.task, self, self.task.at_length(length))


def require_circuits(circuits: _Circuits | None, kinds: str, model: AbstractModel) -> _Circuits:
    """The circuits of a model that fits, or an error that says which would."""
    if circuits is None:
        raise TypeError(
            f"This risk is of softmax attention with {kinds} and `self_attention` = False; got "
            f"{name_of(model)}."
        )
    return circuits


def check_digits(digits: int, limits: tuple[int, int]) -> None:
    """Refuses a precision that a quadrature does not have."""
    if not is_whole(digits):
        raise InputError("digits", digits, "must be a whole number")
    if not limits[0] <= digits <= limits[1]:
        raise InputError("digits", digits, f"must lie between {limits[0]} and {limits[1]}")
