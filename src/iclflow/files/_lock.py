"""One process at a time in a folder. The system lets go of a lock when its process dies."""

import contextlib
import errno
import os
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

LOCK = ".iclflow.lock"
# What a lock of ours holds. One that was only just made is empty.
_TEXT = b"A process of iclflow holds this folder.\n"
# Never through a link, and never waiting for whoever is at the other end of a pipe.
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Held(Exception):
    """Another process has the folder."""


@contextlib.contextmanager
def folder_lock(
    path: Path, waiting: Callable[[], None] | None = None, wait: bool = True
) -> Iterator[None]:
    """Holds a folder against other processes; it is made again if it is removed meanwhile.

    A file of the name of the lock that is not one is left alone: the folder is refused.

    **Arguments:**

    - `waiting`: called if another process has the folder, before it is waited for.
    - `wait`: if False, `Held` is raised instead.
    """
    handle = _acquire(path, waiting, wait)
    try:
        yield
    finally:
        # Before the lock is let go: who waits sees that the file has gone, and makes another.
        with contextlib.suppress(OSError):
            if _is_there(handle, path / LOCK):
                (path / LOCK).unlink(missing_ok=True)
        os.close(handle)


def is_own_lock(path: Path) -> bool:
    """Whether a file is a lock that we made."""
    try:
        handle = os.open(path, _FLAGS)
    except OSError:
        return False
    try:
        return _is_ours(handle)
    finally:
        os.close(handle)


def _acquire(path: Path, waiting: Callable[[], None] | None, wait: bool) -> int:
    import fcntl  # not on every system: those without it cannot keep runs

    told = False
    while True:
        path.mkdir(parents=True, exist_ok=True)
        try:
            handle = _open_lock(path / LOCK)
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
            with contextlib.suppress(OSError):  # a full disk: an empty lock is one too
                os.pwrite(handle, _TEXT, 0)
            return handle
        os.close(handle)


def _open_lock(path: Path) -> int:
    """The lock, made if it is not there; refused where something else has its name."""
    refused = f"`{path}` is not a lock of iclflow: remove it, or choose another folder"
    try:
        handle = os.open(path, _FLAGS | os.O_CREAT, 0o666)
    except OSError as error:
        # A link, a folder, a pipe that nobody reads.
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise FileExistsError(refused) from None
        raise
    if not _is_ours(handle):
        os.close(handle)
        raise FileExistsError(refused)
    return handle


def _is_ours(handle: int) -> bool:
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        return False
    return os.pread(handle, len(_TEXT) + 1, 0) in (b"", _TEXT)


def _is_there(handle: int, path: Path) -> bool:
    """Whether the file that is open is still the one of that name."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    held = os.fstat(handle)
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)
