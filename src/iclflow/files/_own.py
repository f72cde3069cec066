"""Which files of a folder are ours. Nothing else is ever overwritten or deleted.

**A file is ours** if a list that we wrote has its name and the hash of its content. There are two
such lists, each sealed with a hash of itself: the manifest of what is complete, and the marker
`.iclflow.json`. What has one of these names and no such seal is somebody else's, and so is a file
that was changed since. A link is never ours, and nothing is reached through one, nor outside of
the folder, whatever a list says.

**Killed at any moment**, we leave no file that is not listed. The marker is written before anything
else. Before a file is written, the hash of its new content goes into the marker, beside that of
the content that is there: whichever lies under the name afterwards is known. The marker goes when
the manifest, which is written last, lists all that it does. In folders without a manifest, those
of reports and figures, it stays.

**Half-written files** are called `.NAME.iclflow-XXXXXXXX.part`. They are ours in a folder with a
marker, except those which were there before it: these it names.

Two kinds of files need no list, since they carry their hash: checkpoints inside, and the parts of a
sweep in their names (see `iclflow.store`). Versions before the marker wrote neither it nor these
names for half-written files. Their manifests are as ours; of what they left unfinished, a config
with our header is ours beside such a file.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ._atomic import leftovers, read_regular, read_sealed, sealed, sha256, write_atomic
from ._lock import LOCK, folder_lock, is_own_lock

MARKER = ".iclflow.json"
MANIFEST = "manifest.json"
FORMAT = 1
_WORDS = "Files that iclflow wrote here: each with the SHA-256 of what it may hold."
_HASH = re.compile(r"[0-9a-f]{64}")


class NotOurs(FileExistsError):
    """A file is in the way that we did not write, or that was changed since. The text is a sentence
    without its stop."""


class OwnFiles:
    """The files in a folder that we wrote. One process at a time may change them.

    **Arguments:**

    - `force`: whether files that are not ours are overwritten where ours have the same names.
    - `remedy`: what the user can do about a file that is in the way.
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
        """Whether we wrote a file of this name, whatever is there now."""
        return name in self._listed

    def owns(self, name: str) -> bool:
        """Whether there is a file of this name, and as we wrote it."""
        if not self._is_plain(name):
            return False
        if name in (MANIFEST, MARKER):
            return _read_list(self.folder / name) is not None
        return self._own_hash(name) is not None

    def _own_hash(self, name: str) -> str | None:
        """The hash of the file of this name, if it is as we wrote it."""
        listed = self._listed.get(name)
        if listed is None or not self._is_plain(name):
            return None
        try:
            found = sha256(read_regular(self.folder / name))
        except OSError:
            return None
        return found if found in listed else None

    def files(self) -> list[Path]:
        """All that is there and as we wrote it, the manifest first and the marker last."""
        names = [MANIFEST, *self._listed, MARKER]
        return [self.folder / name for name in dict.fromkeys(names) if self.owns(name)]

    def leftovers(self, *places: str) -> list[Path]:
        """What a process of ours that was killed left half-written, here and in folders below."""
        found = self._half_written(places)
        if self.marked:
            return [path for path in found if self._name(path) not in self._before]
        # We may have died while we wrote the marker itself.
        return [path for path in found if path.name.startswith(f".{MARKER}.")
                and (not path.stat().st_size or _read_list(path) is not None)]  # fmt: skip

    def check(self, names: Iterable[str], contents: Mapping[str, bytes] | None = None) -> None:
        """Refuses names under which something is that is not ours, unless it is what we would
        write."""
        if not self.marked and os.path.lexists(self.folder / MARKER):
            raise NotOurs(f"`{self.folder / MARKER}` is not a marker of iclflow: {self.remedy}")
        if os.path.lexists(self.folder / LOCK) and not is_own_lock(self.folder / LOCK):
            raise NotOurs(f"`{self.folder / LOCK}` is not a lock of iclflow: {self.remedy}")
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
                continue  # the link is replaced, not what it leads to
            else:
                what = "is not a plain file in this folder"
            raise NotOurs(f"`{path}` {what}: {self.remedy}")

    # Changes ---------------------------------------------------------------------------------

    def begin(self, *places: str) -> None:
        """Writes the marker, if it is not there.

        **Arguments:**

        - `places`: folders in this one that will be written into.
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
        """Removes what was left half-written. Nobody may be writing."""
        for path in self.leftovers(*places):
            path.unlink(missing_ok=True)

    def make(self, place: str) -> Path:
        """A folder in this one, made if it is missing; never one that a link leads to."""
        self._check_there()
        path = self.folder / place
        with contextlib.suppress(FileExistsError):
            path.mkdir()
        self._check_place(place)
        return path

    def write(self, contents: Mapping[str, bytes | str]) -> None:
        """Writes files, in this order; a manifest goes before the first, and so must come last."""
        plain = {k: v.encode() if isinstance(v, str) else v for k, v in contents.items()}
        self.check(plain, plain)
        self.begin()
        self._check_there()
        new = {name: sha256(content) for name, content in plain.items() if name != MANIFEST}
        for name, mark in new.items():
            # Beside it, that of the file which is there: whichever of the two it is when we die.
            there = self._own_hash(name)
            self._listed[name] = (mark,) if there in (None, mark) else (there, mark)
        self._mark()
        if MANIFEST in plain:
            # It must not vouch for new files if we stop between two writes.
            (self.folder / MANIFEST).unlink(missing_ok=True)
        for name, content in plain.items():
            self._write(name, content)
        self._listed |= {name: (mark,) for name, mark in new.items()}

    def put(self, name: str, content: bytes) -> None:
        """Writes a file without listing it: for names that hold the hash of their content."""
        self.check([name], {name: content})
        self._write(name, content)

    def adopt(self, *names: str) -> None:
        """Lists files as they are: whoever calls this knows by other means that they are ours."""
        there = [name for name in names if self._is_plain(name)]
        for name in there:
            self._add(name, sha256(read_regular(self.folder / name)))
        if there and self.marked:
            self._mark()

    def forget(self, name: str) -> None:
        """Takes a name off the list, at the next time that the marker is written: something else
        vouches for the file now."""
        self._listed.pop(name, None)

    def remove(self, names: Iterable[str]) -> None:
        """Removes files of these names, those that are ours, and folders that are empty then."""
        for name in names:
            if self.owns(name):
                path = self.folder / name
                path.unlink(missing_ok=True)
                if path.parent != self.folder:
                    with contextlib.suppress(OSError):  # not empty
                        path.parent.rmdir()

    def end(self) -> None:
        """Removes the marker, if it is not needed any more."""
        if self.is_idle():
            (self.folder / MARKER).unlink(missing_ok=True)
            self.marked = False

    def is_idle(self) -> bool:
        """Whether there is a marker, and nothing that it lists and the manifest does not."""
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
        write_atomic(self.folder / MARKER, sealed({**about, "files": self._listed}))

    def _check_there(self) -> None:
        """Refuses to make half of a folder again that was removed under our hands."""
        if self.marked and not os.path.lexists(self.folder / MARKER):
            raise folder_removed(self.folder)

    def _check_place(self, place: str) -> None:
        """Refuses a link, or anything else, where a folder in this one must be, or free."""
        path = self.folder / place
        if os.path.lexists(path) and not self._is_folder(place):
            raise NotOurs(f"`{path}` is not a plain folder: {self.remedy}")

    def _is_plain(self, name: str) -> bool:
        """Whether a name is that of a regular file in this folder, without any link on the way."""
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
    """Writes files into a folder without a manifest, which other processes may use too.

    **Arguments:**

    - `others`: names that may have been written before and are not any more: files of ours that
      have them are removed.
    """
    with folder_lock(folder):
        own = OwnFiles(folder)
        own.write(contents)
        own.remove(others)


def folder_removed(folder: Path) -> FileNotFoundError:
    """What to raise where a folder has gone that its process has not removed."""
    return FileNotFoundError(
        f"`{folder}` was removed, or emptied, while its files were computed: the same command "
        "computes them again"
    )


def listed_files(content: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The names in a list of ours, each with the hashes that a file of it may have."""
    files = content.get("files", {})
    return {name: (h,) if isinstance(h, str) else tuple(h) for name, h in files.items()}


def is_inside(name: str) -> bool:
    """Whether a name leads to nowhere but into the folder that it is taken from."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # JSON can hold what no file is called
        return False
    path = PurePosixPath(name)
    plain = name and "\0" not in name and not path.is_absolute() and ".." not in path.parts
    return bool(plain) and str(path) == name != "."


def find_list_error(content: Mapping[str, Any]) -> str | None:
    """What is wrong with the files that a manifest or a marker lists, if anything is."""
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
    """A manifest or a marker, if it is one that we wrote."""
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
