"""The exact optimum on K drawn tasks, tested along and across the directions that it has seen."""

import numpy as np

from .. import Lab, once
from .runs_alignment import LENGTH, NOISE, SIZE

TASKS, SETS = (5, 10, 20, 80), 400


@once
def mismatched(lab: Lab) -> np.ndarray:
    """The mean loss at each K on the first five training tasks, and on unseen ones."""
    del lab
    rng = np.random.default_rng(0)
    return np.array([np.mean([_losses(rng, k) for _ in range(SETS)], axis=0) for k in TASKS])


def _losses(rng: np.random.Generator, count: int) -> list[float]:
    w = rng.standard_normal((count, SIZE))
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    M = w.T @ w / count
    A = np.linalg.solve((1 + 1 / LENGTH) * M + (1 + NOISE) / LENGTH * np.eye(SIZE), M)
    left, size = np.eye(SIZE) - A, float(np.sum(A**2))
    risk = left @ left.T + (A @ A.T + size * np.eye(SIZE)) / LENGTH
    own, fresh = w[: TASKS[0]].T @ w[: TASKS[0]] / TASKS[0], np.eye(SIZE) / SIZE
    return [float(np.sum(tests * risk)) + NOISE * (1 + size / LENGTH) for tests in (own, fresh)]
