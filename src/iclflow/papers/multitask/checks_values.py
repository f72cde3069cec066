"""The singular values along a run of decomposable heads, and the conditions of claims on them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...analysis import decomposition
from ...tasks import MultiTaskRegression
from ...theory import multitask
from .. import Given, Inconclusive

# The rule for the head ahead neglects how heads hold each other back: below this lead it may err.
LEAD = 0.01
# The share of a task's output from which on its head has won: with less it may still lose it.
OWNED = 0.9


class Values(NamedTuple):
    """The singular values along a run, and the inputs of theory.

    **Fields:**

    - `noise`: the part of the loss that is label noise of the query.
    - `ahead`, `leads`: the head ahead on each task at the start, and by which share.
    """

    blocks: multitask.Blocks
    width: int
    noise: float
    omega: Float[np.ndarray, "T H I"]
    mu: Float[np.ndarray, "T H I"]
    ahead: Int[np.ndarray, " I"]
    leads: Float[np.ndarray, " I"]

    @property
    def start(self) -> tuple[np.ndarray, np.ndarray, int]:
        """ω, μ and the width at the start, as functions of theory take them."""
        return self.omega[0], self.mu[0], self.width


def task_of(given: Given) -> MultiTaskRegression:
    assert isinstance(given.task, MultiTaskRegression)
    return given.task


def values_of(given: Given) -> Values:
    task = task_of(given)
    found = decomposition(given.run, task).preservation
    assert found is not None
    blocks = multitask.Blocks.of(task)
    width = getattr(given.config.model, "width") or given.config.task.dim
    noise = float(np.sum(np.asarray(task.noise))) if task.noisy_query else 0.0
    ahead, leads = find_ahead(multitask.head_starts(blocks, found.omega[0], found.mu[0], width))
    return Values(blocks, width, noise, found.omega, found.mu, ahead, leads)


def find_ahead(
    starts: Float[np.ndarray, "*starts H I"],
) -> tuple[Int[np.ndarray, "*starts I"], Float[np.ndarray, "*starts I"]]:
    """The head ahead on each task, and its lead over the next; infinite for a single head."""
    ahead = np.argmax(starts, -2)
    if starts.shape[-2] == 1:
        return ahead, np.full(ahead.shape, np.inf)
    ranked = np.sort(starts, -2)
    return ahead, ranked[..., -1, :] / ranked[..., -2, :] - 1


def check_distinct(start: Values) -> None:
    """Raises `Inconclusive` unless a different head is clearly ahead on each task."""
    if np.min(start.leads) < LEAD:
        lead = 100 * float(np.min(start.leads))
        raise Inconclusive(f"the head that is ahead on a task leads by {lead:.2g} %, less than 1 %")
    if len(set(start.ahead.tolist())) < len(start.ahead):
        raise Inconclusive("one head is ahead on several tasks: the claim is for another on each")
