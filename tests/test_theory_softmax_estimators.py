"""Exact risks of steps, least squares, ridge and Bayes, their limits, and a bound on all heads."""

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats

from iclflow import theory
from iclflow.tasks import LinearRegression, isotropic

SETTINGS = [(5, 40, 0.1), (10, 20, 0.1), (4, 6, 1.0)]


def sampled(weigh, dim: int, length: int, noise: float, count: int, seed: int = 0):
    """Mean risk of ŷ = c·y and its standard error, β and all noise integrated out.

    Given inputs X and query q the risk is σ² + |q − Xᵀc|²/d + σ²|c|².
    """
    rng = np.random.default_rng(seed)
    x, q = rng.normal(size=(count, length, dim)), rng.normal(size=(count, dim))
    c = weigh(x, q)
    miss = q - np.einsum("pl,pld->pd", c, x)
    risks = noise + np.sum(miss**2, 1) / dim + noise * np.sum(c**2, 1)
    return risks.mean(), risks.std(ddof=1) / np.sqrt(count)


def plain(step):
    return lambda x, q: step * np.einsum("pld,pd->pl", x, q) / x.shape[1]


def centred(step):
    def weigh(x, q):
        scores = np.einsum("pld,pd->pl", x, q)
        return step * (scores - scores.mean(1, keepdims=True)) / x.shape[1]

    return weigh


def ridge(penalty):
    def weigh(x, q):
        gram = np.einsum("pld,ple->pde", x, x) + penalty * np.eye(x.shape[2])
        return np.einsum("pld,pd->pl", x, np.linalg.solve(gram, q[..., None])[..., 0])

    return weigh


# Steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS)
def test_risks_of_steps_agree_with_sampled_contexts(setting):
    for step in (0.5, 0.9):
        for weigh, risk in ((plain, theory.gradient_step_risk), (centred, theory.debiased_risk)):
            value, error = sampled(weigh(step), *setting, count=20_000)
            assert error < 0.01 * value
            assert abs(value - risk(isotropic(*setting), step)) < 4 * error


@pytest.mark.parametrize(
    ("setting", "step", "centred_step"),
    [
        ((5, 40, 0.1), 0.2397849462, 0.2428571429),
        ((10, 20, 0.1), 0.475, 0.4870967742),
        ((4, 6, 1.0), 1.6, 1.6428571429),
    ],
)
def test_best_steps_are_minima_with_the_reference_risks(setting, step, centred_step):
    pairs = (
        (theory.gradient_step_optimum, theory.gradient_step_risk, step),
        (theory.debiased_optimum, theory.debiased_risk, centred_step),
    )
    for optimum, risk, reference in pairs:
        best = optimum(isotropic(*setting))
        np.testing.assert_allclose(best.risk, reference, atol=1e-10)
        found = scipy.optimize.minimize_scalar(lambda step: risk(isotropic(*setting), step))
        # A parabola: the minimiser finds its bottom to the root of rounding, its value to rounding.
        np.testing.assert_allclose(best.step, found.x, rtol=1e-6)
        np.testing.assert_allclose(best.risk, found.fun, rtol=1e-13)


def test_centring_costs_exactly_one_sample():
    for dim, length, noise in [*SETTINGS, (1, 2, 0.0), (7, 3, 2.0)]:
        with_all = theory.debiased_optimum(isotropic(dim, length, noise)).risk
        with_one_less = theory.gradient_step_optimum(isotropic(dim, length - 1, noise)).risk
        np.testing.assert_allclose(with_all, with_one_less, rtol=1e-14)


def test_step_risks_are_those_of_the_linear_theory():
    task = isotropic(5, 40, 0.1)
    assert theory.Setting.of(task) == theory.Setting(5, 40, 0.1)
    best = theory.gradient_step_optimum(task)
    np.testing.assert_allclose(best.risk, theory.optimal_loss(task), rtol=1e-13)
    np.testing.assert_allclose(best.step * np.eye(5), theory.optimal_matrix(task), atol=1e-13)


# Wishart matrices -----------------------------------------------------------------------------

SIZES = [(1, 1), (1, 7), (2, 2), (3, 3), (5, 40), (10, 20), (20, 10), (7, 12), (60, 60), (10, 5000)]


