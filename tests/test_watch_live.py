"""What pages are told of a training in another process."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator
from typing import cast

import pytest

from explorer_client import Asgi
from iclflow.explorer import _watched as watched_module
from iclflow.explorer._app import build_application
from iclflow.explorer._hub import Hub
from iclflow.explorer._stored import StoredRuns
from iclflow.explorer._watched import Seen, Watched, WatchedFolders
from iclflow.watching import Turn
from watch_records import Writer, look

# Seconds that nothing here may take, on a machine that is busy with other tests.
_LONG = 60
# Numbers are sent with five digits.
DIGITS = 5e-5


@pytest.fixture
def writer(tmp_path):
    return Writer(tmp_path / "training")


class Listener:
    """A page that listens, and holds what it was told."""

    def __init__(self, watched: WatchedFolders, have: str = "", number: int = 0):
        self.one = list(watched.all.values())[number]
        self.events: AsyncIterator[str] = watched.events(self.one, Seen(have, self.one))
        self.heard: list[dict] = []
        self.steps: list[float] = []
        self.losses: list[float] = []
        self.training: dict = {}

    async def until(self, condition) -> None:
        async with asyncio.timeout(_LONG):
            while not condition(self):
                text = await anext(self.events)
                if text:
                    assert text.startswith("data: ") and text.endswith("\n\n")
                    self._hear(json.loads(text[6:], parse_constant=pytest.fail))

    def _hear(self, event: dict) -> None:
        self.heard.append(event)
        if event["type"] == "turn":
            del self.steps[event["kept"] :], self.losses[event["kept"] :]
        if event["type"] == "points":
            assert event["from"] == len(self.steps)
            self.steps += event["step"]
            self.losses += event["loss"]
            assert all(len(column) == len(event["step"])
                       for label in event["distances"] for column in label.values())  # fmt: skip
        if event["type"] == "trainings":
            self.training = next(e for e in event["trainings"] if e["id"] == self.one.id)

    def last(self, kind: str) -> dict:
        return next(event for event in reversed(self.heard) if event["type"] == kind)

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.heard]


def played(*writers: Writer):
    """Runs a test with the trainings of these writers, watched."""

    def play(scene):
        async def run() -> None:
            hub = Hub(0)
            watched = WatchedFolders(hub, [writer.folder for writer in writers])
            watched.start()
            try:
                await scene(watched)
            finally:
                hub.end_streams()
                await watched.close()

        asyncio.run(run())

    return play


def has(count: int):
    return lambda page: len(page.steps) == count


def test_a_page_is_told_of_each_look_and_in_words(writer):
    writer.looks(*range(12))

    @played(writer)
    async def scene(watched):
        page = Listener(watched)
        await page.until(has(12))
        assert page.kinds()[0] == "start" and page.steps[-1] == 110
        assert page.losses[-1] == pytest.approx(look(11)["loss"][0], rel=DIGITS)
        words = lambda page: "words" in page.kinds() and page.last("words")["labels"]
        await page.until(words)
        assert "Nearest: ridge regression, since step 100" in page.last("words")["labels"][0][1]
        assert page.last("words")["named"] == [["ridge regression", "one gradient step"]]
        await page.until(lambda page: page.training)
        assert page.training["state"] == "running" and page.training["bayes_loss"] == 0.2
        writer.looks(12)
        await page.until(has(13))
        await page.until(lambda page: page.last("look")["look"] == look(12))
        writer.end()
        await page.until(lambda page: page.training["state"] == "ended")
        assert "ended, or was stopped" in page.training["words"]


def test_steps_that_are_repeated_are_replaced_on_every_page(writer):
    writer.looks(*range(6))

    @played(writer)
    async def scene(watched):
        pages = [Listener(watched) for _ in range(3)]
        for page in pages:
            await page.until(has(6))
        writer.resume(4)
        writer.looks(4, shift=0.125)
        for page in pages:
            await page.until(lambda page: "turn" in page.kinds() and len(page.steps) == 5)
            assert page.losses[4] == pytest.approx(look(4, 0.125)["loss"][0], rel=DIGITS)
            assert "from step 40 on are replaced" in page.last("turn")["words"]
        # One that comes later has no history to tell apart from that.
        late = Listener(watched)
        await late.until(has(5))
        assert late.losses == pages[0].losses


def test_a_page_that_lost_its_stream_gets_only_what_it_has_not(writer):
    writer.looks(*range(5))

    @played(writer)
    async def scene(watched):
        page = Listener(watched)
        await page.until(has(5))
        writer.looks(5, 6)
        have = f"{page.last('start')['epoch']}.0.5"
        again = Listener(watched, have)
        again.steps, again.losses = list(page.steps), list(page.losses)
        await again.until(has(7))
        assert "start" not in again.kinds() and again.last("points")["from"] == 5
        # A page of another server, or one that makes something up, starts anew.
        for other in ("another.0.5", "nonsense", "a.b.c", f"{have}.1", "٣.٣.٣"):
            anew = Listener(watched, other)
            await anew.until(has(7))
            assert anew.kinds()[0] == "start"


def test_a_record_that_is_turned_while_it_is_sent_is_sent_again(writer, monkeypatch):
    monkeypatch.setattr("iclflow.explorer._watched._BATCH", 2)
    writer.looks(*range(8))

    @played(writer)
    async def scene(watched):
        page = Listener(watched)
        await page.until(has(4))
        writer.resume(3)
        await page.until(lambda page: "turn" in page.kinds() and len(page.steps) == 3)
        writer.looks(*range(3, 9), shift=0.125)
        await page.until(has(9))
        expected = [look(k, 0.125 if k > 2 else 0.0)["loss"][0] for k in range(9)]
        assert page.losses == pytest.approx(expected, rel=DIGITS)


def test_looks_that_are_cut_while_a_page_reads_them_are_not_lost(writer):
    writer.looks(*range(6))

    @played(writer)
    async def scene(watched):
        page = Listener(watched)
        await page.until(has(6))
        follower = page.one.follower
        with page.one.lock:
            follower.turns.append(Turn(3, "replaced", 30.0))
            reading = asyncio.create_task(page.until(lambda page: page.losses[3:] == [1.0] * 3))
            await asyncio.sleep(0.05)  # the page waits for the lock
            follower.columns.cut(3)
            del follower._ends[3:], follower._sums[3:]
            rows = [look(k) | {"loss": [1.0, 0.01]} for k in range(3, 6)]
            kept = writer.path.read_bytes().splitlines(keepends=True)[:3]
            writer.path.write_bytes(b"".join(kept + [json.dumps(r).encode() + b"\n" for r in rows]))
        await reading


def test_plateaus_are_measured_again_when_a_training_ends_or_turns(writer):
    one, worker = Watched(writer.folder), cast(Hub, Plateaus())
    writer.looks(*range(60))
    one.read()
    assert one.wants_plateaus(100.0)
    asyncio.run(one.measure_plateaus(worker))
    now = time.monotonic() + 5
    assert not one.wants_plateaus(now)
    writer.looks(60)
    one.read()
    assert not one.wants_plateaus(now) and not one.wants_plateaus(now + 9)
    assert one.wants_plateaus(now + 11)  # nothing new comes: the last look counts
    asyncio.run(one.measure_plateaus(worker))
    assert not one.wants_plateaus(now + 100)
    writer.resume(60)
    one.read()
    assert one.wants_plateaus(now + 100)


class Plateaus:
    """A worker that finds none."""

    @property
    def scheduler(self):
        return self

    async def ask(self, kind, given):
        return [], []


def test_an_error_in_words_does_not_end_them(writer, monkeypatch):
    failures, whole = [], watched_module.describe

    def fail_once(*given):
        if not failures:
            failures.append(given)
            raise RuntimeError("out of luck")
        return whole(*given)

    monkeypatch.setattr(watched_module, "describe", fail_once)
    writer.looks(0)

    @played(writer)
    async def scene(watched):
        page = Listener(watched)
        await page.until(lambda page: failures)
        writer.looks(1)
        await page.until(lambda page: "words" in page.kinds() and page.last("words")["labels"])


def test_what_is_not_a_number_is_null_and_steps_are_exact(writer):
    bare = look(0) | {"excess": None, "distances": [], "closeness": [], "step": 123456789}
    writer.add(json.dumps(bare).encode() + b"\n")
    (writer.folder / "problems.jsonl").write_text('[7, "`predict` raised: out of luck."]\n')

    @played(writer)
    async def scene(watched):
        page = Listener(watched)
        await page.until(has(1))
        assert page.steps == [123456789] and page.last("points")["excess"] == [None]
        await page.until(
            lambda page: "problems" in page.kinds() and page.last("problems")["problems"]
        )
        assert page.last("problems")["problems"] == [[7, "`predict` raised: out of luck."]]


def test_a_folder_that_is_not_there_yet_and_one_that_is_damaged(writer, tmp_path):
    later = Writer(tmp_path / "later")
    (later.folder / "watch.json").unlink()
    writer.looks(0)
    writer.add(b"nonsense\n")

    @played(writer, later)
    async def scene(watched):
        page = Listener(watched)
        await page.until(lambda page: page.training.get("damage"))
        assert "line 2: it is damaged" in page.training["damage"]
        waiting = Listener(watched, number=1)
        await waiting.until(lambda page: page.training)
        assert waiting.training["state"] == "gone"
        Writer(later.folder).looks(0, 1)
        await waiting.until(has(2))
        assert not math.isnan(waiting.losses[1])


# Requests ---------------------------------------------------------------------------------------


@pytest.fixture
def pages(writer):
    """An application that watches a training, whose record is read already."""
    writer.looks(*range(3))
    hub = Hub(0)
    watched = WatchedFolders(hub, [writer.folder])
    (one,) = watched.all.values()
    one.read()
    make = lambda hosts: build_application(hub, StoredRuns([]), hosts, None, watched)
    return Asgi(make), one


def test_a_look_is_read_by_its_number(pages):
    page, one = pages
    assert page.ask("GET", "/api/watch").json[0]["looks"] == 3
    assert page.ask("GET", f"/api/watch/{one.id}/looks/2").json == look(2)
    for number in ("3", "-1", "x", "٣", "99999999999"):
        answer = page.ask("GET", f"/api/watch/{one.id}/looks/{number}")
        assert answer.status == 422 and "must be from 0 to 2" in answer.json["message"]
    assert page.ask("GET", "/api/watch/other/looks/0").status == 422
    one.follower.columns.cut(0)
    answer = page.ask("GET", f"/api/watch/{one.id}/looks/0")
    assert answer.status == 422 and "there is no look yet" in answer.json["message"]
    assert b"watch.js" in page.ask("GET", "/watch").body


def test_streams_are_for_pages_and_trainings_that_the_server_knows(pages):
    page, one = pages
    assert page.ask("GET", f"/api/watch/events?session=x&training={one.id}").status == 404
    session = page.ask("POST", "/api/sessions").json["session"]
    answer = page.ask("GET", f"/api/watch/events?session={session}&training=other")
    assert answer.status == 422 and answer.json["field"] == "training"


def test_a_look_that_was_taken_back_is_not_shown_as_another(pages, writer):
    page, one = pages
    writer.resume(1)
    writer.looks(1, 2, shift=0.125)  # the server has not seen it yet
    answer = page.ask("GET", f"/api/watch/{one.id}/looks/2")
    assert answer.status == 404 and "taken back" in answer.json["message"]


def test_a_file_is_no_folder_of_a_training(tmp_path, capsys):
    from iclflow.cli import main

    (tmp_path / "file").write_text("")
    assert main(["explore", "--watch", str(tmp_path / "file")]) == 2
    assert "is not a folder" in capsys.readouterr().err
