"""Parts of the explorer that need neither a server nor a browser."""

import asyncio
import contextlib
import itertools
import json
import logging
import multiprocessing
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import uvicorn

from explorer_client import STAIRCASE, Asgi, wait_for
from iclflow.config import parse_config
from iclflow.explorer import _connections, _pool
from iclflow.explorer._app import build_application
from iclflow.explorer._changes import change_config, check_config
from iclflow.explorer._channel import Message
from iclflow.explorer._connections import (
    BACKLOG,
    EVENTS,
    MOST_STREAMS,
    LimitedProtocol,
    RateLimit,
    most_connections,
)
from iclflow.explorer._exports import as_csv, as_json, as_program, as_toml
from iclflow.explorer._hub import Hub, make_checkpoint_folder
from iclflow.explorer._limits import LIMITS, RequestError, describe_limits
from iclflow.explorer._pool import Pool, Worker
from iclflow.explorer._presets import presets
from iclflow.explorer._queue import FairQueue
from iclflow.explorer._run_data import Points, RunData
from iclflow.explorer._session import Run, Session
from iclflow.explorer._stored import StoredRuns
from iclflow.files import write_own
from iclflow.runtime import WorkerProcess

KINDS = {
    "flow": ("gradient_flow", "gradient_descent", "sgd", "adam"),
    "task": (
        *("linear_regression", "in_context_in_weight", "multi_task", "quadratic", "sparse"),
        *("two_layer_relu", "decision_tree", "hermite", "finite_tasks"),
    ),
    "model": (
        *("merged", "separate", "structured", "factored", "stack", "linear_stack"),
        *("multi_merged", "multi_factored", "multi_structured", "multi_blind", "multi_spectral"),
    ),
}


def new_run(session: Session, folder: Path, config: dict = STAIRCASE) -> Run:
    run = Run(session, parse_config(config), "a run", "run", {}, None, folder)
    session.runs[run.id] = run
    return run


# Changes ----------------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("section", KINDS)
def test_every_kind_can_be_chosen_from_presets_of_all_papers(section):
    for preset, kind in itertools.product(presets()[::5], KINDS[section]):
        given = preset.config.given()
        try:
            config, others = change_config(given, f"{section}.kind", kind)
        except RequestError as refusal:
            # Tasks that overlap have no singular values of their own.
            assert "must not overlap" in str(refusal) and preset.id == "softmax/two-tasks"
            continue
        assert getattr(config, section).kind == kind
        assert f"{section}.kind" not in others


def test_a_change_that_works_changes_nothing_else():
    config, others = change_config(parse_config(STAIRCASE).given(), "model.heads", 2)
    assert config.model.heads == 2 and others == []


def test_a_change_of_kind_keeps_what_the_new_kind_knows_too():
    config, others = change_config(parse_config(STAIRCASE).given(), "model.kind", "merged")
    assert (config.model.kind, config.model.heads, config.model.scale) == ("merged", 4, 1e-2)
    assert others == []


def test_a_stack_of_steps_begins_with_its_exact_flow():
    given = parse_config(STAIRCASE).given()
    config, _ = change_config(given, "model.kind", "linear_stack")
    assert config.exact and config.flow.kind == "gradient_flow"
    for weights in ("scalar", "diagonal", "merged", "separate"):
        config, others = change_config(config.given(), "model.weights", weights)
        assert config.exact and others == []


def test_what_had_to_change_as_well_is_told():
    config, others = change_config(parse_config(STAIRCASE).given(), "model.activation", "softmax")
    assert config.model.softmax and not config.exact
    assert others and "model.activation" not in others


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("unknown", ["nonsense", "", None, 3, ["merged"], {}])
def test_a_kind_that_nobody_knows_gives_way_or_is_refused(unknown):
    given = parse_config(STAIRCASE).given()
    lost = {**given, "model": {**given["model"], "kind": unknown}}
    config, _ = change_config(lost, "model.kind", "merged")
    assert config.model.kind == "merged" and config.model.heads == 4
    for settings in (given, lost):
        with pytest.raises(RequestError) as refusal:
            change_config(settings, "model.kind", unknown)
        assert refusal.value.status == 400 and str(refusal.value).endswith(".")
    with pytest.raises(RequestError, match="model.kind"):
        change_config(lost, "model.heads", 2)


