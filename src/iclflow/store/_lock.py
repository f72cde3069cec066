"""One process at a time in a folder. The system lets go of a lock when its process dies."""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from ._names import LOCK


class Held(Exception):
    """Another process has the folder."""


@contextlib.contextmanager
def folder_lock(
    path: Path, waiting: Callable[[], None] | None = None, wait: bool = True
) -> Iterator[None]:
    """Holds a folder against other processes; it is made again if it is removed meanwhile.

    **Arguments:**

    - `waiting`: called if another process has the folder, before it is waited for.
    - `wait`: if False, `Held` is raised instead.
    """
    handle = _taken(path, waiting, wait)
    try:
        yield
    finally:
        # Before the lock is let go: who waits sees that the file has gone, and makes another.
        with contextlib.suppress(OSError):
            (path / LOCK).unlink(missing_ok=True)
        os.close(handle)


def _taken(path: Path, waiting: Callable[[], None] | None, wait: bool) -> int:
    import fcntl  # not on every system: those without it cannot keep runs

    told = False
    while True:
        path.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # removed between the two lines
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                os.close(handle)
                raise Held(str(path)) from None
            if waiting is not None and not told:
                waiting()
                told = True
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except BaseException:
                os.close(handle)
                raise
        except OSError as error:
            words = f"`{path}` is on a file system without locks ({error.strerror}): do not run "
            warnings.warn(words + "the same config twice at once.", stacklevel=3)
            return handle
        if _is_there(handle, path / LOCK):
            return handle
        os.close(handle)


def _is_there(handle: int, path: Path) -> bool:
    """Whether the file that is open is still the one of that name."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    held = os.fstat(handle)
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)
