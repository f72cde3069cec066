"""Principal component regression with the components of the input distribution."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import InputError
from ..models import Form, Normaliser
from ..risks import BilinearRisk, exact_bilinear_risk
from ..runtime.precision import check_made_in_float64
from ..tasks import AbstractTask, LinearRegression, Mixture, RandomLabels, Sequences
from ._base import AbstractEstimator, check_components
from ._gradient import PreconditionedStep
from ._least_squares import projected_least_squares, subspace_risk


class PopulationPCR(AbstractEstimator):
    """ŷ = Σ_d a_d (e_d·β)(e_d·x_q) over some eigenvectors e_d of the input covariance Λ.

    The a_d are fixed, whatever the context: those with the smallest risk, which are inverse
    variances 1/λ_d shrunk for the noise of a context of length N. For w ~ N(0, I) that is
    a_d = 1/[λ_d + (λ_d + tr Λ + σ²)/N], and the first m components are what separate linear
    attention implements on its plateau m (arXiv 2501.16265, Section 4; derived in
    docs/theory/linear.md).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> [icl.estimators.PopulationPCR(task, m).exact_risk(task).round(3).item() for m in range(5)]
    [1.0, 0.641, 0.377, 0.21, 0.136]
    ```
    """

    basis: Float[Array, "D m"]
    gains: Float[Array, " m"]
    which: tuple[int, ...] = eqx.field(static=True)
    normaliser: Normaliser = eqx.field(static=True, default="context")

    def __init__(
        self,
        task: AbstractTask,
        components: int | Sequence[int],
        normaliser: Normaliser = "context",
    ):
        """**Arguments:**

        - `task`: defines Λ and the a_d.
        - `components`: m, for the m largest eigenvalues; or which ones, 0 for the largest.
        - `normaliser`: the divisor of β, as in the models.
        """
        vectors = eigenvectors(task)
        self.which = _select(components, task.dim)
        self.normaliser = normaliser
        moments = exact_bilinear_risk(task, PreconditionedStep(jnp.zeros_like(vectors), normaliser))
        if moments is None:
            raise ValueError(
                f"The parts of this {type(task).__name__} differ in input covariance: the inverse "
                "variances of its components are not defined."
            )
        # NumPy selects the columns: JAX would compile a program for every number of components.
        chosen = np.asarray(self.which, int)
        self.basis = jax.device_put(np.asarray(vectors)[:, chosen])
        self.gains = jax.device_put(np.asarray(_gains(moments, vectors))[chosen])

    @property
    def name(self) -> str:
        if self.which == tuple(range(len(self.which))):
            count = len(self.which)
            return f"PCR with {count} component{'' if count == 1 else 's'}"
        return f"PCR with components {', '.join(str(d) for d in self.which)}"

    @property
    def form(self) -> Form:
        return "bilinear"

    def coefficients(self) -> Array:
        return (self.basis * self.gains) @ self.basis.T

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return PreconditionedStep(self.coefficients(), self.normaliser).predict(sequences)

    def exact_risk(self, task: AbstractTask) -> Float[Array, ""] | None:
        return PreconditionedStep(self.coefficients(), self.normaliser).exact_risk(task)


class SubspaceLeastSquares(AbstractEstimator):
    """Least squares in the span of the m leading eigenvectors of the input covariance.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> fits = [icl.estimators.SubspaceLeastSquares(task, m) for m in (0, 2, 4)]
    >>> [fit.exact_risk(task).round(3).item() for fit in fits]
    [1.0, 0.321, 0.0]
    ```
    """

    basis: Float[Array, "D m"]
    projection: Float[Array, "D D"]

    def __init__(self, task: AbstractTask, components: int):
        count = check_components(components, task.dim)
        basis = np.asarray(eigenvectors(task))[:, :count]
        self.basis, self.projection = jax.device_put((basis, basis @ basis.T))

    @property
    def name(self) -> str:
        count = self.basis.shape[1]
        return f"least squares in {count} population component{'' if count == 1 else 's'}"

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return projected_least_squares(sequences, self.projection)

    def exact_risk(self, task: AbstractTask) -> Float[Array, ""] | None:
        return subspace_risk(task, self.basis)


def eigenvectors(task: AbstractTask) -> Float[Array, "D D"]:
    """The eigenvectors of the input covariance as columns, the largest eigenvalue first.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.1, 0.4], context=31)
    >>> abs(icl.estimators.eigenvectors(task))
    Array([[0., 1.],
           [1., 0.]], dtype=float64)
    ```
    """
    return jax.device_put(principal_components(task)[1])


def principal_components(
    task: AbstractTask,
) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, "D D"]]:
    """The eigenvalues of the input covariance from the largest down, and its eigenvectors.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.1, 0.4], context=31)
    >>> icl.estimators.principal_components(task)[0]
    array([0.4, 0.1])
    ```
    """
    check_made_in_float64(task=task)
    if isinstance(task, LinearRegression):
        covariance = task.covariance
    elif isinstance(task, RandomLabels):
        covariance = task.inputs.covariance
    elif isinstance(task, Mixture):
        covariance = task.components[0].covariance
        if any(np.any(np.asarray(c.covariance) != np.asarray(covariance)) for c in task.components):
            raise ValueError("The parts of `task` differ in input covariance: must share one.")
    else:
        raise TypeError(f"{type(task).__name__} has no input covariance that is known.")
    variances, vectors = np.linalg.eigh(np.asarray(covariance))
    return variances[::-1].copy(), vectors[:, ::-1].copy()


@eqx.filter_jit
def _gains(moments: BilinearRisk, vectors: Float[Array, "D D"]) -> Float[Array, " D"]:
    """The best a_d of every eigenvector e_d, each a column of `vectors`.

    L(Σ a_d e_d e_dᵀ) = c − 2 Σ a_d T_dd + Σ a_d² λ_d C_dd in the basis of the e_d.
    """
    zero = moments.slope(jnp.zeros_like(vectors))
    along = lambda e, matrix: e @ matrix @ e / 2
    linear = jax.vmap(lambda e: along(e, -zero))(vectors.T)
    square = jax.vmap(lambda e: along(e, moments.slope(jnp.outer(e, e)) - zero))(vectors.T)
    return linear / square


def _select(components: int | Sequence[int], dim: int) -> tuple[int, ...]:
    if not isinstance(components, Sequence):
        return tuple(range(check_components(components, dim)))
    chosen = tuple(check_components(component, dim - 1) for component in components)
    if len(set(chosen)) != len(chosen):
        raise InputError("components", chosen, "must each be listed once")
    return chosen
