"""The experiments of the claims on arXiv 2501.16265, each computed once and shared."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr

from ...config import Config
from ...flows import Ensemble, SaveAtDrops, gradient_descent, gradient_flow_ensemble, init_many
from ...models import AbstractModel, Attention
from ...risks import AbstractRisk, risk
from ...tasks import LinearRegression
from ...trajectory import Trajectory
from .. import Lab, once, study, task_settings

CONTEXT = 31
# The number whose key draws the first weights of single runs, as those of `merged_model`.
WEIGHTS = 0
# The tasks below as settings, for claims and figures to note.
FOUR = task_settings("linear/staircase")
EIGHT = task_settings("linear/rank-eight")


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


def merged_model(scale: float, seed: int = 0) -> Attention:
    """The paper's merged model: 8 heads, every weight N(0, s²)."""
    return Attention.merged(jr.key(seed), dim=4, heads=8, scale=scale)


def separate_model(scale: float, seed: int = 0, heads: int = 4, rank: int = 1) -> Attention:
    """The paper's rank-one model: 4 heads, every weight N(0, s²)."""
    return Attention.separate(jr.key(seed), dim=4, heads=heads, rank=rank, scale=scale)


def merged_config(scale: float = 1e-3) -> Config:
    """The paper's merged model: 8 heads, every weight N(0, s²)."""
    return study("linear/merged", model={"scale": scale})


def merged_run(lab: Lab, scale: float = 1e-3) -> Trajectory:
    """Exact gradient flow of the merged model."""
    return lab.run(merged_config(scale), WEIGHTS)


def staircase_config(scale: float = 1e-2) -> Config:
    """The paper's rank-one model: 4 heads, every weight N(0, s²)."""
    return study("linear/staircase", seed=0, model={"scale": scale})


def separate_run(lab: Lab, scale: float = 1e-2) -> Trajectory:
    """Exact gradient flow of the rank-one separate model: the staircase."""
    return lab.run(staircase_config(scale), WEIGHTS)


def white_config() -> Config:
    """Merged, white inputs, balanced aligned start with σ₀ = 1e-4."""
    model = Attention.merged(jr.key(WEIGHTS), dim=4, heads=8, scale=1.0, scheme="identity")
    strength = float(jnp.sum(model.circuits.v**2)) / 2  # σ = Σ v² / √D
    return study(
        "linear/white",
        task=white_settings(),
        model={"scale": (1e-4 / strength) ** 0.5, "scheme": "identity"},
        flow={"end": 6.0},
        save={"kind": "linear", "count": 400},
    )


def white_run(lab: Lab) -> Trajectory:
    """The run of `white_config`."""
    return lab.run(white_config(), WEIGHTS)


@once
def separate_ensemble(lab: Lab, scale: float, seeds: int, heads: int = 4) -> Ensemble:
    """Many seeds of the rank-one separate model."""
    models = init_many(
        Attention.separate, jr.split(jr.key(1), seeds), dim=4, heads=heads, scale=scale
    )
    return gradient_flow_ensemble(models, _risk(four_components(), models))


@once
def merged_ensemble(lab: Lab, scale: float, seeds: int) -> Ensemble:
    """Many seeds of the merged model."""
    models = init_many(Attention.merged, jr.split(jr.key(2), seeds), dim=4, heads=8, scale=scale)
    return gradient_flow_ensemble(models, _risk(four_components(), models))


@once
def rank_run(lab: Lab, rank: int, scale: float, seed: int = 0) -> Trajectory:
    """The rank study: D = 8, H = 9."""
    config = study("linear/rank-eight", model={"rank": rank, "scale": scale})
    return lab.run(config, seed)


@once
def softmax_run(lab: Lab, merged: bool) -> Trajectory:
    """The softmax twin, trained by gradient descent on a fixed set of sequences."""
    task = four_components()
    if merged:
        model = Attention.merged(jr.key(0), 4, 8, 1e-2, activation="softmax")
        rate, steps = SOFTMAX_MERGED
    else:
        model = Attention.separate(jr.key(0), 4, 8, 1, 5e-2, activation="softmax")
        rate, steps = SOFTMAX_SEPARATE
    data = risk(task, model, "dataset", sequences=SOFTMAX_SEQUENCES, key=jr.key(5))
    return gradient_descent(model, data, rate, steps, save=SaveAtDrops())


# Learning rate and number of steps; sequences in the training set.
SOFTMAX_MERGED = (0.2, 1500)
SOFTMAX_SEPARATE = (0.5, 4000)
SOFTMAX_SEQUENCES = 1000


def _risk(task: LinearRegression, models: AbstractModel) -> AbstractRisk:
    """The exact risk that all members of an ensemble share."""
    return risk(task, models)
