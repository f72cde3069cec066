"""A run on several tasks: its phases, and which head serves which task."""

import contextlib
import dataclasses
from typing import Any

import numpy as np

from ..analysis import allocation, learning_phases
from ..files import to_plain
from ..tasks import AbstractTask, MultiTaskRegression
from ..trajectory import Trajectory

# Standard errors that a drop of the loss must exceed to have phases.
_CLEAR = 6.0
# The smallest share in a gradient step with which a head is named.
_TENTH = 0.1


@dataclasses.dataclass(frozen=True)
class Division:
    """The phases of a run, and the division of its tasks among the heads at its end.

    **Fields:**

    - `emergence`, `convergence`: when 5 % and 95 % of the drop of the loss are done; None if the
      loss never drops, or not so far.
    - `settled`: whether the loss has come to rest, so that the drop is known.
    - `owners`: the head of each task (from 0), −1 if none works for it.
    - `shares`: for each task, the share of every head in the gradient step on it.
    """

    emergence: float | None
    convergence: float | None
    settled: bool
    owners: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...]
    one_task_a_head: bool

    @property
    def phases(self) -> str:
        """The phases in words."""
        if self.emergence is None:
            return "none: the loss does not drop by more than its noise"
        until = "" if self.convergence is None else f", emergence until {self.convergence:.4g}"
        rest = "" if self.settled else "; the loss is not at rest, so these may move"
        return f"warm-up until {self.emergence:.4g}{until}{rest}"

    @property
    def heads(self) -> str:
        """The heads of each task with their shares in words, counted from 1 as in `inspect`."""
        words = [f"task {i + 1}: {_name_heads(shares)}" for i, shares in enumerate(self.shares)]
        return f"{'; '.join(words)}{'' if self.one_task_a_head else '; not one task a head'}"

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return dataclasses.asdict(self)


def find_division(run: Trajectory, task: AbstractTask) -> Division | None:
    """How a run divided its tasks among heads; None unless it had several on disjoint
    coordinates."""
    if not isinstance(task, MultiTaskRegression) or len(run) < 3:
        return None
    if not task.disjoint or not np.all(np.isfinite(run.losses)):
        return None
    found = allocation(run.final, task)
    emergence, convergence, settled = None, None, False
    with contextlib.suppress(ValueError):  # a loss that never drops has no phases
        phases = learning_phases(run)
        if phases.first - phases.last > _CLEAR * max(_errors(run)):
            emergence = to_plain(phases.emergence)
            convergence = to_plain(phases.convergence)
            settled = phases.settled
    shares = tuple(tuple(map(float, column)) for column in found.output.T)
    return Division(emergence, convergence, settled, found.owners, shares, found.one_task_a_head)


def _errors(run: Trajectory) -> list[float]:
    """The standard errors of the first and the last loss; 0 if they are exact."""
    return [error for error in run.statistics.get("standard_errors", ()) if error] or [0.0]


def _name_heads(shares: tuple[float, ...]) -> str:
    """The heads with a tenth of the step or more, largest first."""
    order = sorted(range(len(shares)), key=lambda head: -shares[head])
    names = [f"{head + 1} ({100 * shares[head]:.3g} %)" for head in order if shares[head] >= _TENTH]
    if not names:
        return "no head"
    return f"head{'s' if len(names) > 1 else ''} {', '.join(names)}"
