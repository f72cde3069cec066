"""One label of a task, seen alone: the coordinates that it depends on, and nothing else."""

from typing import TypeVar

import numpy as np
from jaxtyping import Array, Float

from ..tasks import AbstractTask, LinearRegression, MultiTaskRegression, Sequences

T = TypeVar("T", bound=AbstractTask)


def one_label_task(task: T, label: int) -> T | LinearRegression:
    """The regression on the coordinates that a label depends on; a task with one label is that."""
    if not isinstance(task, MultiTaskRegression):
        return task
    size = len(task.coordinates[label])
    return LinearRegression(
        np.ones(size),
        context=task.contexts,
        noise=float(task.noise[label]),
        prior_covariance=float(task.signal[label]) * np.eye(size),
        noisy_query=task.noisy_query,
    )


def one_label_sequences(task: AbstractTask, sequences: Sequences, label: int) -> Sequences:
    """The same sequences with one label and its coordinates, rotations undone."""
    if not isinstance(task, MultiTaskRegression):
        return sequences.label(label)
    x, query = sequences.x, sequences.x_query
    if task.input_rotation is not None:
        x, query = x @ task.input_rotation, query @ task.input_rotation
    read = np.asarray(task.coordinates[label])
    y, y_query = (unrotated_labels(task, part) for part in (sequences.y, sequences.y_query))
    return Sequences(x[..., read], y, query[..., read], y_query, sequences.length).label(label)


def unrotated_labels(
    task: AbstractTask, labels: Float[Array, "*batch I"]
) -> Float[Array, "*batch I"]:
    """Labels, or predictions of them, with the rotation of the labels undone."""
    rotation = task.output_rotation if isinstance(task, MultiTaskRegression) else None
    return labels if rotation is None else labels @ rotation
