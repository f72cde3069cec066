"""Test losses of least squares on drawn sequences whose tasks have another covariance."""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from ...analysis import task_operator
from ...tasks import LinearRegression
from ...theory import diversity
from .. import Lab, once
from .runs_data import Point, draw, fit, white_law

# M_t ∝ 1/j and M ∝ M_t^p, both of trace one, as in docs/theory/diversity.md, section 14.
SIZE, LENGTH, NOISE = 20, 40, 0.1
POWERS, SEQUENCES, SETS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0), 100, 64
# Random tasks in the proportional limit: d, κ, τ, α, ρ.
MANY, RATIOS = 40, (2.0, 2.0, 3.0, 0.2)


def spectrum(power: float) -> np.ndarray:
    """The variances of task vectors, m_j ∝ j^−p."""
    values = np.arange(1.0, SIZE + 1) ** -power
    return values / values.sum()


def law(power: float) -> LinearRegression:
    """The same for theory."""
    return LinearRegression(
        np.ones(SIZE), context=LENGTH, noise=NOISE, prior_covariance=np.diag(spectrum(power))
    )


def loss(A: np.ndarray) -> float:
    """The loss of A on tests with M_t: tr M_t R(A) + r(A) for white inputs."""
    left, size = np.eye(SIZE) - A, float(np.sum(A**2))
    signal = np.sum(spectrum(1.0)[:, None] * (left**2 + A**2 / LENGTH))
    return float(signal + size / LENGTH + NOISE * (1 + size / LENGTH))


@once
def population_losses(lab: Lab) -> np.ndarray:
    """The test loss after training on the population, at each power."""
    del lab
    found = []
    for power in POWERS:
        m = spectrum(power)
        found.append(loss(np.diag(m / ((1 + 1 / LENGTH) * m + (1 + NOISE) / LENGTH))))
    return np.array(found)


def tasks_of(power: float) -> np.ndarray:
    """As many tasks of one norm as make M diagonal: rows of signs that are orthogonal."""
    signs = scipy.linalg.hadamard(32)[:, 1 : SIZE + 1]
    return signs * np.sqrt(spectrum(power))


@once
def data_losses(lab: Lab) -> np.ndarray:
    """The test loss after least squares on `SEQUENCES` drawn ones, for each data set and power.

    Data sets of one number share their random numbers at every power.
    """
    del lab
    at = Point(SIZE, LENGTH, 32, SEQUENCES, NOISE)
    return np.array([[loss(fit(draw(np.random.default_rng(i), tasks_of(p), at))) for p in POWERS]
                     for i in range(SETS)])  # fmt: skip


@once
def data_theory(lab: Lab) -> np.ndarray:
    """The same by theory, with the correction at finite size."""
    del lab
    test = law(1.0)
    return np.array([diversity.corrected_risks(law(p), SEQUENCES, test, tasks_of(p), 20_000).test
                     for p in POWERS])  # fmt: skip


class Mismatch(NamedTuple):
    """Test losses of least squares for each set of tasks (rows) and test: drawn, and in theory for
    the same tasks, if it was asked for; the proportional limit; and what the tests are called."""

    drawn: np.ndarray
    corrected: np.ndarray
    limit: np.ndarray
    names: tuple[str, ...]


@once
def mismatched_data(lab: Lab, dim: int, sets: int, theory: bool = True) -> Mismatch:
    """Random Gaussian tasks of covariance C, half of whose eigenvalues are 1.6 and half 0.4, and
    tests along the large ones, of C itself, of I, and of covariances ∝ j^∓½, ±½ from the largest.
    """
    del lab
    kappa, tau, alpha, rho = RATIOS
    at, rng = Point.of_ratios(dim, tau, alpha, kappa, rho), np.random.default_rng(4)
    train, j = np.where(np.arange(dim) < dim // 2, 1.6, 0.4), np.arange(1.0, dim + 1)
    tests = {"along": train > 1, "C": train, "1/√j": j**-0.5, "I": np.ones(dim), "√j": j**0.5}
    tests = {name: np.diag(v / np.sum(v)) for name, v in tests.items()}
    limits = [diversity.aligned_limit(np.diag(train), dim * M, tau, alpha, kappa, rho).test
              for M in tests.values()]  # fmt: skip
    fresh, drawn, corrected = white_law(at), [], []
    for i in range(sets):
        rows = rng.standard_normal((at.tasks, dim)) * np.sqrt(train / dim)
        operator = task_operator(fit(draw(rng, rows, at)), fresh)
        drawn.append([operator.risk(M) for M in tests.values()])
        if theory:
            task = diversity.with_tasks(fresh, rows)
            laws = (diversity.with_second_moment(fresh, M) for M in tests.values())
            size = at.sequences
            corrected.append([diversity.corrected_risks(task, size, law, rows, 1000, i).test
                              for law in laws])  # fmt: skip
    return Mismatch(np.array(drawn), np.array(corrected), np.array(limits), tuple(tests))
