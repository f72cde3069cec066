"""Runs on disk: complete or to be taken up, found again, checked, tidied, used by one at a time."""

import dataclasses
import errno
import io
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest

from helpers import harmed
from iclflow.cli import main
from iclflow.config import InputError, load_config, parse_config, to_toml
from iclflow.experiment import loss_figure, overlay, prepare, train
from iclflow.explorer._stored import StoredRuns
from iclflow.files import LOCK, MARKER, OwnFiles, is_sealed, printable, seal
from iclflow.flows import Checkpoint
from iclflow.flows._checkpoint import Snapshot
from iclflow.store import (
    SWEEP_HEADER,
    RunFolder,
    check_free,
    config_text,
    find_damage,
    find_run,
    list_runs,
    part_name,
    result_folder,
)
from iclflow.trajectory import Result, Trajectory

pytestmark = pytest.mark.usefixtures("sketched")

DATA = {
    "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20},
    "model": {"kind": "separate", "heads": 2, "scale": 0.01},
    "flow": {"kind": "gradient_descent", "learning_rate": 0.05, "steps": 60},
}


def config(**settings):
    return parse_config(DATA | settings)


@pytest.fixture(autouse=True)
def away_from_home(tmp_path, monkeypatch):
    """Works in an empty folder, and leaves the user's compile cache alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("iclflow.runtime._start.enable_compile_cache", lambda: None)


def finished(folder: Path, settings) -> Trajectory:
    experiment = prepare(settings)
    with RunFolder.lock(folder, settings) as place:
        run = train(experiment)
        place.keep(run, loss_figure(run, overlay(experiment), experiment.floor(), settings.name))
    return run


_WHOLE: dict[str, bytes] = {}


def copied(folder: Path) -> None:
    """A finished run of `config()`, computed once for all tests that need one to be there."""
    if not _WHOLE:
        finished(folder, config())
        _WHOLE.update(contents(folder))
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in _WHOLE.items():
        (folder / name).write_bytes(content)


def command(*words, capsys) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(to_toml(config(name="small").given()))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Folders --------------------------------------------------------------------------------------


def test_a_folder_holds_all_that_is_needed_to_go_on(tmp_path):
    settings = config(name="small")
    run = finished(tmp_path / "a" / "b", settings)
    folder = tmp_path / "a" / "b"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("config.toml", "loss.pdf", "loss.png", "manifest.json", "trajectory.safetensors")
    ]
    assert load_config(folder / "config.toml") == settings
    loaded = Trajectory.load(folder)
    assert (loaded.losses == run.losses).all()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["result"] == "finished" and manifest["seed"] == 0
    assert manifest["config_hash"] == settings.hash
    assert set(manifest["files"]) == {
        *("config.toml", "loss.pdf", "loss.png", "trajectory.safetensors")
    }
    assert manifest["versions"]["jax"] and manifest["device"]["backend"] == "cpu"
    assert find_damage(folder) == []


def test_equal_runs_leave_equal_files_but_for_the_manifest(tmp_path):
    for name in ("one", "two"):
        finished(tmp_path / name, config())
    one, two = contents(tmp_path / "one"), contents(tmp_path / "two")
    assert {name for name in one if one[name] != two[name]} <= {"manifest.json"}


def test_another_run_is_not_overwritten(tmp_path):
    copied(tmp_path)
    check_free(tmp_path, config(name="renamed"), force=False)
    with pytest.raises(InputError, match="holds another run"):
        check_free(tmp_path, config(seed=1), force=False)
    check_free(tmp_path, config(seed=1), force=True)


def test_what_is_not_a_run_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(InputError, match="holds something that is not a run"):
        check_free(tmp_path, config(), force=False)
    with pytest.raises(InputError, match="is a file: must be a folder"):
        check_free(tmp_path / "thesis.tex", config(), force=True)


def test_folders_made_for_a_run_that_fails_are_removed_again(tmp_path):
    for inside in (result_folder, lambda path: RunFolder.lock(path, config())):
        with pytest.raises(RuntimeError), inside(tmp_path / "a" / "b"):
            raise RuntimeError
        assert list(tmp_path.iterdir()) == []
        (tmp_path / "mine").mkdir()
        with pytest.raises(RuntimeError), inside(tmp_path / "mine"):
            raise RuntimeError
        assert (tmp_path / "mine").is_dir()
        (tmp_path / "mine").rmdir()


# The same command again -----------------------------------------------------------------------


def test_a_run_that_is_there_comes_back_at_once_and_fresh_computes_it_again(
    file, capsys, monkeypatch
):
    words = ("run", file, "--out", "here")
    assert "written to here" in command(*words, capsys=capsys)[1]
    before = contents(Path("here"))
    trained = []
    monkeypatch.setattr(
        "iclflow.experiment._run.train", lambda *a, **k: trained.append(1) or train(*a, **k)
    )
    code, out, _ = command(*words, capsys=capsys)
    assert code == 0 and "was already in here" in out and not trained
    assert contents(Path("here")) == before
    code, out, _ = command(*words, "--fresh", capsys=capsys)
    assert code == 0 and "written to here" in out and trained
    after = contents(Path("here"))
    assert {name for name in after if after[name] != before[name]} <= {"manifest.json"}


def test_a_damaged_run_is_refused_and_force_mends_it(file, capsys):
    words = ("run", file, "--out", "here")
    command(*words, capsys=capsys)
    for name in ("trajectory.safetensors", "loss.png", "config.toml"):
        path = Path("here") / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        code, out, err = command("runs", "verify", "--root", ".", capsys=capsys)
        assert code == 2 and f"here/{name}` does not match its hash" in err
        code, _, err = command(*words, capsys=capsys)
        assert code == 2 and err.count("\n") == 1
        # Whoever changed it may want to keep it: it is not overwritten unasked.
        before = contents(Path("here"))
        code, _, err = command(*words, "--fresh", capsys=capsys)
        assert code == 2 and f"`here/{name}`" in err and err.count("\n") == 1
        assert contents(Path("here")) == before
        assert command(*words, "--fresh", "--force", capsys=capsys)[0] == 0
    assert command("runs", "verify", "--root", ".", capsys=capsys)[0] == 0


KILLED = """
import os, signal, sys
from iclflow.flows import Checkpoint
write, left = Checkpoint.save, [int(sys.argv[1])]
def save(self, snapshot):
    write(self, snapshot)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
