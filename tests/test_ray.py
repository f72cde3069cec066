"""Sweeps on a Ray cluster: whatever dies, the rows are those of the local engine."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from iclflow.cli import main
from iclflow.config import InputError, to_toml
from iclflow.files import LOCK, folder_lock
from iclflow.sweeps import (
    Job,
    LocalEngine,
    RayEngine,
    Stopped,
    _ray,
    _ray_node,
    batches_of,
    parse_sweep,
)

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray")

DATA = {
    "name": "small",
    "seeds": 12,
    "batch": 2,
    "base": {
        "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20},
        "model": {"kind": "separate", "heads": 2, "scale": 0.1},
        "flow": {"kind": "gradient_descent", "learning_rate": 1e-4, "steps": 250_000},
        "save": {"kind": "linear", "count": 11},
    },
    "measure": {"trajectories": True},
}
COUNT = 6
# Seconds to wait for what takes a few on an idle machine.
PATIENCE = 240


# A cluster on this machine --------------------------------------------------------------------


class Cluster:
    """Two nodes, each a session of processes of its own."""

    def __init__(self, folder: Path):
        # Nobody else on the network may use it; and the death of a node is noticed within seconds.
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        # A dead process refuses a check at once. The time for an answer is long: if a busy machine
        # misses it three times, Ray declares the node dead, and ends the command with code 1.
        health = {"period_ms": "500", "timeout_ms": "30000", "failure_threshold": "3"}
        health = {f"RAY_health_check_{name}": value for name, value in health.items()}
        self.environment = os.environ | token | health
        self.environment |= {"RAY_USAGE_STATS_ENABLED": "0", "TMPDIR": str(folder)}
        self.environment |= {"RAY_raylet_start_wait_time_s": str(PATIENCE)}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.folder = folder
        self._sessions: list[int] = []

    @property
    def places(self) -> Path:
        """Where batches write checkpoints: the nodes have one temporary folder."""
        return self.folder / f"iclflow-{os.getuid()}"

    def start(self) -> None:
        port = self.address.partition(":")[2]
        head = ["--head", f"--port={port}", "--node-ip-address=127.0.0.1"]
        # What would ask for more machines is left out.
        self._start(*head, "--include-dashboard=false", "--no-monitor", f"--temp-dir={self.folder}")
        # One after the other: two that start at once on one machine take each other's ports.
        self._start(f"--address={self.address}")

    def _start(self, *words: str) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *words]
        command += ["--num-cpus=1", "--num-gpus=0", "--object-store-memory=100000000"]
        log = self.folder / f"start-{len(self._sessions)}.log"
        with open(log, "w") as output:
            streams = {"stdout": output, "stderr": output, "start_new_session": True}
            node = subprocess.Popen(command, env=self.environment, **streams)
        self._sessions.append(node.pid)
        assert node.wait(PATIENCE) == 0, log.read_text()  # its processes stay, in its session

    def driver_log(self) -> str:
        """The end of what Ray logged in the last command: its C++ code can end a process."""
        logs = self.folder.glob("session_latest/logs/python-core-driver-*")
        newest = max(logs, key=os.path.getmtime, default=None)
        return "" if newest is None else newest.read_text(errors="replace")[-5000:]

    def close(self) -> None:
        for node in range(len(self._sessions)):
            self.kill(node)

    def kill(self, node: int) -> None:
        """All processes of a node at once, as when its machine loses power."""
        send(signal.SIGKILL, self._processes(node))

    @contextlib.contextmanager
    def frozen(self, node: int, driver: subprocess.Popen) -> Iterator[None]:
        """A node that is at a batch and stays there, however quick the machine is."""
        stopped: list[int] = []

        def caught() -> bool:
            stopped[:] = self._at_a_batch(node)
            send(signal.SIGSTOP, stopped)
            if stopped and stopped == self._at_a_batch(node):
                return True
            send(signal.SIGCONT, stopped)  # it was over in the meantime
            return False

        wait_for(caught, driver)
        try:
            yield
        finally:
            send(signal.SIGCONT, stopped)

    def _at_a_batch(self, node: int) -> list[int]:
        """The processes that Ray calls so while they are at one."""
        found = self._processes(node).items()
        return [process for process, name in found if name == b"ray::batch_of_a_sweep"]

    def _processes(self, node: int) -> dict[int, bytes]:
        """What runs in the session of a node, and what it is called."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                session = int((folder / "stat").read_text().rpartition(")")[2].split()[3])
                if session == self._sessions[node]:
                    name = (folder / "cmdline").read_bytes()
                    found[int(folder.name)] = name.strip(b"\0 ")
        return found


