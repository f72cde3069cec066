"""The experiments of the claims on arXiv 2501.16265, each computed once and shared."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ..flows import (
    Drops,
    Ensemble,
    Linear,
    gradient_descent,
    gradient_flow,
    gradient_flow_ensemble,
    init_many,
)
from ..models import AbstractModel, MergedKQ, SeparateKQ
from ..risks import AbstractRisk, risk
from ..tasks import LinearRegression
from ..trajectory import Trajectory
from ._lab import Lab

EIGENVALUES = (0.4, 0.3, 0.2, 0.1)
CONTEXT = 31
# The tasks below as settings, for claims and figures to note.
FOUR: dict[str, Any] = {"eigenvalues": list(EIGENVALUES), "context": CONTEXT}
EIGHT: dict[str, Any] = {"eigenvalues": (np.arange(8, 0, -1) / 36).tolist(), "context": CONTEXT}


def white_settings(eigenvalue: float = 1.0) -> dict[str, Any]:
    """The settings of `white_task`."""
    return {"eigenvalues": [eigenvalue] * 4, "context": CONTEXT}


def four_components(**options) -> LinearRegression:
    """The paper's task: D = 4, N = 31, eigenvalues .4 .3 .2 .1."""
    return LinearRegression(**FOUR, **options)


def eight_components() -> LinearRegression:
    """The task of the rank study: D = 8, N = 31, eigenvalues 8, 7, …, 1 over 36."""
    return LinearRegression(**EIGHT)


def white_task(eigenvalue: float = 1.0) -> LinearRegression:
    """White inputs: D = 4, N = 31, Λ = λ I."""
    return LinearRegression(**white_settings(eigenvalue))


def merged_model(scale: float, seed: int = 0) -> MergedKQ:
    """The paper's merged model: 8 heads, every weight N(0, s²)."""
    return MergedKQ.init(jr.key(seed), dim=4, heads=8, scale=scale)


def separate_model(scale: float, seed: int = 0, heads: int = 4, rank: int = 1) -> SeparateKQ:
    """The paper's rank-one model: 4 heads, every weight N(0, s²)."""
    return SeparateKQ.init(jr.key(seed), dim=4, heads=heads, rank=rank, scale=scale)


def merged_run(lab: Lab, scale: float = 1e-3) -> Trajectory:
    """Exact gradient flow of the merged model."""
    return lab.once(f"merged {scale}", lambda: _flow(four_components(), merged_model(scale)))


def separate_run(lab: Lab, scale: float = 1e-2) -> Trajectory:
    """Exact gradient flow of the rank-one separate model: the staircase."""
    return lab.once(f"separate {scale}", lambda: _flow(four_components(), separate_model(scale)))


def white_run(lab: Lab) -> Trajectory:
    """Merged, white inputs, balanced aligned start with σ₀ = 1e-4."""

    def compute():
        task = white_task()
        model = MergedKQ.init(jr.key(0), dim=4, heads=8, scale=1.0, scheme="identity")
        strength = jnp.sum(model.v**2) / 2  # σ = Σ v² / √D
        factor = jnp.sqrt(1e-4 / strength)
        model = MergedKQ(v=factor * model.v, U=factor * model.U)
        return gradient_flow(model, risk(task, model), end=6.0, save=Linear(400))

    return lab.once("white", compute)


def separate_ensemble(lab: Lab, scale: float, seeds: int, heads: int = 4) -> Ensemble:
    """Many seeds of the rank-one separate model."""

    def compute():
        models = init_many(
            SeparateKQ.init, jr.split(jr.key(1), seeds), dim=4, heads=heads, scale=scale
        )
        return gradient_flow_ensemble(models, _risk(four_components(), models))

    return lab.once(f"separate ensemble {scale} {seeds} {heads}", compute)


def merged_ensemble(lab: Lab, scale: float, seeds: int) -> Ensemble:
    """Many seeds of the merged model."""

    def compute():
        models = init_many(MergedKQ.init, jr.split(jr.key(2), seeds), dim=4, heads=8, scale=scale)
        return gradient_flow_ensemble(models, _risk(four_components(), models))

    return lab.once(f"merged ensemble {scale} {seeds}", compute)


def rank_run(lab: Lab, rank: int, scale: float, seed: int = 0) -> Trajectory:
    """The rank study: D = 8, H = 9."""

    def compute():
        model = SeparateKQ.init(jr.key(seed), dim=8, heads=9, rank=rank, scale=scale)
        return _flow(eight_components(), model, tolerance=1e-4)

    return lab.once(f"rank {rank} {scale} {seed}", compute)


def softmax_run(lab: Lab, merged: bool) -> Trajectory:
    """The softmax twin, trained by gradient descent on a fixed set of sequences."""

    def compute():
        task = four_components()
        if merged:
            model = MergedKQ.init(jr.key(0), 4, 8, 1e-2, activation="softmax")
            rate, steps = SOFTMAX_MERGED
        else:
            model = SeparateKQ.init(jr.key(0), 4, 8, 1, 5e-2, activation="softmax")
            rate, steps = SOFTMAX_SEPARATE
        data = risk(task, model, "dataset", sequences=SOFTMAX_SEQUENCES, key=jr.key(5))
        return gradient_descent(model, data, rate, steps, save=Drops())

    return lab.once(f"softmax {merged}", compute)


# Learning rate and number of steps; sequences in the training set.
SOFTMAX_MERGED = (0.2, 1500)
SOFTMAX_SEPARATE = (0.5, 4000)
SOFTMAX_SEQUENCES = 1000


def _flow(task: LinearRegression, model: AbstractModel, **options) -> Trajectory:
    return gradient_flow(model, risk(task, model), **options)


def _risk(task: LinearRegression, models: AbstractModel) -> AbstractRisk:
    """The exact risk that all members of an ensemble share."""
    return risk(task, models)
