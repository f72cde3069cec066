"""A place for the checkpoints of runs that are left for a while."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

_NAME = "iclflow-explore-"


def checkpoint_folder() -> Path:
    """A new folder for this process; those of servers that were killed are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        pid = path.name.removeprefix(_NAME).partition("-")[0]
        if pid.isdecimal() and not _is_alive(int(pid)):
            shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-"))


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(PermissionError):  # of another user, and so alive
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return True
