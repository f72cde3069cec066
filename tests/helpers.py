"""Problems that several test files share."""

from collections.abc import Iterator
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from iclflow.models import MergedKQ, SeparateKQ
from iclflow.tasks import LinearRegression

EIGENVALUES = (0.4, 0.3, 0.2, 0.1)


def four_components(**options) -> LinearRegression:
    return LinearRegression(EIGENVALUES, 31, **options)


def random_covariance(rng: np.random.Generator, dim: int, low: float = 0.2) -> np.ndarray:
    """A full positive-definite matrix with eigenvalues between `low` and about 1."""
    basis, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    return (basis * rng.uniform(low, 1.0, dim)) @ basis.T


def random_task(rng: np.random.Generator, dim: int, context, **options) -> LinearRegression:
    """A task with nothing special about it."""
    settings = {
        "noise": float(rng.uniform(0, 0.5)),
        "prior_mean": rng.normal(size=dim),
        "prior_covariance": random_covariance(rng, dim),
        "noisy_query": bool(rng.integers(2)),
    }
    return LinearRegression(
        covariance=random_covariance(rng, dim), context=context, **(settings | options)
    )


def deterministic_merged(scale: float = 1e-3) -> MergedKQ:
    """Three heads with weights that need no random numbers."""
    h, a, b = (np.arange(n, dtype=float) for n in (3, 4, 4))
    U = np.sin(1 + h[:, None, None] + 2 * a[:, None] + 3 * b)
    return MergedKQ(v=jnp.asarray(scale * np.cos(1 + h)), U=jnp.asarray(scale * U))


def deterministic_separate(scale: float = 1e-2) -> SeparateKQ:
    """Four rank-one heads with weights that need no random numbers."""
    h, d = np.arange(4.0), np.arange(4.0)
    K = np.cos(2 + 3 * h[:, None] + d)[:, :, None]
    Q = np.sin(1 + 2 * h[:, None] + 3 * d)[:, :, None]
    return SeparateKQ(*(jnp.asarray(scale * weights) for weights in (np.cos(1 + h), K, Q)))


def harmed(path: Path) -> Iterator[str]:
    """Harms a file in one way after the other, and mends it again."""
    whole = path.read_bytes()
    for i in (0, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        yield f"flipped at {i}"
    for length in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        yield f"cut to {length}"
    path.write_bytes(whole)
