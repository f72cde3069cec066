"""One run on disk: found, computed, taken up, and kept, by one process at a time."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..config import Config, InputError, to_toml
from ..files import remove_leftovers, write_atomic
from ..flows import Checkpoint, label_in
from ..trajectory import Result, Trajectory
from ._lock import folder_lock
from ._manifest import damage, made_by, read_manifest
from ._names import CHECKPOINT, CONFIG, HEADER, MANIFEST, OWN
from ._result_folder import check_free, hash_in, is_empty, result_folder


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
        path: Path,
        config: Config,
        waiting: Callable[[], None] | None = None,
        force: bool = False,
    ) -> Iterator["RunFolder"]:
        """The folder, made if it is missing; another process that uses it is waited for.

        If the block fails before anything was kept, what was made for it is removed.

        **Arguments:**

        - `waiting`: called if another process has the folder.
        - `force`: whether a folder that holds another run, or anything else, may be written into.
        """
        with result_folder(path), folder_lock(path, waiting):
            # Only now: whoever had the folder may have made another run in it.
            check_free(path, config, force)
            remove_leftovers(path)
            found = RunFolder(path, config)
            begun = is_empty(path)
            if begun:
                write_atomic(path / CONFIG, found._config_text())
            try:
                yield found
            except BaseException:
                if begun and not any((path / name).exists() for name in (CHECKPOINT, MANIFEST)):
                    for name in OWN:
                        (path / name).unlink(missing_ok=True)
                raise

    def stored(self) -> Trajectory | None:
        """The run, if it is here and over; an `InputError` if it is damaged."""
        if not (self.path / MANIFEST).exists():
            return None
        manifest = read_manifest(self.path) or {}
        # A config that was damaged has another hash, or none: the manifest knows which it was.
        if self.config.hash not in (manifest.get("config_hash"), hash_in(self.path)):
            return None
        if manifest.get("result") == Result.cancelled.name:
            return None
        found = damage(self.path)
        if found:
            raise InputError(f"{found[0][:-1]}; `--fresh` computes the run again.")
        return Trajectory.load(self.path)

    def made_elsewhere(self) -> str | None:
        """The versions that made the run that is here, where they are not these."""
        there, here = (read_manifest(self.path) or {}).get("versions", {}), made_by()["versions"]
        other = [f"{name} {there[name]}" for name in there if there[name] != here.get(name)]
        return ", ".join(other) or None

    def checkpoint(self, every: float, fresh: bool) -> Checkpoint:
        """Where the run writes how far it is; `fresh` forgets how far it was."""
        found = Checkpoint(self.path / CHECKPOINT, every, self.config.hash)
        # One that is damaged has no label: it is refused when it is read, not thrown away.
        if fresh or label_in(found.path) not in (None, "", self.config.hash):
            found.remove()
        return found

    def keep(self, run: Trajectory, figures: dict[str, bytes]) -> bool:
        """Writes a run; False if one that reached its end is here and must not be replaced by one
        that did not. How far that one is stays, so that it can be taken up."""
        if self._keeps_its_own(run):
            return False
        # An older manifest must not vouch for the new files if we stop between the two.
        (self.path / MANIFEST).unlink(missing_ok=True)
        files = {CONFIG: self._config_text().encode(), **figures}
        about: dict[str, Any] = {"config_hash": self.config.hash, "seed": self.config.seed}
        run.save(self.path, files=files, about=about | made_by())
        if run.result is not Result.cancelled:
            (self.path / CHECKPOINT).unlink(missing_ok=True)
        return True

    def _config_text(self) -> str:
        return HEADER + to_toml(self.config.given())

    def _keeps_its_own(self, run: Trajectory) -> bool:
        same = hash_in(self.path) == self.config.hash
        if run.result.ok or not (same or run.result is Result.cancelled):
            return False
        manifest = read_manifest(self.path)
        if manifest is None or damage(self.path):
            return False
        return Result[manifest["result"]].ok
