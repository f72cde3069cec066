"""The runs below a folder: listed, filtered, found by name."""

import dataclasses
import fnmatch
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from ..config import Config, InputError, parse_config, read_toml, to_toml
from ..files import printable, read_regular
from ._manifest import open_manifest
from ._names import CHECKPOINT, CONFIG, HEADER, MANIFEST, TRAJECTORY

Status = Literal["complete", "stopped", "unfinished", "unreadable"]
STATUSES: tuple[Status, ...] = ("complete", "stopped", "unfinished", "unreadable")


@dataclasses.dataclass(frozen=True)
class StoredRun:
    """One folder with a run, as far as is known without reading its trajectory.

    **Fields:**

    - `config`: None where it cannot be read.
    - `status`: `"complete"`, with any result; `"stopped"`, cancelled by its user;
      `"unfinished"`, without a manifest; `"unreadable"`, with files that cannot be read. Runs that
      were stopped or are unfinished resume when they are run again.
    - `reason`: why it is unreadable.
    """

    folder: Path
    config: Config | None
    status: Status
    result: str | None
    final_loss: float | None
    seconds: float | None
    resumable: bool
    reason: str | None = None

    @property
    def name(self) -> str:
        return printable(self.folder.name) if self.config is None else self.config.name

    def as_json(self) -> dict[str, Any]:
        """The run as plain data."""
        return {
            "folder": printable(self.folder),
            "name": self.name,
            "hash": None if self.config is None else self.config.hash,
            "status": self.status,
            "reason": self.reason,
            "result": self.result,
            "final_loss": self.final_loss,
            "seconds": self.seconds,
            "resumable": self.resumable,
            "config": None if self.config is None else self.config.given(),
        }


def list_runs(root: Path) -> list[StoredRun]:
    """The runs below a folder, by name. A folder that cannot be read is listed as unreadable.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> text = store.config_text(icl.papers.study("linear/merged"))
    >>> _ = (root / store.CONFIG).write_text(text)
    >>> [(run.name, run.status) for run in store.list_runs(root)]
    [('linear-merged', 'unfinished')]
    >>> store.STATUSES
    ('complete', 'stopped', 'unfinished', 'unreadable')
    ```
    """
    failed: list[OSError] = []
    found = [read_run(folder) for folder in folders_with(_is_run, root, failed.append)]
    found += [_unreadable(Path(error.filename), error.strerror or str(error)) for error in failed]
    return sorted(found, key=lambda run: run.folder)


def folders_with(
    holds: Callable[[Path, Iterable[str]], bool],
    root: Path,
    failed: Callable[[OSError], None] | None = None,
) -> Iterator[Path]:
    """The folders at or below `root` for which `holds(folder, names in it)` is true. Neither these
    nor hidden folders are searched further."""
    if not root.is_dir():
        raise InputError(
            f"`{root}` is not a folder: give one with runs by --root, or make a first run with "
            "`iclflow run linear/staircase`."
        )
    for place, inside, files in os.walk(root, onerror=failed):
        folder = Path(place)
        if holds(folder, [*files, *inside]):
            inside.clear()
            yield folder
        else:
            inside[:] = [name for name in inside if not name.startswith(".")]


def read_run(folder: Path) -> StoredRun:
    """What is known of the run in a folder. Problems become a status, not an error."""
    manifest, reason = open_manifest(folder)
    config = None
    try:
        config = read_config(folder)
    except InputError as error:
        reason = reason or str(error).rstrip(".")
    if reason is not None:
        return dataclasses.replace(_unreadable(folder, reason), config=config)
    manifest = manifest or {}
    result, seconds = manifest.get("result"), manifest.get("statistics", {}).get("seconds")
    resumable = os.path.lexists(folder / CHECKPOINT)
    status: Status = "complete"
    if not manifest:
        status = "unfinished"
    elif result == "cancelled":
        status = "stopped"
    return StoredRun(folder, config, status, result, manifest.get("loss"), seconds, resumable)


