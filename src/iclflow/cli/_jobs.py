"""Claims and figures in several processes at once.

Claims of one topic share the runs that they test, and figures show them: a topic is computed by
one process, which then takes a topic beside it, since those share some runs too.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..claims import Claim, Lab, Outcome, run_claim, select_claims
from ..config import out_of_memory
from ..cores import usable_cores
from ..report import ReportFigure
from ._gallery import draw, not_drawn

# Further processes would compute more of what topics share than they save.
_MOST = 4
# Seconds between two looks at whether the process that wants the results is still there.
_LOOK_AGAIN = 1.0


class Topic(NamedTuple):
    """What one process computes: ids of claims, names of figures."""

    claims: tuple[str, ...]
    figures: tuple[str, ...]


class Settings(NamedTuple):
    """How everything is computed, and where figures go."""

    tier: str
    falsify: bool
    figures: Path

    def lab(self) -> Lab:
        return Lab(self.tier, self.falsify)


Result = Outcome | ReportFigure


def topics_of(claims: Sequence[Claim], figures: Sequence[str]) -> list[Topic]:
    """Claims by the file that they are written in; a figure goes with the first that names it."""
    rooms: dict[str, list[Claim]] = {}
    for claim in claims:
        rooms.setdefault(claim.test.__module__, []).append(claim)
    left, topics = list(figures), []
    for room in rooms.values():
        named = {name for claim in room for name in claim.figures}
        topics.append(
            Topic(tuple(claim.id for claim in room), tuple(name for name in left if name in named))
        )
        left = [name for name in left if name not in named]
    return topics


def sensible_jobs() -> int:
    """As many processes as there are cores, within reason; one where an accelerator is shared."""
    import jax

    if jax.default_backend() != "cpu":
        return 1
    return min(_MOST, usable_cores())


def compute(
    topics: Sequence[Topic], settings: Settings, jobs: int
) -> Generator[Result, None, None]:
    """Outcomes and figures as they come, each once."""
    if min(jobs, len(topics)) == 1:
        lab = settings.lab()
        for topic in topics:
            yield from _work(topic, lab, settings)
    else:
        yield from _together(topics, settings, min(jobs, len(topics)))


def next_topic(left: Iterable[int], last: int | None) -> int:
    """The topic after the last one, or else the middle of the longest stretch that is left."""
    left = sorted(left)
    if last is not None and last + 1 in left:
        return last + 1
    if last is None and left[0] == 0:
        return 0
    stretches = [[left[0]]]
    for topic in left[1:]:
        if topic == stretches[-1][-1] + 1:
            stretches[-1].append(topic)
        else:
            stretches.append([topic])
    longest = max(stretches, key=len)
    return longest[len(longest) // 2]


def _work(topic: Topic, lab: Lab, settings: Settings) -> Iterator[Result]:
    for claim in select_claims(topic.claims) if topic.claims else ():
        yield _run(claim, lab)
    for name in topic.figures:
        yield draw(name, lab, settings.figures)


def _run(claim: Claim, lab: Lab) -> Outcome:
    """The outcome of one claim. An error in it is a verdict too, and stops nobody else."""
    begin = time.perf_counter()
    try:
        return run_claim(claim, lab)
    except Exception as error:
        told = out_of_memory(error) or f"{type(error).__name__}: {' '.join(str(error).split())}"
        reason = f"stopped with {told}"
        return _stopped(claim, reason, lab.falsify, time.perf_counter() - begin, lab.config)


def _stopped(claim: Claim, reason: str, falsify: bool, seconds=0.0, config=None) -> Outcome:
    # Against wrong predictions failing is what is hoped for, and this is not that.
    verdict = "inconclusive" if falsify else "fails"
    return Outcome(claim, (), verdict, reason, seconds, config or {})


class _Worker:
    """A process of ours, and what it has not told us yet of its topic."""

    def __init__(self, settings: Settings):
        # A fork would inherit the threads of XLA in whatever state they are.
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, settings), daemon=True)
        with _deaf():
            self.process.start()
        theirs.close()
        self.last: int | None = None
        self.claims: list[str] = []
        self.figures: list[str] = []

    def begin(self, number: int, topic: Topic) -> None:
        self.last = number
        self.claims, self.figures = list(topic.claims), list(topic.figures)
        # Where it has died, reading from it says so.
        with contextlib.suppress(OSError):
            self.pipe.send(topic)

    def told(self, result: Result) -> None:
        if isinstance(result, Outcome):
            self.claims.remove(result.claim.id)
        else:
            self.figures.remove(result.name)

    def untold(self, falsify: bool) -> Iterator[Result]:
        """What a process that died leaves open."""
        self.process.join()
        code = self.process.exitcode
        reason = f"its process ended with {code}" + (" (out of memory?)" if code == -9 else "")
        for claim in select_claims(self.claims) if self.claims else ():
            yield _stopped(claim, f"stopped: {reason}", falsify)
        for name in self.figures:
            yield not_drawn(name, reason)


def _together(topics: Sequence[Topic], settings: Settings, jobs: int) -> Iterator[Result]:
    left, workers = set(range(len(topics))), []

    def employ(worker: _Worker) -> None:
        number = next_topic(left, worker.last)
        left.remove(number)
        worker.begin(number, topics[number])

    try:
        for _ in range(jobs):
            workers.append(_Worker(settings))
            employ(workers[-1])
        while workers:
            ready = multiprocessing.connection.wait([worker.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.pipe in ready]:
                try:
                    result = worker.pipe.recv()
                except (EOFError, OSError):  # the second where it never read what it was sent
                    yield from worker.untold(settings.falsify)
                    workers.remove(worker)
                    if left:
                        workers.append(_Worker(settings))
                        employ(workers[-1])
                    continue
                worker.told(result)
                yield result
                if not worker.claims and not worker.figures:
                    if left:
                        employ(worker)
                    else:
                        worker.pipe.close()
                        workers.remove(worker)
                        worker.process.join()
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started here never hear Ctrl-C, not even while they load modules.

    It reaches every process of a terminal; the first one decides, and ends the others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may say what a signal does.
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: multiprocessing.connection.Connection, settings: Settings) -> None:
    """The life of a process: topics in, results out, until nobody listens."""
    from ._activity import alone
    from ._start import start

    start(briefly=True)
    lab = settings.lab()
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    # The other end is closed when nothing is left to do.
    with alone(), contextlib.suppress(EOFError):
        while True:
            for result in _work(pipe.recv(), lab, settings):
                pipe.send(result)


def _end_with(parent: int) -> None:
    """Ends this process soon after its parent, however that ended."""
    while os.getppid() == parent:
        time.sleep(_LOOK_AGAIN)
    os._exit(1)
