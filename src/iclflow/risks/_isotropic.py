"""What softmax risks in closed form need to know of a task: isotropic inputs and weights."""

from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from ..models import AbstractModel, Diagonal
from ..runtime.precision import as_float, check_made_in_float64
from ..tasks import AbstractTask, LinearRegression
from ._check import is_softmax_over_context
from ._head_task import AbstractHeadTask, require_circuits

# What covariances may differ by from a multiple of the identity, as a share of it.
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

    @property
    def of_zero(self) -> Float[Array, ""]:
        return self.signal + self.query_noise

    def heads(self, model: AbstractModel) -> tuple[Float[Array, " H"], Float[Array, " H"]]:
        """ω for white inputs, and μ, of a model that fits."""
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
