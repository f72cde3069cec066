"""Which files in a folder iclflow wrote. No other file is ever overwritten or deleted.

**A file is ours** if a list that we wrote has its name and the hash of its content. There are two
such lists, each sealed with a hash of itself: the manifest of a complete result, and the marker
`.iclflow.json`. A list without a valid seal is foreign, and so is a file that was changed since.
Links are never ours and never followed, and names that lead out of the folder are ignored.

**A process that is killed at any moment** leaves no file that is not listed. The marker is written
first. Before a file is written, the hash of its new content goes into the marker, beside that of
the old content: the file is known whichever of the two it has afterwards. The marker is removed
when the manifest, which is written last, lists the same files. In folders without a manifest, those
of reports and figures, the marker stays.

**Temporary files** are called `.NAME.iclflow-XXXXXXXX.part`. In a folder with a marker they are
ours, except those which the marker names because they were there before it.

Two kinds of files need no list, because they carry their hash: checkpoints contain it, and the
parts of a sweep have it in their names (see `iclflow.store`). Early versions had no marker and
other names for temporary files. Their manifests are the same; of their unfinished runs, a config
with our header is ours if such a file is in the same folder.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ._atomic import leftovers, read_regular, read_sealed, seal, sha256, write_atomic
from ._lock import LOCK, folder_lock, is_own_lock

MARKER = ".iclflow.json"
MANIFEST = "manifest.json"
FORMAT = 1
_WORDS = "Files that iclflow wrote here: each with the SHA-256 of what it may hold."
_HASH = re.compile(r"[0-9a-f]{64}")


class ForeignFile(FileExistsError):
    """A file that iclflow did not write, or that was changed since, has the name of a file to be
    written. The text is a sentence without its full stop."""


# What a user can do about a foreign file where a command would write its own.
OTHER_FOLDER = "move it away, or choose another folder with --out"


class OwnFiles:
    """The files in a folder that iclflow wrote. One process at a time may change them.

    **Arguments:**

    - `force`: overwrite foreign files with the names of ours.
    - `remedy`: what the user can do about such a file, for the error message.
    """

    def __init__(self, folder: Path | str, force: bool = False, remedy: str = "move it away"):
        self.folder = Path(folder)
        self.force = force
        self.remedy = remedy
        self._listed: dict[str, tuple[str, ...]] = {}
        self._before: tuple[str, ...] = ()
        marker = _read_list(self.folder / MARKER)
        for content in (_read_list(self.folder / MANIFEST), marker):
            for name, hashes in listed_files(content or {}).items():
                self._add(name, *hashes)
        self.marked = marker is not None
        if marker is not None:
            self._before = tuple(marker.get("before", ()))

    # What is there ---------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """All names that are listed."""
        return list(self._listed)

    def lists(self, name: str) -> bool:
        """Whether we wrote a file of this name; it may have been changed or removed since."""
        return name in self._listed

    def owns(self, name: str) -> bool:
        """Whether there is a file of this name, unchanged since we wrote it."""
        if not self._is_plain(name):
            return False
        if name in (MANIFEST, MARKER):
            return _read_list(self.folder / name) is not None
        return self._own_hash(name) is not None

    def _own_hash(self, name: str) -> str | None:
        """The hash of the file of this name, if it is unchanged since we wrote it."""
        listed = self._listed.get(name)
        if listed is None or not self._is_plain(name):
            return None
        try:
            found = sha256(read_regular(self.folder / name))
        except OSError:
            return None
        return found if found in listed else None

    def files(self) -> list[Path]:
        """All our files that are unchanged, the manifest first and the marker last."""
        names = [MANIFEST, *self._listed, MARKER]
        return [self.folder / name for name in dict.fromkeys(names) if self.owns(name)]

    def leftovers(self, *places: str) -> list[Path]:
        """Temporary files of our killed processes, here and in these folders below."""
        found = self._half_written(places)
        if self.marked:
            return [path for path in found if self._name(path) not in self._before]
        # A process may have been killed while it wrote the marker itself.
        return [path for path in found if path.name.startswith(f".{MARKER}.")
                and (not path.stat().st_size or _read_list(path) is not None)]  # fmt: skip

    def check(self, names: Iterable[str], contents: Mapping[str, bytes] | None = None) -> None:
        """Refuses names that files of somebody else have, unless their content is what we would
        write."""
        if not self.marked and os.path.lexists(self.folder / MARKER):
            raise ForeignFile(f"`{self.folder / MARKER}` is not a marker of iclflow: {self.remedy}")
        if os.path.lexists(self.folder / LOCK) and not is_own_lock(self.folder / LOCK):
            raise ForeignFile(f"`{self.folder / LOCK}` is not a lock of iclflow: {self.remedy}")
        for name in names:
            path, content = self.folder / name, (contents or {}).get(name)
            self._check_place(str(PurePosixPath(name).parent))
            if not os.path.lexists(path) or self.owns(name):
                continue
            if self._is_plain(name):
                if self.force or (content is not None and read_regular(path) == content):
                    continue
                what = "was not written by iclflow, or was changed since"
            elif self.force and os.path.islink(path):
                continue  # the link is replaced, not its target
            else:
                what = "is not a plain file in this folder"
            raise ForeignFile(f"`{path}` {what}: {self.remedy}")

    # Changes ---------------------------------------------------------------------------------

    def begin(self, *places: str) -> None:
        """Writes the marker, if there is none.

        **Arguments:**

        - `places`: subfolders that will be written into.
        """
        self._check_there()
        for place in places:
            self._check_place(place)
        if not self.marked:
            self.check(())
            ours = self.leftovers()
            found = [path for path in self._half_written(places) if path not in ours]
            self._before = tuple(map(self._name, found))
            self._mark()
            self.marked = True

    def clear(self, *places: str) -> None:
        """Removes temporary files of killed processes. No other process may be writing."""
        for path in self.leftovers(*places):
            path.unlink(missing_ok=True)

    def make(self, place: str) -> Path:
        """A subfolder, made if it is missing; a link is refused."""
        self._check_there()
        path = self.folder / place
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        self._check_place(place)
        return path

    def write(self, contents: Mapping[str, bytes | str]) -> None:
        """Writes files in this order. The old manifest is removed first; a new one comes last."""
        plain = {k: v.encode() if isinstance(v, str) else v for k, v in contents.items()}
        self.check(plain, plain)
        self.begin()
        self._check_there()
        new = {name: sha256(content) for name, content in plain.items() if name != MANIFEST}
        for name, mark in new.items():
            # The old hash stays beside the new one: if we are killed, the file has one of them.
            there = self._own_hash(name)
            self._listed[name] = (mark,) if there in (None, mark) else (there, mark)
        self._mark()
        if MANIFEST in plain:
            # It must not describe the new files if we are killed between two writes.
            (self.folder / MANIFEST).unlink(missing_ok=True)
        for name, content in plain.items():
            self._write(name, content)
        self._listed |= {name: (mark,) for name, mark in new.items()}

    def put(self, name: str, content: bytes) -> None:
        """Writes a file without listing it: for names that contain the hash of the content."""
        self.check([name], {name: content})
        self._write(name, content)

    def adopt(self, *names: str) -> None:
        """Lists files as they are: the caller knows by other means that they are ours."""
        there = [name for name in names if self._is_plain(name)]
        for name in there:
            self._add(name, sha256(read_regular(self.folder / name)))
        if there and self.marked:
            self._mark()

    def forget(self, name: str) -> None:
        """Takes a name off the list when the marker is next written: the file has its hash
        elsewhere."""
        self._listed.pop(name, None)

    def remove(self, names: Iterable[str]) -> None:
        """Removes those of these files that are ours, and subfolders that are then empty."""
        for name in names:
            if self.owns(name):
                path = self.folder / name
                path.unlink(missing_ok=True)
                if path.parent != self.folder:
                    with contextlib.suppress(OSError):  # not empty
                        path.parent.rmdir()

    def end(self) -> None:
        """Removes the marker, if it is no longer needed."""
        if self.is_idle():
            (self.folder / MARKER).unlink(missing_ok=True)
            self.marked = False

    def is_idle(self) -> bool:
        """Whether there is a marker, and the manifest lists all that it does."""
        if not self.owns(MARKER):
            return False
        manifest = listed_files(_read_list(self.folder / MANIFEST) or {})
        return all(name in manifest or not self.owns(name) for name in self._listed)

    # -----------------------------------------------------------------------------------------

    def _write(self, name: str, content: bytes) -> None:
        self._check_there()
        parent = str(PurePosixPath(name).parent)
        if parent != ".":
            self.make(parent)
        write_atomic(self.folder / name, content)

    def _half_written(self, places: Iterable[str]) -> list[Path]:
        plain = [self.folder / place for place in ("", *places) if self._is_folder(place)]
        return [path for folder in plain for path in leftovers(folder)]

    def _add(self, name: str, *hashes: str) -> None:
        self._listed[name] = tuple(dict.fromkeys([*self._listed.get(name, ()), *hashes]))

    def _mark(self) -> None:
        self._check_there()
        about: dict[str, Any] = {"format": FORMAT, "what": _WORDS, "before": list(self._before)}
        write_atomic(self.folder / MARKER, seal({**about, "files": self._listed}))

    def _check_there(self) -> None:
        """Refuses to continue in a folder that was removed: half of its files would be missing."""
        if self.marked and not os.path.lexists(self.folder / MARKER):
            raise folder_removed(self.folder)

    def _check_place(self, place: str) -> None:
        """Refuses anything but a plain subfolder, or nothing, at this name."""
        path = self.folder / place
        if os.path.lexists(path) and not self._is_folder(place):
            raise ForeignFile(f"`{path}` is not a plain folder: {self.remedy}")

    def _is_plain(self, name: str) -> bool:
        """Whether a name is that of a regular file in this folder, reached without links."""
        if not is_inside(name) or not self._is_folder(PurePosixPath(name).parent):
            return False
        with contextlib.suppress(OSError):
            return stat.S_ISREG(os.lstat(self.folder / name).st_mode)
        return False

    def _is_folder(self, place: str | PurePosixPath) -> bool:
        path = self.folder
        for step in PurePosixPath(place).parts:
            path /= step
            if os.path.islink(path):
                return False
        return os.path.isdir(path)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


def write_own(
    folder: Path, contents: Mapping[str, bytes | str], others: Iterable[str] = ()
) -> None:
    """Writes files into a folder without a manifest, which several processes may use.

    **Arguments:**

    - `others`: names that earlier versions of the result had: our files of these names are
      removed.
    """
    with folder_lock(folder):
        own = OwnFiles(folder)
        own.write(contents)
        own.remove(others)


def folder_removed(folder: Path) -> FileNotFoundError:
    """The error for a folder that was removed while it was in use."""
    return FileNotFoundError(
        f"`{folder}` was removed, or emptied, while its files were computed: the same command "
        "computes them again"
    )


def listed_files(content: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The names in a manifest or marker, each with the hashes that the file may have."""
    files = content.get("files", {})
    return {name: (h,) if isinstance(h, str) else tuple(h) for name, h in files.items()}


def is_inside(name: str) -> bool:
    """Whether a relative name stays inside its folder."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # JSON can hold text that is no file name
        return False
    path = PurePosixPath(name)
    plain = name and "\0" not in name and not path.is_absolute() and ".." not in path.parts
    return bool(plain) and str(path) == name != "."


def find_list_error(content: Mapping[str, Any]) -> str | None:
    """What is wrong with the files that a manifest or a marker lists; None if nothing is."""
    files = content.get("files")
    if not isinstance(files, dict):
        return "has no table of files"
    for name, hashes in files.items():
        several = [hashes] if isinstance(hashes, str) else hashes
        if not is_inside(name):
            return f"lists a file outside of its folder ({name!r})"
        if not isinstance(several, list) or not all(
            isinstance(mark, str) and _HASH.fullmatch(mark) for mark in several
        ):
            return f"has no hash of {name!r}"
    return None


def _read_list(path: Path) -> dict[str, Any] | None:
    """A manifest or a marker; None if we did not write it."""
    try:
        content = None if os.path.islink(path) else read_sealed(path)
    except (OSError, ValueError):
        return None
    if content is None or find_list_error(content) is not None:
        return None
    before = content.get("before", [])
    return content if isinstance(before, list) and all(map(_is_text, before)) else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
