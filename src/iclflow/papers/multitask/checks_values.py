"""The singular values along a run of decomposable heads, and what they decide."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...analysis import allocation, decomposition
from ...tasks import MultiTaskRegression
from ...theory import multitask
from .. import Given, Inconclusive

# A head that leads by less is not surely ahead, and one with less of a task may still lose it.
LEAD = 0.01
OWNED = 0.9


class Values(NamedTuple):
    """The singular values along a run, and what theory needs beside them."""

    blocks: multitask.Blocks
    width: int
    noise: float
    omega: Float[np.ndarray, "T H I"]
    mu: Float[np.ndarray, "T H I"]
    ahead: Int[np.ndarray, " I"]
    leads: Float[np.ndarray, " I"]


def task_of(given: Given) -> MultiTaskRegression:
    assert isinstance(given.task, MultiTaskRegression)
    return given.task


def values_of(given: Given) -> Values:
    task, model = task_of(given), given.config.model
    found = decomposition(given.run, task).preservation
    assert found is not None
    blocks = multitask.Blocks.of(task)
    width = getattr(model, "width") or given.config.task.dim
    noise = float(np.sum(np.asarray(task.noise))) if task.noisy_query else 0.0
    starts = multitask.head_starts(blocks, found.omega[0], found.mu[0], width)
    ranked = np.sort(starts, 0)
    leads = ranked[-1] / ranked[-2] - 1 if len(starts) > 1 else np.full(len(blocks.sizes), np.inf)
    return Values(blocks, width, noise, found.omega, found.mu, np.argmax(starts, 0), leads)


def _check_leads(start: Values) -> None:
    if np.min(start.leads) < LEAD:
        lead = 100 * float(np.min(start.leads))
        raise Inconclusive(f"the head that is ahead on a task leads by {lead:.2g} %, less than 1 %")


def check_distinct(start: Values) -> None:
    _check_leads(start)
    if len(set(start.ahead.tolist())) < len(start.ahead):
        raise Inconclusive("one head is ahead on several tasks: the claim is for another on each")


def owners_of(given: Given) -> tuple[int, ...]:
    found = allocation(given.run.final, task_of(given))
    if min(found.owners) < 0 or np.min(found.own_share) < OWNED:
        raise Inconclusive("the tasks are not divided among the heads at the end of the run")
    return found.owners


def cost_of_others(start: Values) -> float:
    """`tail_excess` of the last weights, for any number of heads a task.

    Label i pays (φ_i/L) λ_i d_i μ_iᵀ E μ_i, E = exp⟨h, k⟩: for heads along task i, and small ω_hj
    on others, this grows by e Σ_j d_j (Σ_h μ_hi ω_hj)².
    """
    blocks, omega, mu = start.blocks, np.abs(start.omega[-1]), np.abs(start.mu[-1])
    together = mu.T @ omega
    np.fill_diagonal(together, 0.0)
    cost = np.e / blocks.length * blocks.power * blocks.phi
    return float(np.sum(cost[:, None] * blocks.sizes * together**2))
