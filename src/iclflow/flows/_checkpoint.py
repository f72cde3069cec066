"""Where a run stands between two chunks, in a file, so that it can be taken up again.

A run that was taken up computes the same chunks from the same numbers as one that was not stopped:
its results are the same to the bit.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ..files import write_atomic
from ._recorder import Recorder, Snapshot

FORMAT = 1
# Writing may take up to this share of a run.
_SHARE = 0.05


class Checkpoint:
    """A file that holds where a run stands.

    **Arguments:**

    - `path`: of the file; it is written in one step, so that it is never half there.
    - `every`: seconds between two writings; more where writing takes long.
    """

    def __init__(self, path: Path | str, every: float = 10.0):
        if not every >= 0:
            raise ValueError(f"`every` = {every}: must not be negative.")
        self.path = Path(path)
        self.every = every
        self._owner = ""
        self._last = time.monotonic()
        self._cost = 0.0

    def load(self, owner: str) -> Snapshot | None:
        """Where the run of this `owner` stood, or None if nothing was written yet.

        **Arguments:**

        - `owner`: a fingerprint of all that decides the run. The file of another run is refused.
        """
        from safetensors import SafetensorError, safe_open

        self._owner = owner
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="numpy") as file:
                about = json.loads((file.metadata() or {}).get("iclflow", "null"))
                arrays = {name: file.get_tensor(name) for name in file.keys()}
        except (SafetensorError, ValueError, OSError):
            raise ValueError(
                f"`{self.path}` is damaged: remove it, and the run starts from the beginning."
            ) from None
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise ValueError(f"`{self.path}` is no checkpoint of this version: remove it.")
        if about["hash"] != _hash(arrays):
            raise ValueError(
                f"`{self.path}` does not match its hash: it is damaged. Remove it, and the run "
                "starts from the beginning."
            )
        if about["owner"] != owner:
            raise ValueError(
                f"`{self.path}` belongs to another run: choose another file, or remove it."
            )
        return Snapshot(arrays, about["state"])

    @property
    def due(self) -> bool:
        """Whether it is time to write again."""
        return time.monotonic() - self._last >= max(self.every, self._cost / _SHARE)

    def save(self, snapshot: Snapshot) -> None:
        """Writes where the run stands."""
        from safetensors.numpy import save

        start = time.monotonic()
        arrays = {name: np.ascontiguousarray(x) for name, x in snapshot.arrays.items()}
        about = {
            "format": FORMAT, "owner": self._owner, "state": snapshot.about, "hash": _hash(arrays)
        }  # fmt: skip
        write_atomic(self.path, save(arrays, metadata={"iclflow": json.dumps(about)}))
        self._last = time.monotonic()
        self._cost = self._last - start

    def remove(self) -> None:
        """Removes the file: the run is over and kept elsewhere."""
        self.path.unlink(missing_ok=True)


def owner_of(*parts) -> str:
    """A fingerprint of everything that decides a run: pytrees of arrays and plain settings."""
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(parts):
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        if hasattr(leaf, "dtype"):
            array = np.ascontiguousarray(leaf)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        else:
            digest.update(repr(leaf).encode())
    return digest.hexdigest()


def leaves_of(state) -> dict[str, np.ndarray]:
    """The arrays of a state, numbered."""
    return {f"state.{i}": np.asarray(x) for i, x in enumerate(jax.tree.leaves(state))}


def with_leaves(state, arrays: dict[str, np.ndarray]):
    """A state of the same structure with the arrays that `leaves_of` gave."""
    leaves, structure = jax.tree.flatten(state)
    found = [jnp.asarray(arrays[f"state.{i}"], x.dtype) for i, x in enumerate(leaves)]
    return jax.tree.unflatten(structure, found)


def packed(recorders: Sequence[Recorder]) -> Snapshot:
    """What recorders hold, those of an ensemble one after the other in few arrays."""
    states = [recorder.snapshot() for recorder in recorders]
    names = states[0].arrays
    arrays = {f"kept.{n}": np.concatenate([s.arrays[n] for s in states]) for n in names}
    arrays["kept.counts"] = np.asarray([len(state.arrays["times"]) for state in states])
    return Snapshot(arrays, {"recorders": [state.about for state in states]})


def unpack(recorders: Sequence[Recorder], snapshot: Snapshot) -> None:
    """Gives recorders back what they held."""
    counts = snapshot.arrays["kept.counts"]
    ends = np.cumsum(counts)
    for i, recorder in enumerate(recorders):
        rows = slice(int(ends[i] - counts[i]), int(ends[i]))
        held = lambda names, rows: {n: snapshot.arrays[f"kept.{n}"][rows] for n in names}
        several = held(("times", "losses", "weights"), rows)
        single = held(("last", "last_weights"), slice(i, i + 1))
        recorder.restore(Snapshot(several | single, snapshot.about["recorders"][i]))


def _hash(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