def test_a_change_that_cannot_work_is_refused_at_its_setting():
    with pytest.raises(RequestError) as refusal:
        change_config(parse_config(STAIRCASE).given(), "model.rank", 9)
    assert refusal.value.field == "model.rank" and "must not exceed" in str(refusal.value)


@pytest.mark.parametrize(
    "config, field",
    [
        ({**STAIRCASE, "model": {"kind": "separate", "heads": 17}}, "model.heads"),
        ({**STAIRCASE, "task": {**STAIRCASE["task"], "context": 2001}}, "task.context"),
        (
            {**STAIRCASE, "task": {"kind": "linear_regression", "eigenvalues": [1.0] * 33}},
            "task.eigenvalues",
        ),
        (
            {**STAIRCASE, "flow": {"kind": "adam", "learning_rate": 1.0, "steps": 10**6}},
            "flow.steps",
        ),
        ({**STAIRCASE, "colour": 1}, "colour"),
        ([], "config"),
        ({**STAIRCASE, "task": {"kind": "linear_regression"}}, "task.eigenvalues"),
    ],
)
def test_what_is_too_large_or_wrong_is_refused_with_the_name_of_its_setting(config, field):
    with pytest.raises(RequestError) as refusal:
        check_config(config)
    assert refusal.value.field == field and str(refusal.value).endswith((".", "?"))


def test_every_limit_is_stated_to_the_page_and_no_preset_is_beyond_one():
    told = describe_limits()
    assert {limit.words for limit in LIMITS} <= {entry["words"] for entry in told}
    for preset in presets():
        assert check_config(preset.config.given()) == preset.config


@pytest.mark.parametrize(
    ("section", "settings", "field"),
    (
        ("model", {"rank": 9}, "model.rank"),
        ("task", {"eigenvalues": [1.0, -1.0]}, "task.eigenvalues"),
    ),
)
def test_a_refusal_names_the_setting_that_it_is_about(section, settings, field):
    config = presets()[0].config.given()
    with pytest.raises(RequestError) as caught:
        check_config({**config, section: {**config[section], **settings}})
    assert caught.value.field == field and f"`{field}" in str(caught.value)


# The queue --------------------------------------------------------------------------------------


def test_pages_take_turns_whoever_asked_for_more(tmp_path):
    greedy, modest = Session(), Session()
    queue = FairQueue()
    first, second, third = (new_run(greedy, tmp_path) for _ in range(3))
    for run in (first, second, third):
        queue.add(run)
    late = new_run(modest, tmp_path)
    queue.add(late)
    assert list(queue.order()) == [first, late, second, third]
    assert [queue.next() for _ in range(5)] == [first, late, second, third, None]


def test_a_run_that_is_taken_out_of_the_queue_leaves_the_others(tmp_path):
    page = Session()
    queue = FairQueue()
    runs = [new_run(page, tmp_path) for _ in range(3)]
    for run in runs:
        queue.add(run)
    assert queue.remove(runs[1]) and not queue.remove(runs[1])
    assert len(queue) == 2 and list(queue.order()) == [runs[0], runs[2]]
    assert not queue.waits_besides(page.id) and queue.waits_besides("another")


# Events and points ------------------------------------------------------------------------------


def test_only_the_newest_word_of_how_far_a_run_is_stays(tmp_path):
    page = Session()
    run = new_run(page, tmp_path)
    page.publish(run, "queued", place=3, config={})
    for place in (2, 1):
        page.publish(run, "queued", place=place)
        page.publish(run, "progress", steps=place)
    told = [json.loads(text) for _, text in page.after(0)]
    assert [(e["type"], e.get("place", e.get("steps"))) for e in told] == [
        ("queued", 3),
        ("queued", 1),
        ("progress", 1),
    ]


def test_a_stream_that_comes_back_gets_exactly_what_it_missed(tmp_path):
    page = Session()
    run = new_run(page, tmp_path)
    for i in range(5):
        page.publish(run, "points", step=i)
    events = page.after(0)
    assert [json.loads(text)["step"] for _, text in events] == [0, 1, 2, 3, 4]
    assert page.after(events[2][0]) == events[3:] and page.after(events[-1][0]) == []


