"""The search for the best heads that claims on several tasks measure with."""

import numpy as np
import pytest
import scipy.optimize

from iclflow.papers.multitask.runs_search import (
    _minimise,
    block_tasks,
    closed_form,
    exact_head,
    exact_loss,
    search,
)

TASK = block_tasks((4, 6), 50, [1.0, 0.5], [0.5, 1.0])


def test_quasi_newton_steps_find_the_minimum_of_a_curved_valley_from_every_start():
    def rosenbrock(x):
        first, second = x.T
        loss = (1 - first) ** 2 + 100 * (second - first**2) ** 2
        bend = 400 * first * (second - first**2)
        return loss, np.stack([-2 * (1 - first) - bend, 200 * (second - first**2)], 1)

    starts = np.random.default_rng(0).uniform(-2, 2, (8, 2))
    found = _minimise(rosenbrock, starts, 400, 0.0)
    np.testing.assert_allclose(found, 1.0, atol=1e-6)


def test_a_search_finds_what_a_search_over_all_weights_finds():
    starts = np.random.default_rng(0).normal(size=(4, 2)) / 2
    found = search([closed_form(TASK)], starts, lambda x: x[None])

    def loss(weights):
        # The closed form of one head, written out: both tasks, with φd/L = (λd + σ²)/(λL).
        omega, mu = weights.reshape(2, 2)
        spread = np.exp(np.sum([4, 6] * omega**2)) * mu**2
        return np.sum([4, 3] * (1 - mu * omega) ** 2 + np.array([4.5, 4.0]) / 50 * spread)

    best = scipy.optimize.minimize(loss, [0.3, 0.2, 1.0, 1.0], tol=1e-12)
    np.testing.assert_allclose(found.losses, best.fun, rtol=1e-9)
    np.testing.assert_allclose(np.abs(found.omega[:, 0]), np.abs([best.x[:2]] * 4), atol=1e-5)


def test_labels_that_a_head_may_not_read_have_no_weight():
    own = np.eye(2, dtype=bool)
    starts = np.random.default_rng(0).uniform(0.2, 0.6, (2, 2))
    found = search([closed_form(TASK)], starts, lambda x: x * own, own)
    assert np.all(found.mu[:, ~own] == 0)
    np.testing.assert_allclose(found.omega[:, own], np.tile([0.5, 6**-0.5], (2, 1)), atol=1e-6)


def test_heads_that_rounding_would_judge_are_refused():
    # Two heads that nearly agree: the best weights on labels are huge, and cancel.
    shape = lambda x: x[:2] + np.array([[0.0], [1e-6]]) * x[2:]
    found = search([closed_form(TASK)], np.full((1, 4), 0.3), shape, steps=0)
    assert np.isinf(found.losses).all()


@pytest.mark.slow
def test_the_best_exact_head_has_no_better_neighbour():
    head = exact_head(10, 20, 0.1)
    assert head.loss == pytest.approx(0.7040263, abs=1e-6)
    assert head.omega == pytest.approx(0.443873, abs=1e-5)
    for factor in (0.99, 1.01):
        assert exact_loss(factor * head.omega, head.mu, head.risk) > head.loss
        assert exact_loss(head.omega, factor * head.mu, head.risk) > head.loss
