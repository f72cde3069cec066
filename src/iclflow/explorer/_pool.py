"""Worker processes: started, watched, and started again when one dies or could not start."""

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from ._connections import LOGGER
from ._desk import Asked, Stop, Told
from ._worker import main

# Seconds until a process that could not start is tried again: doubled each time, up to the second.
_SOON, _LATE = 1.0, 30.0


class Worker:
    """One process, as the server sees it.

    **Fields:**

    - `ready`: whether it has loaded what it needs.
    - `leaving`: whether it has said that it ends, so that another can take its place.
    - `job`: the number of what it does; None while it waits for work.
    - `since`: when it was given that.
    - `shapes`: of runs for which it has compiled programs.
    """

    def __init__(self, process, pipe):
        self.process, self.pipe = process, pipe
        self.ready = self.leaving = False
        self.job: int | None = None
        self.since = 0.0
        # What it was told last, and when first, of leaving what it does.
        self.wish: str | None = None
        self.told_to_stop: float | None = None
        self.shapes: set[str] = set()

    @property
    def free(self) -> bool:
        return self.ready and self.job is None and not self.leaving


class Pool:
    """A fixed number of workers.

    **Arguments:**

    - `heard`: called in the event loop with a worker and what it told.
    - `lost`: called in the event loop with the number of the job that a process had when it died
      (None if it had none) and its exit code.

    **Fields:**

    - `failure`: why the last process could not start, until one does.
    """

    def __init__(
        self,
        count: int,
        heard: Callable[[Worker, Told], None],
        lost: Callable[[int | None, int | None], None],
    ):
        self._count, self._heard, self._lost = count, heard, lost
        self._numbers = itertools.count(1)
        self.workers: list[Worker] = []
        self.failure: str | None = None
        self._pause, self._later = _SOON, None
        self._closing = False

    def start(self) -> None:
        """Starts all processes; to be called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._fill()

    def _fill(self) -> None:
        """Starts the processes that are missing; what fails now is tried again later."""
        self._later = None
        while len(self.workers) < self._count and not self._closing:
            try:
                self._start_one()
            except (OSError, RuntimeError) as error:  # no descriptor, memory, process or thread
                self._try_later(getattr(error, "strerror", None) or str(error))
                return

    def _try_later(self, failure: str) -> None:
        self.failure = failure
        if self._later is None:
            LOGGER.error(
                "iclflow: a process that computes could not start (%s); trying again.", failure
            )
            self._later = self._loop.call_later(self._pause, self._fill)
            self._pause = min(2 * self._pause, _LATE)

    def _start_one(self) -> None:
        # Their matrices are small, and threads of OpenBLAS that wait keep others from computing.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        # Spawned: a process that has threads or JAX must not be forked.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        given = theirs, os.getpid()
        process = context.Process(target=main, args=given, daemon=True, name="explorer")
        worker = Worker(process, ours)
        listener = threading.Thread(target=self._listen, args=(worker,), daemon=True)
        try:
            process.start()
            listener.start()
        except BaseException:
            if process.pid is not None:
                process.kill()
            ours.close()
            raise
        finally:
            theirs.close()
        self.workers.append(worker)

    def _listen(self, worker: Worker) -> None:
        """Hands on what a worker tells, until it dies; in a thread of its own."""
        while True:
            try:
                told = worker.pipe.recv()
            except (EOFError, OSError, TypeError):  # the last: closed while it was being read
                break
            self._post(self._told, worker, told)
        worker.process.join(5)
        self._post(self._died, worker)

    def _post(self, call: Callable, *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *arguments)

    def _told(self, worker: Worker, told: Told) -> None:
        if told.kind == "ready":
            worker.ready = True
            self.failure, self._pause = None, _SOON
        elif told.number != worker.job:
            return
        if told.kind in ("done", "refused", "broke"):
            worker.job = worker.wish = worker.told_to_stop = None
            worker.leaving = told.last
        self._heard(worker, told)

    def _died(self, worker: Worker) -> None:
        if self._closing or worker not in self.workers:
            return
        self.workers.remove(worker)
        worker.pipe.close()
        code = worker.process.exitcode
        # One that dies before it can do anything would die again at once.
        if worker.ready:
            self._fill()
        else:
            self._try_later(f"it ended with exit code {code}")
        self._lost(worker.job, code)

    def give(self, worker: Worker, name: str, needs: dict[str, Any]) -> int:
        """Gives a free worker something to do, and returns its number."""
        number = next(self._numbers)
        worker.job, worker.since = number, time.monotonic()
        worker.wish = worker.told_to_stop = None
        self._send(worker, Asked(number, name, needs))
        return number

    def stop(self, number: int, why: str) -> None:
        """Asks the worker that does something to leave it."""
        for worker in self.workers:
            # Said once: a worker that compiles does not listen, and its pipe must not fill up.
            if worker.job == number and worker.wish not in (why, "cancel"):
                worker.wish, worker.told_to_stop = why, time.monotonic()
                self._send(worker, Stop(number, why))

    def kill(self, number: int) -> None:
        """Ends the process that does something; another takes its place."""
        for worker in self.workers:
            if worker.job == number:
                worker.process.kill()

    def _send(self, worker: Worker, message: Any) -> None:
        try:
            worker.pipe.send(message)
        except (BrokenPipeError, OSError):
            worker.process.kill()  # its death is heard of, and told

    def close(self) -> None:
        """Ends all processes."""
        self._closing = True
        if self._later is not None:
            self._loop.call_soon_threadsafe(self._later.cancel)
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.join(5)
            worker.pipe.close()
