"""Other context lengths at test time, and several lengths in training."""

import equinox as eqx
import jax.random as jr
import numpy as np
import pytest

from iclflow.tasks import LinearRegression
from iclflow.theory._moments import context_gains
from iclflow.theory._optimum import (
    effective_context,
    infinite_context_floor,
    loss_at_other_context,
    loss_of_matrix,
    optimal_loss,
    optimal_matrix,
    unnormalised_divergence,
)

EIGENVALUES = [0.4, 0.3, 0.2, 0.1]


def general_task(context) -> LinearRegression:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 3))
    return LinearRegression(
        covariance=a @ a.T / 3 + 0.1 * np.eye(3),
        prior_covariance=b @ b.T / 3,
        prior_mean=rng.normal(size=3),
        context=context,
        noise=0.2,
    )


# In one compiled call: operation by operation, each would be compiled by itself.
drawn = eqx.filter_jit(lambda task, key, count: task.sample(key, count))


def sampled_loss(task: LinearRegression, A, divisor, count: int, seed: int = 0):
    """Mean squared error of βᵀ A x_q with β = Σ y x / divisor(N), and its standard error."""
    data = drawn(task, jr.key(seed), count)
    beta = np.einsum("pnd,pn->pd", np.asarray(data.x), np.asarray(data.y)[..., 0])
    beta = beta / divisor(np.asarray(data.length))[:, None]
    predicted = np.einsum("pd,de,pe->p", beta, A, np.asarray(data.x_query))
    errors = (np.asarray(data.y_query)[:, 0] - predicted) ** 2
    return errors.mean(), errors.std(ddof=1) / np.sqrt(count)


