"""One batch: its runs are computed as one program, measured, and made into rows."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..config import Config, InputError
from ..experiment import Experiment, naming, prepare, save_points
from ..files import folder_removed, to_plain
from ..flows import (
    Checkpoint,
    Ensemble,
    Status,
    adam_rule,
    descend_ensemble,
    gradient_flow_ensemble,
    sgd_rule,
)
from ..models import AbstractModel
from ..risks import AbstractRisk
from ..trajectory import Result, Trajectory
from ._batches import Batch, check_batch, seeded, shape_of
from ._file import Sweep
from ._measurements import FinishedRun, measure
from ._members import ExperimentCache, first_models, step_keys
from ._trajectories import pack_trajectories


class Stopped(Exception):
    """The caller stopped the batch; its checkpoint holds its state.

    **Example:**

    ```pycon
    >>> issubclass(icl.sweeps.Stopped, Exception)
    True
    ```
    """


@dataclasses.dataclass(frozen=True)
class FinishedBatch:
    """A batch that is done: one row per run, and the trajectories as a file if they are kept."""

    batch: Batch
    rows: list[dict[str, Any]]
    trajectories: bytes | None


def check_ends(sweep: Sweep, batches: Sequence[Batch]) -> None:
    """Refuses runs that end on convergence where the smallest loss is not known.

    **Example:**

    ```pycon
    >>> spec = {"base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "heads": 2}}}
    >>> sweep = icl.sweeps.parse_sweep(spec)
    >>> icl.sweeps.check_ends(sweep, icl.sweeps.batches_of(sweep))
    ```
    """
    shapes = {shape_of(c): c for c in (sweep.config(batch.runs[0]) for batch in batches)}
    for config in shapes.values():
        if config.flow.kind == "gradient_flow" and getattr(config.flow, "end") is None:
            experiment = prepare(config)
            if ExperimentCache().floor(config, experiment) is None:
                raise InputError(
                    "`flow.end` is missing: the smallest loss that these weights can reach is not "
                    "known, so the runs need an end."
                )


def compute_batch(
    sweep: Sweep,
    batch: Batch,
    folder: Path,
    every: float,
    cache: ExperimentCache,
    callback: Callable[[Status], bool | None],
) -> FinishedBatch:
    """Computes a batch, or resumes it from its checkpoint.

    **Arguments:**

    - `folder`: for its checkpoints, written every `every` seconds.
    - `cache`: builds tasks and risks; all batches of a process share one.
    - `callback`: called between chunks; the batch stops, with `Stopped`, if it returns False.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> spec = {"base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "heads": 2}, "flow": {"end": 10.0}}}
    >>> sweep = icl.sweeps.parse_sweep(spec)
    >>> batch = icl.sweeps.batches_of(sweep)[0]
    >>> folder, cache = pathlib.Path(tempfile.mkdtemp()), icl.sweeps.ExperimentCache()
    >>> finished = icl.sweeps.compute_batch(sweep, batch, folder, 10.0, cache, lambda status: None)
    >>> len(finished.rows), finished.trajectories
    (1, None)
    ```
    """
    check_batch(sweep, batch)
    going, latest = True, Status(0.0, 0.0, 0, None)

    def report(status: Status) -> bool:
        nonlocal going, latest
        going, latest = callback(status) is not False, status
        return going

    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise folder_removed(folder.parent) from None
    configs = [sweep.config(run) for run in batch.runs]
    configs += configs[-1:] * (batch.size - len(configs))
    experiments = _find_experiments(configs, cache)
    models = first_models(configs)
    runs: dict[int, _Run] = {}
    for number, members in enumerate(_group_by_structure(experiments)):
        path = folder / f"{batch.number:04d}-{number}.checkpoint.safetensors"
        part = _train_members(
            [configs[i] for i in members],
            [experiments[i] for i in members],
            jax.tree.map(lambda leaf: leaf[np.asarray(members)], models),
            batch.one_risk,
            Checkpoint(path, every, make_folder=False),
            report,
        )
        if not going or Result.cancelled in part.results:
            raise Stopped
        runs |= {
            member: _Run(part, i, configs[member], experiments[member])
            for i, member in enumerate(members)
        }
    kept = [runs[i] for i in range(len(batch.runs))]
    rows = []
    for number, config, run, experiment in zip(batch.runs, configs, kept, experiments):
        rows.append(_row(sweep, number, config, run, experiment, cache))
        if sweep.trajectories:
            run.trajectory  # computed while its test set is in memory
        run.drop_test_set()
        if not report(latest):  # some measurements take seconds
            raise Stopped
    trajectories = None
    if sweep.trajectories:
        trajectories = pack_trajectories(batch.runs, [run.trajectory for run in kept])
    return FinishedBatch(batch, rows, trajectories)


@dataclasses.dataclass(frozen=True)
class _Run:
    """One run of an ensemble. For most of them only the end is needed."""

    ensemble: Ensemble
    index: int
    config: Config
    experiment: Experiment

    @functools.cached_property
    def trajectory(self) -> Trajectory:
        """The run with the losses that are reported. For a random run these take longer than all
        other measurements together."""
        return (
            _with_monitored_losses(self._monitor, self._recorded)
            if self.config.stochastic
            else self._recorded
        )

    @property
    def result(self) -> Result:
        if self.config.stochastic and not self._finite:
            return self.trajectory.result
        return self.ensemble.results[self.index]

    @property
    def final(self) -> AbstractModel:
        return self._recorded.final if self._finite else self.trajectory.final

    @functools.cached_property
    def ends(self) -> tuple[float, float, float] | None:
        """The last time, the first and the last loss, if there is a point."""
        if not self.config.stochastic:
            return self.ensemble.ends(self.index)
        if self._finite:
            at_ends = jax.tree.map(lambda leaf: leaf[np.asarray([0, -1])], self._recorded.models)
            losses = np.asarray(_losses(self._monitor, at_ends))
            if np.all(np.isfinite(losses)):
                return self._recorded.times[-1], losses[0], losses[1]
        run = self.trajectory
        return (run.times[-1], run.losses[0], run.losses[-1]) if len(run) else None

    def drop_test_set(self) -> None:
        """Frees the test set: those of all runs of a batch would take far more memory than the
        rest."""
        vars(self).pop("_monitor", None)

    @functools.cached_property
    def _recorded(self) -> Trajectory:
        """The run with the training losses of its steps."""
        return self.ensemble[self.index]

    @property
    def _finite(self) -> bool:
        return len(self._recorded) > 0 and bool(np.all(np.isfinite(self._recorded.losses)))

    @functools.cached_property
    def _monitor(self) -> AbstractRisk:
        return self.experiment.monitor_of(self.config)


def _find_experiments(configs: Sequence[Config], cache: ExperimentCache) -> list[Experiment]:
    """An experiment with the task and the risk of each config; runs of one point share it."""
    points = [
        (id(config.task), id(config.model), config.seed if seeded(config) else 0)
        for config in configs
    ]
    found = {
        point: cache.experiment(config) for point, config in dict(zip(points, configs)).items()
    }
    return [found[point] for point in points]


def _group_by_structure(experiments: Sequence[Experiment]) -> list[list[int]]:
    """Groups of members whose risks can be stacked, nearly always one. (Settings alone do not say
    which integrals a risk needs.)"""
    found: dict[Any, list[int]] = {}
    names: dict[int, Any] = {}  # by the id of the risk, because most members share one
    for i, experiment in enumerate(experiments):
        risk = experiment.risk
        if id(risk) not in names:
            leaves, structure = jax.tree.flatten(risk)
            names[id(risk)] = structure, tuple(np.shape(leaf) for leaf in leaves)
        found.setdefault(names[id(risk)], []).append(i)
    return list(found.values())


def _train_members(
    configs: Sequence[Config],
    experiments: Sequence[Experiment],
    models: AbstractModel,
    one_risk: bool,
    checkpoint: Checkpoint,
    callback: Callable[[Status], bool],
) -> Ensemble:
    config, first = configs[0], experiments[0]
    risks = first.risk if one_risk else [experiment.risk for experiment in experiments]
    settings: dict[str, Any] = {k: v for k, v in config.flow if k != "kind"}
    options: dict[str, Any] = {"save": save_points(config), "progress": False}
    options |= {"callback": callback, "checkpoint": checkpoint}
    with naming(config, "flow"):
        if config.flow.kind == "gradient_flow":
            return gradient_flow_ensemble(models, risks, **options, **settings)
        steps, rate = settings.pop("steps"), settings.pop("learning_rate")
        rule = adam_rule if config.flow.kind == "adam" else sgd_rule
        keys = step_keys(configs) if config.stochastic else None
        return descend_ensemble(models, risks, rule(rate, **settings), steps, keys=keys, **options)


def _with_monitored_losses(monitor: AbstractRisk, run: Trajectory) -> Trajectory:
    """A random run with the losses of its monitor, as `iclflow run` reports them."""
    losses = np.asarray(_losses(monitor, run.models))
    finite = np.isfinite(losses)
    if finite.all():
        return dataclasses.replace(run, losses=losses)
    last = int(np.argmin(finite))
    return dataclasses.replace(run[:last], losses=losses[:last], result=Result.diverged)


@eqx.filter_jit
def _losses(risk: AbstractRisk, models: AbstractModel):
    return jax.lax.map(risk, models)


def _row(
    sweep: Sweep,
    number: int,
    config: Config,
    run: _Run,
    experiment: Experiment,
    cache: ExperimentCache,
) -> dict[str, Any]:
    ends = run.ends or (None,) * 3
    row = {"run": number, **sweep.settings(number), "seed": config.seed, "hash": config.hash}
    row |= {"result": run.result.name}
    row |= {k: to_plain(v) for k, v in zip(("last_time", "initial_loss", "final_loss"), ends)}
    floor = functools.partial(cache.floor, config, experiment)
    if run.ends is None:
        return row | {"not_measured": "The run has no point with a finite loss."}
    if not sweep.names:
        return row | {"not_measured": None}
    return row | measure(
        sweep.names,
        FinishedRun(config, run.final, experiment.task, lambda: run.trajectory, floor),
    )
