"""The loss of reduced linear attention, its minimum, and the in-context algorithm."""

import itertools

import numpy as np
import pytest

from iclflow.tasks import LinearRegression, Mixture
from iclflow.theory._algorithm import (
    plateau_matrix,
    plateau_risk,
    shrinkage,
    subspace_least_squares_risk,
)
from iclflow.theory._moments import aligned_moments, commute
from iclflow.theory._optimum import (
    correlation_second_moment,
    loss_of_matrix,
    loss_slope,
    optimal_loss,
    optimal_matrix,
)

EIGENVALUES_4 = [0.4, 0.3, 0.2, 0.1]
EIGENVALUES_8 = [(9 - d) / 36 for d in range(1, 9)]
DIVISORS = {"context": lambda n: n, "tokens": lambda n: n + 1, "none": lambda n: 1}


def random_task(seed: int, dim: int, context, **options) -> LinearRegression:
    """Λ and Γ that do not commute, a prior mean, noise."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, dim, dim))
    return LinearRegression(
        covariance=a @ a.T / dim + 0.1 * np.eye(dim),
        prior_covariance=b @ b.T / dim,
        prior_mean=rng.normal(size=dim),
        context=context,
        noise=0.2,
        **options,
    )


def rotated_task(eigenvalues, seed: int = 0, **options) -> LinearRegression:
    dim = len(eigenvalues)
    turn, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))
    return LinearRegression(covariance=turn @ np.diag(eigenvalues) @ turn.T, **options)


def grid(nodes: int, count: int):
    """Points and weights of a product Gauss rule for `count` standard normal variables."""
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    index = np.asarray(list(itertools.product(range(nodes), repeat=count)), dtype=int)
    index = index.reshape(-1, count)
    return points[index], np.prod(weights[index], axis=1)


def quadrature_loss(task: LinearRegression, A, normaliser: str) -> float:
    """E(y_q − ŷ)² for D = 2, by a rule that is exact for the degree of every variable.

    The squared error has degree 4 in each context input (3 nodes), and degree 2 in w, in the
    noises and in the query (2 nodes).
    """
    root = np.linalg.cholesky(np.asarray(task.covariance))
    prior_root = np.linalg.cholesky(np.asarray(task.prior_covariance))
    total = 0.0
    for length, probability in zip(task.contexts, np.asarray(task.context_probabilities)):
        x, x_weight = grid(3, 2 * length)
        other, other_weight = grid(2, 2 + length + 2)
        inputs = x.reshape(-1, 1, length, 2) @ root.T
        w = np.asarray(task.prior_mean) + other[:, :2] @ prior_root.T
        noise = np.sqrt(float(task.noise)) * other[:, 2 : 2 + length]
        query = other[:, 2 + length :] @ root.T
        labels = np.einsum("pqnd,qd->pqn", inputs, w) + noise
        beta = np.einsum("pqnd,pqn->pqd", inputs, labels) / DIVISORS[normaliser](length)
        error = np.einsum("qd,qd->q", w, query) - np.einsum("pqd,de,qe->pq", beta, A, query)
        total += probability * x_weight @ error**2 @ other_weight
    return total + float(task.query_noise)


def drawn(task: LinearRegression, seed: int, count: int):
    """x, y, query, target and length of sequences, drawn without JAX: there is nothing to compile.
    Contexts are padded with zeros."""
    rng = np.random.default_rng(seed)
    length = rng.choice(np.array(task.contexts), count, p=task.context_probabilities)
    keep = np.arange(max(task.contexts)) < length[:, None]
    root = np.linalg.cholesky(np.asarray(task.covariance))
    x = rng.normal(size=(count, keep.shape[1] + 1, task.dim)) @ root.T
    w = rng.multivariate_normal(task.prior_mean, task.prior_covariance, count)
    clean = np.einsum("pnd,pd->pn", x, w)
    y = clean + np.sqrt(task.noise) * rng.normal(size=clean.shape)
    target = (y if task.noisy_query else clean)[:, -1]
    return x[:, :-1] * keep[..., None], y[:, :-1] * keep, x[:, -1], target, length


def sampled_loss(task: LinearRegression, predict, count: int, seed: int = 0):
    """Mean squared error over sampled sequences, and its standard error."""
    x, y, query, target, length = drawn(task, seed, count)
    errors = (target - predict(x, y, query, length)) ** 2
    return errors.mean(), errors.std(ddof=1) / np.sqrt(count)


def attention(A, normaliser: str = "context"):
    def predict(x, y, query, length):
        beta = np.einsum("pnd,pn->pd", x, y) / np.asarray(DIVISORS[normaliser](length))[..., None]
        return np.einsum("pd,de,pe->p", beta, A, query)

    return predict


@pytest.mark.parametrize("normaliser", ["context", "tokens", "none"])
@pytest.mark.parametrize("noisy_query", [True, False])
@pytest.mark.parametrize("context", [1, 2, (1, 2)])
def test_loss_equals_exact_quadrature(context, noisy_query, normaliser):
    probabilities = (0.3, 0.7) if context == (1, 2) else None
    task = random_task(3, 2, context, noisy_query=noisy_query, context_probabilities=probabilities)
    A = np.random.default_rng(1).normal(size=(2, 2))
    # Both sides are exact; what differs is rounding over some 1e5 terms.
    for matrix in (A, optimal_matrix(task, normaliser)):
        expected = quadrature_loss(task, matrix, normaliser)
        np.testing.assert_allclose(loss_of_matrix(task, matrix, normaliser), expected, rtol=1e-11)


@pytest.mark.parametrize("normaliser", ["context", "tokens", "none"])
def test_slope_is_minus_half_the_derivative_of_the_quadrature_loss(normaliser):
    task = random_task(5, 2, (1, 2))
    A = np.random.default_rng(2).normal(size=(2, 2))
    slope = np.zeros((2, 2))
    for d, e in itertools.product(range(2), repeat=2):
        step = np.zeros((2, 2))
        step[d, e] = 0.5
        # The loss is quadratic: central differences are exact at any step.
        up, down = (quadrature_loss(task, A + s * step, normaliser) for s in (1, -1))
        slope[d, e] = -(up - down) / 2
    np.testing.assert_allclose(loss_slope(task, A, normaliser), slope, rtol=1e-10)


@pytest.mark.parametrize(
    "task",
    [
        LinearRegression([1.0, 1.0, 1.0], 5),
        LinearRegression(EIGENVALUES_4, 31, noise=0.1),
        random_task(0, 4, 9),
        random_task(1, 3, (2, 5, 17), context_probabilities=(0.5, 0.2, 0.3)),
    ],
    ids=["white", "noisy", "general", "lengths"],
)
def test_loss_agrees_with_sampled_sequences(task):
    rng = np.random.default_rng(4)
    start = rng.normal(size=(task.dim, task.dim))
    for A in (start, optimal_matrix(task)):
        value, error = sampled_loss(task, attention(A), 20_000)
        assert error < 0.05 * value
        assert abs(value - loss_of_matrix(task, A)) < 4.5 * error


def test_second_moment_agrees_with_sampled_correlations():
    task = random_task(2, 3, 6)
    x, y, *_ = drawn(task, 1, 60_000)
    beta = np.einsum("pnd,pn->pd", x, y) / 6
    products = np.einsum("pd,pe->pde", beta, beta)
    z = (products.mean(0) - correlation_second_moment(task)) / (products.std(0) / 60_000**0.5)
    # Six different entries of a unit normal.
    assert np.max(np.abs(z)) < 4


@pytest.mark.parametrize("normaliser", ["context", "tokens", "none"])
@pytest.mark.parametrize("seed", range(3))
def test_no_matrix_beats_the_optimum(seed, normaliser):
    task = random_task(seed, 3, (3, 8), context_probabilities=(0.25, 0.75))
    best = optimal_matrix(task, normaliser)
    floor = optimal_loss(task, normaliser)
    scale = np.linalg.norm(loss_slope(task, np.zeros((3, 3)), normaliser))
    assert np.linalg.norm(loss_slope(task, best, normaliser)) < 1e-12 * scale
    np.testing.assert_allclose(loss_of_matrix(task, best, normaliser), floor, rtol=1e-12)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        step = rng.normal(size=(3, 3)) * np.linalg.norm(best) * 1e-3
        assert loss_of_matrix(task, best + step, normaliser) > floor


def test_optimum_of_four_components():
    task = LinearRegression(EIGENVALUES_4, 31)
    expected = np.diag([155 / 69, 155 / 53, 155 / 37, 155 / 21])
    np.testing.assert_allclose(optimal_matrix(task), expected, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(optimal_matrix(task)), 9.253477113005209, rtol=1e-14)
    np.testing.assert_allclose(optimal_loss(task), 85873 / 631442, rtol=1e-13)
    noisy = LinearRegression(EIGENVALUES_4, 31, noise=0.1)
    np.testing.assert_allclose(optimal_loss(noisy), 0.244991447485350, rtol=1e-13)
    quiet_query = LinearRegression(EIGENVALUES_4, 31, noise=0.1, noisy_query=False)
    np.testing.assert_allclose(optimal_loss(quiet_query), 0.144991447485350, rtol=1e-12)


def test_optimum_of_eight_components():
    task = LinearRegression(EIGENVALUES_8, 31)
    expected = [279 / 73, 279 / 65, 93 / 19, 279 / 49, 279 / 41, 93 / 11, 279 / 25, 279 / 17]
    np.testing.assert_allclose(np.diag(optimal_matrix(task)), expected, rtol=1e-13)
    np.testing.assert_allclose(optimal_loss(task), 144519084323 / 677394017300, rtol=1e-13)


@pytest.mark.parametrize(("eigenvalue", "expected"), [(1.0, 5 / 9), (0.25, 5 / 36)])
def test_optimal_loss_of_white_inputs(eigenvalue, expected):
    task = LinearRegression([eigenvalue] * 4, 31)
    np.testing.assert_allclose(optimal_loss(task), expected, rtol=1e-13)


def test_rotating_the_inputs_rotates_the_optimum():
    task = rotated_task(EIGENVALUES_4, context=31)
    aligned = aligned_moments(task)
    np.testing.assert_allclose(aligned.eigenvalues, EIGENVALUES_4, rtol=1e-13)
    rebuilt = (aligned.basis * aligned.optimum) @ aligned.basis.T
    np.testing.assert_allclose(optimal_matrix(task), rebuilt, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(optimal_loss(task), 85873 / 631442, rtol=1e-12)


def test_common_eigenbasis_is_found_when_input_eigenvalues_tie():
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(4, 4)))
    inputs, weights = np.array([0.5, 0.5, 0.5, 0.2]), np.array([2.0, 1.0, 0.3, 0.7])
    task = LinearRegression(
        covariance=turn @ np.diag(inputs) @ turn.T,
        prior_covariance=turn @ np.diag(weights) @ turn.T,
        context=7,
    )
    aligned = aligned_moments(task)
    np.testing.assert_allclose(aligned.weight_eigenvalues, weights, rtol=1e-12)
    rebuilt = (aligned.basis * aligned.optimum) @ aligned.basis.T
    np.testing.assert_allclose(optimal_matrix(task), rebuilt, rtol=1e-10, atol=1e-12)
    assert commute(task) and not commute(random_task(0, 3, 5))


@pytest.mark.usefixtures("unchecked")
def test_formulas_refuse_tasks_that_they_do_not_cover():
    task = random_task(0, 3, 5)
    with pytest.raises(ValueError, match="do not commute"):
        shrinkage(task)
    with pytest.raises(ValueError, match="Mixture"):
        optimal_matrix(Mixture([task, task], [0.5, 0.5]))
    with pytest.raises(ValueError, match=r"`A` has shape \(2, 2\)"):
        loss_of_matrix(task, np.eye(2))
    with pytest.raises(ValueError, match="`normaliser` = 'queries'"):
        optimal_loss(task, "queries")
    silent = LinearRegression([1.0, 1.0], 5, prior_covariance=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="always zero"):
        optimal_matrix(silent)


# The in-context algorithm.


def test_plateau_risks_of_four_components():
    task = rotated_task(EIGENVALUES_4, context=31)
    expected = [1, 221 / 345, 27601 / 73140, 567769 / 2706180, 85873 / 631442]
    np.testing.assert_allclose([plateau_risk(task, m) for m in range(5)], expected, rtol=1e-12)
    noisy = LinearRegression(EIGENVALUES_4, 31, noise=0.1)
    expected = [1.1, 0.743165467625899, 0.482417804074497, 0.317084470741164, 0.244991447485350]
    np.testing.assert_allclose([plateau_risk(noisy, m) for m in range(5)], expected, rtol=1e-13)


def test_plateau_risk_is_the_sampled_risk_of_the_plateau_predictor():
    task = rotated_task(EIGENVALUES_4, context=(5, 31), noise=0.1, prior_covariance=2 * np.eye(4))
    for m in range(5):
        A = plateau_matrix(task, m, "tokens")
        assert np.linalg.matrix_rank(A, tol=1e-9) == m
        value, error = sampled_loss(task, attention(A, "tokens"), 20_000, seed=m)
        assert abs(value - plateau_risk(task, m, "tokens")) < 4 * error
        exact = loss_of_matrix(task, A, "tokens")
        np.testing.assert_allclose(plateau_risk(task, m, "tokens"), exact, rtol=1e-12)


def test_shrinkage_is_the_published_factor():
    task = LinearRegression(EIGENVALUES_4, 31, noise=0.3)
    values = np.asarray(EIGENVALUES_4)
    np.testing.assert_allclose(shrinkage(task), 1 / (1 + (1 + (1 + 0.3) / values) / 31), rtol=1e-13)
    assert np.all(np.diff(shrinkage(task)) < 0)


def test_subspace_least_squares_reference_values():
    task = LinearRegression(EIGENVALUES_4, 31)
    risks = [subspace_least_squares_risk(task, m) for m in range(5)]
    np.testing.assert_allclose(risks, [1, 18 / 29, 9 / 28, 1 / 9, 0], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("context", [10, (8, 15)])
@pytest.mark.parametrize("noisy_query", [True, False])
def test_subspace_least_squares_agrees_with_sampled_regressions(context, noisy_query):
    task = random_task(7, 4, context, noisy_query=noisy_query)
    values, basis = np.linalg.eigh(np.asarray(task.covariance))
    for m in range(5):
        top = basis[:, ::-1][:, :m]

        def least_squares(x, y, query, length, top=top):
            seen = x @ top  # padding is zero and adds nothing to the normal equations
            gram = np.einsum("pnd,pne->pde", seen, seen)
            right = np.einsum("pnd,pn->pd", seen, y)
            weights = np.linalg.solve(gram, right[..., None])[..., 0]
            return np.einsum("pd,pd->p", weights, query @ top)

        value, error = sampled_loss(task, least_squares, 20_000, seed=m)
        assert error < 0.05 * value
        assert abs(value - subspace_least_squares_risk(task, m)) < 4 * error


def test_least_squares_beats_attention_here_and_both_reach_the_same_limit():
    for context in (31, 10):
        task = LinearRegression(EIGENVALUES_4, context)
        for m in range(1, 5):
            assert subspace_least_squares_risk(task, m) < plateau_risk(task, m)
    long = LinearRegression(EIGENVALUES_4, 10**7, noise=0.1)
    # Both approach the limit as 1/N, with a coefficient of order 10.
    for m, limit in enumerate([1.1, 0.7, 0.4, 0.2, 0.1]):
        np.testing.assert_allclose(subspace_least_squares_risk(long, m), limit, rtol=1e-5)
        np.testing.assert_allclose(plateau_risk(long, m), limit, rtol=1e-5)


def test_algorithm_refuses_what_has_no_finite_or_unique_answer():
    short = LinearRegression(EIGENVALUES_4, 4, noise=0.1)
    with pytest.raises(ValueError, match="context lengths from 5 up"):
        subspace_least_squares_risk(short, 3)
    assert np.isfinite(subspace_least_squares_risk(short, 2))
    exact = LinearRegression(EIGENVALUES_4, 4)
    assert subspace_least_squares_risk(exact, 4) == 0
    anisotropic = LinearRegression([0.5, 0.5], 9, prior_covariance=np.diag([1.0, 2.0]))
    with pytest.raises(ValueError, match="not unique"):
        subspace_least_squares_risk(anisotropic, 1)
    with pytest.raises(ValueError, match="not ordered"):
        plateau_risk(anisotropic, 1)
    with pytest.raises(ValueError, match="`components` = 5"):
        plateau_matrix(short, 5)