def test_a_run_that_is_forgotten_takes_its_events_with_it(tmp_path):
    page = Session()
    kept, dropped = new_run(page, tmp_path), new_run(page, tmp_path)
    for run in (kept, dropped, kept):
        page.publish(run, "points")
    page.forget(dropped)
    told = [json.loads(text) for _, text in page.after(0)]
    assert [(event["run"] == kept.id, event["type"]) for event in told] == [
        (True, "points"),
        (True, "points"),
        (False, "forgotten"),
    ]


def test_waiting_for_events_ends_when_there_is_one(tmp_path):
    async def waited() -> int:
        page = Session()
        run = new_run(page, tmp_path)
        asyncio.get_running_loop().call_later(0.05, page.publish, run, "progress")
        await asyncio.wait_for(page.wait(30), 5)
        return len(page.after(0))

    assert asyncio.run(waited()) == 1


def points(start: int, times: list[float]) -> tuple[int, Points, dict]:
    values = np.asarray(times)
    frames = {start + i: {"KQ": np.full((2, 1, 1), t, np.float32)} for i, t in enumerate(times)}
    lines = {"mu": np.stack([values, -values], 1)}
    return start, Points(values, -values, lines, [["idle", "idle"]] * len(times)), frames


def test_points_replace_those_that_were_provisional():
    data = RunData()
    data.add(*points(0, [0.0, 1.0, 1.5]))
    data.add(*points(2, [2.0, 3.0]))
    joined = data.points()
    assert joined.times.tolist() == [0, 1, 2, 3] and data.count == 4
    assert joined.lines["mu"][:, 1].tolist() == [0, -1, -2, -3] and len(joined.roles) == 4
    assert [float(data.frame(i)[1]["KQ"][0, 0, 0]) for i in range(4)] == [0, 1, 2, 3]


def test_points_that_were_handed_out_never_change():
    data = RunData()
    data.add(*points(0, [0.0, 1.0, 1.5]))
    before = data.points()
    data.add(*points(2, [2.0, 3.0]))
    assert before.times.tolist() == [0, 1, 1.5] and len(before.roles) == 3


def test_a_moment_without_weights_of_its_own_has_those_before_it():
    data = RunData()
    start, given, frames = points(0, [0.0, 1.0, 2.0])
    del frames[1]
    data.add(start, given, frames)
    place, frame = data.frame(1)
    assert place == 0 and frame["KQ"][0, 0, 0] == 0.0


# Workers ----------------------------------------------------------------------------------------


class _Process(WorkerProcess):
    """A process that never runs, and hears nothing."""

    def __init__(self):
        pass

    def send(self, message) -> None:
        pass

    def kill(self) -> None:
        pass

    def close(self, kill: bool = True) -> None:
        pass


def _told(page: Session) -> list[dict]:
    return [json.loads(text) for _, text in page.after(0)]


def test_a_process_that_cannot_start_is_tried_again_and_the_page_is_told_why(monkeypatch, caplog):
    failures = [OSError(24, "Too many open files"), RuntimeError("can't start new thread")]
    starts: list[float] = []

    def start_one(pool) -> None:
        starts.append(time.monotonic())
        if failures:
            raise failures.pop(0)
        pool.workers.append(Worker(_Process()))

    async def watched() -> list[dict]:
        hub = Hub(1)
        await hub.start()
        page = hub.new_session()
        run = hub.submit(page, parse_config(STAIRCASE), "a run")
        with pytest.raises(RequestError, match="Too many open files.*tries again") as refusal:
            await hub.scheduler.ask("sweep", {})
        assert refusal.value.status == 503
        while not hub.scheduler.pool.workers:
            hub._tick(time.monotonic())
            await asyncio.sleep(0.005)
        (worker,) = hub.scheduler.pool.workers
        hub.scheduler.pool._receive(worker, Message(0, "ready", None))
        assert run.state == "running" and hub.scheduler.pool.failure is None
        # One that dies is replaced, whatever became of its run.
        hub.scheduler.pool._died(worker, -9)
        assert len(hub.scheduler.pool.workers) == 1 and run.state == "failed"
        await hub.close()
        return _told(page)

    monkeypatch.setattr(Pool, "_start_one", start_one)
    monkeypatch.setattr(_pool, "_FIRST_RETRY", 0.02)
    events = asyncio.run(watched())
    reasons = [event["why"] for event in events if event["type"] == "queued"]
    assert "Too many open files" in reasons[0] and "new thread" in reasons[1]
    assert [event["type"] for event in events][-2:] == ["started", "failed"]
    # Once a failure, and each time later: nobody starts processes in a busy loop.
    assert len(starts) == 4 and starts[1] - starts[0] >= 0.02 and starts[2] - starts[1] >= 0.04
    assert [r.levelname for r in caplog.records if "could not start" in r.message] == ["ERROR"] * 2


