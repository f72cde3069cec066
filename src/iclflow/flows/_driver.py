"""The loop around runs, the same for continuous and for discrete time.

Runs advance in chunks. Between two chunks the driver moves the progress bar, calls the callback,
and writes a checkpoint if one is due.
"""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

from ._checkpoint import Checkpoint, Snapshot, owner_of
from ._ensemble import Ensemble
from ._progress import Monitor, Status
from ._records import Records


class AbstractRuns(abc.ABC):
    """Some runs side by side, as the driver sees them."""

    clock: ClassVar[str]
    records: Records

    @abc.abstractmethod
    def identity(self) -> Any:
        """Everything that decides the results, a pytree: checkpoints of other runs are refused."""

    @abc.abstractmethod
    def start(self, snapshot: Snapshot | None, monitor: Monitor) -> None:
        """Starts from the beginning, or resumes from a snapshot."""

    @abc.abstractmethod
    def prepare(self) -> bool:
        """Prepares the next chunk; False when no run is left."""

    @abc.abstractmethod
    def advance(self) -> Any:
        """Computes the next chunk, and changes nothing that a snapshot holds."""

    @abc.abstractmethod
    def take(self, chunk: Any, monitor: Monitor) -> None:
        """Records a chunk that `advance` computed."""

    @abc.abstractmethod
    def status(self) -> Status:
        """The present state of the runs, for the bar and the callback."""

    @abc.abstractmethod
    def snapshot(self, seconds: float) -> Snapshot:
        """Everything that `start` needs to resume from here with the same bits."""

    @abc.abstractmethod
    def statistics(self, seconds: float) -> Sequence[dict[str, Any]]:
        """The `Trajectory.statistics` of each run."""


def drive(runs: AbstractRuns, monitor: Monitor, checkpoint: Checkpoint | None) -> Ensemble:
    """Runs until all have ended, or until the callback or Ctrl-C cancels them."""
    snapshot = None if checkpoint is None else checkpoint.load(owner_of(runs.identity()))
    # False while a chunk is being recorded: after an interrupt there, nothing can be resumed.
    consistent = False
    try:
        if snapshot is not None and checkpoint is not None:
            with checkpoint.restoring():
                monitor.add(snapshot.about["seconds"])
        runs.start(snapshot, monitor)
        while runs.prepare():
            consistent = True
            chunk = runs.advance()
            consistent = False
            runs.take(chunk, monitor)
            consistent = True
            going = monitor.update(runs.status())
            if checkpoint is not None and (checkpoint.due or not going):
                checkpoint.save(runs.snapshot(monitor.seconds))
            if not going:
                break
            consistent = False
    except KeyboardInterrupt:
        if not runs.records.begun:
            raise
        if checkpoint is not None and consistent:
            checkpoint.save(runs.snapshot(monitor.seconds))
    finally:
        monitor.close()
    return runs.records.ensemble(runs.clock, runs.statistics(monitor.seconds))