def send(number: signal.Signals, processes: Sequence[int] | dict[int, bytes]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Sockets are in it: its path must be short.
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    started = Cluster(folder)
    try:
        started.start()
        yield started
    finally:
        started.close()
        shutil.rmtree(folder, ignore_errors=True)


def command(folder: Path, *words: str) -> list[str]:
    file = folder.parent / "small.toml"
    file.write_text(to_toml(DATA))
    program = [sys.executable, "-m", "iclflow", "sweep", str(file), "--out", str(folder)]
    return [*program, "--json", *words]


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> dict[str, bytes]:
    """What the local engine leaves, in this process: it compiles as the nodes do."""
    folder = tmp_path_factory.mktemp("local") / "out"
    with pytest.MonkeyPatch.context() as patch:
        leave_alone(patch)
        assert main(command(folder)[3:]) == 0
    return contents(folder)


def leave_alone(patch: pytest.MonkeyPatch) -> None:
    """Leaves this process and the user's compile cache as they are, whatever command runs here."""
    patch.setattr("iclflow.cli._sweep.start", lambda processor_only: None)
    patch.setattr("iclflow.cli._sweep.use_one_thread", lambda: None)


def contents(folder: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name != "manifest.json"}


def parts(folder: Path) -> int:
    return len(list((folder / "parts").glob("*.parquet")))


def wait_for(condition: Callable[[], bool], driver: subprocess.Popen) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if driver.poll() is not None:
            pytest.fail(f"The command ended with {driver.returncode}: {driver.communicate()}")
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)  # to look at all processes takes milliseconds


# A command in whose process some things that cannot work were tried first, on the same cluster.
ERRORS = """
import json, os, sys
from pathlib import Path
import ray
from iclflow.cli import main
from iclflow.sweeps import RayEngine, _ray
from iclflow.sweeps import Batch, Job, parse_sweep

def dying(order, batch):
    os._exit(1)

def refused(batch):
    try:
        next(RayEngine().compute(Job(parse_sweep(data), [batch], Path("none"), 9.0)))
    except Exception as error:
        print(type(error).__name__, error, sep=": ", flush=True)

address, data, words = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]
ray.init(address, log_to_driver=False, logging_level="CRITICAL")
refused(Batch(0, (1000,), 2, True))
real = _ray.versions, _ray.batch_task, _ray._RETRIES
_ray.versions = lambda: {"iclflow": "9.9"}
refused(Batch(0, (0,), 2, True))
_ray.batch_task, _ray._RETRIES = lambda: dying, 1
refused(Batch(7, (0,), 2, True))
_ray.versions, _ray.batch_task, _ray._RETRIES = real
sys.exit(main(words))
"""


def what_cannot_work_is_said_and_not_tried_forever(lines: list[str]) -> None:
    raised, other, dead = lines
    assert raised == "IndexError: tuple index out of range\n"  # as the local engine would say
    assert other.startswith(f"InputError: Node {socket.gethostname()} has iclflow ")
    assert "must be 9.9, as where the sweep was started" in other
    assert dead.startswith("OSError: Batch 7 was given up after 2 attempts")


