"""Files on disk: which are ours, what a kill leaves, and what is never touched."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from iclflow.files import (
    LOCK,
    MANIFEST,
    MARKER,
    FolderInUse,
    ForeignFile,
    OwnFiles,
    folder_lock,
    leftovers,
    printable,
    read_sealed,
    seal,
    sha256,
    temporary_file,
    write_own,
)


def contents(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def manifest_of(files: dict[str, bytes]) -> str:
    return seal({"files": {name: sha256(content) for name, content in files.items()}})


class Killed(Exception):
    pass


def test_whoever_is_killed_leaves_no_file_that_is_not_listed(tmp_path, monkeypatch):
    from iclflow.files import _own

    write, old, new = _own.write_atomic, {"a": b"1", "b/c": b"2"}, {"a": b"3", "b/c": b"4"}
    for moment in range(8):
        folder = tmp_path / str(moment)
        own = OwnFiles(folder)
        own.write({**old, MANIFEST: manifest_of(old)})
        own.end()
        assert sorted(contents(folder)) == ["a", "b/c", MANIFEST]
        left = moment

        def dying(path, content):
            nonlocal left
            if left == 0:
                raise Killed
            write(path, content)
            left -= 1
            if left == 0 and moment % 2:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(_own, "write_atomic", dying)
            try:
                OwnFiles(folder).write({**new, MANIFEST: manifest_of(new)})
            except Killed:
                pass
        found, again = contents(folder), OwnFiles(folder)
        assert all(again.owns(name) for name in found), (moment, sorted(found))
        assert {found[name] for name in old} <= {*old.values(), *new.values()}
        again.write({**new, MANIFEST: manifest_of(new)})
        again.end()
        assert contents(folder).keys() == {"a", "b/c", MANIFEST} and contents(folder)["a"] == b"3"


def test_what_was_changed_or_is_somebody_elses_is_refused_and_stays(tmp_path):
    write_own(tmp_path, {"a": b"1", "b": b"2"})
    (tmp_path / "a").write_bytes(b"changed")
    (tmp_path / "c").write_bytes(b"mine")
    before = contents(tmp_path)
    for name in ("a", "c"):
        with pytest.raises(
            ForeignFile, match=f"{name}` was not written by iclflow, or was changed"
        ):
            write_own(tmp_path, {"b": b"3", name: b"4"})
        OwnFiles(tmp_path).remove([name])
    assert contents(tmp_path) == before
    write_own(tmp_path, {"c": b"mine"}, others=["a", "b"])  # what is there is what we would write
    assert contents(tmp_path).keys() == {"a", "c", MARKER}
    OwnFiles(tmp_path, force=True).write({"a": b"5"})
    assert contents(tmp_path)["a"] == b"5"


def test_links_are_never_followed_and_never_ours(tmp_path):
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    for place in (folder, outside):
        place.mkdir()
    (outside / "a").write_bytes(b"1")
    before = contents(outside)
    (folder / "a").symlink_to(outside / "a")
    (folder / "parts").symlink_to(outside)
    listed = {"a": b"1", "parts/a": b"1"}
    (folder / MANIFEST).write_text(manifest_of(listed))
    own = OwnFiles(folder)
    assert not own.owns("a") and not own.owns("parts/a")
    own.remove(listed)
    for name in ("a", "parts/a", "parts/new"):
        with pytest.raises(ForeignFile, match="is not a plain f"):
            own.write({name: b"2"})
    with pytest.raises(ForeignFile, match="parts` is not a plain folder"):
        own.begin("parts")
    assert contents(outside) == before and (folder / "a").is_symlink()
    OwnFiles(folder, force=True).write({"a": b"2"})  # takes the place of the link
    assert contents(outside) == before and contents(folder)["a"] == b"2"


@pytest.mark.parametrize(
    "files",
    [
        *({"../a": "0" * 64}, {"/a": "0" * 64}, {"b/../../a": "0" * 64}, {"": "0" * 64}),
        *(
            {".": "0" * 64},
            {"a": 1},
            {"a": "0"},
            {"a": [None]},
            ["a"],
            None,
            "a",
            {"a\0": "0" * 64},
        ),
    ],
)
def test_a_list_that_leads_out_of_its_folder_or_is_none_is_not_ours(files, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "a").write_bytes(b"mine")
    for name in (MANIFEST, MARKER):
        (folder / name).write_text(seal({"files": files}))
        own = OwnFiles(folder)
        assert own.names == [] and own.files() == []
        own.remove([name, "../a"])
        (folder / name).unlink()
    assert (tmp_path / "a").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "text, reason",
    [
        ("[" * 100_000, "is nested too deeply"),
        ("[" * 150 + "]" * 150, "is nested too deeply"),
        ("{", "is not valid JSON"),
        (json.dumps({"hash": "0" * 64}), "does not match its hash"),
        ("\udcff", "is not text in UTF-8"),
    ],
)
def test_what_is_no_list_says_why(text, reason, tmp_path):
    (tmp_path / MARKER).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=reason):
        read_sealed(tmp_path / MARKER)
    with pytest.raises(ForeignFile, match="is not a marker of iclflow"):
        write_own(tmp_path, {"a": b"1"})
    assert sorted(contents(tmp_path)) == [MARKER]


def test_pipes_and_folders_in_the_place_of_files_are_refused_and_nobody_waits(tmp_path):
    for name in (MARKER, MANIFEST, LOCK, "a"):
        for make in (os.mkfifo, os.mkdir):
            folder = tmp_path / f"{name}-{make.__name__}"
            folder.mkdir()
            make(folder / name)
            if name != MANIFEST:  # that is not written here
                with pytest.raises(FileExistsError):
                    write_own(folder, {"a": b"1"})
            assert OwnFiles(folder).files() == []
            assert [path.name for path in folder.iterdir()] == [name]


def test_half_written_files_are_ours_unless_they_were_there_before_the_marker(tmp_path):
    before = tmp_path / ".a.iclflow-abcdefgh.part"
    before.write_bytes(b"mine")
    own = OwnFiles(tmp_path)
    assert own.leftovers() == []
    own.begin("parts")
    own.make("parts")
    for folder in (tmp_path, tmp_path / "parts"):
        with temporary_file(folder, "rows") as path:
            shutil.copy(path, folder / ".rows.iclflow-bbcdefgh.part")  # as if it had been killed
    (tmp_path / ".rows.bbcdefgh.part").write_bytes(b"mine")
    found = OwnFiles(tmp_path).leftovers("parts")
    assert [path.name for path in found] == [".rows.iclflow-bbcdefgh.part"] * 2
    OwnFiles(tmp_path).clear("parts")
    assert leftovers(tmp_path) == [before] and leftovers(tmp_path / "parts") == []
    assert (tmp_path / ".rows.bbcdefgh.part").exists()


def test_a_folder_that_was_removed_is_not_made_again(tmp_path):
    folder = tmp_path / "folder"
    own = OwnFiles(folder)
    own.begin("parts")
    shutil.rmtree(folder)
    for change in (
        *(lambda: own.write({"a": b"1"}), lambda: own.put("parts/a", b"1")),
        *(lambda: own.make("parts"), lambda: own.begin("parts")),
    ):
        with pytest.raises(FileNotFoundError, match="was removed, or emptied"):
            change()
    own.end()
    assert not folder.exists()


def test_a_lock_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / LOCK).write_text("mine")
    with pytest.raises(FileExistsError, match="is not a lock of iclflow"), folder_lock(tmp_path):
        pass
    assert (tmp_path / LOCK).read_text() == "mine"
    (tmp_path / LOCK).unlink()
    outside = tmp_path / "outside"
    (tmp_path / LOCK).symlink_to(outside)
    with pytest.raises(FileExistsError, match="is not a lock of iclflow"), folder_lock(tmp_path):
        pass
    assert not outside.exists()
    (tmp_path / LOCK).unlink()
    outside.touch()
    os.link(outside, tmp_path / LOCK)
    with pytest.raises(FileExistsError, match="is not a lock of iclflow"), folder_lock(tmp_path):
        pass
    assert outside.read_bytes() == b""
    (tmp_path / LOCK).unlink()
    with folder_lock(tmp_path):
        os.replace(tmp_path / LOCK, tmp_path / "moved")
        (tmp_path / LOCK).write_text("of another process, in a folder that was made again")
    assert (tmp_path / LOCK).exists()


def test_names_that_are_not_utf8_can_be_printed():
    path = Path(os.fsdecode(b"run-\xff"))
    assert printable(path) == r"run-\xff" and printable("größe") == "größe"
    printable(path).encode("utf-8")


# A process that locks a folder and forks; the fork leaves the block, and waits for its end.
_FORKS = """
import os, pathlib, signal, sys, time
from iclflow.files import folder_lock
fork = 0
with folder_lock(pathlib.Path(sys.argv[1])):
    fork = os.fork()
    if fork:
        os.write(1, b"%d\\n" % fork)
        sys.stdin.readline()
        os.kill(os.getpid(), signal.SIGKILL)
os.write(1, b"left\\n")
time.sleep(60)
"""


def test_a_fork_neither_ends_the_lock_of_its_process_nor_holds_it_on(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    command = [sys.executable, "-c", _FORKS, str(tmp_path)]
    with subprocess.Popen(command, text=True, **pipes) as process:
        said = sorted(process.stdout.readline().strip() for _ in range(2))
        fork = int(said[0])
        try:
            assert said[1] == "left" and (tmp_path / LOCK).exists()
            with pytest.raises(FolderInUse), folder_lock(tmp_path, wait=False):
                pass
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.wait(10) == -signal.SIGKILL
            with folder_lock(tmp_path, wait=False):  # while the fork is still there
                os.kill(fork, 0)
        finally:
            os.kill(fork, signal.SIGKILL)
