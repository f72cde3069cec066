"""A worker process: the only process of the explorer that loads JAX."""

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection

from ..runtime import start
from ._channel import Message, Request, ServerGone, WorkerChannel

# Workers have a lower priority than the server that answers pages, and than the browser. A user
# who starts the explorer with a lower one already has it kept.
_NICE = 5
# Compiled programs stay in memory. A worker that holds more bytes than this, or more memory
# mappings, ends, and a fresh one takes its place: Linux kills a process with 65 530 mappings.
_MOST_BYTES = 2**31
_MOST_MAPPINGS = 45_000


def main(pipe: Connection) -> None:
    """Runs one job after the other, until the server is gone."""
    with contextlib.suppress(OSError, AttributeError):
        lower = max(_NICE, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, 0, lower)
    # Runs this small are slower on a GPU, and every process would take most of its memory.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    start(brief=True)
    warnings.simplefilter("ignore")  # results go to the page, and its reader sees no terminal
    from . import _job_run, _job_stored, _job_watch

    jobs: dict[str, Callable] = {**_job_run.JOBS, **_job_stored.JOBS, **_job_watch.JOBS}
    with contextlib.suppress(EOFError, OSError, ServerGone):
        pipe.send(Message(0, "ready", None))
        going = True
        while going:
            request = pipe.recv()
            # A `Stop` may arrive when its job is done: then it is dropped.
            if isinstance(request, Request):
                going = _run_job(WorkerChannel(pipe, request.number), jobs[request.name], request)


def _run_job(channel: WorkerChannel, job: Callable, request: Request) -> bool:
    """Runs one job and sends its result; False if it was the last job of this process."""
    from ..config import InputError, out_of_memory
    from ..files import FileError

    try:
        answer = "done", job(channel, **request.arguments)
    except (InputError, FileError) as refusal:
        answer = "refused", str(refusal)
    except ServerGone:
        raise
    except Exception as error:
        if sentence := out_of_memory(error):
            answer = "refused", sentence
        else:
            # The page gets one sentence, the terminal the traceback.
            traceback.print_exc(file=sys.stderr)
            answer = "broke", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    last = _measure_memory() > _MOST_BYTES or _count_mappings() > _MOST_MAPPINGS
    channel.send(*answer, last)
    return not last


def _measure_memory() -> int:
    """Bytes that this process holds; its peak where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        import resource

        # In bytes on macOS, in kilobytes elsewhere.
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most


def _count_mappings() -> int:
    """Memory mappings of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/maps", "rb") as file:
            return file.read().count(b"\n")
    except OSError:
        return 0
