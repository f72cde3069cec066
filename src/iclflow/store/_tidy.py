"""Removing what is incomplete: only what we wrote, and never of what is being computed."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ..files import leftovers
from ._catalogue import list_runs, read_run
from ._lock import Held, folder_lock
from ._manifest import damage
from ._names import BATCH_FILES, CHECKPOINT, LOCK, OWN, PARTS
from ._sweeps import batch_files, list_sweeps, parts_in, read_sweep, sweep_files, sweep_leftovers


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
    """What went, and which folders were left because a process is computing them."""

    busy: tuple[Path, ...]


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
    gone, busy = [], []
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
                    path.unlink(missing_ok=True)
        except Held:
            busy.append(each.folder)
            continue
        gone.append(dataclasses.replace(each, files=tuple(sorted(files))))
        # What somebody else put there stays, and so does the folder then.
        for place in (*BATCH_FILES, ".") if each.whole else (PARTS,):
            with contextlib.suppress(OSError):
                (each.folder / place).rmdir()
    return Removed(tuple(gone), tuple(busy))


def _in_run(folder: Path, stopped: bool) -> Untidy:
    """What could go of the folder of a run."""
    run = read_run(folder)
    if run.status == "unfinished" or (stopped and run.status == "stopped"):
        # The manifest first: it goes before what it vouches for.
        files = [folder / name for name in OWN] + leftovers(folder)
        return Untidy(folder, "run", tuple(files), True)
    files = leftovers(folder) + _if_there(folder / LOCK)
    files += _if_there(folder / CHECKPOINT) if run.status == "complete" else []
    return Untidy(folder, "run", tuple(sorted(files)), False)


def _in_sweep(folder: Path, stopped: bool) -> Untidy:
    """What could go of the folder of a sweep."""
    sweep = read_sweep(folder)
    if stopped and sweep.status == "unfinished":
        return Untidy(folder, "sweep", tuple(sweep_files(folder)), True)
    files = sweep_leftovers(folder) + _if_there(folder / LOCK)
    if sweep.status == "complete" and (folder / PARTS).is_dir() and not damage(folder):
        files += batch_files(folder, PARTS)
    else:
        for number, _ in parts_in(folder):
            files += (folder / PARTS).glob(f"{number:04d}-*.checkpoint.safetensors")
    return Untidy(folder, "sweep", tuple(sorted(files)), False)


def _if_there(path: Path) -> list[Path]:
    return [path] if path.exists() else []
