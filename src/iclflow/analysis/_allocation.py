"""Which head owns which task, and which tasks a head works for (arXiv 2402.19442)."""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..circuits import DUMMY_SHARE, circuits
from ..errors import InputError, Refusal
from ..models import AbstractModel
from ..tasks import MultiTaskRegression, is_real
from ..trajectory import Trajectory
from ._decomposition import circuits_along
from ._denoise import crossing_time
from ._heads import head_shares, ratio

# A head is superposed if its strength on a second task is above this share of that on its first.
_SECOND_TASK = 0.25

Measure = Literal["output", "attention"]


class AllocationHistory(NamedTuple):
    """The shares of the heads at each saved point of a run (T of them).

    **Fields:**

    - `attention`, `output`, `owners`: as in `Allocation`; −1 for a task that no head works for.
    - `chosen`: the time since when the share of the last owner of each task has stayed at or above
      the threshold, linear between points. NaN if it ends below.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3]], context=40)
    >>> start = lambda key: icl.Attention.balanced(key, task.coordinates, heads=2)
    >>> models = icl.init_many(start, jr.split(jr.key(0), 3))
    >>> run = icl.Trajectory(np.arange(3.0), np.ones(3), models)
    >>> history = icl.allocation(run, task).history
    >>> history.output.shape, history.owners.shape
    ((3, 2, 2), (3, 2))
    ```
    """

    times: Float[np.ndarray, " T"]
    attention: Float[np.ndarray, "T H I"]
    output: Float[np.ndarray, "T H I"]
    owners: Int[np.ndarray, "T I"]
    chosen: Float[np.ndarray, " I"]


@dataclasses.dataclass(frozen=True)
class Allocation:
    """How the tasks are divided among the heads.

    Shares are by task, among heads; those of `Superposition` are by head, among tasks.

    **Fields:**

    - `attention`: ω_hi / Σ_h |ω_hi|, the share of head h in the attention to the block of task i,
      with the sign of ω.
    - `output`: |μ_hi ω_hi| / Σ_h |μ_hi ω_hi|, its share in the gradient step on task i.
    - `owners`: the head with the largest share of each task, −1 if no head works for it.
    - `own_share`: the share of each owner, without its sign.
    - `idle`: the heads that own no task.
    - `threshold`: the share above which a head has a task to itself.
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

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3]], context=40)
    >>> model = icl.Attention.balanced(jr.key(0), task.coordinates, heads=2)
    >>> found = icl.allocation(model, task)
    >>> found.attention.shape, len(found.owners)
    ((2, 2), 2)
    ```
    """
    if not is_real(threshold) or not 0 < threshold <= 1:
        raise InputError("threshold", threshold, "must be above 0 and at most 1")
    if by not in ("output", "attention"):
        raise InputError("by", by, 'must be "output" or "attention"')
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
    # The shares, at all points, of the head that owns a task at the end.
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
    """The time since when shares have stayed at or above the threshold; NaN if they end below."""
    below = np.flatnonzero(shares < threshold)
    if below.size == 0:
        return float(times[0])
    if below[-1] == len(times) - 1:
        return float("nan")
    return crossing_time(times, shares, int(below[-1]), threshold)


@dataclasses.dataclass(frozen=True)
class Superposition:
    """How each head is divided among the tasks.

    **Fields:**

    - `strength`: s_hi = |μ_hi ω̄_hi|, the part of head h in the step of task i, with ω̄_hi the mean
      of the diagonal of its key-query block over the coordinates that the task reads.
    - `shares`: s_hi / Σ_i s_hi.
    - `tasks_per_head`: (Σ_i s_hi)² / Σ_i s_hi², from 1 (one task) to I (all alike).
    - `owners`: the heads' main tasks, −1 for dummies.
    """

    strength: Float[np.ndarray, "H I"]
    shares: Float[np.ndarray, "H I"]
    tasks_per_head: Float[np.ndarray, " H"]
    owners: tuple[int, ...]

    @property
    def superposed(self) -> int:
        """How many heads give their second task more than a quarter of the first."""
        ordered = np.sort(self.strength, axis=1)[:, ::-1]
        if ordered.shape[1] < 2:
            return 0
        active = np.asarray(self.owners) >= 0
        return int(np.sum(active & (ordered[:, 1] > _SECOND_TASK * ordered[:, 0])))


def superposition(
    model: AbstractModel, task: MultiTaskRegression, dummy_share: float = DUMMY_SHARE
) -> Superposition:
    """Measures which tasks each head of a multi-task model works for.

    **Arguments:**

    - `model`: a model of several labels, with circuits `kq()` and `ov()`.
    - `task`: says which coordinates each label depends on, and in which rotation.
    - `dummy_share`: a head is a dummy if the strength on its main task is below this share of that
      of the strongest head.

    **Example:**

    ```pycon
    >>> task = icl.MultiTaskRegression([[0, 1], [2, 3]], context=40)
    >>> model = icl.Attention.balanced(jr.key(0), task.coordinates, heads=2)
    >>> found = icl.analysis.superposition(model, task)
    >>> found.shares.sum(1), found.tasks_per_head.shape
    (array([1., 1.]), (2,))
    ```
    """
    strength = circuits(model, task).strength
    total = strength.sum(1)
    strongest = strength.max(1)
    active = strongest > dummy_share * strongest.max()
    return Superposition(
        strength=strength,
        shares=ratio(strength, total[:, None]),
        tasks_per_head=ratio(total**2, np.sum(strength**2, 1)),
        owners=tuple(int(i) if on else -1 for i, on in zip(strength.argmax(1), active)),
    )
