"""Weights trained on n sequences: how fast they start, where they end, and what they interpolate.

Noise that the data set holds drives small weights too, so less data means an earlier drop. Below
D² sequences merged weights end at the least-norm interpolant up to what they began with across the
data; separate heads of total rank r end at interpolants of low rank, of which there are some up to
n = r(2D − r) (the last is checked, not proved; derived in docs/theory/diversity.md).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import Refusal
from ...tasks import LinearRegression
from .._check import check_numbers, check_whole
from .._moments import context_gains
from .._softmax_setting import only_length
from ._equivalent import check_sequences
from ._tasks import check_vectors
from ._types import Matrix, Stack, Vector

# Singular values of the features below this share of the largest are rounding.
_RANK = 1e-10


class DataGrowth(NamedTuple):
    """The square of the growth rate of merged weights on n sequences, its mean and its parts.

    E‖Ŝ‖² = (1 − 1/n)·`population` + `noise`/n, with `population` = ‖S‖².
    """

    population: float
    noise: float
    mean: float


def data_growth(
    task: LinearRegression, vectors: Matrix, sequences: int, shares: Vector | None = None
) -> DataGrowth:
    """E‖Ŝ‖² of Ŝ = (1/n) Σ y_qβx_qᵀ: near the origin merged weights grow at the rate ‖Ŝ‖.

    (1 − 1/n)‖S‖² + (1/n) mean_k[(p tr Λ + 2p₂ + σ² tr Λ)(cp₂ + (p + σ²)/N tr Λ)], p = w_kᵀΛw_k,
    p₂ = w_kᵀΛ²w_k. For one context length.

    ```pycon
    >>> task = icl.LinearRegression(np.ones(6), context=9, noise=0.2)
    >>> found = icl.theory.diversity.data_growth(task, np.eye(6)[:3], 36)
    >>> round(found.population, 4), round(found.mean, 4)
    (0.3333, 0.8125)

    ```
    """
    rows, weights = check_vectors(task, vectors, shares)
    gains, n = context_gains(task), float(check_sequences(sequences))
    only_length(task)
    covariance = np.asarray(task.covariance, dtype=np.float64)
    noise, trace = float(task.noise), float(np.trace(covariance))
    read = rows @ covariance
    p, p2 = np.sum(read * rows, 1), np.sum(read**2, 1)
    query = p * trace + 2 * p2 + float(task.query_noise) * trace
    context = gains.signal * p2 + gains.spread * (p + noise) * trace
    spread = float(weights @ (query * context))
    population = float(np.sum(((read.T * weights) @ read) ** 2))
    return DataGrowth(population, spread, (1 - 1 / n) * population + spread / n)


def rank_capacity(dim: int, rank: int) -> int:
    """r(2D − r), the parameters of a matrix of rank r: up to so many sequences are interpolated.

    `rank` is the total rank HR of the heads, at most D.

    ```pycon
    >>> icl.theory.diversity.rank_capacity(5, 2)
    16

    ```
    """
    dim = check_whole("dim", dim)
    rank = check_whole("rank", rank, 0, dim)
    return rank * (2 * dim - rank)


def interpolating_rank(dim: int, sequences: int) -> int:
    """The smallest rank r with r(2D − r) ≥ n: about where separate heads end on n sequences.

    ```pycon
    >>> icl.theory.diversity.interpolating_rank(8, 32)
    3

    ```
    """
    n = check_whole("sequences", sequences)
    dim = check_whole("dim", dim)
    if n > dim**2:
        raise Refusal(f"`sequences` = {n}: must be at most D² = {dim**2}; no matrix fits more.")
    return next(rank for rank in range(1, dim + 1) if rank_capacity(dim, rank) >= n)


def merged_interpolant(
    features: Stack,
    labels: Vector,
    v_end: Vector,
    U_start: Stack,
) -> Float[np.ndarray, "D D"]:
    """Where merged attention ends on data that it interpolates: A_∞ = Â + Σ_h v_h(∞) Π_⊥U_h(0).

    Â is the interpolant of least norm, Π_⊥ projects on the matrices that vanish on the data. U_h
    moves in U_h(0) + the span of the features, so it holds for weights of every size.

    **Arguments:**

    - `features`: β x_qᵀ of each sequence.
    - `labels`: y_q.
    - `v_end`, `U_start`: v_h at the end and U_h at the start.

    ```pycon
    >>> features = np.eye(2)[:, :, None] * np.array([1.0, 0.0])
    >>> start = np.full((1, 2, 2), 0.01)
    >>> print(icl.theory.diversity.merged_interpolant(features, [1.0, 2.0], [1.5], start))
    [[1.    0.015]
     [2.    0.015]]

    ```
    """
    seen = check_numbers("features", features, 3)
    target = check_numbers("labels", labels, 1, (len(seen),))
    v, U = np.asarray(v_end, dtype=np.float64), np.asarray(U_start, dtype=np.float64)
    if v.ndim != 1 or U.shape != (len(v), *seen.shape[1:]):
        raise Refusal(f"`U_start` has shape {U.shape}: must be {(len(v), *seen.shape[1:])}.")
    rows = seen.reshape(len(seen), -1)
    left, sizes, right = np.linalg.svd(rows, full_matrices=False)
    real = sizes > _RANK * sizes[0]
    left, sizes, right = left[:, real], sizes[real], right[real]
    least = right.T @ ((left.T @ target) / sizes)
    begun = np.einsum("h,hde->de", v, U).ravel()
    return (least + begun - right.T @ (right @ begun)).reshape(seen.shape[1:])
