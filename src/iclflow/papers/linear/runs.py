"""The runs of the claims on arXiv 2501.16265 and of their figures, each computed once and shared.

Single runs are studies, with a few settings changed. Ensembles are studies from many initial
weights. Random keys are fixed numbers, so that every report has the same measurements.
"""

import copy
import dataclasses
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ... import analysis
from ...config import Config
from ...experiment import build_model, build_task
from ...flows import SaveAtDrops, SaveAtTimes, gradient_flow, gradient_flow_ensemble, init_many
from ...models import AbstractModel, Attention, Separate
from ...risks import risk
from ...tasks import LinearRegression
from ...trajectory import Trajectory
from .. import Given, Lab, once, study, task_settings

CONTEXT = 31
# The key of the initial weights of single runs, and of those of `merged_model`.
WEIGHTS = 0
# The tasks below as settings, for claims and figures to note.
FOUR = task_settings("linear/staircase")
EIGHT = task_settings("linear/rank-eight")
# λ²m and λm are in opposite order.
REVERSED = task_settings("linear/order-by-growth") | {"heads": 3, "scale": 1e-4}

ORDER_SCALES = (1.0, 0.5, 0.3, 0.1, 0.03, 0.01)
# Value weights of aligned heads: drops in another order than that of the eigenvalues.
ALIGNED_STARTS = (0.01, 0.02, 0.015, 0.03)
# Heads and ranks with less room than there are components.
HEAD_SHAPES = ((1, 1), (2, 1), (3, 1), (1, 2), (1, 3))


# Tasks and models -----------------------------------------------------------------------------


def white_settings(eigenvalue: float = 1.0) -> dict[str, Any]:
    """The settings of `white_task`."""
    return {"eigenvalues": [eigenvalue] * 4, "context": CONTEXT}


def four_components() -> LinearRegression:
    """The paper's task: D = 4, N = 31, eigenvalues .4 .3 .2 .1."""
    return LinearRegression(**FOUR)


def eight_components() -> LinearRegression:
    """The task of the rank study: D = 8, N = 31, eigenvalues 8, 7, …, 1 over 36."""
    return LinearRegression(**EIGHT)


def white_task(eigenvalue: float = 1.0) -> LinearRegression:
    """White inputs: D = 4, N = 31, Λ = λ I."""
    return LinearRegression(**white_settings(eigenvalue))


def reversed_task() -> LinearRegression:
    """Λ and E[ww] for which λ²m and λm are in opposite order."""
    return LinearRegression(**task_settings("linear/order-by-growth"))


def merged_model(scale: float, heads: int = 8) -> Attention:
    """The paper's merged model: every weight N(0, s²)."""
    return Attention.merged(jr.key(WEIGHTS), dim=4, heads=heads, scale=scale)


def separate_model(scale: float, heads: int = 4, rank: int = 1) -> Attention:
    """The paper's separate model: every weight N(0, s²)."""
    return Attention.separate(jr.key(WEIGHTS), dim=4, heads=heads, rank=rank, scale=scale)


# Single runs ----------------------------------------------------------------------------------


def merged_config(scale: float = 1e-3) -> Config:
    """The paper's merged model: 8 heads, every weight N(0, s²)."""
    return study("linear/merged", model={"scale": scale})


def merged_run(lab: Lab, scale: float = 1e-3) -> Trajectory:
    """Exact gradient flow of the merged model."""
    return lab.run(merged_config(scale), WEIGHTS)


def staircase_config(scale: float = 1e-2, **model: Any) -> Config:
    """The paper's rank-one model: 4 heads, every weight N(0, s²)."""
    return study("linear/staircase", seed=0, model={"scale": scale, **model})


def separate_run(lab: Lab, scale: float = 1e-2) -> Trajectory:
    """Exact gradient flow of the rank-one separate model: the staircase."""
    return lab.run(staircase_config(scale), WEIGHTS)


def plateau_middles(run: Trajectory) -> list[Any]:
    """The model in the middle of each plateau of a run, the last one included."""
    return [run.model_at((p.start + p.end) / 2) for p in analysis.plateaus(run)]


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


def reversed_run(lab: Lab) -> Trajectory:
    """A run on a task whose growth order and gain order disagree."""
    return lab.run(study("linear/order-by-growth"), WEIGHTS)


