"""Approximations of the risk of softmax attention for long contexts."""

from typing import ClassVar, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InputError
from ..models import AbstractModel, Diagonal, name_of
from ..runtime.precision import check_made_in_float64
from ..tasks import AbstractRegression, AbstractTask
from ._base import AbstractRisk
from ._check import is_blind_softmax
from ._draws import Inputs, LabelMoments
from ._head_task import AbstractHeadRisk, Disjoint, Isotropic
from ._lane_batches import output_circuits

# The shape that the input covariance and all second moments of weights share.
Shape = Literal["isotropic", "diagonal", "full"]

# How far equal entries may differ, relative to the largest: rounding.
_ROUNDING = 1e-12
# The first order in 1/N exists for |ω| below this: beyond, averages over queries diverge.
_LARGEST = 0.5**0.5


class LargeContextRisk(AbstractRisk):
    """L̃ of arXiv 2503.12734 and of arXiv 2402.19442, for any covariances and several labels.

    In a long context a head reads the mean of x tilted by the query, ΛW_h x_q, and the noise of
    that mean has variance proportional to 1/N. With labels j of weights w_j, M_j = E[w_j w_jᵀ], v_j
    the variance of a context label, and U_hij what head h reads from label j into prediction i,

        L̃ = Σ_i σ_i² + Σ_ij tr M_j T_ij Λ T_ijᵀ + (1/N) Σ_hk e^{tr W_hᵀΛW_kΛ} Σ_ij v_j U_hij U_kij,
        T_ij = δ_ij I − Λ Σ_h U_hij W_h.

    Both papers have it for diagonal W and U. On one isotropic task and with one ω per head this is
    Eq. (A4) of docs/theory/softmax.md. It is the limit of large N and D with Dω² fixed; at fixed D
    its 1/N term is wrong (`FirstOrderRisk`).

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> large, exact = icl.risk(task, pair, "large_context"), icl.risk(task, pair)
    >>> large(pair).round(3), exact(pair).round(3)
    (Array(0.221, dtype=float64), Array(0.243, dtype=float64))
    ```
    """

    kind: ClassVar[str] = "large_context"

    covariance: Float[Array, "D D"]
    second_moments: Float[Array, "I D D"]
    label_variances: Float[Array, " I"]
    labels: LabelMoments
    inverse_length: Float[Array, ""]
    shape: Shape = eqx.field(static=True, default="full")

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        blocks, values = self._circuits(model)
        covariance, labels = self.covariance, values.shape[1]
        own = jnp.eye(labels)[:, :, None, None] * jnp.eye(len(covariance))
        missed = own - covariance @ jnp.einsum("hij,hde->ijde", values, blocks)
        bias = jnp.sum((self.second_moments @ missed) * (missed @ covariance))
        both_sides = jnp.einsum("ab,hbc,cd->had", covariance, blocks, covariance)
        tilt = jnp.exp(jnp.einsum("hab,kab->hk", blocks, both_sides))
        spread = jnp.einsum("hk,hij,kij,j->", tilt, values, values, self.label_variances)
        return jnp.sum(self.labels.query_noise) + bias + self.inverse_length * spread

    def of_zero(self, model: AbstractModel) -> Float[Array, ""]:
        signal = jnp.einsum("iab,ab->", self.second_moments, self.covariance)
        return jnp.sum(self.labels.query_noise) + signal

    def floor(self, model: AbstractModel) -> Float[Array, ""] | None:
        """The infimum, if weights of this shape are known to come close to it.

        exp(K) ⪰ K entry by entry for every Gram matrix K, so that L̃ is at least what the
        preconditioner Γ_i costs with K in place of exp(K), which is quadratic. Pairs of heads
        with small ω reach it for each of I labels if there are I + 1 heads. A single head pays
        e‖ΛΓ‖² instead of ‖ΛΓ‖².
        """
        blocks, values = self._circuits(model)
        heads, labels = len(blocks), values.shape[1]
        circuits = getattr(model, "circuits", None)
        # Circuits of other kinds may lack the rank to come close to the bound.
        if not isinstance(circuits, Diagonal):
            return None
        fits = ("isotropic", "diagonal") if circuits.per_coordinate else ("isotropic",)
        if self.shape not in fits or 1 < labels >= heads or self.labels.rotation is not None:
            return None
        signal = jnp.diagonal(self.second_moments, axis1=1, axis2=2) * jnp.diag(self.covariance)
        cost = self.label_variances * self.inverse_length * (jnp.e if heads == 1 else 1.0)
        share = signal * cost[:, None] / (signal + cost[:, None])
        return jnp.sum(self.labels.query_noise) + jnp.sum(jnp.where(signal > 0, share, 0.0))

    def _circuits(
        self, model: AbstractModel
    ) -> tuple[Float[Array, "H D D"], Float[Array, "H I J"]]:
        """Key-query between inputs, and output-value between unrotated labels."""
        if not is_blind_softmax(model):
            raise TypeError(
                "This risk is of softmax attention whose weights do not depend on the labels, with "
                f"`self_attention` = False; got {name_of(model)}."
            )
        dim, labels = len(self.covariance), len(self.label_variances)
        blocks = model.kq()
        if blocks.shape[2] != dim or model.labels != labels:
            raise ValueError(
                f"The model has D = {blocks.shape[2]} and {model.labels} labels, the task "
                f"D = {dim} and {labels}: must be equal."
            )
        _, values = output_circuits(model, self.labels, dim)
        return blocks[:, :dim], values


