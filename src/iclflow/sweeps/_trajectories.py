"""The trajectories of a batch in one file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..config import InputError
from ..files import FileError
from ..models import model_arrays, model_settings
from ..store import trajectories_in
from ..tensors import TensorFile
from ..trajectory import Trajectory, restore_trajectory

FORMAT = 1


def pack_trajectories(numbers: Sequence[int], runs: Sequence[Trajectory]) -> bytes:
    """Runs as one safetensors file: their points one after the other, and the count of each run.

    Arrays: `runs` (their numbers), `counts`, `times`, `losses`, and `model.NAME` for each array of
    weights. What they have in common is in the header, as JSON, under `iclflow`.
    """
    from safetensors.numpy import save

    first = runs[0]
    arrays = {
        "runs": np.asarray(numbers, np.int64),
        "counts": np.asarray([len(run) for run in runs], np.int64),
        "times": np.concatenate([run.times for run in runs]),
        "losses": np.concatenate([run.losses for run in runs]),
    }
    weights = [model_arrays(run.models) for run in runs]
    for name in weights[0]:
        arrays[f"model.{name}"] = np.concatenate([each[name] for each in weights])
    about = {
        "format": FORMAT,
        "model": {"class": type(first.models).__name__, **model_settings(first.models)},
        "clock": first.clock,
        "results": [run.result.name for run in runs],
        # Without the seconds, so that the same runs give the same file.
        "statistics": [{k: v for k, v in run.statistics.items() if k != "seconds"} for run in runs],
    }
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(plain, metadata={"iclflow": json.dumps(about)})


def load_trajectory(folder: Path | str, number: int) -> Trajectory:
    """One run of a sweep that kept its trajectories.

    **Arguments:**

    - `folder`: of the sweep.
    - `number`: of the run, as in the column `run` of the table.

    **Example:**

    ```pycon
    >>> import tempfile
    >>> spec = {"base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "heads": 2}, "flow": {"end": 10.0}},
    ...     "measure": {"trajectories": True}}
    >>> folder = tempfile.mkdtemp() + "/sweep"
    >>> table = icl.sweep(spec, out=folder, progress=False)
    >>> icl.sweeps.load_trajectory(folder, 0).times[-1]
    np.float64(10.0)
    ```
    """
    for path in trajectories_in(Path(folder)):
        found = _find_run(path, number)
        if found is not None:
            return found
    raise InputError(f"`{folder}` holds no trajectory of run {number}.")


def _find_run(path: Path, number: int) -> Trajectory | None:
    """The run of this number in one file; None if it has no such run."""
    file = TensorFile(path)
    missing = {"runs", "counts", "times", "losses"} - set(file)
    if missing:
        raise FileError(f"`{path}` has no `{sorted(missing)[0]}`: damaged.")
    runs, counts = file["runs"], file["counts"]
    whole = (
        runs.ndim == 1
        and runs.shape == counts.shape
        and {runs.dtype.kind, counts.dtype.kind} == {"i"}
    )
    if not whole or np.any(counts < 0):
        raise FileError(f"`{path}` does not say where its runs begin: damaged.")
    place = np.flatnonzero(runs == number)
    if not place.size:
        return None
    about, i = file.about() or {}, int(place[0])
    each: dict[str, Any] = {
        "result": about.get("results"),
        "statistics": about.get("statistics"),
    }
    if not all(isinstance(x, list) and len(x) == len(runs) for x in each.values()):
        raise FileError(f"`{path}` does not say how its runs ended: damaged.")
    rows = slice(int(counts[:i].sum()), int(counts[: i + 1].sum()))
    arrays = {name: file.rows(name, rows) for name in file if name not in ("runs", "counts")}
    return restore_trajectory(str(path), arrays, {**about, **{k: v[i] for k, v in each.items()}})
