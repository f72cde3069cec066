"""What risks of decomposable attention need to know of a task: labels on blocks of their own."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models import AbstractModel, AbstractSpectral
from ..precision import as_float, check_made_in_float64
from ..tasks import AbstractTask, MultiTaskRegression
from ._large_context import is_blind_softmax
from ._one_length import one_length


class Disjoint(eqx.Module):
    """I tasks: y_i = β_i·x_i + ε_i, β_i ~ N(0, λ_i I) on block i; any real context lengths."""

    signal: Float[Array, " I"]
    noise: Float[Array, " I"]
    query_noise: Float[Array, " I"]
    lengths: Float[Array, " K"]
    probabilities: Float[Array, " K"]
    coordinates: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    @staticmethod
    def of(task: AbstractTask, model: AbstractModel) -> "Disjoint | None":
        """What `task` is, if `model` is decomposable on its blocks, and these are not rotated."""
        if not isinstance(task, MultiTaskRegression) or not isinstance(model, AbstractSpectral):
            return None
        check_made_in_float64(task=task, model=model)
        same = [set(read) for read in task.coordinates] == [set(r) for r in model.coordinates]
        if task.rotated or not same or not is_blind_softmax(model):
            return None
        count = len(task.contexts)
        return Disjoint(
            signal=task.signal,
            noise=task.noise,
            query_noise=task.query_noise,
            lengths=as_float(task.contexts),
            probabilities=jnp.full(count, 1 / count),
            coordinates=task.coordinates,
        )

    @property
    def sizes(self) -> Float[Array, " I"]:
        """d_i."""
        return jnp.asarray(np.asarray([len(read) for read in self.coordinates], float))

    @property
    def of_zero(self) -> Float[Array, ""]:
        """The loss of predicting zero."""
        return jnp.sum(self.signal * self.sizes + self.query_noise)

    def at_length(self, length) -> "Disjoint":
        """The same tasks with another context length, any real number from 1 up."""
        return eqx.tree_at(lambda t: (t.lengths, t.probabilities), self, one_length(length))

    def heads(self, model: AbstractModel) -> tuple[Float[Array, "H I"], Float[Array, "H I"]]:
        """ω and μ of a model that fits."""
        if not (is_blind_softmax(model) and isinstance(model, AbstractSpectral)):
            raise TypeError(
                "This risk is of SpectralAttention and BalancedSpectral with softmax and "
                f"`self_attention` = False; got {type(model).__name__}."
            )
        if [set(read) for read in model.coordinates] != [set(r) for r in self.coordinates]:
            raise ValueError(
                f"The model has the blocks {model.coordinates} and the task {self.coordinates}: "
                "must be the same."
            )
        return model.omega(), model.mu()
