"""Which head owns which task, how sharply, and since when (arXiv 2402.19442)."""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..errors import Refusal
from ..models import AbstractModel
from ..tasks import MultiTaskRegression
from ..trajectory import Trajectory
from ._decomposition import circuits_along
from ._heads import head_shares

Measure = Literal["output", "attention"]


class AllocationHistory(NamedTuple):
    """The shares of the heads at each saved point of a run (T of them).

    **Fields:**

    - `attention`, `output`, `owners`: as in `Allocation`; −1 for a task that no head works for.
    - `chosen`: when each task chose its head: the moment since when the share of its last owner has
      stayed at or above the threshold, linear between points. NaN if it ends below.
    """

    times: Float[np.ndarray, " T"]
    attention: Float[np.ndarray, "T H I"]
    output: Float[np.ndarray, "T H I"]
    owners: Int[np.ndarray, "T I"]
    chosen: Float[np.ndarray, " I"]


@dataclasses.dataclass(frozen=True)
class Allocation:
    """How the tasks are divided among the heads.

    `Superposition` asks each head which tasks it works for; this asks each task which heads work
    for it.

    **Fields:**

    - `attention`: ω_hi / Σ_h |ω_hi|, the share of head h in the attention to the block of task i,
      with the sign of ω.
    - `output`: |μ_hi ω_hi| / Σ_h |μ_hi ω_hi|, its share in the gradient step on task i.
    - `owners`: the head with the largest share of each task, −1 if no head works for it.
    - `own_share`: the share of each owner, without its sign.
    - `idle`: the heads that own no task.
    - `threshold`: the share from which on an owner has a task to itself.
    - `history`: the same along a run; None for a model.
    """

    attention: Float[np.ndarray, "H I"]
    output: Float[np.ndarray, "H I"]
    owners: tuple[int, ...]
    own_share: Float[np.ndarray, " I"]
    idle: tuple[int, ...]
    threshold: float
    history: AllocationHistory | None = None

    @property
    def one_task_a_head(self) -> bool:
        """Whether each task has an owner with at least the threshold, and no head owns two."""
        distinct = len(set(self.owners)) == len(self.owners) and min(self.owners) >= 0
        return distinct and bool(np.all(self.own_share >= self.threshold))


def allocation(
    source: AbstractModel | Trajectory,
    task: MultiTaskRegression,
    threshold: float = 0.5,
    by: Measure = "output",
) -> Allocation:
    """Measures which head owns which task.

    **Arguments:**

    - `source`: a model of several labels, with circuits `kq()` and `ov()`; or a run, whose end is
      measured, and whose points are in `history`.
    - `task`: says which coordinates each label depends on, and in which rotation.
    - `threshold`: the share with which a head has a task to itself; 0.5 is as much as all other
      heads have together.
    - `by`: the share that decides: `"output"` or `"attention"`.
    """
    if isinstance(threshold, str) or not 0 < threshold <= 1:
        raise Refusal(f"`threshold` = {threshold}: must be above 0 and at most 1.")
    if by not in ("output", "attention"):
        raise Refusal(f'`by` = {by!r}: must be "output" or "attention".')
    parts = list(circuits_along(source, task))
    omega, mu = (
        np.concatenate([getattr(found, name) for _, found in parts]) for name in ("omega", "mu")
    )
    if not (np.all(np.isfinite(omega)) and np.all(np.isfinite(mu))):
        raise Refusal("`source` has heads with NaN or infinity: every weight must be finite.")
    attention, output = head_shares(omega), head_shares(np.abs(mu * omega))
    deciding = np.abs(attention) if by == "attention" else output
    owners = np.where(deciding.max(1) > 0, deciding.argmax(1), -1)
    last = owners[-1]
    # Of the head that owns a task at the end, at all points.
    own = np.take_along_axis(deciding, np.maximum(last, 0)[None, None], axis=1)[:, 0]
    history = None
    if isinstance(source, Trajectory):
        times = np.asarray(source.times)
        chosen = np.asarray([_since(times, share, threshold) for share in own.T])
        history = AllocationHistory(times, attention, output, owners, chosen)
    return Allocation(
        attention=attention[-1],
        output=output[-1],
        owners=tuple(int(head) for head in last),
        own_share=own[-1],
        idle=tuple(head for head in range(omega.shape[1]) if head not in last),
        threshold=threshold,
        history=history,
    )


def _since(times: np.ndarray, shares: np.ndarray, threshold: float) -> float:
    """Since when shares have stayed at or above the threshold; NaN if they end below."""
    below = np.flatnonzero(shares < threshold)
    if below.size == 0:
        return float(times[0])
    left = int(below[-1])
    if left == len(times) - 1:
        return float("nan")
    return float(np.interp(threshold, shares[left : left + 2], times[left : left + 2]))
