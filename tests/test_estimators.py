"""Estimators against plain NumPy, sequence by sequence; their exact risks against Monte Carlo."""

from functools import cache

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.estimators import (
    AbstractEstimator,
    Bayes,
    DebiasedGradientStep,
    EmpiricalPCR,
    GradientStep,
    LeastSquares,
    PopulationPCR,
    PreconditionedStep,
    Ridge,
    SubspaceLeastSquares,
    Zero,
    eigenvectors,
)
from iclflow.risks import SampledRisk, exact_bilinear_risk
from iclflow.tasks import LinearRegression, Mixture, RandomLabels, Sequences

COVARIANCE = [[0.5, 0.2, 0.0], [0.2, 0.4, 0.1], [0.0, 0.1, 0.3]]
PRIOR = [[1.0, 0.3, 0.1], [0.3, 0.8, 0.0], [0.1, 0.0, 0.6]]
MATRIX = jnp.asarray([[1.0, 0.2, -0.1], [0.4, 1.5, 0.3], [0.0, -0.2, 2.0]])


def four_components(**options) -> LinearRegression:
    return LinearRegression([0.4, 0.3, 0.2, 0.1], 31, **options)


def general_task(**options) -> LinearRegression:
    """Nothing in it is diagonal, and the context length varies."""
    settings = {
        "covariance": COVARIANCE,
        "context": [6, 11],
        "noise": 0.2,
        "prior_mean": [0.5, 0.0, -0.3],
        "prior_covariance": PRIOR,
        "context_probabilities": [0.3, 0.7],
    }
    return LinearRegression(**(settings | options))


def made(task: LinearRegression, count: int = 12, rubbish: bool = False) -> Sequences:
    """Sequences of a task, made without JAX; with rubbish where zeros should pad them."""
    rng = np.random.default_rng(0)
    length = rng.choice(np.array(task.contexts), count, p=task.context_probabilities)
    keep = np.arange(max(task.contexts)) < length[:, None]
    x = rng.multivariate_normal(np.zeros(task.dim), task.covariance, (count, keep.shape[1] + 1))
    w = rng.multivariate_normal(task.prior_mean, task.prior_covariance, count)
    y = np.einsum("pnd,pd->pn", x, w) + np.sqrt(task.noise) * rng.normal(size=x.shape[:2])
    inputs = np.where(keep[..., None], x[:, :-1], 7.0 if rubbish else 0.0)
    labels = np.where(keep, y[:, :-1], -3.0 if rubbish else 0.0)
    parts = (inputs, labels[..., None], x[:, -1], y[:, -1:], length.astype(float))
    return Sequences(*map(jnp.asarray, parts))


