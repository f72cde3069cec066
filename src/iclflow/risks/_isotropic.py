"""What softmax risks in closed form need to know of a task: isotropic inputs and weights."""

from typing import TypeGuard

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..models import AbstractModel, StructuredAttention
from ..precision import as_float, check_made_in_float64
from ..tasks import AbstractTask, LinearRegression
from ._one_length import one_length


class Isotropic(eqx.Module):
    """x ~ N(0, cI), w ~ N(0, vI), label noise σ²; any real context lengths.

    Rescaled inputs x/√c are white. That turns ω into cω, and E(w·x)² = c v D is the unit in which
    losses are measured.
    """

    input_variance: Float[Array, ""]
    signal: Float[Array, ""]  # E(w·x)² = c v D
    noise: Float[Array, ""]
    query_noise: Float[Array, ""]
    lengths: Float[Array, " K"]
    probabilities: Float[Array, " K"]
    dim: int = eqx.field(static=True)

    @staticmethod
    def of(task: AbstractTask) -> "Isotropic | None":
        """What `task` is, if it is isotropic."""
        if not isinstance(task, LinearRegression):
            return None
        inputs, prior = _multiple(task.covariance), _multiple(task.prior_covariance)
        if inputs is None or prior is None or np.any(np.asarray(task.prior_mean)):
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
        """`task`, or an error that says what needs it to be isotropic."""
        check_made_in_float64(task=task)
        found = Isotropic.of(task)
        if found is None:
            raise ValueError(
                f"{what} needs a LinearRegression whose `covariance` and `prior_covariance` are "
                "multiples of the identity and whose `prior_mean` is 0. Other tasks have the kinds "
                "large_context, dataset, minibatch and sampled."
            )
        return found

    def at_length(self, length) -> "Isotropic":
        """The same task with another context length, any real number from 1 up."""
        found = one_length(length, "; `theory.infinite_length_loss` is the limit")
        return eqx.tree_at(lambda t: (t.lengths, t.probabilities), self, found)

    def heads(self, model: AbstractModel) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
        """ω for white inputs, and μ, of a model that fits."""
        if not is_scalar_softmax(model):
            raise TypeError(
                "This risk is of StructuredAttention with softmax, one `omega` a head and "
                f"`self_attention` = False; got {type(model).__name__}."
            )
        if model.dim != self.dim:
            raise ValueError(
                f"The model has D = {model.dim} and the task D = {self.dim}: must be equal."
            )
        return self.input_variance * model.omega, model.mu


def is_scalar_softmax(model: AbstractModel) -> TypeGuard[StructuredAttention]:
    """Whether attention is softmax(ω_h x·x_q), one number ω a head, over the context alone."""
    return (
        isinstance(model, StructuredAttention)
        and model.activation == "softmax"
        and not model.self_attention
        and model.omega.ndim == model.mu.ndim
    )


def _multiple(matrix: Array) -> float | None:
    """c, if the matrix is cI."""
    entries = np.asarray(matrix)
    factor = float(np.mean(np.diag(entries)))
    rest = np.max(np.abs(entries - factor * np.eye(len(entries))))
    return factor if rest <= 1e-12 * abs(factor) else None
