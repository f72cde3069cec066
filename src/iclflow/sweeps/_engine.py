"""What every engine does: it takes batches and yields them finished, in any order."""

import abc
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ._batches import Batch
from ._compute import FinishedBatch
from ._file import Sweep

# Called with the number of a batch and the share of it that is done, from any thread.
BatchProgress = Callable[[int, float], None]


class Job(NamedTuple):
    """Batches for an engine to compute.

    **Fields:**

    - `folder`: for checkpoints of batches under way, written every `checkpoint_every` seconds.
    - `progress`: called as batches advance.
    """

    sweep: Sweep
    batches: Sequence[Batch]
    folder: Path
    checkpoint_every: float = 10.0
    progress: BatchProgress = lambda number, share: None


class Engine(abc.ABC):
    """Computes batches. It writes nothing but checkpoints: the caller keeps what is finished."""

    @abc.abstractmethod
    def compute(self, job: Job) -> Generator[FinishedBatch, None, None]:
        """Yields every batch once, as they finish.

        The same batch gives the same rows, whichever engine computes it. When the generator is
        closed, batches under way are stopped after they write a checkpoint. An engine may kill
        those that take long to do so: they resume from the checkpoint before.
        """

    def facts(self) -> dict[str, Any]:
        """What the manifest says of the engine, beside the device of this process."""
        return {}
