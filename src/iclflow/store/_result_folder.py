"""A folder for results: made and checked before they are computed, removed on failure."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ..config import Config, InputError, to_toml
from ..files import LOCK, MARKER, OwnFiles, is_own_lock, read_regular
from ._catalogue import begins_with, is_as_written, read_config
from ._names import CHECKPOINT, CONFIG, HEADER, OLD_LOCK, PARTS, TRAJECTORIES


@contextlib.contextmanager
def result_folder(path: Path) -> Iterator[Path]:
    """A folder that can be written to. If the block fails, folders made for it are removed.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> with store.result_folder(root / "new") as folder:
    ...     print(folder.is_dir())
    True
    ```
    """
    made = _make(path)
    try:
        # Where the file system has no unnamed files, a process killed here leaves this one.
        with tempfile.TemporaryFile(dir=path, prefix=".probe.iclflow-", suffix=".part"):
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
    """Refuses a folder that holds another run, or other files, unless `force`.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> text = store.config_text(icl.papers.study("linear/merged"))
    >>> _ = (root / store.CONFIG).write_text(text)
    >>> store.check_free(root / "new", icl.papers.study("linear/merged"), force=False)
    >>> store.check_free(root, icl.papers.study("linear/white"), force=False)
    Traceback (most recent call last):
    ...
    iclflow.errors.InputError: ...
    ```
    """
    check_folder(path)
    if force or not path.is_dir() or is_empty(path):
        return
    remedy = "choose another folder with --out, or overwrite files of a run in it with --force"
    refuse_others(path, CONFIG, "run", holds_own_run(path), remedy)
    there = hash_in(path)
    if there != config.hash:
        raise InputError(f"`{path}` holds another run ({(there or '?')[:8]}): {remedy}.")


def refuse_others(path: Path, name: str, kind: str, ours: bool, remedy: str) -> None:
    """Refuses a folder whose run or sweep was not written by iclflow, or was changed.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> store.refuse_others(root, store.CONFIG, "run", ours=True, remedy="")
    >>> store.refuse_others(root, store.CONFIG, "run", ours=False, remedy="move it")
    Traceback (most recent call last):
    ...
    iclflow.errors.InputError: ...
    ```
    """
    own = OwnFiles(path)
    if own.lists(name) and not own.owns(name):
        raise InputError(f"`{path / name}` is not as it was written: {remedy}.")
    if not ours:
        raise InputError(f"`{path}` holds something that is not a {kind} of iclflow: {remedy}.")


def check_folder(path: Path) -> None:
    """Refuses a path that cannot be a folder.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> store.check_folder(root)
    >>> _ = (root / "file").write_text("")
    >>> store.check_folder(root / "file")
    Traceback (most recent call last):
    ...
    iclflow.errors.InputError: ...
    ```
    """
    try:
        if path.exists() and not path.is_dir():
            raise InputError(f"`{path}` is a file: must be a folder, or free.")
        if path.is_dir():
            os.listdir(path)
    except OSError as error:
        raise InputError(f"`{path}` cannot be used: {error.strerror}.") from None


def check_input(file: Path | str, path: Path, contents: Mapping[str, str]) -> None:
    """Refuses a folder in which the input file would be overwritten with something else.

    **Arguments:**

    - `contents`: the files to be written, by name.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> text = store.config_text(icl.papers.study("linear/merged"))
    >>> _ = (root / store.CONFIG).write_text(text)
    >>> file = root / store.CONFIG
    >>> store.check_input(file, root, {store.CONFIG: text})
    >>> store.check_input(file, root, {store.CONFIG: "other"})
    Traceback (most recent call last):
    ...
    iclflow.errors.InputError: ...
    ```
    """
    for name, content in contents.items():
        place, same = path / name, False
        with contextlib.suppress(OSError, ValueError):  # one of the two does not exist
            same = os.path.samefile(file, place)
        if same and read_regular(place) != content.encode():
            raise InputError(
                f"`{file}` lies where `{place}` would be written: choose another folder with --out."
            )


def is_empty(folder: Path) -> bool:
    """Whether a folder holds nothing but a lock, a marker, and temporary files of a killed
    process.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> from iclflow import store
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> store.is_empty(root)
    True
    >>> _ = (root / "file").write_text("")
    >>> store.is_empty(root)
    False
    ```
    """
    ours = {left.name for left in OwnFiles(folder).leftovers()}
    if OwnFiles(folder).owns(MARKER):
        ours.add(MARKER)
        places = [folder / PARTS, folder / TRAJECTORIES]
        ours |= {p.name for p in places if _is_empty_folder(p)}
    if is_own_lock(folder / LOCK):
        ours.add(LOCK)
    old = folder / OLD_LOCK
    if os.path.isfile(old) and not os.path.islink(old) and not old.stat().st_size:
        ours.add(OLD_LOCK)
    return all(name in ours for name in os.listdir(folder))


def _is_empty_folder(path: Path) -> bool:
    return os.path.isdir(path) and not os.path.islink(path) and not os.listdir(path)


def holds_own_run(folder: Path) -> bool:
    """Whether iclflow wrote the run in a folder: its config has our header and is listed in the
    manifest or the marker. Versions without a marker: it has a checkpoint of that config."""
    if not begins_with(folder / CONFIG, HEADER):
        return False
    if OwnFiles(folder).lists(CONFIG):
        return OwnFiles(folder).owns(CONFIG)
    there = hash_in(folder)
    if there is None or not is_as_written(folder / CONFIG, HEADER):
        return False
    return is_own_checkpoint(folder / CHECKPOINT, there)


def is_own_checkpoint(path: Path, label: str | None = None) -> bool:
    """Whether a file is an undamaged checkpoint, of the run with this label if one is given."""
    if not os.path.isfile(path) or os.path.islink(path):
        return False
    from ..flows import verified_label  # loads JAX

    found = verified_label(path)
    return found is not None and label in (None, found)


def config_text(config: Config) -> str:
    """The text of the config file of a run.

    **Example:**

    ```pycon
    >>> from iclflow import store
    >>> print(store.config_text(icl.papers.study("linear/merged")).splitlines()[0])
    # The config of a run, written by iclflow.
    ```
    """
    return HEADER + to_toml(config.given())


def hash_in(folder: Path) -> str | None:
    """The hash of the config that a folder holds."""
    try:
        return read_config(folder).hash
    except InputError:
        return None


def _make(path: Path) -> list[Path]:
    """Makes a folder and its parents; returns those that were missing, deepest first."""
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
