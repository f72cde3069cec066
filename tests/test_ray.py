"""Sweeps on a Ray cluster: whatever dies, the rows are those of the local engine."""

import contextlib
import dataclasses
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
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import pytest

from iclflow.cli import main
from iclflow.config import InputError, to_toml
from iclflow.engines import LocalEngine, RayEngine, _ray
from iclflow.store import folder_lock
from iclflow.sweep import batches_of, parse_sweep

DATA = {
    "name": "small",
    "seeds": 24,
    "batch": 2,
    "base": {
        "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20},
        "model": {"kind": "separate", "heads": 2, "scale": 0.1},
        "flow": {"kind": "gradient_descent", "learning_rate": 1e-4, "steps": 40_000},
        "save": {"kind": "linear", "count": 11},
    },
    "measure": {"trajectories": True},
}
COUNT = 12


# A cluster on this machine --------------------------------------------------------------------


class Cluster:
    """Three nodes, each a session of processes of its own."""

    def __init__(self, folder: Path):
        # Nobody else on the network may use it; and the death of a node is noticed within seconds.
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        health = {"period_ms": "500", "timeout_ms": "2000", "failure_threshold": "3"}
        health = {f"RAY_health_check_{name}": value for name, value in health.items()}
        self.environment = os.environ | token | health
        self.environment |= {"RAY_USAGE_STATS_ENABLED": "0", "TMPDIR": str(folder)}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._folder = folder
        self._sessions: list[int] = []

    def start(self) -> None:
        port = self.address.partition(":")[2]
        head = ["--head", f"--port={port}", "--node-ip-address=127.0.0.1"]
        self._start(*head, "--include-dashboard=false", f"--temp-dir={self._folder}")
        # One after the other: two that start at once on one machine take each other's ports.
        for _ in range(2):
            self._start(f"--address={self.address}")

    def _start(self, *words: str) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *words]
        command += ["--num-cpus=1", "--num-gpus=0", "--object-store-memory=100000000"]
        log = self._folder / f"start-{len(self._sessions)}.log"
        with open(log, "w") as output:
            streams = {"stdout": output, "stderr": output, "start_new_session": True}
            node = subprocess.Popen(command, env=self.environment, **streams)
        self._sessions.append(node.pid)
        assert node.wait(60) == 0, log.read_text()  # its processes stay, in its session

    def close(self) -> None:
        for node in range(len(self._sessions)):
            self.kill(node)

    def kill(self, node: int) -> None:
        """All processes of a node at once, as when its machine loses power."""
        for process in self._processes(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    def computes(self, node: int) -> bool:
        """Whether a process of the node is at a batch: Ray calls it so while it is."""
        return b"ray::batch_of_a_sweep" in self._processes(node).values()

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
    """What the local engine leaves."""
    folder = tmp_path_factory.mktemp("local") / "out"
    done = subprocess.run(command(folder), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return contents(folder)


def contents(folder: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name != "manifest.json"}


def parts(folder: Path) -> int:
    return len(list((folder / "parts").glob("*.parquet")))


def wait_for(condition: Callable[[], bool], driver: subprocess.Popen) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert driver.poll() is None and time.monotonic() < end, "it never came to that"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_node_that_dies_in_the_middle_changes_no_row(cluster, table, tmp_path):
    folder = tmp_path / "out"
    words = command(folder, "--engine", "ray", "--address", cluster.address)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=cluster.environment, **pipes) as driver:
        wait_for(lambda: parts(folder) > 0 and cluster.computes(2), driver)
        cluster.kill(2)
        assert 0 < parts(folder) < COUNT - 2  # at least two batches were still to come
        output, errors = driver.communicate(timeout=120)
    assert (driver.returncode, errors) == (0, "")  # nothing of Ray's own
    assert json.loads(output)["statistics"]["devices"] == {"cpu": COUNT}
    assert contents(folder) == table


@pytest.mark.slow
def test_a_driver_that_dies_in_the_middle_goes_on_where_it_stood(cluster, table, tmp_path):
    folder = tmp_path / "out"
    words = command(folder, "--engine", "ray", "--address", cluster.address)
    with subprocess.Popen(words, env=cluster.environment) as driver:
        wait_for(lambda: parts(folder) > 1, driver)
        driver.kill()
    kept = parts(folder)
    assert 1 < kept < COUNT
    done = subprocess.run(words, env=cluster.environment, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["statistics"]["devices"] == {"cpu": COUNT - kept}
    assert contents(folder) == table


ERRORS = """
import json, os, sys
from pathlib import Path
import ray
from iclflow.engines import RayEngine, _ray
from iclflow.sweep import Batch, parse_sweep

def dying(order, batch):
    os._exit(1)

def refused(batch):
    try:
        next(RayEngine().compute(parse_sweep(data), [batch], Path("none"), 9.0, lambda *_: None))
    except Exception as error:
        print(type(error).__name__, error, sep=": ")

address, data = sys.argv[1], json.loads(sys.argv[2])
ray.init(address, log_to_driver=False, logging_level="CRITICAL")
refused(Batch(0, (1000,), 2, True))
_ray._versions = lambda: {"iclflow": "9.9"}
refused(Batch(0, (0,), 2, True))
_ray._task, _ray._RETRIES = lambda: dying, 1
refused(Batch(7, (0,), 2, True))
"""


@pytest.mark.slow
def test_what_cannot_work_is_said_and_not_tried_forever(cluster):
    words = [sys.executable, "-c", ERRORS, cluster.address, json.dumps(DATA)]
    # Here Ray is loaded by the program that uses the engine, which then says how much Ray may say.
    quiet = cluster.environment | {"RAY_DEDUP_LOGS_SKIP_REGEX": "."}
    done = subprocess.run(words, env=quiet, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    raised, other, dead = done.stdout.splitlines()
    assert raised == "IndexError: tuple index out of range"  # as the local engine would say
    assert other.startswith(f"InputError: Node {socket.gethostname()} has iclflow ")
    assert "must be 9.9, as where the sweep was started" in other
    assert dead.startswith("OSError: Batch 7 was given up after 2 attempts")


# Without a cluster ----------------------------------------------------------------------------


@pytest.fixture
def away_from_home(tmp_path, monkeypatch):
    """Works in an empty folder, and leaves this process and the user's compile cache alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("iclflow.compile_cache.enable_compile_cache", lambda: None)
    for name in ("_use_one_core", "_use_one_thread"):
        monkeypatch.setattr(f"iclflow.cli._sweep.{name}", lambda: None)
    Path("small.toml").write_text(to_toml(DATA))


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["--address", "h:1"], "`--address` = h:1 needs --engine ray"),
        (["--engine", "rays"], "invalid choice: 'rays'"),
        (["--engine", "ray", "--address", "ray://h:1"], "must be HOST:PORT"),
        (["--engine", "ray", "--address", "h"], "must be HOST:PORT"),
        (["--engine", "ray", "--address", "h:65536"], "must be HOST:PORT"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(words, sentence, away_from_home, capsys):
    assert main(["sweep", "small.toml", "--out", "out", *words]) == 2
    assert sentence in capsys.readouterr().err
    assert not Path("out").exists()


def test_an_address_where_nobody_is_is_refused(away_from_home, capsys):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # taken, and nobody listens
        address = f"127.0.0.1:{held.getsockname()[1]}"
        words = ["sweep", "small.toml", "--out", "out", "--engine", "ray", "--address", address]
        assert main(words) == 2
    assert f"`--address` = {address} cannot be reached" in capsys.readouterr().err
    assert not Path("out").exists()


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(_ray.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"pip install 'iclflow\[ray\]'"):
        RayEngine()


@pytest.fixture
def node(monkeypatch, tmp_path):
    """This process as one of a node, and the folder for what it writes."""
    monkeypatch.setattr(_ray, "_begun", lambda gpu: (["0"], jax.devices("cpu")[0]))
    monkeypatch.setattr(_ray, "_gpus", lambda: ["0"])
    monkeypatch.setattr(_ray, "_SWEEPS", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


SHORT = DATA | {
    "seeds": 3,
    "base": DATA["base"] | {"flow": DATA["base"]["flow"] | {"steps": 50}},
}


def order(sweep, gpu=False):
    return _ray._versions(), sweep.data, sweep.hash, 0.0, gpu


def test_a_node_computes_what_the_local_engine_does(node):
    sweep = parse_sweep(SHORT)
    batches = batches_of(sweep)
    here = LocalEngine().compute(sweep, batches, node / "local", 10.0, lambda *_: None)
    for batch, finished in zip(batches, sorted(here, key=lambda each: each.batch.number)):
        rows, trajectories, _ = _ray.work(order(sweep), dataclasses.asdict(batch))
        assert (rows, trajectories) == (finished.rows, finished.trajectories)
    assert len(_ray._SWEEPS) == 1  # built once for both
    left = [path for path in node.rglob("*") if path.is_file() and "local" not in path.parts]
    assert left == []


def test_a_node_refuses_what_would_give_other_rows(node, monkeypatch):
    sweep = parse_sweep(SHORT)
    batch = dataclasses.asdict(batches_of(sweep)[0])
    versions, data, fingerprint, every, _ = order(sweep)
    with pytest.raises(InputError, match="has jax 0.* must be 1.2, as where the sweep"):
        _ray.work((versions | {"jax": "1.2"}, data, fingerprint, every, False), batch)
    with pytest.raises(InputError, match="reads the sweep otherwise"):
        _ray.work((versions, data, "another", every, False), batch)
    with pytest.raises(InputError, match="has a GPU that its JAX cannot use"):
        _ray.work(order(sweep, gpu=True), batch)


def test_numpy_has_one_thread_in_every_process_of_a_node(monkeypatch):
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    for name in names:
        monkeypatch.setenv(name, "7")
    monkeypatch.setattr(_ray, "work", lambda *_: [os.environ[name] for name in names])
    assert _ray._task()((), {}) == ["1"] * 3  # other numbers of threads are other bits


def test_a_process_ends_rather_than_use_the_gpu_of_another(node, monkeypatch):
    class Ended(Exception):
        pass

    def end(code):
        raise Ended

    monkeypatch.setattr(os, "_exit", end)
    _ray._device(True)
    monkeypatch.setattr(_ray, "_gpus", lambda: ["1"])
    _ray._device(False)
    with pytest.raises(Ended):
        _ray._device(True)


def test_a_batch_goes_on_from_what_a_dead_process_of_its_node_left(node):
    class Killed(Exception):
        pass

    with pytest.raises(Killed), _ray._place("sweep-0000") as folder:
        (folder / "checkpoint").write_text("half")
        raise Killed
    with _ray._place("sweep-0000") as folder:
        assert (folder / "checkpoint").read_text() == "half"
    assert not folder.exists()
    with folder_lock(folder), _ray._place("sweep-0000") as other:  # one that is not dead yet
        assert other != folder and list(other.iterdir()) == []
    assert not other.exists()
