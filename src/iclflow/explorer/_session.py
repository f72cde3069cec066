"""What one page has: its runs, and everything that happened to them, in order."""

import asyncio
import itertools
import json
import math
import secrets
import time
from pathlib import Path
from typing import Any, Literal

from ..config import Config
from ._run_data import RunData

State = Literal["queued", "running", "paused", "ended", "settled", "cancelled", "failed"]
ACTIVE = ("queued", "running", "paused")
OVER = ("settled", "cancelled", "failed")


class Run:
    """One run of one page, whether it is computed here or was stored.

    **Arguments:**

    - `job`: what a worker does for it, with `needs`.
    - `stored`: what it was before, if it was there already: `{"kind": …, "name": …}`.
    - `checkpoint`: where it stands when it is left.
    """

    def __init__(
        self,
        session: "Session",
        config: Config,
        title: str,
        job: str,
        needs: dict[str, Any],
        stored: dict[str, Any] | None,
        checkpoint: Path,
    ):
        self.id = secrets.token_urlsafe(12)
        self.session, self.config, self.title = session, config, title
        self.job, self.needs, self.stored = job, needs, stored
        self.checkpoint = checkpoint / f"{self.id}.safetensors"
        self.state: State = "queued"
        self.place: int | None = None
        # Why it waits, where not for other runs.
        self.why: str | None = None
        self.number: int | None = None
        self.wish: str | None = None
        self.asked_at = time.monotonic()
        self.seconds = 0.0
        # As which it would be drawn now.
        self.result = "cancelled"
        # Whether it has told points since it was given to a worker.
        self.moved = False
        self.shape = shape_of(config)
        self.data = RunData()

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    def close(self) -> None:
        self.checkpoint.unlink(missing_ok=True)


def shape_of(config: Config) -> str:
    """What decides which programs a run needs: all but the values of real numbers, and how long
    contexts are."""

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shape(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [shape(inner) for inner in value]
        return "number" if isinstance(value, float) else value

    given = config.given()
    del given["seed"], given["name"], given["task"]["context"]
    return json.dumps(shape(given), sort_keys=True)


class Session:
    """One page: its runs, and the events that it has to be told."""

    def __init__(self):
        self.id = secrets.token_urlsafe(18)
        self.runs: dict[str, Run] = {}
        # Events by their number, and the newest of each run that the next of its kind replaces.
        self._log: dict[int, tuple[str, str]] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self._next = 1
        self._text_bytes = 0
        self._wake = asyncio.Event()
        self.connections = 0
        # Until when it is expected to open a stream, while it has none.
        self.expected = math.inf

    def publish(self, run: Run, type: str, text: str | None = None, **content: Any) -> None:
        """Adds an event; all streams of the page wake up. How far a run is, and its place in the
        queue, are worth no more once the next is there."""
        if text is None:
            text = json.dumps({"type": type, **content}, separators=(",", ":"))
        text = f'{{"run":"{run.id}",{text[1:]}'
        if type == "progress" or (type == "queued" and "config" not in content):
            self._remove(self._newest.get((run.id, type)))
            self._newest[run.id, type] = self._next
        self._log[self._next] = (run.id, text)
        self._text_bytes += len(text)
        self._next += 1
        self._wake.set()
        self._wake = asyncio.Event()

    def _remove(self, number: int | None) -> None:
        if number in self._log:
            self._text_bytes -= len(self._log.pop(number)[1])

    def forget(self, run: Run) -> None:
        """Drops a run and its events; pages are told that it has gone."""
        self.runs.pop(run.id, None)
        for number in [number for number, (id, _) in self._log.items() if id == run.id]:
            self._remove(number)
        for type in ("progress", "queued"):
            self._newest.pop((run.id, type), None)
        self.publish(run, "forgotten")
        run.close()

    def after(self, number: int) -> list[tuple[int, str]]:
        """The events with a higher number."""
        newer = itertools.takewhile(lambda event: event > number, reversed(self._log))
        return [(event, self._log[event][1]) for event in newer][::-1]

    async def more(self, seconds: float) -> None:
        """Waits until there are more events, or for so long."""
        wake = self._wake
        try:
            await asyncio.wait_for(wake.wait(), seconds)
        except TimeoutError:
            return

    def wake(self) -> None:
        self._wake.set()

    @property
    def bytes(self) -> int:
        return self._text_bytes + sum(run.data.bytes for run in self.runs.values())

    @property
    def active(self) -> list[Run]:
        return [run for run in self.runs.values() if run.active]
