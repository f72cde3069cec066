"""Runs an experiment: the flow that its config asks for."""

import dataclasses
import math
from collections.abc import Callable

from ..config import Config
from ..flows import (
    Checkpoint,
    SaveAtDrops,
    SaveAtTimes,
    SaveEvenly,
    SaveLogSpaced,
    Status,
    adam,
    gradient_descent,
    gradient_flow,
    sgd,
)
from ..risks import AbstractRisk
from ..trajectory import Trajectory
from ._build import Experiment, naming
from ._held_out import HeldOutRisk


def train(
    experiment: Experiment,
    callback: Callable[[Status], bool | None] | None = None,
    checkpoint: Checkpoint | None = None,
    stretch: int | None = None,
) -> Trajectory:
    """The run of an experiment.

    **Arguments:**

    - `callback`: called between chunks with a `Status`; the run is cancelled when it returns
      False.
    - `checkpoint`: where the run writes how far it is, and finds how far it was.
    - `stretch`: of a descent, the most steps from one call of `callback` to the next.
    """
    config, model = experiment.config, experiment.model
    settings = {k: v for k, v in config.flow if k != "kind"}
    options = {"save": save_points(config), "progress": False, "callback": callback, **settings}
    options |= {"checkpoint": checkpoint}
    with naming(config, "flow"):
        if config.flow.kind == "gradient_flow":
            return gradient_flow(model, experiment.risk, **options)
        descend = {"gradient_descent": gradient_descent, "sgd": sgd, "adam": adam}
        options |= {"key": experiment.key, "monitor": experiment.monitor}
        if stretch is not None:
            options["stretch"] = stretch
        run = descend[config.flow.kind](model, experiment.risk, **options)
    return _with_errors(run, experiment.monitor)


def _with_errors(run: Trajectory, monitor: AbstractRisk) -> Trajectory:
    """The run, with the standard errors of its first and its last loss if they were measured on
    sequences."""
    if not isinstance(monitor, HeldOutRisk) or not len(run):
        return run
    errors = [monitor.standard_error(run.at(i)) for i in (0, -1)]
    # A run that ran away has squares that overflow: its error is not known.
    known = [error if math.isfinite(error) else None for error in errors]
    measured = {"test_sequences": monitor.count, "standard_errors": known}
    return dataclasses.replace(run, statistics={**run.statistics, **measured})


def save_points(config: Config) -> SaveAtDrops | SaveEvenly | SaveLogSpaced | SaveAtTimes:
    """The moments that the config asks to keep."""
    kinds = {
        "drops": SaveAtDrops,
        "linear": SaveEvenly,
        "log": SaveLogSpaced,
        "explicit": SaveAtTimes,
    }
    return kinds[config.save.kind](**{k: v for k, v in config.save if k != "kind"})
