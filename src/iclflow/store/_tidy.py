"""Removing what is incomplete: only what we wrote, and never of what is being computed."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ..files import LOCK, MARKER, Held, OwnFiles, folder_lock, is_own_lock
from ._catalogue import list_runs, read_run
from ._manifest import damage
from ._names import CHECKPOINT, CONFIG, PARTS, SWEEP, TRAJECTORIES
from ._result_folder import hash_in, holds_own_run, is_own_checkpoint
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
class Untidy:
    """A folder in which something could go: some files, or with `whole` all that we wrote."""

    folder: Path
    kind: Literal["run", "sweep"]
    files: tuple[Path, ...]
    whole: bool


@dataclasses.dataclass(frozen=True)
class Litter:
    """What could go: half-written files, checkpoints and parts of what is over, and folders of runs
    and sweeps that are not complete."""

    folders: tuple[Untidy, ...]

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
class Removed(Litter):
    """What went, which folders were left because a process is computing them, and which for another
    reason, with the reason."""

    busy: tuple[Path, ...]
    left: tuple[tuple[Path, str], ...]


def litter(roots: Sequence[Path], stopped: bool = False) -> Litter:
    """What could be removed below some folders.

    **Arguments:**

    - `stopped`: runs that their user stopped could go too, and sweeps that are not complete: of
      these nobody knows whether they were stopped or died, and much of them may be done.
    """
    found = [_in_run(run.folder, stopped) for root in roots for run in list_runs(root)]
    found += [_in_sweep(sweep.folder, stopped) for root in roots for sweep in list_sweeps(root)]
    return Litter(tuple(each for each in found if each.whole or each.files))


def remove(found: Litter) -> Removed:
    """Removes litter, folder by folder, each while nobody else uses it."""
    gone, busy, left = [], [], []
    for each in found.folders:
        try:
            with folder_lock(each.folder, wait=False):
                # Asked again: meanwhile somebody may have gone on with it, or finished it.
                look = _in_run if each.kind == "run" else _in_sweep
                now = look(each.folder, stopped=each.whole)
                if each.whole != now.whole:
                    continue
                files = now.files if each.whole else tuple(set(now.files) & set(each.files))
                for path in files:
                    if path.name != LOCK:  # which is ours, and goes when it is let go
                        path.unlink(missing_ok=True)
        except Held:
            busy.append(each.folder)
            continue
        except OSError as error:
            left.append((each.folder, error.strerror or str(error)))
            continue
        gone.append(dataclasses.replace(each, files=tuple(sorted(files))))
        # What somebody else put there stays, and so does the folder then.
        for place in (PARTS, TRAJECTORIES, ".") if each.whole else (PARTS,):
            with contextlib.suppress(OSError):
                (each.folder / place).rmdir()
    return Removed(tuple(gone), tuple(busy), tuple(left))


def _in_run(folder: Path, stopped: bool) -> Untidy:
    """What could go of the folder of a run: of one that is not ours, nothing."""
    run, own = read_run(folder), OwnFiles(folder)
    if not holds_own_run(folder):
        return Untidy(folder, "run", (), False)
    label = hash_in(folder)
    left = own.leftovers() + _lock_in(folder)
    checkpoint = folder / CHECKPOINT
    checkpoints = [checkpoint] if is_own_checkpoint(checkpoint, label) else []
    if run.status == "unfinished" or (stopped and run.status == "stopped"):
        # The marker goes last: whoever dies before leaves files that are known.
        return Untidy(folder, "run", (*left, *checkpoints, *_files_of(own, CONFIG)), True)
    left += checkpoints if run.status == "complete" else []
    return Untidy(folder, "run", tuple(sorted(left + _idle_marker(own, run.status))), False)


def _in_sweep(folder: Path, stopped: bool) -> Untidy:
    """What could go of the folder of a sweep: of one that is not ours, nothing."""
    sweep, own = read_sweep(folder), OwnFiles(folder)
    if not holds_own_sweep(folder):
        return Untidy(folder, "sweep", (), False)
    left = own.leftovers(PARTS, TRAJECTORIES) + _lock_in(folder)
    if stopped and sweep.status == "unfinished":
        batches = own_trajectories(folder) + own_checkpoints(folder) + own_parts(folder)
        files = [file for file in _files_of(own, SWEEP) if file not in batches]
        return Untidy(folder, "sweep", (*left, *batches, *files), True)
    if sweep.status == "complete" and not damage(folder):
        left += own_checkpoints(folder) + own_parts(folder)
    else:
        done = {number for number, _ in parts_in(folder)}
        left += [path for number in done for path in own_checkpoints(folder, number)]
    return Untidy(folder, "sweep", tuple(sorted(left + _idle_marker(own, sweep.status))), False)


def _files_of(own: OwnFiles, header: str) -> list[Path]:
    """What is listed and as it was written. Without a list, as in older versions, the file whose
    header says whose folder it is."""
    return own.files() or [own.folder / header]


def _idle_marker(own: OwnFiles, status: str) -> list[Path]:
    """The marker of what is complete, where a process died before it removed it."""
    return [own.folder / MARKER] if status == "complete" and own.is_idle() else []


def _lock_in(folder: Path) -> list[Path]:
    return [folder / LOCK] if is_own_lock(folder / LOCK) else []