@pytest.mark.parametrize(("dim", "length"), SIZES)
def test_wishart_spectrum_has_the_known_moments(dim, length):
    spectrum = theory.wishart_spectrum(dim, length)

    def average(power):
        return spectrum.weights @ spectrum.values**power

    # Rounding alone: the rule is exact.
    np.testing.assert_allclose(average(0), min(dim, length), rtol=1e-13)
    np.testing.assert_allclose(average(1), dim * length, rtol=1e-13)
    np.testing.assert_allclose(average(2), dim * length * (dim + length + 1), rtol=1e-13)
    assert spectrum.zeros == max(dim - length, 0)
    assert spectrum.weights.min() >= 0
    small, large = sorted((dim, length))
    if large > small + 1:
        np.testing.assert_allclose(average(-1), small / (large - small - 1), rtol=1e-12)


@pytest.mark.parametrize("penalty", [1e-10, 1e-3, 0.5, 40.0])
def test_one_dimensional_resolvents_agree_with_chi_square_integrals(penalty):
    for length in (1, 2, 9):
        density = scipy.stats.chi2(length).pdf
        breaks = sorted({min(penalty, 1.0), 1.0, 30.0})
        for power, trace in enumerate(theory.resolvent_traces(1, length, penalty), 1):
            # The square removes the singularity of the density at 0.
            found, _ = scipy.integrate.quad(
                lambda y: 2 * y * density(y * y) / (y * y + penalty) ** power,
                0,
                9.0,
                points=[b**0.5 for b in breaks],
                epsrel=1e-12,
                epsabs=0,
                limit=500,
            )
            # The integral stops at χ² = 81, beyond which the density is below 1e-15.
            np.testing.assert_allclose(trace, found, rtol=1e-8)


@pytest.mark.parametrize(
    ("dim", "length", "penalty"), [(3, 5, 0.3), (4, 4, 0.1), (6, 3, 0.7), (5, 2, 2.0)]
)
def test_ridge_risk_agrees_with_sampled_contexts(dim, length, penalty):
    value, error = sampled(ridge(penalty), dim, length, 0.2, count=60_000)
    assert error < 0.01 * value
    assert abs(value - theory.ridge_risk(isotropic(dim, length, 0.2), penalty)) < 4 * error


def test_bayes_is_the_best_ridge():
    for dim, length, noise in [(5, 40, 0.1), (10, 4, 0.5), (3, 3, 0.01)]:
        found = scipy.optimize.minimize_scalar(
            lambda log: theory.ridge_risk(isotropic(dim, length, noise), np.exp(log)),
            bracket=(-3, 1),
        )
        bayes = theory.bayes_risk_isotropic(isotropic(dim, length, noise))
        np.testing.assert_allclose(np.exp(found.x), dim * noise, rtol=1e-5)
        np.testing.assert_allclose(found.fun, bayes, rtol=1e-12)
        best = theory.ridge_risk(isotropic(dim, length, noise), dim * noise)
        np.testing.assert_allclose(best, bayes, rtol=1e-13)


def test_bayes_risks_agree_with_long_simulations():
    # Means and standard errors of simulations that integrate out β and the noise.
    for setting, value, error in [
        ((5, 40, 0.1), 0.1144550, 1.9e-6),
        ((10, 20, 0.1), 0.190150, 1.5e-5),
        ((20, 40, 0.1), 0.187311, 1.2e-5),
        ((10, 100, 0.1), 0.1110950, 6e-7),
    ]:
        assert abs(theory.bayes_risk_isotropic(isotropic(*setting)) - value) < 4 * error


def test_without_noise_bayes_misses_what_the_context_does_not_span():
    for dim, length in [(10, 4), (4, 10), (6, 6)]:
        limit = max(1 - length / dim, 0)
        assert theory.bayes_risk_isotropic(isotropic(dim, length, 0.0)) == limit
        small = theory.bayes_risk_isotropic(isotropic(dim, length, 1e-9))
        # At L = d the smallest eigenvalue may be as small as the noise: an error of order σ.
        np.testing.assert_allclose(small, limit, atol=1e-3 if dim == length else 1e-7)


