"""Checkpoints: the state of a run between two chunks, in a file.

A resumed run computes the same chunks from the same numbers as one that was not stopped: its
results are the same to the bit.
"""

import contextlib
import hashlib
import json
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InputError
from ..files import FileError, write_atomic
from ..runtime import NUMERICAL, installed_versions
from ..tensors import OWN, TensorFile

FORMAT = 3
# The largest share of a run that writing checkpoints may take.
_SHARE = 0.05
_REMEDY = "remove it, and the run starts from the beginning."


class Snapshot(NamedTuple):
    """A run between two chunks: its arrays, and everything else as plain data."""

    arrays: dict[str, np.ndarray]
    about: dict[str, Any]


class CheckpointError(FileError):
    """A checkpoint that cannot be used; the message says what to do.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "flow.checkpoint"
    >>> _ = path.write_text("something else")
    >>> try:
    ...     icl.Checkpoint(path).load("a fingerprint")
    ... except icl.flows.CheckpointError as error:
    ...     print(str(error).split("` ")[1])
    is damaged: remove it, and the run starts from the beginning.
    ```
    """


class Checkpoint:
    """A file that a run is written to, and resumed from. One object serves one run.

    **Arguments:**

    - `path`: of the file. It is replaced in one step, so that it is always complete.
    - `every`: seconds between two writes; more if writing takes long.
    - `label`: a name for the run that can be read from the file; see `label_in`.
    - `make_folder`: whether to make a missing folder; otherwise nothing is written then.

    **Example:**

    ```pycon
    >>> import tempfile, os
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1)
    >>> folder = tempfile.mkdtemp()
    >>> kept = icl.Checkpoint(f"{folder}/flow.checkpoint", every=0)
    >>> run = icl.gradient_flow(model, icl.risk(task, model), checkpoint=kept)
    >>> os.listdir(folder), run.result.name
    (['flow.checkpoint'], 'converged')
    ```
    """

    def __init__(
        self, path: Path | str, every: float = 10.0, label: str = "", make_folder: bool = True
    ):
        if isinstance(every, str):
            raise InputError("every", every, "must be a number of seconds")
        if not every >= 0:
            raise InputError("every", every, "must not be negative")
        if not isinstance(path, str | Path):
            raise InputError("path", path, "must be the path of a file")
        self.path = Path(path)
        if self.path.is_dir():
            problem = f"= {str(path)!r} is a folder"
            raise InputError("path", problem=problem, allowed="must be the path of a file")
        self.every = every
        self.label = label
        self._make_folder = make_folder
        self._owner: str | None = None
        # The first write is due after `every` seconds, too: short runs write nothing.
        self._last = time.monotonic()
        self._cost = 0.0
        self._warned = False

    def load(self, owner: str) -> Snapshot | None:
        """The last snapshot of a run, or None if nothing has been written yet.

        **Arguments:**

        - `owner`: the fingerprint of the run. The file of another run is refused.
        """
        # Two runs would overwrite each other.
        if self._owner not in (None, owner):
            raise CheckpointError(f"The checkpoint `{self.path}` serves another run already.")
        self._owner = owner
        if not self.path.exists():
            return None
        arrays, about = _read(self.path)
        if about.get("owner") != owner:
            raise CheckpointError(
                f"`{self.path}` belongs to another run, or to a run of another version of iclflow: "
                "resume it with that version, or remove the file (`--fresh` does)."
            )
        return Snapshot(arrays, about["state"])

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """Refuses a snapshot that does not fit the run although its hash is right."""
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError):
            raise CheckpointError(
                f"`{self.path}` does not hold what this run needs: {_REMEDY}"
            ) from None

    @property
    def due(self) -> bool:
        """Whether it is time to write again."""
        return time.monotonic() - self._last >= max(self.every, self._cost / _SHARE)

    def save(self, snapshot: Snapshot) -> None:
        """Writes a snapshot. If the disk fails, it warns once, and the run goes on."""
        from safetensors.numpy import save

        if not self._make_folder and not self.path.parent.is_dir():
            return  # the caller, who keeps results in this folder, reports that it is gone
        start = time.monotonic()
        arrays = {name: np.ascontiguousarray(x) for name, x in snapshot.arrays.items()}
        about = {
            "format": FORMAT,
            "owner": self._owner,
            "label": self.label,
            "state": snapshot.about,
            "hash": _hash(arrays, snapshot.about),
        }
        try:
            write_atomic(self.path, save(arrays, metadata={OWN: json.dumps(about)}))
        except OSError as error:
            # The run is worth more than its checkpoint.
            if not self._warned:
                words = f"`{self.path}` could not be written ({error.strerror}): the run goes on."
                warnings.warn(words, stacklevel=2)
            self._warned = True
        self._last = time.monotonic()
        self._cost = self._last - start

    def remove(self) -> None:
        """Removes the file, once the run has ended and is stored elsewhere."""
        self.path.unlink(missing_ok=True)


