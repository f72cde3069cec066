"""Trained at one context length, tested at another.

Attention averages, so ω and μ mean the same at every length: a step k_i, and a variance that falls
as 1/L′. A solution with the shares x_i has k_i = κ_i x_i/(1 + κ_i x_i), and at L′ pays
λ_i d_i [(1 − k_i)² + k_i² φ_i d_i/(L′ x_i)] (arXiv 2402.19442, proposition 1, for x_i = 1/e).
Derived in docs/theory/multitask.md.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ._blocks import Blocks, Tasks
from ._check import check_number
from ._solutions import Solution, gradient_flow_limit


class OtherLength(NamedTuple):
    """Losses of each task at a test length.

    - `steps`: k_i, the part of the signal that is returned, at every length.
    - `losses`: with weights as trained.
    - `retuned`: with each head's weight on its own label retuned for the test length. With one head
      a task that is not the best for its attention: weights on other labels help (`best_mu`).
    - `floor`: λ_i d_i (1 − k_i)², what is left on contexts without end.
    """

    steps: Float[np.ndarray, " I"]
    losses: Float[np.ndarray, " I"]
    retuned: Float[np.ndarray, " I"]
    floor: Float[np.ndarray, " I"]


def at_length(task: Tasks, test_length: float, solution: Solution | None = None) -> OtherLength:
    """The losses at `test_length` of weights that are best at `blocks.length`.

    **Arguments:**

    - `test_length`: L′, any number from 1 up, or infinity.
    - `solution`: any choice of shares, each task with the weight that is best for its share;
      `gradient_flow_limit` without one. A task without a share is not predicted, at any length.
    """
    blocks = Blocks.of(task)
    test_length = check_number(
        "test_length", test_length, "at least 1, or infinity", lambda x: x >= 1
    )
    shares = (solution or gradient_flow_limit(blocks)).shares
    odds = blocks.samples * shares
    steps = odds / (1 + odds)
    floor = blocks.power * (1 - steps) ** 2
    # k²φd/(L′x) = k(1 − k)L/L′, which has no trouble with x = 0.
    ratio = blocks.length / test_length
    losses = floor + blocks.power * steps * (1 - steps) * ratio
    # 1/(1 + odds·L′/L), where 0·∞ means that there is nothing to tune.
    retuned = blocks.power * np.where(odds > 0, ratio / (ratio + np.where(odds > 0, odds, 1)), 1)
    return OtherLength(steps, losses, retuned, floor)