Checkpoint.save = save
from iclflow.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_ends_with_the_same_bits(rendered, tmp_path, capsys):
    # Adam with its random stream; one chunk is 1000 looks.
    flow = {"kind": "adam", "learning_rate": 1e-3, "steps": 4000}
    model = {"kind": "merged", "heads": 2}
    save = {"kind": "linear", "count": 4001}
    risk = {"kind": "sampled", "batch": 2}
    settings = config(name="killed", flow=flow, model=model, save=save, risk=risk)
    Path("killed.toml").write_text(to_toml(settings.given()))
    words = ["run", "killed.toml", "--out", "killed", "--checkpoint-every", "0"]
    died = subprocess.run([sys.executable, "-c", KILLED, "1", *words], timeout=120)
    assert died.returncode == -9
    assert set(contents(Path("killed"))) == {LOCK, MARKER, "checkpoint.safetensors", "config.toml"}
    (unfinished,) = list_runs(Path("."))
    assert unfinished.status == "unfinished" and unfinished.resumable
    # What a process that dies while it writes leaves is removed by the next one.
    Path("killed/.manifest.json.iclflow-abcdefgh.part").write_text("{")
    assert command(*words, capsys=capsys)[0] == 0
    assert command("run", "killed.toml", "--out", "whole", capsys=capsys)[0] == 0
    killed, whole = contents(Path("killed")), contents(Path("whole"))
    assert set(killed) == set(whole)
    assert {name for name in whole if killed[name] != whole[name]} <= {"manifest.json"}


