"""The exact population risk of decomposable softmax attention on several tasks at finite N."""

import warnings
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel
from ..runtime.precision import require_float64
from ..tasks import AbstractTask, check_choice, check_count
from ._head_task import AbstractHeadRisk, Disjoint
from ._query_norms import BlockNorms, block_norms
from ._query_quadrature import Averages, Resolution

_DIGITS = (3, 10)
# The steepness up to which grids are made: few values, since each compiles another program.
_STEEPNESS = (4.0, 6.0, 8.0, 12.0, 16.0, 20.0)


class ExactMultiRisk(AbstractHeadRisk):
    """The risk of heads ω_hi on block i and μ_hi on label i, averaged over everything.

    Given a query with block norms r_i = |x_q,i|, head h sees tokens through scores of direction
    v_h = (ω_hi r_i)_i in the space of the I blocks, and returns m_h = Σ p_ℓ s_ℓ, where s_ℓ are the
    inputs' components along the query's blocks. Its moments follow from three numbers per pair of
    heads (`_query_quadrature`), and with G_hk = E[p_h·p_k] task i has the loss

        σ_i² + λ_i [r_i² − 2 r_i μ_i·E m_i + μ_iᵀ(E[m_i m_iᵀ] + (d_i − 1) G)μ_i] + σ_i² μ_iᵀG μ_i

    (docs/theory/multitask.md). The mean over the r_i remains: a product of Gauss rules for up to
    three tasks; for more, evenly spread points with weights that make polynomials exact. N may be
    any real number from 1 up. For up to three tasks the error is about 10^−`digits` of the loss of
    predicting zero while scores have standard deviations up to 3; steeper heads and more tasks lose
    digits. `with_error` estimates the error of a value, `losses_with_error` for each task.

    **Fields:**

    - `digits`: of precision, a whole number from 3 to 10.
    - `steepest`: the steepness that the grids are made for: the largest deviation of scores at
      queries with norms of √d_i + 2. `exact_multi_risk` takes it from its model; time grows with
      its square. Heads beyond it raise a warning where their weights are known.

    Measured with 4 digits, against samples and finer grids: at deviations of 5 and 8 (blocks of 4
    and 5 coordinates, steepness 10 and 16, N = 40) losses are right to 0.1 %, with blocks of one
    coordinate at steepness 12 (N = 10) to 1.1 %.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3]], context=40, noise=0.1)
    >>> model = icl.Attention.balanced(jr.key(0), task.coordinates, heads=2)
    >>> value, error = icl.risk(task, model, digits=3).with_error(model)
    >>> bool(error < 1e-3 * value)
    True
    ```
    """

    kind: ClassVar[str] = "exact"
    # A gradient takes seconds: every step is shown at once. (And it is explicit: the Jacobian of an
    # implicit one would take as many gradients as there are weights.)
    tries_at_once: ClassVar[int | None] = 1

    task: Disjoint
    digits: int = eqx.field(static=True, default=4)
    steepest: float = eqx.field(static=True, default=_STEEPNESS[0])

    def __check_init__(self):
        check_count("digits", self.digits, _DIGITS[1], _DIGITS[0])
        check_choice("steepest", self.steepest, _STEEPNESS)
        require_float64("The exact risk")

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return jnp.sum(self.losses(model))

    def losses(self, model: AbstractModel) -> Float[Array, " I"]:
        """The risk of each task."""
        omega, _ = self.task.heads(model)
        if not isinstance(omega, Tracer) and steepness(omega, self.task) > self.steepest:
            warnings.warn(
                f"The heads have the steepness {steepness(omega, self.task):.3g}, and the grids of "
                f"this risk are made for {self.steepest:g}: `with_error` says how wrong it is.",
                stacklevel=2,
            )
        return self._losses(model, self.digits)

    def losses_with_error(
        self, model: AbstractModel
    ) -> tuple[Float[Array, " I"], Float[Array, " I"]]:
        """The risk of each task on a grid of two more digits, and an estimate of its error."""
        fine = self._losses(model, self.digits + 2)
        # For steep heads on small blocks the error falls only as 1/n with n nodes along each norm:
        # the difference from n + 2 nodes is then 2/(n + 2) of it.
        nodes = self.digits + 1
        return fine, (nodes + 2) / 2 * jnp.abs(fine - self._losses(model, self.digits))

    def with_error(self, model: AbstractModel) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The risk on a grid of two more digits, and the sum of the errors of all tasks."""
        fine, errors = self.losses_with_error(model)
        return jnp.sum(fine), jnp.sum(errors)

    def _losses(self, model: AbstractModel, digits: int) -> Float[Array, " I"]:
        task = self.task
        omega, mu = task.heads(model)
        norms = block_norms(tuple(len(read) for read in task.coordinates), digits)
        moments = _Moments.of(omega, norms, task, _resolution(digits, self.steepest))
        gain = jnp.einsum("hi,rhi->ri", mu, moments.mean)
        square = jnp.einsum("hi,rhki,ki->ri", mu, moments.product, mu)
        overlap = jnp.einsum("hi,rhk,ki->ri", mu, moments.overlap, mu)
        own = norms.radii**2 - 2 * norms.radii * gain + square + (task.sizes - 1) * overlap
        each = task.signal * own + task.noise * overlap
        return task.query_noise + norms.weights @ each


class _Moments(eqx.Module):
    """Moments of the heads' outputs at each query, averaged over contexts and their lengths."""

    mean: Float[Array, "R H I"]
    product: Float[Array, "R H H I"]
    overlap: Float[Array, "R H H"]

    @staticmethod
    def of(
        omega: Float[Array, "H I"], norms: BlockNorms, task: Disjoint, resolution: Resolution
    ) -> "_Moments":
        scores = omega * norms.radii[:, None, :]
        found = Averages.of(scores, task.lengths, task.probabilities, resolution)
        heads = np.arange(len(omega))
        # The diagonal is a head with itself; off it, every pair was computed once.
        overlap = jnp.zeros((len(scores), len(heads), len(heads)))
        overlap = overlap.at[:, heads, heads].set(found.square)
        product = jnp.zeros((*overlap.shape, omega.shape[1]))
        own = found.square[..., None] + found.along[..., None] * scores**2
        product = product.at[:, heads, heads].set(own)
        a, b, c, d = found.coefficients[..., None]
        v, w = scores[:, found.first], scores[:, found.second]
        both = found.overlap[..., None] + (a + c) * v * w + b * v**2 + d * w**2
        for i, j in ((found.first, found.second), (found.second, found.first)):
            overlap = overlap.at[:, i, j].set(found.overlap)
            product = product.at[:, i, j].set(both)
        return _Moments(found.centre[..., None] * scores, product, overlap)


