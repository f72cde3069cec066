"""The record of a watched training: a folder that survives the training, and goes on with it."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from ..config import InputError
from ..files import FolderInUse, folder_lock, read_sealed, seal, write_atomic
from ..store import result_folder
from ._look import Look

# What is watched, written once; and one line per look, appended.
ABOUT, LOOKS = "watch.json", "looks.jsonl"


class Record:
    """The looks of a training, in memory, and in a folder if there is one.

    A line is appended and synced at each look, so that a process can be killed at any moment. A
    training that resumes from an earlier step takes back the looks from there on.
    """

    def __init__(self, folder: Path | None, about: dict[str, Any]):
        self.folder, self.looks = folder, []
        self._stack = contextlib.ExitStack()
        if folder is not None:
            self._open(folder, about)

    def add(self, look: Look) -> None:
        """Appends a look; looks at the same step or later are taken back first."""
        kept = [each for each in self.looks if each.step < look.step]
        if len(kept) < len(self.looks):
            self.looks = kept
            self._rewrite()
        self.looks.append(look)
        if self.folder is not None:
            with open(self.folder / LOOKS, "a", encoding="utf-8") as stream:
                stream.write(_line(look))
                stream.flush()
                os.fsync(stream.fileno())

    def close(self) -> None:
        """Lets another process use the folder."""
        self._stack.close()

    def _open(self, folder: Path, about: dict[str, Any]) -> None:
        with result_folder(folder), contextlib.ExitStack() as stack:
            try:
                stack.enter_context(folder_lock(folder, wait=False))
            except FolderInUse:
                raise InputError(
                    f"`{folder}`: another process records a training there; choose another folder "
                    "with `out`."
                ) from None
            if os.path.lexists(folder / ABOUT):
                self._resume(folder, about)
            elif os.path.lexists(folder / LOOKS):
                raise InputError(
                    f"`{folder / LOOKS}` is not of iclflow: choose another folder with `out`."
                )
            else:
                write_atomic(folder / ABOUT, seal(about))
            self._stack = stack.pop_all()

    def _resume(self, folder: Path, about: dict[str, Any]) -> None:
        before = read_about(folder)
        changed = [name for name in about if before.get(name) != about[name]]
        if changed:
            name = changed[0]
            raise InputError(
                f"`{folder}` holds the record of another training (`{name}` was "
                f"{before.get(name)!r}, is {about[name]!r}): choose another folder with `out`."
            )
        self.looks = read_looks(folder)
        self._rewrite()

    def _rewrite(self) -> None:
        """Writes all looks anew: without a last line that was cut off, or without later looks."""
        if self.folder is not None:
            write_atomic(self.folder / LOOKS, "".join(map(_line, self.looks)))


def read_about(folder: Path) -> dict[str, Any]:
    """What is watched in a folder; an `InputError` if it holds no record."""
    try:
        return read_sealed(folder / ABOUT)
    except OSError as error:
        raise InputError(f"`{folder}` holds no watched training: {error.strerror}.") from None
    except ValueError as error:
        raise InputError(f"`{folder / ABOUT}` {error}: it is damaged.") from None


def read_looks(folder: Path) -> list[Look]:
    """The looks in a folder. A last line that was cut off when the process died is left out."""
    try:
        lines = (folder / LOOKS).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(lines[:-1], 1):  # what follows the last line break is cut off
        try:
            found.append(Look.from_json(json.loads(line)))
        except (ValueError, TypeError, KeyError):
            raise InputError(f"`{folder / LOOKS}`, line {number}: it is damaged.") from None
    return found


def _line(look: Look) -> str:
    return json.dumps(look.as_json(), allow_nan=False) + "\n"
