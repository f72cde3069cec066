"""The loss of reduced linear attention as a function of A: its minimum, and other context lengths.

Everything holds for any input covariance, prior, noise and mix of context lengths; for w ~ N(0, I)
and one length it is the converged solution of arXiv 2501.16265. Two conventions are in use.
Attention that divides by the number of pairs keeps A at another length N′. Attention that does not
divide (the code of arXiv 2501.16265 at fixed length) acts there as if A were (N′/N) A. Derived in
docs/theory/linear.md.
"""

import numpy as np
from jaxtyping import ArrayLike, Float, Real

from ..errors import Refusal
from ..tasks import LinearRegression
from ._moments import Normaliser, context_gains, moments

Matrix = Float[np.ndarray, "D D"]
MatrixLike = Float[ArrayLike, "D D"]


def correlation_second_moment(task: LinearRegression, normaliser: Normaliser = "context") -> Matrix:
    """C = E[ββᵀ] of the in-context correlation β = (1/N) Σₙ yₙxₙ.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> icl.theory.correlation_second_moment(task).round(4)
    array([[0.408, 0.   ],
           [0.   , 0.188]])
    >>> # (1 + 1/N) Λ² + tr(Λ)/N Λ, without noise.
    >>> inputs = np.diag([0.6, 0.4])
    >>> (21 / 20 * inputs @ inputs + 1 / 20 * inputs).round(4)
    array([[0.408, 0.   ],
           [0.   , 0.188]])
    ```
    """
    return moments(task, normaliser).second_moment


def optimal_matrix(task: LinearRegression, normaliser: Normaliser = "context") -> Matrix:
    """A* = ḡ C⁻¹ ΛM, the matrix with the smallest loss.

    For one length, A* = [(1 + 1/N) MΛ + (tr(MΛ) + σ²)/N · I]⁻¹ M: the task matrix, shrunk.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> A = icl.theory.optimal_matrix(task)
    >>> A.round(3)
    array([[1.471, 0.   ],
           [0.   , 2.128]])
    >>> bool(np.allclose(icl.theory.loss_slope(task, A), 0))
    True
    ```
    """
    m = moments(task, normaliser)
    if not m.second_moment.any():
        raise Refusal("`task` has labels that are always zero: every matrix A is optimal.")
    # S = ḡ ΛMΛ, so C A Λ = S reads C A = S Λ⁻¹.
    right = np.linalg.solve(m.covariance, m.drive).T
    return np.linalg.solve(m.second_moment, right)


def optimal_loss(task: LinearRegression, normaliser: Normaliser = "context") -> float:
    """L* = L(A*) = tr(ΛM) + σ_q² − ⟨S, A*⟩.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20, noise=0.1)
    >>> round(icl.theory.optimal_loss(task), 4)
    0.2376
    >>> round(icl.theory.loss_of_matrix(task, icl.theory.optimal_matrix(task)), 4)
    0.2376
    ```
    """
    m = moments(task, normaliser)
    return float(m.label_variance - np.sum(m.drive * optimal_matrix(task, normaliser)))


def loss_of_matrix(
    task: LinearRegression, A: MatrixLike, normaliser: Normaliser = "context"
) -> float:
    """L(A) = E(y_q − βᵀ A x_q)² = tr(ΛM) + σ_q² − 2⟨S, A⟩ + ⟨A, C A Λ⟩, for any A.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> A = icl.theory.optimal_matrix(task)
    >>> [round(icl.theory.loss_of_matrix(task, share * A), 4) for share in (0.0, 0.5, 1.0, 1.5)]
    [1.0, 0.3476, 0.1302, 0.3476]
    ```
    """
    return moments(task, normaliser).loss(check_matrix(task, A))


def loss_slope(task: LinearRegression, A: MatrixLike, normaliser: Normaliser = "context") -> Matrix:
    """E(A) = −½ ∂L/∂A = S − C A Λ, the force that drives every flow of the weights.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> icl.theory.loss_slope(task, np.zeros((2, 2))).round(3)
    array([[0.36, 0.  ],
           [0.  , 0.16]])
    >>> A, step = np.ones((2, 2)), np.array([[1e-5, 0.0], [0.0, 0.0]])
    >>> up, down = (icl.theory.loss_of_matrix(task, A + s * step) for s in (1, -1))
    >>> round(-0.5 * (up - down) / 2e-5, 4), round(float(icl.theory.loss_slope(task, A)[0, 0]), 4)
    (0.1152, 0.1152)
    ```
    """
    return moments(task, normaliser).force(check_matrix(task, A))


