"""Least squares on drawn sequences of few tasks, beside theory for the same sets of tasks.

White inputs and a matrix A of D × D, as the papers on finite data have it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg

from ...analysis import task_operator
from ...tasks import LinearRegression
from ...theory import diversity
from .. import Lab, once

# Tasks, pairs and noise of the simulation: κ = ½, α = 1 and ρ = .01 of arXiv 2405.11751, Figure 1.
DIM, NOISE, RATIO = 12, 0.01, 0.5
SHARES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
# Conjugate gradients end when what is left of the gradient is this share of its start: errors of A
# change the loss to second order. Up to so many sequences a factorisation is quicker.
_SMALL, _MOST, _DIRECT = 1e-5, 5000, 2000


class Point(NamedTuple):
    """One setting of least squares: sizes D, N, K, n, and the noise σ²."""

    dim: int
    context: int
    tasks: int
    sequences: int
    noise: float

    @staticmethod
    def of_ratios(dim: int, data: float, context: float, tasks: float, noise: float) -> "Point":
        """That of τ = n/d², α = N/d, κ = K/d and ρ, in whole numbers."""
        length, count, size = (
            max(1, round(ratio)) for ratio in (context * dim, tasks * dim, data * dim**2)
        )
        return Point(dim, length, count, size, noise)


class Errors(NamedTuple):
    """ICL and IDG errors of least squares on drawn data, and what theory says for the same tasks:
    with the correction at finite size, and without; one row for each set of tasks.

    Theory is infinite at n = d².
    """

    drawn: np.ndarray
    corrected: np.ndarray
    plain: np.ndarray

    def mean(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means of all three over sets."""
        drawn, corrected, plain = (each.mean(0) for each in self)
        return drawn, corrected, plain

    def spread(self) -> np.ndarray:
        """The standard error of drawn minus corrected errors, which share their tasks."""
        return np.std(self.drawn - self.corrected, axis=0, ddof=1) / len(self.drawn) ** 0.5


class DataErrors(NamedTuple):
    """ICL and IDG errors of least squares at each n/d², with standard errors over sets of tasks.

    `corrected` and `plain` are the ICL errors of theory for the same sets of tasks, with and
    without the correction at finite size; infinite at n = d².
    """

    share: np.ndarray
    test: np.ndarray
    test_error: np.ndarray
    inside: np.ndarray
    corrected: np.ndarray
    plain: np.ndarray


