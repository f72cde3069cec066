"""The pipe between the server and a worker process: requests one way, messages the other.

Only plain data and arrays go through the pipe. Events for the page are serialised here, in the
worker, because the server has to answer all pages.
"""

import json
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple

from ..files import to_plain
from ._run_data import Frames, Points

# Why a job should stop: its result is no longer wanted, the reader paused it, or other pages have
# waited long enough. The last two leave a checkpoint.
StopReason = Literal["cancel", "pause", "yield"]
# Significant digits of numbers for the page: more than a screen shows, in half as many bytes.
DIGITS = 7
MessageKind = Literal["ready", "event", "points", "done", "refused", "broke"]
# Kinds of messages after which a worker is free again.
FINAL: tuple[MessageKind, ...] = ("done", "refused", "broke")


class Request(NamedTuple):
    """A job for a worker: its number, its name in `JOBS`, and its arguments."""

    number: int
    name: str
    arguments: dict[str, Any]


class Stop(NamedTuple):
    """Tells a worker to stop the job of this number."""

    number: int
    reason: StopReason


class Message(NamedTuple):
    """What a worker sends about a job.

    **Fields:**

    - `kind`: "ready" (for jobs), "event" (a text for the page), "points" (numbers that the server
      keeps), "done", "refused" (with a sentence), or "broke" (with the error in the program).
    - `last`: whether the process ends after this message.
    """

    number: int
    kind: MessageKind
    content: Any
    last: bool = False


class ServerGone(Exception):
    """The other end of the pipe is closed."""


class WorkerChannel:
    """What one job sees of the server.

    **Arguments:**

    - `pipe`: to the server.
    - `number`: of the job.
    """

    def __init__(self, pipe: Connection, number: int):
        self._pipe, self._number = pipe, number
        self._reason: StopReason | None = None

    def send_event(self, type: str, **content: Any) -> None:
        """Sends an event to the page."""
        data = to_plain({"type": type, **content}, DIGITS)
        self.send("event", (type, json.dumps(data, separators=(",", ":"), allow_nan=False)))

    def send_points(self, start: int, points: Points, frames: Frames) -> None:
        """Sends points for the server to keep, from index `start` on, and the weights of some."""
        self.send("points", (start, points, frames))

    def send(self, kind: MessageKind, content: Any, last: bool = False) -> None:
        try:
            self._pipe.send(Message(self._number, kind, content, last))
        except OSError:
            raise ServerGone from None

    def stop_reason(self) -> StopReason | None:
        """Why the job should stop, or None. Once cancelled, it stays cancelled."""
        try:
            while self._pipe.poll():
                stop = self._pipe.recv()
                if isinstance(stop, Stop) and stop.number == self._number:
                    self._reason = stop.reason if self._reason != "cancel" else self._reason
        except (EOFError, OSError):
            raise ServerGone from None
        return self._reason

    @property
    def cancelled(self) -> bool:
        return self.stop_reason() == "cancel"
