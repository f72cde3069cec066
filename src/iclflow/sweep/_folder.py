"""The folder of a sweep: parts while it is under way, one table and a manifest when it is done."""

import collections
import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..config import InputError, read_toml, to_toml
from ..files import sealed, sha256, write_atomic
from ..store import MANIFEST as NAME
from ..store import (
    PARTS,
    RESULTS,
    SWEEP,
    SWEEP_HEADER,
    TRAJECTORIES,
    damage,
    folder_lock,
    is_empty,
    made_by,
    part_damage,
    part_name,
    parts_in,
    read_manifest,
    result_folder,
    sweep_leftovers,
)
from ..versions import installed
from ._compute import Finished
from ._file import Sweep, parse_sweep
from ._table import joined_bytes, part_bytes, schema_of

FORMAT = 1


class SweepFolder:
    """The folder of a sweep, while this process alone may use it.

    It holds `sweep.toml` from the start; a file in `parts` for each batch that is done, whose name
    has the beginning of its hash, and of that of its trajectories if they were asked for; and at
    the end `results.parquet` and `manifest.json`, which makes it complete.
    """

    def __init__(self, path: Path, sweep: Sweep):
        self.path = path
        self.sweep = sweep
        self.parts = path / PARTS

    @staticmethod
    @contextlib.contextmanager
    def locked(
        path: Path, sweep: Sweep, waiting: Callable[[], None] | None = None, fresh: bool = False
    ) -> Iterator["SweepFolder"]:
        """The folder, made if it is missing; another process that uses it is waited for.

        If the block fails before anything was kept, what was made for it is removed.

        **Arguments:**

        - `waiting`: called if another process has the folder.
        - `fresh`: forget what is there of this sweep.
        """
        _check_free(path, sweep)
        with result_folder(path), folder_lock(path, waiting):
            _check_free(path, sweep)  # another process may have been quicker
            found = SweepFolder(path, sweep)
            for left in sweep_leftovers(path):
                left.unlink(missing_ok=True)
            begun = is_empty(path)
            if fresh:
                found._forget()
            # Not over what a manifest vouches for: there the sweep may have another name.
            if not (path / NAME).exists():
                write_atomic(path / SWEEP, SWEEP_HEADER + to_toml(sweep.data))
            try:
                yield found
            except BaseException:
                if begun and not (found.parts.is_dir() and any(found.parts.iterdir())):
                    found._forget()
                    (path / SWEEP).unlink(missing_ok=True)
                raise

    @staticmethod
    def found(path: Path, sweep: Sweep) -> dict[str, Any] | None:
        """The manifest of a sweep that is over and tidy: that needs no lock, and no disk to write
        on."""
        _check_free(path, sweep)
        return None if (path / PARTS).exists() else SweepFolder(path, sweep).manifest

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the sweep, if it is here and over; an `InputError` if it is damaged."""
        if not (self.path / NAME).exists():
            return None
        found = damage(self.path)
        if found:
            raise InputError(f"{found[0][:-1]}; `--fresh` computes the sweep again.")
        return read_manifest(self.path)

    def done(self) -> dict[int, Path]:
        """The parts that are here, by the number of their batch; an `InputError` if one is
        damaged."""
        found = part_damage(self.path)
        if found:
            raise InputError(
                f"{found[0]} Without the file of its batch in `{self.parts}`, it is computed again."
            )
        return dict(parts_in(self.path))

    def keep(self, finished: Finished) -> Path:
        """Writes a batch that is done, its part last; then its checkpoints are not needed."""
        number, trajectories = finished.batch.number, finished.trajectories
        if trajectories is not None:
            write_atomic(self.path / TRAJECTORIES / f"{number:04d}.safetensors", trajectories)
        content = part_bytes(schema_of(self.sweep), finished.rows, self.parts)
        path = self.parts / part_name(number, content, trajectories)
        write_atomic(path, content)
        for checkpoint in self.parts.glob(f"{number:04d}-*.checkpoint.safetensors"):
            checkpoint.unlink(missing_ok=True)
        return path

    def complete(self, parts: Sequence[Path], statistics: dict[str, Any]) -> dict[str, Any]:
        """Joins the parts to one table, and writes the manifest."""
        content = joined_bytes(parts, self.parts)
        write_atomic(self.path / RESULTS, content)
        kept = sorted((self.path / TRAJECTORIES).glob("*.safetensors"))
        files = {str(p.relative_to(self.path)): sha256(p.read_bytes()) for p in kept}
        files |= {SWEEP: sha256((self.path / SWEEP).read_bytes()), RESULTS: sha256(content)}
        made = made_by()
        made["versions"] |= installed("duckdb")
        manifest = {
            "format": FORMAT,
            "name": self.sweep.name,
            "sweep_hash": self.sweep.hash,
            "runs": len(self.sweep),
            "batches": len(parts),
            "results": _counted(self.path / RESULTS),
            "statistics": statistics,
            "files": files,
            **made,
        }
        write_atomic(self.path / NAME, sealed(manifest))
        self.tidy()
        return manifest

    def tidy(self) -> None:
        """Removes the parts, once the manifest vouches for the table."""
        if self.parts.is_dir():
            shutil.rmtree(self.parts)

    def _forget(self) -> None:
        for name in (NAME, RESULTS):  # the manifest first: nothing else is complete without it
            (self.path / name).unlink(missing_ok=True)
        for folder in (self.parts, self.path / TRAJECTORIES):
            if folder.is_dir():
                shutil.rmtree(folder)


def sweep_tables(folder: Path) -> tuple[list[Path], bool]:
    """The files that hold the table of a sweep, and whether it is complete: else they are the
    batches that are done."""
    if not (folder / SWEEP).is_file():
        raise InputError(f"`{folder}` is no folder of a sweep: `iclflow sweep FILE` makes one.")
    if (folder / NAME).exists():
        harm = [sentence for sentence in damage(folder) if RESULTS in sentence or NAME in sentence]
        if harm:
            raise InputError(harm[0])
        return [folder / RESULTS], True
    parts = [path for _, path in parts_in(folder)]
    if not parts:
        raise InputError(f"`{folder}` holds no results yet: no batch of the sweep is done.")
    harm = part_damage(folder)
    if harm:
        raise InputError(harm[0])
    return parts, False


def _counted(table: Path) -> dict[str, int]:
    """How many runs ended how."""
    from ._table import Table

    _, rows = Table([table]).ask("SELECT result FROM results")
    return dict(sorted(collections.Counter(row[0] for row in rows).items()))


def _check_free(path: Path, sweep: Sweep) -> None:
    """Refuses a folder that holds another sweep, or anything else."""
    try:
        if path.exists() and not path.is_dir():
            raise InputError(f"`{path}` is a file: must be a folder, or free.")
        if not path.is_dir() or is_empty(path):
            return
    except OSError as error:
        raise InputError(f"`{path}` cannot be used: {error.strerror}.") from None
    try:
        there = parse_sweep(read_toml(path / SWEEP), stored=True).hash
    except InputError:
        raise InputError(
            f"`{path}` holds something that is not a sweep: choose another folder with --out."
        ) from None
    if there != sweep.hash:
        raise InputError(
            f"`{path}` holds another sweep ({there[:8]}): choose another folder with --out."
        )
