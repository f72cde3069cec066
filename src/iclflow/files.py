"""Writing files so that a reader sees the old content or the new, never half of it."""

import hashlib
import os
import re
import tempfile
from pathlib import Path


def _read_umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


# A name as `mkstemp` makes it below.
_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{8}\.part")

# Read once: it can only be read by setting it, for all threads.
_UMASK = _read_umask()


def write_atomic(path: Path | str, content: bytes | str) -> None:
    """Writes a file in one step: a temporary file beside it, synced, then renamed over it.

    The folder is made if it is missing. If anything fails, no half-written file is left.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes private files; results are as readable as any other file of the user.
        os.chmod(temporary, 0o666 & ~_UMASK)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rename itself must survive a crash too
    finally:
        os.close(folder)


def leftovers(folder: Path) -> list[Path]:
    """Half-written files that `write_atomic` left in a folder when its process was killed."""
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
