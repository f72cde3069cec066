"""Short jobs of workers whose results somebody waits for, such as a diagram or a figure."""

import asyncio
import collections
from typing import Any, NamedTuple

from ._limits import RequestError

_MOST_WAITING = 64


class Question(NamedTuple):
    """A job by its name in `JOBS`, its arguments, and where its result goes."""

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
        if len(self) >= _MOST_WAITING:
            raise RequestError("Too many requests are waiting: try again in a moment.", status=503)
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(Question(name, arguments, answer))
        return answer

    def next(self) -> Question | None:
        """Removes and returns the question whose turn it is."""
        while self._waiting:
            question = self._waiting.popleft()
            if not question.answer.done():  # otherwise whoever asked has disconnected
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