@once
def aligned_run(lab: Lab) -> Trajectory:
    """Four heads, each exactly aligned with one component."""
    v = jnp.asarray(ALIGNED_STARTS)
    weights = (jnp.eye(4) * v)[:, :, None]
    model = Attention(Separate.of(v, weights, weights))
    return gradient_flow(model, risk(four_components(), model), end=4500.0)


@once
def network_flow(lab: Lab, network: AbstractModel, times: np.ndarray) -> Trajectory:
    """Exact gradient flow on the paper's task of a network that starts as attention does."""
    exact = risk(four_components(), network)
    return gradient_flow(network, exact, end=float(times[-1]), save=SaveAtTimes(times))


# Many seeds -----------------------------------------------------------------------------------


def train_seeds(config: Config, key: int, seeds: int, **options: Any) -> Given:
    """Gradient flows of a config from many initial weights, as one program.

    Not cached: whole runs of many seeds are large. Callers cache what they need of them.

    **Arguments:**

    - `key`: of all initial weights. Every family of runs has its own, so that no two claims rest
      on the same draw.
    - `options`: of the flow.
    """
    task = build_task(config)
    models = init_many(lambda key: build_model(config, key)[0], jr.split(jr.key(key), seeds))
    runs = gradient_flow_ensemble(models, risk(task, models), **options).runs
    return Given(config, task, runs[0], own=True, seeds=runs)


@once
def merged_seeds(lab: Lab, scale: float, seeds: int) -> Given:
    """Many seeds of the merged model."""
    return train_seeds(merged_config(scale), 2, seeds)


@once
def white_seeds(lab: Lab, scale: float, seeds: int) -> tuple[Trajectory, ...]:
    """White runs of merged attention from random weights, dense enough to interpolate."""
    keys = jr.split(jr.key(22), seeds)
    models = init_many(Attention.merged, keys, dim=4, heads=8, scale=scale)
    save = SaveAtDrops(loss=5e-4)
    return gradient_flow_ensemble(models, risk(white_task(), models), save=save).runs


@once
def cascade_seeds(lab: Lab, seeds: int) -> Given:
    """Many staircases from weights of 1e-4: plateaus so long that the solver must be implicit."""
    return train_seeds(staircase_config(1e-4), 8, seeds, solver="implicit")


@once
def few_heads_seeds(lab: Lab, heads: int, rank: int, seeds: int) -> Given:
    """The last points of runs of heads that may have less room than there are components."""
    config = study("linear/few-heads", model={"heads": heads, "rank": rank})
    found = train_seeds(config, 9, seeds)
    # Copied, since a slice would keep the whole run in memory.
    last = [copy.deepcopy(run[-1:]) for run in found.runs]
    return dataclasses.replace(found, run=last[0], seeds=last)


@once
def order_seeds(lab: Lab, scale: float, seeds: int) -> Given:
    """Staircases of five heads, one more than there are components."""
    return train_seeds(staircase_config(scale, heads=5), 1, seeds)


@once
def learning_orders(lab: Lab, scale: float, seeds: int) -> list[tuple[int, ...]]:
    """The order in which each seed learns the components."""
    found = order_seeds(lab, scale, seeds)
    return [analysis.learning_order(run, found.task) for run in found.runs]


def share_in_order(
    lab: Lab, scale: float, seeds: int, order: tuple[int, ...] = (0, 1, 2, 3)
) -> float:
    """The share of seeds that learn the components in this order."""
    return float(np.mean([found == order for found in learning_orders(lab, scale, seeds)]))


# Stationary points ----------------------------------------------------------------------------


@once
def find_rest_points(lab: Lab, template: Attention, count: int) -> analysis.StationaryPoints:
    """Stationary points found from random weights, with no help from theory."""
    exact = risk(four_components(), template)
    return analysis.find_stationary_points(exact, template, count, jr.key(4))


def merged_restarts(lab: Lab) -> analysis.StationaryPoints:
    """Stationary points of three merged heads."""
    return find_rest_points(lab, merged_model(1.0, heads=3), lab.scaled(20, 60, 400))


def separate_restarts(lab: Lab) -> analysis.StationaryPoints:
    """Stationary points of four separate heads."""
    return find_rest_points(lab, separate_model(1.0), lab.scaled(20, 100, 600))
