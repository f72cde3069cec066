"""A place for the checkpoints of runs that are left for a while."""

import contextlib
import os
import re
import stat
import tempfile
from pathlib import Path

from ..files import MARKER, OwnFiles, leftovers, write_own

_NAME = "iclflow-explore-"
# The names of the checkpoints in it: the id of a run is sixteen letters.
_CHECKPOINT = re.compile(r"[\w-]{16}\.safetensors")


def checkpoint_folder() -> Path:
    """A new folder for this process; those of servers that were killed are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        pid = path.name.removeprefix(_NAME).partition("-")[0]
        # Others may have folders of such a name too: those of ours have our marker.
        if pid.isdecimal() and not _is_alive(int(pid)) and _is_own(path):
            _remove(path)
    made = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-"))
    write_own(made, {})
    return made


def _is_own(folder: Path) -> bool:
    """Whether we made a folder. Anybody can put a link into a shared place for temporary files."""
    try:
        about = folder.lstat()
    except OSError:
        return False
    plain = stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()
    return plain and OwnFiles(folder).owns(MARKER)


def _remove(folder: Path) -> None:
    checkpoints = [file for file in folder.iterdir() if _CHECKPOINT.fullmatch(file.name)]
    with contextlib.suppress(OSError):  # something else is in it, or it cannot be removed
        for file in (*checkpoints, *leftovers(folder), folder / MARKER):
            file.unlink(missing_ok=True)
        folder.rmdir()


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(PermissionError):  # of another user, and so alive
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return True
