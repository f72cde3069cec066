"""In-weight theory: the published steady states, closed forms, and an independent derivation."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.models import Attention
from iclflow.risks._token_moments import exact_quadratic_risk, joint_moments
from iclflow.tasks import LinearRegression, Mixture, RandomLabels, in_context_in_weight
from iclflow.theory._in_weight import (
    escape_rate,
    in_weight_floor,
    in_weight_losses,
    moving_blocks,
    steady_state,
    token_moments,
    white_escape_rate,
)

WHITE = LinearRegression([0.25] * 4, context=31)

STEADY_STATES = {  # p: train, in-context test, in-weight test
    0.0: (0.0151515152, 1.98484848, 0.0151515152),
    0.2: (0.0623523458, 0.2075367429, 1.0225103272),
    0.4: (0.0945368162, 0.1787704868, 1.0366280093),
    0.6: (0.1184000045, 0.1575360232, 1.0459052315),
    0.8: (0.1334722807, 0.1439207138, 1.0623914847),
    1.0: (0.1388888889, 0.1388888889, 1.0956790123),
}


def test_steady_states_are_the_reference_values():
    losses = in_weight_losses(WHITE, list(STEADY_STATES))
    np.testing.assert_array_equal(losses.fraction, list(STEADY_STATES))
    found = np.stack([losses.train, losses.in_context, losses.in_weight], 1)
    # The references have ten digits, eight in one entry.
    np.testing.assert_allclose(found, list(STEADY_STATES.values()), atol=5e-9)
    np.testing.assert_allclose(found[1:], list(STEADY_STATES.values())[1:], atol=1e-10)


def test_a_vanishing_share_of_random_tasks_is_not_the_same_as_none():
    """Training loss is continuous at p = 0, the test losses are not."""
    none, little, less = np.array(in_weight_losses(WHITE, [0.0, 1e-5, 1e-6])).T
    assert abs(less[1] - none[1]) < 2e-6
    np.testing.assert_allclose(less[2:], little[2:], rtol=5e-3)  # has converged
    assert none[2] - less[2] > 0.5 and less[3] - none[3] > 0.3


@pytest.mark.parametrize("dim,context", [(2, 5), (3, 7), (4, 31)])
def test_floor_of_one_fixed_task_vector(dim, context):
    task = LinearRegression([0.7] * dim, context=context)
    weight = np.random.default_rng(dim).normal(size=dim)
    fixed = token_moments(in_context_in_weight(task, 0.0, weight))
    power = 0.7 * weight @ weight
    loss = fixed.loss(steady_state(fixed))
    np.testing.assert_allclose(loss / power, in_weight_floor(dim, context), rtol=1e-10)
    for variance in (0.3, 1.0):
        noise = token_moments(RandomLabels(task, weight, variance))
        loss = noise.loss(steady_state(noise))
        expected = in_weight_floor(dim, context, random_labels=True)
        np.testing.assert_allclose(loss / power, expected, rtol=1e-10)


def test_floor_with_random_labels_has_its_reference_value():
    np.testing.assert_allclose(in_weight_floor(4, 31, random_labels=True), 0.0122699387, atol=5e-11)


# Escape from the origin


def test_leading_order_escape_rate_is_close_to_the_exact_one():
    for p in np.linspace(0, 1, 6):
        exact = escape_rate(in_context_in_weight(WHITE, p))
        leading = white_escape_rate(4, 0.25, p)
        # The query token adds a correction of order 1/N, measured at most 0.6 %.
        assert abs(exact / leading - 1) < 6e-3
    np.testing.assert_allclose(escape_rate(WHITE), 0.125, rtol=1e-12)
    np.testing.assert_allclose(white_escape_rate(4, 0.25, 1.0), 0.125, rtol=1e-12)


def test_leading_order_becomes_exact_in_long_contexts():
    errors = []
    for context in (100, 1000):
        task = in_context_in_weight(LinearRegression([0.5] * 3, context=context), 0.3)
        errors.append(abs(escape_rate(task) / white_escape_rate(3, 0.5, 0.3) - 1))
    # A correction of order 1/N: ten times the length, a tenth of the error (to order 1/N²).
    np.testing.assert_allclose(errors[0] / errors[1], 10, rtol=0.05)


def test_tiny_weights_grow_at_the_escape_rate():
    task = in_context_in_weight(LinearRegression([0.5, 0.3], context=6), 0.4)
    model = Attention.merged(jr.key(0), 2, 2, 1e-6, blind=False)
    risk = exact_quadratic_risk(task, model)
    step = jax.jit(lambda m: jax.tree.map(lambda w, g: w - 0.005 * g, m, risk.gradient(m)))
    norm = lambda m: float(jnp.sqrt(sum(jnp.sum(w**2) for w in jax.tree.leaves(m))))
    sizes = []
    for _ in range(1200):
        model = step(model)
        sizes.append(norm(model))
    assert sizes[-1] < 1e-3  # still linear
    # Steps of time h = 2·0.005 in units of τ multiply the fastest direction by 1 + h·rate.
    rate = (sizes[-1] / sizes[-2] - 1) / 0.01
    np.testing.assert_allclose(rate, escape_rate(task), rtol=1e-3)


# Which blocks move


@pytest.mark.parametrize(
    "task,blocks",
    [
        (WHITE, "vU"),
        (LinearRegression([0.5, 0.2], context=5, noise=0.3), "vU"),
        (in_context_in_weight(WHITE, 0.9), "uvUh"),
        (LinearRegression([0.5, 0.2], context=5, prior_mean=[0.1, 0.0]), "uvUh"),
        (RandomLabels(LinearRegression([0.5, 0.2], context=5), [1.0, 0.0]), "uvUh"),
    ],
)
def test_blocks_that_move_are_those_with_a_gradient(task, blocks):
    assert moving_blocks(task) == frozenset(blocks)
    model = Attention.merged(jr.key(1), task.dim, 2, 0.3, blind=False)  # u = h = 0
    gradient = exact_quadratic_risk(task, model).gradient(model)
    driven = {
        "u": jnp.max(jnp.abs(gradient.circuits.value[..., :-1])) > 1e-12,
        "h": jnp.max(jnp.abs(gradient.circuits.key_query[:, -1])) > 1e-12,
    }
    for block, moves in driven.items():
        assert bool(moves) == (block in blocks)


# Two derivations that share nothing


def tasks_with_everything():
    rng = np.random.default_rng(3)

    def regression(dim, contexts):
        mix, prior = rng.normal(size=(dim, dim)), rng.normal(size=(dim, max(1, dim - 1)))
        shares = rng.dirichlet(np.ones(len(contexts)))
        return LinearRegression(
            covariance=mix @ mix.T + 0.1 * np.eye(dim),
            context=contexts,
            context_probabilities=shares,
            noise=rng.uniform(0, 1),
            prior_mean=rng.normal(size=dim),
            prior_covariance=prior @ prior.T,
            noisy_query=bool(rng.integers(2)),
        )

    return {
        "one-dimensional": regression(1, [4]),
        "regression": regression(3, [1, 4, 9]),
        "five-dimensional": regression(5, [7]),
        "mixture": Mixture([regression(2, [3]), regression(2, [1, 8])], [0.35, 0.65]),
        "labels": RandomLabels(regression(3, [2, 6]), rng.normal(size=3), 0.7),
    }


TASKS = tasks_with_everything()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "normaliser,attends", [("context", True), ("tokens", True), ("none", False)]
)
@pytest.mark.parametrize("name", list(TASKS))
def test_pairings_and_cubature_agree_with_the_closed_forms_of_the_risk(name, normaliser, attends):
    task = TASKS[name]
    theory = token_moments(task, normaliser, attends)
    model = Attention.merged(
        jr.key(2),
        task.dim,
        task.dim + 1,
        1.0,
        normaliser=normaliser,
        self_attention=attends,
        blind=False,
    )
    model = eqx.tree_at(
        lambda m: m.circuits.value, model, jr.normal(jr.key(3), model.circuits.value.shape)
    )
    risk = exact_quadratic_risk(task, model)
    first, second = np.triu_indices(task.dim + 1)
    size = len(first) * task.dim
    gram = theory.second[first, second][:, :, first, second].reshape(size, size)
    joint = joint_moments(task, risk.layout)
    scale = np.sqrt(np.outer(np.diag(joint), np.diag(joint)))
    assert np.max(np.abs(joint[:-1, :-1] - gram) / scale[:-1, :-1]) < 1e-12
    drive = theory.drive[first, second].reshape(size)
    assert np.max(np.abs(joint[:-1, -1] - drive) / scale[:-1, -1]) < 1e-12
    np.testing.assert_allclose(joint[-1, -1], theory.label, rtol=1e-12)
    # Losses at random weights, and at the optimum that each finds on its own.
    theta = np.asarray(model.coefficients())
    np.testing.assert_allclose(risk(model), theory.loss(theta), rtol=1e-10)
    best = theory.loss(steady_state(theory))
    np.testing.assert_allclose(risk.minimum, best, rtol=1e-10)
    np.testing.assert_allclose(
        risk.of_coefficients(jnp.asarray(steady_state(theory))), best, rtol=1e-10
    )
