"""Several tasks in one sequence: what is drawn, and the Bayes predictor against the joint law."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.models import Attention, Diagonal, Merged
from iclflow.risks import SampledRisk, risk
from iclflow.tasks import MultiTaskRegression, Sequences, isotropic

OVERLAP = ((0, 1, 2), (2, 3))
COUNT = 20_000


def rotation(size: int, seed: int = 0) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


# Two overlapping tasks that differ in everything: in the open, and behind rotations.
OPEN = MultiTaskRegression(OVERLAP, 5, 6, noise=0.0, signal=[0.7, 0.3])
HIDDEN = MultiTaskRegression(
    *(OVERLAP, 5, [2, 4]),
    noise=[0.2, 0.5],
    signal=[0.7, 0.3],
    input_rotation=rotation(5),
    output_rotation=rotation(2, 1),
)


@functools.cache
def drawn_from(task: str) -> Sequences:
    """Many sequences of a task as plain numbers, drawn once for all tests."""
    chosen = {"open": OPEN, "hidden": HIDDEN}[task]
    sample = jax.jit(lambda t, key: t.sample(key, COUNT))
    return jax.tree.map(np.asarray, sample(chosen, jr.key(0)))


@jax.jit
def bayes(task, sequences):
    return task.bayes_predict(sequences), task.bayes_variance(sequences)


@functools.cache
def bayes_of_hidden() -> tuple[jax.Array, jax.Array]:
    """Mean and variance of the labels of all queries behind rotations."""
    return bayes(HIDDEN, drawn_from("hidden"))


def standard_errors_off(samples, expected) -> float:
    """The largest deviation of a mean, in standard errors."""
    samples = np.asarray(samples)
    error = samples.std(0, ddof=1) / np.sqrt(len(samples))
    return float(np.max(np.abs(samples.mean(0) - expected) / error))


def test_labels_have_the_stated_covariance():
    drawn = drawn_from("open")
    first, query = np.asarray(drawn.y[:, 0]), np.asarray(drawn.y_query)
    # Task i has signal variance λ_i |S_i|; tasks are independent.
    expected = np.diag([0.7 * 3, 0.3 * 2])
    assert standard_errors_off(first[:, :, None] * first[:, None, :], expected) < 4
    # Two labels of one task share β: E[y_1 y_q (x_1·x_q)] = λ_i |S_i| counts the coordinates read.
    overlap = np.einsum("pd,pd->p", drawn.x[:, 0], drawn.x_query)
    products = first[:, :, None] * query[:, None, :] * overlap[:, None, None]
    assert standard_errors_off(products, expected) < 4


def test_each_task_reads_its_own_coordinates():
    drawn = drawn_from("open")
    for p in range(3):
        for i, read in enumerate(OVERLAP):
            x, y = np.asarray(drawn.x[p]), np.asarray(drawn.y[p, :, i])
            beta, *_ = np.linalg.lstsq(x, y, rcond=None)  # six tokens, five coordinates
            np.testing.assert_allclose(x @ beta, y, atol=1e-9)
            assert set(np.flatnonzero(np.abs(beta) > 1e-9)) == set(read)


def test_rotations_hide_the_coordinates_and_the_tasks():
    drawn = drawn_from("hidden")
    second = np.asarray(drawn.x_query[:, :, None] * drawn.x_query[:, None, :])
    # Fifteen different entries are tested at once: 4.5 standard errors.
    assert standard_errors_off(second, np.eye(5)) < 4.5
    mixing = np.asarray(HIDDEN.output_rotation)
    labels = mixing @ np.diag([0.7 * 3 + 0.2, 0.3 * 2 + 0.5]) @ mixing.T
    query = np.asarray(drawn.y_query)
    assert standard_errors_off(query[:, :, None] * query[:, None, :], labels) < 4
    # Inputs that a task does not read say nothing of its label, once both are turned back.
    inputs = np.asarray(drawn.x_query) @ np.asarray(HIDDEN.input_rotation)
    squares = (query @ mixing)[:, :, None] ** 2 * (inputs[:, None, :] ** 2 - 1)
    expected = np.asarray(HIDDEN.signal)[:, None] * 2 * np.asarray(HIDDEN.masks)
    assert standard_errors_off(squares, expected) < 4.5


def test_signals_make_noiseless_labels_of_unit_variance_by_default():
    task = MultiTaskRegression(OVERLAP, context=2)
    np.testing.assert_allclose(task.signal, [1 / 3, 1 / 2])
    assert task.dim == 4 and task.labels == 2


def test_lengths_and_query_noise_are_as_asked():
    task = MultiTaskRegression(OVERLAP, context=[2, 4], noise=9.0, signal=0.0, noisy_query=False)
    drawn = jax.jit(lambda key: task.sample(key, 400))(jr.key(1))
    assert set(np.unique(drawn.length)) == {2.0, 4.0}
    padding = ~np.asarray(drawn.mask())
    assert np.all(np.asarray(drawn.x)[padding] == 0) and np.all(np.asarray(drawn.y)[padding] == 0)
    assert np.all(drawn.y_query == 0)
    assert standard_errors_off(np.asarray(drawn.y[:, 0]) ** 2, [9.0, 9.0]) < 4


# Bayes ----------------------------------------------------------------------------------------


def conditioned(task: MultiTaskRegression, x, y, x_query) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of the query labels by conditioning the joint Gaussian of all labels.

    All labels of all tokens are one Gaussian vector given the inputs; its covariance is built
    entry by entry from y = P(β·Rᵀx + ε).
    """
    R = np.eye(task.dim) if task.input_rotation is None else np.asarray(task.input_rotation)
    P = np.eye(task.labels) if task.output_rotation is None else np.asarray(task.output_rotation)
    points = np.vstack([x, x_query]) @ R
    count, labels = len(points), task.labels
    joint = np.zeros((count, labels, count, labels))
    for i in range(labels):
        for a in range(count):
            for b in range(count):
                shared = sum(points[a, j] * points[b, j] for j in task.coordinates[i])
                joint[a, i, b, i] = float(task.signal[i]) * shared
    clean = joint.copy()
    for i in range(labels):
        for a in range(count):
            if a < count - 1 or task.noisy_query:
                joint[a, i, a, i] += float(task.noise[i])

    def mixed(covariance):
        return np.einsum("ij,ajbk,lk->aibl", P, covariance, P)

    seen = mixed(joint)[:-1, :, :-1].reshape((count - 1) * labels, -1)
    across = mixed(clean)[-1, :, :-1].reshape(labels, -1)
    mean = across @ np.linalg.solve(seen, y.reshape(-1))
    left = mixed(joint)[-1, :, -1] - across @ np.linalg.solve(seen, across.T)
    return mean, np.diag(left)


