"""The folder of a sweep: parts while it is under way, a table and a manifest when it is done."""

import collections
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..config import InputError, read_toml, to_toml
from ..files import MARKER, OTHER_FOLDER, OwnFiles, folder_lock, seal, sha256
from ..runtime import installed_versions
from ..store import MANIFEST as NAME
from ..store import (
    PARTS,
    RESULTS,
    SWEEP,
    SWEEP_HEADER,
    TRAJECTORIES,
    check_folder,
    find_damage,
    find_part_damage,
    holds_own_sweep,
    is_empty,
    own_checkpoints,
    own_parts,
    own_trajectories,
    part_name,
    parts_in,
    provenance,
    read_manifest,
    refuse_others,
    result_folder,
    trajectories_in,
)
from ._compute import FinishedBatch
from ._file import Sweep, parse_sweep
from ._table import encode_part, join_parts, schema_of

FORMAT = 1


class SweepFolder:
    """The folder of a sweep, while this process holds its lock.

    It contains `sweep.toml` from the start; one file in `parts` per batch that is done, whose name
    has the beginning of its hash, and of that of its trajectories if they are kept; and at the end
    `results.parquet` and `manifest.json`, which makes the sweep complete. Other files in it are
    never changed (see `iclflow.files.OwnFiles`).

    **Example:**

    ```pycon
    >>> [name for name in ("lock", "keep", "complete") if hasattr(icl.sweeps.SweepFolder, name)]
    ['lock', 'keep', 'complete']
    ```
    """

    def __init__(self, path: Path, sweep: Sweep):
        self.path = path
        self.sweep = sweep
        self.parts = path / PARTS
        self._own = OwnFiles(path, remedy=OTHER_FOLDER)

    @staticmethod
    @contextlib.contextmanager
    def lock(
        path: Path, sweep: Sweep, waiting: Callable[[], None] | None = None, fresh: bool = False
    ) -> Iterator["SweepFolder"]:
        """Locks the folder, and makes it if it is missing. Waits for a process that holds it.

        If the block fails before anything was kept, what was made for it is removed.

        **Arguments:**

        - `waiting`: called if another process holds the folder.
        - `fresh`: remove what is stored of this sweep.
        """
        _check_free(path, sweep)
        with result_folder(path), folder_lock(path, waiting):
            _check_free(path, sweep)  # again: another process may have been faster
            begun = is_empty(path)
            found = SweepFolder(path, sweep)
            try:
                found._begin(begun, fresh)
                yield found
            except BaseException:
                if begun and not (own_parts(path) or own_checkpoints(path)):
                    found._forget()
                    found._own.remove([SWEEP])
                raise
            finally:
                found._remove_empty()
                found._own.end()

    def _begin(self, new: bool, fresh: bool) -> None:
        """Refuses foreign files, writes the marker, and removes what is not needed."""
        own = self._own
        if not fresh and (self.path / NAME).exists():
            return
        # Versions without a marker listed nothing while a sweep was under way: their files are
        # compared when they are written, and must be the same then.
        if own.lists(SWEEP):
            own.check([SWEEP, RESULTS, NAME])
            kept = own_trajectories(self.path)
            if self.sweep.trajectories:
                there = trajectories_in(self.path)
                own.check(f"{TRAJECTORIES}/{path.name}" for path in there if path not in kept)
        if fresh:
            _refuse_damage(self.path)
        own.begin(PARTS, *([TRAJECTORIES] if self.sweep.trajectories else []))
        own.clear(PARTS, TRAJECTORIES)
        if fresh:
            self._forget()
        if new or fresh:
            own.write({SWEEP: sweep_text(self.sweep)})
        elif not own.lists(SWEEP):
            own.adopt(SWEEP)
        own.make(PARTS)  # after the file of the sweep, which shows that the folder is ours

    @staticmethod
    def find_complete(path: Path, sweep: Sweep) -> dict[str, Any] | None:
        """The manifest of a complete sweep with nothing left to clean up: this needs no lock, and
        works on a read-only disk."""
        _check_free(path, sweep)
        if own_parts(path) or own_checkpoints(path) or OwnFiles(path).owns(MARKER):
            return None
        return SweepFolder(path, sweep).manifest

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the sweep if it is complete; an `InputError` if it is damaged."""
        if not (self.path / NAME).exists():
            return None
        found = find_damage(self.path)
        if found:
            remedy = "remove it, then `--fresh` computes the sweep again"
            raise InputError(f"{found[0][:-1]}; {remedy}.")
        return read_manifest(self.path)

    def done(self) -> dict[int, Path]:
        """The parts of finished batches, by number; an `InputError` if one is damaged."""
        _refuse_damage(self.path)
        return dict(parts_in(self.path))

    def keep(self, finished: FinishedBatch) -> Path:
        """Writes a finished batch, its part last, and removes its checkpoints."""
        number, trajectories = finished.batch.number, finished.trajectories
        if trajectories is not None:
            self._own.write({_trajectories_of(number): trajectories})
        content = encode_part(schema_of(self.sweep), finished.rows, self._own.make(PARTS))
        name = part_name(number, content, trajectories)
        self._own.put(f"{PARTS}/{name}", content)
        self._own.forget(_trajectories_of(number))  # its hash is in the name of the part
        for checkpoint in own_checkpoints(self.path, number):
            checkpoint.unlink(missing_ok=True)
        return self.parts / name

    def complete(self, parts: Sequence[Path], statistics: dict[str, Any]) -> dict[str, Any]:
        """Joins the parts into one table, and writes the manifest."""
        content = join_parts(parts, self._own.make(PARTS))
        self._own.write({RESULTS: content})
        kept = sorted(
            path.relative_to(self.path).as_posix() for path in own_trajectories(self.path)
        )
        files = {name: sha256((self.path / name).read_bytes()) for name in (*kept, SWEEP)}
        made = provenance()
        made["versions"] |= installed_versions("duckdb")
        manifest = {
            "format": FORMAT,
            "name": self.sweep.name,
            "sweep_hash": self.sweep.hash,
            "runs": len(self.sweep),
            "batches": len(parts),
            "results": _count_results(self.path / RESULTS),
            "statistics": statistics,
            "files": files | {RESULTS: sha256(content)},
            **made,
        }
        self._own.write({NAME: seal(manifest)})
        self.tidy()
        return manifest

    def tidy(self) -> None:
        """Removes the parts, once the manifest lists the table."""
        for path in own_parts(self.path) + own_checkpoints(self.path):
            path.unlink(missing_ok=True)
        self._own.clear(PARTS, TRAJECTORIES)
        self._remove_empty()

    def _forget(self) -> None:
        """Removes all that this sweep computed."""
        # The names of parts have the hashes of trajectories: list these before the parts go.
        own, kept = self._own, own_trajectories(self.path)
        own.adopt(*(path.relative_to(self.path).as_posix() for path in kept))
        own.remove([NAME, RESULTS])  # the manifest first: without it the sweep is not complete
        for path in own_parts(self.path) + own_checkpoints(self.path):
            path.unlink(missing_ok=True)
        own.remove(name for name in own.names if name.startswith(f"{TRAJECTORIES}/"))
        self._remove_empty()

    def _remove_empty(self) -> None:
        for place in (PARTS, TRAJECTORIES):
            with contextlib.suppress(OSError):  # missing, or not empty
                (self.path / place).rmdir()


def sweep_text(sweep: Sweep) -> str:
    """The text of the file of a sweep.

    **Example:**

    ```pycon
    >>> spec = {"name": "scales", "base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "heads": 2}}, "axes": {"model.scale": [0.1, 0.2]}}
    >>> text = icl.sweeps.sweep_text(icl.sweeps.parse_sweep(spec))
    >>> [line for line in text.splitlines() if line.startswith("name")]
    ['name = "scales"', 'names = []']
    ```
    """
    return SWEEP_HEADER + to_toml(sweep.data)


def _trajectories_of(number: int) -> str:
    return f"{TRAJECTORIES}/{number:04d}.safetensors"


def _refuse_damage(path: Path) -> None:
    found = find_part_damage(path)
    if found:
        raise InputError(
            f"{found[0]} Remove it and the file of its batch in `{path / PARTS}`, then the batch "
            "is computed again."
        )


def sweep_tables(folder: Path) -> tuple[list[Path], bool]:
    """The files of the table of a sweep, and whether it is complete: if not, they are those of the
    finished batches."""
    if not (folder / SWEEP).is_file():
        raise InputError(f"`{folder}` is no folder of a sweep: `iclflow sweep FILE` makes one.")
    if (folder / NAME).exists():
        harm = [
            sentence for sentence in find_damage(folder) if RESULTS in sentence or NAME in sentence
        ]
        if harm:
            raise InputError(harm[0])
        return [folder / RESULTS], True
    parts = [path for _, path in parts_in(folder)]
    if not parts:
        raise InputError(f"`{folder}` holds no results yet: no batch of the sweep is done.")
    harm = find_part_damage(folder)
    if harm:
        raise InputError(harm[0])
    return parts, False


def _count_results(table: Path) -> dict[str, int]:
    """How many runs ended in each result."""
    from ._table import Table

    _, rows = Table([table]).ask("SELECT result FROM results")
    return dict(sorted(collections.Counter(row[0] for row in rows).items()))


def _check_free(path: Path, sweep: Sweep) -> None:
    """Refuses a folder that holds another sweep, or other files."""
    check_folder(path)
    if not path.is_dir() or is_empty(path):
        return
    remedy = "choose another folder with --out"
    refuse_others(path, SWEEP, "sweep", holds_own_sweep(path), remedy)
    there = parse_sweep(read_toml(path / SWEEP), stored=True).hash
    if there != sweep.hash:
        raise InputError(f"`{path}` holds another sweep ({there[:8]}): {remedy}.")
