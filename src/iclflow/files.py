"""Writing files so that a reader sees the old content or the new, never half of it; and reading
their JSON."""

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def _read_umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


_ENDING = ".part"
# A name as `mkstemp` makes it below.
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.part")

# Read once: it can only be read by setting it, for all threads.
_UMASK = _read_umask()

# Stands where the hash of a sealed text comes.
_NO_HASH = "0" * 64
_SEAL = '"hash": "'
# As much of a value as a sentence can hold.
_LONGEST_VALUE = 60


class FileError(ValueError):
    """A file that cannot be used; the text is one sentence that says why."""


def write_atomic(path: Path | str, content: bytes | str) -> None:
    """Writes a file in one step: a temporary file beside it, synced, then renamed over it.

    The folder is made if it is missing. If anything fails, no half-written file is left.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(_ENDING, f".{path.name}.", path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes private files; results are as readable as any other file of the user.
        os.chmod(temporary, 0o666 & ~_UMASK)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # else nobody knows which disk is full
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a crash too
    finally:
        os.close(folder)


@contextlib.contextmanager
def temporary_file(folder: Path, name: str) -> Iterator[Path]:
    """An empty file for others to write to, gone at the end; one that is left is a leftover."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(_ENDING, f".{name}.", folder)
    os.close(handle)
    try:
        yield Path(temporary)
    finally:
        Path(temporary).unlink(missing_ok=True)


def leftovers(folder: Path) -> list[Path]:
    """Half-written files that were left in a folder when their process was killed."""
    return [
        path for path in folder.glob(".*") if _TEMPORARY.fullmatch(path.name) and path.is_file()
    ]


def remove_leftovers(folder: Path) -> None:
    """Removes them. Nobody else may be writing into the folder."""
    for path in leftovers(folder):
        path.unlink(missing_ok=True)


def sha256(data: bytes) -> str:
    """The SHA-256 of `data`, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sealed(content: Mapping[str, Any]) -> str:
    """An object as JSON whose last entry, `hash`, is the hash of every other byte of it."""
    text = json.dumps({**content, "hash": _NO_HASH}, indent=2) + "\n"
    head, seal, tail = text.rpartition(_SEAL)
    return head + seal + sha256(text.encode()) + tail.removeprefix(_NO_HASH)


def is_sealed(text: str) -> bool:
    """Whether a text is as `sealed` made it, to the byte."""
    head, seal, tail = text.rpartition(_SEAL)
    mark, rest = tail[: len(_NO_HASH)], tail[len(_NO_HASH) :]
    return sha256((head + seal + _NO_HASH + rest).encode()) == mark


def parse_json(text: str | bytes) -> Any:
    """The content of a JSON text; a `ValueError` that says why it is none, also where brackets are
    nested so deeply that Python cannot follow."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("is nested too deeply to be read") from None
    except ValueError:
        raise ValueError("is not valid JSON") from None


def shorten(value: Any) -> str:
    """A value of a file or of a user as it can stand in a sentence: on one line, not too long."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python writes no more digits than some thousands
        return "a number with thousands of digits"
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
