"""What one page has: its runs, and everything that happened to them, in order."""

import asyncio
import collections
import itertools
import json
import secrets
import time
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..config import Config

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
        self.number: int | None = None
        self.wish: str | None = None
        self.asked_at = time.monotonic()
        self.seconds = 0.0
        self.result = "cancelled"
        self.data = RunData()

    @property
    def active(self) -> bool:
        return self.state in ACTIVE

    @property
    def shape(self) -> str:
        """What decides which programs it needs: all but the values of real numbers."""

        def shape(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: shape(inner) for key, inner in value.items()}
            if isinstance(value, list):
                return [shape(inner) for inner in value]
            return "number" if isinstance(value, float) else value

        given = self.config.given()
        del given["seed"], given["name"]
        return json.dumps(shape(given), sort_keys=True)

    def close(self) -> None:
        self.checkpoint.unlink(missing_ok=True)


class RunData:
    """The numbers of a run, kept for the slider and for exports."""

    def __init__(self):
        self.parts: list[dict[str, Any]] = []
        self.frames: dict[int, dict[str, np.ndarray]] = {}
        self.told: dict[str, str] = {}
        self.drawn: dict[str, bytes] = {}
        self.count = 0
        self.bytes = 0

    def add(self, start: int, arrays: dict[str, Any]) -> None:
        """Takes points from place `start` on, in the stead of what was there."""
        frames = arrays.pop("frames")
        if start < self.count:
            self.parts = [self._cut(self.joined(), start)]
            for place in [place for place in self.frames if place >= start]:
                self.bytes -= sum(part.nbytes for part in self.frames.pop(place).values())
        self.parts.append(arrays)
        self.count = start + len(arrays["times"])
        self.frames |= frames
        self.bytes += sum(part.nbytes for frame in frames.values() for part in frame.values())
        self.bytes += 8 * len(arrays["times"]) * (2 + sum(map(_width, arrays["lines"].values())))

    @staticmethod
    def _cut(part: dict[str, Any], end: int) -> dict[str, Any]:
        lines = {name: values[:end] for name, values in part["lines"].items()}
        roles = None if part["roles"] is None else part["roles"][:end]
        return {**part, "times": part["times"][:end], "losses": part["losses"][:end]} | {
            "lines": lines,
            "roles": roles,
        }

    def joined(self) -> dict[str, Any]:
        """All points: times, losses, the lines of the panels, and roles."""
        parts = self.parts
        if len(parts) > 1:
            roles = None
            if parts[0]["roles"] is not None:
                roles = [row for part in parts for row in part["roles"]]
            merged = {
                "times": np.concatenate([part["times"] for part in parts]),
                "losses": np.concatenate([part["losses"] for part in parts]),
                "lines": {
                    name: np.concatenate([part["lines"][name] for part in parts])
                    for name in parts[0]["lines"]
                },
                "roles": roles,
            }
            self.parts = [merged]
        empty = {"times": np.zeros(0), "losses": np.zeros(0), "lines": {}, "roles": None}
        return self.parts[0] if self.parts else empty

    def frame(self, index: int) -> tuple[int, dict[str, np.ndarray]] | None:
        """The weights at a point, or at the last before it that has some."""
        places = [place for place in self.frames if place <= index]
        return (max(places), self.frames[max(places)]) if places else None


def _width(values: np.ndarray) -> int:
    return int(np.prod(np.shape(values)[1:], dtype=int))


class Session:
    """One page: its runs, and the events that it has to be told."""

    def __init__(self):
        self.id = secrets.token_urlsafe(18)
        self.runs: dict[str, Run] = {}
        self._log: collections.deque[tuple[int, str, str]] = collections.deque()
        self._next = 1
        self._text_bytes = 0
        self._wake = asyncio.Event()
        self.connections = 0
        self.seen = time.monotonic()

    def publish(self, run: Run, type: str, text: str | None = None, **content: Any) -> None:
        """Adds an event; all streams of the page wake up."""
        if text is None:
            text = json.dumps({"type": type, **content}, separators=(",", ":"))
        text = f'{{"run":"{run.id}",{text[1:]}'
        self._log.append((self._next, run.id, text))
        self._text_bytes += len(text)
        self._next += 1
        self._wake.set()
        self._wake = asyncio.Event()

    def forget(self, run: Run) -> None:
        """Drops a run and its events; pages are told that it has gone."""
        self.runs.pop(run.id, None)
        self._log = collections.deque(event for event in self._log if event[1] != run.id)
        self._text_bytes = sum(len(text) for _, _, text in self._log)
        self.publish(run, "forgotten")
        run.close()

    def after(self, number: int) -> list[tuple[int, str]]:
        """The events with a higher number."""
        newer = itertools.takewhile(lambda event: event[0] > number, reversed(self._log))
        return [(event, text) for event, _, text in newer][::-1]

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
