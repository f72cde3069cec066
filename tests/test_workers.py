"""Processes that compute: they answer, say when they died, and end with whoever started them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from iclflow.runtime import WorkerDied, WorkerProcess

# A program that starts a worker, tells its number, and waits.
PARENT = """
import os, time
from iclflow.runtime import WorkerProcess
from test_workers import answer
worker = WorkerProcess(answer, 3)
worker.send(4)
print(os.getpid(), *worker.receive(), flush=True)
time.sleep(60)
"""


def answer(pipe, number):
    """Adds to numbers, and tells how many threads NumPy may use."""
    while True:
        given = pipe.recv()
        if given is None:
            return
        pipe.send((os.getpid(), given + number, os.environ["OPENBLAS_NUM_THREADS"]))


def test_a_worker_answers_until_nothing_is_left_to_do():
    worker = WorkerProcess(answer, 3)
    worker.send(4)
    pid, total, threads = worker.receive()
    assert total == 7 and threads == "1" and pid != os.getpid()
    os.kill(pid, signal.SIGINT)  # Ctrl-C of a terminal reaches it too, and means nothing to it
    worker.send(5)
    assert worker.receive()[1] == 8
    worker.send(None)
    with pytest.raises(WorkerDied):
        worker.receive()
    assert worker.exit_code == 0
    worker.close(kill=False)


def test_who_speaks_to_a_worker_that_died_hears_of_it():
    worker = WorkerProcess(answer, 3)
    worker.kill()
    assert worker.exit_code == -9
    worker.send(4)
    with pytest.raises(WorkerDied):
        worker.receive()
    worker.close()


@pytest.mark.slow
def test_a_worker_ends_soon_after_a_parent_that_was_killed():
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline().split()[1])
        parent.kill()
    with pytest.raises(ProcessLookupError):
        for _ in range(300):
            os.kill(worker, 0)
            time.sleep(0.1)
