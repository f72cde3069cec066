"""One process at a time in a folder. The system releases the lock when its process dies."""

import contextlib
import errno
import os
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

LOCK = ".iclflow.lock"
# The content of a lock file. One that was only just made is empty.
_TEXT = b"A process of iclflow holds this folder.\n"
# Links are not followed, and a pipe does not block.
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Locks of this process. A fork of it, such as a worker that loads data, would hold them on when
# this process is killed: it lets go of them at once.
_held: set[int] = set()


def _let_go() -> None:
    for handle in _held:
        with contextlib.suppress(OSError):
            os.close(handle)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class FolderInUse(Exception):
    """Another process holds the folder."""


@contextlib.contextmanager
def folder_lock(
    path: Path, waiting: Callable[[], None] | None = None, wait: bool = True
) -> Iterator[None]:
    """Locks a folder against other processes. It is made if it is missing.

    If a foreign file has the name of the lock, the folder is refused.

    **Arguments:**

    - `waiting`: called once if another process holds the folder, before waiting for it.
    - `wait`: if False, `FolderInUse` is raised instead.
    """
    handle = _acquire(path, waiting, wait)
    _held.add(handle)
    try:
        yield
    finally:
        if handle in _held:  # and not in a fork of the process that locked
            # Removed before the release: a waiting process sees that the file is gone, and makes
            # another.
            with contextlib.suppress(OSError):
                if _is_there(handle, path / LOCK):
                    (path / LOCK).unlink(missing_ok=True)
            _held.discard(handle)
            os.close(handle)


def is_own_lock(path: Path) -> bool:
    """Whether a file is a lock of iclflow."""
    try:
        handle = os.open(path, _FLAGS)
    except OSError:
        return False
    try:
        return _is_ours(handle)
    finally:
        os.close(handle)


def _acquire(path: Path, waiting: Callable[[], None] | None, wait: bool) -> int:
    import fcntl  # POSIX only: other systems cannot store runs

    notified = False
    while True:
        path.mkdir(parents=True, exist_ok=True)
        try:
            handle = _open_lock(path / LOCK)
        except FileNotFoundError:
            continue  # the folder was removed between the two lines
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                os.close(handle)
                raise FolderInUse(str(path)) from None
            if waiting is not None and not notified:
                waiting()
                notified = True
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
            with contextlib.suppress(OSError):  # a full disk: an empty lock file is valid too
                os.pwrite(handle, _TEXT, 0)
            return handle
        os.close(handle)


def _open_lock(path: Path) -> int:
    """Opens the lock file, or makes it; refuses any other file of that name."""
    refused = f"`{path}` is not a lock of iclflow: remove it, or choose another folder"
    try:
        handle = os.open(path, _FLAGS | os.O_CREAT, 0o666)
    except OSError as error:
        # A link, a folder, or a pipe without a reader.
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise FileExistsError(refused) from None
        raise
    if not _is_ours(handle):
        os.close(handle)
        raise FileExistsError(refused)
    return handle


def _is_ours(handle: int) -> bool:
    found = os.fstat(handle)
    # Writing into a hard link from elsewhere would change a foreign file.
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        return False
    return os.pread(handle, len(_TEXT) + 1, 0) in (b"", _TEXT)


def _is_there(handle: int, path: Path) -> bool:
    """Whether the open file is still the one at that path."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    held = os.fstat(handle)
    return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)
