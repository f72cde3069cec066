"""One label of a multi-task regression, seen alone: its coordinates, and nothing else."""

import numpy as np
from jaxtyping import Array, Float

from ..tasks import LinearRegression, MultiSequences, MultiTaskRegression, Sequences


def one_label_task(task: MultiTaskRegression, label: int) -> LinearRegression:
    """The regression on the coordinates that a label depends on."""
    size = len(task.coordinates[label])
    return LinearRegression(
        np.ones(size),
        context=task.contexts,
        noise=float(task.noise[label]),
        prior_covariance=float(task.signal[label]) * np.eye(size),
        noisy_query=task.noisy_query,
    )


def one_label_sequences(
    task: MultiTaskRegression, sequences: MultiSequences, label: int
) -> Sequences:
    """The same sequences with one label and its coordinates, rotations undone."""
    x, query = sequences.x, sequences.x_query
    if task.input_rotation is not None:
        x, query = x @ task.input_rotation, query @ task.input_rotation
    read = np.asarray(task.coordinates[label])
    y, y_query = (unrotated_labels(task, part) for part in (sequences.y, sequences.y_query))
    return Sequences(
        x[..., read], y[..., label], query[..., read], y_query[..., label], sequences.length
    )


def unrotated_labels(
    task: MultiTaskRegression, labels: Float[Array, "*batch I"]
) -> Float[Array, "*batch I"]:
    """Labels, or predictions of them, with the rotation of the labels undone."""
    return labels if task.output_rotation is None else labels @ task.output_rotation
