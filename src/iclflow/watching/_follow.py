"""Following a record that another process writes."""

import dataclasses
import json
import os
import statistics
import time
import zlib
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Literal

from ..config import InputError
from ..files import LOCK
from ._columns import Columns, Plain
from ._files import ABOUT, LOOKS, PLANS, PROBLEMS, VERDICTS, read_about, read_line

State = Literal["waiting", "running", "silent", "ended", "gone"]
"""What a training in another process does, as its record tells.

**Example:**

```pycon
>>> import typing
>>> from iclflow import watching
>>> typing.get_args(watching.State)
('waiting', 'running', 'silent', 'ended', 'gone')
```
"""
# Bytes that are read at once: other threads can go on in between.
_CHUNK = 2**21
# A training is silent after this many times the time that its next look was expected to take, but
# not before as many seconds.
_PATIENCE, _SOONEST = 4.0, 5.0
_RECENT = 6


@dataclasses.dataclass(frozen=True)
class Turn:
    """A change of the record other than by a look at its end.

    **Fields:**

    - `kept`: the looks that are still those of before.
    - `kind`: "resumed" (a process goes on with the record), "replaced" (looks were taken back, from
      `step` on) or "other" (it is the record of another training).

    **Example:**

    ```pycon
    >>> from iclflow import watching
    >>> watching.Turn(kept=3, kind="replaced", step=200.0).kind
    'replaced'
    ```
    """

    kept: int
    kind: Literal["resumed", "replaced", "other"]
    step: float | None


