"""The large-context approximation of the risk of structured softmax attention."""

from typing import ClassVar, Literal, TypeGuard

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel, MultiStructured, StructuredAttention
from ..tasks import AbstractTask, LinearRegression, MultiTaskRegression
from ._base import AbstractRisk

# Of covariances and second moments, all of them: whether they are multiples of the identity.
Shape = Literal["isotropic", "diagonal", "full"]


class LargeContextRisk(AbstractRisk):
    """L̃ of arXiv 2503.12734 and of arXiv 2402.19442, for any covariances and several labels.

    In a long context a head reads the mean of x tilted by the query, ΛW_h x_q with
    W_h = diag(ω_h), and the noise of that mean has variance proportional to 1/N. With
    Γ_i = Σ_h μ_ih W_h, v_i the variance of a context label, and M_i = E[w_i w_iᵀ],

        L̃ = Σ_i σ² + tr M_i (I − ΛΓ_i) Λ (I − ΛΓ_i)ᵀ + (v_i/N) Σ_hk μ_ih μ_ik exp(tr W_h Λ W_k Λ).

    On one isotropic task and with one ω a head this is Eq. (A4) of docs/theory/softmax.md. It is
    what is left as N and D grow with Dω² fixed; at fixed D its 1/N term is off (`FirstOrderRisk`).
    """

    kind: ClassVar[str] = "large_context"

    covariance: Float[Array, "D D"]
    second_moments: Float[Array, "I D D"]
    label_variances: Float[Array, " I"]
    query_noise: Float[Array, " I"]
    inverse_length: Float[Array, ""]
    shape: Shape = eqx.field(static=True, default="full")

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        blocks, mu = self._circuits(model)
        covariance = self.covariance
        missed = jnp.eye(len(covariance)) - covariance @ jnp.einsum("ih,hde->ide", mu, blocks)
        bias = jnp.einsum("iab,ibc,cd,iad->i", self.second_moments, missed, covariance, missed)
        both_sides = jnp.einsum("ab,hbc,cd->had", covariance, blocks, covariance)
        tilt = jnp.exp(jnp.einsum("hab,kab->hk", blocks, both_sides))
        spread = self.label_variances * jnp.einsum("ih,hk,ik->i", mu, tilt, mu)
        return jnp.sum(self.query_noise + bias + self.inverse_length * spread)

    def of_zero(self, model: AbstractModel) -> Float[Array, ""]:
        return jnp.sum(
            self.query_noise + jnp.einsum("iab,ab->i", self.second_moments, self.covariance)
        )

    def floor(self, model: AbstractModel) -> Float[Array, ""] | None:
        """The infimum, where weights of this shape can come close to it.

        exp(K) ⪰ K entry by entry for every Gram matrix K, so that L̃ is at least what the
        preconditioner Γ_i costs with K in place of exp(K), which is quadratic. Pairs of heads
        with small ω reach it for each of I labels if there are I + 1 heads. A single head pays
        e‖ΛΓ‖² instead of ‖ΛΓ‖².
        """
        _, mu = self._circuits(model)
        labels, heads = mu.shape
        each = model.omega.ndim == 2  # pyright: ignore
        fits = ("isotropic", "diagonal") if each else ("isotropic",)
        if self.shape not in fits or 1 < labels >= heads:
            return None
        signal = jnp.diagonal(self.second_moments, axis1=1, axis2=2) * jnp.diag(self.covariance)
        cost = self.label_variances * self.inverse_length * (jnp.e if heads == 1 else 1.0)
        share = signal * cost[:, None] / (signal + cost[:, None])
        return jnp.sum(self.query_noise) + jnp.sum(jnp.where(signal > 0, share, 0.0))

    def _circuits(self, model: AbstractModel) -> tuple[Float[Array, "H D D"], Float[Array, "I H"]]:
        if not is_structured_softmax(model):
            raise TypeError(
                "This risk is of StructuredAttention and MultiStructured with softmax and "
                f"`self_attention` = False; got {type(model).__name__}."
            )
        dim, labels = len(self.covariance), len(self.query_noise)
        mu = model.mu[None] if isinstance(model, StructuredAttention) else model.mu.T
        if model.dim != dim or len(mu) != labels:
            raise ValueError(
                f"The model has D = {model.dim} and {len(mu)} labels, the task D = {dim} and "
                f"{labels}: must be equal."
            )
        return model.kq()[:, :dim], mu


def large_context_risk(task: AbstractTask) -> LargeContextRisk:
    """The large-context risk of structured softmax attention on linear regressions."""
    if isinstance(task, MultiTaskRegression):
        parts = [task.part(i) for i in range(task.labels)]
    elif isinstance(task, LinearRegression):
        parts = [task]
    else:
        raise ValueError(
            f"The large-context risk needs a LinearRegression or a MultiTaskRegression: got "
            f"{type(task).__name__}."
        )
    moments = jnp.stack([part.weight_second_moment for part in parts])
    variances = jnp.stack([part.label_variance for part in parts])
    query_noise = jnp.stack([part.query_noise for part in parts])
    if isinstance(task, MultiTaskRegression) and task.output_rotation is not None:
        # The tasks are independent: a label that mixes them has the mixed second moments.
        mixing = task.output_rotation**2
        moments, variances, query_noise = (
            jnp.tensordot(mixing, each, 1) for each in (moments, variances, query_noise)
        )
    lengths = jnp.asarray(task.contexts, variances.dtype)
    return LargeContextRisk(
        covariance=parts[0].covariance,
        second_moments=moments,
        label_variances=variances,
        query_noise=query_noise,
        inverse_length=jnp.sum(parts[0].context_probabilities / lengths),
        shape=_shape([parts[0].covariance, *moments]),
    )


def is_structured_softmax(model: AbstractModel) -> TypeGuard[StructuredAttention | MultiStructured]:
    """Whether heads are diag(ω_h) and μ_h, with softmax over the context alone."""
    return (
        isinstance(model, StructuredAttention | MultiStructured)
        and model.activation == "softmax"
        and not model.self_attention
    )


def _shape(matrices: list[Array]) -> Shape:
    entries = [np.asarray(matrix) for matrix in matrices]
    if any(np.any(matrix != np.diag(np.diag(matrix))) for matrix in entries):
        return "full"
    even = all(np.ptp(np.diag(matrix)) <= 1e-12 * np.max(matrix) for matrix in entries)
    return "isotropic" if even else "diagonal"
