"""The exact population risk of softmax attention at finite context length."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel
from ..runtime.precision import require_float64
from ..tasks import AbstractTask, check_count
from ._base import TABLE_FULL
from ._head_task import AbstractHeadRisk, Isotropic, scalar_softmax
from ._query_norms import radius_nodes
from ._softmax_quadrature import head_moments, pair_moments
from ._softmax_table import BEST_DIGITS, TabulatedSoftmaxRisk, tabulate

_DIGITS = (6, 12)
# The narrowest table for gradient flow, in units of 1/√D: heads that learn from small weights end
# at about 1.3/√D. The next ones are twice as wide each, up to the widest: beyond, a table takes
# minutes to make, longer than a flow without it.
_NARROWEST, _WIDEST = 1.6, 8 * 1.6
# Added to the reach that is needed, so that rounding never makes a full table look wide enough.
_MARGIN = 1e-9


class QuadraticForm(NamedTuple):
    """constant − 2 linear·μ + μᵀ square μ."""

    constant: Float[Array, ""]
    linear: Float[Array, " H"]
    square: Float[Array, "H H"]


class Refined(NamedTuple):
    """A risk with an estimate of its quadrature error, and the digits that it took.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> refined = icl.risk(task, pair, digits=6).refine(pair, tolerance=1e-6)
    >>> round(refined.value, 5), refined.error <= 1e-6
    (0.24324, True)
    ```
    """

    value: float
    error: float
    digits: int


class ExactSoftmaxRisk(AbstractHeadRisk):
    """The risk of ŷ = Σ_h μ_h Σ_ℓ softmax_ℓ(ω_h x_ℓ·x_q) y_ℓ on an isotropic task, by quadrature.

    Weights, noise and the D − 1 directions of x_ℓ orthogonal to x_q are averaged in closed form.
    With r = |x_q|, s_ℓ = x_ℓ·x_q/r ~ N(0, 1), p_h = softmax(ω_h r s), and in units in which inputs
    are white and E(w·x)² = 1, the rest is (docs/theory/softmax.md):

        L = σ² + 1 − 2μ·b + μᵀ[M/D + ((D−1)/D + σ²) G] μ,
        b_h = E[r p_h·s]/D,   G_hk = E[p_h·p_k],   M_hk = E[(p_h·s)(p_k·s)].

    There is no sampling; the cost does not depend on the context length, which may be any real
    number from 1 up. The grids follow the weights: steep, saturated heads cost more. For white
    inputs errors are 10^−`digits` times (Σ|μ|)² while |ω| ≤ 3, and a few times that up to |ω| = 20
    and D ≥ 5 (measured); in one or two dimensions steeper heads lose up to three digits. Rounding
    adds about 10⁻¹⁶ times the context length. `with_error` estimates the error of a value, and
    `refine` refines the grid down to a tolerance.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = icl.Attention(icl.Diagonal(omega=[0.13, -0.13], mu=[3.45, -3.45], dim=5))
    >>> risk = icl.risk(task, pair)
    >>> value, error = risk.with_error(pair)
    >>> value.round(6), bool(error < 1e-9)
    (Array(0.243244, dtype=float64), True)
    ```
    """

    kind: ClassVar[str] = "exact"
    costly: ClassVar[bool] = True
    tries_at_once: ClassVar[int | None] = 32

    task: Isotropic
    digits: int = eqx.field(static=True, default=10)

    def __check_init__(self):
        check_count("digits", self.digits, _DIGITS[1], _DIGITS[0])
        require_float64("The exact risk")

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return self._value_and_defect(model, self.digits)[0]

    def with_error(self, model: AbstractModel) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The risk, and an estimate of its quadrature error.

        The value is that on a grid of two more digits. The error is the difference between both
        grids, or the violation of Σ_ℓ Σ_ℓ′ p_ℓ p′_ℓ′ = 1 on the coarser one if that is larger.
        """
        fine, _ = self._value_and_defect(model, self.digits + 2)
        coarse, defect = self._value_and_defect(model, self.digits, True)
        return fine, jnp.maximum(jnp.abs(fine - coarse), defect)

    def refine(self, model: AbstractModel, tolerance: float = 1e-8) -> Refined:
        """The risk of weights that are not traced, on finer and finer grids until the error is at
        most `tolerance`."""
        error = jnp.inf
        for digits in range(self.digits, _DIGITS[1] + 1):
            value, error = ExactSoftmaxRisk(self.task, digits).with_error(model)
            if error <= tolerance:
                return Refined(float(value), float(error), digits)
        raise RuntimeError(
            f"The quadrature error is {float(error):.3g} on the finest grid: more than "
            f"`tolerance` = {tolerance:g}."
        )

    def quadratic_form(self, omega: Float[Array, " H"]) -> QuadraticForm:
        """The risk as a function of μ, at fixed ω: constant − 2 linear·μ + μᵀ square μ."""
        return self._form(self.task.input_variance * omega, self.digits, False)[0]

    def table_reach(self, models: AbstractModel) -> float | None:
        circuits = scalar_softmax(models)
        assert circuits is not None
        unit = float(self.task.input_variance) * self.task.dim**0.5
        steepest = (1 + _MARGIN) * unit * float(np.max(np.abs(circuits.omega))) / TABLE_FULL
        reach = _NARROWEST
        # By doubling, so that a run whose weights grow makes few tables.
        while reach < min(steepest, 2 * _WIDEST):
            reach *= 2
        return reach / unit if reach <= _WIDEST and self.digits <= BEST_DIGITS else None

    def tabulate(
        self, reach: float, report: Callable[[float], object] | None = None
    ) -> TabulatedSoftmaxRisk:
        """The same risk for |ω| ≤ `reach`, from a table of its integrals: seconds to make, then
        microseconds per model. For maps of the loss, and for many gradient flows."""
        return tabulate(self.task, reach, self.digits, report)

    def _value_and_defect(
        self, model: AbstractModel, digits: int, check: bool = False
    ) -> tuple[Array, Array]:
        omega, mu = self.task.heads(model)
        form, defect = self._form(omega, digits, check)
        value = form.constant - 2 * form.linear @ mu + mu @ form.square @ mu
        return value, jnp.abs(mu) @ defect @ jnp.abs(mu)

    def _form(
        self, omega: Array, digits: int, check: bool
    ) -> tuple[QuadraticForm, Float[Array, "H H"]]:
        """The quadratic form for white inputs, and an estimate of its errors if `check`."""
        task = self.task
        r, weight = radius_nodes(omega, task.dim, digits)
        moments = jnp.einsum(
            "k,khjrm->hjrm", task.probabilities, self._moments(omega, r, weight, digits, check)
        )
        gain = omega * ((1 - jnp.diagonal(moments[..., 0]).T) @ (weight * r**2)) / task.dim
        overlap, product, *total = jnp.moveaxis(jnp.einsum("r,hjrm->hjm", weight, moments), -1, 0)
        share = task.signal * (1 - 1 / task.dim) + task.noise
        form = QuadraticForm(
            task.query_noise + task.signal,
            task.signal * gain,
            share * overlap + task.signal / task.dim * product,
        )
        lacking = (
            jnp.einsum("r,hjr->hj", weight, jnp.abs(moments[..., -1] - 1)) if check else 0 * overlap
        )
        return form, share * lacking

    def _moments(
        self, omega: Array, r: Array, weight: Array, digits: int, check: bool
    ) -> Float[Array, "K H H R moments"]:
        """Moments of each pair of heads, at each context length and each r."""
        lengths, heads = self.task.lengths, len(omega)
        slopes = omega[:, None] * r
        # Some moments are multiplied by r² in the sum: they must be that much more precise.
        weight = weight * (1 + r**2)

        def flatten(*arrays: Array) -> list[Array]:
            shape = (len(lengths), *arrays[0].shape)
            each = (*arrays, lengths[:, None, None], weight)
            return [jnp.broadcast_to(x, shape).reshape(-1) for x in each]

        own = head_moments(*flatten(slopes), digits=digits, check=check)
        own = own.reshape(len(lengths), *slopes.shape, -1)
        found = jnp.zeros((len(lengths), heads, heads, *own.shape[2:]))
        found = found.at[:, *np.diag_indices(heads)].set(own)
        if heads == 1:
            return found
        first, second = np.triu_indices(heads, 1)
        pairs = flatten(slopes[first], slopes[second])
        both = pair_moments(*pairs, digits=digits, check=check)
        both = both.reshape(len(lengths), len(first), *own.shape[2:])
        return found.at[:, first, second].set(both).at[:, second, first].set(both)


def exact_softmax_risk(task: AbstractTask, digits: int = 10) -> ExactSoftmaxRisk:
    """The exact risk of structured softmax attention on an isotropic linear regression.

    **Arguments:**

    - `digits`: of precision; see `ExactSoftmaxRisk`.

    **Example:**

    ```pycon
    >>> risk = icl.risks.exact_softmax_risk(icl.isotropic(dim=5, context=40), digits=8)
    >>> risk.digits
    8
    ```
    """
    return ExactSoftmaxRisk(Isotropic.require(task, "The exact softmax risk"), digits)
