"""A place for the checkpoints of runs that are left for a while."""

import contextlib
import os
import tempfile
from pathlib import Path

from ..files import MARKER, OwnFiles, leftovers, write_own

_NAME = "iclflow-explore-"


def checkpoint_folder() -> Path:
    """A new folder for this process; those of servers that were killed are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        pid = path.name.removeprefix(_NAME).partition("-")[0]
        # Others may have folders of such a name too: those of ours have our marker.
        if pid.isdecimal() and not _is_alive(int(pid)) and OwnFiles(path).owns(MARKER):
            _remove(path)
    made = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-"))
    write_own(made, {})
    return made


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):  # something else is in it, or it cannot be removed
        for file in (*folder.glob("*.safetensors"), *leftovers(folder), folder / MARKER):
            file.unlink(missing_ok=True)
        folder.rmdir()


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(PermissionError):  # of another user, and so alive
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return True
