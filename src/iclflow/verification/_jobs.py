"""Claims and figures in several worker processes.

The claims and figures of one topic share their runs, so one worker computes a whole topic. It then
takes a neighbouring topic, because neighbours share some runs too.
"""

import contextlib
import multiprocessing.connection
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..papers import Claim, Lab, Outcome, run_claim, select_claims
from ..report import ReportFigure
from ..runtime import WorkerDied, WorkerProcess, hide_progress, start, usable_cores
from ._gallery import describe_error, draw, not_drawn

# More workers would repeat more of the runs that topics share than they save.
_MOST = 4


class Topic(NamedTuple):
    """What one worker computes at a time: ids of claims, names of figures."""

    claims: tuple[str, ...]
    figures: tuple[str, ...]


class Settings(NamedTuple):
    """How claims are computed, and the folder for figures."""

    tier: str
    falsify: bool
    figures: Path

    def lab(self) -> Lab:
        return Lab(self.tier, self.falsify)


Result = Outcome | ReportFigure


def topics_of(claims: Sequence[Claim], figures: Sequence[str]) -> list[Topic]:
    """Claims grouped by the file that defines them; a figure belongs to the first that names it."""
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


def default_jobs() -> int:
    """One worker per core, up to a limit; a single one on an accelerator."""
    import jax

    if jax.default_backend() != "cpu":
        return 1
    return min(_MOST, usable_cores())


def compute(
    topics: Sequence[Topic], settings: Settings, jobs: int
) -> Generator[Result, None, None]:
    """Yields every outcome and every figure once, as they come."""
    if min(jobs, len(topics)) == 1:
        lab = settings.lab()
        for topic in topics:
            yield from _compute_topic(topic, lab, settings)
    else:
        yield from _compute_in_parallel(topics, settings, min(jobs, len(topics)))


def choose_topic(left: Iterable[int], last: int | None) -> int:
    """The topic after the last one, or else the middle of the longest sequence that is left."""
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


def _compute_topic(topic: Topic, lab: Lab, settings: Settings) -> Iterator[Result]:
    for claim in select_claims(topic.claims) if topic.claims else ():
        yield _run(claim, lab)
    for name in topic.figures:
        yield draw(name, lab, settings.figures)


def _run(claim: Claim, lab: Lab) -> Outcome:
    """The outcome of one claim. An error becomes a verdict, and does not stop other claims."""
    begin = time.perf_counter()
    try:
        return run_claim(claim, lab)
    except Exception as error:
        reason = f"stopped with {describe_error(error)}"
        return _failed_outcome(claim, reason, lab.falsify, time.perf_counter() - begin, lab.config)


def _failed_outcome(claim: Claim, reason: str, falsify: bool, seconds=0.0, config=None) -> Outcome:
    # With wrong predictions a claim should fail, but an error is no such failure.
    verdict = "inconclusive" if falsify else "fails"
    return Outcome(claim, (), verdict, reason, seconds, config or {})


class _Worker:
    """A worker process, and what it has not sent yet of its topic."""

    def __init__(self, settings: Settings):
        self.process = WorkerProcess(_serve, settings)
        self.last: int | None = None
        self.claims: list[str] = []
        self.figures: list[str] = []

    def begin(self, number: int, topic: Topic) -> None:
        self.last = number
        self.claims, self.figures = list(topic.claims), list(topic.figures)
        self.process.send(topic)

    def receive(self) -> Result:
        result = self.process.receive()
        if isinstance(result, Outcome):
            self.claims.remove(result.claim.id)
        else:
            self.figures.remove(result.name)
        return result

    def fail_missing(self, falsify: bool) -> Iterator[Result]:
        """Outcomes and figures in place of those that a dead process did not send."""
        code = self.process.exit_code
        reason = f"its process ended with {code}" + (" (out of memory?)" if code == -9 else "")
        for claim in select_claims(self.claims) if self.claims else ():
            yield _failed_outcome(claim, f"stopped: {reason}", falsify)
        for name in self.figures:
            yield not_drawn(name, reason)


def _compute_in_parallel(
    topics: Sequence[Topic], settings: Settings, jobs: int
) -> Iterator[Result]:
    left, workers = set(range(len(topics))), []

    def assign_topic(worker: _Worker) -> None:
        number = choose_topic(left, worker.last)
        left.remove(number)
        worker.begin(number, topics[number])

    def start_worker() -> None:
        workers.append(_Worker(settings))
        assign_topic(workers[-1])

    try:
        for _ in range(jobs):
            start_worker()
        while workers:
            ready = multiprocessing.connection.wait([worker.process.pipe for worker in workers])
            for worker in [worker for worker in workers if worker.process.pipe in ready]:
                try:
                    yield worker.receive()
                except WorkerDied:
                    yield from worker.fail_missing(settings.falsify)
                    workers.remove(worker)
                    worker.process.close()
                    if left:
                        start_worker()
                    continue
                if not worker.claims and not worker.figures:
                    if left:
                        assign_topic(worker)
                    else:
                        workers.remove(worker)
                        worker.process.close(kill=False)
    finally:
        for worker in workers:
            worker.process.close()


def _serve(pipe: multiprocessing.connection.Connection, settings: Settings) -> None:
    """The main loop of a worker: receives topics, sends results, until the pipe is closed."""
    start(brief=True)
    lab = settings.lab()
    # The main process closes its end when no topic is left.
    with hide_progress(), contextlib.suppress(EOFError):
        while True:
            for result in _compute_topic(pipe.recv(), lab, settings):
                pipe.send(result)
