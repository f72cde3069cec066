"""One page: its runs, and the events that it gets about them, in order."""

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
    """One run of one page, computed here or read from disk.

    **Arguments:**

    - `job`: what a worker does for it, with `arguments`.
    - `stored`: where it comes from, if from disk: `{"kind": …, "name": …}`.
    - `folder`: for its checkpoint, while it is paused or yields to others.

    **Fields:**

    - `place`: in the queue; `stalled`: why no run is taken from the queue, if that is so.
    - `requested`: the action that was requested while it runs.
    - `seconds`: that it has computed.
    - `result`: with which its figure would be drawn now.
    - `has_moved`: whether it has sent points since it was given to a worker.
    """

    def __init__(
        self,
        session: "Session",
        config: Config,
        title: str,
        job: str,
        arguments: dict[str, Any],
        stored: dict[str, Any] | None,
        folder: Path,
    ):
        self.id = secrets.token_urlsafe(12)
        self.session, self.config, self.title = session, config, title
        self.job, self.arguments, self.stored = job, arguments, stored
        self.checkpoint = folder / f"{self.id}.safetensors"
        self.state: State = "queued"
        self.place: int | None = None
        self.stalled: str | None = None
        self.job_number: int | None = None
        self.requested: str | None = None
        self.queued_at = time.monotonic()
        self.seconds = 0.0
        self.result = "cancelled"
        self.has_moved = False
        self.compile_key = compile_key(config)
        self.data = RunData()

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    def close(self) -> None:
        self.checkpoint.unlink(missing_ok=True)


def compile_key(config: Config) -> str:
    """A key that is equal for runs that compile the same programs: all settings but the seed, the
    name, the length of contexts and the values of real numbers."""

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
    """One page: its runs, and the events that its streams send."""

    def __init__(self):
        self.id = secrets.token_urlsafe(18)
        self.runs: dict[str, Run] = {}
        # Events by number, and the newest of each kind that the next one of a run replaces.
        self._log: dict[int, tuple[str, str]] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self._next = 1
        self._text_bytes = 0
        self._wake = asyncio.Event()
        self.connections = 0
        # Until when it is expected to open a stream, while it has none.
        self.expected = math.inf

    def publish(self, run: Run, type: str, text: str | None = None, **content: Any) -> None:
        """Adds an event and wakes all streams of the page. Progress, and places in the queue,
        replace the event before them."""
        if text is None:
            text = json.dumps({"type": type, **content}, separators=(",", ":"))
        # The worker has serialised the rest: the id is put in front instead of parsing it.
        text = f'{{"run":"{run.id}",{text[1:]}'
        if type == "progress" or (type == "queued" and "config" not in content):
            self._remove(self._newest.get((run.id, type)))
            self._newest[run.id, type] = self._next
        self._log[self._next] = (run.id, text)
        self._text_bytes += len(text)
        self._next += 1
        # Streams that wait hold the old event; those that come next wait for the new one.
        self._wake.set()
        self._wake = asyncio.Event()

    def _remove(self, number: int | None) -> None:
        if number in self._log:
            self._text_bytes -= len(self._log.pop(number)[1])

    def forget(self, run: Run) -> None:
        """Drops a run and its events; the page gets an event that says so."""
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

    async def wait(self, seconds: float) -> None:
        """Waits until there are more events, or until the time is up."""
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
