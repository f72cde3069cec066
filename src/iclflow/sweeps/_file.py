"""A sweep: a base config, axes, seeds and measurements, all checked before anything runs."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..config import GIB, Config, InputError, memory_here, parse_config
from ..errors import shorten
from ..experiment import build_task
from ._axes import LARGEST, MOST_POINTS, expand_axes, parse_axes, parse_zips, point_count
from ._measurements import check_measurements

_KEYS = ("name", "seeds", "batch", "zip", "base", "axes", "measure")
_MEASURE = ("names", "trajectories")
_LARGEST_SEED = 2**32 - 1
# Runs in one program by default: on a CPU more are not faster, and need more memory.
BATCH = 1024
# Bytes per point and per run (measured with a dozen settings, and with seeds alone).
_POINT, _RUN = 3_500, 200
# Settings of a task that pydantic checks completely, without building the task.
_CHECKED = ("kind", "eigenvalues", "context", "coordinates")


@dataclasses.dataclass(frozen=True)
class Point:
    """One combination of the swept settings, and its config (with the first seed)."""

    settings: dict[str, Any]
    config: Config


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Everything that decides the table of a sweep. Run number i is point i // S with seed i % S,
    for S seeds.

    **Fields:**

    - `data`: the sweep as plain data, with flags and defaults; `parse_sweep(data)` restores it.
    - `batch`: the largest number of runs in one program.
    - `names`: of the measurements.
    - `trajectories`: whether times, losses and weights are kept too.
    """

    name: str
    data: dict[str, Any]
    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    batch: int
    names: tuple[str, ...]
    trajectories: bool

    def __len__(self) -> int:
        return len(self.points) * len(self.seeds)

    def config(self, run: int) -> Config:
        """The config of one run."""
        point, seed = divmod(run, len(self.seeds))
        return self.points[point].config.model_copy(update={"seed": self.seeds[seed]})

    def settings(self, run: int) -> dict[str, Any]:
        """The swept settings of one run."""
        return self.points[run // len(self.seeds)].settings

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the swept settings."""
        return tuple(self.points[0].settings)

    @property
    def hash(self) -> str:
        """The SHA-256 of everything that decides the table; the name is left out."""
        digest = hashlib.sha256()
        rest = [self.seeds, self.batch, self.names, self.trajectories, self.axes]
        digest.update(json.dumps(rest).encode())
        for point in self.points:
            digest.update(point.config.hash.encode())
        return digest.hexdigest()

    @property
    def folder_name(self) -> str:
        return f"{self.name}-{self.hash[:8]}"


def parse_sweep(data: Mapping[str, Any], stored: bool = False) -> Sweep:
    """A sweep from plain data; an `InputError` if anything in it cannot work.

    **Arguments:**

    - `stored`: whether it was computed before, maybe on a larger machine: limits of memory are
      not checked.

    **Example:**

    ```pycon
    >>> spec = {"seeds": 3, "base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "heads": 2}}, "axes": {"model.scale": [0.1, 0.2]}}
    >>> sweep = icl.sweeps.parse_sweep(spec)
    >>> len(sweep.points), sweep.seeds, sweep.config(5).model.scale
    (2, (0, 1, 2), 0.2)
    ```
    """
    for key in data:
        if key not in _KEYS:
            raise InputError(
                f"`{key}` is not a key of a sweep: allowed are {', '.join(_KEYS)} (settings of the "
                "runs go into [base])."
            )
    base = data.get("base")
    if not isinstance(base, Mapping):
        raise InputError("`base` is missing: a sweep needs a section [base] with a config.")
    for key, place in (("seed", "seeds"), ("name", "name")):
        if key in base:
            raise InputError(
                f"base.{key}", base[key], f"give `{place}` at the top of the sweep's file"
            )
    axes = parse_axes(data.get("axes", {}))
    zips = parse_zips(data.get("zip", []), axes)
    seeds, batch = _parse_seeds(data.get("seeds", 1)), _parse_batch(data.get("batch", BATCH))
    _check_count(point_count(axes, zips), len(seeds))
    names, trajectories = _parse_measure(data.get("measure", {}))
    name = data.get("name", "sweep")
    common = {**base, "name": name, "seed": seeds[0]}
    points = tuple(Point(at, _parse_config(common, at, stored)) for at in expand_axes(axes, zips))
    _check_tasks(points)
    check_measurements(names, [point.config for point in points])
    resolved = {
        "name": name,
        "seeds": len(seeds) if seeds == tuple(range(len(seeds))) else list(seeds),
        "batch": batch,
        "zip": [list(group) for group in zips],
        "base": dict(base),
        "axes": {axis.setting: list(axis.values) for axis in axes},
        "measure": {"names": list(names), "trajectories": trajectories},
    }
    return Sweep(name, resolved, points, seeds, batch, names, trajectories)


def _check_count(points: int, seeds: int) -> None:
    """Refuses more points and runs than a sweep may have, before they are made."""
    if points > MOST_POINTS:
        raise InputError(
            f"The axes make {points} points: must be at most {MOST_POINTS}; `seeds` may make "
            f"{LARGEST} runs of them."
        )
    runs = points * seeds
    if runs > LARGEST:
        raise InputError(f"The axes and seeds make {runs} runs: must be at most {LARGEST}.")
    needed, here = _POINT * points + _RUN * runs, memory_here()
    if needed > here.usable:
        raise InputError(
            f"The axes and seeds make {points} points and {runs} runs: listing them would need "
            f"about {needed / GIB:.3g} GiB of memory, and may take {here.sentence}."
        )


def _parse_config(base: Mapping[str, Any], settings: Mapping[str, Any], stored: bool) -> Config:
    try:
        return _check_save_points(parse_config(_override(base, settings), stored))
    except InputError as error:
        if str(error) == _find_refusal(base):  # not caused by the axes
            raise
        where = ", ".join(f"{name} = {shorten(value)}" for name, value in settings.items())
        raise InputError(f"{str(error).rstrip('.')} (in [axes], at {where}).") from None


def _override(base: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    data = dict(base)
    for name, value in settings.items():
        *path, last = name.split(".")
        inside = data
        for step in path:
            nested = inside.get(step)
            inside[step] = dict(nested) if isinstance(nested, Mapping) else {}
            inside = inside[step]
        inside[last] = list(value) if isinstance(value, tuple) else value
    return data


def _find_refusal(base: Mapping[str, Any]) -> str | None:
    """Why the base alone is not a valid config; None if it is."""
    try:
        _check_save_points(parse_config(base))
    except InputError as error:
        return str(error)
    return None


def _check_save_points(config: Config) -> Config:
    """The config; refused if its save points cannot be used in a sweep."""
    if config.stochastic and config.save.kind == "drops":
        raise InputError(
            '`save.kind` = "drops" keeps every step of a random run: must be "linear", "log" or '
            '"explicit" in a sweep.'
        )
    return config


def _check_tasks(points: Sequence[Point]) -> None:
    """Builds the tasks whose settings alone do not show that they are valid."""
    unsure = {
        repr(point.config.task): point
        for point in points
        for name, value in point.config.task
        if name not in _CHECKED and isinstance(value, tuple)
    }
    for point in unsure.values():
        build_task(point.config)


def _parse_seeds(given: Any) -> tuple[int, ...]:
    whole = lambda x: isinstance(x, int) and not isinstance(x, bool)
    if whole(given) and 1 <= given <= LARGEST:
        return tuple(range(given))
    if not isinstance(given, list | tuple) or not given:
        raise InputError(
            "seeds", given, f"must be a number from 1 to {LARGEST}, or a list of seeds"
        )
    seen: set[int] = set()
    for seed in given:
        if not whole(seed) or not 0 <= seed <= _LARGEST_SEED:
            raise InputError(
                f"`seeds` holds {shorten(seed)}: must be whole numbers from 0 to {_LARGEST_SEED}."
            )
        if seed in seen:
            raise InputError(f"`seeds` holds {seed} twice: seeds must differ.")
        seen.add(seed)
    return tuple(given)


def _parse_batch(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= LARGEST:
        raise InputError("batch", given, f"must be a whole number from 1 to {LARGEST}")
    return given


def _parse_measure(given: Any) -> tuple[tuple[str, ...], bool]:
    if not isinstance(given, Mapping):
        raise InputError("measure", given, "must be a section of settings")
    for key in given:
        if key not in _MEASURE:
            raise InputError(
                f"`measure.{key}` is not a setting of [measure]: allowed are {', '.join(_MEASURE)}."
            )
    names, kept = given.get("names", []), given.get("trajectories", False)
    if not isinstance(names, list | tuple) or not all(isinstance(n, str) for n in names):
        raise InputError("measure.names", names, "must be a list of names")
    if not isinstance(kept, bool):
        raise InputError("measure.trajectories", kept, "must be true or false")
    return tuple(names), kept
