"""The sweeps below a folder, read without loading JAX."""

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from re import Match, Pattern
from typing import Literal

from ..config import InputError, read_toml
from ..files import OwnFiles, read_regular, sha256
from ._catalogue import begins_with, folders_with, is_as_written
from ._manifest import find_damage, open_manifest
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

    - `status`: `"complete"`; `"unfinished"`, without a manifest: it resumes when it is run again;
      `"unreadable"`, with files that cannot be read.
    - `runs`: how many it has; None if not known.
    - `batches`: how many are done.
    - `reason`: why it is unreadable.
    """

    folder: Path
    status: Literal["complete", "unfinished", "unreadable"]
    runs: int | None
    batches: int
    reason: str | None = None


def list_sweeps(root: Path) -> list[StoredSweep]:
    """The sweeps below a folder, by name.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / store.SWEEP).write_text(store.SWEEP_HEADER + "seeds = 2\\n")
    >>> (root / store.PARTS).mkdir()
    >>> name = store.part_name(0, b"rows", None)
    >>> _ = (root / store.PARTS / name).write_bytes(b"rows")
    >>> [(sweep.status, sweep.batches) for sweep in store.list_sweeps(root)]
    [('unfinished', 1)]
    ```
    """
    return [read_sweep(folder) for folder in sorted(folders_with(_is_sweep, root))]


def read_sweep(folder: Path) -> StoredSweep:
    """What is known of the sweep in a folder. Problems become a status, not an error."""
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
    """The numbers of the batches that are done, each with the file of its rows.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / store.SWEEP).write_text(store.SWEEP_HEADER + "seeds = 2\\n")
    >>> (root / store.PARTS).mkdir()
    >>> name = store.part_name(0, b"rows", None)
    >>> _ = (root / store.PARTS / name).write_bytes(b"rows")
    >>> [number for number, _ in store.parts_in(root)]
    [0]
    ```
    """
    for found, path in _batch_files(folder, PARTS, PART):
        yield int(found[1]), path


def own_parts(folder: Path) -> list[Path]:
    """The undamaged parts of a sweep: their content matches the hash in their name.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / store.SWEEP).write_text(store.SWEEP_HEADER + "seeds = 2\\n")
    >>> (root / store.PARTS).mkdir()
    >>> name = store.part_name(0, b"rows", None)
    >>> _ = (root / store.PARTS / name).write_bytes(b"rows")
    >>> [path.name == name for path in store.own_parts(root)]
    [True]
    >>> _ = (root / store.PARTS / name).write_bytes(b"changed")
    >>> store.own_parts(root)
    []
    ```
    """
    harmed = {path for path, _ in _damaged_parts(folder)}
    return [path for _, path in parts_in(folder) if path not in harmed]


def own_checkpoints(folder: Path, number: int | None = None) -> list[Path]:
    """The undamaged checkpoints of all batches of a sweep, or of one.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / store.SWEEP).write_text(store.SWEEP_HEADER + "seeds = 2\\n")
    >>> (root / store.PARTS).mkdir()
    >>> name = store.part_name(0, b"rows", None)
    >>> _ = (root / store.PARTS / name).write_bytes(b"rows")
    >>> store.own_checkpoints(root)
    []
    ```
    """
    found = _batch_files(folder, PARTS, BATCH_CHECKPOINT)
    wanted = [path for name, path in found if number in (None, int(name[1]))]
    return [path for path in wanted if is_own_checkpoint(path)]


def trajectories_in(folder: Path) -> list[Path]:
    """The files in the folder of a sweep that are named like trajectories of batches.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> (root / store.TRAJECTORIES).mkdir()
    >>> _ = (root / store.TRAJECTORIES / "0000.safetensors").write_bytes(b"")
    >>> [path.name for path in store.trajectories_in(root)]
    ['0000.safetensors']
    ```
    """
    return [path for _, path in _batch_files(folder, TRAJECTORIES, BATCH_TRAJECTORIES)]


def own_trajectories(folder: Path) -> list[Path]:
    """The undamaged trajectories of finished batches: the name of the part has their hash.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / store.SWEEP).write_text(store.SWEEP_HEADER + "seeds = 2\\n")
    >>> (root / store.PARTS).mkdir()
    >>> name = store.part_name(0, b"rows", None)
    >>> _ = (root / store.PARTS / name).write_bytes(b"rows")
    >>> store.own_trajectories(root)  # this part has none
    []
    ```
    """
    return [
        file
        for _, path in parts_in(folder)
        for file, mark in _hashes_in_name(path)[1:]
        if _matches(file, mark)
    ]


def holds_own_sweep(folder: Path) -> bool:
    """Whether iclflow wrote the sweep in a folder: its file has our header and is listed in the
    manifest or the marker. Versions without a marker: it is unchanged, and has a part or a
    checkpoint.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / store.SWEEP).write_text(store.SWEEP_HEADER + "seeds = 2\\n")
    >>> (root / store.PARTS).mkdir()
    >>> name = store.part_name(0, b"rows", None)
    >>> _ = (root / store.PARTS / name).write_bytes(b"rows")
    >>> store.holds_own_sweep(root)
    True
    >>> store.holds_own_sweep(root / store.PARTS)
    False
    ```
    """
    if not begins_with(folder / SWEEP, SWEEP_HEADER):
        return False
    if OwnFiles(folder).lists(SWEEP):
        return OwnFiles(folder).owns(SWEEP)
    if not is_as_written(folder / SWEEP, SWEEP_HEADER):
        return False
    return bool(own_parts(folder) or own_checkpoints(folder))


def part_name(number: int, rows: bytes, trajectories: bytes | None) -> str:
    """The name of the file with the rows of a batch, which has the hashes of all its files.

    **Example:**

    ```pycon
    >>> from iclflow import store
    >>> store.part_name(3, b"rows", None)
    '0003-bc51e9e65d79e1c9.parquet'
    ```
    """
    marks = [sha256(content)[:16] for content in (rows, trajectories) if content is not None]
    return "-".join([f"{number:04d}", *marks]) + ".parquet"


def find_part_damage(folder: Path) -> list[str]:
    """What is wrong with the finished batches of an unfinished sweep, one sentence per file.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / store.SWEEP).write_text(store.SWEEP_HEADER + "seeds = 2\\n")
    >>> (root / store.PARTS).mkdir()
    >>> name = store.part_name(0, b"rows", None)
    >>> _ = (root / store.PARTS / name).write_bytes(b"rows")
    >>> store.find_part_damage(root)
    []
    >>> _ = (root / store.PARTS / name).write_bytes(b"changed")
    >>> len(store.find_part_damage(root))
    1
    ```
    """
    return [sentence for _, sentence in _damaged_parts(folder)]


def _damaged_parts(folder: Path) -> Iterator[tuple[Path, str]]:
    """Damaged files of batches, each with what is wrong with it."""
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
    """The files of a batch, each with the beginning of its hash, from the name of its part."""
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
    """Files in a folder of a sweep with names of one form. Links are not followed."""
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


def find_sweep_damage(sweep: StoredSweep) -> list[str]:
    """What is wrong with the files of a sweep, one sentence per file.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / store.SWEEP).write_text(store.SWEEP_HEADER + "seeds = 2\\n")
    >>> (root / store.PARTS).mkdir()
    >>> name = store.part_name(0, b"rows", None)
    >>> _ = (root / store.PARTS / name).write_bytes(b"rows")
    >>> (sweep,) = store.list_sweeps(root)
    >>> store.find_sweep_damage(sweep)
    []
    ```
    """
    if sweep.status == "unfinished":
        return find_part_damage(sweep.folder)
    found = find_damage(sweep.folder)
    if sweep.status == "unreadable" and not found:
        return [f"`{sweep.folder}` is unreadable: {sweep.reason}."]
    return found


def _is_sweep(folder: Path, files: Iterable[str]) -> bool:
    """Whether a folder holds a sweep. A `sweep.toml` alone counts only if iclflow wrote it."""
    names = set(files)
    if SWEEP in names and begins_with(folder / SWEEP, SWEEP_HEADER):
        return True
    if MANIFEST not in names:
        return False
    manifest = open_manifest(folder)[0]
    if manifest is not None:
        return "sweep_hash" in manifest
    # The manifest is damaged. A table beside the config of a run does not make it a sweep.
    return SWEEP in names or (RESULTS in names and not begins_with(folder / CONFIG, HEADER))


def sweep_tables(folder: Path) -> tuple[list[Path], bool]:
    """The files of the table of a sweep, and whether it is complete: if not, they are those of the
    finished batches.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (root / store.SWEEP).write_text(store.SWEEP_HEADER + "seeds = 2\\n")
    >>> (root / store.PARTS).mkdir()
    >>> name = store.part_name(0, b"rows", None)
    >>> _ = (root / store.PARTS / name).write_bytes(b"rows")
    >>> files, complete = store.sweep_tables(root)
    >>> [file.name == name for file in files], complete
    ([True], False)
    >>> store.RESULTS  # the only one when the sweep is complete
    'results.parquet'
    ```
    """
    if not (folder / SWEEP).is_file():
        raise InputError(f"`{folder}` is no folder of a sweep: `iclflow sweep FILE` makes one.")
    if (folder / MANIFEST).exists():
        needed = (RESULTS, MANIFEST)
        harm = [words for words in find_damage(folder) if any(name in words for name in needed)]
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
