"""Families of random functions: label variance, structure, and Bayes where it is known."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.special import eval_hermitenorm, factorial

from iclflow.models import Attention, Diagonal
from iclflow.risks import risk
from iclflow.tasks import (
    DecisionTree,
    HermiteRegression,
    QuadraticRegression,
    Sequences,
    SparseRegression,
    TwoLayerReLU,
    hermite,
)

# All without noise: what is added to labels is tested apart, and is the same in all of them.
FAMILIES = {
    "quadratic": QuadraticRegression(3, 12, variance=2.0),
    "sparse": SparseRegression(4, 12, sparsity=2, variance=2.0),
    "relu": TwoLayerReLU(3, 12, hidden=20, variance=2.0),
    "tree": DecisionTree(3, 12, depth=2, variance=2.0),
    "hermite": HermiteRegression(3, 12, degree=3, variance=0.5, signal=1.5),
}
COUNT = 20_000
families = pytest.mark.parametrize("name", FAMILIES)


@functools.cache
def drawn_from(name: str) -> Sequences:
    """Many sequences of a family as plain numbers, drawn once for all tests."""
    sample = jax.jit(lambda task, key: task.sample(key, COUNT))
    return jax.tree.map(np.asarray, sample(FAMILIES[name], jr.key(7)))


def standard_errors_off(samples, expected) -> float:
    samples = np.asarray(samples)
    return abs(samples.mean() - expected) / (samples.std() / np.sqrt(len(samples)))


@pytest.mark.quick_cases(1)
@families
def test_labels_have_the_stated_variance(name):
    drawn = drawn_from(name)
    for labels in (drawn.y[:, 2], drawn.y_query):
        assert standard_errors_off(labels**2, 2.0) < 4
        assert standard_errors_off(labels, 0.0) < 4
    task = FAMILIES[name]
    assert drawn.x.shape == (COUNT, 12, task.dim) and task.max_context == 12


@families
def test_one_function_serves_a_whole_sequence(name):
    """Labels of one sequence at inputs that are near each other are alike."""
    drawn = drawn_from(name)
    distance = np.linalg.norm(drawn.x[:, 0] - drawn.x_query, axis=-1)
    near = distance < np.quantile(distance, 0.02)
    assert standard_errors_off(np.asarray(drawn.y[:, 0] * drawn.y_query)[near, 0], 0.0) > 4


def test_noise_lengths_and_padding_are_as_asked():
    task = QuadraticRegression(2, [2, 5], variance=0.0, noise=4.0, noisy_query=False)
    drawn = jax.tree.map(np.asarray, jax.jit(lambda key: task.sample(key, 2000))(jr.key(1)))
    assert set(np.unique(drawn.length)) == {2.0, 5.0}
    assert np.all(np.asarray(drawn.y)[~np.asarray(drawn.mask())] == 0)
    assert np.all(drawn.y_query == 0)
    assert standard_errors_off(drawn.y[:, 0] ** 2, 4.0) < 4


# Structure ------------------------------------------------------------------------------------


def test_sparse_functions_read_as_many_coordinates_as_stated():
    drawn = drawn_from("sparse")[:200]
    reads = []
    for x, y in zip(np.asarray(drawn.x), np.asarray(drawn.y)[..., 0]):
        w, *_ = np.linalg.lstsq(x, y, rcond=None)
        np.testing.assert_allclose(x @ w, y, atol=1e-9)
        reads.append(np.abs(w) > 1e-9)
    counts = np.asarray(reads)
    assert np.all(counts.sum(1) == 2)
    # Every coordinate is read in half of 200 sequences: a standard error of 0.035.
    assert np.all(np.abs(counts.mean(0) - 0.5) < 4 * 0.035)


def test_trees_are_constant_on_the_cells_of_their_questions():
    drawn = drawn_from("tree")[:200]
    leaves = []
    for x, y in zip(np.asarray(drawn.x), np.asarray(drawn.y)[..., 0]):
        cells = {}
        for point, label in zip(x, y):
            cells.setdefault(tuple(point > 0), set()).add(float(label))
        # Inputs with the same signs have the same label.
        assert all(len(labels) == 1 for labels in cells.values())
        leaves.append(len(set(y)))
    # Two questions lead to four leaves at most.
    assert max(leaves) == 4


def test_a_relu_unit_is_linear_where_it_is_active_and_zero_elsewhere():
    task = TwoLayerReLU(2, 12, hidden=1)
    drawn = jax.jit(lambda key: task.sample(key, 40))(jr.key(2))
    for x, y in zip(np.asarray(drawn.x), np.asarray(drawn.y)[..., 0]):
        active = y != 0
        if active.sum() < 3:
            continue
        w, *_ = np.linalg.lstsq(x[active], y[active], rcond=None)
        np.testing.assert_allclose(x[active] @ w, y[active], atol=1e-9)
        assert np.all(x[~active] @ w * y[active][0] <= 0)


def test_quadratic_functions_are_sums_of_squares():
    drawn = drawn_from("quadratic")[:20]
    for x, y in zip(np.asarray(drawn.x), np.asarray(drawn.y)[..., 0]):
        w, *_ = np.linalg.lstsq(x**2, y, rcond=None)
        np.testing.assert_allclose(x**2 @ w, y, atol=1e-9)


# Hermite --------------------------------------------------------------------------------------


def test_hermite_polynomials_are_those_of_scipy_and_orthonormal():
    points = np.linspace(-3, 3, 13)
    for k in range(6):
        expected = eval_hermitenorm(k, points) / np.sqrt(factorial(k))
        np.testing.assert_allclose(hermite(jnp.asarray(points), k), expected, atol=1e-12)
    # Gauss quadrature with 20 nodes is exact for polynomials up to degree 39.
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    table = np.stack([hermite(jnp.asarray(nodes), k) for k in range(6)])
    gram = table * (weights / np.sqrt(2 * np.pi)) @ table.T
    np.testing.assert_allclose(gram, np.eye(6), atol=1e-12)


def test_hermite_parts_have_their_own_variances_and_grow_with_the_input():
    task, drawn = FAMILIES["hermite"], drawn_from("hermite")
    x, query = np.asarray(drawn.x[:, 0]), np.asarray(drawn.x_query)
    # Two labels share β: E[y y' x·x'] = s, and the Hermite part, orthogonal to x, adds nothing.
    products = np.asarray(drawn.y[:, 0] * drawn.y_query)[:, 0]
    assert standard_errors_off(products * np.sum(x * query, 1), 1.5) < 4
    cubic = np.sum((x**3 - 3 * x) * (query**3 - 3 * query), 1) / 6
    assert standard_errors_off(products * cubic, 0.5) < 4
    # E[f_k²|x|²] = V(d + 2k), what transfer to nonlinear targets depends on; the linear part is
    # the case k = 1.
    grown = np.asarray(drawn.y_query)[:, 0] ** 2 * np.sum(query**2, 1)
    assert standard_errors_off(grown, 1.5 * (3 + 2) + 0.5 * (3 + 2 * task.degree)) < 4


# Bayes ----------------------------------------------------------------------------------------


def ridge(features, at_query, prior, y):
    """Mean of the query label, and evidence of the labels, by conditioning a Gaussian."""
    labels = features @ prior @ features.T + NOISE * np.eye(len(y))
    solved = np.linalg.solve(labels, y)
    evidence = np.exp(-y @ solved / 2) / np.sqrt(np.linalg.det(labels))
    return at_query @ prior @ features.T @ solved, evidence


def quadratic_by_hand(x, y, query):
    return ridge(x**2 / np.sqrt(3), query**2 / np.sqrt(3), 2 / 3 * np.eye(3), y)[0]


def hermite_by_hand(x, y, query):
    features, at_query = (np.hstack([v, (v**3 - 3 * v) / np.sqrt(6)]) for v in (x, query))
    return ridge(features, at_query, np.diag(np.repeat([1.5 / 3, 0.5 / 3], 3)), y)[0]


def sparse_by_hand(x, y, query):
    sets = [list(read) for read in itertools.combinations(range(4), 2)]
    each = [ridge(x[:, read], query[read], np.eye(2), y) for read in sets]
    means, evidence = np.asarray(each).T
    return np.sum(means * evidence) / np.sum(evidence)


NOISE = 0.5
BY_HAND = {"quadratic": quadratic_by_hand, "sparse": sparse_by_hand, "hermite": hermite_by_hand}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", BY_HAND)
def test_known_bayes_predictors_condition_on_the_context_and_reach_their_variance(name):
    task = eqx.tree_at(lambda t: t.design.noise, FAMILIES[name], jnp.asarray(NOISE))
    clean, rng = drawn_from(name)[:4000], np.random.default_rng(0)
    y, y_query = (
        np.asarray(labels) + np.sqrt(NOISE) * rng.normal(size=labels.shape)
        for labels in (clean.y[:, :4], clean.y_query)
    )
    parts = (clean.x[:, :4], y, clean.x_query, y_query, np.full(4000, 4.0))
    drawn = Sequences(*map(jnp.asarray, parts))
    both = jax.jit(lambda t, s: (t.bayes_predict(s), t.bayes_variance(s)))(task, drawn)
    mean, variance = map(np.asarray, both)
    for i in range(5):
        by_hand = BY_HAND[name](
            *(np.asarray(v)[i] for v in (clean.x[:, :4], y[..., 0], clean.x_query))
        )
        assert mean[i] == pytest.approx([by_hand], rel=1e-8)
    assert standard_errors_off((y_query - mean) ** 2 - variance, 0.0) < 4


def test_unknown_bayes_predictors_say_so():
    wide = SparseRegression(20, 3, sparsity=10)
    for task, words in (
        (FAMILIES["relu"], "TwoLayerReLU is not known"),
        (FAMILIES["tree"], "DecisionTree is not known"),
        (wide, "10 coordinates out of 20 weighs 184756 sets"),
    ):
        for method in (task.bayes_predict, task.bayes_variance):
            with pytest.raises(TypeError, match=words):
                method(drawn_from("relu"))


def test_a_family_without_bayes_predictor_can_be_trained_on():
    model = Attention(Diagonal(jnp.asarray([0.3, -0.2]), jnp.asarray([1.0, 0.5]), 3))
    plain = risk(FAMILIES["tree"], model, "sampled", batch=64)
    value, gradient = eqx.filter_jit(plain.value_and_gradient)(model, jr.key(3))
    assert np.isfinite(value) and all(np.all(leaf != 0) for leaf in jax.tree.leaves(gradient))


# Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: QuadraticRegression(0), "`dim` = 0: must be a whole number from 1 up"),
        (lambda: QuadraticRegression(3, variance=-1.0), "`variance` = -1.0"),
        (
            lambda: SparseRegression(3, sparsity=4),
            "`sparsity` = 4: must be a whole number from 1 to 3",
        ),
        (lambda: TwoLayerReLU(3, hidden=0), "`hidden` = 0"),
        (lambda: DecisionTree(3, depth=13), "`depth` = 13: must be a whole number from 1 to 12"),
        (
            lambda: HermiteRegression(3, degree=1),
            "`degree` = 1: must be a whole number from 2 to 12",
        ),
        (lambda: HermiteRegression(3, signal=float("nan")), "`signal` = nan"),
        (lambda: DecisionTree(3, context=[4, 4]), "each listed once"),
    ],
)
def test_impossible_families_are_refused_in_one_sentence(build, words):
    with pytest.raises(ValueError, match=words) as error:
        build()
    assert "\n" not in str(error.value)