def label_in(path: Path) -> str | None:
    """The label in a checkpoint; "" if the file cannot be read, None if there is no file.

    **Example:**

    ```pycon
    >>> import pathlib
    >>> icl.flows.label_in(pathlib.Path("missing.checkpoint")) is None
    True
    ```
    """
    if not path.exists():
        return None
    try:
        return str(_open(path)[1].get("label", ""))
    except CheckpointError:
        return ""


def verified_label(path: Path) -> str | None:
    """The label in a checkpoint that matches its hash; None for any other file.

    **Example:**

    ```pycon
    >>> import pathlib
    >>> icl.flows.verified_label(pathlib.Path("missing.checkpoint")) is None
    True
    ```
    """
    try:
        return str(_read(path)[1]["label"])
    except (CheckpointError, KeyError):
        return None


def owner_of(*parts: Any) -> str:
    """A fingerprint of pytrees of arrays and plain settings, with their classes, and of the
    versions and the kind of device that compute."""
    digest = hashlib.sha256()

    def add(content: bytes | memoryview) -> None:
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)

    # Structures name classes and static fields. Addresses of functions differ from process to
    # process: functions count by name alone.
    add(re.sub(r" at 0x[0-9a-f]+", "", str(jax.tree.structure(parts))).encode())
    add(json.dumps([installed_versions(*NUMERICAL), jax.default_backend()]).encode())
    for leaf in jax.tree.leaves(parts):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if hasattr(leaf, "dtype"):
            array = np.ascontiguousarray(leaf)
            add(f"{array.dtype}{array.shape}".encode())
            add(array.reshape(-1).view(np.uint8).data)  # without a copy: test sets can be large
        else:
            add(repr(leaf).encode())
    return digest.hexdigest()


def leaves_of(state: Any, name: str = "state") -> dict[str, np.ndarray]:
    """The arrays of a state, numbered."""
    return {f"{name}.{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(state))}


def with_leaves(state: Any, arrays: dict[str, np.ndarray], name: str = "state") -> Any:
    """A state of the same structure with the arrays of `leaves_of`."""
    leaves, structure = jax.tree.flatten(state)
    found = [jnp.asarray(arrays[f"{name}.{i}"], x.dtype) for i, x in enumerate(leaves)]
    shapes = [x.shape for x in leaves], [x.shape for x in found]
    # Parked runs have the structure of the state, but another number of runs.
    if name == "state" and shapes[0] != shapes[1]:
        raise ValueError(f"The state has shapes {shapes[1]}: must have {shapes[0]}.")
    return jax.tree.unflatten(structure, found)


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the metadata of a checkpoint that matches its hash."""
    file, about = _open(path)
    try:
        arrays = {name: file[name] for name in file}
    except FileError:
        raise CheckpointError(f"`{path}` is damaged: {_REMEDY}") from None
    if about.get("hash") != _hash(arrays, about.get("state")):
        raise CheckpointError(f"`{path}` does not match its hash, so it is damaged: {_REMEDY}")
    return arrays, about


def _open(path: Path) -> tuple[TensorFile, dict[str, Any]]:
    """A checkpoint and its metadata."""
    try:
        file = TensorFile(path)
        about = file.about()
    except FileError:
        raise CheckpointError(f"`{path}` is damaged: {_REMEDY}") from None
    if about is None or about.get("format") != FORMAT:
        raise CheckpointError(f"`{path}` is not a checkpoint of this version: {_REMEDY}")
    return file, about


def _hash(arrays: dict[str, np.ndarray], about: Any) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}{array.dtype}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()