def test_least_squares_is_ridge_without_penalty():
    for dim, length, noise in [(5, 40, 0.1), (3, 9, 1.0)]:
        risk = theory.least_squares_risk(isotropic(dim, length, noise))
        # The risk is smooth at zero penalty: an error of the order of the penalty.
        np.testing.assert_allclose(
            theory.ridge_risk(isotropic(dim, length, noise), 1e-9), risk, rtol=1e-8
        )
    np.testing.assert_allclose(
        theory.least_squares_risk(isotropic(5, 40, 0.1)), 0.1147058824, atol=1e-10
    )


# Limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "bayes"), [(0.125, 0.114056677), (0.5, 0.184428877), (0.1, 0.110975773)]
)
def test_proportional_limits_have_the_reference_values(ratio, bayes):
    risks = theory.proportional_risks(ratio, 0.1)
    np.testing.assert_allclose(risks.bayes, bayes, atol=1e-9)
    signal = (1 - ratio) / ratio
    closed = (0.1 - signal + np.sqrt((signal + 0.1) ** 2 + 0.4)) / 2
    np.testing.assert_allclose(risks.bayes, closed, rtol=1e-12)


@pytest.mark.parametrize("ratio", [0.25, 1.5, 3.0])
def test_finite_risks_approach_the_proportional_limits(ratio):
    limit = theory.proportional_risks(ratio, 0.1)
    penalty = 0.3
    ridge_limit = theory.ridge_risk_limit(penalty, ratio, 0.1)
    gaps = []
    for length in (48, 96, 192):
        dim = int(ratio * length)
        gaps.append(
            (
                theory.gradient_step_optimum(isotropic(dim, length, 0.1)).risk - limit.step,
                theory.any_heads_bound(isotropic(dim, length, 0.1)) - limit.step,
                theory.bayes_risk_isotropic(isotropic(dim, length, 0.1)) - limit.bayes,
                theory.ridge_risk(isotropic(dim, length, 0.1), penalty * length) - ridge_limit,
            )
        )
    # Corrections of order 1/L: each doubling halves the gap.
    np.testing.assert_allclose(np.abs(gaps[1]) / np.abs(gaps[0]), 0.5, atol=0.03)
    np.testing.assert_allclose(np.abs(gaps[2]) / np.abs(gaps[1]), 0.5, atol=0.03)


def test_limits_of_ridge_with_unit_noise():
    # σ² = 1 and signal 1: excess risks at penalties .05 and 5, five decimals.
    table = {0.05: (0.04988, 0.69869), 1.0: (1.88889, 0.76711), 8.0: (1.01556, 0.94287)}
    for ratio, expected in table.items():
        found = [theory.ridge_risk_limit(penalty, ratio, 1.0) - 1 for penalty in (0.05, 5.0)]
        np.testing.assert_allclose(found, expected, atol=6e-6)


def test_without_noise_the_limit_of_bayes_is_what_is_not_spanned():
    assert theory.proportional_risks(0.5, 0.0).bayes == 0
    np.testing.assert_allclose(theory.proportional_risks(4.0, 0.0).bayes, 0.75)
    np.testing.assert_allclose(theory.proportional_risks(4.0, 1e-12).bayes, 0.75, rtol=1e-10)


def test_distance_from_bayes_is_set_by_the_noise():
    np.testing.assert_allclose(theory.excess_over_bayes(isotropic(5, 40, 0.1)), 9.8829, atol=1e-4)
    for dim, noise in [(5, 0.1), (20, 0.1), (5, 2.0)]:
        far = theory.excess_over_bayes(isotropic(dim, 1_000_000, noise))
        # Corrections of order d/L.
        np.testing.assert_allclose(far, 1 + 1 / noise + 1 / (dim * noise), rtol=1e-4)


# The bound ------------------------------------------------------------------------------------


def test_bound_on_any_number_of_heads_has_the_reference_values():
    for setting, value in [
        ((5, 40, 0.1), 0.20533774),
        ((10, 20, 0.1), 0.44810663),
        ((10, 100, 0.1), 0.19243169),
    ]:
        np.testing.assert_allclose(theory.any_heads_bound(isotropic(*setting)), value, atol=1e-8)


