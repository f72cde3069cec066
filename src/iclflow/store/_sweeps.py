"""The sweeps below a folder, as far as they can be told without what computes them."""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from ..config import InputError, read_toml
from ..files import leftovers, sha256
from ._catalogue import begins_with, folders_with
from ._manifest import damage, read_manifest
from ._names import BATCH_FILES, MANIFEST, PARTS, RESULTS, SWEEP, SWEEP_HEADER, TRAJECTORIES


@dataclasses.dataclass(frozen=True)
class StoredSweep:
    """One folder with a sweep.

    **Fields:**

    - `status`: `"complete"`; `"unfinished"`, without a manifest: it goes on where it stood when it
      is asked for again; `"unreadable"`, with files that cannot be told.
    - `runs`: how many it has; None where that is not known.
    - `batches`: how many are done.
    """

    folder: Path
    status: Literal["complete", "unfinished", "unreadable"]
    runs: int | None
    batches: int


def list_sweeps(root: Path) -> list[StoredSweep]:
    """The sweeps below a folder, by name."""
    return [read_sweep(folder) for folder in sorted(folders_with(_is_sweep, root))]


def read_sweep(folder: Path) -> StoredSweep:
    """What is known of the sweep in a folder."""
    manifest = read_manifest(folder)
    if manifest is not None:
        return StoredSweep(folder, "complete", manifest["runs"], manifest["batches"])
    done = sum(1 for _ in parts_in(folder))
    try:
        read_toml(folder / SWEEP)
    except InputError:
        return StoredSweep(folder, "unreadable", None, done)
    status = "unreadable" if (folder / MANIFEST).exists() else "unfinished"
    return StoredSweep(folder, status, None, done)


def parts_in(folder: Path) -> Iterator[tuple[int, Path]]:
    """The numbers of the batches that a sweep has done, each with the file of its rows."""
    for path in sorted((folder / PARTS).glob(BATCH_FILES[PARTS][0])):
        yield int(path.name.partition("-")[0]), path


def part_name(number: int, rows: bytes, trajectories: bytes | None) -> str:
    """The name of the file with the rows of a batch: it vouches for all that the batch made."""
    marks = [sha256(content)[:16] for content in (rows, trajectories) if content is not None]
    return "-".join([f"{number:04d}", *marks]) + ".parquet"


def part_damage(folder: Path) -> list[str]:
    """What is wrong with the batches that an unfinished sweep has done, a sentence each."""
    found = []
    for number, path in parts_in(folder):
        files = [path, folder / TRAJECTORIES / f"{number:04d}.safetensors"]
        # Names of parts have one hash, or that of the trajectories as well.
        for file, mark in zip(files, path.stem.split("-")[1:], strict=False):
            try:
                whole = sha256(file.read_bytes()).startswith(mark)
            except OSError as error:
                found.append(f"`{file}` cannot be read: {error.strerror}.")
                continue
            if not whole:
                found.append(f"`{file}` does not match its hash: it is damaged.")
    return found


def sweep_damage(sweep: StoredSweep) -> list[str]:
    """What is wrong with the files of a sweep, a sentence each."""
    if sweep.status == "unreadable" and not (sweep.folder / MANIFEST).exists():
        return [f"`{sweep.folder / SWEEP}` cannot be read."]
    return part_damage(sweep.folder) if sweep.status == "unfinished" else damage(sweep.folder)


def sweep_files(folder: Path) -> list[Path]:
    """All that a sweep wrote, the manifest first: it goes before what it vouches for."""
    found = [folder / name for name in (MANIFEST, RESULTS)]
    found += [file for place in BATCH_FILES for file in batch_files(folder, place)]
    return [*found, *sweep_leftovers(folder), folder / SWEEP]


def batch_files(folder: Path, place: str) -> list[Path]:
    """What a sweep wrote into one of the folders in its own."""
    return sorted(path for form in BATCH_FILES[place] for path in (folder / place).glob(form))


def sweep_leftovers(folder: Path) -> list[Path]:
    """What a killed process left half-written in any of the folders of a sweep."""
    return [left for place in ("", *BATCH_FILES) for left in leftovers(folder / place)]


def _is_sweep(folder: Path, files: Iterable[str]) -> bool:
    """Whether a folder holds a sweep: such a file alone may be anybody's, unless we wrote it."""
    names = set(files)
    if {MANIFEST, RESULTS} <= names or {MANIFEST, SWEEP} <= names:
        return True
    return SWEEP in names and begins_with(folder / SWEEP, SWEEP_HEADER)
