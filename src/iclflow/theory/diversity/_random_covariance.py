"""A random input covariance in every sequence: what one matrix can do (arXiv 2306.09927).

S = E[ΛMΛ] and the curvature ℋ(A) = E[C_ΛAΛ] are no longer a product of two matrices, and the loss
keeps a floor at infinite contexts. Diagonal covariances have a diagonal optimum; for a spectrum
that is turned at random ℋ has two numbers, and rank-one heads make a staircase of falling steps
(derived in docs/theory/diversity.md).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_number, check_numbers, check_whole
from ._types import Matrix, Stack, Vector


class RandomCovarianceOptimum(NamedTuple):
    """A*, its loss, and the loss that stays as N → ∞ with the best matrix there.

    For diagonal covariances `matrix` holds the diagonal of A*.
    """

    matrix: Float[np.ndarray, "..."]
    loss: float
    floor: float


class RotatedStaircase(NamedTuple):
    """The staircase of rank-one heads on turned spectra.

    - `along`, `across`: ℋ(A) = `along`·A + `across`·(Aᵀ + tr A·I).
    - `strengths`: α_m, A = α_mP on level m, P any projector of rank m; entry 0 is 0.
    - `levels`: L_0 … L_D.
    - `rate`: of the sigmoid of merged attention, 2√D s̄. `optimum`: its end, α_D.
    """

    along: float
    across: float
    strengths: Float[np.ndarray, " levels"]
    levels: Float[np.ndarray, " levels"]
    rate: float
    optimum: float


def random_covariance_optimum(
    covariances: Stack,
    second: Matrix,
    context: float,
    noise: float = 0.0,
) -> RandomCovarianceOptimum:
    """The best matrix for sequences whose covariance is one of several, equally often.

    A* = ℋ⁻¹S with C_Λ = (1 + 1/N)ΛMΛ + ((tr MΛ + σ²)/N) Λ, L* = E T − ⟨S, A*⟩.

    **Arguments:**

    - `covariances`: Λ of each kind of sequence, or drawn ones.
    - `second`: M = E[wwᵀ], of tasks that are independent of Λ.

    ```pycon
    >>> kinds = [np.diag([1.0, 0.2]), np.diag([0.2, 1.0])]
    >>> best = icl.theory.diversity.random_covariance_optimum(kinds, np.eye(2), context=20)
    >>> print(np.round(best.matrix, 4), round(best.loss, 4), round(best.floor, 4))
    [[0.9279 0.    ]
     [0.     0.9279]] 0.235 0.127

    ```
    """
    each = check_numbers("covariances", covariances, 3)
    if each.shape[1] != each.shape[2]:
        raise Refusal(f"`covariances` has shape {each.shape}: must be (S, D, D).")
    M = check_numbers("second", second, 2, each.shape[1:])
    length, noise = _setting(context, noise)
    signal = each @ M @ each
    power = np.einsum("sij,ij->s", each, M) + noise
    drive = signal.mean(0)

    def best(share: float) -> tuple[np.ndarray, float]:
        squares = (1 + share) * signal + share * power[:, None, None] * each
        curvature = np.einsum("sij,skl->ikjl", squares, each) / len(each)
        A = np.linalg.solve(curvature.reshape(drive.size, -1), drive.ravel()).reshape(drive.shape)
        return A, float(power.mean() - np.sum(drive * A))

    matrix, loss = best(1 / length)
    return RandomCovarianceOptimum(matrix, loss, best(0.0)[1])


def diagonal_covariance_optimum(
    moments: tuple[float, float, float], dim: int, context: float, noise: float = 0.0
) -> RandomCovarianceOptimum:
    """The best matrix where Λ is diagonal with independent entries of one law, and M = I.

    a = Eλ²/((1 + 1/N)Eλ³ + (1/N)E[λ²(tr Λ + σ²)]), L* = E T − D a Eλ²; the floor at N = ∞ is
    D(Eλ − (Eλ²)²/Eλ³), plus noise. It is not zero: one layer
    stays above the noise at any context length, as arXiv 2306.09927 says.

    **Arguments:**

    - `moments`: Eλ, Eλ², Eλ³.

    ```pycon
    >>> exponential = icl.theory.diversity.diagonal_covariance_optimum((1.0, 2.0, 6.0), 5, 20)
    >>> round(exponential.loss / 5, 6), round(exponential.floor / 5, 6)
    (0.428571, 0.333333)

    ```
    """
    first, square, cube = check_numbers("moments", moments, 1, (3,))
    dim = check_whole("dim", dim)
    length, noise = _setting(context, noise)
    if not (first > 0 and square >= first**2 and cube * first >= square**2):
        raise Refusal(f"`moments` = {list(moments)}: no positive number has these moments.")
    with_trace = cube + (dim - 1) * square * first + noise * square
    strength = square / ((1 + 1 / length) * cube + with_trace / length)
    start = dim * first + noise
    return RandomCovarianceOptimum(
        np.full(dim, strength),
        float(start - dim * strength * square),
        float(start - dim * square**2 / cube),
    )


def turned_product(left: Vector, right: Vector) -> tuple[float, float]:
    """a₁ and a₂ in E[(OPOᵀ)_ij(ORO^T)_kl] = a₁δ_ijδ_kl + a₂(δ_ikδ_jl + δ_ilδ_jk), O random.

    **Arguments:**

    - `left`, `right`: the diagonals of P and R.

    ```pycon
    >>> icl.theory.diversity.turned_product([1.0, 1.0], [2.0, 2.0])
    (2.0, 0.0)

    ```
    """
    p, r = check_numbers("left", left, 1), check_numbers("right", right, 1)
    dim = len(p)
    if r.shape != p.shape or dim < 2:
        raise Refusal(f"`right` has shape {r.shape}: must be that of `left`, at least (2,).")
    traces, product = p.sum() * r.sum(), float(p @ r)
    scale = dim * (dim - 1) * (dim + 2)
    return float(((dim + 1) * traces - 2 * product) / scale), float(
        (dim * product - traces) / scale
    )


def rotated_staircase(eigenvalues: Vector, context: float, noise: float = 0.0) -> RotatedStaircase:
    """The losses of rank-one heads where every sequence turns one spectrum at random, M = I.

    α_m = s̄/(𝖺₁ + 𝖺₂(m + 1)), L_m = T − m s̄²/(𝖺₁ + 𝖺₂(m + 1)), s̄ = tr Λ²/D: steps of falling height,
    and what is learned shrinks at every later step.

    ```pycon
    >>> found = icl.theory.diversity.rotated_staircase([2.0, 1.0, 0.6, 0.4], 12, 0.1)
    >>> print(np.round(found.levels, 4))
    [4.1    3.2419 2.5608 2.007  1.5479]

    ```
    """
    values = check_numbers("eigenvalues", eigenvalues, 1)
    if np.any(values <= 0):
        raise Refusal(f"`eigenvalues` = {values.tolist()}: must be positive.")
    length, noise = _setting(context, noise)
    power = float(values.sum()) + noise
    signal, plain = turned_product(values**2, values), turned_product(values, values)
    along, across = ((1 + 1 / length) * a + power / length * b for a, b in zip(signal, plain))
    dim, drive = len(values), float(np.mean(values**2))
    rank = np.arange(dim + 1)
    strengths = np.where(rank > 0, drive / (along + across * (rank + 1)), 0.0)
    levels = power - rank * drive * strengths
    rate = 2 * np.sqrt(dim) * drive
    return RotatedStaircase(along, across, strengths, levels, float(rate), float(strengths[-1]))


def _setting(context: float, noise: float) -> tuple[float, float]:
    length = check_number("context", context, "finite and at least 1", lambda x: 1 <= x < np.inf)
    return length, check_number("noise", noise, "not negative", lambda x: 0 <= x < np.inf)
