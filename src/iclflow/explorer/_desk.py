"""Where a worker process sits: what it is asked to do, and how it answers.

Nothing but plain data and arrays goes through the pipe. Events for the page are made into text here
already, so that the server, which answers all pages, need not.
"""

import json
import math
import os
import threading
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from ._run_data import Points


class Asked(NamedTuple):
    """One thing to do: its number, its name, and what it needs."""

    number: int
    name: str
    needs: dict[str, Any]


class Stop(NamedTuple):
    """The wish that something which is being done be left: `why` is "cancel", "pause", or "yield",
    when others have waited long enough."""

    number: int
    why: str


class Told(NamedTuple):
    """An answer. `kind` is "ready", "event" (a text for the page), "points" (numbers that the
    server keeps), "done", "refused" (a sentence), or "broke" (what is wrong with the program).
    After one that is the `last` the process ends."""

    number: int
    kind: str
    content: Any
    last: bool = False


class ServerGone(Exception):
    """Nobody is there any more to tell anything."""


class Desk:
    """What one job sees of the server.

    **Arguments:**

    - `pipe`: to the server.
    - `asked`: what is to be done.
    """

    def __init__(self, pipe: Connection, asked: Asked):
        self._pipe = pipe
        self._asked = asked
        self._why: str | None = None

    def event(self, type: str, **content: Any) -> None:
        """Tells the page something."""
        text = json.dumps(plain({"type": type, **content}), separators=(",", ":"), allow_nan=False)
        self.tell("event", (type, text))

    def points(self, start: int, points: Points, frames: dict[int, dict[str, np.ndarray]]) -> None:
        """Gives the server points to keep, from place `start` on, and the weights of some."""
        self.tell("points", (start, points, frames))

    def tell(self, kind: str, content: Any, last: bool = False) -> None:
        try:
            self._pipe.send(Told(self._asked.number, kind, content, last))
        except OSError:
            raise ServerGone from None

    def stopped(self) -> str | None:
        """Why this should be left, or None; what was cancelled stays so."""
        try:
            while self._pipe.poll():
                wish = self._pipe.recv()
                if isinstance(wish, Stop) and wish.number == self._asked.number:
                    self._why = wish.why if self._why != "cancel" else self._why
        except (EOFError, OSError):
            raise ServerGone from None
        return self._why

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants to know any more."""
        return self.stopped() == "cancel"


def plain(value: Any) -> Any:
    """Data fit for JSON: numbers to seven digits, those that are not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "tolist"):
        return plain(np.asarray(value).tolist())
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)


def end_with_server(server: int) -> None:
    """Ends this process when the server has gone, even while it computes for long."""

    def watch() -> None:
        while os.getppid() == server:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
