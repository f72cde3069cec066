"""How a run on several tasks went: its phases, and which head has which task."""

import contextlib
import dataclasses
import math
from typing import Any

import numpy as np

from ..analysis import allocation, learning_phases
from ..tasks import AbstractTask, MultiTaskRegression
from ..trajectory import Trajectory


@dataclasses.dataclass(frozen=True)
class Division:
    """The phases of a run, and the division of its tasks among the heads at its end.

    **Fields:**

    - `emergence`, `convergence`: when 5 % and 95 % of the drop of the loss are done; None where the
      loss never drops, or not so far.
    - `settled`: whether the loss has come to rest, so that the drop is known.
    - `owners`: the head of each task (from 0), −1 if none works for it.
    - `shares`: of each owner in the gradient step on its task.
    """

    emergence: float | None
    convergence: float | None
    settled: bool
    owners: tuple[int, ...]
    shares: tuple[float, ...]
    one_task_a_head: bool

    @property
    def phases(self) -> str:
        """The phases in words."""
        if self.emergence is None:
            return "the loss never drops"
        until = "" if self.convergence is None else f", emergence until {self.convergence:.4g}"
        rest = "" if self.settled else "; the loss is not at rest, so these may move"
        return f"warm-up until {self.emergence:.4g}{until}{rest}"

    @property
    def heads(self) -> str:
        """The owners in words, counted from 1 as in `iclflow inspect`."""
        told = [
            f"{i + 1} none" if owner < 0 else f"{i + 1} head {owner + 1} ({100 * share:.3g} %)"
            for i, (owner, share) in enumerate(zip(self.owners, self.shares))
        ]
        return f"{', '.join(told)}{'' if self.one_task_a_head else '; not one task a head'}"

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return dataclasses.asdict(self)


def divided(run: Trajectory, task: AbstractTask) -> Division | None:
    """How a run divided the tasks, if it had several with coordinates of their own."""
    if not isinstance(task, MultiTaskRegression) or len(run) < 3:
        return None
    used = [place for read in task.coordinates for place in read]
    if len(set(used)) < len(used) or not np.all(np.isfinite(run.losses)):
        return None
    found = allocation(run.final, task)
    emergence, convergence, settled = None, None, False
    with contextlib.suppress(ValueError):  # a loss that never drops has no phases
        phases = learning_phases(run)
        emergence, convergence = _reached(phases.emergence), _reached(phases.convergence)
        settled = phases.settled
    shares = tuple(float(share) for share in found.own_share)
    return Division(emergence, convergence, settled, found.owners, shares, found.one_task_a_head)


def _reached(time: float) -> float | None:
    return None if math.isnan(time) else float(time)