def test_a_process_that_starts_halfway_leaves_nothing(monkeypatch):
    ended = []
    ours, theirs = (SimpleNamespace(close=lambda name=name: ended.append(name)) for name in "ot")
    process = SimpleNamespace(
        start=lambda: None, join=lambda _: None, kill=lambda: ended.append("process")
    )
    context = SimpleNamespace(Pipe=lambda: (ours, theirs), Process=lambda **_: process)

    def no_thread(*arguments, **options):
        def start() -> None:
            raise RuntimeError("can't start new thread")

        return SimpleNamespace(start=start)

    monkeypatch.setattr(multiprocessing, "get_context", lambda name: context)
    monkeypatch.setattr(_pool.threading, "Thread", no_thread)
    pool = Pool(1, lambda *_: None, lambda *_: None)
    with pytest.raises(RuntimeError):
        pool._start_one()
    assert sorted(ended) == ["o", "process", "t"] and pool.workers == []


def test_a_page_and_a_client_have_only_so_many_streams(monkeypatch):
    hub = Hub(0)
    page, other = hub.new_session(), hub.new_session()
    for _ in range(MOST_STREAMS):
        hub.open_stream(page, "here")
    with pytest.raises(RequestError, match="This page has 4 event streams") as refusal:
        hub.open_stream(page, "here")
    assert refusal.value.status == 429
    hub.close_stream(page, "here")
    hub.open_stream(page, "here")
    monkeypatch.setattr("iclflow.explorer._hub.MOST_STREAMS_OF_CLIENT", MOST_STREAMS)
    with pytest.raises(RequestError, match="Too many pages"):
        hub.open_stream(other, "here")
    hub.open_stream(other, "elsewhere")


# Connections and logs ---------------------------------------------------------------------------