@needs_ray
@pytest.mark.slow
@pytest.mark.timeout(4 * PATIENCE)
def test_deaths_of_a_node_and_of_the_command_change_no_row(cluster, table, tmp_path):
    folder = tmp_path / "out"
    words = command(folder, "--engine", "ray", "--address", cluster.address)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    with subprocess.Popen(words, env=cluster.environment, **pipes) as driver:
        with cluster.frozen(1, driver):
            before = parts(folder)
            cluster.kill(1)
        wait_for(lambda: parts(folder) > before, driver)  # it goes on with the other
        with cluster.frozen(0, driver):
            driver.terminate()
            time.sleep(0.2)  # it is told to stop; only now can the batch end
        _, errors = driver.communicate(timeout=PATIENCE)
    stopped = parts(folder)
    assert driver.returncode == 130, f"{stopped} parts: {errors}\n{cluster.driver_log()}"
    assert before < stopped < COUNT
    kept = f"{2 * stopped} of {2 * COUNT} runs are in {folder}"
    again = f"`iclflow sweep {folder / 'sweep.toml'} --out {folder}`"
    sentence = f"iclflow: interrupted; {kept}; {again} resumes (on this machine alone).\n"
    assert errors.startswith(sentence)  # and before it nothing of Ray's own

    with subprocess.Popen(
        [sys.executable, "-c", ERRORS, cluster.address, json.dumps(DATA), *words[3:]],
        # Ray is loaded by the program that uses the engine, which then says how much Ray may say.
        env=cluster.environment | {"RAY_DEDUP_LOGS_SKIP_REGEX": "."},
        **pipes,
    ) as driver:
        assert driver.stdout is not None and driver.stderr is not None
        what_cannot_work_is_said_and_not_tried_forever([driver.stdout.readline() for _ in range(3)])
        with cluster.frozen(0, driver):
            driver.kill()
        assert driver.stderr.read() == ""
    killed = parts(folder)
    assert stopped <= killed < COUNT

    # Of a batch that died here and was computed elsewhere; other sweeps keep theirs.
    left, other = (cluster.places / f"{name}-0-0001" for name in (sweep_hash()[:16], "other"))
    left.mkdir(parents=True)
    other.mkdir()
    done = subprocess.run(words, env=cluster.environment, capture_output=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, b"")  # nothing of Ray's own
    assert json.loads(done.stdout)["statistics"]["devices"] == {"cpu": COUNT - killed}
    assert contents(folder) == table
    assert list(cluster.places.iterdir()) == [other]


def sweep_hash() -> str:
    return parse_sweep(DATA).hash


# Without a cluster ----------------------------------------------------------------------------


