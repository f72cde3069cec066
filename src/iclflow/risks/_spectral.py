"""The large-context risk of decomposable attention, in its singular values alone."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel
from ..tasks import AbstractTask
from ._disjoint import Disjoint
from ._head_task import AbstractHeadRisk


class SpectralRisk(AbstractHeadRisk):
    """The closed form of arXiv 2402.19442, for decomposable weights.

    With the overlaps ⟨h, k⟩ = Σ_j d_j ω_hj ω_kj of scores, and φ_i = 1 + σ_i²/(λ_i d_i),

        L̃ = Σ_i σ_i² + λ_i d_i [(1 − μ_i·ω_i)² + (φ_i/N) Σ_hk μ_hi μ_ki exp⟨h, k⟩].

    The same number as `LargeContextRisk`, at a cost that does not depend on D. Exact neither in N
    nor in d_i (`ExactMultiRisk`).
    """

    kind: ClassVar[str] = "large_context"

    task: Disjoint

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return jnp.sum(self.losses(model))

    def losses(self, model: AbstractModel) -> Float[Array, " I"]:
        """The risk of each task."""
        task = self.task
        omega, mu = task.heads(model)
        power = task.signal * task.sizes
        tilt = jnp.exp((omega * task.sizes) @ omega.T)
        missed = (1 - jnp.sum(mu * omega, 0)) ** 2
        spread = jnp.sum(mu * (tilt @ mu), 0)
        rate = jnp.sum(task.probabilities / task.lengths)
        return task.query_noise + power * missed + rate * (power + task.noise) * spread


def spectral_risk(task: AbstractTask, model: AbstractModel) -> SpectralRisk | None:
    """The risk, if `model` is decomposable on the blocks of `task`."""
    found = Disjoint.of(task, model)
    return None if found is None else SpectralRisk(found)
