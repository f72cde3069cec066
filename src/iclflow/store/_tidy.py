"""Removing what is incomplete: only what a run wrote, and never of one that is being computed."""

import contextlib
import dataclasses
from pathlib import Path

from ..files import leftovers
from ._catalogue import list_runs
from ._lock import Held, folder_lock
from ._names import CHECKPOINT, LOCK, OWN


@dataclasses.dataclass(frozen=True)
class Litter:
    """What could go: half-written files and checkpoints of runs that are over, and folders of runs
    that are not complete."""

    files: tuple[Path, ...]
    runs: tuple[Path, ...]


@dataclasses.dataclass(frozen=True)
class Removed:
    """What went, and which runs were left because a process is computing them."""

    files: tuple[Path, ...]
    runs: tuple[Path, ...]
    busy: tuple[Path, ...]


def litter(root: Path, stopped: bool = False) -> Litter:
    """What could be removed below a folder; runs that their user stopped only if asked."""
    runs = list_runs(root)
    unwanted = ("unfinished", "stopped") if stopped else ("unfinished",)
    folders = tuple(run.folder for run in runs if run.status in unwanted)
    kept = [run for run in runs if run.folder not in folders]
    files = [path for run in kept for path in leftovers(run.folder)]
    files += [run.folder / CHECKPOINT for run in kept if run.resumable and run.status == "complete"]
    files += [run.folder / LOCK for run in kept if (run.folder / LOCK).exists()]
    return Litter(tuple(sorted(files)), folders)


def remove(found: Litter) -> Removed:
    """Removes litter, folder by folder, each while nobody else uses it."""
    files, runs, busy = [], [], []
    for folder in sorted({*(path.parent for path in found.files), *found.runs}):
        whole = folder in found.runs
        try:
            with folder_lock(folder, wait=False):
                names = [folder / name for name in OWN] + leftovers(folder) if whole else []
                for path in names or [path for path in found.files if path.parent == folder]:
                    path.unlink(missing_ok=True)
                    if not whole:
                        files.append(path)
        except Held:
            busy.append(folder)
            continue
        if whole:
            runs.append(folder)
            (folder / LOCK).unlink(missing_ok=True)
            # What somebody else put there stays, and so does the folder then.
            with contextlib.suppress(OSError):
                folder.rmdir()
    return Removed(tuple(files), tuple(runs), tuple(busy))
