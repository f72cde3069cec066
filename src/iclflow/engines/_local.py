"""The engine of one machine: a batch at a time on each of its devices."""

import concurrent.futures
import threading
from collections.abc import Generator, Sequence
from pathlib import Path

import jax

from ..cores import usable_cores
from ..flows import Status
from ..sweep import Batch, Finished, Sweep, Workshop, batches_at_once, compute_batch
from ._base import Engine, Progress


class LocalEngine(Engine):
    """All local devices, each with a thread and a batch of its own; of a processor, every core.

    Members of a batch never wait for another device, and the bits of a batch do not depend on how
    many devices there are.
    """

    def compute(
        self, sweep: Sweep, batches: Sequence[Batch], folder: Path, every: float, progress: Progress
    ) -> Generator[Finished, None, None]:
        if not batches:  # a sweep may have died when all were done, and not yet joined
            return
        workshop, stop = Workshop(), threading.Event()
        places = _places()[: batches_at_once(sweep, batches)]
        free = list(places)
        # Cores share what is compiled: the first batch compiles it, then the others begin.
        compiled = threading.Event()

        def work(batch: Batch) -> Finished:
            device = free.pop()
            try:
                with jax.default_device(device):
                    return compute_batch(sweep, batch, folder, every, workshop, heard(batch))
            finally:
                compiled.set()
                free.append(device)

        def heard(batch: Batch):
            def update(status: Status) -> bool:
                compiled.set()
                progress(batch.number, status.fraction or 0.0)
                return not stop.is_set()

            return update

        with concurrent.futures.ThreadPoolExecutor(len(places), "sweep") as pool:
            waiting = iter(batches)
            running: set[concurrent.futures.Future[Finished]] = set()
            try:
                while True:
                    # No more than one is handed out ahead: results wait in memory.
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
                    # Of what is done nothing is lost, whatever happened to others.
                    for future in sorted(done, key=lambda future: future.exception() is not None):
                        yield future.result()
            finally:
                stop.set()
                for future in running:
                    _finish(future)


def _places() -> list:
    """The devices, each as often as it takes batches at a time."""
    devices = jax.local_devices()
    if devices[0].platform != "cpu":
        return devices
    return devices[:1] * usable_cores()


def _finish(future: concurrent.futures.Future[Finished]) -> None:
    """Waits for a batch that was told to stop; what stopped the others is told already."""
    concurrent.futures.wait([future])