def test_a_run_that_was_stopped_goes_on(file, capsys, monkeypatch):
    words = ("run", file, "--flow.steps", "3000", "--out", "here", "--checkpoint-every", "0")
    import iclflow.cli._run as module

    class Impatient(module.Activity):
        def update(self, title, fraction=None, state=""):
            if fraction is not None and fraction > 0.5:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "Activity", Impatient)
        assert command(*words, capsys=capsys)[0] == 130
    assert Trajectory.load("here").result is Result.cancelled
    assert [run.status for run in list_runs(Path("."))] == ["stopped"]
    assert command(*words, capsys=capsys)[0] == 0
    assert Trajectory.load("here").result is Result.finished
    assert not Path("here/checkpoint.safetensors").exists()


def test_the_second_process_on_a_run_waits_for_the_first(tmp_path):
    settings, order, waits = config(), [], threading.Event()

    def second() -> None:
        with RunFolder.lock(tmp_path / "a", settings, waits.set) as place:
            order.append("second")
            assert place.load_stored() is not None

    with RunFolder.lock(tmp_path / "a", settings) as place:
        other = threading.Thread(target=second)
        other.start()
        assert waits.wait(30)
        order.append("first")
        experiment = prepare(settings)
        place.keep(train(experiment), {})
    other.join()
    assert order == ["first", "second"]


def test_who_waits_for_a_folder_that_is_removed_makes_it_again(tmp_path):
    waits, got = threading.Event(), []

    def second() -> None:
        with RunFolder.lock(tmp_path / "a", config(), waits.set) as place:
            got.append((place.path / "config.toml").exists())

    other = threading.Thread(target=second)
    with pytest.raises(RuntimeError), RunFolder.lock(tmp_path / "a", config()):
        other.start()
        assert waits.wait(30)
        raise RuntimeError  # which removes the folder
    other.join()
    assert got == [True]


def test_who_waited_does_not_overwrite_another_run(tmp_path):
    waits, refused = threading.Event(), []

    def second() -> None:
        try:
            with RunFolder.lock(tmp_path / "a", config(seed=1), waits.set):
                refused.append(False)
        except InputError as error:
            refused.append("holds another run" in str(error))

    with RunFolder.lock(tmp_path / "a", config()) as place:
        other = threading.Thread(target=second)
        other.start()
        assert waits.wait(30)
        place.keep(train(prepare(config())), {})
    other.join()
    assert refused == [True]


def test_a_folder_in_which_a_first_file_was_half_written_is_free(tmp_path):
    with RunFolder.lock(tmp_path / "other", config()):
        marker = (tmp_path / "other" / MARKER).read_bytes()
    folder = tmp_path / "here"
    folder.mkdir()
    # Died while the marker was written; then while the config was.
    (folder / f".{MARKER}.iclflow-abcdefgh.part").write_bytes(marker)
    (folder / f".{MARKER}.iclflow-bbcdefgh.part").write_bytes(b"")
    with RunFolder.lock(folder, config()):
        assert {path.name for path in folder.glob(".*")} == {LOCK, MARKER}
    (folder / "config.toml").rename(folder / ".config.toml.iclflow-abcdefgh.part")
    with RunFolder.lock(folder, config()):
        assert {path.name for path in folder.iterdir()} == {LOCK, MARKER, "config.toml"}
    assert not (folder / LOCK).exists()


def test_a_run_that_was_forced_into_a_folder_is_taken_up_too(file, capsys, monkeypatch):
    import iclflow.cli._run as module

    class Impatient(module.Activity):
        def update(self, title, fraction=None, state=""):
            if fraction is not None and fraction > 0.5:
                raise KeyboardInterrupt

    copied(Path("here"))
    words = ("run", file, "--flow.steps", "3000", "--out", "here", "--checkpoint-every", "0")
    with monkeypatch.context() as patch:
        patch.setattr(module, "Activity", Impatient)
        assert command(*words, "--force", capsys=capsys)[0] == 130
    out = json.loads(command(*words, "--force", "--json", capsys=capsys)[1])
    assert out["resumed"] and out["written"] and out["result"] == "finished"


