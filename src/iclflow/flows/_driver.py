"""The loop around runs, of continuous and of discrete time alike.

Runs go on chunk by chunk. Between two chunks the driver moves the progress bar, asks whether to go
on, and writes a checkpoint if one is due.
"""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..trajectory import Result
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
        """All that decides what is computed, a pytree: checkpoints of other runs are refused."""

    @abc.abstractmethod
    def start(self, snapshot: Snapshot | None, monitor: Monitor) -> None:
        """Starts from the beginning, or from where the runs stood."""

    @abc.abstractmethod
    def prepare(self) -> bool:
        """Prepares the next chunk; False when no run is left."""

    @abc.abstractmethod
    def advance(self) -> Any:
        """Computes the next chunk, and changes nothing that a snapshot holds."""

    @abc.abstractmethod
    def take(self, chunk: Any, monitor: Monitor) -> None:
        """Takes in what `advance` computed."""

    @abc.abstractmethod
    def status(self) -> Status:
        """Where the runs stand."""

    @abc.abstractmethod
    def snapshot(self, seconds: float) -> Snapshot:
        """All that `start` needs to go on from here to the same bits."""

    @abc.abstractmethod
    def statistics(self, seconds: float) -> Sequence[dict[str, Any]]:
        """What a trajectory says about its run beside the points."""


def drive(runs: AbstractRuns, monitor: Monitor, checkpoint: Checkpoint | None) -> Ensemble:
    """Runs until all are over, or until the callback or Ctrl-C cancels them."""
    snapshot = None if checkpoint is None else checkpoint.load(owner_of(runs.identity()))
    # False while a chunk is being taken in: an interrupt then leaves nothing to resume from.
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
            # Cancelled only after that: a run that is resumed has not been cancelled.
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
    records = runs.records
    records.finish(np.flatnonzero(records.running), Result.cancelled)
    return Ensemble(records.series(runs.clock, runs.statistics(monitor.seconds)))
