"""The server of the explorer: what it answers, what it refuses, and what survives."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import string
import time
from collections.abc import Iterator

import numpy as np
import pytest

from explorer_client import (
    ENDLESS,
    STAIRCASE,
    compute,
    presets_of_each_kind,
    serving,
    wait_for,
)
from iclflow.cli import main
from iclflow.config import parse_config
from iclflow.explorer._presets import presets
from iclflow.store import MANIFEST
from iclflow.trajectory import Trajectory

# A run that is soon over, of the shape of the staircase, for tests that need one that ends.
STEPS = {"kind": "gradient_descent", "learning_rate": 0.01, "steps": 2000}
QUICK = STAIRCASE | {"name": "quick", "flow": STEPS}
# The shape of the staircase, here and in `small.toml`: what is told of it is compiled once.
SWEEP = """
name = "scales"
seeds = 2
[base.task]
kind = "linear_regression"
eigenvalues = [0.4, 0.3, 0.2, 0.1]
context = 31
[base.model]
kind = "separate"
heads = 4
[axes]
"model.scale" = [1e-2, 3e-2, 1e-1]
"task.noise" = [0.0, 0.1]
[measure]
names = ["plateaus"]
trajectories = true
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("explorer")


@pytest.fixture(scope="module")
def stored(folder, server):
    """A stored run, a damaged one, and a sweep in the folder of the server, for those tests that
    open them."""
    (folder / "small.toml").write_text(
        '[task]\nkind = "linear_regression"\neigenvalues = [0.4, 0.3, 0.2, 0.1]\n'
        'context = 31\n[model]\nkind = "separate"\nheads = 4\nscale = 1e-2\n'
    )
    (folder / "sweep.toml").write_text(SWEEP)
    runs = folder / "runs"
    compute("run", folder / "small.toml", "--out", runs / "small")
    shutil.copytree(runs / "small", runs / "harmed")
    harmed = folder / "runs" / "harmed" / "trajectory.safetensors"
    harmed.write_bytes(harmed.read_bytes()[:-1] + b"?")
    compute("sweep", folder / "sweep.toml", "--out", folder / "sweeps" / "scales")
    assert wait_for(lambda: server.get("/api/stored")["sweeps"])
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with serving("--workers", "1", folder=folder) as found:
        yield found


@pytest.fixture(scope="module")
def told(server):
    """A staircase that has ended: the id of its run, and its events."""
    page = server.page()
    run = page.run(STAIRCASE, title="four plateaus")
    return run, page.until(run, "settled", "failed")


# Runs -------------------------------------------------------------------------------------------


def test_a_run_is_told_from_its_queue_to_its_last_word(told):
    _, events = told
    types = [event["type"] for event in events]
    assert types[:5] == ["queued", "started", "panels", "theory", "claims"]
    assert types.index("points") < types.index("ended") < types.index("settled")
    assert [event["number"] for event in events] == sorted({e["number"] for e in events})
    times, losses = [], []
    for event in events:
        if event["type"] == "points":
            times[event["from"] :], losses[event["from"] :] = event["times"], event["losses"]
    assert times == sorted(times) and losses[-1] < 0.2 < 0.9 < losses[0]
    ended = next(event for event in events if event["type"] == "ended")
    assert ended["result"] == "converged" and ended["points"] == len(times)
    theory = [event for event in events if event["type"] == "theory"][-1]
    assert len(theory["levels"]) == 5 and theory["curve"]["times"][-1] >= times[-1]
    claims = [event for event in events if event["type"] == "claims"][-1]
    verdicts = {claim["id"]: claim["verdict"] for claim in claims["claims"]}
    assert claims["final"] and verdicts["linear/plateau-losses"] == "holds"
    words = [event for event in events if event["type"] == "words" and event["moments"]]
    moments = [moment for event in words for moment in event["moments"]]
    assert len(moments) > 5 and all(moment["sentences"] for moment in moments)
    assert any("PCR with 2 components" in s for moment in moments for s in moment["sentences"])


