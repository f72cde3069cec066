import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal

from helpers import four_components, random_task
from iclflow.tasks import LinearRegression, Mixture, RandomLabels, in_context_in_weight
from iclflow.tasks._check import check_draw

# How many sequences of four components are drawn: one number, so that this is compiled once.
COUNT = 2000

# In one compiled call: operation by operation, each would be compiled by itself.
_drawn = eqx.filter_jit(lambda task, key, count: task.sample(key, count))


def drawn_from(task, key, count: int):
    """Sequences of a task, as plain numbers."""
    return jax.tree.map(np.asarray, _drawn(task, key, count))


def mean_and_error(samples):
    samples = np.asarray(samples)
    return samples.mean(0), samples.std(0, ddof=1) / np.sqrt(len(samples))


def within_errors(samples, expected, errors=4.5):
    """Largest deviation in standard errors; several entries are tested at once, hence 4.5."""
    mean, error = mean_and_error(samples)
    return np.max(np.abs(mean - expected) / error) < errors


def test_sampled_moments_are_those_of_the_task(getkey):
    task = random_task(np.random.default_rng(0), 3, 7, noise=0.3, noisy_query=True)
    drawn = drawn_from(task, getkey(), 40_000)
    covariance = np.asarray(task.covariance)
    x, y, label = drawn.x[:, 0], drawn.y[:, 0, 0], drawn.y_query[:, 0]
    assert within_errors(x[:, :, None] * x[:, None, :], covariance)
    assert within_errors(x * y[:, None], covariance @ np.asarray(task.prior_mean))
    assert within_errors(y**2, task.label_variance)
    # Two labels of one sequence share w: their product shows E[ww] and nothing of the noise.
    products = y * label * np.einsum("pd,pd->p", x, drawn.x_query)
    signal = covariance @ np.asarray(task.weight_second_moment) @ covariance
    assert within_errors(products, np.trace(signal))


def test_noise_on_the_query_is_optional(getkey):
    options = {"noise": 2.0, "prior_covariance": np.zeros((4, 4))}
    noisy = drawn_from(four_components(**options), getkey(), COUNT)
    clean = drawn_from(four_components(**options, noisy_query=False), getkey(), COUNT)
    assert within_errors(noisy.y_query**2, 2.0)
    assert np.all(clean.y_query == 0)
    assert within_errors(clean.y[:, 0] ** 2, 2.0)


def test_varying_context_pads_with_zeros_and_draws_the_lengths_asked_for(getkey):
    task = LinearRegression([1.0, 0.5], [2, 5], context_probabilities=[0.25, 0.75])
    drawn = drawn_from(task, getkey(), 8000)
    assert set(np.unique(drawn.length)) == {2.0, 5.0}
    assert within_errors(drawn.length == 5, 0.75)
    padding = ~np.asarray(drawn.mask())
    assert np.all(drawn.x[padding] == 0) and np.all(drawn.y[padding] == 0)


@eqx.filter_jit
def posteriors(task, key):
    """A few sequences, with the mean and the variance of their query label."""
    drawn = task.sample(key, 5)
    return drawn, task.bayes_predict(drawn), task.bayes_variance(drawn)


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("context", [2, 8])
def test_bayes_predictor_matches_the_textbook_gaussian_posterior(getkey, noise, context):
    rng = np.random.default_rng(1)
    task = random_task(rng, 3, context, noise=noise)
    drawn, predicted, variances = jax.tree.map(np.asarray, posteriors(task, getkey()))
    prior, mean = np.asarray(task.prior_covariance), np.asarray(task.prior_mean)
    for i in range(5):
        x, y, query = drawn.x[i], drawn.y[i, :, 0], drawn.x_query[i]
        gain = prior @ x.T @ np.linalg.pinv(x @ prior @ x.T + noise * np.eye(context), rcond=1e-11)
        weight = mean + gain @ (y - x @ mean)
        left = prior - gain @ x @ prior
        assert predicted[i] == pytest.approx([weight @ query], abs=1e-8)
        variance = query @ left @ query + float(task.query_noise)
        assert variances[i] == pytest.approx([variance], abs=1e-8)


@eqx.filter_jit
def squares_and_risk(task, first, second):
    drawn = task.sample(first, 8_000)
    return (drawn.y_query - task.bayes_predict(drawn)) ** 2, task.bayes_risk(second, 8_000)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "task",
    [
        four_components(noise=0.1),
        four_components(),
        LinearRegression([0.4, 0.3, 0.2, 0.1], [2, 3]),
        in_context_in_weight(LinearRegression([0.4, 0.3, 0.2, 0.1], 2, noise=0.1), 0.5),
        in_context_in_weight(LinearRegression([0.4, 0.3, 0.2, 0.1], 2), 0.5),
        RandomLabels(four_components(), np.ones(4)),
    ],
    ids=["noisy", "noiseless", "short", "noisy mixture", "mixture", "random labels"],
)
def test_bayes_risk_is_the_squared_error_of_the_bayes_predictor(getkey, task):
    squared, risk = squares_and_risk(task, getkey(), getkey())
    mean, error = mean_and_error(squared)
    combined = np.hypot(error, risk.standard_error)
    # 1e-12: where the labels determine w, both are zero but for rounding.
    assert abs(mean - risk.value) < 4 * combined + 1e-12