@pytest.fixture
def away_from_home(tmp_path, monkeypatch):
    """Works in an empty folder, and leaves this process and the user's compile cache alone."""
    monkeypatch.chdir(tmp_path)
    leave_alone(monkeypatch)
    Path("small.toml").write_text(to_toml(DATA))


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--address", "h:1"], "`--address` = h:1 needs --engine ray"),
        (["--engine", "rays"], "invalid choice: 'rays'"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(words, sentence, away_from_home, capsys):
    assert main(["sweep", "small.toml", "--out", "out", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("out").exists()


@needs_ray
@pytest.mark.parametrize("address", ["ray://h:1", "h", "h:65536"])
def test_an_address_that_cannot_be_is_refused(address):
    with pytest.raises(InputError, match=f"`address` = '{address}': must be HOST:PORT"):
        RayEngine(address)


@needs_ray
def test_an_address_where_nobody_is_is_refused(away_from_home, capsys):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and nobody listens
        address = f"127.0.0.1:{held.getsockname()[1]}"
        words = ["sweep", "small.toml", "--out", "out", "--engine", "ray", "--address", address]
        assert main(words) == 2
    assert f"`--address` = {address!r} cannot be reached" in capsys.readouterr().err
    assert not Path("out").exists()


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"pip install 'iclflow\[ray\]'"):
        RayEngine()


@pytest.fixture
def node(monkeypatch, tmp_path):
    """This process as one of a node, and the folder for what it writes."""
    monkeypatch.setenv("NPROC", "1")  # so that what a node sets is as before in the end
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


SHORT = DATA | {
    "seeds": 3,
    "base": DATA["base"] | {"flow": DATA["base"]["flow"] | {"steps": 50}},
}


def order(sweep, gpu=False):
    return _ray_node.versions(), sweep.data, sweep.hash, 0.0, gpu, "stop"


def computed_here(sweep, batches, folder, every=10.0):
    return list(LocalEngine().compute(Job(sweep, batches, folder, every)))


def test_a_node_computes_what_the_local_engine_does(node):
    sweep = parse_sweep(SHORT)
    batches = batches_of(sweep)
    here = computed_here(sweep, batches, node / "local")
    for batch, finished in zip(batches, sorted(here, key=lambda each: each.batch.number)):
        rows, trajectories, _ = _ray_node.work(order(sweep), dataclasses.asdict(batch))
        assert (rows, trajectories) == (finished.rows, finished.trajectories)
    left = [path for path in node.rglob("*") if path.is_file() and "local" not in path.parts]
    assert left == []


def test_a_node_refuses_what_would_give_other_rows(node):
    sweep = parse_sweep(SHORT)
    batch = dataclasses.asdict(batches_of(sweep)[0])
    versions, data, fingerprint, *rest = order(sweep)
    with pytest.raises(InputError, match="has jax 0.* must be 1.2, as where the sweep"):
        _ray_node.work((versions | {"jax": "1.2"}, data, fingerprint, *rest), batch)
    with pytest.raises(InputError, match="has another iclflow"):
        _ray_node.work((versions, data, "another", *rest), batch)


@needs_ray
@pytest.mark.parametrize("left", [[], ["late"]])
def test_a_request_to_stop_is_withdrawn_once_all_batches_have_stopped(left, monkeypatch):
    import ray
    from ray.experimental import internal_kv

    store: dict[str, bytes] = {}
    monkeypatch.setattr(internal_kv, "_internal_kv_put", store.__setitem__)
    monkeypatch.setattr(internal_kv, "_internal_kv_del", store.pop)
    monkeypatch.setattr(ray, "wait", lambda running, **_: ([], left))
    _ray._stop(["a batch"], "key")
    assert list(store) == (["key"] if left else [])


def test_a_node_stops_on_request_and_resumes(node, monkeypatch):
    sweep = parse_sweep(SHORT)
    batch = batches_of(sweep)[0]
    (finished,) = computed_here(sweep, [batch], node / "local")
    plain = dataclasses.asdict(batch)
    requests = iter([False, True])  # it has begun when the request comes
    monkeypatch.setattr(_ray_node, "_CHECK_STOP", 0.0)
    monkeypatch.setattr(_ray_node, "is_stop_requested", lambda key: next(requests))
    with pytest.raises(Stopped):
        _ray_node.work(order(sweep), plain)
    assert any(_ray_node.place(sweep.hash, batch.number).glob("*.checkpoint.*"))
    monkeypatch.setattr(_ray_node, "is_stop_requested", lambda key: True)
    with pytest.raises(Stopped):  # one that has not begun does not begin
        _ray_node.work(order(sweep), plain)
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(node))
    rows, trajectories, _ = _ray_node.work(order(sweep), plain)
    assert (rows, trajectories) == (finished.rows, finished.trajectories)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="JAX can use a GPU here")
def test_a_node_refuses_a_gpu_that_its_jax_cannot_use(node):
    sweep = parse_sweep(SHORT)
    with pytest.raises(InputError, match="has a GPU that its JAX cannot use"):
        _ray_node.work(order(sweep, gpu=True), dataclasses.asdict(batches_of(sweep)[0]))


def test_numpy_has_one_thread_in_every_process_of_a_node(monkeypatch):
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    for name in names:
        monkeypatch.setenv(name, "7")
    monkeypatch.setattr(_ray_node, "work", lambda *_: [os.environ[name] for name in names])
    assert _ray_node.batch_task()((), {}) == ["1"] * 3  # other numbers of threads are other bits