def test_a_stack_ends_by_itself_and_its_steps_are_named(server):
    page = server.page()
    task = {"kind": "linear_regression", "eigenvalues": [1.0, 1.0, 1.0], "context": 12}
    model = {"kind": "linear_stack", "weights": "scalar", "depth": 2, "scale": 0.1}
    events = page.until(page.run({"task": task, "model": model}), "settled", "failed")
    ended = next(event for event in events if event["type"] == "ended")
    assert ended["result"] == "converged"
    assert events[-1]["type"] == "settled"
    words = [m for e in events if e["type"] == "words" for m in e["moments"]]
    assert "2 steps of gradient descent" in " ".join(words[-1]["sentences"])


def test_what_is_drawn_is_what_the_library_computes(server):
    from iclflow.experiment import prepare, train

    page = server.page()
    run = page.run(STAIRCASE | {"seed": 5})
    page.until(run, "settled", "failed")
    _, _, body = server.request("GET", f"/api/runs/{run}/export/json")
    told = json.loads(body)
    own = train(prepare(parse_config(STAIRCASE | {"seed": 5})))
    # Seven digits are told; compiled with and without the last optimisations the bits differ.
    np.testing.assert_allclose(told["losses"][-1], own.losses[-1], rtol=1e-6)
    assert abs(len(told["times"]) - len(own)) <= 2


def test_the_weights_of_a_moment_are_those_of_the_run(server, told):
    from iclflow.experiment import prepare, train

    run, _ = told
    moment = server.get(f"/api/runs/{run}/moment/0")
    model = train(prepare(parse_config(STAIRCASE)), lambda _: False).at(0)
    wanted = np.asarray(model.circuits.K[0] @ model.circuits.Q[0].T)
    found = np.asarray(moment["heads"][0]["matrices"]["KQ"])
    assert moment["time"] == 0 and len(moment["heads"]) == 4
    # The last row is that of the label, which this form does not read; weights are kept in float32.
    np.testing.assert_allclose(found[:4], wanted, rtol=1e-5)
    assert not found[4].any()
    status, _, body = server.request("GET", f"/api/runs/{run}/moment/99999")
    assert status == 422 and json.loads(body)["field"] == "index"


@pytest.mark.parametrize(
    "kind, begins",
    [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("csv", b"time,loss"), ("toml", b"#"), ("py", b'"""')],
)
def test_a_run_is_exported_in_every_form(server, told, kind, begins):
    run, _ = told
    status, headers, body = server.request("GET", f"/api/runs/{run}/export/{kind}")
    assert status == 200 and body.startswith(begins)
    assert headers["content-disposition"] == f'attachment; filename="staircase-{_hash()}.{kind}"'


def _hash() -> str:
    return parse_config(STAIRCASE).hash[:8]


@pytest.mark.slow
def test_a_run_that_is_paused_goes_on_where_it_stood(server):
    page = server.page()
    run = page.run(ENDLESS)
    with page.stream() as events:
        next(event for event in events if event["type"] == "points" and event["times"][-1] > 0)
    page.act(run, "pause")
    events = page.until(run, "paused", "settled")
    assert events[-1]["type"] == "paused"
    last = [event for event in events if event["type"] == "points"][-1]
    stood = last["times"][-1]
    assert stood > 0
    page.act(run, "continue")
    with page.stream(page.last) as later:
        points = next(event for event in later if event["type"] == "points")
        assert points["from"] > 0 and points["times"][0] >= 0.9 * stood
        page.act(run, "forget")


@pytest.mark.slow
def test_a_run_that_is_cancelled_stops_computing(server):
    page = server.page()
    run = page.run(ENDLESS)
    page.until(run, "points")
    page.act(run, "cancel")
    assert page.until(run, "cancelled")[-1]["type"] == "cancelled"
    # The one worker is free again, although the run would never have ended.
    assert page.until(page.run(QUICK), "settled", "failed")[-1]["type"] == "settled"


@pytest.mark.slow
def test_a_page_that_goes_away_takes_its_runs_with_it(server):
    page = server.page()
    run = page.run(ENDLESS)
    page.until(run, "points")  # its stream ends here
    with _held(server.workers()):  # it need not compute until somebody notices
        time.sleep(5.6)  # more than the five seconds that it may be away
    assert page.until(run, "cancelled", "settled", timeout=5)[-1]["type"] == "cancelled"