@pytest.mark.parametrize("setting", [(5, 40, 0.1), (2, 1, 0.0), (3, 5.5, 1.0), (10, 1e6, 0.1)])
def test_bound_agrees_with_an_integral_over_chi_square(setting):
    dim, length, noise = setting
    rest = dim - 1 + dim * noise
    chi = scipy.stats.chi2(length)
    edges = chi.ppf([1e-15, 0.5, 1 - 1e-15])
    pieces = [
        scipy.integrate.quad(lambda x: chi.pdf(x) * rest / (x + rest), a, b, epsrel=1e-12)[0]
        for a, b in zip(edges[:-1], edges[1:])
    ]
    # The tails that are left out hold 2e-15 of the mass.
    np.testing.assert_allclose(
        theory.any_heads_bound(theory.Setting(*setting)) - noise, sum(pieces), rtol=1e-7
    )


def test_softmax_cannot_beat_linear_attention_by_what_a_results_table_says():
    # Ratios of linear attention to multi-head softmax in a table of results, and what is possible.
    for (dim, length), stated, most in [
        ((10, 20), 0.061 / 0.052, 1.0914),
        ((20, 40), 0.037 / 0.031, 1.0450),
        ((10, 100), 0.014 / 0.011, 1.1801),
    ]:
        bound = theory.linear_over_softmax_bound(isotropic(dim, length))
        np.testing.assert_allclose(bound, most, atol=5e-5)
        assert stated > bound
        for noise in (0.0, 0.003, 0.1, 1.0, 30.0):
            step = theory.gradient_step_optimum(isotropic(dim, length, noise)).risk
            heads = theory.any_heads_bound(isotropic(dim, length, noise))
            for counted in (0.0, noise):  # with and without the noise of the query
                assert (step - counted) / (heads - counted) <= bound * (1 + 1e-12)


def test_one_dimension_without_noise_has_no_bound():
    assert theory.any_heads_bound(isotropic(1, 10, 0.0)) == 0
    assert theory.linear_over_softmax_bound(isotropic(1, 10)) == np.inf


# Refusals -------------------------------------------------------------------------------------


def test_a_setting_needs_numbers(unchecked):
    with pytest.raises(ValueError, match="`dim` = 'a': must be finite and at least 1"):
        theory.Setting("a", 40, 0.1)
    with pytest.raises(ValueError, match="`noise` = None: must be finite and at least 0"):
        theory.Setting(5, 40, None)


def test_numbers_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="`noise` = -1"):
        theory.debiased_risk(isotropic(5, 40, -1.0), 0.5)
    with pytest.raises(ValueError, match="`dim` = 0"):
        theory.any_heads_bound(isotropic(0, 40, 0.1))
    with pytest.raises(ValueError, match="finite from `length` = `dim` \\+ 2"):
        theory.least_squares_risk(isotropic(5, 6, 0.1))
    with pytest.raises(ValueError, match="`penalty` = 0"):
        theory.ridge_risk(isotropic(5, 6, 0.1), 0.0)
    with pytest.raises(ValueError, match="`ratio` = 0"):
        theory.proportional_risks(0.0, 0.1)
    with pytest.raises(ValueError, match="`noise` = 0"):
        theory.excess_over_bayes(isotropic(5, 40, 0.0))


def test_tasks_that_are_not_isotropic_are_refused():
    with pytest.raises(ValueError, match="not isotropic"):
        theory.Setting.of(LinearRegression([1.0, 1.0], 5))
    with pytest.raises(ValueError, match="one context length"):
        theory.Setting.of(isotropic(2, (3, 4), 0.1))
    with pytest.raises(ValueError, match="noiseless query"):
        theory.Setting.of(isotropic(2, 3, 0.1, noisy_query=False))


def test_mean_square_attention_is_that_of_drawn_contexts():
    rng = np.random.default_rng(0)
    sizes = np.sqrt(rng.chisquare(5, 40_000))
    weights = np.exp(0.35 * sizes[:, None] * rng.standard_normal((40_000, 40)))
    squares = np.sum(weights**2, 1) / np.sum(weights, 1) ** 2
    error = squares.std() / len(squares) ** 0.5
    found = theory.mean_square_attention(isotropic(5, 40), 0.35)
    assert abs(found - squares.mean()) < 4 * error
