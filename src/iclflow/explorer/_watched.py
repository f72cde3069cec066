"""Trainings of other processes: their records, followed, and what pages are told of them."""

import asyncio
import contextlib
import hashlib
import os
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..config import InputError
from ..files import printable
from ..watching import Follower, describe, describe_plateaus, named
from ._connections import LOGGER
from ._hub import Hub
from ._limits import RequestError
from ._watch_events import encode, encode_points, state_words, turn_words, verdicts_content

# Seconds between two looks at the files, between two descriptions, and between two states.
_POLL, _WORDS, _STATE = 0.2, 0.5, 1.0
# Plateaus are asked for again when there are so many more looks, and after so many seconds.
_MORE, _PLATEAUS = 1.05, 3.0
# They are also asked for when nothing new has come for so many seconds: the last looks count.
_QUIET = 10.0
# Looks in one event: a page draws them while the next ones are encoded.
_BATCH = 2000
# Problems that a page lists, the last ones.
_MOST_PROBLEMS = 50


class Watched:
    """One training. It belongs to the event loop; files are read in a thread, under `lock`.

    **Fields:**

    - `id`: of the folder, in addresses.
    - `epoch`: of this server: what a page holds from another one is not looked at.
    - `sentences`: for each label, and the plateaus; `named`: the estimators that were the nearest.
    """

    def __init__(self, folder: Path):
        self.follower, self.lock = Follower(folder), threading.Lock()
        self.id = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:20]
        self.name = printable(folder.name or str(folder))
        self.epoch = secrets.token_hex(6)
        self.sentences: list[list[str]] = []
        self.named: list[list[str]] = []
        self.plateaus = ""
        self._described = (-1, -1)
        # Looks and turns: when plateaus were measured, and when they last changed.
        self._measured, self._measured_at = (0, 0), 0.0
        self._held, self._held_at = (0, 0), 0.0

    def read(self) -> tuple[bool, bool]:
        with self.lock:
            return self.follower.read()

    def describe(self) -> bool:
        """Describes what there is now; whether there was anything new."""
        mark = self._mark()
        if mark == self._described:
            return False
        self._described = mark
        with self.lock:
            columns = self.follower.columns
            labels = max(len(columns.nearest), 1)
            self.sentences = [describe(columns, label) for label in range(labels)]
            self.named = [named(each) for each in columns.nearest]
        return True

    def _mark(self) -> tuple[int, int]:
        return len(self.follower.columns), len(self.follower.turns)

    def wants_plateaus(self, now: float) -> bool:
        mark = self._mark()
        if mark != self._held:
            self._held, self._held_at = mark, now
        if mark == self._measured or now - self._measured_at <= _PLATEAUS:
            return False
        count, turns = self._measured
        grown = mark[0] >= _MORE * count + 1
        return grown or mark[1] != turns or now - self._held_at > _QUIET

    async def measure_plateaus(self, hub: Hub) -> None:
        """Asks a worker for the plateaus."""
        with self.lock:
            steps = list(self.follower.columns.steps)
            losses = list(self.follower.columns.numbers["loss"])
            self._measured, self._measured_at = self._mark(), time.monotonic()
        given = {"steps": steps, "losses": losses}
        self.plateaus = describe_plateaus(*await hub.scheduler.ask("plateaus", given))

    def about(self) -> dict[str, Any]:
        """What the list of trainings says of it."""
        state, age, pace = self.follower.state()
        columns = self.follower.columns
        last = next(iter(columns.steps[-1:]), None)  # looks may be taken back meanwhile
        kept = {key: self.follower.about.get(key) for key in ("task", "schedule", "bayes_loss")}
        return {
            **{"id": self.id, "name": self.name, **kept},
            **{"state": state, "words": state_words(state, pace)},
            "age": None if age is None else round(age),
            **{"looks": len(columns), "step": last, "turns": len(self.follower.turns)},
            **{"damage": self.follower.damage, "steps": self.follower.about.get("steps")},
        }


