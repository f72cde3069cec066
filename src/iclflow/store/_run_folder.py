"""The folder of one run, which one process at a time may use."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..config import Config, InputError
from ..files import OwnFiles, folder_lock
from ..flows import Checkpoint, label_in
from ..trajectory import Result, Trajectory
from ._manifest import find_damage, provenance, read_manifest
from ._names import CHECKPOINT, CONFIG, MANIFEST, OWN
from ._result_folder import (
    check_free,
    config_text,
    hash_in,
    is_empty,
    is_own_checkpoint,
    result_folder,
)

_REMEDY = "move it away, choose another folder with --out, or overwrite it with --force"


class RunFolder:
    """The folder of a run, while this process alone may use it.

    It holds `config.toml` from the start, `checkpoint.safetensors` while the run is under way, and
    at the end the trajectory, figures, and `manifest.json`, which makes it complete. Nothing else
    in it is touched (see `iclflow.files.OwnFiles`).

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> config = icl.papers.study("linear/white")
    >>> with store.RunFolder.lock(root, config) as folder:
    ...     print(folder.load_stored(), (root / store.CONFIG).is_file())
    None True
    >>> (root / store.CHECKPOINT).exists()
    False
    ```
    """

    def __init__(self, path: Path, config: Config, force: bool = False):
        self.path = path
        self.config = config
        self._own = OwnFiles(path, force, _REMEDY)

    @staticmethod
    @contextlib.contextmanager
    def lock(
        path: Path,
        config: Config,
        waiting: Callable[[], None] | None = None,
        force: bool = False,
    ) -> Iterator["RunFolder"]:
        """Locks the folder, and makes it if it is missing. Waits for a process that holds it.

        If the block fails before anything was kept, what was made for it is removed.

        **Arguments:**

        - `waiting`: called if another process holds the folder.
        - `force`: overwrite foreign files with the names of a run's files.
        """
        with result_folder(path), folder_lock(path, waiting):
            # Only now: the process that held the folder may have made another run in it.
            check_free(path, config, force)
            begun = is_empty(path)
            found = RunFolder(path, config, force)
            try:
                found._begin(begun)
                yield found
            except BaseException:
                if begun and not any((path / name).exists() for name in (CHECKPOINT, MANIFEST)):
                    found._own.remove(OWN)
                raise
            finally:
                found._own.end()

    def _begin(self, new: bool) -> None:
        # Versions without a marker listed nothing while a run was under way: their files are
        # compared when they are written, and must be the same then.
        if self._own.lists(CONFIG) or self._own.force:
            self._own.check(OWN)
        if new:
            self._own.write({CONFIG: config_text(self.config)})
        else:
            if not self._own.force:
                self._own.adopt(CONFIG)
            self._own.begin()
        self._own.clear()

    def load_stored(self) -> Trajectory | None:
        """The run, if it is complete; an `InputError` if it is damaged."""
        if not (self.path / MANIFEST).exists():
            return None
        manifest = read_manifest(self.path) or {}
        # A damaged config has another hash, or none: the manifest has the original one.
        if self.config.hash not in (manifest.get("config_hash"), hash_in(self.path)):
            return None
        if manifest.get("result") == Result.cancelled.name:
            return None
        found = find_damage(self.path)
        if found:
            raise InputError(f"{found[0][:-1]}; remove it, then `--fresh` computes the run again.")
        return Trajectory.load(self.path)

    def other_versions(self) -> str | None:
        """The versions that made the stored run, where they differ from those of this process."""
        there, here = (read_manifest(self.path) or {}).get("versions", {}), provenance()["versions"]
        other = [f"{name} {there[name]}" for name in there if there[name] != here.get(name)]
        return ", ".join(other) or None

    def checkpoint(self, every: float, fresh: bool) -> Checkpoint:
        """The checkpoint of the run; `fresh` removes an earlier one."""
        path = self.path / CHECKPOINT
        if os.path.lexists(path) and (os.path.islink(path) or not os.path.isfile(path)):
            raise InputError(f"`{path}` is not a plain file: {_REMEDY}.")
        found = Checkpoint(path, every, self.config.hash, make_folder=False)
        # A damaged one has no label: it is refused when it is read, not removed.
        if fresh or label_in(found.path) not in (None, "", self.config.hash):
            if not is_own_checkpoint(found.path):
                self._own.check([CHECKPOINT])
            found.remove()
        return found

    def keep(self, run: Trajectory, figures: dict[str, bytes]) -> bool:
        """Writes a run. False if a complete one is stored and this one did not reach its end: then
        the stored run stays, and the checkpoint too, so that this one can resume."""
        if self._must_not_replace(run):
            return False
        files = {CONFIG: config_text(self.config).encode(), **figures}
        about: dict[str, Any] = {"config_hash": self.config.hash, "seed": self.config.seed}
        run.save(self.path, files=files, about=about | provenance(), own=self._own)
        if run.result is not Result.cancelled and is_own_checkpoint(self.path / CHECKPOINT):
            (self.path / CHECKPOINT).unlink(missing_ok=True)
        return True

    def _must_not_replace(self, run: Trajectory) -> bool:
        same = hash_in(self.path) == self.config.hash
        if run.result.ok or not (same or run.result is Result.cancelled):
            return False
        manifest = read_manifest(self.path)
        if manifest is None or find_damage(self.path):
            return False
        result = Result.__members__.get(manifest.get("result", ""))
        return result is not None and result.ok