@contextlib.contextmanager
def _held(pids: list[int]) -> Iterator[None]:
    """Processes that stand still meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_a_long_run_of_one_page_lets_another_page_have_its_turn(server):
    slow, quick = server.page(), server.page()
    with slow.stream() as watched:
        run = slow.run(ENDLESS)
        next(event for event in watched if event["type"] == "points" and len(event["times"]) > 1)
        # The other one never ends: this one does only if it gets the worker for a while.
        settled = quick.until(quick.run(QUICK), "settled", "failed", timeout=120)[-1]
        assert settled["type"] == "settled"
        # The long one went back into the queue, and goes on.
        waited = next(event for event in watched if event["type"] == "queued")
        assert waited["run"] == run
        moved = next(event for event in watched if event["type"] == "points")
        assert moved["from"] > 0
        slow.act(run, "forget")
        assert next(event for event in watched if event["type"] == "forgotten")["run"] == run


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_preset_runs_to_its_end_with_panels_theory_words_and_verdicts(server):
    page, in_browser = server.page(), presets_of_each_kind()
    for preset in presets():
        if preset in in_browser:  # whose test looks at them there
            continue
        run = page.run(preset.config.given())
        found: dict[str, list[dict]] = {}
        for event in page.until(run, "settled", "failed", "cancelled", timeout=300):
            found.setdefault(event["type"], []).append(event)
        assert "settled" in found, (preset.id, list(found))
        assert found["panels"][-1]["panels"] and found["panels"][-1]["heads"], preset.id
        assert any(words["moments"] for words in found["words"]), preset.id
        claims = found["claims"][-1]
        verdicts = {claim["verdict"] for claim in claims["claims"]}
        assert claims["final"] and not verdicts & {"waiting", "fails"}, (preset.id, verdicts)
        times = [time for points in found["points"] for time in points["times"]]
        assert len(times) > 10, preset.id
        curve = found["theory"][-1]["curve"]
        if curve is not None:
            assert curve["times"][0] <= times[0] and curve["times"][-1] >= times[-1], preset.id


def test_a_reload_in_the_middle_gets_the_whole_run(server):
    page = server.page()
    run = page.run(STAIRCASE | {"seed": 6})
    before = page.until(run, "points")
    again = page.until(run, "settled", "failed")
    assert [event["number"] for event in again][: len(before)] == [e["number"] for e in before]
    places = 0
    for event in again:
        if event["type"] == "points":
            assert event["from"] <= places  # no gap
            places = event["from"] + len(event["times"])
    assert places == next(event["points"] for event in again if event["type"] == "ended")


@pytest.mark.slow
def test_a_picture_is_drawn_while_a_run_computes(server):
    page = server.page()
    done, going = page.run(QUICK), None
    page.until(done, "settled", "failed")
    with page.stream(page.last):
        going = page.run(ENDLESS)
        page.until(going, "points", after=page.last)
        status, _, body = server.request("GET", f"/api/runs/{done}/export/png")
        assert status == 200 and body.startswith(b"\x89PNG")
        page.act(going, "forget")


def test_weights_that_run_away_end_a_run_and_nothing_else(server):
    page = server.page()
    flow = {**STEPS, "learning_rate": 100.0}
    run = page.run(STAIRCASE | {"model": {**STAIRCASE["model"], "scale": 0.1}, "flow": flow})
    ended = [e for e in page.until(run, "settled", "failed") if e["type"] == "ended"]
    assert ended and ended[0]["result"] == "diverged"


@pytest.mark.timed
def test_pause_may_be_pressed_as_often_as_one_likes(server):
    page = server.page()
    run = page.run(ENDLESS | {"seed": 77})
    page.until(run, "started")
    start = time.monotonic()
    for _ in range(400):
        page.act(run, "pause")
    assert time.monotonic() - start < 20 and server.get("/api/health")["computing"] >= 0
    page.act(run, "forget")


def test_a_page_may_not_fill_the_queue(server):
    page = server.page()
    runs = [page.run(ENDLESS | {"seed": i}) for i in range(8)]
    refused = server.post("/api/runs", {"session": page.id, "config": STAIRCASE}, status=429)
    assert "cancel one" in refused["message"]
    for run in runs:
        page.act(run, "forget")


# What is on disk --------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stored_run_is_opened_by_its_id(server, stored):
    listed = {run["name"]: run for run in server.get("/api/stored")["runs"]}
    folders = {run["id"] for run in server.get("/api/stored")["runs"]}
    assert len(folders) == 2 and listed["small"]["status"] == "complete"
    manifest = stored / "runs" / "small" / MANIFEST
    assert listed["small"]["written"] == manifest.stat().st_mtime
    page = server.page()
    opened = []
    for run in server.get("/api/stored")["runs"]:
        status, _, body = server.request(
            "POST",
            f"/api/stored/{run['id']}/open",
            json.dumps({"session": page.id}),
            {"content-type": "application/json", "origin": server.address.rstrip("/")},
        )
        opened.append((status, json.loads(body)))
    refused = next(body for status, body in opened if status == 422)
    assert "damaged" in refused["message"]
    run = next(body["run"] for status, body in opened if status == 201)
    events = page.until(run, "settled", "failed")
    own = Trajectory.load(stored / "runs" / "small")
    losses = [loss for event in events if event["type"] == "points" for loss in event["losses"]]
    assert events[-1]["type"] == "settled" and len(losses) == len(own)
    np.testing.assert_allclose(losses, own.losses, rtol=1e-6)


@pytest.mark.slow
def test_a_cell_of_a_phase_diagram_opens_its_run(server, stored):
    (sweep,) = server.get("/api/stored")["sweeps"]
    about = server.get(f"/api/sweeps/{sweep['id']}")
    assert [axis["name"] for axis in about["swept"]] == ["model.scale", "task.noise", "seed"]
    query = "x=model.scale&y=task.noise&value=final_loss"
    diagram = server.get(f"/api/sweeps/{sweep['id']}/diagram?{query}")
    assert diagram["x"]["values"] == [1e-2, 3e-2, 1e-1] and np.shape(diagram["z"]) == (2, 3)
    assert diagram["count"] == [[2] * 3] * 2 and "median over 2 runs" in diagram["words"]
    page = server.page()
    cell = {"x": {"name": "model.scale", "value": 1e-2}, "y": {"name": "task.noise", "value": 0.1}}
    told = server.post(f"/api/sweeps/{sweep['id']}/open", {"session": page.id, **cell})
    events = page.until(told["run"], "settled", "failed")
    assert "as it was stored" in told["words"] and told["config"]["task"]["noise"] == 0.1
    last = [event for event in events if event["type"] == "points"][-1]["losses"][-1]
    # The median of two is their mean: this is one of them.
    assert abs(last - diagram["z"][1][1]) < 0.02 * last


@pytest.mark.slow
@pytest.mark.parametrize(
    "path, field",
    [
        ("diagram?x=model.scale%22;drop&value=final_loss", None),
        ("diagram?x=model.scale&value=hash", None),
        ("diagram?x=model.scale", None),
    ],
)
def test_a_diagram_of_what_is_not_there_is_refused(server, stored, path, field):
    (sweep,) = server.get("/api/stored")["sweeps"]
    status, _, body = server.request("GET", f"/api/sweeps/{sweep['id']}/{path}")
    assert status == 422 and json.loads(body)["message"].endswith(".")


# Lists in lists, more than any config has.
DEEP = b'{"config": ' + b"[" * 500 + b"]" * 500 + b"}"

# Hostile input ----------------------------------------------------------------------------------


def test_only_our_own_names_are_answered_for(server):
    for host in ("evil.example", "127.0.0.1", f"localhost.evil:{server.host.split(':')[1]}", ""):
        status, _, _ = server.request("GET", "/api/start", None, {"Host": host})
        assert status == 421
    port = server.host.split(":")[1]
    assert server.request("GET", "/api/stored", None, {"Host": f"localhost:{port}"})[0] == 200


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"content-type": "application/json"}, 403),
        ({"content-type": "application/json", "origin": "http://evil.example"}, 403),
        ({"content-type": "application/json", "origin": "null"}, 403),
        ({"content-type": "application/json", "origin": "http://[::1"}, 403),
        ({"content-type": "text/plain", "origin": "own"}, 415),
        (
            {"content-type": "application/json", "origin": "own", "sec-fetch-site": "cross-site"},
            403,
        ),
    ],
)
def test_what_changes_something_must_come_from_the_page_itself(server, headers, status):
    own = server.address.rstrip("/")
    given = {name: own if value == "own" else value for name, value in headers.items()}
    found, _, body = server.request("POST", "/api/sessions", "{}", given)
    assert found == status and json.loads(body)["message"].endswith(".")


def test_a_page_of_another_site_can_read_nothing(server):
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    assert server.request("GET", "/api/stored", None, headers)[0] == 403


def test_every_answer_carries_the_strict_policy(server):
    for path in ("/", "/api/start", "/static/style.css", "/nothing", "/api/runs/x/moment/0"):
        _, headers, _ = server.request("GET", path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../_app.py",
        "/static/..%2f_app.py",
        "/static/%2e%2e/%2e%2e/config/_base.py",
        "/static//etc/passwd",
        "/api/stored/..%2f..%2fsmall/open",
        "/api/runs/../../etc/moment/0",
    ],
)
def test_no_path_leads_out_of_the_page(server, path):
    status, _, body = server.request("GET", path)
    assert status in (404, 405) and b"import" not in body and b"root:" not in body


@pytest.mark.parametrize(
    "content",
    [b"", b"[1]", b"{", b"\xff\xfe", b'{"a":NaN}', b"[" * 50_000, b'{"a":"\\ud800"}', DEEP],
)
def test_a_body_that_is_no_json_object_is_refused(server, content):
    headers = {"content-type": "application/json", "origin": server.address.rstrip("/")}
    status, _, body = server.request("POST", "/api/check", content, headers)
    assert status == 400 and json.loads(body)["message"].endswith(".")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(server):
    headers = {"content-type": "application/json", "origin": server.address.rstrip("/")}
    status, _, _ = server.request("POST", "/api/check", b" " * 300_000, headers)
    assert status == 413
    # One that says nothing of its size is cut off.
    parts = (b" " * 10_000 for _ in range(100))
    try:
        status, _, _ = server.request("POST", "/api/check", parts, headers)
    except (BrokenPipeError, ConnectionResetError):
        status = 413
    assert status == 413


@pytest.mark.slow
def test_a_thousand_senseless_requests_leave_the_server_as_it_was(server):
    chance = random.Random(0)
    before = server.get("/api/start")
    paths = [
        *("/", "/api/start", "/api/check", "/api/change", "/api/sessions", "/api/events"),
        *(
            "/api/runs",
            "/api/runs/x/cancel",
            "/api/runs/x/moment/-1",
            f"/api/runs/x/moment/{9**999}",
            "/api/runs/x/export/exe",
        ),
        *("/api/stored", "/api/stored/x/open", "/api/sweeps/x", "/api/sweeps/x/diagram"),
        *("/static/main.js", "/static/\x00", "/%00", "/api/sweeps/x/open", "/favicon.ico"),
    ]
    page = server.page()
    seen: dict[int, int] = {}
    own = {"content-type": "application/json", "origin": server.address.rstrip("/")}
    for _ in range(1000):
        path = chance.choice(paths).replace("\x00", "%00")
        if chance.random() < 0.3:
            path += "?" + "".join(chance.choices(string.ascii_letters + "=&%;", k=20))
        method = chance.choice(("GET", "POST", "POST", "POST", "PUT", "DELETE", "OPTIONS", "BREW"))
        headers = dict(own) if chance.random() < 0.8 else {"x": "y" * chance.randrange(2000)}
        body = json.dumps(_senseless(chance, page.id)) if method == "POST" else None
        status, _, answer = server.request(method, path, body, headers)
        seen[status] = seen.get(status, 0) + 1
        assert status < 500 or status == 503, (method, path, body, answer)
    assert {200, 403, 404, 405, 422} <= set(seen) and sum(seen.values()) == 1000
    assert server.get("/api/start") == before
    for run in {event["run"] for event in _told(page)}:
        server.post(f"/api/runs/{run}/forget", {"session": page.id}, status=None) if run else None
    assert page.until(page.run(QUICK), "settled", "failed")[-1]["type"] == "settled"


def _told(page) -> list[dict]:
    """The events of a page so far, of runs that are not forgotten."""
    found: dict[str, dict] = {}
    with page.stream(timeout=1) as events:
        try:
            for event in events:
                found[event["run"]] = event
        except TimeoutError:
            pass
    return [event for event in found.values() if event["type"] != "forgotten"]


def _senseless(chance: random.Random, session: str) -> dict:
    """A body that has something to do with what is asked for."""
    values = [0, -1, 1e308, "x" * 1000, None, True, [], {}, [[1]], "drop table", "\u0000", 2**63]

    def config() -> dict:
        mended = json.loads(json.dumps(STAIRCASE))
        section = chance.choice(("task", "model", "flow", "risk", "save", "seed", "name"))
        if isinstance(mended.get(section), dict):
            mended[section][chance.choice(("kind", "heads", "eigenvalues", "zzz"))] = chance.choice(
                values
            )
        else:
            mended[section] = chance.choice(values)
        return mended

    return {
        "session": session if chance.random() < 0.5 else chance.choice(values),
        "config": config() if chance.random() < 0.8 else chance.choice(values),
        "field": chance.choice(["model.kind", "task.x.y", "", None, 3, "flow.kind", "name"]),
        "value": chance.choice(values),
        "x": chance.choice(values),
        "title": chance.choice(values),
    }


def test_what_is_not_http_and_what_never_ends_leave_the_server_alive(server):
    host, port = server.host.split(":")
    for content in (b"\x00" * 5000, b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000, b"hello\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            try:
                connection.sendall(content)
                connection.recv(100)
            except OSError:
                pass
    assert server.get("/api/start")["version"]


# The end ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_worker_that_is_killed_fails_its_run_and_nothing_else(server):
    # Late in this file: a fresh worker has to read everything again that was compiled.
    page = server.page()
    run = page.run(ENDLESS)
    page.until(run, "points")
    for pid in server.workers():
        os.kill(pid, signal.SIGKILL)
    failed = page.until(run, "failed", "settled", timeout=20)[-1]
    assert failed["type"] == "failed" and "ended unexpectedly" in failed["message"]
    assert server.get("/api/start")["presets"]
    again = page.until(page.run(QUICK), "settled", "failed", timeout=60)
    assert again[-1]["type"] == "settled"


def test_an_interrupt_ends_the_server_and_its_workers_and_leaves_nothing(tmp_path):
    with serving("--workers", "1", folder=tmp_path) as server:
        page = server.page()
        with page.stream():
            assert wait_for(lambda: len(server.workers()) == 1)
            pids = server.workers()
            server.process.send_signal(signal.SIGINT)
            assert server.process.wait(10) == 0
        assert [path.name for path in server.temporary.iterdir()] == ["log"]
    assert wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    assert list(tmp_path.iterdir()) == []


def test_workers_end_when_the_server_is_killed(tmp_path):
    with serving("--workers", "1", folder=tmp_path) as server:
        assert wait_for(lambda: len(server.workers()) == 1)
        pids = server.workers()
        server.process.kill()
        server.process.wait(10)
        assert wait_for(lambda: not any(_alive(pid) for pid in pids))


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


REMOTE = ("0.0.0.0", "::", "", "192.0.2.1", "example.org")


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--port", "70000"], "`--port` = 70000"),
        (["--workers", "0"], "`--workers` = 0"),
        (["--root", "nowhere"], "`--root` = 'nowhere' is not a folder"),
        (["--host", "300.1.1.1", "--allow-remote"], "`--host` = '300.1.1.1' cannot be used"),
        *((["--host", host], f"`--host` = {host!r} is one that others may") for host in REMOTE),
        (["--colour", "red"], "--colour"),
    ],
)
def test_bad_flags_get_one_sentence_and_exit_code_two(flags, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["explore", "--no-browser", *flags]) == 2
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1 and list(tmp_path.iterdir()) == []


def test_a_server_that_others_can_reach_prints_a_token_and_asks_for_it(tmp_path):
    options = ("--host", "0.0.0.0", "--allow-remote", "--workers", "1")
    with serving(*options, folder=tmp_path) as server:
        token = server.opened.partition("?token=")[2]
        assert server.host.startswith("127.0.0.1:") and len(token) >= 40
        assert server.request("GET", "/")[0] == server.request("GET", "/api/start")[0] == 401
        assert server.request("GET", "/api/start?token=" + token)[0] == 401
        status, headers, _ = server.request("GET", f"/?token={token}")
        assert status == 200
        cookie = {"cookie": headers["set-cookie"].partition(";")[0]}
        assert server.request("GET", "/api/start", None, cookie)[0] == 200
        assert server.request("GET", "/", None, cookie)[0] == 200


def test_a_port_that_is_taken_is_refused(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["explore", "--no-browser", "--port", str(port)]) == 2
    assert f"`--port` = {port} cannot be used" in capsys.readouterr().err
