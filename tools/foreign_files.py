"""Puts files of somebody else under every name that we write, runs every command, and compares.

Usage: `python tools/foreign_files.py` (some minutes), or with `--quick` runs and sweeps alone. The
names are not written down here: every command is run once in an empty folder, and what it opens for
writing, makes or renames there is noted. Then the same command meets folders in which

- every one of these names is taken, or one of them;
- its own complete results lie beside such files, or one of its own files was changed since;
- the input is the file that it would write; links lead out of the folder.

`iclflow runs gc --yes --stopped` follows each. All that is not ours must be there afterwards, byte
for byte, and a command that refuses must leave nothing behind. Exit code 1 if anything differs.
"""

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from iclflow.cli import main as iclflow
from iclflow.config import to_toml

CONFIG = {
    "theory": False,
    "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20},
    "model": {"kind": "separate", "heads": 2, "scale": 0.1},
    "flow": {"kind": "gradient_descent", "learning_rate": 0.05, "steps": 60},
    "save": {"kind": "linear", "count": 11},
}
SWEEP = {"seeds": 1, "batch": 2, "base": CONFIG, "axes": {"model.scale": [0.3, 0.1]}}
SWEEP |= {"measure": {"trajectories": True}}
CLAIMS = ("--claim", "linear/merged-network", "--claim", "linear/white-sigmoid")
# What nobody takes for a name of ours, in the folders that ours lie in.
BESIDE = (
    *("notes.txt", ".lock", ".notes.abcdefgh.part", "parts/2024-results.parquet"),
    *("parts/2a-x.parquet", "trajectories/mine.safetensors", "figures/mine.pdf"),
)

Content = dict[str, Any]


class Command(NamedTuple):
    """One command: its words, but for the folder that it writes into."""

    name: str
    words: tuple[str, ...]
    fresh: tuple[str, ...] = ()


class Row(NamedTuple):
    """What became of one folder under some commands."""

    command: str
    folder: str
    exits: tuple[int, ...]
    files: int
    changed: list[str]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Looks for files of others that are not spared.")
    parser.add_argument("--quick", action="store_true", help="runs and sweeps alone, fewer folders")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="foreign-files-") as place, _at(Path(place)):
        rows = list(_rows(options.quick))
    width = max(len(f"{row.command}: {row.folder}") for row in rows)
    print(f"{'command and folder':<{width}}  exits        files  changed")
    for row in rows:
        exits = " ".join(map(str, row.exits))
        changed = ", ".join(row.changed) or "–"
        print(f"{row.command + ': ' + row.folder:<{width}}  {exits:<11}  {row.files:>5}  {changed}")
    lost = sum(bool(row.changed) for row in rows)
    print(f"{len(rows)} folders, {sum(row.files for row in rows)} files, {lost} folders differ")
    return 1 if lost else 0


def _commands(quick: bool) -> Iterator[Command]:
    Path("run.toml").write_text(to_toml(CONFIG))
    Path("sweep.toml").write_text(to_toml(SWEEP))
    yield Command("run", ("run", "run.toml"), ("--fresh",))
    yield Command("sweep", ("sweep", "sweep.toml"), ("--fresh",))
    if not quick:
        yield Command("verify", ("verify", "--tier", "smoke", "--jobs", "1", *CLAIMS))
        yield Command("reproduce", ("reproduce", "linear/white", "--tier", "smoke"))


def _rows(quick: bool) -> Iterator[Row]:
    for command in _commands(quick):
        names = _names_written(command)
        yield _taken(command, "every name taken", names)
        for name in names if not quick else ():
            yield _taken(command, f"only {name}", [name])
        yield _beside(command, names)
        yield _beside(command, [])
        for name in sorted(_contents(Path(f"{command.name}-reference"))):
            if not quick or name.endswith(("parquet", "png")):
                yield _changed(command, name)
        yield _linked(command, quick)
    for name, text in (("config", CONFIG), ("sweep", SWEEP)):
        yield from _input_in_its_folder(name, text)


# Names ----------------------------------------------------------------------------------------

_heard: set[str] | None = None