component_posterior = eqx.filter_jit(lambda task, drawn: task.component_posterior(drawn))


def test_mixture_knows_a_fixed_task_vector_when_it_sees_one(getkey):
    task = in_context_in_weight(four_components(), 0.5, fixed_weight=[1.0, 2.0, -1.0, 0.5])
    assert isinstance(task, Mixture)
    fixed, random = (drawn_from(task.components[i], getkey(), COUNT)[:50] for i in (1, 0))
    assert np.all(np.asarray(component_posterior(task, fixed))[1] > 1 - 1e-9)
    assert np.all(np.asarray(component_posterior(task, random))[0] > 1 - 1e-9)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "components",
    [
        (LinearRegression([1, 0.5], 3, noise=0.01), LinearRegression([1, 0.5], 3, noise=1.0)),
        (LinearRegression([1, 0.5], 3, noise=0.1), LinearRegression([0.1, 5], 3, noise=0.1)),
        (LinearRegression([1, 0.5], [2, 3], noise=0.1), LinearRegression([1, 0.5], 3, noise=0.1)),
    ],
    ids=["noise", "covariance", "length"],
)
def test_mixture_weighs_its_components_by_their_densities(getkey, components):
    task = Mixture(components, (0.5, 0.5))
    drawn = drawn_from(task, getkey(), 6)
    found = component_posterior(task, drawn)
    expected = []
    for c in components:
        logs = []
        for i in range(6):
            length = int(drawn.length[i])
            x, y = drawn.x[i][:length], drawn.y[i][:length, 0]
            labels = x @ x.T + float(c.noise) * np.eye(length)
            log = multivariate_normal(np.zeros(length), labels).logpdf(y)
            for point in (*x, drawn.x_query[i]):
                log += multivariate_normal(np.zeros(2), np.asarray(c.covariance)).logpdf(point)
            chance = 1 / len(c.contexts) if length in c.contexts else 0.0
            logs.append(log + np.log(chance) if chance else -np.inf)
        expected.append(logs)
    assert np.allclose(found, softmax(expected, axis=0), atol=1e-9)


def test_mixture_at_its_ends_is_one_task():
    task = four_components()
    assert in_context_in_weight(task, 1.0) is task
    assert isinstance(in_context_in_weight(task, 0.0), LinearRegression)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"eigenvalues": [1.0, -0.1]}, "`eigenvalues` holds -0.1"),
        ({"eigenvalues": [1.0, np.nan]}, "NaN"),
        ({"eigenvalues": []}, "`eigenvalues` is empty"),
        ({}, "exactly one of"),
        ({"covariance": [[1.0, 2.0], [2.0, 1.0]]}, "eigenvalue -1"),
        ({"covariance": [[1.0, 2.0], [0.0, 1.0]]}, "not symmetric"),
        ({"covariance": [[1.0, 0.0]]}, "must be square"),
        ({"eigenvalues": [1.0], "noise": -0.1}, "`noise` = -0.1"),
        ({"eigenvalues": [1.0], "context": 0}, "`context` = 0"),
        ({"eigenvalues": [1.0], "context": [3, 3]}, "each listed once"),
        ({"eigenvalues": [1.0], "prior_mean": [1.0, 2.0]}, "`prior_mean` has 2 entries"),
        ({"eigenvalues": [1.0], "prior_covariance": [[-1.0]]}, "positive semi-definite"),
        ({"eigenvalues": [1.0], "context": [2, 3], "context_probabilities": [0.5, 0.6]}, "sum to"),
    ],
)
def test_impossible_tasks_are_refused_in_one_sentence(options, words):
    with pytest.raises(ValueError, match=words.replace("`", "`")) as error:
        LinearRegression(**options)
    assert "\n" not in str(error.value)


def test_sampling_is_reproducible():
    task = four_components()
    first, second = (drawn_from(task, jr.key(3), COUNT) for _ in range(2))
    assert np.array_equal(first.x, second.x) and np.array_equal(first.y_query, second.y_query)


@pytest.mark.parametrize(
    ("key", "count", "words"),
    [
        (0, 3, "`key` = 0: must be a random key"),
        (jr.key(0), 2.5, "`count` = 2.5: must be a whole number"),
        (jr.key(0), np.int64(3), "`count` is an array: must be an `int`"),
    ],
)
def test_what_no_sequences_can_be_drawn_from_is_refused(key, count, words):
    with pytest.raises((TypeError, ValueError), match=words):
        check_draw(key, count)
