"""Trains the model of an experiment with the flow of its config."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

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
    - `checkpoint`: where the run saves its state, and resumes from.
    - `stretch`: for a descent, the most steps between two calls of `callback`.

    **Example:**

    ```pycon
    >>> experiment = icl.experiment.prepare(icl.papers.study("linear/white"))
    >>> icl.experiment.train(experiment).result.name
    'converged'
    ```
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


def as_run(experiment: Experiment, times: Sequence[float], models: Sequence[Any]) -> Trajectory:
    """The weights of somebody else's training, as a run of an experiment that describes it.

    Its losses are those that a run of ours reports: exact where that exists, else on a test set.

    **Example:**

    ```pycon
    >>> config = icl.papers.study("linear/white")
    >>> experiment = icl.experiment.prepare(config)
    >>> theirs = icl.experiment.as_run(experiment, [0, 100], [experiment.model, experiment.model])
    >>> theirs.losses.shape, theirs.clock
    ((2,), 'time')
    ```
    """
    loss = eqx.filter_jit(experiment.monitor)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *models)
    clock = "time" if experiment.config.flow.kind == "gradient_flow" else "step"
    losses = np.array([float(loss(model)) for model in models])
    run = Trajectory(np.array(times, float), losses, stacked, clock)
    return _with_errors(run, experiment.monitor)


def _with_errors(run: Trajectory, monitor: AbstractRisk) -> Trajectory:
    """Adds the standard errors of the first and the last loss, if they were measured on
    sequences."""
    if not isinstance(monitor, HeldOutRisk) or not len(run):
        return run
    errors = [monitor.standard_error(run.at(i)) for i in (0, -1)]
    # The squares of a diverged run overflow: its error is not known.
    known = [error if math.isfinite(error) else None for error in errors]
    measured = {"test_sequences": monitor.count, "standard_errors": known}
    return dataclasses.replace(run, statistics={**run.statistics, **measured})


def save_points(config: Config) -> SaveAtDrops | SaveEvenly | SaveLogSpaced | SaveAtTimes:
    """The save points of the config.

    **Example:**

    ```pycon
    >>> icl.experiment.save_points(icl.papers.study("linear/staircase"))
    SaveAtDrops(loss=0.002, clock=0.01)
    ```
    """
    kinds = {
        "drops": SaveAtDrops,
        "linear": SaveEvenly,
        "log": SaveLogSpaced,
        "explicit": SaveAtTimes,
    }
    return kinds[config.save.kind](**{k: v for k, v in config.save if k != "kind"})
