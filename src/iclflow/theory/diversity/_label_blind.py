"""Heads that do not read labels, softmax or linear: how little of the tasks they can see.

If attention weights depend on inputs alone, ŷ = Σ ψ_n(X, x_q) y_n + ψ₀(X, x_q). Then the risk
depends on the tasks through M alone, and w̄ where ψ₀ ≠ 0. Structured heads W_h = ω_hI on white
inputs see tr M alone. The best of all label-linear predictors bounds every such layer (derived in
docs/theory/diversity.md).
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_number, check_numbers, check_positive, check_whole
from .._softmax_integrals import softmax_exact_loss
from .._softmax_setting import Setting, only_length
from ._components import Components, components
from ._roots import falling_root
from ._tasks import check_vectors
from ._types import Matrix, Vector

# Points of the trapezoidal rule in the logarithm of a chi-squared number; it converges
# geometrically, and 80 on the left end is beyond every density e^{u/2}.
_LOGARITHMS = np.arange(-80.0, 7.0, 0.02)


class Sampled(NamedTuple):
    """A mean over drawn contexts, and its standard error."""

    value: float
    error: float


class LinearBound(NamedTuple):
    """How well label-linear prediction does at large size: θ = σ² + Σ_j m_jθ/(Nm_j + θ)."""

    residual: float
    variances: Float[np.ndarray, " J"]


def label_blind_risk(
    second: Matrix,
    noise: float,
    misses: Matrix,
    weights: Matrix,
    mean: Vector | None = None,
    offsets: Vector | None = None,
) -> Sampled:
    """σ² + E[eᵀMe] + 2w̄ᵀE[ψ₀e] + Eψ₀² + σ²E|ψ|², averaged over tasks; e and ψ are sampled.

    **Arguments:**

    - `second`, `mean`: M and w̄ (0 without it).
    - `misses`: e = Xψ − x_q of each context. `weights`: ψ. `offsets`: ψ₀, 0 without it.

    ```pycon
    >>> miss, weights = np.array([[1.0, 0.0], [0.0, 1.0]]), np.full((2, 4), 0.5)
    >>> icl.theory.diversity.label_blind_risk(np.diag([1.0, 3.0]), 0.5, miss, weights)
    Sampled(value=3.0, error=1.0)

    ```
    """
    e, psi = check_numbers("misses", misses, 2), check_numbers("weights", weights, 2)
    M = check_numbers("second", second, 2, (e.shape[1],) * 2)
    noise = check_number("noise", noise, "not negative", lambda x: 0 <= x < np.inf)
    losses = noise + np.einsum("sd,de,se->s", e, M, e) + noise * np.sum(psi**2, 1)
    if offsets is not None:
        zero = check_numbers("offsets", offsets, 1, (len(e),))
        losses = losses + zero**2
        if mean is not None:
            losses = losses + 2 * zero * (e @ check_numbers("mean", mean, 1, (e.shape[1],)))
    return _average(losses)


def structured_heads_loss(
    task: LinearRegression, vectors: Matrix, omega: Vector, mu: Vector
) -> float:
    """The exact loss of softmax heads W_h = ω_hI on K tasks: σ² + (tr M/d) E|e|² + σ²E|ψ|².

    Only tr M enters: it is that of isotropic tasks of the same power. Inputs must be N(0, I).

    ```pycon
    >>> task = icl.LinearRegression(np.ones(5), context=40, noise=0.1)
    >>> heads = [0.13, -0.13], [3.45, -3.45]
    >>> two = np.eye(5)[:2]
    >>> round(icl.theory.diversity.structured_heads_loss(task, two, *heads), 9)
    0.243243638

    ```
    """
    rows, shares = check_vectors(task, vectors)
    power = float(shares @ np.sum(rows**2, 1))
    if np.max(np.abs(np.asarray(task.covariance) - np.eye(task.dim))) > 1e-10:
        raise Refusal("`task` must have inputs N(0, I): other heads see more than tr M.")
    if not power > 0:
        raise Refusal("`vectors` are all zero: there is nothing to learn.")
    # In units of the signal: losses and noise are divided by tr M.
    at = Setting(task.dim, only_length(task), float(task.noise) / power)
    heads = (np.asarray(part, dtype=np.float64) for part in (omega, mu))
    return power * softmax_exact_loss(at, *heads) - float(task.noise - task.query_noise)


def label_linear_limit(task: LinearRegression) -> LinearBound:
    """The smallest risk of label-linear predictors at large size, θ = σ² + Σ m_jθ/(Nm_j + θ).

    Linear attention has θ_j = T + m_j, all the power of a label, in place of the residual θ.

    ```pycon
    >>> task = icl.theory.diversity.with_second_moment(
    ...     icl.LinearRegression(np.ones(8), context=15, noise=0.25), np.eye(8))
    >>> round(icl.theory.diversity.label_linear_limit(task).residual, 6)
    0.516096

    ```
    """
    found, length, noise = _white_noise(task)
    m = found.variances
    high = noise + np.sum(m)
    # θ/(Nm + θ) < 1, and θ > σ²; the right side over θ falls with θ.
    surplus = lambda theta: noise / theta + np.sum(m / (length * m + theta[..., None]), -1) - 1
    theta = falling_root(surplus, np.asarray(noise), np.asarray(high))
    return LinearBound(float(theta), m)


def label_linear_bound(task: LinearRegression, samples: int = 2000, seed: int = 0) -> Sampled:
    """The smallest risk of any predictor that is linear in labels, by sampling contexts.

    σ² + σ²E tr M̂^½(M̂^½ZZᵀM̂^½ + σ²)⁻¹M̂^½ with Z standard normal, D × N: ridge regression with the
    prior M. It bounds all layers of heads that do not read labels, ψ₀ = 0.

    ```pycon
    >>> task = icl.theory.diversity.with_second_moment(
    ...     icl.LinearRegression(np.ones(8), context=15, noise=0.25), np.eye(8))
    >>> bound = icl.theory.diversity.label_linear_bound(task)
    >>> print(f"{bound.value:.3f} +- {bound.error:.3f}")
    0.55 +- 0.00

    ```
    """
    found, length, noise = _white_noise(task)
    count = check_whole("samples", samples, 2)
    rng = np.random.default_rng(check_whole("seed", seed, 0))
    m = found.variances
    scaled = rng.standard_normal((count, len(m), length)) * np.sqrt(m)[:, None]
    gram = scaled @ scaled.transpose(0, 2, 1) + noise * np.eye(len(m))
    return _average(noise + noise * np.einsum("sjj,j->s", np.linalg.inv(gram), m))


def label_linear_bound_one_task(task: LinearRegression) -> float:
    """The same for one task, exactly: σ² + E σ²p/(σ² + pχ²_N), p = wᵀΛw.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(8), context=15, noise=0.25)
    >>> one = icl.theory.diversity.with_tasks(task, 8**0.5 * np.eye(8)[:1])
    >>> round(icl.theory.diversity.label_linear_bound_one_task(one), 4)
    0.2691

    ```
    """
    found, length, noise = _white_noise(task)
    if found.count != 1:
        raise Refusal("`task` has more than one component: must be a single task vector.")
    power = float(found.variances[0])
    x, weights = chi_squared_rule(length)
    return float(noise + weights @ (noise * power / (noise + power * x)))


def chi_squared_rule(degrees: float) -> tuple[Float[np.ndarray, " Q"], Float[np.ndarray, " Q"]]:
    """Nodes and weights for the mean over χ² with so many degrees of freedom.

    The trapezoidal rule in ln(χ²/2).

    ```pycon
    >>> x, weights = icl.theory.diversity.chi_squared_rule(3)
    >>> round(float(weights @ x**2), 9)
    15.0

    ```
    """
    half = check_positive("degrees", degrees) / 2
    u = _LOGARITHMS
    density = np.exp(half * u - np.exp(u) - scipy.special.gammaln(half))
    return 2 * np.exp(u), density * (u[1] - u[0])


def _white_noise(task: LinearRegression) -> tuple[Components, int, float]:
    """The components, the one length and the noise, which must not be zero."""
    found, length, noise = components(task), only_length(task), float(task.noise)
    if not noise > 0 or not task.noisy_query:
        raise Refusal("`task` must have noise, on the query too: the bound is in units of it.")
    return found, length, noise


def _average(values: np.ndarray) -> Sampled:
    if len(values) < 2:
        raise Refusal("a mean needs at least two draws for its error.")
    return Sampled(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))