@pytest.mark.parametrize(
    ("test_context", "normalised", "unnormalised"),
    [
        (8, 0.4673310121213, 0.6336684402954),
        (16, 0.2440394000295, 0.3670673473201),
        (31, 0.135995071598025, 0.135995071598025),
        (62, 0.0783714297679, 0.7695054326794),
        (124, 0.0495596088528, 6.5290720232925),
    ],
)
def test_losses_at_other_lengths(test_context, normalised, unnormalised):
    task = LinearRegression(EIGENVALUES, 31)
    A = optimal_matrix(task)
    # The references carry 13 digits.
    np.testing.assert_allclose(loss_at_other_context(task, A, test_context), normalised, rtol=1e-11)
    np.testing.assert_allclose(
        loss_at_other_context(task, A, test_context, normalised=False), unnormalised, rtol=1e-11
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("test_context", [2, 24])
def test_other_lengths_agree_with_sampled_sequences(test_context):
    train, test = general_task(6), general_task(test_context)
    A = optimal_matrix(train)
    # Un-normalised weights that act as A at the training length: Σ y x divided by 6 whatever N′.
    for normalised, divisor in ((True, lambda n: n), (False, lambda n: 0 * n + 6)):
        value, error = sampled_loss(test, A, divisor, 50_000)
        expected = loss_at_other_context(train, A, test_context, normalised)
        assert error < 0.03 * value
        assert abs(value - expected) < 4 * error


def test_several_test_lengths_at_once():
    task = general_task(6)
    A = np.random.default_rng(1).normal(size=(3, 3))
    lengths = np.array([1, 6, 50])
    one_by_one = [loss_of_matrix(general_task(int(n)), A) for n in lengths]
    np.testing.assert_allclose(loss_at_other_context(task, A, lengths), one_by_one, rtol=1e-12)


def test_infinite_context_leaves_a_floor_with_normalisation():
    task = LinearRegression(EIGENVALUES, 31)
    A = optimal_matrix(task)
    # The reference carries ten decimals.
    np.testing.assert_allclose(infinite_context_floor(task, A), 0.0207477879, atol=5e-11)
    general = general_task(6)
    B = np.random.default_rng(2).normal(size=(3, 3))
    far = loss_at_other_context(general, B, np.array([1e9, 2e9]))
    # The approach is 1/N′: extrapolating removes it.
    np.testing.assert_allclose(infinite_context_floor(general, B), 2 * far[1] - far[0], rtol=1e-12)


def test_without_normalisation_the_loss_grows_as_the_square_of_the_length():
    for task in (LinearRegression(EIGENVALUES, 31), general_task(6)):
        A = optimal_matrix(task)
        far = 1e9
        loss = loss_at_other_context(task, A, far, normalised=False)
        growth = loss / (far / task.contexts[0]) ** 2
        # Corrections are of relative order N/N′.
        np.testing.assert_allclose(growth, unnormalised_divergence(task, A), rtol=1e-6)


def test_training_on_all_lengths_divided_by_context():
    task = LinearRegression(EIGENVALUES, range(1, 32))
    harmonic = np.sum(1 / np.arange(1, 32))
    np.testing.assert_allclose(effective_context(task), 7.697569553283645, rtol=1e-14)
    np.testing.assert_allclose(effective_context(task), 31 / harmonic, rtol=1e-14)
    expected = [1.7185804286936, 2.1327214939250, 2.8098304313550, 4.1168824276050]
    np.testing.assert_allclose(np.diag(optimal_matrix(task)), expected, rtol=1e-12)
    np.testing.assert_allclose(optimal_loss(task), 0.3795201554, atol=5e-11)


def test_training_on_all_lengths_divided_by_tokens():
    task = LinearRegression(EIGENVALUES, range(1, 32))
    gains = context_gains(task, "tokens")
    np.testing.assert_allclose(
        gains, (0.901338864663338, 0.901338864663338, 0.078849288148664), rtol=1e-13
    )
    expected = [2.0513654429743, 2.5807771489019, 3.4785006471667, 5.3338970978436]
    np.testing.assert_allclose(np.diag(optimal_matrix(task, "tokens")), expected, rtol=1e-12)
    np.testing.assert_allclose(optimal_loss(task, "tokens"), 0.3213212085, atol=5e-11)


@pytest.mark.parametrize("normaliser", ["context", "tokens", "none"])
def test_losses_over_mixed_lengths_agree_with_sampled_sequences(normaliser):
    task = general_task((1, 4, 20))
    divisor = {"context": lambda n: n, "tokens": lambda n: n + 1, "none": lambda n: 0 * n + 1}
    A = optimal_matrix(task, normaliser)
    value, error = sampled_loss(task, A, divisor[normaliser], 50_000)
    assert error < 0.03 * value
    assert abs(value - optimal_loss(task, normaliser)) < 4 * error


@pytest.mark.parametrize(
    ("normaliser", "lengths", "probabilities", "same"),
    [
        ("context", (2, 6), (1 / 2, 1 / 2), 3),
        ("tokens", (1, 5), (5 / 14, 9 / 14), 3),
        ("none", (2, 6), (3 / 4, 1 / 4), 4),
    ],
)
def test_effective_context_has_the_optimum_of_the_mix(normaliser, lengths, probabilities, same):
    mix = LinearRegression([0.5, 0.2], lengths, context_probabilities=probabilities, noise=0.3)
    fixed = LinearRegression([0.5, 0.2], same, noise=0.3)
    np.testing.assert_allclose(effective_context(mix, normaliser), same, rtol=1e-13)
    np.testing.assert_allclose(effective_context(fixed, normaliser), same, rtol=1e-13)
    np.testing.assert_allclose(
        optimal_matrix(mix, normaliser), optimal_matrix(fixed, normaliser), rtol=1e-12, atol=1e-14
    )
    A = np.random.default_rng(0).normal(size=(2, 2))
    equal = np.isclose(
        loss_of_matrix(mix, A, normaliser), loss_of_matrix(fixed, A, normaliser), rtol=1e-12
    )
    assert equal == (normaliser == "context")


def test_lengths_that_mean_nothing_are_refused():
    task = LinearRegression(EIGENVALUES, 31)
    with pytest.raises(ValueError, match="`test_context` = 0"):
        loss_at_other_context(task, np.eye(4), 0)
    with pytest.raises(ValueError, match="one training length"):
        loss_at_other_context(general_task((2, 3)), np.eye(3), 5, normalised=False)
    with pytest.raises(ValueError, match="one training length"):
        unnormalised_divergence(general_task((2, 3)), np.eye(3))
