"""Heads given by numbers ω and μ, and the tasks on which the risk depends on nothing else."""

import abc
import math
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..errors import InputError
from ..models import AbstractCircuits, AbstractModel, AbstractSpectral, Diagonal, name_of
from ..runtime.precision import as_float, check_made_in_float64
from ..tasks import AbstractTask, FiniteTasks, LinearRegression, MultiTaskRegression
from ._base import AbstractRisk
from ._check import is_blind_softmax, is_softmax_over_context

# Not `typing.Self`: beartype checks single methods and cannot resolve it.
_Task = TypeVar("_Task", bound="AbstractHeadTask")
_Risk = TypeVar("_Risk", bound="AbstractHeadRisk")
_Circuits = TypeVar("_Circuits", bound=AbstractCircuits)


class AbstractHeadTask(eqx.Module):
    """What the loss of heads with numbers ω and μ depends on in a task."""

    # The end of the error message about an infinite context length.
    limit: ClassVar[str] = ""

    lengths: eqx.AbstractVar[Float[Array, " K"]]
    probabilities: eqx.AbstractVar[Float[Array, " K"]]

    @property
    @abc.abstractmethod
    def of_zero(self) -> Float[Array, ""]:
        """The loss of predicting zero."""

    @abc.abstractmethod
    def heads(self, model: AbstractModel) -> tuple[Float[Array, "H *I"], Float[Array, "H *I"]]:
        """ω and μ of a model, after a check that it fits this task."""

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
    """`circuits`, or an error that says which `kinds` of circuits the risk needs."""
    if circuits is None:
        raise TypeError(
            f"This risk is of softmax attention with {kinds} and `self_attention` = False; got "
            f"{name_of(model)}."
        )
    return circuits


# How far a covariance may be from a multiple of the identity, relative to it: rounding of
# covariances that were rotated or typed in.
_ROUNDING = 1e-12


class Isotropic(AbstractHeadTask):
    """x ~ N(0, cI), w ~ N(0, vI), label noise σ²; any real context lengths.

    Rescaled inputs x/√c are white. That turns ω into cω, and E(w·x)² = c v D is the unit in which
    losses are measured.
    """

    limit: ClassVar[str] = "; `theory.infinite_length_loss` is the limit"

    input_variance: Float[Array, ""]
    signal: Float[Array, ""]  # E(w·x)² = c v D
    noise: Float[Array, ""]
    query_noise: Float[Array, ""]
    lengths: Float[Array, " K"]
    probabilities: Float[Array, " K"]
    dim: int = eqx.field(static=True)

    @staticmethod
    def of(task: AbstractTask) -> "Isotropic | None":
        """`task` in these terms, or None if it is not isotropic.

        On white inputs heads that are given by ω and μ see finitely many task vectors through their
        mean squared norm alone: their weights do not read labels, so that the loss is linear in
        E wwᵀ, and rotations of the inputs change nothing.
        """
        if isinstance(task, FiniteTasks):
            moment = np.asarray(task.weight_second_moment)
            task, prior = task.fresh, float(np.trace(moment)) / task.dim
        elif isinstance(task, LinearRegression) and not np.any(np.asarray(task.prior_mean)):
            prior = _multiple(task.prior_covariance)
        else:
            return None
        inputs = _multiple(task.covariance)
        if inputs is None or prior is None:
            return None
        return Isotropic(
            input_variance=as_float(inputs),
            signal=as_float(inputs * prior * task.dim),
            noise=task.noise,
            query_noise=task.query_noise,
            lengths=as_float(task.contexts),
            probabilities=task.context_probabilities,
            dim=task.dim,
        )

    @staticmethod
    def require(task: AbstractTask, what: str) -> "Isotropic":
        """The same, or an error that begins with `what` needs an isotropic task."""
        check_made_in_float64(task=task)
        found = Isotropic.of(task)
        if found is None:
            raise ValueError(
                f"{what} needs a LinearRegression whose `covariance` and `prior_covariance` are "
                "multiples of the identity and whose `prior_mean` is 0. Other tasks have the kinds "
                "large_context, dataset, minibatch and sampled."
            )
        return found

    @property
    def of_zero(self) -> Float[Array, ""]:
        return self.signal + self.query_noise

    def heads(self, model: AbstractModel) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
        """ω for white inputs, and μ."""
        kinds = "Diagonal circuits, one `omega` per head, one label"
        circuits = require_circuits(scalar_softmax(model), kinds, model)
        if circuits.dim != self.dim:
            raise ValueError(
                f"The model has D = {circuits.dim} and the task D = {self.dim}: must be equal."
            )
        return self.input_variance * circuits.omega, circuits.mu[:, 0]


def scalar_softmax(model: AbstractModel) -> Diagonal | None:
    """The circuits of attention that is softmax(ω_h x·x_q), one number ω per head, over the context
    alone, with one label."""
    if not is_softmax_over_context(model) or not isinstance(model.circuits, Diagonal):
        return None
    circuits = model.circuits
    return circuits if circuits.labels == 1 and not circuits.per_coordinate else None


def _multiple(matrix: Array) -> float | None:
    """c, if the matrix is cI."""
    entries = np.asarray(matrix)
    factor = float(np.mean(np.diag(entries)))
    rest = np.max(np.abs(entries - factor * np.eye(len(entries))))
    return factor if rest <= _ROUNDING * abs(factor) else None


class Disjoint(AbstractHeadTask):
    """I tasks: y_i = β_i·x_i + ε_i, β_i ~ N(0, λ_i I) on block i; any real context lengths."""

    signal: Float[Array, " I"]
    noise: Float[Array, " I"]
    query_noise: Float[Array, " I"]
    lengths: Float[Array, " K"]
    probabilities: Float[Array, " K"]
    coordinates: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @staticmethod
    def of(task: AbstractTask, model: AbstractModel) -> "Disjoint | None":
        """`task` in these terms, if it is not rotated and `model` is decomposable on its blocks."""
        circuits = spectral_circuits(model)
        if not isinstance(task, MultiTaskRegression) or circuits is None:
            return None
        check_made_in_float64(task=task, model=model)
        same = [set(read) for read in task.coordinates] == [set(r) for r in circuits.coordinates]
        if task.rotated or not same:
            return None
        return Disjoint(
            signal=task.signal,
            noise=task.noise,
            query_noise=task.query_noise,
            lengths=as_float(task.contexts),
            probabilities=task.context_probabilities,
            coordinates=task.coordinates,
        )

    @property
    def sizes(self) -> Float[Array, " I"]:
        """d_i."""
        return jnp.asarray(np.asarray([len(read) for read in self.coordinates], float))

    @property
    def of_zero(self) -> Float[Array, ""]:
        return jnp.sum(self.signal * self.sizes + self.query_noise)

    def heads(self, model: AbstractModel) -> tuple[Float[Array, "H I"], Float[Array, "H I"]]:
        kinds = "Spectral or BalancedSpectral circuits"
        circuits = require_circuits(spectral_circuits(model), kinds, model)
        if [set(read) for read in circuits.coordinates] != [set(r) for r in self.coordinates]:
            raise ValueError(
                f"The model has the blocks {circuits.coordinates} and the task {self.coordinates}: "
                "must be the same."
            )
        return circuits.omega(), circuits.mu()


def spectral_circuits(model: AbstractModel) -> AbstractSpectral | None:
    """The circuits of softmax attention over the context, if they are decomposable."""
    if not is_blind_softmax(model) or not isinstance(model.circuits, AbstractSpectral):
        return None
    return model.circuits
