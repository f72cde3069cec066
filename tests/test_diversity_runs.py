"""What claims of the room on task diversity draw and fit: plain simulation, and plain solvers."""

import numpy as np
import pytest

from iclflow.papers.diversity import runs_alignment, runs_data
from iclflow.papers.diversity.runs_data import Point, draw, draw_tasks, fit, losses


def draw_plainly(rng, rows, at) -> runs_data.Drawn:
    """The same with every input drawn."""
    w = rows[rng.integers(len(rows), size=at.sequences)]
    x = rng.standard_normal((at.sequences, at.context, at.dim))
    noise = at.noise**0.5 * rng.standard_normal((at.sequences, at.context + 1))
    y = np.einsum("snd,sd->sn", x, w) + noise[:, 1:]
    query = rng.standard_normal(w.shape)
    beta = np.einsum("sn,snd->sd", y, x) / at.context
    return runs_data.Drawn(beta, query, np.sum(query * w, 1) + noise[:, 0])


@pytest.mark.parametrize("context", [1, 4])
def test_sequences_drawn_without_inputs_are_those_of_drawn_inputs(context):
    rng, at = np.random.default_rng(0), Point(3, context, 2, 60_000, 0.3)
    rows = np.array([[1.0, 0.3, 0.0], [0.2, -0.5, 1.2]])
    one, other = draw(rng, rows, at), draw_plainly(rng, rows, at)
    # Two samples of one law: low and high powers agree within 4 standard errors.
    for f in (
        lambda b, q, y: b[:, 0] * b[:, 1],
        lambda b, q, y: b[:, 2] ** 4,
        lambda b, q, y: y * b[:, 1] * q[:, 1],
        lambda b, q, y: y**2 * b[:, 2] ** 2,
        lambda b, q, y: np.sum(b**2, 1) ** 0.5,
    ):
        a, b = f(*one), f(*other)
        assert abs(a.mean() - b.mean()) < 4 * np.hypot(a.std(), b.std()) / at.sequences**0.5


@pytest.mark.parametrize("direct", [0, 2000])
@pytest.mark.parametrize("sequences", [60, 200])
def test_the_fit_is_least_squares_of_least_norm(monkeypatch, sequences, direct):
    """Below and above the threshold, by factorisation and by conjugate gradients."""
    monkeypatch.setattr(runs_data, "_DIRECT", direct)
    rng, at = np.random.default_rng(1), Point(10, 20, 5, sequences, 0.01)
    rows = draw_tasks(rng, 5, 10)
    data = draw(rng, rows, at)
    features = (data.beta[:, :, None] * data.query[:, None]).reshape(sequences, -1)
    best = np.linalg.lstsq(features, data.label, rcond=None)[0].reshape(10, 10)
    # Conjugate gradients stop at a gradient of 1e-5 of its start.
    close = 1e-12 if direct and sequences <= 100 else 1e-3
    np.testing.assert_allclose(fit(data), best, atol=close)
    np.testing.assert_allclose(losses(fit(data), rows, at), losses(best, rows, at), rtol=close)


def test_losses_are_those_of_drawn_sequences():
    rng, at = np.random.default_rng(2), Point(3, 5, 2, 100_000, 0.2)
    rows, A = draw_tasks(rng, 2, 3), 0.5 * rng.standard_normal((3, 3))
    # As many unseen tasks as there are sequences.
    for expected, tasks in zip(losses(A, rows, at), (draw_tasks(rng, 50_000, 3), rows)):
        data = draw_plainly(rng, tasks, at)
        squares = (data.label - np.einsum("sd,de,se->s", data.beta, A, data.query)) ** 2
        assert abs(squares.mean() - expected) < 4 * squares.std() / at.sequences**0.5


def test_tasks_of_one_norm_have_the_spectrum_of_their_power():
    rows = runs_alignment.tasks_of(1.5)
    np.testing.assert_allclose(
        rows.T @ rows / 32, np.diag(runs_alignment.spectrum(1.5)), atol=1e-16
    )
    np.testing.assert_allclose(np.sum(rows**2, 1), 1.0, atol=1e-15)
