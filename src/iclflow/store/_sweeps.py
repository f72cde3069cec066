"""The sweeps below a folder, as far as they can be told without what computes them."""

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import Match, Pattern
from typing import Literal

from ..config import InputError, read_toml
from ..files import OwnFiles, read_regular, sha256
from ._catalogue import begins_with, folders_with, is_as_written
from ._manifest import damage, open_manifest
from ._names import (
    BATCH_CHECKPOINT,
    BATCH_TRAJECTORIES,
    CONFIG,
    HEADER,
    MANIFEST,
    PART,
    PARTS,
    RESULTS,
    SWEEP,
    SWEEP_HEADER,
    TRAJECTORIES,
)
from ._result_folder import is_own_checkpoint


@dataclasses.dataclass(frozen=True)
class StoredSweep:
    """One folder with a sweep.

    **Fields:**

    - `status`: `"complete"`; `"unfinished"`, without a manifest: it goes on where it stood when it
      is asked for again; `"unreadable"`, with files that cannot be told.
    - `runs`: how many it has; None where that is not known.
    - `batches`: how many are done.
    - `reason`: why it is unreadable.
    """

    folder: Path
    status: Literal["complete", "unfinished", "unreadable"]
    runs: int | None
    batches: int
    reason: str | None = None


def list_sweeps(root: Path) -> list[StoredSweep]:
    """The sweeps below a folder, by name."""
    return [read_sweep(folder) for folder in sorted(folders_with(_is_sweep, root))]


def read_sweep(folder: Path) -> StoredSweep:
    """What is known of the sweep in a folder. Whatever is wrong with it is a status."""
    try:
        return _read(folder)
    except OSError as error:
        return StoredSweep(folder, "unreadable", None, 0, error.strerror or str(error))


def _read(folder: Path) -> StoredSweep:
    manifest, reason = open_manifest(folder)
    if manifest is not None and "sweep_hash" not in manifest:
        reason = f"`{MANIFEST}` is not that of a sweep"
    elif manifest is not None:
        return StoredSweep(folder, "complete", manifest["runs"], manifest["batches"])
    done = sum(1 for _ in parts_in(folder))
    try:
        _read_sweep_file(folder)
    except InputError as error:
        reason = reason or str(error).rstrip(".")
    return StoredSweep(folder, "unreadable" if reason else "unfinished", None, done, reason)


def parts_in(folder: Path) -> Iterator[tuple[int, Path]]:
    """The numbers of the batches that a sweep has done, each with the file of its rows."""
    for found, path in _batch_files(folder, PARTS, PART):
        yield int(found[1]), path


def own_parts(folder: Path) -> list[Path]:
    """The parts of a sweep that are as they were written: the hashes in their names say so."""
    harmed = {path for path, _ in _damaged_parts(folder)}
    return [path for _, path in parts_in(folder) if path not in harmed]


def own_checkpoints(folder: Path, number: int | None = None) -> list[Path]:
    """The checkpoints of all batches of a sweep, or of one, that are as they were written."""
    found = _batch_files(folder, PARTS, BATCH_CHECKPOINT)
    wanted = [path for name, path in found if number in (None, int(name[1]))]
    return [path for path in wanted if is_own_checkpoint(path)]


def trajectories_in(folder: Path) -> list[Path]:
    """The files in the folder of a sweep that are called as trajectories of batches."""
    return [path for _, path in _batch_files(folder, TRAJECTORIES, BATCH_TRAJECTORIES)]


def own_trajectories(folder: Path) -> list[Path]:
    """The trajectories of batches that are done and as they were written: their parts say so."""
    return [
        file
        for _, path in parts_in(folder)
        for file, mark in _hashes_in_name(path)[1:]
        if _matches(file, mark)
    ]


def holds_own_sweep(folder: Path) -> bool:
    """Whether the sweep in a folder is ours: its file has our header, and a list of ours has it. Of
    versions without a marker: it is as we write it, beside a part or a checkpoint of ours."""
    if not begins_with(folder / SWEEP, SWEEP_HEADER):
        return False
    if OwnFiles(folder).lists(SWEEP):
        return OwnFiles(folder).owns(SWEEP)
    if not is_as_written(folder / SWEEP, SWEEP_HEADER):
        return False
    return bool(own_parts(folder) or own_checkpoints(folder))


def part_name(number: int, rows: bytes, trajectories: bytes | None) -> str:
    """The name of the file with the rows of a batch: it vouches for all that the batch made."""
    marks = [sha256(content)[:16] for content in (rows, trajectories) if content is not None]
    return "-".join([f"{number:04d}", *marks]) + ".parquet"


def part_damage(folder: Path) -> list[str]:
    """What is wrong with the batches that an unfinished sweep has done, a sentence each."""
    return [sentence for _, sentence in _damaged_parts(folder)]


def _damaged_parts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Files of batches that are not as they were written, each with what is wrong with it."""
    for _, path in parts_in(folder):
        for file, mark in _hashes_in_name(path):
            try:
                whole = sha256(read_regular(file)).startswith(mark)
            except OSError as error:
                yield file, f"`{file}` cannot be read: {error.strerror}."
                continue
            if not whole:
                yield file, f"`{file}` does not match its hash: it is damaged."


def _hashes_in_name(part: Path) -> list[tuple[Path, str]]:
    """The files of a batch, each with the beginning of its hash: the name of its part has them."""
    found = PART.fullmatch(part.name)
    assert found is not None
    trajectories = part.parent.parent / TRAJECTORIES / f"{found[1]}.safetensors"
    return [(file, mark) for file, mark in ((part, found[2]), (trajectories, found[3])) if mark]


def _matches(file: Path, mark: str) -> bool:
    try:
        return not os.path.islink(file) and sha256(read_regular(file)).startswith(mark)
    except OSError:
        return False


def _batch_files(folder: Path, place: str, form: Pattern) -> Iterator[tuple[Match, Path]]:
    """Files in one of the folders of a sweep whose names are of a form; none through a link."""
    inside = folder / place
    if os.path.islink(inside) or not os.path.isdir(inside):
        return
    for name in sorted(os.listdir(inside)):
        found = form.fullmatch(name)
        if found:
            yield found, inside / name


def _read_sweep_file(folder: Path):
    if os.path.lexists(folder / SWEEP) and not os.path.isfile(folder / SWEEP):
        raise InputError(f"`{folder / SWEEP}` is not a plain file.")
    return read_toml(folder / SWEEP)


def sweep_damage(sweep: StoredSweep) -> list[str]:
    """What is wrong with the files of a sweep, a sentence each."""
    if sweep.status == "unfinished":
        return part_damage(sweep.folder)
    found = damage(sweep.folder)
    if sweep.status == "unreadable" and not found:
        return [f"`{sweep.folder}` is unreadable: {sweep.reason}."]
    return found


def _is_sweep(folder: Path, files: Iterable[str]) -> bool:
    """Whether a folder holds a sweep: such a file alone may be anybody's, unless we wrote it."""
    names = set(files)
    if SWEEP in names and begins_with(folder / SWEEP, SWEEP_HEADER):
        return True
    if MANIFEST not in names:
        return False
    manifest = open_manifest(folder)[0]
    if manifest is not None:
        return "sweep_hash" in manifest
    # A manifest that is damaged: not beside the config of a run, which a table may lie next to.
    return SWEEP in names or (RESULTS in names and not begins_with(folder / CONFIG, HEADER))
