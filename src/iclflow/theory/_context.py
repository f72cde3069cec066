"""Context length: training on a mix of lengths, and testing at a length not trained on.

Two conventions are in use. Attention that divides by the number of pairs keeps A at another length;
attention that does not divide at all (the code of arXiv 2501.16265 at fixed length) acts there as
if A had been multiplied by N′/N. Derived in docs/theory/linear.md.
"""

import numpy as np
from jaxtyping import ArrayLike, Float, Real

from ..errors import Refusal
from ..tasks import LinearRegression
from ._moments import Normaliser, context_gains, moments
from ._optimum import check_matrix


def effective_context(task: LinearRegression, normaliser: Normaliser = "context") -> float:
    """N_eff, the one context length whose optimum A* is that of the mix of lengths.

    - `"context"`: 1/E[1/N]; all lengths 1…L equally likely give L/H_L, H_L the harmonic number.
      The loss at every A is that of N_eff too.
    - `"tokens"`: E[N/(N+1)] / E[N/(N+1)²] − 1. The optimum agrees, the loss does not.
    - `"none"`: E[N²] / E[N]. The optimum agrees, the loss does not.
    """
    gains = context_gains(task, normaliser)
    # Each is the fixed-length ratio of gains that A* depends on, solved for the length.
    if normaliser == "context":
        return 1 / gains.spread
    if normaliser == "tokens":
        return gains.drive / gains.spread - 1
    return gains.signal / gains.drive - 1


def loss_at_other_context(
    task: LinearRegression,
    A: Float[ArrayLike, "D D"],
    test_context: Real[ArrayLike, "*T"],
    normalised: bool = True,
) -> Float[np.ndarray, "*T"]:
    """L_N′(A): the loss at N′ context pairs of a matrix that was trained at N.

    **Arguments:**

    - `A`: the matrix as seen at the training length, in the convention that divides by N.
    - `test_context`: N′, one or several numbers; any real number from 1 up has a meaning.
    - `normalised`: whether attention divides by N′ at test time. If not, A becomes (N′/N) A, which
      needs a task with one training length N.
    """
    length = np.asarray(test_context, dtype=np.float64)
    if not np.all(length >= 1) or not np.all(np.isfinite(length)):
        raise Refusal(f"`test_context` = {test_context}: must be finite and at least 1.")
    m = moments(task)
    matrix = check_matrix(task, A)
    scale = np.ones_like(length) if normalised else length / _training_length(task)
    signal = m.covariance @ m.weight_second_moment @ m.covariance
    power = float(np.sum(m.covariance * m.weight_second_moment) + task.noise)
    turned = matrix @ m.covariance
    along_signal = float(np.sum(matrix * (signal @ turned)))
    along_inputs = float(np.sum(matrix * (m.covariance @ turned)))
    quadratic = along_signal + (along_signal + power * along_inputs) / length
    return np.asarray(m.label_variance - 2 * scale * np.sum(signal * matrix) + scale**2 * quadratic)


def infinite_context_floor(task: LinearRegression, A: Float[ArrayLike, "D D"]) -> float:
    """lim L_N′(A) as N′ → ∞ when attention divides by N′.

    It is tr(M (I − ΛA) Λ (I − ΛA)ᵀ) + σ_q²: a matrix shrunk for N pairs stays shrunk.
    """
    m = moments(task)
    left = np.eye(task.dim) - m.covariance @ check_matrix(task, A)
    missed = np.sum(m.weight_second_moment * (left @ m.covariance @ left.T))
    return float(missed + task.query_noise)


def unnormalised_divergence(task: LinearRegression, A: Float[ArrayLike, "D D"]) -> float:
    """lim L_N′ / (N′/N)² as N′ → ∞ when attention does not divide: ⟨A, ΛMΛ A Λ⟩."""
    _training_length(task)
    m = moments(task)
    matrix = check_matrix(task, A)
    signal = m.covariance @ m.weight_second_moment @ m.covariance
    return float(np.sum(matrix * (signal @ matrix @ m.covariance)))


def _training_length(task: LinearRegression) -> int:
    if len(task.contexts) != 1:
        raise Refusal(
            f"`task` has {len(task.contexts)} context lengths: un-normalised attention needs one "
            "training length N to compare with."
        )
    return task.contexts[0]
