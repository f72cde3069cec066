"""A folder for the checkpoints of runs that are paused, or that yield to others."""

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


def make_checkpoint_folder() -> Path:
    """A new folder for this process; those of servers that were killed are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        pid = path.name.removeprefix(_NAME).partition("-")[0]
        # Other programs may use such names too: our folders have our marker.
        if pid.isdecimal() and not _is_alive(int(pid)) and _is_own(path):
            _remove(path)
    made = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-"))
    write_own(made, {})
    return made


def _is_own(folder: Path) -> bool:
    """Whether we made a folder. Anybody can put a link into the shared temporary folder."""
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
    with contextlib.suppress(PermissionError):  # it belongs to another user, so it is alive
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return True