# What is left behind --------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["cut", "another run"])
def test_a_node_computes_anew_what_a_checkpoint_of_no_use_stands_for(damage, node):
    sweep, other = parse_sweep(SHORT), parse_sweep(SHORT | {"seeds": [7, 8, 9]})
    batch = batches_of(sweep)[0]
    (finished,) = computed_here(sweep, [batch], node / "local")
    folder = _ray_node.place(sweep.hash, batch.number)
    folder.mkdir(parents=True)
    computed_here(other, batches_of(other)[:1], folder, every=0.0)
    (file,) = folder.iterdir()
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InputError, match="is damaged|belongs to another run"):
        computed_here(sweep, [batch], folder)
    rows, trajectories, _ = _ray_node.work(order(sweep), dataclasses.asdict(batch))
    assert (rows, trajectories) == (finished.rows, finished.trajectories)
    assert not folder.exists()


def test_a_batch_goes_on_from_what_a_dead_process_of_its_node_left(node):
    class Killed(Exception):
        pass

    place = node / "place"
    with pytest.raises(Killed), _ray_node.hold_place(place) as folder:
        (folder / "0000-0.checkpoint.safetensors").write_text("half")
        raise Killed
    with _ray_node.hold_place(place) as folder:
        assert (folder / "0000-0.checkpoint.safetensors").read_text() == "half"
    assert not folder.exists()
    with _ray_node.hold_place(place) as folder:
        (folder / "mine.txt").write_text("mine")
    assert (folder / "mine.txt").read_text() == "mine"
    with folder_lock(place), _ray_node.hold_place(place) as other:  # one that is not dead yet
        assert other != place and list(other.iterdir()) == []
    assert not other.exists()


def test_other_versions_have_other_places_and_a_complete_sweep_has_none(node, monkeypatch):
    places = [_ray_node.place("a" * 64, 1)]
    monkeypatch.setattr(_ray_node, "versions", lambda: {"iclflow": "9.9"})
    places += [_ray_node.place("a" * 64, 1), _ray_node.place("a" * 64, 2)]
    another = _ray_node.place("b" * 64, 1)
    assert len({*places, another}) == 4
    for folder in (*places, another):
        folder.mkdir(parents=True)
    with folder_lock(places[2]):  # another command computes the same sweep
        _ray_node.remove_places("a" * 64)
        assert [folder.exists() for folder in (*places, another)] == [False, False, True, True]
    _ray_node.remove_places("a" * 64)
    assert list(another.parent.iterdir()) == [another]
    _ray_node.remove_places("b" * 64)
    assert list(node.iterdir()) == []


@pytest.mark.parametrize("alive, died", [(True, False), (False, False), (True, True)])
def test_the_death_of_the_raylet_is_named(alive, died, monkeypatch):
    context = SimpleNamespace(get_node_id=lambda: "here")
    nodes = [{"NodeID": "here", "Alive": alive}, {"NodeID": "there", "Alive": False}]
    fake = SimpleNamespace(get_runtime_context=lambda: context, nodes=lambda: nodes)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(_ray, "_own_raylet_died", lambda: died)
    if alive and not died:
        return _ray._check_raylet()
    with pytest.raises(OSError, match="The raylet of Ray on this machine died"):
        _ray._check_raylet()


def test_what_a_killed_command_left_of_its_own_ray_is_removed_by_the_next(node):
    dead, mine = node / "iclflow-ray-dead", node / "iclflow-ray-notes"
    (dead / "session").mkdir(parents=True)
    (dead / LOCK).touch()
    mine.mkdir()
    with _ray._make_own_folder() as first:
        assert not dead.exists()
        with _ray._make_own_folder() as second:
            assert first != second and first.exists() and second.exists()
        assert first.exists() and not second.exists()
    assert list(node.iterdir()) == [mine]
