"""One run on disk: found, computed, taken up, and kept, by one process at a time."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..config import Config, InputError, to_toml
from ..files import remove_leftovers, write_atomic
from ..flows import Checkpoint
from ..trajectory import Result, Trajectory
from ._manifest import NAME, damage, made_by, read_manifest
from ._result_folder import hash_in, result_folder

CHECKPOINT = "checkpoint.safetensors"


class RunFolder:
    """The folder of a run, while this process alone may use it.

    It holds `config.toml` from the start, `checkpoint.safetensors` while the run is under way, and
    at the end the trajectory, figures, and `manifest.json`, which makes it complete.
    """

    def __init__(self, path: Path, config: Config):
        self.path = path
        self.config = config

    @staticmethod
    @contextlib.contextmanager
    def locked(
        path: Path, config: Config, waiting: Callable[[], None] | None = None
    ) -> Iterator["RunFolder"]:
        """The folder, made if it is missing; another process that uses it is waited for.

        If the block fails before anything was kept, what was made for it is removed.

        **Arguments:**

        - `waiting`: called if another process has the folder.
        """
        with result_folder(path), _lock(path, waiting):
            remove_leftovers(path)
            found = RunFolder(path, config)
            begun = not any(path.iterdir())
            if begun:
                write_atomic(path / "config.toml", to_toml(config.given()))
            try:
                yield found
            except BaseException:
                if begun and not (path / CHECKPOINT).exists():
                    (path / "config.toml").unlink(missing_ok=True)
                raise

    def stored(self) -> Trajectory | None:
        """The run, if it is here and over; an `InputError` if it is damaged."""
        manifest = read_manifest(self.path)
        if hash_in(self.path) != self.config.hash or not (self.path / NAME).exists():
            return None
        if manifest is not None and manifest.get("result") == Result.cancelled.name:
            return None
        found = damage(self.path)
        if found:
            raise InputError(f"{found[0][:-1]}; `--fresh` computes the run again.")
        return Trajectory.load(self.path)

    def checkpoint(self, every: float, fresh: bool) -> Checkpoint:
        """Where the run writes how far it is; `fresh` forgets how far it was."""
        found = Checkpoint(self.path / CHECKPOINT, every)
        if fresh or hash_in(self.path) != self.config.hash:
            found.remove()
        return found

    def keep(self, run: Trajectory, figures: dict[str, bytes]) -> bool:
        """Writes a run; False if one that reached its end is here and must not be replaced by one
        that did not."""
        if self._keeps_its_own(run):
            (self.path / CHECKPOINT).unlink(missing_ok=True)
            return False
        # An older manifest must not vouch for the new files if we stop between the two.
        (self.path / NAME).unlink(missing_ok=True)
        files = {"config.toml": to_toml(self.config.given()).encode(), **figures}
        about: dict[str, Any] = {"config_hash": self.config.hash, "seed": self.config.seed}
        run.save(self.path, files=files, about=about | made_by())
        if run.result is not Result.cancelled:
            (self.path / CHECKPOINT).unlink(missing_ok=True)
        return True

    def _keeps_its_own(self, run: Trajectory) -> bool:
        same = hash_in(self.path) == self.config.hash
        if run.result.ok or not (same or run.result is Result.cancelled):
            return False
        manifest = read_manifest(self.path)
        if manifest is None or damage(self.path):
            return False
        return Result[manifest["result"]].ok


@contextlib.contextmanager
def _lock(path: Path, waiting: Callable[[], None] | None) -> Iterator[None]:
    """Holds a folder against other processes. The system lets go of it when a process dies."""
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: two processes would do the same work twice
        yield
    finally:
        os.close(handle)
