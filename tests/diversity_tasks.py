"""Task vectors that need no random numbers, as tasks."""

import numpy as np

from iclflow.tasks import LinearRegression
from iclflow.theory import diversity


def vectors(dim: int, count: int) -> np.ndarray:
    """Rows w_ki = cos(1 + 2k + 3i + ki), scaled to length 1."""
    k, i = np.arange(count)[:, None], np.arange(dim)
    rows = np.cos(1 + 2 * k + 3 * i + k * i)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def few_tasks(
    count: int, context: int, noise: float, eigenvalues=(1.0,) * 4, **options
) -> LinearRegression:
    """`vectors` on inputs with these eigenvalues."""
    task = LinearRegression(eigenvalues, context, noise=noise, **options)
    return diversity.with_tasks(task, vectors(len(eigenvalues), count))


def fresh(task: LinearRegression, size: float | None = None) -> LinearRegression:
    """Isotropic tasks on the same inputs, of squared length 1 or with M = `size`·I."""
    size = 1 / task.dim if size is None else size
    return diversity.with_second_moment(task, size * np.eye(task.dim))


def draw_data(rng, task: LinearRegression, rows: np.ndarray, count: int):
    """β, x_q, y_q of sequences with tasks drawn from `rows`: plain simulation in NumPy."""
    root = np.linalg.cholesky(np.asarray(task.covariance)).T
    noise, length = float(task.noise) ** 0.5, task.contexts[0]
    w = rows[rng.integers(len(rows), size=count)]
    x = rng.standard_normal((count, length, task.dim)) @ root
    y = np.einsum("snd,sd->sn", x, w) + noise * rng.standard_normal((count, length))
    query = rng.standard_normal((count, task.dim)) @ root
    label = np.sum(query * w, 1) + noise * rng.standard_normal(count)
    return np.einsum("sn,snd->sd", y, x) / length, query, label
