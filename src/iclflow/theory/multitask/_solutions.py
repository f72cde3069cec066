"""Named solutions: the limit of gradient flow, the best single head, a bound for any heads.

All are choices of the shares x_i of `shares`: the loss of task i is λ_i d_i/(1 + κ_i x_i). One head
per task gives x_i = 1/e. One head for all has Σ x_i = 1/e, whatever it attends to. H equiangular
heads have Σ x_i < H − 1, which small heads approach.

Attention averages, so ω and μ mean the same at every context length: a step
k_i = κ_i x_i/(1 + κ_i x_i), and a variance that falls as 1/L′. At L′ the loss is
λ_i d_i [(1 − k_i)² + k_i² φ_i d_i/(L′ x_i)] (arXiv 2402.19442, proposition 1, for x_i = 1/e).
Derived in docs/theory/multitask.md.
"""

from typing import NamedTuple

import numpy as np
import scipy
from jaxtyping import Float

from ...errors import Refusal
from .._check import check_number, check_whole
from ._blocks import Blocks, Tasks


class Solution(NamedTuple):
    """Shares, and the loss of each task beyond the noise of its label."""

    shares: Float[np.ndarray, " I"]
    losses: Float[np.ndarray, " I"]

    @property
    def loss(self) -> float:
        """The total loss."""
        return float(np.sum(self.losses))


class OtherLength(NamedTuple):
    """Losses of each task at a test length.

    - `steps`: k_i, the part of the signal that is returned, at every length.
    - `losses`: with weights as trained.
    - `retuned`: with each head's weight on its own label retuned for the test length. With one head
      per task it is not the best: weights on other labels help (`best_mu`).
    - `floor`: λ_i d_i (1 − k_i)², the loss on infinite contexts.
    """

    steps: Float[np.ndarray, " I"]
    losses: Float[np.ndarray, " I"]
    retuned: Float[np.ndarray, " I"]
    floor: Float[np.ndarray, " I"]


def gradient_flow_limit(task: Tasks) -> Solution:
    """x_i = 1/e, one head per task with ω = d_i^−½: where positive balanced starts end (GF-ICL).

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> limit = icl.theory.multitask.gradient_flow_limit(task)
    >>> limit.shares.round(4), limit.losses.round(4)
    (array([0.3679, 0.3679]), array([0.1995, 0.1995]))
    >>> # λd/(1 + κ/e), with λd = 1.
    >>> blocks = icl.theory.multitask.Blocks.of(task)
    >>> (1 / (1 + blocks.samples / np.e)).round(4)
    array([0.1995, 0.1995])
    ```
    """
    blocks = Blocks.of(task)
    return loss_of_shares(np.full(blocks.count, np.exp(-1.0)), blocks)


def debiased_steps(task: Tasks) -> Solution:
    """x_i = 1, a debiased gradient step for every task: I + 1 small heads approach it.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> icl.theory.multitask.debiased_steps(task).losses.round(4)
    array([0.084, 0.084])
    >>> # The limit of small pairs, by the loss for long contexts.
    >>> single = icl.isotropic(dim=4, context=48, noise=0.1)
    >>> round(icl.theory.large_context_pair(single, w=0.0) - 0.1, 4)
    0.084
    ```
    """
    blocks = Blocks.of(task)
    return loss_of_shares(np.ones(blocks.count), blocks)


def single_head(task: Tasks) -> Solution:
    """The best that one head can do for all tasks, Σ x_i = 1/e by water-filling (OptS-ICL).

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> best = icl.theory.multitask.single_head(task)
    >>> best.shares.round(4), round(best.loss, 4)
    (array([0.1839, 0.1839]), 0.6652)
    >>> round(icl.theory.multitask.gradient_flow_limit(task).loss, 4)
    0.3989
    ```
    """
    blocks = Blocks.of(task)
    return loss_of_shares(fill_shares(np.exp(-1.0), blocks), blocks)