def parts_of(sequences: Sequences, index) -> Sequences:
    """Some of the sequences, cut out without JAX."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[index]), sequences)


def top_vectors(task: LinearRegression, count: int) -> np.ndarray:
    return np.linalg.eigh(np.asarray(task.covariance))[1][:, ::-1][:, :count]


# Each estimator as one would write it down for a single sequence ------------------------------


def plain_step(x, y, q):
    return sum(yn * xn for xn, yn in zip(x, y)) / len(y) @ q


def plain_debiased(x, y, q):
    return sum(yn * (xn - x.mean(0)) for xn, yn in zip(x, y)) / len(y) @ q


def plain_empirical(x, y, q, components):
    vectors = np.linalg.eigh(x.T @ x)[1][:, ::-1][:, :components]
    return np.linalg.lstsq(x @ vectors, y, rcond=None)[0] @ vectors.T @ q


CASES = {
    "zero": (lambda task: Zero(), lambda task, x, y, q: 0.0),
    "step": (lambda task: GradientStep(1.3), lambda task, x, y, q: 1.3 * plain_step(x, y, q)),
    "step, tokens": (
        lambda task: GradientStep(1.3, "tokens"),
        lambda task, x, y, q: 1.3 * plain_step(x, y, q) * len(y) / (len(y) + 1),
    ),
    "matrix": (
        lambda task: PreconditionedStep(MATRIX),
        lambda task, x, y, q: plain_step(x, y, np.asarray(MATRIX) @ q),
    ),
    "debiased": (
        lambda task: DebiasedGradientStep(0.9),
        lambda task, x, y, q: 0.9 * plain_debiased(x, y, q),
    ),
    "least squares": (
        lambda task: LeastSquares(),
        lambda task, x, y, q: np.linalg.lstsq(x, y, rcond=None)[0] @ q,
    ),
    "ridge": (
        lambda task: Ridge(0.7),
        lambda task, x, y, q: np.linalg.solve(x.T @ x + 0.7 * np.eye(3), x.T @ y) @ q,
    ),
    "subspace": (
        lambda task: SubspaceLeastSquares(task, 2),
        lambda task, x, y, q: (
            np.linalg.lstsq(x @ top_vectors(task, 2), y, rcond=None)[0] @ top_vectors(task, 2).T @ q
        ),
    ),
    "empirical": (lambda task: EmpiricalPCR(2), lambda task, x, y, q: plain_empirical(x, y, q, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_prediction_is_that_of_the_textbook_whatever_stands_in_the_padding(case):
    build, plain = CASES[case]
    task = general_task()
    sequences = made(task, rubbish=True)
    predicted = np.asarray(build(task).predict(sequences))
    assert set(np.asarray(sequences.length)) == {6.0, 11.0}
    for i, length in enumerate(np.asarray(sequences.length, int)):
        x, y, q = (np.asarray(a[i]) for a in (sequences.x, sequences.y[..., 0], sequences.x_query))
        # Both sides solve well-conditioned systems: rounding alone.
        by_hand = plain(task, x[:length], y[:length], q)
        assert predicted[i] == pytest.approx([by_hand], abs=1e-11)


@pytest.mark.parametrize("case", ["zero", "matrix", "debiased", "ridge", "subspace"])
def test_any_batch_axes(case):
    task = general_task()
    estimator = CASES[case][0](task)
    sequences = made(task)
    flat = np.asarray(estimator.predict(sequences))
    fold = lambda leaf: jnp.asarray(np.asarray(leaf).reshape(3, 4, *leaf.shape[1:]))
    folded, one = jax.tree.map(fold, sequences), parts_of(sequences, 2)
    np.testing.assert_allclose(estimator.predict(folded), flat.reshape(3, 4, 1), atol=1e-13)
    np.testing.assert_allclose(estimator.predict(one), flat[2], atol=1e-13)


def test_fewer_pairs_than_dimensions_give_the_shortest_fit():
    sequences = made(LinearRegression(np.ones(5), 3))
    predicted = np.asarray(LeastSquares().predict(sequences))
    x, y, query = (np.asarray(a) for a in (sequences.x, sequences.y, sequences.x_query))
    for i in range(12):
        assert predicted[i] == pytest.approx(query[i] @ np.linalg.pinv(x[i]) @ y[i])


# How they are related -------------------------------------------------------------------------


def test_estimators_that_are_the_same_agree():
    noiseless, noisy = general_task(noise=0.0), four_components(noise=0.3)
    white = LinearRegression(np.full(4, 0.25), 31)
    pairs = [
        # With a prior N(0, I) the penalty σ² is Bayes; without noise every prior is overruled.
        (Ridge(0.3), Bayes(noisy), noisy),
        (LeastSquares(), Bayes(noiseless), noiseless),
        (Ridge(0.0), LeastSquares(), noiseless),
        (SubspaceLeastSquares(noisy, 4), LeastSquares(), noisy),
        (EmpiricalPCR(4), LeastSquares(), noisy),
        (EmpiricalPCR(0), Zero(), noisy),
        (SubspaceLeastSquares(noisy, 0), Zero(), noisy),
        (PopulationPCR(noisy, 0), Zero(), noisy),
        (PopulationPCR(white, 4), GradientStep(1 / (0.25 + 1.25 / 31)), white),
    ]
    for first, second, task in pairs:
        sequences = made(task)
        np.testing.assert_allclose(
            first.predict(sequences), second.predict(sequences), atol=1e-9, err_msg=first.name
        )


def test_estimators_that_differ_do_not_agree():
    task = four_components(noise=0.3)
    sequences = made(task)
    estimators: list[AbstractEstimator] = [
        Zero(), GradientStep(2.0), DebiasedGradientStep(2.0), LeastSquares(), Ridge(0.3),
        EmpiricalPCR(2), SubspaceLeastSquares(task, 2), PopulationPCR(task, 2),
    ]  # fmt: skip
    predictions = np.stack([np.asarray(e.predict(sequences)) for e in estimators])
    gaps = np.sqrt(np.mean((predictions[:, None] - predictions[None]) ** 2, (-2, -1)))
    # Least squares and ridge differ by about σ²/(Nλ) of themselves, a few per cent.
    assert np.min(gaps[~np.eye(len(estimators), dtype=bool)]) > 5e-3
    assert len({e.name for e in estimators}) == len(estimators)


# Population components ------------------------------------------------------------------------


def test_shrunk_inverse_variances_have_the_closed_form():
    values = np.array([0.4, 0.3, 0.2, 0.1])
    for noise in (0.0, 0.1):
        gains = PopulationPCR(four_components(noise=noise), 4).gains
        expected = 1 / (values * (1 + 1 / 31) + (1 + noise) / 31)
        np.testing.assert_allclose(gains, expected, rtol=1e-12)
    exact = [155 / 69, 155 / 53, 155 / 37, 155 / 21]
    np.testing.assert_allclose(PopulationPCR(four_components(), 4).gains, exact, rtol=1e-12)


@pytest.mark.parametrize("normaliser", ["context", "tokens", "none"])
def test_no_other_strengths_have_a_smaller_risk(normaliser):
    task = general_task()
    estimator = PopulationPCR(task, (0, 2), normaliser)
    risk = exact_bilinear_risk(task, estimator)
    best = float(_risk_at(risk, estimator, np.ones(2)))
    for i in range(2):
        at = lambda factor: float(
            _risk_at(risk, estimator, np.where(np.arange(2) == i, factor, 1.0))
        )
        # a² e_dᵀ(second derivative)e_d / 2, by differences as wide as the strength itself.
        curvature = (at(2.0) - 2 * at(1.0) + at(0.0)) / 2
        for factor in (0.99, 1.01):
            worse = at(factor)
            # A quadratic: one per cent off costs the same on both sides.
            assert worse > best
            slope = (worse - best) / 1e-4
            assert slope == pytest.approx(curvature, rel=1e-6)


@eqx.filter_jit
def _risk_at(risk, estimator, factors):
    """The risk with other strengths."""
    return risk(eqx.tree_at(lambda e: e.gains, estimator, estimator.gains * factors))


def test_components_are_ordered_by_eigenvalue_and_can_be_chosen():
    task = LinearRegression([0.1, 0.4, 0.2, 0.3])
    np.testing.assert_allclose(np.abs(eigenvectors(task)), np.eye(4)[[1, 3, 2, 0]].T, atol=1e-12)
    chosen = np.diag(np.asarray(PopulationPCR(task, (1,)).coefficients()))
    np.testing.assert_allclose(chosen, [0, 0, 0, 155 / 53], atol=1e-12)
    assert PopulationPCR(task, (1, 3)).name == "PCR with components 1, 3"
    assert PopulationPCR(task, 1).name == "PCR with 1 component"
    assert PopulationPCR(task, 3).name == "PCR with 3 components"


# Risks ----------------------------------------------------------------------------------------


def test_reference_risks():
    task = four_components()
    levels = [1, 221 / 345, 27601 / 73140, 567769 / 2706180, 85873 / 631442]
    exact = [float(PopulationPCR(task, m).exact_risk(task)) for m in range(5)]
    np.testing.assert_allclose(exact, levels, rtol=1e-13)
    subspace = [float(SubspaceLeastSquares(task, m).exact_risk(task)) for m in range(5)]
    np.testing.assert_allclose(subspace, [1, 18 / 29, 9 / 28, 1 / 9, 0], atol=1e-13)
    noisy = four_components(noise=0.1)
    levels = [1.1, 0.743165467625899, 0.482417804074497, 0.317084470741164, 0.244991447485350]
    exact = [float(PopulationPCR(noisy, m).exact_risk(noisy)) for m in range(5)]
    np.testing.assert_allclose(exact, levels, rtol=1e-13)


def test_reference_risks_of_steps_on_white_inputs():
    """d = 5, L = 40, σ² = 0.1, w ~ N(0, I/d): the optima of plain and of debiased steps."""
    task = LinearRegression(np.ones(5), 40, noise=0.1, prior_covariance=np.eye(5) / 5)
    plain = GradientStep(1 / (1 + (5 + 1 + 0.5) / 40)).exact_risk(task)
    debiased = DebiasedGradientStep(1 / (1 + 1.1 * 5 / 40)).exact_risk(task)
    assert float(plain) == pytest.approx(0.239784946, abs=1e-9)
    assert float(debiased) == pytest.approx(0.242857143, abs=1e-9)
    assert float(LeastSquares().exact_risk(task)) == pytest.approx(0.1 + 0.1 * 5 / 34, rel=1e-12)


@cache
def general_sample() -> Sequences:
    return made(general_task(), 200_000)


def squared_errors(estimator: AbstractEstimator, sequences: Sequences) -> np.ndarray:
    return np.asarray(sequences.squared_error(estimator.predict(sequences)))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "case", ["zero", "step", "matrix", "debiased", "subspace", "least squares"]
)
def test_exact_risk_agrees_with_monte_carlo(case):
    task = general_task()
    estimator = CASES[case][0](task)
    sequences = general_sample()
    losses = squared_errors(estimator, sequences)
    error = losses.std() / np.sqrt(len(losses))
    exact = float(estimator.exact_risk(task))
    assert abs(losses.mean() - exact) < 4 * error
    # The test must be able to notice three per cent.
    assert 4 * error < 0.03 * exact


def test_exact_risk_on_a_mixture_and_on_random_labels():
    first, second = general_task(), general_task(noise=0.0, prior_covariance=np.zeros((3, 3)))
    mixture = Mixture((first, second), (0.4, 0.6))
    for estimator in (GradientStep(1.1), DebiasedGradientStep(1.1), SubspaceLeastSquares(first, 1)):
        parts = [float(estimator.exact_risk(task)) for task in (first, second)]
        expected = 0.4 * parts[0] + 0.6 * parts[1]
        assert float(estimator.exact_risk(mixture)) == pytest.approx(expected, rel=1e-12)
    probe = RandomLabels(first, [1.0, 0.0, 2.0], 1.5)
    assert float(Zero().exact_risk(probe)) == pytest.approx(0.5 + 4 * 0.3, rel=1e-12)
    assert DebiasedGradientStep(1.0).exact_risk(probe) is None
    assert LeastSquares().exact_risk(probe) is None


def test_exact_risk_says_where_it_does_not_exist():
    short = LinearRegression([0.4, 0.3, 0.2, 0.1], 3, noise=0.1)
    assert LeastSquares().exact_risk(short) is None  # fewer pairs than dimensions
    assert np.isinf(float(SubspaceLeastSquares(short, 2).exact_risk(short)))  # N = m + 1
    turned = general_task(covariance=np.diag([0.3, 0.2, 0.1]))
    assert SubspaceLeastSquares(turned, 1).exact_risk(general_task()) is None
    assert Bayes(short).exact_risk(short) is None and Ridge(1.0).exact_risk(short) is None


@pytest.mark.slow
def test_sampled_risk_agrees_with_the_exact_one_and_with_plain_squared_errors():
    task = general_task()
    estimator = SubspaceLeastSquares(task, 2)
    estimate = estimator.risk(task, jr.key(6), 8_000)
    exact = float(estimator.exact_risk(task))
    assert abs(float(estimate.value) - exact) < 4 * float(estimate.standard_error)
    sampled = SampledRisk(task)
    plain = jax.jit(lambda key: sampled.losses(estimator, key, 8_000))(jr.key(6))
    # Integrating out what cannot be predicted must pay.
    assert float(estimate.standard_error) < 0.8 * np.std(np.asarray(plain)) / np.sqrt(8_000)


@pytest.mark.slow
def test_bayes_beats_the_others():
    task = general_task()
    # With a tenth of them the smallest of the differences, that to ridge, is six of its errors.
    sequences = parts_of(general_sample(), slice(20_000))
    best = np.mean(squared_errors(Bayes(task), sequences))
    assert best == pytest.approx(np.mean(np.asarray(task.bayes_variance(sequences))), rel=0.05)
    for other in (Zero(), GradientStep(1.2), LeastSquares(), PopulationPCR(task, 3), Ridge(0.3)):
        # On the same sequences the difference is far less noisy than the risks themselves.
        assert best < np.mean(squared_errors(other, sequences))


@pytest.mark.parametrize(
    "build, words",
    [
        (lambda: PopulationPCR(four_components(), 5), "must not exceed the dimension, 4"),
        (lambda: PopulationPCR(four_components(), (0, 0)), "listed once"),
        (lambda: PopulationPCR(four_components(), (4,)), "must not exceed the dimension, 3"),
        (lambda: SubspaceLeastSquares(four_components(), -1), "whole number"),
        (lambda: EmpiricalPCR(-2), "whole number"),
        (lambda: Zero().risk(four_components(), jr.key(0), 1), "at least 2"),
    ],
)
def test_bad_input_is_refused(build, words):
    with pytest.raises(ValueError, match=words):
        build()
