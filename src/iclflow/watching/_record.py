"""The record of a watched training: a folder that survives the training, and goes on with it."""

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..config import InputError
from ..files import FolderInUse, folder_lock, seal, write_atomic
from ..store import result_folder
from ._files import (
    ABOUT,
    LOOKS,
    PROBLEMS,
    TAKEN_BACK,
    VERDICTS,
    damage,
    read_about,
    read_lines,
)
from ._follow import join_problems, read_problems, read_verdicts
from ._look import Look


class Record:
    """The looks of a training, in memory, and in a folder if there is one.

    A line is appended and synced at each look, so that a process can be killed at any moment. A
    training that resumes from an earlier step takes back the looks from there on.

    **Arguments:**

    - `about`: what is watched: a training that resumes must have the same.
    - `further`: what readers of the record may like to know; it may differ.
    """

    def __init__(
        self, folder: Path | None, about: dict[str, Any], further: dict[str, Any] | None = None
    ):
        self.folder, self.about, self.looks = folder, about, []
        self._notes: list[tuple[int, str]] = []
        # Whether the file has looks that were taken back, or has not all that were made.
        self._stale = self._closed = False
        self._stack = contextlib.ExitStack()
        if folder is not None:
            self._open(folder, about, further or {})

    def begin(self, step: int) -> None:
        """A look at this step begins: looks and problems from there on, of a training that repeats
        its steps, are taken back. Should this look fail, those of before are not its."""
        self._take_back(step)
        kept = [note for note in self._notes if note[0] < step]
        if len(kept) < len(self._notes):
            self._notes = kept
            self._rewrite_problems()
        if self._stale:
            self._rewrite()

    def add(self, look: Look) -> None:
        """Appends a look; looks at the same step or later are taken back first."""
        self._take_back(look.step)
        self.looks.append(look)
        line = _line(look)
        if self._stale:
            self._rewrite()
            return
        self._stale = True  # should it fail, the next look writes this one, too
        self._append(LOOKS, line)
        self._stale = False

    def _take_back(self, step: int) -> None:
        kept = [each for each in self.looks if each.step < step]
        if len(kept) < len(self.looks):
            self._append(TAKEN_BACK, "".join(map(_line, self.looks[len(kept) :])))
            self.looks, self._stale = kept, True
            self._drop_verdicts(step)

    @property
    def problems(self) -> dict[int, str]:
        """What could not be measured, by step."""
        return join_problems(self._notes)

    def complain(self, step: int, sentence: str) -> None:
        """Notes what could not be measured at a step."""
        self._notes.append((step, sentence))
        self._append(PROBLEMS, _note(step, sentence))

    def judge(self, claims: Sequence[dict[str, Any]]) -> None:
        """Writes the verdicts of claims on the looks so far."""
        if self.folder is not None and self.looks:
            found = {"step": self.looks[-1].step, "claims": list(claims)}
            write_atomic(self.folder / VERDICTS, json.dumps(found))

    def _append(self, name: str, line: str) -> None:
        if self.folder is None:
            return
        if self._closed:  # it may be the record of another process by now
            raise OSError("the record was closed")
        # Without a buffer, which would try once more to write what did not fit.
        with open(self.folder / name, "ab", buffering=0, opener=_open_no_link) as stream:
            size, rest = stream.tell(), line.encode()
            try:
                while rest:
                    rest = rest[stream.write(rest) :]
                os.fsync(stream.fileno())
            except OSError:  # half a line would spoil the next one
                with contextlib.suppress(OSError):
                    stream.truncate(size)
                raise

    def close(self) -> None:
        """Lets another process use the folder: what is measured later is not recorded."""
        self._closed = True
        self._stack.close()

    def _open(self, folder: Path, about: dict[str, Any], further: dict[str, Any]) -> None:
        with result_folder(folder), contextlib.ExitStack() as stack:
            try:
                stack.enter_context(folder_lock(folder, wait=False))
            except FolderInUse:
                raise InputError(
                    f"`{folder}`: another process records a training there; choose another folder "
                    "with `out`."
                ) from None
            except FileExistsError as error:  # a file of somebody else by the name of the lock
                raise InputError(f"{error}.") from None
            if os.path.lexists(folder / ABOUT):
                self._resume(folder, about, further)
            else:
                _refuse_foreign(folder)
                write_atomic(folder / ABOUT, seal(about | further))
            self._stack = stack.pop_all()

    def _resume(self, folder: Path, about: dict[str, Any], further: dict[str, Any]) -> None:
        before = read_about(folder)
        changed = [name for name in about if before.get(name) != about[name]]
        if changed:
            name = changed[0]
            raise InputError(
                f"`{folder}` holds the record of another training (`{name}` was "
                f"{before.get(name)!r}, is {about[name]!r}): choose another folder with `out`."
            )
        self.looks, self._notes = read_looks(folder), read_problems(folder)
        if before != about | further:
            write_atomic(folder / ABOUT, seal(about | further))
        self._rewrite()
        self._drop_verdicts(self.looks[-1].step + 1 if self.looks else 0)
        if os.path.lexists(folder / PROBLEMS):
            self._rewrite_problems()

    def _rewrite(self) -> None:
        """Writes all looks anew: without a last line that was cut off, or without later looks."""
        if self.folder is not None and not self._closed:
            write_atomic(self.folder / LOOKS, "".join(_lines(self.looks)))
        self._stale = False

    def _drop_verdicts(self, step: int) -> None:
        """Verdicts do not hold if looks from a step on were taken back which they are about."""
        found = None if self.folder is None else read_verdicts(self.folder)
        if self.folder is not None and found is not None and found["step"] >= step:
            (self.folder / VERDICTS).unlink(missing_ok=True)

    def _rewrite_problems(self) -> None:
        if self.folder is not None and not self._closed:
            notes = "".join(_note(*each) for each in self._notes)
            write_atomic(self.folder / PROBLEMS, notes)


def _open_no_link(path: str, flags: int) -> int:
    """Opens a file to append to: never that of somebody else, which a link leads to."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _refuse_foreign(folder: Path) -> None:
    """Refuses a folder without a record that has a file by the name of one of ours."""
    for name in (LOOKS, PROBLEMS, TAKEN_BACK, VERDICTS):
        if os.path.lexists(folder / name):
            raise InputError(
                f"`{folder / name}` is not of iclflow: choose another folder with `out`."
            )


def read_looks(folder: Path) -> list[Look]:
    """The looks in a folder. A last line that was cut off when the process died is left out.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import watching
    >>> folder = tempfile.mkdtemp() + "/record"
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=1, out=folder)
    >>> look = watch(0)
    >>> [look.step for look in watching.read_looks(pathlib.Path(folder))]
    [0]
    >>> watch.close()
    ```
    """
    found = []
    for number, data in enumerate(read_lines(folder), 1):
        try:
            found.append(Look.from_json(data))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise damage(folder / LOOKS, number) from None
    return found


def _lines(looks: Sequence[Look]) -> Iterator[str]:
    for look in looks:
        # A number that JSON cannot hold: that was said when the look was made.
        with contextlib.suppress(ValueError):
            yield _line(look)


def _line(look: Look) -> str:
    return json.dumps(look.as_json(), allow_nan=False) + "\n"


def _note(step: int, sentence: str) -> str:
    return json.dumps([step, sentence]) + "\n"
