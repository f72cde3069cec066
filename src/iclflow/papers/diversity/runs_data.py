"""Least squares on drawn sequences of few tasks, beside theory for the same sets of tasks."""

from typing import NamedTuple

import numpy as np

from ...analysis import task_operator
from ...tasks import LinearRegression
from ...theory import diversity
from .. import Lab, once

# Tasks, pairs and noise of the simulation: κ = ½, α = 1 and ρ = .01 of arXiv 2405.11751, Figure 1.
DIM, NOISE, RATIO = 12, 0.01, 0.5
SHARES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)


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


def draw_tasks(rng: np.random.Generator) -> np.ndarray:
    """K = d/2 unit task vectors."""
    rows = rng.standard_normal((int(RATIO * DIM), DIM))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def fit(rng: np.random.Generator, rows: np.ndarray, count: int) -> np.ndarray:
    """The matrix A of least squares, of least norm, on `count` drawn sequences with N = d pairs."""
    w = rows[rng.integers(len(rows), size=count)]
    x = rng.standard_normal((count, DIM, DIM))
    y = np.einsum("snd,sd->sn", x, w) + NOISE**0.5 * rng.standard_normal((count, DIM))
    query = rng.standard_normal((count, DIM))
    label = np.sum(query * w, 1) + NOISE**0.5 * rng.standard_normal(count)
    beta = np.einsum("sn,snd->sd", y, x) / DIM
    features = (beta[:, :, None] * query[:, None]).reshape(count, -1)
    return np.linalg.lstsq(features, label, rcond=None)[0].reshape(DIM, DIM)


@once
def data_errors(lab: Lab) -> DataErrors:
    """Simulation and theory over several sets of tasks."""
    sets = lab.scaled(8, 40, 400)
    rng, counts = np.random.default_rng(0), [int(s * DIM**2) for s in SHARES]
    inputs = LinearRegression(np.ones(DIM), DIM, noise=NOISE)
    fresh = diversity.with_second_moment(inputs, np.eye(DIM) / DIM)
    test, inside, corrected, plain = (np.full((sets, len(counts)), np.inf) for _ in range(4))
    for i in range(sets):
        rows = draw_tasks(rng)
        task = diversity.with_tasks(inputs, rows)
        plain[i] = diversity.data_risks(task, counts, test=fresh).test
        for j, count in enumerate(counts):
            A = fit(rng, rows, count)
            measured = task_operator(A, fresh)
            test[i, j] = measured.risk(np.eye(DIM) / DIM)
            inside[i, j] = measured.risk(rows.T @ rows / len(rows))
            if count != DIM**2:
                found = diversity.corrected_risks(task, count, fresh, rows, 1000, seed=i)
                corrected[i, j] = found.test
    error = test.std(0, ddof=1) / sets**0.5
    return DataErrors(np.array(SHARES), test.mean(0), error, inside.mean(0), corrected.mean(0),
                      plain.mean(0))  # fmt: skip
