"""Predictions for a run, from its task and its weights at t = 0."""

import contextlib

import numpy as np

from ..models import Merged, Separate
from ..tasks import LinearRegression
from ..theory import (
    drop_time,
    growing_start,
    loss_of_matrix,
    optimal_loss,
    plateau_losses,
    reduced_flow,
    staircase,
    white_initial_strength,
    white_loss,
)
from ._build import Experiment
from ._multitask_overlay import multitask_overlay
from ._prediction import Overlay
from ._softmax_overlay import softmax_overlay

# Drop times hold for small weights: the initial loss is within this share of the way down.
_SMALL = 0.05
# The reduced equation is solved up to this multiple of the drop time, and up to this many inputs.
_HORIZON = 30.0
_LARGEST_REDUCED = 16
_FROM_START = ", from the initial weights alone"


def overlay(experiment: Experiment) -> Overlay | None:
    """The prediction for a run; None if theory has none.

    **Example:**

    ```pycon
    >>> experiment = icl.experiment.prepare(icl.papers.study("linear/staircase"))
    >>> predicted = icl.experiment.overlay(experiment)
    >>> predicted.levels.round(3), predicted.drop_times.shape
    (array([1.   , 0.641, 0.377, 0.21 , 0.136]), (4,))
    ```
    """
    task, attention = experiment.task, experiment.attention
    if experiment.config.theory and experiment.config.model.softmax:
        return multitask_overlay(experiment) or softmax_overlay(experiment)
    if attention is None or not isinstance(task, LinearRegression) or not _applies(experiment):
        return None
    circuits = attention.circuits
    if not isinstance(circuits, Merged | Separate):
        return None
    normaliser = attention.normaliser
    with contextlib.suppress(ValueError, np.linalg.LinAlgError), np.errstate(all="ignore"):
        levels = plateau_losses(task, normaliser=normaliser)
        if isinstance(circuits, Merged):
            levels = levels[[0, -1]]
        else:
            levels = levels[: circuits.coefficient_rank + 1]
        unit = experiment.clock_unit
        if unit is not None and _starts_small(task, attention, levels):
            timed = _merged if isinstance(circuits, Merged) else _separate
            with contextlib.suppress(ValueError, RuntimeError, np.linalg.LinAlgError):
                return timed(task, attention, levels, unit)
        return Overlay(levels, np.zeros(0), None, "the plateau losses of the task")
    return None


def _applies(experiment: Experiment) -> bool:
    """Whether this is linear attention on the population. The full form follows the reduced one if
    the prior mean is 0: then the other blocks stay zero."""
    config, task = experiment.config, experiment.task
    population = config.exact or config.sampled
    if not config.theory or config.model.softmax or not population:
        return False
    return config.model.bilinear or not np.any(getattr(task, "prior_mean", 1.0))


def _starts_small(task: LinearRegression, attention, levels: np.ndarray) -> bool:
    matrix = np.einsum("h,hde->de", *_weights(attention))
    start = loss_of_matrix(task, matrix, attention.normaliser)
    return bool(abs(start - levels[0]) <= _SMALL * (levels[0] - levels[-1]))


def _weights(attention) -> tuple[np.ndarray, np.ndarray]:
    circuits = attention.circuits
    if isinstance(circuits, Merged):
        return np.asarray(circuits.v), np.asarray(circuits.U)
    product = np.einsum("hdr,her->hde", np.asarray(circuits.K), np.asarray(circuits.Q))
    return np.asarray(circuits.v), product


def _separate(task: LinearRegression, attention, levels: np.ndarray, unit: float) -> Overlay:
    if attention.circuits.K.shape[2] > 1:
        return Overlay(levels, np.zeros(0), None, "the plateau losses of the task")
    steps = staircase(task, attention)
    return Overlay(
        steps.levels,
        steps.drop_times / unit,
        lambda clock: steps.loss(np.asarray(clock) * unit),
        "the cascade" + _FROM_START,
    )


def _merged(task: LinearRegression, attention, levels: np.ndarray, unit: float) -> Overlay:
    v, U = _weights(attention)
    normaliser = attention.normaliser
    half = drop_time(task, v, U, 0.5, normaliser)
    levels = np.asarray([levels[0], optimal_loss(task, normaliser)])
    times = np.asarray([half]) / unit
    with contextlib.suppress(ValueError):
        strength = white_initial_strength(task, v, U, normaliser)
        curve = lambda clock: white_loss(task, np.asarray(clock) * unit, strength, normaliser)
        return Overlay(levels, times, curve, "the closed form for white inputs" + _FROM_START)
    if task.dim > _LARGEST_REDUCED or half <= 0:
        return Overlay(levels, times, None, "the drop time" + _FROM_START)
    start = growing_start(task, v, U, normaliser)

    def reduced(clock: np.ndarray) -> np.ndarray:
        moments = np.asarray(clock) * unit
        near = moments <= _HORIZON * half
        losses = np.full(moments.shape, np.nan)
        if moments[near].any():
            found = reduced_flow(task, moments[near], start.matrix, start.imbalance, normaliser)
            losses[near] = found.loss
        return losses

    return Overlay(levels, times, reduced, "the reduced equation" + _FROM_START)
