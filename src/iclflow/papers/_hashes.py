"""Hashes of trajectories, by which a repeated run is told from one that only looks alike."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


def hash_runs(value: Any) -> str | None:
    """The SHA-256 of all trajectories in a result: times, losses and weights, bit by bit; None if
    it holds none."""
    digest, found = hashlib.sha256(), False
    for run in _find_runs(value):
        found = True
        for array in _arrays(run):
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest() if found else None


def _find_runs(value: Any) -> Iterator[Any]:
    """Trajectories and ensembles in a result, in its order."""
    if hasattr(value, "times") and hasattr(value, "losses"):
        yield value
        return
    parts: Any = ()
    if isinstance(value, Mapping):
        parts = value.values()
    elif isinstance(value, list | tuple):
        parts = value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
    for part in parts:
        yield from _find_runs(part)


def _arrays(run: Any) -> Iterator[np.ndarray]:
    import jax

    yield np.asarray(run.times)
    yield np.asarray(run.losses)
    # An ensemble stores the weights of all runs in one array, a trajectory a model per point.
    weights = getattr(run, "weights", None)
    for leaf in jax.tree.leaves(getattr(run, "models", None) if weights is None else weights):
        if hasattr(leaf, "shape"):
            yield np.asarray(leaf)
