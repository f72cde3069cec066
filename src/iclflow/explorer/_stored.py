"""Runs and sweeps on disk, opened by id and never by path."""

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import printable
from ..store import MANIFEST, StoredRun, StoredSweep, find_damage, list_runs, list_sweeps
from ._limits import RequestError

# Seconds for which a listing of the folders is used again.
_FRESH = 2.0
_MOST_LISTED = 1000


class StoredRuns:
    """The runs and sweeps in some folders.

    **Arguments:**

    - `roots`: the folders; those that do not exist are left out.
    """

    def __init__(self, roots: Sequence[Path]):
        self._roots = [root.resolve() for root in roots]
        self._listed_at = -_FRESH
        self._lock = threading.Lock()
        self._runs: dict[str, StoredRun] = {}
        self._sweeps: dict[str, StoredSweep] = {}

    def listing(self) -> dict[str, Any]:
        """All runs and sweeps, as the page lists them."""
        self._update()
        runs = [
            {
                "id": id,
                "name": run.name,
                "status": run.status,
                "reason": run.reason,
                "result": run.result,
                "final_loss": run.final_loss,
                "hash": None if run.config is None else run.config.hash,
                "written": _written(run.folder),
            }
            for id, run in self._runs.items()
        ]
        sweeps = [
            {
                "id": id,
                "name": printable(sweep.folder.name),
                "status": sweep.status,
                "reason": sweep.reason,
                "runs": sweep.runs,
                "written": _written(sweep.folder),
            }
            for id, sweep in self._sweeps.items()
        ]
        return {"runs": runs[:_MOST_LISTED], "sweeps": sweeps[:_MOST_LISTED]}

    def find_run(self, id: str) -> StoredRun:
        """A run that can be shown."""
        self._update()
        found = self._runs.get(id)
        if found is None:
            raise RequestError("No stored run has this id.", "id", 404)
        if found.config is None or found.reason is not None:
            raise RequestError(f"This run is unreadable: {printable(found.reason or '')}.", "id")
        if found.status == "unfinished":
            raise RequestError("This run is not complete: `iclflow run` resumes it.", "id")
        if find_damage(found.folder):
            words = "The files of this run are damaged: `iclflow runs verify` says how."
            raise RequestError(words, "id")
        return found

    def find_sweep(self, id: str) -> StoredSweep:
        self._update()
        if id not in self._sweeps:
            raise RequestError("No sweep has this id.", "id", 404)
        return self._sweeps[id]

    def _update(self) -> None:
        # Several threads answer requests.
        with self._lock:
            if time.monotonic() - self._listed_at < _FRESH:
                return
            places = [root for root in self._roots if root.is_dir()]
            self._runs = {_id(run.folder): run for root in places for run in list_runs(root)}
            self._sweeps = {_id(one.folder): one for root in places for one in list_sweeps(root)}
            self._listed_at = time.monotonic()


def _written(folder: Path) -> float | None:
    """When a run or a sweep was completed, or last changed, in seconds since 1970."""
    for path in (folder / MANIFEST, folder):
        with contextlib.suppress(OSError):
            return path.lstat().st_mtime
    return None


def _id(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:20]