def test_a_run_that_is_there_is_shown_from_a_disk_that_cannot_be_written(file, capsys, monkeypatch):
    assert command("run", file, "--out", "here", capsys=capsys)[0] == 0

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("iclflow.store._result_folder.tempfile.TemporaryFile", read_only)
    code, out, _ = command("run", file, "--out", "here", capsys=capsys)
    assert code == 0 and "was already in here" in out
    code, out, err = command("run", file, "--out", "there", capsys=capsys)
    assert code == 2 and "cannot be written to" in err and not Path("there").exists()


def test_a_run_of_other_versions_says_so(file, capsys):
    assert command("run", file, "--out", "here", capsys=capsys)[0] == 0
    manifest = json.loads(Path("here/manifest.json").read_text())
    manifest["versions"]["jax"] = "0.1.0"
    del manifest["hash"]
    Path("here/manifest.json").write_text(seal(manifest))
    out = command("run", file, "--out", "here", capsys=capsys)[1]
    assert "was already in here (computed by jax 0.1.0)" in " ".join(out.split())


# What can go wrong with a disk ----------------------------------------------------------------


def test_a_full_disk_is_one_sentence_and_leaves_earlier_results_alone(file, capsys, monkeypatch):
    assert command("run", file, "--out", "here", capsys=capsys)[0] == 0
    before = contents(Path("here"))
    real = os.fsync

    def full(handle):
        if Path(os.readlink(f"/proc/self/fd/{handle}")).name.startswith(".trajectory"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    code, out, err = command("run", file, "--out", "there", capsys=capsys)
    assert (code, out) == (2, "") and "No space left on device" in err and err.count("\n") == 1
    assert "`there/trajectory.safetensors`" in err and not Path("there").exists()
    assert contents(Path("here")) == before


def test_harm_to_any_file_of_a_run_is_one_sentence_and_loses_nothing(file, capsys):
    words = ("run", file, "--out", "here")
    assert command(*words, capsys=capsys)[0] == 0
    before = contents(Path("here"))
    assert len(before) == 5
    for name in before:
        for harm in harmed(Path("here") / name):
            now = contents(Path("here"))
            for again in (words, ("runs", "verify", "--root", "here")):
                code, _, err = command(*again, capsys=capsys)
                assert (code, err.count("\n")) == (2, 1) and "here" in err, (name, harm, again)
            assert contents(Path("here")) == now
            with pytest.raises(ValueError) if name[-4:] in ("json", "sors") else nullcontext():
                Trajectory.load("here")
    assert contents(Path("here")) == before
    assert command(*words, capsys=capsys)[0] == 0


def test_harm_to_a_checkpoint_is_one_sentence_and_loses_nothing(file, capsys, monkeypatch):
    words = ("run", file, "--out", "here", "--checkpoint-every", "0")
    assert command("run", file, "--out", "whole", capsys=capsys)[0] == 0

    def never(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "keep", never)
        assert command(*words, capsys=capsys)[0] == 2
    before = contents(Path("here"))
    for harm in harmed(Path("here/checkpoint.safetensors")):
        code, _, err = command(*words, capsys=capsys)
        assert (code, err.count("\n")) == (2, 1) and "checkpoint.safetensors`" in err, harm
    assert contents(Path("here")) == before
    assert command(*words, capsys=capsys)[0] == 0
    for name in ("trajectory.safetensors", "loss.png"):
        assert Path("here", name).read_bytes() == Path("whole", name).read_bytes()


def test_a_seal_sees_every_byte():
    text = seal({"a": 1, "b": {"hash": "0" * 64}})
    assert is_sealed(text) and json.loads(text)["b"] == {"hash": "0" * 64}
    for i in range(len(text)):
        assert not is_sealed(text[:i] + chr(ord(text[i]) ^ 1) + text[i + 1 :])
        assert not is_sealed(text[:i])


# Lists ----------------------------------------------------------------------------------------


def test_runs_are_listed_filtered_shown_and_found(rendered, tmp_path, capsys):
    for seed in (0, 1):
        finished(tmp_path / "runs" / f"seed-{seed}", config(name=f"seed-{seed}", seed=seed))
    with RunFolder.lock(tmp_path / "runs" / "begun", config(name="begun", seed=5)):
        pass
    code, out, _ = command("runs", capsys=capsys)
    assert code == 0 and all(name in out for name in ("runs/seed-0", "runs/begun", "unfinished"))
    listed = lambda *flags: [
        run["name"] for run in json.loads(command("runs", *flags, "--json", capsys=capsys)[1])
    ]
    assert listed() == ["begun", "seed-0", "seed-1"]
    assert listed("--status", "complete") == ["seed-0", "seed-1"]
    assert listed("--name", "*-1") == ["seed-1"]
    assert listed("--where", "seed=5") == ["begun"]
    assert listed("--where", "model.heads=2", "--where", "flow.steps=60", "--name", "seed*") == [
        *("seed-0", "seed-1")
    ]
    assert listed("--where", "model.heads=9") == []
    code, out, _ = command("show", "seed-1", "--figure", "again.png", capsys=capsys)
    assert code == 0 and "in runs/seed-1" in out
    assert Path("again.png").read_bytes() == Path("runs/seed-1/loss.png").read_bytes()
    by_hash = config(name="seed-0", seed=0).hash[:8]
    shown = json.loads(command("show", by_hash, "--json", capsys=capsys)[1])
    assert shown["folder"] == "runs/seed-0"


@pytest.mark.parametrize(
    "words, said",
    [
        (("runs", "--root", "nowhere"), "`nowhere` is not a folder"),
        (("runs",), "make a first run with `iclflow run linear/staircase`"),
        (("query", "nothing"), "`iclflow sweep FILE` makes one"),
        (("runs", "tidy"), "`runs tidy`: must be"),
        (("runs", "--root", ".", "--where", "heads"), "`where` = 'heads': must be SETTING=VALUE"),
        (("show", "nothing"), "`RUN` = 'nothing' is no run below `runs`"),
        (("show", "nothing", "--figure", "a.gif"), "`--figure` = a.gif: must end in"),
        (("run", "small.toml", "--checkpoint-every", "-1"), "`--checkpoint-every` = -1: must not"),
    ],
)
def test_what_cannot_be_listed_or_shown_is_refused_in_one_sentence(words, said, file, capsys):
    code, out, err = command(*words, capsys=capsys)
    assert (code, out, err.count("\n")) == (2, "", 1) and said in err


def checkpoint_of(settings, path: Path = Path("checkpoint.safetensors")) -> Path:
    """A checkpoint of a run, as it is written while it is under way."""
    found = Checkpoint(path, label=settings.hash)
    found.load("somebody")
    found.save(Snapshot({"x": np.zeros(3)}, {"step": 1}))
    return path


def begun(folder: Path, seed: int) -> Path:
    """A run that was killed before its first checkpoint."""
    with RunFolder.lock(folder, config(seed=seed)):
        pass
    return folder


def test_tidying_asks_first_and_removes_what_is_incomplete_alone(tmp_path, capsys, monkeypatch):
    copied(tmp_path / "runs" / "whole")
    unfinished = begun(tmp_path / "runs" / "begun", 5)
    checkpoint_of(config()).rename(tmp_path / "runs" / "whole" / "checkpoint.safetensors")
    left = tmp_path / "runs" / "whole" / "checkpoint.safetensors"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, _, err = command("runs", "gc", capsys=capsys)
    assert code == 0 and "Nothing was removed." in err and unfinished.exists() and left.exists()
    code, out, _ = command("runs", "gc", "--yes", "--json", capsys=capsys)
    assert code == 0 and json.loads(out) == {
        "files": ["runs/whole/checkpoint.safetensors"],
        "runs": ["runs/begun"],
        "sweeps": [],
        "busy": [],
    }
    assert not unfinished.exists() and not left.exists()
    assert find_damage(tmp_path / "runs" / "whole") == []
    assert "Nothing to remove" in command("runs", "gc", capsys=capsys)[1]


def test_tidying_leaves_what_is_not_ours_what_was_stopped_and_what_is_under_way(tmp_path, capsys):
    # Somebody's own config, with a run below it.
    (tmp_path / "config.toml").write_text(to_toml(config().given()))
    copied(tmp_path / "runs" / "whole")
    notes = begun(tmp_path / "runs" / "begun", 5) / "notes.txt"
    notes.write_text("precious")
    stopped = begun(tmp_path / "runs" / "stopped", 6)
    experiment = prepare(config(seed=6))
    with RunFolder.lock(stopped, config(seed=6)) as place:
        place.keep(dataclasses.replace(train(experiment), result=Result.cancelled), {})
    with RunFolder.lock(tmp_path / "runs" / "busy", config(seed=7)):
        _, out, _ = command("runs", "gc", "--root", ".", "--yes", "--json", capsys=capsys)
        removed = json.loads(out)
    assert removed == {
        "files": [],
        "runs": ["runs/begun"],
        "sweeps": [],
        "busy": ["runs/busy"],
    }
    assert notes.read_text() == "precious" and sorted(contents(notes.parent)) == ["notes.txt"]
    assert Trajectory.load(stopped).result is Result.cancelled
    assert Trajectory.load(tmp_path / "runs" / "whole").result.ok and Path("config.toml").exists()
    _, out, _ = command("runs", "gc", "--yes", "--stopped", "--json", capsys=capsys)
    assert "runs/stopped" in json.loads(out)["runs"] and not stopped.exists()


class Killed(BaseException):
    pass


def left_by_sweep(folder: Path) -> None:
    """A sweep that died when its table was written, and its manifest was not."""
    own = OwnFiles(folder)
    own.begin()
    own.write({"sweep.toml": SWEEP_HEADER + "seeds = 1\n", "results.parquet": b"table"})
    own.write({"trajectories/0000.safetensors": b"weights"})
    own.put(f"parts/{part_name(0, b'rows', b'weights')}", b"rows")
    own.forget("trajectories/0000.safetensors")
    own.adopt("sweep.toml")  # writes the list, without the trajectories


def left_by_old_run(folder: Path) -> None:
    """What a version without a marker left of a run under way."""
    folder.mkdir()
    (folder / "config.toml").write_text(config_text(config()))
    checkpoint_of(config()).rename(folder / "checkpoint.safetensors")


def left_by_stopped_run(folder: Path) -> None:
    whole = folder.parent.parent / "whole"
    copied(whole)
    with RunFolder.lock(folder, config()) as place:
        run = Trajectory.load(whole)
        place.keep(dataclasses.replace(run, result=Result.cancelled), {"loss.png": b"picture"})


@pytest.mark.parametrize("leave", [left_by_stopped_run, left_by_old_run, left_by_sweep])
def test_tidying_that_is_killed_can_be_done_again(leave, tmp_path, capsys, monkeypatch):
    unlink = Path.unlink
    for moment in range(12):
        folder = tmp_path / "runs" / str(moment)
        folder.parent.mkdir(exist_ok=True)
        leave(folder)
        left = moment

        def dying(path, missing_ok=False):
            nonlocal left
            # The lock of a process that dies is let go; this one lives.
            if folder in path.resolve().parents and path.name != LOCK:
                if left == 0:
                    raise Killed
                left -= 1
            unlink(path, missing_ok=missing_ok)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", dying)
            with suppress(Killed):
                main(["runs", "gc", "--yes", "--stopped"])
        if left > 0:
            assert moment > 2 and not folder.exists()
            return
        assert main(["runs", "gc", "--yes", "--stopped"]) == 0
        assert not folder.exists(), (moment, sorted(folder.rglob("*")))
    pytest.fail("tidying never came to its end")


def test_lists_of_runs_load_nothing_that_computes(tmp_path):
    program = "import sys, iclflow.store; print('jax' in sys.modules, 'diffrax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]


# What is not ours ------------------------------------------------------------------------------


@pytest.mark.slow
def test_files_of_others_are_spared_whatever_is_run_beside_them(capsys):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
    import foreign_files

    assert foreign_files.main(["--quick"]) == 0, capsys.readouterr().out
    assert ", 0 folders differ" in capsys.readouterr().out


def test_a_run_that_an_older_version_left_unfinished_goes_on(file, capsys, monkeypatch):
    words = ("run", file, "--out", "here", "--checkpoint-every", "0")
    assert command("run", file, "--out", "whole", capsys=capsys)[0] == 0
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "keep", lambda *_: sys.exit(9))
        with pytest.raises(SystemExit):
            command(*words, capsys=capsys)
    # That had no marker, another lock, and figures that only the manifest would have listed.
    Path("here", MARKER).unlink()
    Path("here/.lock").touch()
    Path("here/loss.png").write_bytes(Path("whole/loss.png").read_bytes())
    assert [run.status for run in list_runs(Path("here"))] == ["unfinished"]
    resumed = json.loads(command(*words, "--json", capsys=capsys)[1])
    assert resumed["resumed"] and resumed["written"]
    Path("here/.lock").unlink()
    here, whole = contents(Path("here")), contents(Path("whole"))
    assert {name for name in whole if here.get(name) != whole[name]} == {"manifest.json"}
    assert here.keys() == whole.keys()