def read_config(folder: Path) -> Config:
    """The config in the folder of a run; an `InputError` if there is none."""
    path = folder / CONFIG
    # A pipe would block its reader.
    if os.path.lexists(path) and not os.path.isfile(path):
        raise InputError(f"`{printable(path)}` is not a plain file.")
    return parse_config(read_toml(path), stored=True)


def _unreadable(folder: Path, reason: str) -> StoredRun:
    return StoredRun(folder, None, "unreadable", None, None, None, False, reason)


def filter_runs(
    runs: Iterable[StoredRun], names: str | None, status: str | None, where: Iterable[str]
) -> list[StoredRun]:
    """The runs with a name that matches a pattern, a status, and some settings.

    **Arguments:**

    - `where`: conditions such as `model.heads=4`.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> text = store.config_text(icl.papers.study("linear/merged"))
    >>> _ = (root / store.CONFIG).write_text(text)
    >>> runs = store.list_runs(root)
    >>> len(store.filter_runs(runs, "*merged", "unfinished", ["model.heads=8"]))
    1
    >>> store.filter_runs(runs, None, "complete", [])
    []
    ```
    """
    wanted = [_parse_condition(text) for text in where]
    return [
        run
        for run in runs
        if (names is None or fnmatch.fnmatch(run.name, names))
        and (status is None or run.status == status)
        and all(_find_setting(run.config, key) == value for key, value in wanted)
    ]


def find_run(root: Path, name: str) -> StoredRun:
    """One run, by its folder, its name, or the beginning of its hash.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> text = store.config_text(icl.papers.study("linear/merged"))
    >>> _ = (root / store.CONFIG).write_text(text)
    >>> store.find_run(root, "linear-merged").status
    'unfinished'
    ```
    """
    path = Path(name)
    if os.path.isdir(path) and _is_run(path, os.listdir(path)):
        return read_run(path)
    runs = list_runs(root) if root.is_dir() else []
    fits = [
        run
        for run in runs
        if name in (run.name, run.folder.name)
        or (len(name) >= 4 and run.config is not None and run.config.hash.startswith(name))
    ]
    if len(fits) == 1:
        return fits[0]
    if not fits:
        raise InputError(f"`RUN` = {name!r} is no run below `{root}`: `iclflow runs` lists them.")
    folders = ", ".join(f"`{run.folder}`" for run in fits[:4])
    raise InputError(f"`RUN` = {name!r} fits {len(fits)} runs ({folders}): give a folder.")


def _is_run(folder: Path, files: Iterable[str]) -> bool:
    """Whether a folder holds a run. A config alone counts only if iclflow wrote it."""
    names = set(files)
    if MANIFEST in names and "sweep_hash" in (open_manifest(folder)[0] or {}):
        return False
    if CONFIG in names and (MANIFEST in names or CHECKPOINT in names):
        return True
    if CONFIG not in names:
        return {MANIFEST, TRAJECTORY} <= names
    return has_own_config(folder)


def has_own_config(folder: Path) -> bool:
    """Whether a folder has the config of a run that iclflow wrote.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> text = store.config_text(icl.papers.study("linear/merged"))
    >>> _ = (root / store.CONFIG).write_text(text)
    >>> store.has_own_config(root)
    True
    >>> _ = (root / store.CONFIG).write_text("mine")
    >>> store.has_own_config(root)
    False
    ```
    """
    return begins_with(folder / CONFIG, HEADER)


def begins_with(path: Path, header: str) -> bool:
    """Whether a file begins with one of our headers."""
    try:
        return not os.path.islink(path) and read_regular(path).startswith(header.encode())
    except OSError:
        return False


def is_as_written(path: Path, header: str) -> bool:
    """Whether a TOML file is, byte for byte, what iclflow writes under this header."""
    try:
        return read_regular(path) == (header + to_toml(read_toml(path))).encode()
    except (InputError, OSError):
        return False


def _parse_condition(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"`where` = {text!r}: must be SETTING=VALUE, such as model.heads=4.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def _find_setting(config: Config | None, key: str) -> Any:
    value: Any = {} if config is None else config.given()
    for step in key.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value
