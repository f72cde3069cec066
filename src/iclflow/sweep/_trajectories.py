"""The trajectories of a batch in one file."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..config import InputError
from ..models import MODELS
from ..store import trajectories_in
from ..trajectory import Result, Trajectory, assemble, model_arrays, model_settings

FORMAT = 1


def packed(numbers: Sequence[int], runs: Sequence[Trajectory]) -> bytes:
    """Runs as one safetensors file: their points one after the other, and how many each has.

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
        # Not how long they took: the same runs are the same file.
        "statistics": [{k: v for k, v in run.statistics.items() if k != "seconds"} for run in runs],
    }
    plain = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return save(plain, metadata={"iclflow": json.dumps(about)})


def load_trajectory(folder: Path | str, number: int) -> Trajectory:
    """One run of a sweep that kept its trajectories.

    **Arguments:**

    - `folder`: of the sweep.
    - `number`: of the run, as in the column `run` of the table.
    """
    from safetensors import safe_open

    for path in trajectories_in(Path(folder)):
        with safe_open(path, framework="numpy") as file:
            place = np.flatnonzero(file.get_tensor("runs") == number)
            if not place.size:
                continue
            about = json.loads((file.metadata() or {})["iclflow"])
            counts, i = file.get_tensor("counts"), int(place[0])
            rows = slice(int(counts[:i].sum()), int(counts[: i + 1].sum()))
            names = [name for name in file.keys() if name.startswith("model.")]
            weights = {name.removeprefix("model."): file.get_slice(name)[rows] for name in names}
            times, losses = (file.get_slice(name)[rows] for name in ("times", "losses"))
        settings = about["model"]
        model_class = MODELS[settings.pop("class")]
        return Trajectory(
            times,
            losses,
            assemble(model_class, {**weights, **settings}),
            about["clock"],
            Result[about["results"][i]],
            about["statistics"][i],
        )
    raise InputError(f"`{folder}` holds no trajectory of run {number}.")
