"""A worker process: the only place of the explorer that has JAX."""

import contextlib
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection

from ._desk import Asked, Desk, ServerGone, Told, end_with_server

# Processes that compute leave the right of way to the one that answers, and to the browser.
_NICE = 5
# Programs that were compiled stay in memory: one that has compiled many gives way to a fresh one.
_LARGEST = 2**31
# Of memory: a process that has more than 65 530 of them is ended by the system.
_MOST_PIECES = 45_000


def main(pipe: Connection, server: int) -> None:
    """Does what it is asked, one thing after the other, until the server goes."""
    # Ctrl-C reaches every process of a terminal: the server decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError, AttributeError):
        os.nice(_NICE)
    end_with_server(server)
    os.environ.setdefault("MPLBACKEND", "Agg")
    # Runs this small are slower on a card, and every process would take most of its memory.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    from ..compile_cache import enable_compile_cache
    from ..precision import enable_float64
    from ..quick_compile import compile_quickly

    compile_quickly()
    enable_float64()
    enable_compile_cache()
    warnings.simplefilter("ignore")  # nobody reads the terminal: what counts goes to the page
    from . import _job_run, _job_stored

    jobs: dict[str, Callable] = {**_job_run.JOBS, **_job_stored.JOBS}
    with contextlib.suppress(EOFError, OSError, ServerGone):
        pipe.send(Told(0, "ready", None))
        going = True
        while going:
            asked = pipe.recv()
            # A wish to stop may come when what it is about is done.
            if isinstance(asked, Asked):
                going = _do(Desk(pipe, asked), jobs[asked.name], asked)


def _do(desk: Desk, job: Callable, asked: Asked) -> bool:
    """Does one thing and tells how it went; False if it was the last that this process does."""
    from ..config import InputError, out_of_memory

    try:
        answer = "done", job(desk, **asked.needs)
    except InputError as refusal:
        answer = "refused", str(refusal)
    except ServerGone:
        raise
    except Exception as error:
        if sentence := out_of_memory(error):
            answer = "refused", sentence
        else:
            # The page gets one sentence; whoever runs the server gets to see where it comes from.
            traceback.print_exc(file=sys.stderr)
            answer = "broke", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    last = _size() > _LARGEST or _pieces() > _MOST_PIECES
    desk.tell(*answer, last)
    return not last


def _size() -> int:
    """Bytes that this process holds, or held at most where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        import resource

        # The most that it ever held, in bytes or in kilobytes.
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else 1024 * most


def _pieces() -> int:
    """Pieces of memory that this process has; 0 where the system does not say."""
    try:
        with open("/proc/self/maps", "rb") as file:
            return file.read().count(b"\n")
    except OSError:
        return 0