def test_an_equal_config_without_our_header_and_marker_is_not_ours(file, capsys):
    place = Path("mine")
    place.mkdir()
    mine = {"config.toml": file.read_bytes(), "loss.png": b"drawn by hand"}
    for name, content in mine.items():
        (place / name).write_bytes(content)
    for source in (file, place / "config.toml"):
        for flags in ((), ("--fresh",)):
            code, _, err = command("run", source, "--out", place, *flags, capsys=capsys)
            assert (code, err.count("\n")) == (2, 1) and "`mine" in err
    checkpoint_of(config(), place / "checkpoint.safetensors")
    mine = contents(place)
    assert command("runs", "gc", "--yes", "--root", ".", capsys=capsys)[0] == 0
    assert contents(place) == mine
    # Even then the file that was given stays.
    code, _, err = command("run", "mine/config.toml", "--out", "mine", "--force", capsys=capsys)
    assert code == 2 and "`mine/config.toml` lies where" in err and contents(place) == mine


def odd_folders(root: Path) -> set[str]:
    """Folders that nobody could have made with us, and yet somebody will have; their names."""
    odd = {
        "a table beside a run": lambda f: (f / "results.parquet").write_bytes(b"mine"),
        "deep": lambda f: (f / "manifest.json").write_text("[" * 100_000),
        "a pipe": lambda f: ((f / "manifest.json").unlink(), os.mkfifo(f / "manifest.json")),
        "a folder": lambda f: ((f / "config.toml").unlink(), (f / "config.toml").mkdir()),
        "a pipe for a config": lambda f: (
            (f / "config.toml").unlink(),
            os.mkfifo(f / "config.toml"),
        ),
        "bytes": lambda f: (f / "config.toml").write_bytes(b"\xff"),
        "forged letters": lambda f: (f / "manifest.json").write_text("{}", "utf-16"),
        os.fsdecode(b"\xff"): lambda f: (f / os.fsdecode(b"\xfe.png")).write_bytes(b"mine"),
    }
    forged = {"statistics": [], "result": 5, "files": [], "loss": "x", "versions": 3}
    forged |= {"statistics ": {"seconds": "long"}, "files ": {"../../secret": "0" * 64}}
    forged |= {"statistics  ": None, "versions ": None, "files  ": {"a\ud800": "0" * 64}}
    forged |= {"loss ": 10**400, "loss  ": float("inf"), "loss   ": True}
    forged |= {"statistics   ": {"seconds": 10**400}, "statistics    ": {"seconds": float("nan")}}

    def forge(folder: Path, key: str, value) -> None:
        content = json.loads((folder / "manifest.json").read_text())
        del content["hash"]
        content[key.strip()] = value
        (folder / "manifest.json").write_text(seal(content))

    for key, value in forged.items():
        odd[f"forged {key}"] = lambda f, key=key, value=value: forge(f, key, value)
    for name, make in odd.items():
        copied(root / name)
        make(root / name)
    unfinished = root / "parts"
    (unfinished / "parts").mkdir(parents=True)
    (unfinished / "sweep.toml").write_text(SWEEP_HEADER)
    (unfinished / "parts/2a-x.parquet").write_bytes(b"mine")
    return {*odd, "parts"}


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_one_odd_folder_breaks_no_list(tmp_path, capsys):
    copied(tmp_path / "good")
    odd = odd_folders(tmp_path)
    before = everything(tmp_path)
    listed = json.loads(command("runs", "--root", ".", "--json", capsys=capsys)[1])
    assert {run["folder"] for run in listed} == {
        printable(name) for name in {*odd, "good"} - {"parts"}
    }
    statuses = {run["folder"]: (run["status"], run["reason"]) for run in listed}
    assert statuses["good"] == statuses["a table beside a run"] == ("complete", None)
    assert all(status == "unreadable" and reason for name, (status, reason) in statuses.items()
               if name.startswith("forged") or name.startswith("a pipe"))  # fmt: skip
    assert "nested too deeply" in statuses["deep"][1]
    code, out, _ = command("runs", "--root", ".", capsys=capsys)
    assert code == 0 and r"\xff" in out and "unreadable: `manifest.json` is nested" in out
    code, _, err = command("runs", "verify", "--root", ".", capsys=capsys)
    assert code == 2 and "deep/manifest.json` is nested too deeply" in err
    assert command("runs", "gc", "--root", ".", "--yes", "--stopped", capsys=capsys)[0] == 0
    assert everything(tmp_path) == before
    hash = next(run["hash"] for run in listed if run["folder"] == "good")
    assert find_run(Path("good"), hash[:8]).status == "complete"
    # What the explorer sends.
    listing = StoredRuns([tmp_path]).listing()
    assert len(listing["runs"]) == len(listed) and len(listing["sweeps"]) == 1
    json.dumps(listing, ensure_ascii=False, allow_nan=False).encode("utf-8")