def _hear(event: str, arguments: tuple) -> None:
    """Notes what is opened for writing, made and renamed."""
    if _heard is None:
        return
    if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
        if (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _heard.add(os.path.abspath(os.fsdecode(arguments[0])))
    elif event in ("os.rename", "os.link"):
        _heard.update(os.path.abspath(os.fsdecode(path)) for path in arguments[:2])


def _names_written(command: Command) -> list[str]:
    """Every name that a command writes under, in a folder that is empty at first."""
    global _heard
    folder = Path(f"{command.name}-reference")
    _heard = set()
    codes = _run(command, folder, "--checkpoint-every", "0") if command.fresh else ()
    codes = codes or _run(command, folder)
    found, _heard = _heard, None
    assert codes == (0,), (command.name, codes, _said)
    base = os.path.abspath(folder) + os.sep
    names = {path.removeprefix(base) for path in found if path.startswith(base)}
    # A private folder that is made for the time of a command has no name that could be taken.
    return sorted(name for name in names if not re.match(r"\.figures-|\.probe", name))


# Folders --------------------------------------------------------------------------------------


def _taken(command: Command, what: str, names: list[str]) -> Row:
    """Names that are taken before the command is run for the first time."""
    folder = _new_folder()
    mine = _put(folder, names)
    before = _contents(folder)
    codes = _run(command, folder)
    changed = _differences(mine, _contents(folder))
    if codes == (2,):
        changed += [f"left {name}" for name in _contents(folder) if name not in before]
    for flags in (command.fresh, ()) if command.fresh else ((),):
        codes += _run(command, folder, *flags)
    codes += _tidied(folder)
    return _row(command, what, codes, mine, folder, changed)


def _beside(command: Command, names: list[str]) -> Row:
    """Results of ours, complete, beside files that are not."""
    folder = _new_folder()
    codes = _run(command, folder)
    written = _contents(folder)
    # Names of another batch, as a sweep with more of them would have.
    others = [re.sub(r"\b0000", "0007", name) for name in names] + names
    mine = _put(folder, [name for name in (*others, *BESIDE) if name not in written])
    for flags in ((), command.fresh):
        codes += _run(command, folder, *flags)
    codes += _tidied(folder)
    if names:
        return _row(command, "own results, other names taken", codes, mine, folder)
    # Nothing is in the way here: it must be spared, and no reason to refuse.
    refused = ["refused"] if any(codes) else []
    return _row(command, "own results beside others", codes, mine, folder, refused)


def _changed(command: Command, name: str) -> Row:
    """A file of ours that somebody has changed since."""
    folder = _new_folder()
    codes = _run(command, folder)
    path = folder / name
    path.write_bytes(path.read_bytes() + b"\n# changed\n")
    mine = {name: path.read_bytes()}
    for flags in ((), command.fresh):
        codes += _run(command, folder, *flags)
    codes += _tidied(folder)
    return _row(command, f"own {name} changed since", codes, mine, folder)


def _linked(command: Command, quick: bool) -> Row:
    """Links that lead out of the folder, in the place of folders and files of ours."""
    outside, mine, codes = _new_folder(), {}, ()
    names = ["parts", "trajectories", "figures"]
    names += [n for n in _contents(Path(f"{command.name}-reference")) if "/" not in n and not quick]
    for name in names:
        folder = _new_folder()
        target = outside / name / "precious" if "." not in name else outside / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(b"precious")
        (folder / name).symlink_to(outside / name)
        codes += _run(command, folder)
        codes += _tidied(folder)
    mine = {name: b"precious" for name in _contents(outside)}
    return _row(command, "links out of it", codes, mine, outside)


def _input_in_its_folder(name: str, content: dict) -> Iterator[Row]:
    """The file that is given lies where one of ours would be written."""
    word = "run" if name == "config" else name
    for flags in ((), ("--fresh",)) + ((("--force",),) if word == "run" else ()):
        folder = _new_folder()
        file = folder / f"{name}.toml"
        file.write_text(f"# My notes on this experiment.\n{to_toml(content)}")
        mine = {**_put(folder, ["notes.txt"]), file.name: file.read_bytes()}
        command = Command(word, (word, str(file)), ())
        codes = _run(command, folder, *flags) + _tidied(folder)
        yield _row(command, f"its input in it {' '.join(flags)}".strip(), codes, mine, folder)


# Helpers --------------------------------------------------------------------------------------

_said, _count = "", 0


def _run(command: Command, folder: Path, *flags: str) -> tuple[int, ...]:
    return _call(*command.words, "--out", str(folder), *flags)


def _tidied(folder: Path) -> tuple[int, ...]:
    return _call("runs", "gc", "--yes", "--stopped", "--root", str(folder))


def _call(*words: str) -> tuple[int, ...]:
    global _said
    with io.StringIO() as said:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = iclflow(list(words))
        _said = said.getvalue()
    return (code,)


def _new_folder() -> Path:
    global _count
    _count += 1
    folder = Path(f"folder-{_count}")
    folder.mkdir()
    return folder


def _put(folder: Path, names: list[str]) -> Content:
    """Somebody's own files of these names, each with a text of its own."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(f"mine: {name}\n".encode())
    return {name: (folder / name).read_bytes() for name in names}


def _contents(folder: Path) -> Content:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def _differences(before: Content, after: Content) -> list[str]:
    return [name for name in before if after.get(name) != before[name]]


def _row(
    command: Command,
    what: str,
    codes: tuple[int, ...],
    mine: Content,
    folder: Path,
    changed: list[str] | None = None,
) -> Row:
    lost = dict.fromkeys([*(changed or []), *_differences(mine, _contents(folder))])
    return Row(command.name, what, codes, len(mine), list(lost))


@contextlib.contextmanager
def _at(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


sys.addaudithook(_hear)

if __name__ == "__main__":
    sys.exit(main())
