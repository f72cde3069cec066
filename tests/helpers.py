"""Problems that several test files share."""

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from iclflow.models import (
    AbstractModel,
    Attention,
    Merged,
    Separate,
    known_circuits,
    restore_model,
)
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


def cosine_tasks(count: int, dim: int) -> np.ndarray:
    """w_ki = cos(1 + 2k + 3i + ki), scaled to norm 1: tasks that need no random numbers."""
    k, i = np.arange(count)[:, None], np.arange(dim)
    rows = np.cos(1 + 2 * k + 3 * i + k * i)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def deterministic_merged(scale: float = 1e-3) -> Attention:
    """Three heads with weights that need no random numbers."""
    h, a, b = (np.arange(n, dtype=float) for n in (3, 4, 4))
    U = np.sin(1 + h[:, None, None] + 2 * a[:, None] + 3 * b)
    return Attention(Merged.of(jnp.asarray(scale * np.cos(1 + h)), jnp.asarray(scale * U)))


def deterministic_separate(scale: float = 1e-2) -> Attention:
    """Four rank-one heads with weights that need no random numbers."""
    h, d = np.arange(4.0), np.arange(4.0)
    K = np.cos(2 + 3 * h[:, None] + d)[:, :, None]
    Q = np.sin(1 + 2 * h[:, None] + 3 * d)[:, :, None]
    return Attention(
        Separate.of(*(jnp.asarray(scale * weights) for weights in (np.cos(1 + h), K, Q)))
    )


# Two heads of each kind of model: its class or that of its circuits, the shapes of its weights, and
# its settings. Inputs have three entries, tokens four or (two labels) five; BLOCKS are what each of
# two labels reads.
BLOCKS = ((0, 1), (2,))
_SPECTRAL = {"coordinates": BLOCKS, "dim": 3, "width": 3}
_LINEAR = {"activation": "linear", "normaliser": "context", "self_attention": True}
_SOFTMAX = {"activation": "softmax", "normaliser": "context", "self_attention": False}
_LAYERS = {"depth": 2, "normaliser": "context", "self_attention": False}


def _both(shape: tuple[int, ...]) -> dict:
    return {"gamma": shape, "move": shape}


KINDS: dict[str, tuple[str, dict, dict]] = {
    "blind merged": ("Merged", {"value": (2, 1, 1), "key_query": (2, 3, 3)}, _LINEAR),
    "merged": ("Merged", {"value": (2, 1, 4), "key_query": (2, 4, 3)}, _LINEAR),
    "merged, two labels": ("Merged", {"value": (2, 2, 5), "key_query": (2, 5, 3)}, _SOFTMAX),
    "blind separate": (
        "Separate",
        {"value": (2, 1, 1), "K": (2, 3, 1), "Q": (2, 3, 1)},
        _LINEAR,
    ),
    "separate": ("Separate", {"value": (2, 1, 4), "K": (2, 4, 1), "Q": (2, 3, 1)}, _LINEAR),
    "two layers": ("TwoLayerLinear", {"W1": (2, 9), "w2": (2,)}, {"normaliser": "context"}),
    "convolution": (
        "ConvolutionalLinear",
        {"kernel": (2, 1, 3), "row": (2, 1, 3), "scalar": (2,)},
        {"normaliser": "context"},
    ),
    "diagonal": ("Diagonal", {"omega": (2,), "mu": (2, 1)}, {"dim": 3, **_SOFTMAX}),
    "diagonal, two labels": (
        "Diagonal",
        {"omega": (2, 3), "mu": (2, 2)},
        {"dim": 3, **_SOFTMAX},
    ),
    "factored": ("Factored", dict.fromkeys("KQV", (2, 4, 4)) | {"O": (2, 1, 4)}, _SOFTMAX),
    "factored, two labels": (
        "Factored",
        dict.fromkeys("KQV", (2, 4, 5)) | {"O": (2, 2, 4)},
        _SOFTMAX,
    ),
    "blind factored, two labels": (
        "Factored",
        {"K": (2, 4, 3), "Q": (2, 4, 3), "V": (2, 4, 2), "O": (2, 2, 4)},
        _SOFTMAX,
    ),
    "spectral": ("Spectral", dict.fromkeys("KQVO", (2, 2)), {**_SPECTRAL, **_SOFTMAX}),
    "balanced spectral": (
        "BalancedSpectral",
        {"attend": (2, 2), "read": (2, 2)},
        {"signs": None, **_SPECTRAL, **_SOFTMAX},
    ),
    "stack": (
        "AttentionStack",
        {"key_query": (2, 2, 4, 4), "value": (2, 2, 4, 4)},
        {"depth": 2, "causal": False, "negated": False, **_SOFTMAX},
    ),
    "scalar stack": ("ScalarStack", {"gamma": (2,)}, {"dim": 3, **_LAYERS}),
    "diagonal stack": ("DiagonalStack", {"gamma": (2, 3)}, _LAYERS),
    "full stack": ("FullStack", {"gamma": (2, 3, 3)}, _LAYERS),
    "merged stack": ("MergedStack", {"value": (2, 2), "key_query": (2, 2, 3, 3)}, _LAYERS),
    "separate stack": (
        "SeparateStack",
        {"value": (1, 2), "K": (1, 2, 3, 1), "Q": (1, 2, 3, 1)},
        _LAYERS,
    ),
    "moving scalar stack": ("MovingScalarStack", _both((2,)), {"dim": 3, **_LAYERS}),
    "moving diagonal stack": ("MovingDiagonalStack", _both((2, 3)), _LAYERS),
    "moving full stack": ("MovingFullStack", _both((2, 3, 3)), _LAYERS),
}


def stack_of(kind: str, points: int = 3) -> AbstractModel:
    """Models of a kind with random weights, as a run holds them; nothing is compiled."""
    rng = np.random.default_rng(0)
    name, shapes, settings = KINDS[kind]
    weights = {name: rng.normal(size=(points, *shape)) for name, shape in shapes.items()}
    if name in known_circuits():
        return restore_model("Attention", weights, {"circuits": name, **settings}, points)
    return restore_model(name, weights, settings, points)


def model_of(kind: str) -> AbstractModel:
    """One such model."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), stack_of(kind))


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
