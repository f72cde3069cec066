"""What the claims on several tasks are made of."""

import jax.random as jr
import numpy as np
import pytest

from iclflow.claims._multitask_runs import (
    closed_under_symmetries,
    paper_task,
    rotated_task,
    small_task,
    turned,
)
from iclflow.models import SpectralAttention
from iclflow.risks import risk
from iclflow.tasks import MultiTaskRegression


def rows(data) -> np.ndarray:
    """All sequences, each as one row, in an order that depends on the set of them alone."""
    leaves = (data.x, data.y, data.x_query, data.y_query)
    flat = np.hstack([np.asarray(leaf).reshape(data.count, -1) for leaf in leaves])
    return flat[np.lexsort(np.round(flat, 12).T)]


def test_closed_data_do_not_change_under_flips_and_permutations():
    task = small_task()
    drawn = task.sample(jr.key(0), 2)
    data = closed_under_symmetries(drawn, task.coordinates)
    assert data.count == 2 * 2**3 * 2**2 * 2
    again = type(data)(
        data.x[..., [0, 2, 1]] * np.array([1.0, -1.0, 1.0]),
        data.y * np.array([-1.0, 1.0]),
        data.x_query[..., [0, 2, 1]] * np.array([1.0, -1.0, 1.0]),
        data.y_query * np.array([-1.0, 1.0]),
        data.length,
    )
    assert np.allclose(rows(again), rows(data), atol=1e-12)
    assert not np.allclose(rows(data)[:2], rows(drawn))


def test_closed_data_without_noise_are_still_linear_regressions():
    task = MultiTaskRegression([[0], [1, 2]], context=6, noise=0.0, signal=1.0)
    data = closed_under_symmetries(task.sample(jr.key(0), 1), task.coordinates)
    for x, y, query, label in zip(data.x, data.y, data.x_query, data.y_query):
        for task_labels, block, value in zip(np.asarray(y).T, task.coordinates, label):
            inputs = np.asarray(x)[:, list(block)]
            beta = np.linalg.lstsq(inputs, task_labels, rcond=None)[0]
            assert inputs @ beta == pytest.approx(task_labels, abs=1e-10)
            assert float(np.asarray(query)[list(block)] @ beta) == pytest.approx(float(value))


def test_turned_factors_are_those_of_the_model_in_turned_coordinates():
    task, hidden = paper_task(), rotated_task()
    start = SpectralAttention.of(0.2 * np.eye(3) + 0.05, np.eye(3) + 0.3, task.coordinates)
    plain = start.factored(jr.key(1))
    direct = start.factored(jr.key(1), hidden.input_rotation, hidden.output_rotation)
    moved = turned(plain, hidden)
    for name in "KQVO":
        assert np.allclose(getattr(moved, name), getattr(direct, name), atol=1e-13)
    loss, again = (
        risk(task, plain, "large_context")(plain),
        risk(hidden, moved, "large_context")(moved),
    )
    assert float(again) == pytest.approx(float(loss), rel=1e-12)
