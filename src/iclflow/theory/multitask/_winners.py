"""Which head wins a task, from the start alone; and the loss of any division of the tasks.

While a task is not learned, ω̇ = aωμ and μ̇ = bωμ for every head, with a = 2λ/√E and b = 2λd: bω − aμ
stays, and both run away after a time that is one over the logarithmic mean of bω and aμ at the
start. The head with the shortest time wins. Derived in docs/theory/multitask.md.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from ...errors import Refusal
from .._check import check_whole
from ._blocks import Blocks, Tasks
from ._check import HeadsLike, check_heads, check_owners
from ._loss import Heads
from ._solutions import Solution, single_head

# Where bω and aμ differ by less than this share, their logarithmic mean is their mean.
_EQUAL = 1e-6


def head_starts(task: Tasks, omega: HeadsLike, mu: HeadsLike, width: int) -> Heads:
    """One over the time in which each head would run away on each task if it were alone.

    **Arguments:**

    - `omega`, `mu`: at t = 0, all positive.
    - `width`: E, the width of keys and values.
    """
    blocks, width = Blocks.of(task), check_whole("width", width)
    omega, mu = check_heads(blocks.count, omega=omega, mu=mu)
    if not (np.all(omega > 0) and np.all(mu > 0)):
        raise Refusal("`omega` and `mu` must be positive: others do not run away.")
    attend = 2 * blocks.power * omega
    read = 2 * blocks.signal / width**0.5 * mu
    # The noise of μ, which is neglected, holds all heads of a task back alike.
    near = np.abs(attend - read) <= _EQUAL * attend
    ratio = np.where(near, 2.0, attend / read)
    return np.where(near, (attend + read) / 2, (attend - read) / np.log(ratio))


def divided_limit(task: Tasks, owners: Sequence[int] | Int[np.ndarray, " I"]) -> Solution:
    """Where positive balanced starts end if head `owners[i]` has task i.

    Tasks of one head share its score variance of 1 by water-filling, as those of a single head for
    all; heads of different tasks are orthogonal and do not meet. With one task a head this is
    `gradient_flow_limit`.
    """
    blocks = Blocks.of(task)
    owners = check_owners(owners, blocks.count)
    shares, losses = np.empty_like(blocks.sizes), np.empty_like(blocks.sizes)
    for head in np.unique(owners):
        own = owners == head
        found = single_head(
            Blocks(blocks.sizes[own], blocks.signal[own], blocks.noise[own], blocks.length)
        )
        shares[own], losses[own] = found.shares, found.losses
    return Solution(shares, losses)
