"""Ends of training on n sequences, for many n."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import iclflow as icl
from iclflow.analysis import learning_curve, test_losses
from iclflow.analysis._learning_curve import _draw_features, _solve_all
from iclflow.errors import InputError
from iclflow.risks import dataset_risk
from iclflow.tasks import FiniteTasks, LinearRegression, Mixture


@pytest.fixture(scope="module")
def task() -> FiniteTasks:
    fresh = LinearRegression(np.ones(4), (4, 8), noise=0.1, prior_covariance=np.eye(4) / 4)
    return FiniteTasks.draw(jr.key(3), 3, fresh, law="sphere")


@pytest.mark.parametrize("ridge", [0.0, 0.03])
def test_ends_are_least_squares_by_singular_values(task, ridge):
    counts = [1, 7, 15, 16, 17, 40, 200]
    curve = learning_curve(task, counts, jr.key(1), ridge)
    rows, labels = _draw_features(task, 200, jr.key(1))
    for n, matrix, train in zip(counts, curve.matrices, curve.train):
        wide = np.concatenate([rows[:n], (n * ridge) ** 0.5 * np.eye(16)])
        expected = np.linalg.lstsq(wide, np.append(labels[:n], np.zeros(16)))[0]
        # 1e-9: the condition number of the features at n = D², up to 1e4 here, times rounding, with
        # the refinement that it takes.
        assert matrix.ravel() == pytest.approx(expected, rel=1e-9, abs=1e-9)
        error = np.mean((labels[:n] - rows[:n] @ expected) ** 2)
        assert train == pytest.approx(error, rel=1e-8, abs=1e-15)


def test_end_is_the_minimiser_of_the_data_set_risk(task):
    model = icl.Attention.merged(jr.key(0), dim=4, heads=4)
    data = task.sample(jr.fold_in(jr.key(2), 0), 4096)
    for count in (10, 50):
        curve = learning_curve(task, [count], jr.key(2), 0.01)
        risk = dataset_risk(data[:count], model, ridge=0.01)
        assert np.allclose(curve.matrices[0], risk.minimiser(), atol=1e-10)


def test_losses_are_the_exact_risks(task):
    other = LinearRegression([1.0, 0.5, 0.2, 0.1], 30, noise=0.3, prior_mean=[1, 0, 0, 0])
    curve = learning_curve(task, [5, 60], other=other)
    steps = [icl.estimators.PreconditionedStep(jnp.asarray(matrix)) for matrix in curve.matrices]
    for name, law in (("idg", task), ("icl", task.fresh), ("other", other)):
        exact = [float(step.exact_risk(law)) for step in steps]  # pyright: ignore
        assert getattr(curve, name) == pytest.approx(exact, rel=1e-12)


def test_curve_begins_where_flow_ends(task):
    model = icl.Attention.merged(jr.key(0), dim=4, heads=4, scale=1e-4)
    data = task.sample(jr.fold_in(jr.key(2), 0), 4096)[:6]
    run = icl.gradient_flow(model, dataset_risk(data, model), end=3e3, tolerance=1e-14)
    curve = learning_curve(task, [6], jr.key(2))
    # Up to what small weights leave outside the span of the features.
    assert test_losses(run, task).icl[-1] == pytest.approx(curve.icl[0], rel=1e-2)


def test_features_without_full_rank_have_the_shortest_solution():
    # Two sequences in each block of drawing are the same; and labels that are all zero.
    rows = np.array([[1.0, 2.0, 0.0], [1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [1.0, 3.0, 0.0]])
    labels = np.array([1.0, 3.0, 0.5, 2.5])
    for n in (2, 4):
        (found,) = _solve_all(rows, labels, [n], 0.0)
        assert found == pytest.approx(np.linalg.pinv(rows[:n]) @ labels[:n], abs=1e-12)


def test_long_curve_in_blocks_of_sequences(task):
    rows, labels = _draw_features(task, 5000, jr.key(0))
    assert rows.shape == (5000, 16) and labels.shape == (5000,)
    curve = learning_curve(task, [500, 5000])
    model = icl.Attention.merged(jr.key(0), dim=4, heads=4)
    best = float(icl.risk(task, model).floor(model))  # pyright: ignore[reportArgumentType]
    # Least squares: an excess near L* F / n.
    excess = (curve.idg - best) * curve.counts / (16 * best)
    assert np.all((excess > 0.2) & (excess < 5))


@pytest.mark.parametrize("counts", [[], [0, 3], [4, 2], [3, 3], [1.5]])
def test_counts_that_are_no_sizes_are_refused(task, counts):
    with pytest.raises((InputError, TypeError), match="counts"):
        learning_curve(task, counts)


def test_tasks_without_exact_losses_are_refused(task):
    mixture = Mixture([task.fresh], [1.0])
    with pytest.raises(TypeError, match="A Mixture has no exact losses here"):
        learning_curve(mixture, [3])
    with pytest.raises(InputError, match="`ridge` = -1"):
        learning_curve(task, [3], ridge=-1.0)
