"""Stationary points of a risk: how to find them, and what they are."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InputError
from ..flows import Layout
from ..models import AbstractModel
from ..risks import AbstractRisk
from ..runtime.precision import require_float64

# The most evaluations of the gradient per restart; a restart that needs more has failed.
_EVALUATIONS = 1000
# Tolerances of the root finder: near rounding, so that the gradient alone decides.
_ROOT_TOLERANCE = 1e-15


@dataclasses.dataclass(frozen=True)
class HessianSpectrum:
    """The second-order picture of a risk at one point in the space of weights.

    **Fields:**

    - `loss`, `gradient_norm`: of the risk L itself, not of L/2.
    - `eigenvalues`: of the Hessian, the smallest first.
    - `index`: how many are negative; `nullity`: how many are zero; both up to `tolerance`.
    """

    loss: float
    gradient_norm: float
    eigenvalues: Float[np.ndarray, " n"]
    tolerance: float

    @property
    def index(self) -> int:
        return int(np.sum(self.eigenvalues < -self.tolerance))

    @property
    def nullity(self) -> int:
        return int(np.sum(np.abs(self.eigenvalues) <= self.tolerance))


def hessian_spectrum(
    risk: AbstractRisk, model: AbstractModel, tolerance: float = 1e-8
) -> HessianSpectrum:
    """Loss, gradient and Hessian of `risk` at `model`, by automatic differentiation.

    **Arguments:**

    - `tolerance`: an eigenvalue counts as zero up to this share of the largest one, or of 1
      where all are small. Rounding leaves about 1e-15 of it; a point known only to accuracy δ
      has eigenvalues that are off by about δ.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> zero = icl.Attention.separate(jr.key(0), dim=2, heads=1, scale=0.0)
    >>> found = icl.analysis.hessian_spectrum(icl.risk(task, zero), zero)
    >>> found.index, found.nullity
    (0, 5)
    ```
    """
    _require_deterministic(risk)
    layout = Layout.of(model)
    loss, gradient, hessian = _derivatives(layout, risk, layout.vector(model))
    values = np.linalg.eigvalsh(np.asarray(hessian))
    scale = max(1.0, float(np.max(np.abs(values))))
    norm = float(np.linalg.norm(np.asarray(gradient)))
    return HessianSpectrum(float(loss), norm, values, tolerance * scale)


@dataclasses.dataclass(frozen=True)
class StationaryPoints:
    """The points where random restarts of a root finder on the gradient ended.

    **Fields:**

    - `losses`, `gradient_norms`: at each restart that converged; the smallest loss first.
    - `models`: the weights there, every array with a leading axis over the restarts.
    - `failed`: how many restarts did not converge: their root finder stopped where the gradient
      is small but not zero.
    """

    losses: Float[np.ndarray, " n"]
    gradient_norms: Float[np.ndarray, " n"]
    models: AbstractModel
    failed: int

    @property
    def started(self) -> int:
        """How many restarts there were."""
        return len(self.losses) + self.failed

    @property
    def words(self) -> str:
        """How many of them converged, such as "98 of 100 converged"."""
        return f"{len(self.losses)} of {self.started} converged"

    def at(self, index: int) -> AbstractModel:
        """The model where one restart ended."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[index]), self.models)

    def distinct_losses(self, tolerance: float = 1e-6) -> Float[np.ndarray, " m"]:
        """The losses, each once, the smallest first; those closer than `tolerance` are one."""
        first = np.diff(self.losses, prepend=-np.inf) > tolerance
        return self.losses[first]

    def distinct_functions(self, tolerance: float = 1e-4) -> tuple[AbstractModel, ...]:
        """One model for each function found, the smallest loss first.

        The weights of one function form a manifold. Two functions are distinct if some entry of
        their `coefficients()` differs by more than `tolerance`.
        """
        found: list[tuple[Array, AbstractModel]] = []
        for i in range(len(self.losses)):
            model = self.at(i)
            coefficients = model.coefficients()
            if all(jnp.max(jnp.abs(coefficients - c)) > tolerance for c, _ in found):
                found.append((coefficients, model))
        return tuple(model for _, model in found)


def find_stationary_points(
    risk: AbstractRisk,
    template: AbstractModel,
    restarts: int,
    key: PRNGKeyArray,
    *,
    scale: float | None = None,
    tolerance: float = 1e-10,
) -> StationaryPoints:
    """Searches for stationary points of every kind, minima and saddles, from random weights.

    Each restart minimises ‖∂L/∂W‖² by Levenberg and Marquardt's method with the exact Hessian,
    which is drawn to saddles as much as to minima.

    **Arguments:**

    - `template`: a model of the shape to search; its weights are only used for `scale`.
    - `restarts`: how many random weights to start from.
    - `key`: draws them.
    - `scale`: the standard deviation of the random weights; by default the root mean square of
      the template's.
    - `tolerance`: the largest gradient norm at which a restart counts as converged.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=1)
    >>> risk = icl.risk(task, model)
    >>> found = icl.analysis.find_stationary_points(risk, model, 20, jr.key(1), scale=2.0)
    >>> found.distinct_losses().round(3)
    array([0.448, 0.641, 1.   ])
    ```
    """
    _require_deterministic(risk)
    if restarts < 1 or restarts != int(restarts):
        raise InputError("restarts", restarts, "must be a whole number from 1 up")
    layout = Layout.of(template)
    if scale is None:
        scale = float(jnp.sqrt(jnp.mean(layout.vector(template) ** 2)))
    starts = scale * np.asarray(jr.normal(key, (int(restarts), layout.size)))

    def gradient(weights: np.ndarray) -> np.ndarray:
        slope = np.asarray(_gradient(layout, risk, jnp.asarray(weights)))
        # Zero ends the iteration, which would take long at a degenerate saddle.
        return np.where(np.linalg.norm(slope) <= tolerance, 0.0, slope)

    def hessian(weights: np.ndarray) -> np.ndarray:
        return np.asarray(_derivatives(layout, risk, jnp.asarray(weights))[2])

    options: dict[str, Any] = {"method": "lm", "max_nfev": _EVALUATIONS}
    options |= {name: _ROOT_TOLERANCE for name in ("xtol", "ftol", "gtol")}
    ends, losses, norms = [], [], []
    for start in starts:
        end = scipy.optimize.least_squares(gradient, start, jac=hessian, **options).x  # pyright: ignore
        loss, slope, _ = _derivatives(layout, risk, jnp.asarray(end))
        norm = float(jnp.linalg.norm(slope))
        if norm <= tolerance:
            ends.append(end)
            losses.append(float(loss))
            norms.append(norm)
    order = np.argsort(losses)
    models = layout.models(np.reshape(ends, (-1, layout.size))[order])
    sorted_losses, sorted_norms = np.asarray(losses)[order], np.asarray(norms)[order]
    return StationaryPoints(sorted_losses, sorted_norms, models, int(restarts) - len(losses))


@eqx.filter_jit
def _gradient(layout: Layout, risk: AbstractRisk, weights: Float[Array, " n"]) -> Array:
    return layout.vector(risk.gradient(layout.model(weights)))


@eqx.filter_jit
def _derivatives(layout: Layout, risk: AbstractRisk, weights: Float[Array, " n"]):
    """Loss, gradient and Hessian."""
    gradient = lambda w: layout.vector(risk.gradient(layout.model(w)))
    hessian = jax.jacfwd(gradient)(weights)
    return risk(layout.model(weights)), gradient(weights), (hessian + hessian.T) / 2


def _require_deterministic(risk: AbstractRisk) -> None:
    require_float64("The search for stationary points")
    if risk.stochastic:
        raise InputError(
            "Stationary points need a risk without randomness: choose `exact` or `dataset`."
        )