def test_a_folder_that_may_not_be_read_is_listed_with_the_reason(tmp_path, capsys, monkeypatch):
    copied(tmp_path / "good")
    copied(tmp_path / "closed")
    walk, read = os.scandir, os.open

    def closed(path, *rest):
        if "closed" in os.fspath(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
        return walk(path, *rest)

    def unreadable(path, *rest, **options):
        if str(path).endswith("closed/manifest.json"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return read(path, *rest, **options)

    for name, function in (("os.scandir", closed), ("iclflow.files._atomic.os.open", unreadable)):
        with monkeypatch.context() as patch:
            patch.setattr(name, function)
            code, out, _ = command("runs", "--root", ".", "--json", capsys=capsys)
            found = {run["folder"]: run for run in json.loads(out)}
            assert code == 0 and found["good"]["status"] == "complete"
            assert found["closed"]["status"] == "unreadable"
            assert "Permission denied" in found["closed"]["reason"]


def test_signals_after_the_summary_change_nothing(file, capsys, monkeypatch):
    from iclflow.cli import _tables

    told = []

    def pressed(*_):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        told.append(1)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(_tables, "print_summary", pressed)
    assert command("run", file, "--out", "here", capsys=capsys)[0] == 0 and told
    assert signal.getsignal(signal.SIGTERM) is before
    # A program that is about to end hears none, wherever it is.
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", ["iclflow", "runs", "--root", "here"])
        try:
            assert main() == 0
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            signal.signal(signal.SIGTERM, before)
            signal.signal(signal.SIGINT, signal.default_int_handler)