async def _plain(scope, receive, send) -> None:
    """An application that answers at once, and a stream that goes on until its reader leaves."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == EVENTS:
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
    await send({"type": "http.response.body", "body": b"answer"})


def test_connections_that_ask_for_nothing_give_way_and_are_closed(monkeypatch):
    monkeypatch.setattr(_connections, "_HEAD", 0.4)

    def attack(port: int, server: uvicorn.Server, opened: contextlib.ExitStack) -> None:
        def connect(path: str | None = None) -> socket.socket:
            made = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            if path is not None:
                made.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            return made

        stream = connect(EVENTS)
        assert b"200 OK" in stream.recv(100)
        idle = [connect() for _ in range(30)]
        assert b"200 OK" in connect("/").recv(100)
        assert len(server.server_state.connections) <= 8
        # Whoever sends a head byte by byte has no more time than others.
        with pytest.raises(OSError):
            for _ in range(100):
                idle[-1].sendall(b"G")
                time.sleep(0.02)
        for each in idle:
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(1) == b""
        # The stream has been quiet for longer than that, and is still there.
        assert wait_for(lambda: len(server.server_state.connections) == 1)

    async def attacked() -> None:
        protocol = type("Protocol", (LimitedProtocol,), {"most": 8})
        options: dict = {"http": protocol, "lifespan": "off", "log_level": "warning", "ws": "none"}
        server = uvicorn.Server(uvicorn.Config(_plain, **options))
        monkeypatch.setattr(server, "capture_signals", contextlib.nullcontext)
        with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as opened:
            serving = asyncio.create_task(server.serve([listener]))
            port = listener.getsockname()[1]
            await asyncio.to_thread(attack, port, server, opened)
            opened.close()
            server.should_exit = True
            await serving

    asyncio.run(attacked())


def test_connections_leave_descriptors_for_everything_else(monkeypatch):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert BACKLOG + most_connections(4) + 100 <= 1024 and most_connections(4) > 700
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert most_connections(4) == 1000


def test_what_goes_wrong_again_and_again_is_logged_a_few_times():
    limit = RateLimit(most=2, seconds=0.05)
    record = lambda text: logging.LogRecord("a", logging.ERROR, "", 0, text, None, None)
    assert [limit.filter(record("full")) for _ in range(500)].count(True) == 2
    assert limit.filter(record("another"))
    time.sleep(0.06)
    later = record("full")
    assert limit.filter(later) and "498 messages like this one were left out" in later.getMessage()


# Who may ask ------------------------------------------------------------------------------------

TOKEN = "a-token-that-nobody-guesses"
ROUTES = [
    *("GET /", "GET /api/start", "GET /api/health", "POST /api/check", "POST /api/change"),
    *("POST /api/sessions", "GET /api/events?session=x", "POST /api/runs", "GET /api/stored"),
    *("GET /api/runs/x/moment/0", "GET /api/runs/x/export/png", "POST /api/runs/x/cancel"),
    *("POST /api/stored/x/open", "GET /api/sweeps/x", "GET /api/sweeps/x/diagram?x=a&value=b"),
    *("POST /api/sweeps/x/open", "GET /static/plotly.min.js", "GET /static/main.js"),
    *("GET /watch", "GET /api/watch", "GET /api/watch/events?session=x&training=y"),
    *("GET /api/watch/x/looks/0",),
    *("GET /static/presets/linear-white.svg", "GET /nothing", "PUT /", "HEAD /static/main.js"),
]


@pytest.fixture
def guarded():
    """An application that asks for a token."""
    return Asgi(lambda hosts: build_application(Hub(0), StoredRuns([]), hosts, TOKEN))


def test_every_route_is_in_the_list_of_those_that_ask_for_the_token(guarded):
    paths = {route.partition(" ")[2].partition("?")[0] for route in ROUTES}
    for route in guarded.app._app.routes:
        assert any(route.matches(guarded.scope("GET", path))[0].value for path in paths), route.path


@pytest.mark.parametrize("route", ROUTES)
def test_no_route_answers_without_the_token(guarded, route):
    method, _, path = route.partition(" ")
    mark = "&" if "?" in path else "?"
    for cookie in (None, "", f"{guarded.cookie}=", f"{guarded.cookie}={TOKEN[:-1]}", f"a={TOKEN}"):
        assert guarded.ask(method, path, cookie=cookie).status == 401, cookie
        assert guarded.ask(method, f"{path}{mark}token=é{TOKEN}", cookie=cookie).status == 401
    # In the address it is taken for pages alone: other addresses are written into logs.
    given = guarded.ask(method, f"{path}{mark}token={TOKEN}")
    assert (given.status != 401) == (path in ("/", "/watch") and method == "GET")
    assert guarded.ask(method, path, cookie=f"b=1; {guarded.cookie}={TOKEN}").status != 401


def test_the_page_takes_the_token_out_of_its_address_into_a_cookie(guarded):
    answer = guarded.ask("GET", f"/?token={TOKEN}")
    cookie = answer.headers["set-cookie"]
    assert cookie == f"{guarded.cookie}={TOKEN}; Path=/; HttpOnly; SameSite=Strict"
    assert "set-cookie" not in guarded.ask("GET", "/", cookie=cookie.partition(";")[0]).headers
    assert "set-cookie" not in guarded.ask("GET", "/?token=another").headers


@pytest.mark.parametrize(
    "host, status",
    [
        ("127.0.0.1:1", 200),
        ("192.0.2.7:1", 200),
        ("[2001:db8::1]:1", 200),
        ("192.0.2.7:2", 421),
        ("192.0.2.7", 421),
        ("a@192.0.2.7:1", 421),
        ("evil.example:1", 421),
        ("[::1:1", 421),
        ("0x7f.1:1", 421),
    ],
)
def test_with_a_token_the_numbers_of_the_machine_are_answered_for(guarded, host, status):
    cookie = f"{guarded.cookie}={TOKEN}"
    assert guarded.ask("GET", "/static/main.js", cookie=cookie, host=host).status == status
    if status == 200:
        origins = {f"http://{host}": 201, "http://evil.example": 403}
        for origin, wanted in origins.items():
            body = {"method": "POST", "path": "/api/sessions", "cookie": cookie, "host": host}
            assert guarded.ask(**body, origin=origin).status == wanted


WRONG = [None, 0, -1, 1e308, 10**400, "x" * 300, "", True, [], {}, [[1]], {"kind": "x"}]
WRONG += [{"kind": None}, {"kind": []}, {"a": {"b": {"c": [1]}}}, "\x00", "é"]


@pytest.mark.slow
def test_requests_that_make_no_sense_are_refused_and_nothing_breaks():
    site = Asgi(lambda hosts: build_application(Hub(0), StoredRuns([]), hosts))
    page = site.ask("POST", "/api/sessions").json["session"]
    model = STAIRCASE["model"]
    configs = [{**STAIRCASE, part: value} for part in ("model", "seed", "zz") for value in WRONG]
    configs += [{**STAIRCASE, "model": {**model, part: value}} for part in model for value in WRONG]
    asked = [("/api/check", {"config": config}) for config in [*configs, *WRONG]]
    asked += [("/api/runs", {"config": 3, "session": value}) for value in [*WRONG, page]]
    kinds = [{**STAIRCASE, "model": {**model, "kind": value}} for value in WRONG]
    changes = [(config, "model.kind", "merged") for config in [*kinds, *WRONG]]
    changes += [(STAIRCASE, field, value) for field in ("task.kind", "zz.kind") for value in WRONG]
    changes += [(STAIRCASE, field, 1) for field in WRONG if not isinstance(field, str)]
    changes += [(STAIRCASE, "model.kind", "nonsense")]
    for config, field, value in changes:
        asked.append(("/api/change", {"config": config, "field": field, "value": value}))
    asked += [
        ("/api/change", {}),
        ("/api/check", {}),
        ("/api/runs", {}),
        ("/api/runs/x/cancel", {}),
    ]
    asked += [("/api/sweeps/x/open", {"session": page}), ("/api/stored/x/open", {"session": page})]
    for path, body in asked:
        answer = site.ask("POST", path, body=body)
        assert answer.status in (200, 400, 404, 422), (path, body, answer)
        assert answer.json.get("ok") or answer.json["message"].endswith((".", "?"))
    last = site.ask(
        "POST", "/api/change", body=dict(zip(("config", "field", "value"), changes[-1]))
    )
    assert last.status == 400 and last.json["message"].startswith("`model.kind` = 'nonsense': must")


# Exports ----------------------------------------------------------------------------------------


def test_settings_as_a_file_are_the_same_settings(tmp_path):
    config = parse_config(STAIRCASE)
    assert parse_config(tomllib.loads(as_toml(config).decode())) == config


def test_data_as_tables_hold_every_point_and_line():
    _, given, _ = points(0, [0.0, 1.0, 2.5])
    panels = {"clock": "time", "panels": [{"id": "mu", "series": ["head 1", "head 2"]}]}
    told = {"panels": json.dumps({"type": "panels", **panels})}
    rows = as_csv(given, told).decode().splitlines()
    assert rows[0] == "time,loss,mu: head 1,mu: head 2" and rows[3] == "2.5,-2.5,2.5,-2.5"
    content = json.loads(as_json({"config": STAIRCASE}, given, told))
    assert content["times"] == [0, 1, 2.5] and content["config"] == STAIRCASE
    assert content["panels"] == panels


@pytest.mark.slow
def test_the_program_of_a_run_makes_it_again_to_the_bit(tmp_path):
    from iclflow.experiment import prepare, train

    config = parse_config(STAIRCASE)
    program = as_program(config, 'a "title"\nwith \\ odd """ parts').decode()
    (tmp_path / "again.py").write_text(program + "print(repr(float(run.trajectory.losses[-1])))\n")
    command = [sys.executable, str(tmp_path / "again.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    watched = train(prepare(config), lambda status: None, None, 500)
    assert float(done.stdout.splitlines()[-1]) == float(watched.losses[-1])


def test_folders_of_killed_servers_go_and_what_a_link_leads_to_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("iclflow.explorer._hub._is_alive", lambda pid: False)
    left = make_checkpoint_folder()
    (left / "0123456789abcdef.safetensors").write_bytes(b"of a run")
    (left / "notes.safetensors").write_bytes(b"mine")
    mine = tmp_path / "mine"
    write_own(mine, {"report.html": b"a page"})
    (mine / "0123456789abcdef.safetensors").write_bytes(b"mine")
    (tmp_path / "iclflow-explore-99-x").symlink_to(mine)
    made = make_checkpoint_folder()
    assert made.is_dir() and made != left
    assert [path.name for path in left.iterdir()] == ["notes.safetensors"]
    assert len(list(mine.iterdir())) == 3  # with the marker
