"""The risk of structured softmax attention up to first order in 1/N, exact in the dimension."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InputError
from ..models import AbstractModel
from ..tasks import AbstractTask
from ._head_task import AbstractHeadRisk
from ._isotropic import Isotropic

# Beyond, averages over queries of the first order diverge.
_LARGEST = 0.5**0.5


class FirstOrderRisk(AbstractHeadRisk):
    """The first two terms of the exact risk in powers of 1/N (docs/theory/softmax.md).

    In units in which inputs are white and E(w·x)² = 1, with κ = μ·ω:

        L₁ = σ² + (1 − κ)² + (1/N) { 2(1 − κ) Σ_h μ_h ω_h (1 − 2ω_h²)^(−D/2−1)
             + Σ_hk μ_h μ_k [(1 + σ²)(1 − 2ω_h ω_k)^(−D/2) + ω_h ω_k (1 − 2ω_h ω_k)^(−D/2−1)] }.

    It exists for |ω| < 1/√2 alone, and is good for ω well below 1/√D; beyond, it is infinite.
    """

    kind: ClassVar[str] = "first_order"

    task: Isotropic

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        task = self.task
        omega, mu = task.heads(model)
        _check(omega)
        inside = jnp.abs(omega) < _LARGEST
        # Zeros in place of what has no value, so that gradients of `where` stay finite.
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
    """The first-order risk of structured softmax attention on an isotropic linear regression."""
    return FirstOrderRisk(Isotropic.require(task, "The first-order risk"))


def _check(omega: Array) -> None:
    """Refuses weights without a first order, where they are at hand; inside a compiled program
    the risk is infinite instead."""
    if isinstance(omega, Tracer):
        return
    largest = float(np.max(np.abs(np.asarray(omega))))
    if largest >= _LARGEST:
        raise InputError(
            "omega",
            problem=f"reaches {largest:.6g} (for white inputs)",
            allowed="the first order in 1/N exists for |ω| < 0.7071 alone. Use the exact risk",
        )
