"""What risks of decomposable attention need to know of a task: labels on blocks of their own."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models import AbstractModel, AbstractSpectral
from ..runtime.precision import as_float, check_made_in_float64
from ..tasks import AbstractTask, MultiTaskRegression
from ._check import is_blind_softmax
from ._head_task import AbstractHeadTask, require_circuits


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
        """What `task` is, if `model` is decomposable on its blocks, and these are not rotated."""
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
        """ω and μ of a model that fits."""
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
