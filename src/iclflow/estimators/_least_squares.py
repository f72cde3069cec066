"""Regression on the context: least squares, with a ridge penalty, in fewer dimensions; kernels."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, ScalarLike

from ..eigen import eigh
from ..runtime.precision import as_float, check_made_in_float64
from ..tasks import AbstractTask, LinearRegression, Mixture, Sequences
from ._base import AbstractEstimator, check_components, masked_context

# Entries of Λ between a space and the rest, relative to its largest entry, that are rounding.
_MIXED_BY_ROUNDING = 1e-10
# Eigenvalues and singular values below these, in units of the last digit of the largest, are zero
# up to rounding.
_ZERO_EIGENVALUE, _ZERO_SINGULAR_VALUE = 1e3, 1e2


class LeastSquares(AbstractEstimator):
    """The w that fits the context best; the shortest one where several fit equally well.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> icl.estimators.LeastSquares().exact_risk(task).round(4)
    Array(0.1147, dtype=float64)
    ```
    """

    name: ClassVar[str] = "least squares"

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        return _fit(*masked_context(sequences), sequences.x_query)

    def exact_risk(self, task: AbstractTask) -> Float[Array, ""] | None:
        return subspace_risk(task, jnp.eye(task.dim))


class Ridge(AbstractEstimator):
    """The w that minimises Σ(yₙ − w·xₙ)² + penalty · ‖w‖²: Bayes for w ~ N(0, σ²/penalty · I).

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> mean = icl.estimators.Ridge(0.5).risk(task, jr.key(0), count=2000)
    >>> mean.value.round(2)
    Array(0.11, dtype=float64)
    ```
    """

    name: ClassVar[str] = "ridge regression"
    penalty: Float[Array, ""]

    def __init__(self, penalty: ScalarLike):
        self.penalty = as_float(penalty)

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        x, y = masked_context(sequences)
        return _fit(x, y, sequences.x_query, penalty=self.penalty)


class EmpiricalPCR(AbstractEstimator):
    """Least squares in the span of the m leading principal components of the context.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.7, 0.2, 0.1], context=31)
    >>> sequences = task.sample(jr.key(0), 500)
    >>> for count in (1, 3):
    ...     pcr = icl.estimators.EmpiricalPCR(count)
    ...     print(pcr.name, f"{sequences.squared_error(pcr.predict(sequences)).mean():.1f}")
    PCR with 1 in-context component 0.3
    PCR with 3 in-context components 0.0
    ```
    """

    components: int = eqx.field(static=True)

    def __init__(self, components: int):
        self.components = check_components(components)

    @property
    def name(self) -> str:
        plural = "" if self.components == 1 else "s"
        return f"PCR with {self.components} in-context component{plural}"

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        x, y = masked_context(sequences)
        return _fit(x, y, sequences.x_query, self.components)


class KernelRegression(AbstractEstimator):
    """ŷ = c Σₙ pₙ yₙ with p = softmax(ω x·x_q): the labels averaged with an exponential kernel.

    With inputs of one length this is the estimator of Nadaraya and Watson with a Gaussian kernel.

    **Example:**

    ```pycon
    >>> sequences = icl.isotropic(dim=2, context=30).sample(jr.key(0), 4)
    >>> flat = icl.estimators.KernelRegression(omega=0.0)
    >>> jnp.allclose(flat.predict(sequences), sequences.y.mean(-2)).item()
    True
    ```
    """

    name: ClassVar[str] = "kernel regression"
    omega: Float[Array, ""]
    factor: Float[Array, ""]

    def __init__(self, omega: ScalarLike, factor: ScalarLike = 1.0):
        self.omega = as_float(omega)
        self.factor = as_float(factor)

    def predict(self, sequences: Sequences) -> Float[Array, "*batch I"]:
        scores = self.omega * jnp.einsum("...nd,...d->...n", sequences.x, sequences.x_query)
        weights = jax.nn.softmax(scores, where=sequences.mask(), axis=-1)
        _, y = masked_context(sequences)
        return self.factor * jnp.einsum("...n,...ni->...i", weights, y)


def projected_least_squares(
    sequences: Sequences, projection: Float[Array, "D D"]
) -> Float[Array, "*batch I"]:
    """Least squares on the coordinates in the space that is projected onto."""
    x, y = masked_context(sequences)
    # Projected inputs span fewer directions, and `_fit` returns the shortest w: so one compiled
    # program serves every number of coordinates.
    return _fit(x @ projection, y, sequences.x_query @ projection)


def subspace_risk(task: AbstractTask, basis: Float[Array, "D m"]) -> Float[Array, ""] | None:
    """The exact risk of least squares on the coordinates along `basis`; None without a closed form.

    `basis` must span eigenvectors of Λ. The rest of the inputs is independent of these coordinates
    and acts as further noise, of variance
    s² = Σ_missed + σ². The error of least squares is then s² · tr E[(XᵀX)⁻¹Λ] = s² m/(N − m − 1)
    (a Wishart matrix), on top of s² itself. Infinite for N = m and N = m + 1.
    """
    if isinstance(task, Mixture):
        parts = [subspace_risk(component, basis) for component in task.components]
        if any(part is None for part in parts):
            return None
        return sum(p * part for p, part in zip(task.probabilities, parts))  # pyright: ignore
    if not isinstance(task, LinearRegression):
        return None
    check_made_in_float64(task=task)
    rest = jnp.eye(task.dim) - basis @ basis.T
    mixed = jnp.max(jnp.abs(basis.T @ task.covariance @ rest), initial=0.0)
    if mixed > _MIXED_BY_ROUNDING * jnp.max(jnp.abs(task.covariance)):
        return None
    components = basis.shape[1]
    missed = jnp.sum((rest @ task.covariance @ rest) * task.weight_second_moment)
    # Rounding must not add noise where every component is kept.
    missed = jnp.where(components == task.dim, 0.0, missed)
    excess = jnp.zeros(())
    for length, share in zip(task.contexts, task.context_probabilities):
        if length < components:
            return None
        room = length - components - 1
        factor = components / room if room > 0 else (jnp.inf if components else 0.0)
        variance = missed + task.noise
        excess = excess + share * jnp.where(variance > 0, variance * factor, 0.0)
    return missed + task.query_noise + excess


def _inverse(values: Array) -> Array:
    """1/s, and 0 for singular values that are zero up to rounding."""
    tiny = values[..., :1] * _ZERO_SINGULAR_VALUE * jnp.finfo(values.dtype).eps
    seen = values > tiny
    return jnp.where(seen, 1 / jnp.where(seen, values, 1.0), 0.0)


def _fit(
    x: Array, y: Array, query: Array, components: int | None = None, penalty: Array | None = None
) -> Array:
    """wᵀ x_q with w = V f(S) Uᵀ y from the singular value decomposition of the context.

    f(s) is 1/s, or s/(s² + penalty) where there is a penalty, for the `components` largest s.
    """
    every = np.asarray(query.shape[-1] if components is None else components)
    shrink = np.zeros((), x.dtype) if penalty is None else penalty
    return _from_spectrum(x, y, query, *_spectrum(x), every, shrink)


def _spectrum(x: Array) -> tuple[Array, Array]:
    """The eigenvalues and eigenvectors of Σ xₙxₙᵀ of each context."""
    gram = _gram(x)
    if isinstance(gram, Tracer) or gram.shape[-1] == 0:
        return eigh(gram)
    # Outside a trace, LAPACK called directly takes a tenth of XLA's time.
    squares, vectors = np.linalg.eigh(np.asarray(gram))
    return jax.device_put((squares, vectors))


@jax.jit
def _gram(x: Array) -> Array:
    return jnp.einsum("...nd,...ne->...de", x, x)


@jax.jit
def _from_spectrum(
    x: Array, y: Array, query: Array, squares: Array, vectors: Array, components: Any, penalty: Any
) -> Array:
    """`_fit` from the spectrum: one compiled program for any number of components and penalty."""
    values, products = _decompose(x, y, query, squares, vectors)
    shrunk = jnp.where(penalty > 0, values / (values**2 + penalty), _inverse(values))
    kept = jnp.arange(values.shape[-1]) < components  # values come in decreasing order
    return jnp.sum(products * jnp.where(kept, shrunk, 0.0)[..., None, :], -1)


def _decompose(
    x: Array, y: Array, query: Array, squares: Array, vectors: Array
) -> tuple[Array, Array]:
    """S, and the products of Vᵀ x_q with Uᵀ y of each label."""
    squares, vectors = squares[..., ::-1], vectors[..., ::-1]  # the largest first
    real = squares > _ZERO_EIGENVALUE * jnp.finfo(squares.dtype).eps * squares[..., :1]
    values = jnp.where(real, jnp.sqrt(jnp.where(real, squares, 1.0)), 0.0)
    # Uᵀ y = S⁻¹ Vᵀ Xᵀ y
    along = jnp.einsum("...dk,...nd,...ni->...ik", vectors, x, y)
    seen = jnp.einsum("...dk,...d->...k", vectors, query)
    share = jnp.where(real, seen / jnp.where(real, values, 1.0), 0.0)
    return values, share[..., None, :] * along