def lower_bound(task: Tasks, heads: int) -> Solution:
    """The infimum of H equiangular heads, Σ x_i = H − 1 by water-filling (LB-ICL).

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> [round(icl.theory.multitask.lower_bound(task, heads).loss, 4) for heads in (1, 2, 3)]
    [0.6652, 0.3099, 0.1679]
    >>> round(icl.theory.multitask.gradient_flow_limit(task).loss, 4)
    0.3989
    ```
    """
    blocks, heads = Blocks.of(task), check_whole("heads", heads)
    if heads == 1:
        return single_head(blocks)
    return loss_of_shares(fill_shares(min(heads - 1, blocks.count), blocks), blocks)


def finite_bound(task: Tasks, heads: int) -> Solution:
    """The loss of heads whose scores vanish, exact at finite L and d, at shares of `lower_bound`.

    Such heads are linear attention on centred inputs, a Wishart matrix with n = L − 1 degrees of
    freedom: λ_i d_i c/(1 + c), c = φ_i d_i/(n x_i) + 1/n. For equal tasks no shares are better.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> icl.theory.multitask.finite_bound(task, heads=3).losses.round(4)
    array([0.1031, 0.1031])
    >>> # A debiased step for each task.
    >>> single = icl.isotropic(dim=4, context=48, noise=0.1)
    >>> round(icl.theory.debiased_optimum(single).risk - 0.1, 4)
    0.1031
    ```
    """
    blocks, heads = Blocks.of(task), check_whole("heads", heads)
    if heads == 1:
        raise Refusal("`heads` = 1: a head whose scores vanish returns the mean of the labels.")
    shares, free = lower_bound(blocks, heads).shares, blocks.length - 1
    # A task without a share is not predicted.
    with np.errstate(divide="ignore"):
        odds = blocks.phi * blocks.sizes / (free * shares) + 1 / free
    return Solution(shares, blocks.power / (1 + 1 / odds))


def loss_of_shares(shares: Float[np.ndarray, " I"], blocks: Blocks) -> Solution:
    """λ_i d_i/(1 + κ_i x_i) of every task."""
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
    # The root finder says which tasks are neither empty nor full; the level then has a closed form.
    rough = level * slope - offset
    full, free = rough >= 1, (rough > 0) & (rough < 1)
    if free.any():
        level = (budget - full.sum() + offset[free].sum()) / slope[free].sum()
    return cut(level)


def at_length(task: Tasks, test_length: float, solution: Solution | None = None) -> OtherLength:
    """λ_i d_i [(1 − k_i)² + k_i² φ_i d_i/(L′ x_i)]: losses at L′ of weights that are best at L.

    **Arguments:**

    - `test_length`: L′, any number from 1 up, or infinity.
    - `solution`: any choice of shares, each task with the weight that is best for its share; by
      default `gradient_flow_limit`. A task without a share is not predicted, at any length.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1, 2, 3], [4, 5, 6, 7]], context=48, noise=0.1)
    >>> longer = icl.theory.multitask.at_length(task, 480)
    >>> longer.losses.round(4), longer.retuned.round(4), longer.floor.round(4)
    (array([0.0558, 0.0558]), array([0.0243, 0.0243]), array([0.0398, 0.0398]))
    >>> same = icl.theory.multitask.at_length(task, 48)
    >>> same.losses.round(4), icl.theory.multitask.gradient_flow_limit(task).losses.round(4)
    (array([0.1995, 0.1995]), array([0.1995, 0.1995]))
    ```
    """
    blocks = Blocks.of(task)
    test_length = check_number(
        "test_length", test_length, "at least 1, or infinity", lambda x: x >= 1
    )
    shares = (solution or gradient_flow_limit(blocks)).shares
    odds = blocks.samples * shares
    steps = odds / (1 + odds)
    floor = blocks.power * (1 - steps) ** 2
    # k²φd/(L′x) = k(1 − k)L/L′, which is finite at x = 0.
    ratio = blocks.length / test_length
    losses = floor + blocks.power * steps * (1 - steps) * ratio
    # 1/(1 + odds·L′/L), where 0·∞ means that there is nothing to tune.
    retuned = blocks.power * np.where(odds > 0, ratio / (ratio + np.where(odds > 0, odds, 1)), 1)
    return OtherLength(steps, losses, retuned, floor)
