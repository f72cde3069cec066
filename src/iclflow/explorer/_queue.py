"""What waits for a worker: runs, in a queue that is fair to pages, and short questions."""

import asyncio
import collections
from collections.abc import Iterator
from typing import Any, NamedTuple

from ._limits import RequestError
from ._session import Run

_MOST_QUESTIONS = 64


class FairQueue:
    """Runs that wait for a worker.

    A page with many runs waits for its own: the first run of another page waits for at most one run
    of each page before it.
    """

    def __init__(self):
        self._lines: collections.OrderedDict[str, collections.deque[Run]] = (
            collections.OrderedDict()
        )

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def add(self, run: Run, first: bool = False) -> None:
        """Puts a run at the end of the line of its page; with `first`, at its beginning."""
        line = self._lines.setdefault(run.session.id, collections.deque())
        line.appendleft(run) if first else line.append(run)

    def remove(self, run: Run) -> bool:
        """Removes a run; False if it does not wait."""
        line = self._lines.get(run.session.id)
        if line is None or run not in line:
            return False
        line.remove(run)
        if not line:
            del self._lines[run.session.id]
        return True

    def next(self) -> Run | None:
        """Removes and returns the run whose turn it is. Its page is last from now on."""
        for session, line in self._lines.items():
            run = line.popleft()
            del self._lines[session]
            if line:
                self._lines[session] = line
            return run
        return None

    def order(self) -> Iterator[Run]:
        """The runs in the order of their turns, as of now."""
        lines = [list(line) for line in self._lines.values()]
        for turn in range(max(map(len, lines), default=0)):
            for line in lines:
                if turn < len(line):
                    yield line[turn]

    def place(self, run: Run) -> int:
        """How many runs come before this one."""
        return next(place for place, each in enumerate(self.order()) if each is run)

    def waits_besides(self, session: str) -> bool:
        """Whether a run of another page waits."""
        return any(name != session for name in self._lines)


class Question(NamedTuple):
    """A short job that a request waits for, such as a diagram or a figure: its name in `JOBS`, its
    arguments, and the future that gets its result."""

    name: str
    arguments: dict[str, Any]
    answer: asyncio.Future


class Questions:
    """Questions that wait for a worker, and those that a worker has, by the number of the job."""

    def __init__(self):
        self._waiting: collections.deque[Question] = collections.deque()
        self._asked: dict[int, Question] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, number: int) -> bool:
        return number in self._asked

    def add(self, name: str, arguments: dict[str, Any]) -> asyncio.Future:
        """Puts a question into the queue; the result will be in the future."""
        if len(self) >= _MOST_QUESTIONS:
            raise RequestError("Too many requests are waiting: try again in a moment.", status=503)
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(Question(name, arguments, answer))
        return answer

    def next(self) -> Question | None:
        """Removes and returns the question whose turn it is."""
        while self._waiting:
            question = self._waiting.popleft()
            if not question.answer.done():  # otherwise its client has disconnected
                return question
        return None

    def start(self, number: int, question: Question) -> None:
        """A worker has got this question."""
        self._asked[number] = question

    def answer(self, number: int, result: Any) -> None:
        """Hands over a result; an exception is raised where the result is awaited."""
        question = self._asked.pop(number, None)
        if question is not None:
            _set(question.answer, result)

    def refuse_waiting(self, error: RequestError) -> None:
        """Gives up all questions that no worker has."""
        while self._waiting:
            _set(self._waiting.popleft().answer, error)


def _set(answer: asyncio.Future, result: Any) -> None:
    if answer.done():
        return
    if isinstance(result, Exception):
        answer.set_exception(result)
    else:
        answer.set_result(result)