def exact_multi_risk(
    task: AbstractTask, model: AbstractModel, digits: int | None = None
) -> ExactMultiRisk:
    """The exact risk of decomposable softmax attention on tasks with disjoint blocks.

    **Arguments:**

    - `digits`: of precision, by default 4; see `ExactMultiRisk`.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3]], context=40)
    >>> model = icl.Attention.balanced(jr.key(0), task.coordinates, heads=2)
    >>> icl.risks.exact_multi_risk(task, model, digits=3).steepest
    4.0
    ```
    """
    found = Disjoint.of(task, model)
    if found is None:
        raise ValueError(
            "The exact risk needs a MultiTaskRegression without rotations whose `coordinates` are "
            "those of the model and do not overlap. Other tasks have the kinds large_context, "
            "dataset, minibatch and sampled."
        )
    omega, _ = found.heads(model)
    # Traced weights have no values yet: they are assumed not to be steep.
    needed = 0.0 if isinstance(omega, Tracer) else steepness(omega, found)
    steepest = next((each for each in _STEEPNESS if each >= needed), _STEEPNESS[-1])
    return ExactMultiRisk(found, 4 if digits is None else digits, steepest)


def steepness(omega: Float[Array, "H I"], task: Disjoint) -> float:
    """The largest standard deviation of a head's scores at queries with norms of √d_i + 2.

    Few blocks of a query are longer: for d_i = 1 one in 370 (a normal variable beyond 3).
    """
    far = np.sqrt(np.asarray(task.sizes)) + 2
    return float(np.max(np.linalg.norm(np.asarray(omega) * far, axis=1)))


def _resolution(digits: int, steepest: float) -> Resolution:
    """Grids with errors below 10^−digits for scores that are not steep (measured)."""
    # As a function of a token's normal variable an integrand is a step of width one over the slope.
    finer = steepest / _STEEPNESS[0]
    return Resolution(
        nodes=round(5.5 * digits + 7),
        normal_nodes=round((8.5 * digits + 9) * finer),
        tail=2.6 * digits + 4,
    )
