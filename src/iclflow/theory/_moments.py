"""The moments of a linear-regression task on which reduced linear attention depends.

Over a context of N pairs let β = (1/c) Σₙ yₙxₙ and ŷ = βᵀ A x_q. The expected squared error is

    L(A) = tr(ΛM) + σ_q² − 2⟨S, A⟩ + ⟨A, C A Λ⟩,
    S = ḡ ΛMΛ,   C = E[ββᵀ] = c̄₂ ΛMΛ + c̄₁ (tr(MΛ) + σ²) Λ,
    ḡ = E[N/c],  c̄₂ = E[N(N+1)/c²],  c̄₁ = E[N/c²],

with averages over the context lengths (derived in docs/theory/linear.md). For one length and c = N:
ḡ = 1, c̄₂ = 1 + 1/N, c̄₁ = 1/N. M = E[wwᵀ] is all that the prior contributes.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import Refusal
from ..runtime.precision import require_float64
from ..tasks import LinearRegression

Normaliser = Literal["context", "tokens", "none"]

# Matrices that are meant to commute do so up to rounding.
_TOLERANCE = 1e-10
# Eigenvalues of Λ that are closer than this, relative to the largest, are taken as equal.
_TIE = 1e-8


class ContextGains(NamedTuple):
    """Averages over the context lengths: ḡ, c̄₂ and c̄₁ of the module's formulas."""

    drive: float
    signal: float
    spread: float


class Moments(NamedTuple):
    """Λ, M, S, C and the variances of labels.

    `label_variance` is that of the query, tr(ΛM) + σ_q², which is the loss at A = 0;
    `context_variance` that of a context label, tr(ΛM) + σ².
    """

    covariance: Float[np.ndarray, "D D"]
    weight_second_moment: Float[np.ndarray, "D D"]
    drive: Float[np.ndarray, "D D"]
    second_moment: Float[np.ndarray, "D D"]
    label_variance: float
    context_variance: float

    def force(self, A: Float[np.ndarray, "D D"]) -> Float[np.ndarray, "D D"]:
        """E(A) = −½ ∂L/∂A = S − C A Λ."""
        return self.drive - self.second_moment @ A @ self.covariance

    def loss(self, A: Float[np.ndarray, "D D"]) -> float:
        """L(A) of the module's formula."""
        quadratic = np.sum(A * (self.second_moment @ A @ self.covariance))
        return float(self.label_variance - 2 * np.sum(self.drive * A) + quadratic)


class AlignedMoments(NamedTuple):
    """The moments in a common eigenbasis of Λ and M, eigenvalues of Λ from the largest down.

    Column d of `basis` is e_d. `curvature` is λ_d C_d and `optimum` a_d* = S_d / (λ_d C_d).
    """

    basis: Float[np.ndarray, "D D"]
    eigenvalues: Float[np.ndarray, " D"]
    weight_eigenvalues: Float[np.ndarray, " D"]
    drive: Float[np.ndarray, " D"]
    curvature: Float[np.ndarray, " D"]
    optimum: Float[np.ndarray, " D"]


def context_gains(task: LinearRegression, normaliser: Normaliser = "context") -> ContextGains:
    """ḡ = E[N/c], c̄₂ = E[N(N+1)/c²] and c̄₁ = E[N/c²] of a task.

    **Arguments:**

    - `normaliser`: what attention divides by: `"context"` N, `"tokens"` N + 1, `"none"` 1.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=[10, 40])
    >>> gains = icl.theory.context_gains(task)
    >>> round(gains.drive, 4), round(gains.signal, 4), round(gains.spread, 4)
    (1.0, 1.0625, 0.0625)
    >>> round((1 / 10 + 1 / 40) / 2, 4)
    0.0625
    ```
    """
    if not isinstance(task, LinearRegression):
        raise Refusal(f"`task` is a {type(task).__name__}: this formula is for `LinearRegression`.")
    require_float64("Theory", task=task)
    length = np.asarray(task.contexts, dtype=np.float64)
    probability = np.asarray(task.context_probabilities, dtype=np.float64)
    divisors = {"context": length, "tokens": length + 1, "none": np.ones_like(length)}
    if normaliser not in divisors:
        raise Refusal(f'`normaliser` = {normaliser!r}: must be "context", "tokens" or "none".')
    c = divisors[normaliser]
    return ContextGains(
        float(probability @ (length / c)),
        float(probability @ (length * (length + 1) / c**2)),
        float(probability @ (length / c**2)),
    )


def moments(task: LinearRegression, normaliser: Normaliser = "context") -> Moments:
    """Λ, M, S, C and the variances of labels of a task."""
    gains = context_gains(task, normaliser)
    covariance = np.asarray(task.covariance, dtype=np.float64)
    weight = np.asarray(task.weight_second_moment, dtype=np.float64)
    signal = covariance @ weight @ covariance
    power = float(np.sum(covariance * weight))
    variance = power + float(task.noise)
    return Moments(
        covariance,
        weight,
        gains.drive * signal,
        gains.signal * signal + gains.spread * variance * covariance,
        power + float(task.query_noise),
        variance,
    )


def commute(task: LinearRegression) -> bool:
    """Whether Λ and M commute, so that they share an eigenbasis."""
    m = moments(task)
    product = m.covariance @ m.weight_second_moment
    size = np.linalg.norm(m.covariance) * np.linalg.norm(m.weight_second_moment)
    return bool(np.linalg.norm(product - product.T) <= _TOLERANCE * size)


def aligned_moments(task: LinearRegression, normaliser: Normaliser = "context") -> AlignedMoments:
    """The moments in a common eigenbasis; an error unless Λ and M commute."""
    gains = context_gains(task, normaliser)
    full = moments(task, normaliser)
    covariance, weight = full.covariance, full.weight_second_moment
    if not commute(task):
        raise Refusal(
            "The input covariance Λ and the second moment M = E[wwᵀ] of `task` do not commute: "
            "this formula needs a common eigenbasis."
        )
    values, basis = np.linalg.eigh(covariance)
    values, basis = values[::-1], basis[:, ::-1]
    # Eigenvalues of Λ that tie leave its eigenvectors open; M chooses among them.
    gaps = np.flatnonzero(values[:-1] - values[1:] > _TIE * values[0]) + 1
    blocks = []
    for block in np.split(basis, gaps, axis=1):
        _, turn = np.linalg.eigh(block.T @ weight @ block)
        blocks.append(block @ turn[:, ::-1])
    basis = np.concatenate(blocks, axis=1)
    weight_values = np.einsum("de,df,fe->e", basis, weight, basis)
    signal = values**2 * weight_values
    spread = gains.spread * (float(values @ weight_values) + float(task.noise))
    curvature = values * (gains.signal * signal + spread * values)
    drive = gains.drive * signal
    # Only a task without signal and without noise has no curvature; then nothing is to be learnt.
    optimum = np.divide(drive, curvature, out=np.zeros_like(drive), where=curvature > 0)
    return AlignedMoments(basis, values, weight_values, drive, curvature, optimum)
