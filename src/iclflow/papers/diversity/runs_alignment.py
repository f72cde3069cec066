"""Test losses of least squares on drawn sequences whose tasks have another covariance."""

import numpy as np

from ...tasks import LinearRegression
from .. import Lab, once

# M_t ∝ 1/j and M ∝ M_t^p, both of trace one, as in docs/theory/diversity.md, section 14.
SIZE, LENGTH, NOISE = 20, 40, 0.1
POWERS, SEQUENCES, SETS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0), 100, 40


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


@once
def data_losses(lab: Lab) -> np.ndarray:
    """The test loss after least squares on `SEQUENCES` drawn ones, for each data set and power.

    A data set has the same inputs and noise at every power. Task vectors all have one length: they
    differ in their signs alone.
    """
    del lab
    rng = np.random.default_rng(0)
    return np.array([_one_set(rng) for _ in range(SETS)])


def _one_set(rng: np.random.Generator) -> list[float]:
    x = rng.standard_normal((SEQUENCES, LENGTH + 1, SIZE))
    noise = NOISE**0.5 * rng.standard_normal((SEQUENCES, LENGTH + 1))
    unit, found = rng.choice((-1.0, 1.0), (SEQUENCES, SIZE, 1)), []
    for power in POWERS:
        w = np.sqrt(spectrum(power))[:, None] * unit
        y = (x @ w)[..., 0] + noise
        beta = (y[:, None, :-1] @ x[:, :-1])[:, 0] / LENGTH
        # The products of features of two sequences are those of β times those of x_q.
        query, gram = x[:, -1], (beta @ beta.T) * (x[:, -1] @ x[:, -1].T)
        found.append(loss(beta.T @ (np.linalg.solve(gram, y[:, -1])[:, None] * query)))
    return found
