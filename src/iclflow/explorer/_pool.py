"""Worker processes: started, watched, and started again when one dies or could not start."""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from ..runtime import WorkerDied, WorkerProcess
from ._channel import FINAL, Message, Request, Stop, StopReason
from ._connections import LOGGER
from ._worker import main

# Seconds until a process that could not start is tried again: the first, doubled each time, up to
# the last.
_FIRST_RETRY, _LAST_RETRY = 1.0, 30.0


class Worker:
    """One process, as the server sees it.

    **Fields:**

    - `ready`: whether it has loaded what it needs.
    - `leaving`: whether it has announced its end; another process will replace it.
    - `job`: the number of its job, since `busy_since`; None while it waits for one.
    - `stop_reason`: of the last `Stop` that it got for that job, at `stop_sent_at`.
    - `compiled`: the `compile_key` of runs for which it has compiled programs.
    """

    def __init__(self, process: WorkerProcess):
        self.process = process
        self.ready = self.leaving = False
        self.job: int | None = None
        self.busy_since = 0.0
        self.stop_reason: StopReason | None = None
        self.stop_sent_at: float | None = None
        self.compiled: set[str] = set()

    @property
    def free(self) -> bool:
        return self.ready and self.job is None and not self.leaving


class Pool:
    """A fixed number of workers.

    **Arguments:**

    - `on_message`: called in the event loop with a worker and its message.
    - `on_death`: called in the event loop with the number of the job that a process had when it
      died (None if it had none) and its exit code.

    **Fields:**

    - `failure`: why the last process could not start, until one does.
    """

    def __init__(
        self,
        count: int,
        on_message: Callable[[Worker, Message], None],
        on_death: Callable[[int | None, int | None], None],
    ):
        self._count, self._on_message, self._on_death = count, on_message, on_death
        self._numbers = itertools.count(1)
        self.workers: list[Worker] = []
        self.failure: str | None = None
        self._pause, self._retry = _FIRST_RETRY, None
        self._closing = False

    def start(self) -> None:
        """Starts all processes; to be called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._fill()

    def _fill(self) -> None:
        """Starts the processes that are missing; a failure is tried again later."""
        self._retry = None
        while len(self.workers) < self._count and not self._closing:
            try:
                self._start_one()
            except (OSError, RuntimeError) as error:  # no descriptor, memory, process or thread
                self._retry_later(getattr(error, "strerror", None) or str(error))
                return

    def _retry_later(self, failure: str) -> None:
        self.failure = failure
        if self._retry is None:
            LOGGER.error("iclflow: a worker process could not start (%s); trying again.", failure)
            self._retry = self._loop.call_later(self._pause, self._fill)
            self._pause = min(2 * self._pause, _LAST_RETRY)

    def _start_one(self) -> None:
        worker = Worker(WorkerProcess(main))
        try:
            threading.Thread(target=self._listen, args=(worker,), daemon=True).start()
        except BaseException:
            worker.process.close()
            raise
        self.workers.append(worker)

    def _listen(self, worker: Worker) -> None:
        """Passes the messages of a worker to the event loop until it dies; runs in a thread."""
        with contextlib.suppress(WorkerDied):
            while True:
                self._post(self._receive, worker, worker.process.receive())
        self._post(self._died, worker, worker.process.exit_code)

    def _post(self, call: Callable, *arguments: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(call, *arguments)

    def _receive(self, worker: Worker, message: Message) -> None:
        if message.kind == "ready":
            worker.ready = True
            self.failure, self._pause = None, _FIRST_RETRY
        elif message.number != worker.job:
            return
        if message.kind in FINAL:
            worker.job = worker.stop_reason = worker.stop_sent_at = None
            worker.leaving = message.last
        self._on_message(worker, message)

    def _died(self, worker: Worker, code: int | None) -> None:
        if self._closing or worker not in self.workers:
            return
        self.workers.remove(worker)
        worker.process.close()
        # A process that dies before it is ready would die again at once.
        if worker.ready:
            self._fill()
        else:
            self._retry_later(f"it ended with exit code {code}")
        self._on_death(worker.job, code)

    def give(self, worker: Worker, name: str, arguments: dict[str, Any]) -> int:
        """Gives a free worker a job, and returns the number of the job."""
        number = next(self._numbers)
        worker.job, worker.busy_since = number, time.monotonic()
        worker.stop_reason = worker.stop_sent_at = None
        worker.process.send(Request(number, name, arguments))
        return number

    def stop(self, number: int, reason: StopReason) -> None:
        """Asks the worker that has a job to stop it."""
        for worker in self.workers:
            # Sent once: a worker that compiles does not read, and its pipe must not fill up.
            if worker.job == number and worker.stop_reason not in (reason, "cancel"):
                worker.stop_reason, worker.stop_sent_at = reason, time.monotonic()
                worker.process.send(Stop(number, reason))

    def kill(self, number: int) -> None:
        """Ends the process that has a job; another takes its place."""
        for worker in self.workers:
            if worker.job == number:
                worker.process.kill()

    def close(self) -> None:
        """Ends all processes."""
        self._closing = True
        if self._retry is not None:
            self._loop.call_soon_threadsafe(self._retry.cancel)
        for worker in self.workers:
            worker.process.kill()  # all at once, then each is waited for
        for worker in self.workers:
            worker.process.close()
