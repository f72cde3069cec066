"""Named solutions: the limit of gradient flow, the best single head, a bound for any heads.

All are choices of the shares x_i of `shares`: task i pays λ_i d_i/(1 + κ_i x_i). One head a task
gives x_i = 1/e. One head for all has Σ x_i = 1/e, whatever it attends to. H equiangular heads have
Σ x_i < H − 1, which small heads approach. Derived in docs/theory/multitask.md.
"""

from typing import NamedTuple

import numpy as np
import scipy.optimize
from jaxtyping import Float

from .._check import check_whole
from ._blocks import Blocks, Tasks


class Solution(NamedTuple):
    """Shares, and the loss of each task beyond the noise of its label."""

    shares: Float[np.ndarray, " I"]
    losses: Float[np.ndarray, " I"]

    @property
    def loss(self) -> float:
        """The total loss."""
        return float(np.sum(self.losses))


def gradient_flow_limit(task: Tasks) -> Solution:
    """One head a task, attending with ω = d_i^−½: where positive balanced starts end (GF-ICL)."""
    blocks = Blocks.of(task)
    return loss_of_shares(np.full(blocks.count, np.exp(-1.0)), blocks)


def debiased_steps(task: Tasks) -> Solution:
    """A debiased gradient step for every task: what I + 1 small heads approach."""
    blocks = Blocks.of(task)
    return loss_of_shares(np.ones(blocks.count), blocks)


def single_head(task: Tasks) -> Solution:
    """The best that one head can do for all tasks (OptS-ICL)."""
    blocks = Blocks.of(task)
    return loss_of_shares(fill_shares(np.exp(-1.0), blocks), blocks)


def lower_bound(task: Tasks, heads: int) -> Solution:
    """What no equiangular heads go below, and some approach (LB-ICL)."""
    blocks, heads = Blocks.of(task), check_whole("heads", heads)
    if heads == 1:
        return single_head(blocks)
    return loss_of_shares(fill_shares(min(heads - 1, blocks.count), blocks), blocks)


def loss_of_shares(shares: Float[np.ndarray, " I"], blocks: Blocks) -> Solution:
    return Solution(shares, blocks.power / (1 + blocks.samples * shares))


def fill_shares(budget: float, blocks: Blocks) -> Float[np.ndarray, " I"]:
    """The shares in [0, 1] with a given sum and the smallest loss, by water-filling.

    A share is x = (t√(a/κ) − 1/κ) cut to [0, 1], a = λd, with one level t for all tasks.
    """
    count = blocks.count
    if budget >= count:
        return np.ones(count)
    slope, offset = np.sqrt(blocks.power / blocks.samples), 1 / blocks.samples
    cut = lambda level: np.clip(level * slope - offset, 0, 1)
    highest = np.max((1 + offset) / slope)
    missing = lambda level: np.sum(cut(level)) - budget
    level = float(scipy.optimize.brentq(missing, 0.0, highest, xtol=1e-300))  # pyright: ignore[reportArgumentType]
    # The tasks that are neither empty nor full are known now, and with them the level, exactly.
    rough = level * slope - offset
    full, free = rough >= 1, (rough > 0) & (rough < 1)
    if free.any():
        level = (budget - full.sum() + offset[free].sum()) / slope[free].sum()
    return cut(level)