class WatchedFolders:
    """The trainings that a server shows.

    **Arguments:**

    - `folders`: where their records are, or will be.
    """

    def __init__(self, hub: Hub, folders: Sequence[Path] = ()):
        self._hub = hub
        self.all = {one.id: one for one in map(Watched, folders)}
        self._tasks: list[asyncio.Task] = []
        self._wake = asyncio.Event()

    def start(self) -> None:
        for one in self.all.values():
            self._tasks += [asyncio.create_task(self._follow(one))]
            self._tasks += [asyncio.create_task(self._describe(one))]
            self._tasks += [asyncio.create_task(self._measure(one))]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def find(self, id: str | None) -> Watched:
        if id not in self.all:
            raise RequestError("This server does not watch this training.", "training")
        return self.all[id]

    async def _follow(self, one: Watched) -> None:
        """Reads what a training writes, until the server ends."""
        while True:
            more = False
            with _logged(one, "followed"):
                changed, more = await asyncio.to_thread(one.read)
                if changed:
                    self._notify()
            await asyncio.sleep(0 if more else _POLL)

    async def _describe(self, one: Watched) -> None:
        while True:
            await asyncio.sleep(_WORDS)
            with _logged(one, "described"):
                if await asyncio.to_thread(one.describe):
                    self._notify()

    async def _measure(self, one: Watched) -> None:
        """Measures what needs a worker, which may be slow to start."""
        while True:
            await asyncio.sleep(_WORDS)
            if one.wants_plateaus(time.monotonic()):
                # Without a worker everything else is shown.
                with _logged(one, "measured"), contextlib.suppress(InputError):
                    await one.measure_plateaus(self._hub)
                    self._notify()

    def _notify(self) -> None:
        # Streams that wait hold the old event; those that come next wait for the new one.
        self._wake.set()
        self._wake = asyncio.Event()

    async def events(self, one: Watched, seen: "Seen") -> AsyncIterator[str]:
        """What a page that has seen so much of a training has not seen yet, for as long as it
        listens; an empty text at least once a second."""
        while not self._hub.closing:
            wake = self._wake
            async for text in _news(one, seen):
                yield text
            listed = encode("trainings", trainings=[each.about() for each in self.all.values()])
            yield seen.if_new("trainings", listed)
            try:
                await asyncio.wait_for(wake.wait(), _STATE)
            except TimeoutError:
                continue


@contextlib.contextmanager
def _logged(one: Watched, doing: str) -> Iterator[None]:
    """Writes an error to the log: what comes later is still done."""
    try:
        yield
    except OSError as error:
        LOGGER.warning("iclflow: %s cannot be read: %s", one.name, error)
    except Exception:
        LOGGER.exception("iclflow: the record of %s could not be %s.", one.name, doing)


class Seen:
    """What a page holds of a training: how many looks, and after how many turns of the record.

    **Arguments:**

    - `text`: as the page writes it: `EPOCH.TURNS.LOOKS`.
    """

    def __init__(self, text: str, one: Watched):
        epoch, *numbers = text.split(".")
        good = len(numbers) == 2 and all(n.isascii() and n.isdecimal() for n in numbers)
        self.turns = self.looks = 0
        self.known = good and epoch == one.epoch
        if self.known:
            self.turns, self.looks = (int(number[:9]) for number in numbers)
        self._texts: dict[str, str] = {}

    def if_new(self, kind: str, text: str) -> str:
        """An event, unless the last one of its kind was the same."""
        if self._texts.get(kind) == text:
            return ""
        self._texts[kind] = text
        return text


async def _news(one: Watched, seen: Seen) -> AsyncIterator[str]:
    follower = one.follower
    if not seen.known:
        seen.known = True
        yield encode("start", epoch=one.epoch, id=one.id)
    while texts := await asyncio.to_thread(_take, one, seen):
        for text in texts:
            yield text
    problems = [[step, text] for step, text in follower.problems.items()][-_MOST_PROBLEMS:]
    for kind, content in (
        ("look", {"look": follower.last}),
        ("words", {"labels": one.sentences, "named": one.named, "plateaus": one.plateaus}),
        ("problems", {"problems": problems, "damage": follower.damage}),
        ("verdicts", verdicts_content(follower.verdicts)),
    ):
        if text := seen.if_new(kind, encode(kind, **content)):
            yield text


def _take(one: Watched, seen: Seen) -> list[str]:
    """The next turn and looks as events, which the page then has seen; none if there are none."""
    texts, follower = [], one.follower
    with one.lock:
        if turns := follower.turns[seen.turns :]:
            seen.looks = min(seen.looks, *(turn.kept for turn in turns))
            seen.turns += len(turns)
            words = turn_words(turns[-1])
            texts.append(encode("turn", count=seen.turns, kept=seen.looks, words=words))
        end = min(len(follower.columns), seen.looks + _BATCH)
        if end > seen.looks:
            texts.append(encode_points(follower.columns, seen.looks, end))
            seen.looks = end
    return texts