def draw_tasks(rng: np.random.Generator, count: int, dim: int) -> np.ndarray:
    """K unit task vectors."""
    rows = rng.standard_normal((count, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Drawn(NamedTuple):
    """β, x_q and y_q of sequences."""

    beta: np.ndarray
    query: np.ndarray
    label: np.ndarray


def draw(rng: np.random.Generator, rows: np.ndarray, at: Point) -> Drawn:
    """Sequences of the tasks `rows`, each drawn with the same probability.

    Only β is kept of a context, so that only that is drawn, at a cost that does not depend on N:
    with a = x·w/|w|, the sums Σa², Σaε, Σε² are a Wishart matrix, drawn by its triangular factor
    (Bartlett); across w the sum Σ y_nx_n is normal with the variance Σ y_n².
    """
    w = rows[rng.integers(len(rows), size=at.sequences)]
    size = np.linalg.norm(w, axis=1)
    unit = w / size[:, None]
    first, mixed = rng.chisquare(at.context, at.sequences), rng.standard_normal(at.sequences)
    rest = rng.chisquare(at.context - 1, at.sequences) if at.context > 1 else 0.0
    noisy = at.noise**0.5 * np.sqrt(first) * mixed
    along = size * first + noisy
    energy = size**2 * first + 2 * size * noisy + at.noise * (mixed**2 + rest)
    across = rng.standard_normal(w.shape)
    across -= np.sum(across * unit, 1, keepdims=True) * unit
    beta = (along[:, None] * unit + np.sqrt(energy)[:, None] * across) / at.context
    query = rng.standard_normal(w.shape)
    label = np.sum(query * w, 1) + at.noise**0.5 * rng.standard_normal(at.sequences)
    return Drawn(beta, query, label)


def fit(data: Drawn) -> np.ndarray:
    """The matrix A of least squares, of least norm, without ever storing its D² features βx_qᵀ."""
    beta, x, y = data
    count, dim = beta.shape
    if count <= min(dim**2, _DIRECT):
        # The products of features of two sequences are those of β times those of x_q.
        products = (beta @ beta.T) * (x @ x.T)
        return beta.T @ (scipy.linalg.solve(products, y, assume_a="pos")[:, None] * x)
    # Conjugate gradients on the normal equations. From zero they stay in the span of the features,
    # and end at the least norm; where there is one minimum alone, β may be whitened on the way.
    root = np.eye(dim)
    if count > dim**2:
        values, vectors = np.linalg.eigh(beta.T @ beta / count)
        root = vectors / np.sqrt(values)
    white, left = beta @ root, y.copy()
    A = np.zeros((dim, dim))
    slope = step = white.T @ (left[:, None] * x)
    size = start = float(np.sum(slope**2))
    for _ in range(_MOST):
        change = np.sum((white @ step) * x, 1)
        share = size / float(change @ change)
        A, left = A + share * step, left - share * change
        slope = white.T @ (left[:, None] * x)
        size, before = float(np.sum(slope**2)), size
        if size < _SMALL**2 * start:
            break
        step = slope + size / before * step
    return root @ A


def losses(A: np.ndarray, rows: np.ndarray, at: Point) -> tuple[float, float]:
    """The exact loss of A on unseen unit tasks, and on `rows`."""
    operator = task_operator(A, white_law(at))
    return float(operator.risk(np.eye(at.dim) / at.dim)), float(operator.each(rows).mean())


def white_law(at: Point) -> LinearRegression:
    """White inputs, and unseen tasks of mean square norm one."""
    prior = np.eye(at.dim) / at.dim
    return LinearRegression(np.ones(at.dim), at.context, noise=at.noise, prior_covariance=prior)


@once
def errors_at(lab: Lab, at: Point, sets: int, samples: int = 2000, seed: int = 0) -> Errors:
    """Simulation and theory over several sets of random unit tasks.

    **Arguments:**

    - `samples`: sequences by which theory takes the law of the lengths of features.
    """
    rows, drawn = drawn_errors(lab, at, sets, seed)
    fresh = white_law(at)
    theory = [theory_at(each, at, fresh, samples, i) for i, each in enumerate(rows)]
    return Errors(drawn, *np.moveaxis(np.array(theory), 1, 0))


@once
def drawn_errors(
    lab: Lab, at: Point, sets: int, seed: int = 0
) -> tuple[list[np.ndarray], np.ndarray]:
    """The tasks of each set, and the ICL and IDG errors of least squares on data of them."""
    del lab
    rng, tasks, found = np.random.default_rng(seed), [], []
    for _ in range(sets):
        tasks.append(draw_tasks(rng, at.tasks, at.dim))
        found.append(losses(fit(draw(rng, tasks[-1], at)), tasks[-1], at))
    return tasks, np.array(found)


def theory_at(
    rows: np.ndarray, at: Point, fresh: LinearRegression, samples: int, seed: int
) -> tuple[Sequence[float], Sequence[float]]:
    """Test and IDG errors for these tasks, with and without the correction."""
    task = diversity.with_tasks(fresh, rows)
    plain = diversity.data_risks(task, at.sequences, test=fresh)
    if at.sequences == at.dim**2:
        return (np.inf, np.inf), (np.inf, np.inf)
    found = diversity.corrected_risks(task, at.sequences, fresh, rows, samples, seed)
    return (found.test, found.in_distribution), (float(plain.test), float(plain.in_distribution))


@once
def data_errors(lab: Lab) -> DataErrors:
    """Simulation and theory at small size along the whole curve."""
    sets, shares = lab.scaled(8, 40, 400), np.array(SHARES)
    points = [Point.of_ratios(DIM, share, 1.0, RATIO, NOISE) for share in SHARES]
    found = [errors_at(lab, at, sets, 600) for at in points]
    drawn = np.array([each.drawn for each in found])
    error = drawn[..., 0].std(1, ddof=1) / sets**0.5
    corrected, plain = (np.array([each.mean()[i][0] for each in found]) for i in (1, 2))
    means = drawn.mean(1)
    return DataErrors(shares, means[:, 0], error, means[:, 1], corrected, plain)
