"""Engines take batches and yield them finished, in any order; the local one uses this machine."""

import abc
import concurrent.futures
import threading
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ..flows import Status
from ..runtime import usable_cores
from ._batches import Batch, batches_at_once
from ._compute import FinishedBatch, compute_batch
from ._file import Sweep
from ._members import ExperimentCache

# Called with the number of a batch and the share of it that is done, from any thread.
BatchProgress = Callable[[int, float], None]
"""Called with the number of a batch and its finished share.

**Example:**

```pycon
>>> advance: icl.sweeps.BatchProgress = lambda number, share: print(number, share)
>>> advance(0, 0.5)
0 0.5
```
"""


class Job(NamedTuple):
    """Batches for an engine to compute.

    **Fields:**

    - `folder`: for checkpoints of batches under way, written every `checkpoint_every` seconds.
    - `progress`: called as batches advance.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> spec = {"base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "heads": 2}, "flow": {"end": 10.0}}}
    >>> sweep = icl.sweeps.parse_sweep(spec)
    >>> job = icl.sweeps.Job(sweep, icl.sweeps.batches_of(sweep), pathlib.Path(tempfile.mkdtemp()))
    >>> [finished.batch.number for finished in icl.sweeps.LocalEngine().compute(job)]
    [0]
    ```
    """

    sweep: Sweep
    batches: Sequence[Batch]
    folder: Path
    checkpoint_every: float = 10.0
    progress: BatchProgress = lambda number, share: None


class Engine(abc.ABC):
    """Computes batches. It writes nothing but checkpoints: the caller keeps what is finished.

    **Example:**

    ```pycon
    >>> engines = icl.sweeps.LocalEngine, icl.sweeps.RayEngine
    >>> [issubclass(engine, icl.sweeps.Engine) for engine in engines]
    [True, True]
    ```
    """

    @abc.abstractmethod
    def compute(self, job: Job) -> Generator[FinishedBatch, None, None]:
        """Yields every batch once, as they finish.

        The same batch gives the same rows, whichever engine computes it. When the generator is
        closed, batches under way are stopped after they write a checkpoint. An engine may kill
        those that take long to do so: they resume from the checkpoint before.
        """

    def facts(self) -> dict[str, Any]:
        """Entries about the engine for the manifest."""
        return {}


class LocalEngine(Engine):
    """Uses all local devices: one thread and one batch at a time per GPU, or per core of a CPU.

    A batch never uses two devices, so its bits do not depend on how many there are.
    """

    def compute(self, job: Job) -> Generator[FinishedBatch, None, None]:
        if not job.batches:  # a process died when all were done, before they were joined
            return
        cache, stop = ExperimentCache(), threading.Event()
        places = _places()[: batches_at_once(job.sweep, job.batches)]
        free = list(places)
        # Cores share compiled programs: the first batch compiles, then the others start.
        compiled = threading.Event()

        def work(batch: Batch) -> FinishedBatch:
            device = free.pop()
            try:
                with jax.default_device(device):
                    options = job.folder, job.checkpoint_every, cache
                    return compute_batch(job.sweep, batch, *options, watch(batch))
            finally:
                compiled.set()
                free.append(device)

        def watch(batch: Batch) -> Callable[[Status], bool]:
            def update(status: Status) -> bool:
                compiled.set()
                job.progress(batch.number, status.fraction or 0.0)
                return not stop.is_set()

            return update

        with concurrent.futures.ThreadPoolExecutor(len(places), "sweep") as pool:
            waiting = iter(job.batches)
            running: set[concurrent.futures.Future[FinishedBatch]] = set()
            try:
                while True:
                    # One batch per place: finished results wait in memory.
                    for batch in waiting:
                        running.add(pool.submit(work, batch))
                        compiled.wait()
                        if len(running) == len(places):
                            break
                    if not running:
                        return
                    done, running = concurrent.futures.wait(
                        running, return_when=concurrent.futures.FIRST_COMPLETED
                    )
                    # Finished batches first, so that they are kept if another one failed.
                    for future in sorted(done, key=lambda future: future.exception() is not None):
                        yield future.result()
            finally:
                stop.set()
                # What stopped the others is raised already.
                concurrent.futures.wait(running)


def _places() -> list:
    """The devices, repeated for each batch that they compute at a time."""
    devices = jax.local_devices()
    if devices[0].platform != "cpu":
        return devices
    return devices[:1] * usable_cores()
