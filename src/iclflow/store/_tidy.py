"""Removing what is incomplete: only files that iclflow wrote, and nothing that is in use."""

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from ..files import LOCK, MARKER, FolderInUse, OwnFiles, folder_lock, is_own_lock
from ._catalogue import folders_with, list_runs, read_run
from ._manifest import find_damage
from ._names import CHECKPOINT, CONFIG, MANIFEST, PARTS, SWEEP, TRAJECTORIES
from ._result_folder import hash_in, holds_own_run, is_empty, is_own_checkpoint
from ._sweeps import (
    holds_own_sweep,
    list_sweeps,
    own_checkpoints,
    own_parts,
    own_trajectories,
    parts_in,
    read_sweep,
)


@dataclasses.dataclass(frozen=True)
class Removable:
    """A folder with files to remove: some, or if `whole` all that iclflow wrote there."""

    folder: Path
    kind: Literal["run", "sweep"]
    files: tuple[Path, ...]
    whole: bool


@dataclasses.dataclass(frozen=True)
class RemovalPlan:
    """What can be removed: temporary files, checkpoints and parts of what is complete, and folders
    of runs and sweeps that are not complete."""

    folders: tuple[Removable, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(file for each in self.folders if not each.whole for file in each.files)

    @property
    def runs(self) -> tuple[Path, ...]:
        return tuple(each.folder for each in self.folders if each.whole and each.kind == "run")

    @property
    def sweeps(self) -> tuple[Path, ...]:
        return tuple(each.folder for each in self.folders if each.whole and each.kind == "sweep")


@dataclasses.dataclass(frozen=True)
class RemovalResult(RemovalPlan):
    """What was removed; which folders stayed because a process is computing them; and which stayed
    for another reason, with the reason."""

    busy: tuple[Path, ...]
    left: tuple[tuple[Path, str], ...]


def plan_removal(roots: Sequence[Path], stopped: bool = False) -> RemovalPlan:
    """What can be removed below some folders.

    **Arguments:**

    - `stopped`: include runs that their user stopped, and sweeps that are not complete. Nothing
      says whether such a sweep was stopped or killed, and much of it may be done.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = icl.run("linear/white", out=root, progress=False)
    >>> store.plan_removal([root]).runs
    ()
    ```
    """
    found = [_plan_run(run.folder, stopped) for root in roots for run in list_runs(root)]
    found += [
        _plan_run(folder, stopped)
        for root in roots
        for folder in folders_with(_is_barely_begun, root)
    ]
    found += [_plan_sweep(sweep.folder, stopped) for root in roots for sweep in list_sweeps(root)]
    return RemovalPlan(tuple(each for each in found if each.whole or each.files))


def remove(found: RemovalPlan) -> RemovalResult:
    """Removes files folder by folder, each under its lock.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = icl.run("linear/white", out=root, progress=False)
    >>> store.remove(store.plan_removal([root])).files  # nothing was left by a killed process
    ()
    ```
    """
    gone, busy, left = [], [], []
    for each in found.folders:
        try:
            with folder_lock(each.folder, wait=False):
                # Planned again: meanwhile a process may have resumed it, or finished it.
                look = _plan_run if each.kind == "run" else _plan_sweep
                now = look(each.folder, stopped=each.whole)
                if each.whole != now.whole:
                    continue
                files = now.files if each.whole else tuple(set(now.files) & set(each.files))
                if each.whole:
                    _list_all(each.folder, files)
                for path in files:
                    if path.name != LOCK:  # we hold it; it is removed on release
                        path.unlink(missing_ok=True)
                if each.whole:
                    (each.folder / MARKER).unlink(missing_ok=True)
        except FolderInUse:
            busy.append(each.folder)
            continue
        except OSError as error:
            left.append((each.folder, error.strerror or str(error)))
            continue
        gone.append(dataclasses.replace(each, files=tuple(sorted(files))))
        # A folder with foreign files stays.
        for place in (PARTS, TRAJECTORIES, ".") if each.whole else (PARTS,):
            with contextlib.suppress(OSError):
                (each.folder / place).rmdir()
    return RemovalResult(tuple(gone), tuple(busy), tuple(left))


def _plan_run(folder: Path, stopped: bool) -> Removable:
    """What can be removed from the folder of a run; nothing if iclflow did not write it."""
    run, own = read_run(folder), OwnFiles(folder)
    left = own.leftovers() + _find_lock(folder)
    if not holds_own_run(folder):
        begun = _is_barely_begun(folder, [MARKER])
        return Removable(folder, "run", tuple(left) if begun else (), begun)
    label = hash_in(folder)
    checkpoint = folder / CHECKPOINT
    checkpoints = [checkpoint] if is_own_checkpoint(checkpoint, label) else []
    if run.status == "unfinished" or (stopped and run.status == "stopped"):
        return Removable(folder, "run", (*left, *checkpoints, *_files_of(own, CONFIG)), True)
    left += checkpoints if run.status == "complete" else []
    return Removable(folder, "run", tuple(sorted(left + _idle_marker(own, run.status))), False)


def _plan_sweep(folder: Path, stopped: bool) -> Removable:
    """What can be removed from the folder of a sweep; nothing if iclflow did not write it."""
    sweep, own = read_sweep(folder), OwnFiles(folder)
    if not holds_own_sweep(folder):
        return Removable(folder, "sweep", (), False)
    left = own.leftovers(PARTS, TRAJECTORIES) + _find_lock(folder)
    if stopped and sweep.status == "unfinished":
        # Parts first: one without its trajectories would count as damaged.
        batches = own_parts(folder) + own_checkpoints(folder) + own_trajectories(folder)
        files = [file for file in _files_of(own, SWEEP) if file not in batches]
        return Removable(folder, "sweep", (*left, *batches, *files), True)
    if sweep.status == "complete" and not find_damage(folder):
        left += own_checkpoints(folder) + own_parts(folder)
    else:
        done = {number for number, _ in parts_in(folder)}
        left += [path for number in done for path in own_checkpoints(folder, number)]
    return Removable(folder, "sweep", tuple(sorted(left + _idle_marker(own, sweep.status))), False)


def _files_of(own: OwnFiles, header: str) -> list[Path]:
    """The listed files that are unchanged, last the one whose header identifies the folder."""
    found = [path for path in own.files() if path.name not in (header, MARKER)]
    return [*found, own.folder / header]


def _list_all(folder: Path, files: Sequence[Path]) -> None:
    """Lists files in the marker before they are removed. If this process is killed in between, the
    rest is still known to be ours, although the manifest, checkpoint or part that proved it is
    gone."""
    own = OwnFiles(folder)
    names = [path.relative_to(folder).as_posix() for path in files]
    with contextlib.suppress(OSError):  # a full disk has no room for it, and must be emptied
        own.adopt(*(name for name in names if name not in (LOCK, MANIFEST)))
        own.begin()


def _is_barely_begun(folder: Path, files: Iterable[str]) -> bool:
    """Whether a process was killed in a folder before it wrote more than the marker."""
    return MARKER in files and OwnFiles(folder).owns(MARKER) and is_empty(folder)


def _idle_marker(own: OwnFiles, status: str) -> list[Path]:
    """The marker of a complete run or sweep, left by a process that was killed."""
    return [own.folder / MARKER] if status == "complete" and own.is_idle() else []


def _find_lock(folder: Path) -> list[Path]:
    return [folder / LOCK] if is_own_lock(folder / LOCK) else []
