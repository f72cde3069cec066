"""A folder for results: made and checked before they are computed, or removed again."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..config import Config, InputError, parse_config, read_toml
from ..files import leftovers
from ._names import LOCK


@contextlib.contextmanager
def result_folder(path: Path) -> Iterator[Path]:
    """A folder that can be written to. If the block fails, folders made for it are removed."""
    made = _make(path)
    try:
        # On a disk that has no files without names, a process that dies here leaves one.
        with tempfile.TemporaryFile(dir=path, prefix=".probe.", suffix=".part"):
            pass
    except OSError as error:
        _remove(made)
        raise InputError(f"`{path}` cannot be written to: {error.strerror}.") from None
    try:
        yield path
    except BaseException:
        _remove(made)
        raise


def check_free(path: Path, config: Config, force: bool) -> None:
    """Refuses a folder that holds another run, or anything else, unless `force`."""
    try:
        if path.exists() and not path.is_dir():
            raise InputError(f"`{path}` is a file: must be a folder, or free.")
        if force or not path.is_dir() or is_empty(path):
            return
    except OSError as error:
        raise InputError(f"`{path}` cannot be used: {error.strerror}.") from None
    there = hash_in(path)
    if there is None:
        raise InputError(
            f"`{path}` holds something that is not a run: choose another folder with --out, or "
            "write into it with --force."
        )
    if there != config.hash:
        raise InputError(
            f"`{path}` holds another run ({there[:8]}): choose another folder with --out, or "
            "overwrite it with --force."
        )


def is_empty(folder: Path) -> bool:
    """Whether nothing is there but a lock, and what a process that died left half-written."""
    ours = {LOCK, *(left.name for left in leftovers(folder))}
    return all(file.name in ours for file in folder.iterdir())


def hash_in(folder: Path) -> str | None:
    """The hash of the config that a folder holds."""
    try:
        return parse_config(read_toml(folder / "config.toml"), stored=True).hash
    except InputError:
        return None


def _make(path: Path) -> list[Path]:
    """Makes a folder and those above it; returns the ones that were not there, deepest first."""
    missing = []
    try:
        for folder in (path, *path.parents):
            if folder.is_dir():
                break
            missing.append(folder)
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        _remove(missing)
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"`{path}` cannot be made: {reason}.") from None
    return missing


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError, ValueError):
            folder.rmdir()