def effective_context(task: LinearRegression, normaliser: Normaliser = "context") -> float:
    """N_eff, the one context length with the same optimum A* as the mix of lengths.

    - `"context"`: 1/E[1/N]; all lengths 1…L equally likely give L/H_L, H_L the harmonic number.
      The loss agrees too, at every A.
    - `"tokens"`: E[N/(N+1)] / E[N/(N+1)²] − 1. The optimum agrees, the loss does not.
    - `"none"`: E[N²] / E[N]. The optimum agrees, the loss does not.

    **Example:**

    ```pycon
    >>> mixed = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=[10, 40])
    >>> round(icl.theory.effective_context(mixed), 3)
    16.0
    >>> same = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=16)
    >>> round(icl.theory.optimal_loss(mixed), 4), round(icl.theory.optimal_loss(same), 4)
    (0.1575, 0.1575)
    ```
    """
    gains = context_gains(task, normaliser)
    # A* depends on one ratio of gains; each line solves its fixed-length form for the length.
    if normaliser == "context":
        return 1 / gains.spread
    if normaliser == "tokens":
        return gains.drive / gains.spread - 1
    return gains.signal / gains.drive - 1


def loss_at_other_context(
    task: LinearRegression,
    A: MatrixLike,
    test_context: Real[ArrayLike, "*T"],
    normalised: bool = True,
) -> Float[np.ndarray, "*T"]:
    """L_N′(A): the loss at N′ context pairs of a matrix trained at N, from `loss_of_matrix` with
    C = (1 + 1/N′) ΛMΛ + (tr(MΛ) + σ²)/N′ · Λ.

    **Arguments:**

    - `A`: the matrix as seen at the training length, in the convention that divides by N.
    - `test_context`: N′, one or several real numbers from 1 up.
    - `normalised`: whether attention divides by N′ at test time. If not, A becomes (N′/N) A, which
      needs a task with one training length N.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> A = icl.theory.optimal_matrix(task)
    >>> lengths = np.array([10, 20, 100])
    >>> icl.theory.loss_at_other_context(task, A, lengths).round(4)
    array([0.2431, 0.1302, 0.0398])
    >>> icl.theory.loss_at_other_context(task, A, lengths, normalised=False).round(4)
    array([ 0.3759,  0.1302, 11.7879])
    ```
    """
    length = np.asarray(test_context, dtype=np.float64)
    if not np.all(length >= 1) or not np.all(np.isfinite(length)):
        raise Refusal(f"`test_context` = {test_context}: must be finite and at least 1.")
    m = moments(task)
    matrix = check_matrix(task, A)
    scale = np.ones_like(length) if normalised else length / _training_length(task)
    # The normaliser "context" has ḡ = 1, so `drive` is ΛMΛ itself.
    turned = matrix @ m.covariance
    along_signal = float(np.sum(matrix * (m.drive @ turned)))
    along_inputs = float(np.sum(matrix * (m.covariance @ turned)))
    quadratic = along_signal + (along_signal + m.context_variance * along_inputs) / length
    return np.asarray(
        m.label_variance - 2 * scale * np.sum(m.drive * matrix) + scale**2 * quadratic
    )


def infinite_context_floor(task: LinearRegression, A: MatrixLike) -> float:
    """lim L_N′(A) = tr(M (I − ΛA) Λ (I − ΛA)ᵀ) + σ_q² as N′ → ∞ when attention divides by N′.

    It is not the noise alone: a matrix shrunk for N pairs stays shrunk.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> A = icl.theory.optimal_matrix(task)
    >>> round(icl.theory.infinite_context_floor(task, A), 5)
    0.01718
    >>> round(float(icl.theory.loss_at_other_context(task, A, 1e8)), 5)
    0.01718
    ```
    """
    m = moments(task)
    left = np.eye(task.dim) - m.covariance @ check_matrix(task, A)
    missed = np.sum(m.weight_second_moment * (left @ m.covariance @ left.T))
    return float(missed + task.query_noise)


def unnormalised_divergence(task: LinearRegression, A: MatrixLike) -> float:
    """lim L_N′ / (N′/N)² = ⟨A, ΛMΛ A Λ⟩ as N′ → ∞ when attention does not divide.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=20)
    >>> A = icl.theory.optimal_matrix(task)
    >>> round(icl.theory.unnormalised_divergence(task, A), 4)
    0.7569
    >>> loss = icl.theory.loss_at_other_context(task, A, 1e8, normalised=False)
    >>> round(float(loss) / (1e8 / 20) ** 2, 4)
    0.7569
    ```
    """
    _training_length(task)
    m = moments(task)
    matrix = check_matrix(task, A)
    return float(np.sum(matrix * (m.drive @ matrix @ m.covariance)))


def check_matrix(task: LinearRegression, A: ArrayLike) -> np.ndarray:
    """`A` as a float64 array, (D, D)."""
    matrix = np.asarray(A, dtype=np.float64)
    if matrix.shape != (task.dim, task.dim):
        raise Refusal(
            f"`A` has shape {matrix.shape}: must be ({task.dim}, {task.dim}) for this `task`."
        )
    return matrix


def _training_length(task: LinearRegression) -> int:
    if len(task.contexts) != 1:
        raise Refusal(
            f"`task` has {len(task.contexts)} context lengths: unnormalised attention needs one "
            "training length N to compare with."
        )
    return task.contexts[0]
