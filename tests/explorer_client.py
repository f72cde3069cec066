"""A server of the explorer for tests, and what a page does with it."""

import asyncio
import base64
import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from iclflow.cli import main
from iclflow.explorer._presets import presets
from iclflow.papers import Study

STAIRCASE = {
    "name": "staircase",
    "task": {"kind": "linear_regression", "eigenvalues": [0.4, 0.3, 0.2, 0.1], "context": 31},
    "model": {"kind": "separate", "heads": 4, "scale": 1e-2},
}
# Half an hour of steps, if nobody stops it.
ENDLESS = {
    "name": "endless",
    "task": {"kind": "linear_regression", "eigenvalues": [0.4, 0.3, 0.2, 0.1], "context": 31},
    "model": {"kind": "merged", "activation": "softmax", "heads": 2},
    "risk": {"kind": "sampled", "batch": 256},
    "flow": {"kind": "adam", "learning_rate": 1e-3, "steps": 200_000},
    "save": {"kind": "linear", "count": 2000},
}


def fragment(state: dict) -> str:
    """A state of the page as an address holds it."""
    return "#" + base64.urlsafe_b64encode(json.dumps(state).encode()).decode().rstrip("=")


def compute(*words: object) -> None:
    """Runs `iclflow` with these words; a figure is left empty, since nobody looks at it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("iclflow.experiment._figure._render", lambda figure, kind: b"")
        assert main([str(word) for word in words]) == 0


class Server:
    """A running `iclflow explore`."""

    def __init__(self, process: subprocess.Popen, address: str, temporary: Path):
        self.process, self.opened, self.temporary = process, address, temporary
        self.host = urlsplit(address).netloc
        self.address = f"http://{self.host}/"

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One request with exactly these headers besides those that HTTP needs."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, named, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, _, body = self.request("GET", path)
        assert status == 200, body
        return json.loads(body)

    def post(self, path: str, body: Any, status: int | None = None) -> Any:
        """What the page does: JSON, from its own origin."""
        headers = {"content-type": "application/json", "origin": self.address.rstrip("/")}
        found, _, answer = self.request("POST", path, json.dumps(body), headers)
        assert found == status or (status is None and found in (200, 201)), (found, answer)
        return json.loads(answer)

    def page(self) -> "Page":
        return Page(self)

    def memory(self) -> int:
        """Bytes that the server process holds, its workers left out."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
        return 1024 * int(line.split()[1])

    def workers(self) -> list[int]:
        """The processes that compute."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        name = lambda child: Path(f"/proc/{child}/cmdline").read_bytes()
        return [int(child) for child in children if b"spawn_main" in name(child)]


class Page:
    """One page: a session, and its stream of events."""

    def __init__(self, server: Server):
        self.server = server
        self.id = server.post("/api/sessions", {})["session"]
        self.last = 0

    def run(self, config: dict, **more: Any) -> str:
        return self.server.post("/api/runs", {"session": self.id, "config": config, **more})["run"]

    def act(self, run: str, action: str) -> None:
        self.server.post(f"/api/runs/{run}/{action}", {"session": self.id})

    @contextlib.contextmanager
    def stream(self, after: int = 0, timeout: float = 120) -> Iterator[Iterator[dict]]:
        """The events from the one after number `after` on."""
        connection = http.client.HTTPConnection(self.server.host, timeout=timeout)
        connection.request("GET", f"/api/events?session={self.id}&after={after}")
        answer = connection.getresponse()
        assert answer.status == 200
        try:
            yield self._events(answer, timeout)
        finally:
            connection.close()

    def _events(self, answer, timeout: float) -> Iterator[dict]:
        number, end = 0, time.monotonic() + timeout
        for line in answer:
            # A quiet stream says now and then that it is there: that is no event.
            if time.monotonic() > end:
                raise TimeoutError(f"no end after {timeout:g} s")
            if line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"data: "):
                self.last = number
                yield {"number": number, **json.loads(line[6:])}

    def until(self, run: str, *types: str, after: int = 0, timeout: float = 120) -> list[dict]:
        """The events of a run up to the first of one of these types."""
        found = []
        with self.stream(after, timeout) as events:
            for event in events:
                if event["run"] == run:
                    found.append(event)
                    if event["type"] in types:
                        return found
        raise AssertionError(f"the stream ended before {types}: {[e['type'] for e in found]}")


class Answer(NamedTuple):
    """What an application answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Asgi:
    """An application of the explorer that is asked without a server between.

    **Arguments:**

    - `make`: makes it for the names under which it may be asked.
    """

    host = "127.0.0.1:1"
    cookie = "iclflow-explorer-1"

    def __init__(self, make):
        self.app = make([self.host])

    def scope(self, method: str, path: str, headers: dict[str, str] | None = None) -> dict:
        path, _, query = path.partition("?")
        return {
            **{"type": "http", "http_version": "1.1", "method": method, "scheme": "http"},
            **{"path": path, "raw_path": path.encode(), "query_string": query.encode()},
            **{"root_path": "", "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 1)},
            "headers": [(k.encode(), v.encode()) for k, v in (headers or {}).items()],
        }

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        cookie: str | None = None,
        host: str = host,
        origin: str | None = None,
    ) -> Answer:
        """What it answers to one request of a page."""
        headers = {"host": host, "origin": origin or f"http://{host}"}
        headers |= {"content-type": "application/json"} | ({"cookie": cookie} if cookie else {})
        sent: list[dict] = []
        waiting = [{"type": "http.request", "body": json.dumps(body or {}).encode()}]

        async def receive() -> dict:
            if not waiting:
                await asyncio.Event().wait()  # a page that reads the answer says nothing more
            return waiting.pop()

        async def send(message: dict) -> None:
            sent.append(message)

        asyncio.run(self.app(self.scope(method, path, headers), receive, send))
        start = next(each for each in sent if each["type"] == "http.response.start")
        named = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], named, b"".join(each.get("body", b"") for each in sent))


@contextlib.contextmanager
def serving(*options: str, folder: Path) -> Iterator[Server]:
    """A server in a folder of its own, ended the way a user ends it."""
    command = [sys.executable, "-m", "iclflow", "explore", "--port", "0", "--json", "--no-browser"]
    with tempfile.TemporaryDirectory() as temporary, open(f"{temporary}/log", "w+") as log:
        environment = os.environ | {"PYTHONUNBUFFERED": "1", "TMPDIR": temporary}
        process = subprocess.Popen(
            [*command, *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, Path(log.name).read_text()
            yield Server(process, json.loads(line)["address"], Path(temporary))
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(20)
            finally:
                process.kill()
                process.stdout.close()
        # What went wrong without anybody being told.
        assert "Traceback" not in Path(log.name).read_text(), Path(log.name).read_text()[-4000:]


def wait_for(condition, seconds: float = 10.0) -> bool:
    """Whether something becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def presets_of_each_kind() -> list[Study]:
    """The first preset with each kind of task, model, flow and risk."""
    found: dict[tuple[str, ...], Study] = {}
    for preset in presets():
        parts = (getattr(preset.config, part) for part in ("task", "model", "flow", "risk"))
        found.setdefault(tuple(part.kind for part in parts), preset)
    return list(found.values())
