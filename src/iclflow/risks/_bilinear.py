"""Exact population risk of every model of the form ŷ = βᵀ A x_q (reduced linear attention)."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..models import AbstractModel, Normaliser, attention_length, name_of
from ..runtime.precision import require_float64
from ..tasks import AbstractTask, LinearRegression, Mixture, RandomLabels, same_moments
from ._base import AbstractCoefficientRisk

# Eigenvalues below this share of the largest count as zero: they are rounding.
_ROUNDING = 1e-14


class BilinearRisk(AbstractCoefficientRisk):
    """L(A) = c − 2⟨T, A⟩ + ⟨A, C A Λ⟩ with T = E[y_q β x_qᵀ], C = E[ββᵀ], Λ = E[x_q x_qᵀ].

    The loss depends on the population through these three matrices alone: a gradient takes two D×D
    products, whatever the number of heads and the context length. If all three are diagonal they
    are stored as vectors, and a gradient costs D² instead of D³.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=4, heads=2)
    >>> risk = icl.risk(task, model)
    >>> type(risk).__name__, risk.floor(model).round(4)
    ('BilinearRisk', Array(0.3774, dtype=float64))
    ```
    """

    kind: ClassVar[str] = "exact"

    constant: Float[Array, ""]
    cross: Float[Array, "D *D"]
    second: Float[Array, "D *D"]
    covariance: Float[Array, "D *D"]
    normaliser: Normaliser = eqx.field(static=True, default="context")

    def coefficients_of(self, model: AbstractModel) -> Array:
        if model.form != "bilinear" or model.divides_by != self.normaliser:
            raise ValueError(
                f"This risk is of bilinear models with `normaliser` = {self.normaliser!r}: got a "
                f"{model.form} {name_of(model)} with {model.divides_by!r}."
            )
        coefficients, dim = model.coefficients(), self.covariance.shape[0]
        if coefficients.shape != (dim, dim):
            raise ValueError(
                f"The model has D = {coefficients.shape[-1]} and the task D = {dim}: must be equal."
            )
        return coefficients

    def of_coefficients(self, coefficients: Array) -> Float[Array, ""]:
        # c − ⟨T, A⟩ + ½⟨slope, A⟩: the slope already holds the expensive product.
        linear = jnp.sum(self._cross_matrix() * coefficients)
        return self.constant - linear + jnp.sum(self.slope(coefficients) * coefficients) / 2

    def slope(self, coefficients: Array) -> Array:
        if self.covariance.ndim == 1:
            product = self.second[:, None] * coefficients * self.covariance
        else:
            product = self.second @ coefficients @ self.covariance
        return 2 * (product - self._cross_matrix())

    def floor(self, model: AbstractModel) -> Float[Array, ""]:
        """The minimum over all A of the rank that the model can reach (Eckart and Young), or over
        all sums of its basis."""
        basis = model.coefficient_basis
        if basis is not None:
            return self._floor_of_sums(basis)
        second, covariance = _matrix(self.second), _matrix(self.covariance)
        left, right = _inverse_root(second), _inverse_root(covariance)
        gains = jnp.linalg.svd(left @ self._cross_matrix() @ right, compute_uv=False) ** 2
        rank = model.coefficient_rank
        return self.constant - jnp.sum(gains if rank is None else gains[:rank])

    def _floor_of_sums(self, basis: Float[Array, "K D D"]) -> Float[Array, ""]:
        """The minimum of c − 2 b·z + zᵀGz over A = Σ_k z_k B_k."""
        second, covariance = _matrix(self.second), _matrix(self.covariance)
        target = jnp.einsum("kij,ij->k", basis, self._cross_matrix())
        gram = jnp.einsum("kij,lij->kl", basis, second @ basis @ covariance)
        return self.constant - target @ jnp.linalg.solve(gram, target)

    def _cross_matrix(self) -> Array:
        return _matrix(self.cross)


def exact_bilinear_risk(task: AbstractTask, model: AbstractModel) -> BilinearRisk | None:
    """The exact risk of a bilinear model on `task`, or None if the task has none of this form.

    Derived in `docs/theory/linear.md`, Eq. (1); arXiv 2501.16265 has the case without noise,
    with one context length and w ~ N(0, I).

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> model = icl.Attention.merged(jr.key(0), dim=4, heads=1)
    >>> risk = icl.risks.exact_bilinear_risk(task, model)
    >>> risk.of_coefficients(jnp.eye(4)).round(4)
    Array(0.5129, dtype=float64)
    ```
    """
    parts = _moments(task, model.divides_by)
    if parts is None:
        return None
    require_float64("The exact risk", task=task, model=model)
    constant, cross, second, covariance = (np.asarray(part, np.float64) for part in parts)
    # Vectors in place of matrices save a factor D in every gradient.
    if all(_is_diagonal(matrix) for matrix in (cross, second, covariance)):
        cross, second, covariance = np.diag(cross), np.diag(second), np.diag(covariance)
    stored = (jnp.asarray(part) for part in (constant, cross, second, covariance))
    return BilinearRisk(*stored, normaliser=model.divides_by)


def _moments(task: AbstractTask, normaliser: Normaliser) -> tuple | None:
    """c, T, C and Λ."""
    task = same_moments(task)  # products of two labels need no more of the task vectors
    if isinstance(task, LinearRegression):
        return _regression_moments(task, normaliser)
    if isinstance(task, RandomLabels):
        covariance = task.inputs.covariance
        _, _, incoherent = context_moments(task.inputs, normaliser)
        constant = task.weight @ covariance @ task.weight
        second = incoherent * task.label_variance * covariance
        return constant, jnp.zeros_like(covariance), second, covariance
    if isinstance(task, Mixture):
        covariance = task.components[0].covariance
        if not all(bool(jnp.all(c.covariance == covariance)) for c in task.components):
            return None  # the sum of different C ⊗ Λ is no such product
        parts = [_regression_moments(component, normaliser) for component in task.components]
        weights = task.probabilities
        averaged = [sum(w * part[i] for w, part in zip(weights, parts)) for i in range(3)]
        return *averaged, covariance
    return None


def _regression_moments(
    task: LinearRegression, normaliser: Normaliser
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    # In NumPy: of JAX each of these operations would be a program to compile.
    covariance, moment = np.asarray(task.covariance), np.asarray(task.weight_second_moment)
    signal = covariance @ moment @ covariance
    gain, coherent, incoherent = context_moments(task, normaliser)
    second = coherent * signal + incoherent * np.asarray(task.label_variance) * covariance
    constant = np.asarray(np.sum(covariance * moment) + np.asarray(task.query_noise))
    return constant, gain * signal, second, covariance


def context_moments(task: LinearRegression, normaliser: Normaliser) -> tuple[float, float, float]:
    """E[g], E[g²(1 + 1/ℓ)] and E[g²/ℓ] over context lengths ℓ, with g = ℓ / `attention_length`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(2, context=10)
    >>> [round(each, 3) for each in icl.risks.context_moments(task, "context")]
    [1.0, 1.1, 0.1]
    ```
    """
    length = np.asarray(task.contexts, np.float64)
    gain = length / attention_length(length, normaliser)
    weight = np.asarray(task.context_probabilities)
    return (
        float(np.sum(weight * gain)),
        float(np.sum(weight * gain**2 * (1 + 1 / length))),
        float(np.sum(weight * gain**2 / length)),
    )


def _is_diagonal(matrix: np.ndarray) -> bool:
    return not np.any(matrix - np.diag(np.diag(matrix)))


def _matrix(stored: Array) -> Array:
    return jnp.diag(stored) if stored.ndim == 1 else stored


def _inverse_root(matrix: Array) -> Array:
    """M^(−½) on the range of M, else zero: directions without signal have nothing to gain."""
    values, vectors = jnp.linalg.eigh(matrix)
    real = values > _ROUNDING * values[-1]
    roots = jnp.where(real, 1 / jnp.sqrt(jnp.where(real, values, 1.0)), 0.0)
    return (vectors * roots) @ vectors.T