@pytest.mark.slow
def test_bayes_predictor_conditions_the_joint_gaussian():
    task, drawn = HIDDEN, drawn_from("hidden")
    mean, variance = map(np.asarray, bayes_of_hidden())
    for i in range(6):
        length = int(drawn.length[i])
        x, y = np.asarray(drawn.x[i])[:length], np.asarray(drawn.y[i])[:length]
        by_hand = conditioned(task, x, y, np.asarray(drawn.x_query[i]))
        # Small linear systems with condition numbers below 1e3.
        np.testing.assert_allclose(mean[i], by_hand[0], rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(variance[i], by_hand[1], rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_bayes_risk_is_the_total_squared_error_of_the_bayes_predictor(monkeypatch):
    drawn = jax.tree.map(jnp.asarray, drawn_from("hidden"))
    mean, variance = bayes_of_hidden()
    total = np.sum(np.asarray(variance), -1)
    assert standard_errors_off(drawn.squared_error(mean) - total, 0.0) < 4
    # What remains is a mean over sequences: here over these.
    monkeypatch.setattr(MultiTaskRegression, "sample", lambda task, key, count: drawn)
    monkeypatch.setattr(MultiTaskRegression, "bayes_variance", lambda task, sequences: variance)
    assert float(HIDDEN.bayes_risk(jr.key(2), COUNT).value) == pytest.approx(total.mean())


def test_one_task_on_all_coordinates_is_isotropic_regression():
    task, single = MultiTaskRegression([range(5)], context=6, noise=0.3), isotropic(5, 6, 0.3)
    drawn = jax.tree.map(jnp.asarray, drawn_from("open")[:4])
    alone = drawn.label(0)
    assert alone.y.shape == (4, 6, 1) and np.array_equal(alone.y[..., 0], drawn.y[..., 0])
    (mean, variance), expected = bayes(task, alone), bayes(single, alone)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-10)
    np.testing.assert_allclose(variance, expected[1], rtol=1e-10)


# Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coordinates", "options", "words"),
    [
        ([], {}, "must hold at least one task"),
        ([[0], []], {}, "each with at least one coordinate"),
        ([[0, 0]], {}, "each listed once per task"),
        ([[-1]], {}, "whole numbers from 0 up"),
        (OVERLAP, {"dim": 3}, "`dim` = 3: must be a whole number, and at least 4"),
        (OVERLAP, {"noise": -0.1}, "`noise` = -0.1: must not be negative"),
        (OVERLAP, {"signal": [1.0, 1.0, 1.0]}, "must be one number, or 2 of them"),
        (OVERLAP, {"signal": [1.0, np.nan]}, "`signal` holds NaN"),
        (OVERLAP, {"input_rotation": np.eye(3)}, r"must be \(4, 4\)"),
        (OVERLAP, {"output_rotation": 2 * np.eye(2)}, "`output_rotation` is not orthogonal"),
    ],
)
def test_impossible_tasks_are_refused_in_one_sentence(coordinates, options, words):
    with pytest.raises(ValueError, match=words) as error:
        MultiTaskRegression(coordinates, **options)
    assert "\n" not in str(error.value)


def test_isotropic_tasks_have_labels_of_unit_variance():
    task = isotropic(5, 40, 0.1)
    assert float(task.label_variance) == pytest.approx(1.1)
    with pytest.raises(ValueError, match="`dim` = 0"):
        isotropic(0)


def zeros(*shape: int) -> jax.Array:
    return jnp.asarray(np.zeros(shape))


@pytest.mark.parametrize(
    ("task", "build", "said"),
    [
        # One label would broadcast against several.
        (
            MultiTaskRegression([[0, 1], [1]]),
            lambda: Attention(Merged.of(zeros(2), zeros(2, 2, 2))),
            "predicts 1 label .* has 2 labels",
        ),
        (
            isotropic(2),
            lambda: Attention(Diagonal(zeros(2), zeros(2, 2), 2)),
            "predicts 2 labels .* has 1 label:",
        ),
        (
            MultiTaskRegression([[0, 1], [2]]),
            lambda: Attention(
                Merged(zeros(2, 3, 6), zeros(2, 6, 3)), activation="softmax", self_attention=False
            ),
            "predicts 3 labels .* has 2 labels",
        ),
    ],
)
def test_models_of_another_number_of_labels_are_refused(task, build, said):
    model = build()
    with pytest.raises(ValueError, match=said):
        risk(task, model)
    with pytest.raises((ValueError, TypeError)):
        SampledRisk(task).estimate(model, jr.key(0), 300)