def large_context_risk(task: AbstractTask) -> LargeContextRisk:
    """The large-context risk of softmax attention that does not see labels, on linear
    regressions.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> icl.risks.large_context_risk(task).shape
    'isotropic'
    ```
    """
    if not isinstance(task, AbstractRegression):
        raise ValueError(
            f"The large-context risk needs a LinearRegression or a MultiTaskRegression: got "
            f"{type(task).__name__}."
        )
    check_made_in_float64(task=task)
    inputs, labels = Inputs.of(task), LabelMoments.of(task)
    covariance = inputs.root.matrix @ inputs.root.matrix.T
    moments = labels.covariance + labels.mean[:, :, None] * labels.mean[:, None, :]
    lengths = jnp.asarray(task.contexts, covariance.dtype)
    return LargeContextRisk(
        covariance=covariance,
        second_moments=moments,
        label_variances=jnp.einsum("iab,ab->i", moments, covariance) + labels.noise,
        labels=labels,
        inverse_length=jnp.sum(inputs.probabilities / lengths),
        shape=_shape([covariance, *moments]),
    )


def _shape(matrices: list[Array]) -> Shape:
    entries = [np.asarray(matrix) for matrix in matrices]
    if any(np.any(matrix != np.diag(np.diag(matrix))) for matrix in entries):
        return "full"
    even = all(np.ptp(np.diag(matrix)) <= _ROUNDING * np.max(matrix) for matrix in entries)
    return "isotropic" if even else "diagonal"


class SpectralRisk(AbstractHeadRisk):
    """The closed form of arXiv 2402.19442, for decomposable weights.

    With the overlaps ⟨h, k⟩ = Σ_j d_j ω_hj ω_kj of scores, and φ_i = 1 + σ_i²/(λ_i d_i),

        L̃ = Σ_i σ_i² + λ_i d_i [(1 − μ_i·ω_i)² + (φ_i/N) Σ_hk μ_hi μ_ki exp⟨h, k⟩].

    The same number as `LargeContextRisk`, at a cost that does not depend on D. Exact neither in N
    nor in d_i (`ExactMultiRisk`).

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3]], context=40, noise=0.1)
    >>> model = icl.Attention.balanced(jr.key(0), task.coordinates, heads=2)
    >>> risk = icl.risk(task, model, "large_context")
    >>> risk.losses(model).shape
    (2,)
    ```
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
    """The risk, if `model` is decomposable on the blocks of `task`.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3]], context=40)
    >>> model = icl.Attention.balanced(jr.key(0), task.coordinates, heads=2)
    >>> closed = icl.risks.spectral_risk(task, model)(model)
    >>> jnp.allclose(closed, icl.risks.large_context_risk(task)(model)).item()
    True
    ```
    """
    found = Disjoint.of(task, model)
    return None if found is None else SpectralRisk(found)


class FirstOrderRisk(AbstractHeadRisk):
    """The first two terms of the exact risk in powers of 1/N (docs/theory/softmax.md).

    In units in which inputs are white and E(w·x)² = 1, with κ = μ·ω:

        L₁ = σ² + (1 − κ)² + (1/N) { 2(1 − κ) Σ_h μ_h ω_h (1 − 2ω_h²)^(−D/2−1)
             + Σ_hk μ_h μ_k [(1 + σ²)(1 − 2ω_h ω_k)^(−D/2) + ω_h ω_k (1 − 2ω_h ω_k)^(−D/2−1)] }.

    It exists only for |ω| < 1/√2, is infinite beyond, and is good for ω well below 1/√D.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> icl.risk(task, pair, "first_order")(pair).round(3), icl.risk(task, pair)(pair).round(3)
    (Array(0.247, dtype=float64), Array(0.243, dtype=float64))
    ```
    """

    kind: ClassVar[str] = "first_order"

    task: Isotropic

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        task = self.task
        omega, mu = task.heads(model)
        _check(omega)
        inside = jnp.abs(omega) < _LARGEST
        # Zeros where there is no value: `where` would pass on infinite gradients.
        omega = jnp.where(inside, omega, 0.0)
        missed = 1 - mu @ omega
        products = jnp.outer(omega, omega)
        power = lambda x: (1 - 2 * x) ** (-task.dim / 2)
        bias = 2 * missed * jnp.sum(mu * omega * power(omega**2) / (1 - 2 * omega**2))
        overlap = power(products)
        spread = mu @ ((task.signal + task.noise) * overlap) @ mu
        spread += task.signal * mu @ (products * overlap / (1 - 2 * products)) @ mu
        first = jnp.sum(task.probabilities / task.lengths) * (task.signal * bias + spread)
        risk = task.query_noise + task.signal * missed**2 + first
        return jnp.where(jnp.all(inside), risk, jnp.inf)


def first_order_risk(task: AbstractTask) -> FirstOrderRisk:
    """The first-order risk of structured softmax attention on an isotropic linear regression.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40)
    >>> icl.risks.first_order_risk(task).kind
    'first_order'
    ```
    """
    return FirstOrderRisk(Isotropic.require(task, "The first-order risk"))


def _check(omega: Array) -> None:
    """Refuses weights without a first order. Traced weights have no values yet: there the risk is
    infinite instead."""
    if isinstance(omega, Tracer):
        return
    largest = float(np.max(np.abs(np.asarray(omega))))
    if largest >= _LARGEST:
        raise InputError(
            "omega",
            problem=f"reaches {largest:.6g} (for white inputs)",
            allowed="the first order in 1/N exists for |ω| < 0.7071 alone. Use the exact risk",
        )
