"""Writing files so that a reader sees the old content or the new, never half of it."""

import contextlib
import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import shorten
from ._content import parse_json


def _read_umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


# Temporary files are called `.NAME.iclflow-XXXXXXXX.part`, a name that no other program uses.
_MARK, _ENDING = ".iclflow-", ".part"
_TEMPORARY = re.compile(r"\..+\.iclflow-[a-z0-9_]{8}\.part")

# Read once: the umask can only be read by setting it, for all threads.
_UMASK = _read_umask()

# Placeholder for the hash of a sealed text.
_NO_HASH = "0" * 64
_SEAL = '"hash": "'
# Bytes: ten times the size of a list of a hundred thousand files.
_LARGEST_LIST = 100_000_000


def write_atomic(path: Path | str, content: bytes | str) -> None:
    """Writes a file in one step: a temporary file beside it, synced, then renamed over it.

    The folder is made if it is missing. If anything fails, no half-written file is left.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(_ENDING, f".{path.name}{_MARK}", path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes private files; results get the usual permissions of the user.
        os.chmod(temporary, 0o666 & ~_UMASK)
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # so that the message says which disk is full
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a crash too
    finally:
        os.close(folder)


@contextlib.contextmanager
def temporary_file(folder: Path, name: str) -> Iterator[Path]:
    """An empty temporary file for another library to write to, removed at the end."""
    handle, temporary = tempfile.mkstemp(_ENDING, f".{name}{_MARK}", folder)
    os.close(handle)
    try:
        yield Path(temporary)
    finally:
        Path(temporary).unlink(missing_ok=True)


def leftovers(folder: Path) -> list[Path]:
    """Temporary files in a folder that a killed process may have left, by their names."""
    if not folder.is_dir():
        return []
    found = (folder / name for name in sorted(os.listdir(folder)) if _TEMPORARY.fullmatch(name))
    return [path for path in found if os.path.isfile(path) and not os.path.islink(path)]


def read_regular(path: Path, largest: int | None = None) -> bytes:
    """The content of a regular file; an `OSError` for a folder, a pipe or a device, which could
    block."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as stream:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(0, "Not a regular file", str(path))
        if largest is not None and about.st_size > largest:
            raise OSError(0, f"Larger than {largest} bytes", str(path))
        return stream.read()


def printable(text: Path | str) -> str:
    """A path, or a text with one, that can be printed: bytes that are not UTF-8 read `\\xff`."""
    try:
        data = str(text).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate, which no file name holds
        data = str(text).encode("utf-8", "backslashreplace")
    return data.decode("utf-8", "backslashreplace")


def sha256(data: bytes) -> str:
    """The SHA-256 of `data`, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file of any size, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def seal(content: Mapping[str, Any]) -> str:
    """An object as JSON whose last entry, `hash`, is the hash of all its other bytes."""
    text = json.dumps({**content, "hash": _NO_HASH}, indent=2) + "\n"
    head, seal, tail = text.rpartition(_SEAL)
    return head + seal + sha256(text.encode()) + tail.removeprefix(_NO_HASH)


def is_sealed(text: str) -> bool:
    """Whether a text is exactly what `seal` made."""
    head, seal, tail = text.rpartition(_SEAL)
    mark, rest = tail[: len(_NO_HASH)], tail[len(_NO_HASH) :]
    return sha256((head + seal + _NO_HASH + rest).encode()) == mark


def read_sealed(path: Path, format: int | None = None) -> dict[str, Any]:
    """The object in a file that `seal` made; a `ValueError` says why it is none, an `OSError`
    why it cannot be read.

    **Arguments:**

    - `format`: if given, the `format` that the object must have.
    """
    data = read_regular(path, _LARGEST_LIST)
    content = parse_json(data)
    # First: another format may have other hashes.
    if format is not None and isinstance(content, dict) and content.get("format") != format:
        found = shorten(content.get("format"))
        raise ValueError(f"has format {found}: must be {format}")
    if not is_sealed(data.decode()):
        raise ValueError("does not match its hash")
    if not isinstance(content, dict):
        raise ValueError("holds no object")
    return content
