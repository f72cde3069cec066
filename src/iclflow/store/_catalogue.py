"""The runs below a folder: listed, filtered, found by name."""

import dataclasses
import fnmatch
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from ..config import Config, InputError, parse_config, read_toml
from ..files import leftovers
from ._manifest import NAME, read_manifest
from ._run_folder import CHECKPOINT

Status = Literal["complete", "stopped", "unfinished"]


@dataclasses.dataclass(frozen=True)
class StoredRun:
    """One folder with a run, as far as it can be told without reading its trajectory.

    **Fields:**

    - `status`: `"complete"`; `"stopped"`, cancelled by its user; `"unfinished"`, without a
      manifest. The last two go on where they stood when they are asked for again.
    """

    folder: Path
    config: Config
    status: Status
    result: str | None
    final_loss: float | None
    seconds: float | None
    resumable: bool

    def as_json(self) -> dict[str, Any]:
        """The same as plain data."""
        return {
            "folder": str(self.folder),
            "name": self.config.name,
            "hash": self.config.hash,
            "status": self.status,
            "result": self.result,
            "final_loss": self.final_loss,
            "seconds": self.seconds,
            "resumable": self.resumable,
            "config": self.config.given(),
        }


def list_runs(root: Path) -> list[StoredRun]:
    """The runs below a folder, by name."""
    if not root.is_dir():
        raise InputError(f"`{root}` is not a folder: give one with runs, by --root.")
    found = [_read(path.parent) for path in sorted(root.rglob("config.toml"))]
    return [run for run in found if run is not None]


def matching(
    runs: Iterable[StoredRun], names: str | None, status: str | None, where: Iterable[str]
) -> list[StoredRun]:
    """Those runs whose name fits a pattern, that have a status, and whose settings are so.

    **Arguments:**

    - `where`: conditions such as `model.heads=4`.
    """
    wanted = [_condition(text) for text in where]
    return [
        run
        for run in runs
        if (names is None or fnmatch.fnmatch(run.config.name, names))
        and (status is None or run.status == status)
        and all(_setting(run.config, key) == value for key, value in wanted)
    ]


def find_run(root: Path, name: str) -> StoredRun:
    """One run, by its folder, its name, or the beginning of its hash."""
    path = Path(name)
    if (path / "config.toml").exists():
        found = _read(path)
        if found is not None:
            return found
        raise InputError(f"`{path}/config.toml` is not a config of this version.")
    runs = list_runs(root) if root.is_dir() else []
    fits = [
        run
        for run in runs
        if name in (run.config.name, run.folder.name)
        or (len(name) >= 4 and run.config.hash.startswith(name))
    ]
    if len(fits) == 1:
        return fits[0]
    if not fits:
        raise InputError(f"`RUN` = {name!r} is no run below `{root}`: `iclflow runs` lists them.")
    folders = ", ".join(f"`{run.folder}`" for run in fits[:4])
    raise InputError(f"`RUN` = {name!r} fits {len(fits)} runs ({folders}): give a folder.")


def litter(root: Path) -> list[Path]:
    """Files that a process which died left behind: half-written ones, and checkpoints of runs that
    are complete."""
    found = [path for folder in _folders(root) for path in leftovers(folder)]
    for run in list_runs(root):
        if run.status == "complete" and run.resumable:
            found.append(run.folder / CHECKPOINT)
    return sorted(found)


def _folders(root: Path) -> list[Path]:
    return [root, *(path for path in sorted(root.rglob("*")) if path.is_dir())]


def _read(folder: Path) -> StoredRun | None:
    try:
        config = parse_config(read_toml(folder / "config.toml"))
    except InputError:
        return None
    manifest = read_manifest(folder)
    resumable = (folder / CHECKPOINT).exists()
    if manifest is None and not (folder / NAME).exists():
        return StoredRun(folder, config, "unfinished", None, None, None, resumable)
    content = manifest or {}
    result = content.get("result")
    status: Status = "stopped" if result == "cancelled" else "complete"
    seconds = content.get("statistics", {}).get("seconds")
    return StoredRun(folder, config, status, result, content.get("loss"), seconds, resumable)


def _condition(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"`where` = {text!r}: must be SETTING=VALUE, such as model.heads=4.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _setting(config: Config, key: str) -> Any:
    value: Any = config.given()
    for step in key.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value
