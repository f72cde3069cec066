"""Worker processes: started, reached through a pipe, and ended with this process."""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from ._start import use_one_thread

# Seconds between two checks that the parent process is still there.
_CHECK_PARENT = 1.0
# Seconds to wait for a killed process to end, and for one whose pipe has closed: a large process
# takes a while to free its memory.
_AFTER_KILL, _AFTER_CLOSE = 5.0, 30.0


class WorkerDied(Exception):
    """The process at the other end of the pipe has ended.

    **Example:**

    ```pycon
    >>> issubclass(icl.runtime.WorkerDied, Exception)
    True
    ```
    """


class WorkerProcess:
    """A process that runs `serve(pipe, *arguments)`, with one thread for NumPy. It ends soon after
    this one, however this one ends. It ignores Ctrl-C: this process decides when it ends.

    **Arguments:**

    - `serve`: a function of a module, which the worker imports; it returns when it is done.
    - `arguments`: plain data.

    An `OSError` or a `RuntimeError` is raised if it cannot be started, because descriptors, memory,
    processes or threads have run out. Then everything is closed again.

    **Example:**

    ```pycon
    >>> import operator
    >>> worker = icl.runtime.WorkerProcess(operator.methodcaller("send", "ready"))
    >>> worker.receive()
    'ready'
    >>> worker.close()
    ```
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any):
        use_one_thread()
        # A fork would inherit XLA's threads in an undefined state.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        given = (serve, theirs, os.getpid(), *arguments)
        self._process = context.Process(target=_run_worker, args=given, daemon=True, name="iclflow")
        try:
            with _ignore_interrupts():
                self._process.start()
        except BaseException:
            self.pipe.close()
            raise
        finally:
            theirs.close()

    def send(self, message: Any) -> None:
        """Sends a message. A process that cannot be reached is killed, so that the next `receive`
        raises `WorkerDied`."""
        try:
            self.pipe.send(message)
        except OSError:
            self.kill()

    def receive(self) -> Any:
        """Waits for a message; raises `WorkerDied` if the process has ended."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError, TypeError):  # TypeError: closed while it was being read
            raise WorkerDied from None

    @property
    def exit_code(self) -> int | None:
        """The exit code of a process that ended; negative for the signal that killed it."""
        self._process.join(_AFTER_CLOSE)
        return self._process.exitcode

    def kill(self) -> None:
        """Ends the process at once."""
        self._process.kill()

    def close(self, kill: bool = True) -> None:
        """Kills the process, or closes its pipe and waits until it ends by itself."""
        if kill:
            self.kill()
            self._process.join(_AFTER_KILL)
        self.pipe.close()
        if not kill:
            self._process.join()


def _run_worker(serve: Callable[..., None], pipe, parent: int, *arguments: Any) -> None:
    """The main function of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    serve(pipe, *arguments)


def _exit_with_parent(parent: int) -> None:
    """Ends this process soon after its parent, even while it computes for long."""
    while os.getppid() == parent:
        time.sleep(_CHECK_PARENT)
    os._exit(1)


@contextlib.contextmanager
def _ignore_interrupts() -> Iterator[None]:
    """Processes that are started in this block ignore Ctrl-C, even while they load modules.

    A terminal sends it to all its processes; the main process decides, and ends the others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