class Follower:
    """The looks of a record, read as they are written. It opens its files for reading alone.

    **Fields:**

    - `about`: what is watched.
    - `columns`: the numbers of all looks; `last`: all of the last one.
    - `problems`: what could not be measured, by step.
    - `verdicts`: of claims, and the step up to which they were checked; None if they were not.
    - `turns`: how the record changed otherwise; pages that have seen some of them know from it
      which of their looks still hold.
    - `damage`: why the record cannot be read any further, if that is so.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import watching
    >>> folder = tempfile.mkdtemp() + "/record"
    >>> task = icl.isotropic(dim=3, context=10, noise=0.1)
    >>> watch = icl.watch(task, lambda x, y, x_query: np.zeros(len(x)), every=1, out=folder)
    >>> look = watch(0)
    >>> follower = watching.Follower(pathlib.Path(folder))
    >>> turn = follower.read()
    >>> list(follower.columns.steps), follower.state()[0]
    ([0.0], 'running')
    >>> watch.close()
    ```
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._forget()
        self.turns: list[Turn] = []

    def _forget(self) -> None:
        self.about: dict[str, Any] = {}
        self.columns, self.last = Columns(), None
        self.problems: dict[int, str] = {}
        self.verdicts: Plain | None = None
        self._damages: dict[str, str] = {}
        self._marks: dict[str, Any] = {}
        # Where each line ends, and a checksum of it: to see which lines a new file still has.
        self._ends, self._sums = array("Q"), array("L")

    @property
    def damage(self) -> str | None:
        return next(iter(self._damages.values()), None)

    def read(self) -> tuple[bool, bool]:
        """Reads what is new: whether there was anything, and whether there is more to read."""
        try:
            changed = self._read_about()
            changed = self._damages.pop(ABOUT, None) is not None or changed
            found, more = self._read_looks()
            changed = self._read_verdicts() or changed
            return self._read_problems() or found or changed, more
        except FileNotFoundError:
            return self._lose(), False
        except InputError as error:
            changed = self._damages.get(ABOUT) != str(error)
            self._damages[ABOUT] = str(error)
            return changed, False

    def _lose(self) -> bool:
        """The record is gone, or is not there yet."""
        held = bool(len(self.columns) or self.about)
        if held:
            self._begin_anew()
        return held

    def _begin_anew(self) -> None:
        turn = self._turn(0, "other")
        self._forget()
        self.turns.append(turn)

    def _read_about(self) -> bool:
        mark = _mark(os.stat(self.folder / ABOUT))
        if self._marks.get(ABOUT) == mark:
            return False
        about = read_about(self.folder)
        if self.about and _without_plans(about) != _without_plans(self.about):
            self._begin_anew()
        self.about, self._marks[ABOUT] = about, mark
        return True

    def _read_looks(self) -> tuple[bool, bool]:
        """Reads the next lines. What follows the last line break is not complete yet."""
        try:
            stream = open(self.folder / LOOKS, "rb")
        except FileNotFoundError:
            return False, False
        with stream:
            found = os.fstat(stream.fileno())
            turned = self._compare(stream, found)
            start = self._ends[-1] if self._ends else 0
            if found.st_size <= start or LOOKS in self._damages:
                return turned, False
            stream.seek(start)
            text = stream.read(_CHUNK)
            while b"\n" not in text and (rest := stream.read(_CHUNK)):
                text += rest
            lines = text[: text.rfind(b"\n") + 1].splitlines(keepends=True)
            self._add(lines)
            return turned or bool(lines), start + len(text) < found.st_size

    def _add(self, lines: list[bytes]) -> None:
        for line in lines:
            try:
                self.last = read_line(line, len(self._ends) + 1, self.folder, self._add_look)
            except InputError as error:
                self._damages[LOOKS] = str(error)
                return
            self._ends.append((self._ends[-1] if self._ends else 0) + len(line))
            self._sums.append(zlib.crc32(line))

    def _add_look(self, look: Plain) -> Plain:
        self.columns.add(look)
        return look

    def _compare(self, stream: BinaryIO, found: os.stat_result) -> bool:
        """Whether the file is another one than before. A training that resumes writes a new file,
        with those looks that still hold."""
        mark, before = (found.st_dev, found.st_ino), self._marks.get(LOOKS)
        self._marks[LOOKS] = mark
        if before is None or (before == mark and self._has_last(stream)):
            return False
        stream.seek(0)
        kept = 0
        for line in stream:
            if kept == len(self._sums) or zlib.crc32(line) != self._sums[kept]:
                break
            kept += 1
        self._damages.pop(LOOKS, None)
        turn = self._turn(kept, "resumed" if kept == len(self._ends) else "replaced")
        del self._ends[kept:], self._sums[kept:]
        self.columns.cut(kept)
        self.last = self.look(kept - 1) if kept else None
        # Who sees the turn finds no look of before it.
        self.turns.append(turn)
        return True

    def _has_last(self, stream: BinaryIO) -> bool:
        """Whether the last line that was read is still there: a new file may have the number of an
        old one that was removed."""
        if not self._ends:
            return True
        start = self._ends[-2] if len(self._ends) > 1 else 0
        stream.seek(start)
        return zlib.crc32(stream.read(self._ends[-1] - start)) == self._sums[-1]

    def _turn(self, kept: int, kind: Literal["resumed", "replaced", "other"]) -> Turn:
        steps = self.columns.steps
        return Turn(kept, kind, steps[kept] if kept < len(steps) else None)

    def _read_problems(self) -> bool:
        """Problems are few: the file is read as a whole when it has changed."""
        try:
            mark = _mark(os.stat(self.folder / PROBLEMS))
        except FileNotFoundError:
            changed, self.problems = bool(self.problems), {}
            return changed
        if self._marks.get(PROBLEMS) == mark:
            return False
        self._marks[PROBLEMS] = mark
        self.problems = join_problems(read_problems(self.folder))
        return True

    def _read_verdicts(self) -> bool:
        try:
            mark = _mark(os.stat(self.folder / VERDICTS))
        except FileNotFoundError:
            mark = None
        if self._marks.get(VERDICTS) == mark:
            return False
        self._marks[VERDICTS] = mark
        self.verdicts = read_verdicts(self.folder)
        return True

    def look(self, index: int) -> Plain:
        """Everything that was measured at one look."""
        start = self._ends[index - 1] if index else 0
        with open(self.folder / LOOKS, "rb") as stream:
            stream.seek(start)
            line = stream.read(self._ends[index] - start)
        if zlib.crc32(line) != self._sums[index]:
            raise FileNotFoundError(f"{self.folder}: this look was taken back.")
        return json.loads(line)

    def state(self, now: float | None = None) -> tuple[State, float | None, float | None]:
        """What the training does; the seconds since its last look, and those from look to look.

        A process that was killed leaves its lock behind; one that ends removes it.
        """
        if not self.about:
            return "gone", None, None
        held = os.path.lexists(self.folder / LOCK)
        try:
            written = os.stat(self.folder / LOOKS).st_mtime
        except FileNotFoundError:
            return "waiting" if held else "ended", None, None
        age = max((time.time() if now is None else now) - written, 0.0)
        pace, expected = self._pace()
        if not held:
            return "ended", age, pace
        if not len(self.columns):
            return "waiting", age, pace
        late = age > max(_SOONEST, _PATIENCE * expected)
        return ("silent" if late else "running"), age, pace

    def _pace(self) -> tuple[float | None, float]:
        """The seconds from look to look, and until the next one: gaps of a schedule that is spaced
        on a logarithmic axis grow."""
        seconds = list(self.columns.numbers["seconds"][-_RECENT:])
        gaps = [later - earlier for earlier, later in zip(seconds, seconds[1:])]
        if not gaps:
            return None, 0.0
        growth = gaps[-1] / gaps[-2] if len(gaps) > 1 and gaps[-2] > 0 else 1.0
        return statistics.median(gaps), max(gaps) * min(max(growth, 1.0), 10.0)


def read_problems(folder: Path) -> list[tuple[int, str]]:
    """What could not be measured, each with its step; a step may have several. Lines that cannot be
    read are left out."""
    found: list[tuple[int, str]] = []
    try:
        lines = (folder / PROBLEMS).read_bytes().splitlines()
    except FileNotFoundError:
        return found
    for line in lines:
        try:
            step, words = json.loads(line)
            found.append((int(step), str(words)))
        except (ValueError, TypeError):
            continue
    return found


def join_problems(notes: Iterable[tuple[int, str]]) -> dict[int, str]:
    """What could not be measured, by step."""
    found: dict[int, str] = {}
    for step, words in notes:
        found[step] = f"{found[step]} {words}" if step in found else words
    return found


def read_verdicts(folder: Path) -> Plain | None:
    """The verdicts of claims in a record; None if there are none that can be read."""
    try:
        found = json.loads((folder / VERDICTS).read_text(encoding="utf-8"))
        claims = [{key: each[key] for key in ("id", "statement", "verdict", "reason")}
                  for each in found["claims"]]  # fmt: skip
        return {"step": int(found["step"]), "claims": claims}
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _without_plans(about: dict[str, Any]) -> dict[str, Any]:
    """What makes a training the same one, whatever its next process plans."""
    return {key: value for key, value in about.items() if key not in PLANS}


def _mark(found: os.stat_result) -> tuple[int, ...]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
