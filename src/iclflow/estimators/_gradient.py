"""One step of gradient descent from zero on the squares of the context, in its variants.

With β = (1/N) Σ yₙxₙ, a step of size η from w = 0 on ½ Σ(yₙ − w·xₙ)²/N gives w = ηβ. This is the
family that one layer of linear attention belongs to (arXiv 2501.16265, Section 2).
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from ..models import Form, Normaliser, attention_length
from ..risks import available_kinds, risk
from ..runtime.precision import as_float, check_made_in_float64
from ..tasks import (
    AbstractTask,
    LinearRegression,
    Mixture,
    Sequences,
    same_moments,
    with_context,
)
from ._base import AbstractEstimator, masked_context


class Zero(AbstractEstimator):
    """ŷ = 0: no step at all; the prediction of small weights before anything is learned.

    **Example:**

    ```pycon
    >>> icl.estimators.Zero().exact_risk(icl.isotropic(dim=5, noise=0.1)).round(3)
    Array(1.1, dtype=float64)
    ```
    """

    name: ClassVar[str] = "zero"

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return jnp.zeros_like(sequences.y_query)

    def exact_risk(self, task: AbstractTask) -> Float[Array, ""] | None:
        return PreconditionedStep(jnp.zeros((task.dim, task.dim))).exact_risk(task)


class PreconditionedStep(AbstractEstimator):
    """ŷ = βᵀ A x_q: one step with a matrix in place of a step size.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.1], context=31)
    >>> best = icl.theory.optimal_matrix(task)
    >>> icl.estimators.PreconditionedStep(jnp.asarray(best)).exact_risk(task).round(4)
    Array(0.0433, dtype=float64)
    >>> round(icl.theory.optimal_loss(task), 4)
    0.0433
    ```
    """

    name: ClassVar[str] = "one preconditioned gradient step"
    matrix: Float[Array, "D D"]
    normaliser: Normaliser = eqx.field(static=True, default="context")

    @property
    def form(self) -> Form:
        return "bilinear"

    def coefficients(self) -> Array:
        return self.matrix

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return _predict_with_matrix(sequences, self.matrix, self.normaliser)

    def exact_risk(self, task: AbstractTask) -> Float[Array, ""] | None:
        if "exact" not in available_kinds(task, self):
            return None
        return risk(task, self, "exact")(self)


class GradientStep(AbstractEstimator):
    """ŷ = η βᵀ x_q: one plain step of size η.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> step = icl.estimators.GradientStep(0.85)
    >>> step.exact_risk(task).round(4)
    Array(0.2399, dtype=float64)
    >>> sampled = step.risk(task, jr.key(0), count=5000)
    >>> bool(abs(sampled.value - step.exact_risk(task)) < 4 * sampled.standard_error)
    True
    ```
    """

    name: ClassVar[str] = "one gradient step"
    step_size: Float[Array, ""]
    normaliser: Normaliser = eqx.field(static=True, default="context")

    def __init__(self, step_size: ScalarLike, normaliser: Normaliser = "context"):
        self.step_size = as_float(step_size)
        self.normaliser = normaliser

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        beta = correlation(sequences, self.normaliser)
        return self.step_size * jnp.einsum("...id,...d->...i", beta, sequences.x_query)

    def exact_risk(self, task: AbstractTask) -> Float[Array, ""] | None:
        matrix = self.step_size * jnp.eye(task.dim)
        return PreconditionedStep(matrix, self.normaliser).exact_risk(task)


class DebiasedPreconditionedStep(AbstractEstimator):
    """ŷ = (1/N) Σ yₙ (xₙ − x̄)ᵀ A x_q: a step with a matrix, the context centred.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.1], context=31)
    >>> step = icl.estimators.DebiasedPreconditionedStep(jnp.diag(jnp.array([2.0, 5.0])))
    >>> step.exact_risk(task).round(4)
    Array(0.0697, dtype=float64)
    ```
    """

    name: ClassVar[str] = "one debiased preconditioned step"
    matrix: Float[Array, "D D"]

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        beta = centred_correlation(sequences)
        return jnp.einsum("...id,de,...e->...i", beta, self.matrix, sequences.x_query)

    def exact_risk(self, task: AbstractTask) -> Float[Array, ""] | None:
        """Centring ℓ Gaussian pairs is a rotation after which one of them is missing.

        So the risk at length ℓ is that of a plain step with A(ℓ − 1)/ℓ at length ℓ − 1.
        """
        task = same_moments(task)
        if isinstance(task, Mixture):
            parts = [self.exact_risk(component) for component in task.components]
            return sum(p * part for p, part in zip(task.probabilities, parts))  # pyright: ignore
        if not isinstance(task, LinearRegression):
            return None
        check_made_in_float64(task=task)
        total = jnp.zeros(())
        for length, share in zip(task.contexts, task.context_probabilities):
            shorter = with_context(task, max(length - 1, 1))
            step = PreconditionedStep(self.matrix * (length - 1) / length)
            total = total + share * step.exact_risk(shorter)
        return total


class DebiasedGradientStep(AbstractEstimator):
    """ŷ = (η/N) Σ yₙ (xₙ − x̄)ᵀ x_q: one step with the context centred (arXiv 2503.12734).

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> icl.estimators.DebiasedGradientStep(0.9).exact_risk(task).round(4)
    Array(0.2433, dtype=float64)
    ```
    """

    name: ClassVar[str] = "one debiased gradient step"
    step_size: Float[Array, ""]

    def __init__(self, step_size: ScalarLike):
        self.step_size = as_float(step_size)

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        beta = centred_correlation(sequences)
        return self.step_size * jnp.einsum("...id,...d->...i", beta, sequences.x_query)

    def exact_risk(self, task: AbstractTask) -> Float[Array, ""] | None:
        matrix = self.step_size * jnp.eye(task.dim)
        return DebiasedPreconditionedStep(matrix).exact_risk(task)


@eqx.filter_jit
def _predict_with_matrix(sequences: Sequences, matrix: Array, normaliser: Normaliser) -> Array:
    beta = correlation(sequences, normaliser)
    return jnp.einsum("...id,de,...e->...i", beta, matrix, sequences.x_query)


@eqx.filter_jit
def correlation(sequences: Sequences, normaliser: Normaliser = "context") -> Float[Array, "*b I D"]:
    """β = (1/N) Σ yₙxₙ of each label; `normaliser` decides what takes the place of N.

    **Example:**

    ```pycon
    >>> sequences = icl.isotropic(dim=3).sample(jr.key(0), 4)
    >>> beta = icl.estimators.correlation(sequences, "context")
    >>> prediction = jnp.einsum("bid,bd->bi", beta, sequences.x_query)
    >>> jnp.allclose(prediction, icl.estimators.GradientStep(1.0).predict(sequences)).item()
    True
    ```
    """
    x, y = masked_context(sequences)
    length = attention_length(sequences.length, normaliser)
    return jnp.einsum("...nd,...ni->...id", x, y) / length[..., None, None]


@eqx.filter_jit
def centred_correlation(sequences: Sequences) -> Float[Array, "*b I D"]:
    """(1/N) Σ yₙ (xₙ − x̄) of each label.

    **Example:**

    ```pycon
    >>> sequences = icl.isotropic(dim=3).sample(jr.key(0), 4)
    >>> icl.estimators.centred_correlation(sequences).shape
    (4, 1, 3)
    ```
    """
    x, y = masked_context(sequences)
    # Σ yₙ(xₙ − x̄) = Σ (yₙ − ȳ)xₙ, and padding adds nothing to sums over x and y.
    length = sequences.length[..., None, None]
    mean = jnp.sum(y, -2, keepdims=True) / length
    return jnp.einsum("...nd,...ni->...id", x, y - mean) / length
