"""What every engine is: it takes batches and yields them finished, in any order."""

import abc
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from ..sweep import Batch, Finished, Sweep

# Called with the number of a batch and the share of it that is done, from any thread.
Progress = Callable[[int, float], None]


class Engine(abc.ABC):
    """Computes batches. What is finished is kept by who asked for it: an engine writes nothing but
    checkpoints of batches that are under way."""

    @abc.abstractmethod
    def compute(
        self, sweep: Sweep, batches: Sequence[Batch], folder: Path, every: float, progress: Progress
    ) -> Generator[Finished, None, None]:
        """Yields every batch once, as they finish.

        A batch that is the same gives the same rows, whoever computes it. When the generator is
        closed, batches under way are told to stop and to write down where they are. An engine may
        end those that take long to do so: they go on from the checkpoint before.

        **Arguments:**

        - `folder`: for checkpoints, written every `every` seconds.
        """
