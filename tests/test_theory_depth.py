"""Stacks of scalar layers: moments, risks, optima, and their closed forms."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import scipy.special

from iclflow.errors import Refusal
from iclflow.tasks import LinearRegression, isotropic
from iclflow.theory import depth, loss_of_matrix
from iclflow.theory.depth import Sizes, Spectrum

# White inputs of five coordinates, twenty pairs, no noise: the setting of arXiv 2306.00297.
WHITE = LinearRegression(np.ones(5), context=20)
# The averages over a spectrum are rules that are exact to about this share.
RULE = 1e-12


def noisy(noise: float, dim: int = 5, length: int = 20) -> LinearRegression:
    """White inputs with E(w·x)² = 1."""
    return isotropic(dim, context=length, noise=noise)


def wishart(dim: int, length: int, count: int, seed: int) -> np.ndarray:
    """Sampled S = XXᵀ/N."""
    x = np.random.default_rng(seed).normal(size=(count, dim, length))
    return x @ np.swapaxes(x, 1, 2) / length


# Moments ----------------------------------------------------------------------------------------


def test_moments_are_the_known_polynomials_of_dimension_and_length():
    for d, n in itertools.product((1, 2, 5, 9), (1, 3, 20)):
        known = (
            1,
            1,
            1 + Fraction(d + 1, n),
            1 + Fraction(3 * (d + 1), n) + Fraction(d**2 + 3 * d + 4, n**2),
            1 + Fraction(6 * (d + 1), n) + Fraction(6 * d**2 + 17 * d + 21, n**2)
            + Fraction(d**3 + 6 * d**2 + 21 * d + 20, n**3),
        )  # fmt: skip
        assert depth.white_moments(d, n, 4) == known


def test_moments_have_their_reference_values_and_those_of_the_spectral_density():
    moments = depth.white_moments(5, 20, 16)
    assert [str(m) for m in moments[2:7]] == [
        *("13/10", "201/100", "349/100", "65853/10000", "662607/50000")
    ]
    spectrum = Spectrum.of(WHITE)
    rule = [spectrum.mean(spectrum.values**k) for k in range(17)]
    # de Bruijn's formula shares nothing with the loop equation; it is cut where the density ends.
    np.testing.assert_allclose(rule, [float(m) for m in moments], rtol=1e-10)


def test_moments_of_one_coordinate_are_those_of_chi_squared():
    moments = depth.white_moments(1, 7, 12)
    for k, moment in enumerate(moments):
        product = np.prod([Fraction(7 + 2 * j, 7) for j in range(k)], initial=Fraction(1))
        assert moment == product


def test_products_of_traces_agree_with_sampled_matrices():
    s = 6 * wishart(3, 6, 40_000, 0)
    traces = {k: np.trace(np.linalg.matrix_power(s, k), axis1=1, axis2=2) for k in (1, 2, 3)}
    for powers in ((2,), (1, 1), (2, 1), (3, 2), (2, 1, 1)):
        sampled = np.prod([traces[k] for k in powers], axis=0)
        error = sampled.std() / np.sqrt(len(sampled))
        assert abs(sampled.mean() - depth.trace_moment(3, 6, powers)) < 4 * error


def test_products_of_traces_of_gaussian_matrices_agree_with_sampled_ones():
    a = np.random.default_rng(1).normal(size=(40_000, 3, 3))
    g = (a + np.swapaxes(a, 1, 2)) / np.sqrt(2)
    for powers in ((2,), (4,), (2, 2), (3, 1), (4, 2)):
        traces = [np.trace(np.linalg.matrix_power(g, k), axis1=1, axis2=2) for k in powers]
        sampled = np.prod(traces, axis=0)
        error = sampled.std() / np.sqrt(len(sampled))
        assert abs(sampled.mean() - depth.gaussian_trace_moment(3, powers)) < 4 * error


# The risk ---------------------------------------------------------------------------------------


def test_risk_has_its_reference_values():
    near = lambda task, steps, value, to: (
        pytest.approx(value, abs=to) == depth.stack_risk(task, steps)
    )
    assert near(noisy(0), [0.5, 1.2], 0.073, 1e-13)
    assert near(noisy(0.25), [0.5, 1.2], 0.1331, 1e-13)
    assert near(noisy(0.1), [0.4, 0.7, 1.7], 0.057019330960, 1e-12)
    assert near(noisy(0.2, 6, 3), [0.3, 0.2], 0.674133333333, 1e-12)


def test_risk_of_one_layer_is_the_loss_of_the_matrix():
    # That of linear.md, from E[ββᵀ], at any scale of inputs and task vectors.
    task = LinearRegression(
        np.full(3, 0.5), 7, noise=0.3, prior_covariance=2.0 * np.eye(3), noisy_query=True
    )
    for step in (0.0, 0.4, 1.7):
        expected = loss_of_matrix(task, step * np.eye(3))
        assert depth.stack_loss(task, [step]) == pytest.approx(expected, rel=RULE)


@pytest.mark.parametrize(("dim", "length", "noise"), [(5, 20, 0.5), (6, 3, 0.2)])
def test_risk_is_that_of_layers_run_on_sampled_contexts(dim, length, noise):
    # The recursion of the layers themselves, with labels and queries drawn.
    rng, count, steps = np.random.default_rng(2), 40_000, np.array([0.3, 0.7])
    x = rng.normal(size=(count, length, dim))
    w = rng.normal(size=(count, dim)) / np.sqrt(dim)
    y = np.einsum("cnd,cd->cn", x, w) + np.sqrt(noise) * rng.normal(size=(count, length))
    found = np.zeros_like(w)
    for step in steps:
        left = y - np.einsum("cnd,cd->cn", x, found)
        found = found + step * np.einsum("cn,cnd->cd", left, x) / length
    squares = np.sum((w - found) ** 2, axis=1)
    error = squares.std() / np.sqrt(count)
    assert abs(squares.mean() - depth.stack_risk(noisy(noise, dim, length), steps)) < 4 * error


def test_force_and_hessian_are_derivatives_of_the_risk():
    task, steps, width = noisy(0.4), np.array([0.3, 0.8, 1.1]), 1e-4
    moves = width * np.eye(3)
    risk = lambda at: depth.stack_risk(task, at)
    slope = [(risk(steps + move) - risk(steps - move)) / (2 * width) for move in moves]
    # Central differences: width² times third derivatives of order 10.
    np.testing.assert_allclose(-2 * depth.stack_force(task, steps), slope, atol=1e-6)
    force = lambda at: depth.stack_force(task, at)
    rows = [(force(steps + move) - force(steps - move)) / (2 * width) for move in moves]
    np.testing.assert_allclose(depth.stack_hessian(task, steps), -np.array(rows), atol=1e-6)


def test_whitened_tasks_have_the_losses_of_the_tasks_in_disguise():
    # Ahn's: M = Λ⁻¹, with Γ_l = γ_lΛ⁻¹. The noise and the query are those of the task.
    rotation = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    covariance = rotation @ np.diag([1.0, 0.5, 0.25]) @ rotation.T
    inverse = np.linalg.inv(covariance)
    task = LinearRegression(
        covariance=covariance, prior_covariance=inverse, context=9, noise=0.2, noisy_query=False
    )
    white = depth.whitened(task)
    for step in (0.3, 0.9):
        expected = loss_of_matrix(task, step * inverse)
        assert depth.stack_loss(white, [step]) == pytest.approx(expected, rel=1e-11)


# The optimum ------------------------------------------------------------------------------------

RATIONAL = {1: "3/13", 2: "359/4969", 3: "2427729/90852389", 4: "19574812416097/1781064756978687"}
DEEPER = {5: 0.004956259072, 6: 0.002406887252, 8: 0.000680647327, 10: 0.000230072360}


def test_rational_optima_have_their_reference_values():
    for layers, value in RATIONAL.items():
        assert str(depth.rational_optimum(WHITE, layers)) == value
    for layers, value in DEEPER.items():
        assert float(depth.rational_optimum(WHITE, layers)) == pytest.approx(value, abs=1e-12)
    others = {(5, 40, 2): 0.022291242033, (5, 40, 3): 0.004605632416, (5, 5, 3): 0.324059121395,
              (10, 5, 3): 0.557936696095}  # fmt: skip
    for (dim, length, layers), value in others.items():
        found = depth.rational_optimum(noisy(0, dim, length), layers)
        assert float(found) == pytest.approx(value, abs=1e-12)
    assert depth.rational_optimum(noisy(0, 5, 5), 2) == Fraction(892, 2237)
    assert depth.rational_optimum(noisy(0, 10, 5), 2) == Fraction(1193, 1998)


@pytest.mark.parametrize(("dim", "length"), [(5, 20), (5, 5), (10, 5), (1, 20), (3, 200)])
def test_floating_point_optima_agree_with_rational_ones_at_every_depth(dim, length):
    task = noisy(0, dim, length)
    for layers in range(1, 9):
        exact = float(depth.rational_optimum(task, layers))
        # At d = 1 the rule is cut early for its degree: 3e-12 at eight layers.
        assert depth.stack_bound(task, layers) == pytest.approx(exact, rel=1e-11)


def test_best_steps_are_the_reference_ones_and_no_descent_finds_lower():
    known = {
        2: (0.515371, 1.249572),
        3: (0.422409, 0.689126, 1.714217),
        4: (0.362057, 0.520499, 0.888982, 2.138845),
    }
    for layers, steps in known.items():
        best = depth.optimal_stack(WHITE, layers)
        np.testing.assert_allclose(best.steps, steps, atol=6e-7)
        assert depth.stack_risk(WHITE, best.steps) == pytest.approx(best.risk, rel=RULE)
        assert best.exact and best.bayes == pytest.approx(0, abs=1e-15)
    half = depth.stack_hessian(WHITE, depth.optimal_stack(WHITE, 2).steps)
    np.testing.assert_allclose(half, np.diag([1.7261, 0.1552]), atol=6e-5)
    # A polynomial with p(0) = 1 of the least E p², by least squares in its coefficients.
    spectrum = Spectrum.of(WHITE)
    powers = spectrum.values[:, None] ** np.arange(1, 4)
    root = np.sqrt(spectrum.weights)
    _, left, *_ = np.linalg.lstsq(root[:, None] * powers, -root)
    assert depth.stack_bound(WHITE, 3) == pytest.approx(left[0], rel=1e-10)


def test_bound_with_noise_has_its_reference_values_and_is_that_of_any_polynomial():
    known = {(0.1, 2): 0.0963826405, (0.1, 3): 0.0557253965, (0.1, 4): 0.0423944975,
             (0.25, 4): 0.0851218, (1.0, 2): 0.2650954}  # fmt: skip
    for (noise, layers), value in known.items():
        task = noisy(noise)
        digits = 1e-7 if noise > 0.1 else 1e-10
        assert depth.stack_bound(task, layers) == pytest.approx(value, abs=digits)
        spectrum = Spectrum.of(task)
        s, c = spectrum.values, spectrum.cost
        inside = s > 0
        s, weights = s[inside], spectrum.weights[inside]
        # p = 1 − s q: the risk E[(1 − s q)² + c s q²] is linear least squares in q.
        powers = s[:, None] ** np.arange(layers)
        rows = np.concatenate([s[:, None] * powers, np.sqrt(c * s)[:, None] * powers])
        goal = np.concatenate([np.ones_like(s), np.zeros_like(s)])
        root = np.sqrt(np.tile(weights, 2))
        _, left, *_ = np.linalg.lstsq(root[:, None] * rows, root * goal)
        assert depth.stack_bound(task, layers) == pytest.approx(left[0], rel=1e-9)


def test_real_steps_reach_the_bound_where_the_formula_says_so():
    for layers in (2, 3, 4):
        best = depth.optimal_stack(noisy(0.1), layers)
        assert depth.stack_risk(noisy(0.1), best.steps) == pytest.approx(best.bound, rel=RULE)
    for noise, layers in ((0.25, 4), (1.0, 2)):
        with pytest.raises(depth.NotReached, match="best_steps"):
            depth.optimal_stack(noisy(noise), layers)
    # The numerator c + s u of p has a complex pair of zeros exactly then.
    for noise, layers in ((0.1, 4), (0.25, 4), (0.8, 2), (0.9, 2)):
        spectrum = Spectrum.of(noisy(noise))
        nodes, c = depth.gauss_nodes(spectrum, layers), spectrum.cost
        u = np.polynomial.Polynomial.fromroots(nodes)
        whole = c * u(-c) + np.polynomial.Polynomial([0, 1]) * u
        real = np.max(np.abs(whole.roots().imag)) < 1e-9
        assert depth.best_steps(spectrum, layers).exact == real


@pytest.mark.slow
def test_best_steps_with_noise_merge_in_pairs():
    # σ² = ¼: merged pairs; σ² = 1: the loop.
    merged = {3: (0.416, 0.768, 1.317), 4: (0.365, 0.490, 1.251, 1.251)}
    for layers, steps in merged.items():
        np.testing.assert_allclose(depth.best_steps(noisy(0.25), layers).steps, steps, atol=6e-4)
    assert depth.best_steps(noisy(0.25), 4).risk == pytest.approx(0.0851842, abs=6e-8)
    two = depth.best_steps(noisy(1.0), 2)
    np.testing.assert_allclose(two.steps, 0.65878342, atol=2e-8)
    assert two.risk == pytest.approx(0.26563260, abs=6e-9) and not two.exact
    known = {1: 0.354839, 3: 0.258119, 4: 0.255716, 6: 0.253775}
    for layers, value in known.items():
        assert depth.best_steps(noisy(1.0), layers).risk == pytest.approx(value, abs=6e-7)


@pytest.mark.slow
def test_best_steps_of_many_layers_have_their_reference_values():
    six = depth.best_steps(noisy(0.25), 6).steps
    np.testing.assert_allclose(six, [0.297, *[0.398] * 3, *[1.466] * 2], atol=6e-4)
    twelve = depth.best_steps(noisy(0.25), 12)
    assert np.ptp(twelve.steps) < 1e-4  # the loop
    assert depth.best_steps(noisy(1.0), 16).risk == pytest.approx(0.251591, abs=6e-7)
    # Steps placed where the density is tiny beat the best stopped flow, .034728.
    assert depth.best_steps(noisy(0.1), 16).risk == pytest.approx(0.034444, abs=6e-7)


def test_bayes_and_stopped_flow_have_their_reference_values():
    known = {0.1: (0.033958, 8.684, 0.034728), 0.25: (0.079287, 5.1429, 0.0817732),
             1.0: (0.243554, 1.9949, 0.2504291)}  # fmt: skip
    for noise, (bayes, time, risk) in known.items():
        assert depth.stack_bayes(noisy(noise)) == pytest.approx(bayes, abs=6e-7)
        found = depth.stopped_flow(noisy(noise))
        assert found == pytest.approx((time, risk), abs=6e-4 if noise == 0.1 else 6e-5)
        assert found[1] == pytest.approx(risk, abs=6e-7)
    # Noise that hides everything: one small step, 1 − E[s]²/E[s(s + c)] to leading order.
    assert depth.stopped_flow(noisy(1e4))[1] == pytest.approx(1 - 1 / (1.3 + 2500), rel=1e-6)
    # Bayes is ridge regression, sampled: tr over coordinates of the posterior covariance.
    s = wishart(5, 20, 20_000, 4)
    traces = np.mean(1 / (1 + np.linalg.eigvalsh(s) * 20 / (5 * 0.25)), axis=1)
    error = traces.std() / np.sqrt(len(traces))
    assert abs(traces.mean() - depth.stack_bayes(noisy(0.25))) < 4 * error


def test_deep_loops_at_high_noise_tend_to_stopped_flow_and_not_to_bayes():
    task = noisy(1.0)
    limit, bayes = depth.stopped_flow(task)[1], depth.stack_bayes(task)
    gaps = [depth.tied_loop(task, layers).risk - limit for layers in (16, 64, 256)]
    # The first correction to (1 − a/L)^L is of order 1/L.
    np.testing.assert_allclose([gaps[0] / gaps[1], gaps[1] / gaps[2]], 4, rtol=0.05)
    assert limit - bayes > 0.006 and depth.distance_from_bayes(task, 16) < 1e-3 * limit


# Closed forms -----------------------------------------------------------------------------------


def test_proportional_limit_is_the_optimum_of_its_density():
    for ratio, cost in itertools.product((0.2, 1.0, 2.5), (0.0, 0.05, 1.0)):
        spectrum = Spectrum.proportional(ratio, cost)
        for layers in (1, 2, 5):
            exact = depth.stack_bound(spectrum, layers)
            assert depth.proportional_bound(ratio, layers, cost) == pytest.approx(exact, rel=1e-9)
            gap = depth.distance_from_bayes(spectrum, layers)
            assert depth.proportional_distance(ratio, layers, cost) == pytest.approx(gap, rel=1e-9)
    for layers, value in ((1, 3), (2, 7), (3, 15), (4, 31)):
        assert 1 / depth.proportional_bound(0.5, layers) == pytest.approx(value, rel=1e-14)
        nodes = depth.gauss_nodes(Spectrum.proportional(0.5), layers)
        np.testing.assert_allclose(1 / nodes[::-1], depth.proportional_steps(0.5, layers))
    loops = [depth.tied_loop(Spectrum.proportional(0.5), layers).risk for layers in (1, 2, 3, 4)]
    np.testing.assert_allclose(loops, [1 / 3, 5 / 27, 0.1193416, 0.0827618], atol=6e-8)


def test_proportional_limit_is_approached_as_one_over_the_dimension():
    gaps = [
        depth.stack_bound(noisy(0.3, dim, 2 * dim), 3) - depth.proportional_bound(0.5, 3, 0.15)
        for dim in (10, 20, 40)
    ]
    np.testing.assert_allclose([gaps[0] / gaps[1], gaps[1] / gaps[2]], 2, rtol=0.1)


def test_rates_at_equal_dimension_and_length():
    # 1/(L + 1) for untied layers, 1/√(πL) for the loop, up to its next order, 1/L.
    spectrum = Spectrum.proportional(1.0)
    assert depth.proportional_bound(1.0, 64) == pytest.approx(1 / 65, rel=1e-12)
    loop = depth.tied_loop(spectrum, 64).risk
    assert loop == pytest.approx(0.070384, abs=3e-6)
    assert loop == pytest.approx(1 / np.sqrt(np.pi * 64), rel=0.01)


def test_one_coordinate_has_laguerre_steps_and_a_binomial_risk():
    for length, layers in ((20, 3), (4, 6), (1, 2)):
        found = depth.single_coordinate(length, layers)
        task = noisy(0, 1, length)
        assert found.risk == depth.rational_optimum(task, layers)
        assert float(1 / found.risk) == pytest.approx(
            scipy.special.binom(length / 2 + layers, layers)
        )
        best = depth.optimal_stack(task, layers)
        np.testing.assert_allclose(found.steps, best.steps, rtol=1e-8)
    assert depth.single_coordinate(20, 3).risk == Fraction(1, 286)


def test_long_contexts_have_the_norms_of_gaussian_matrices():
    for dim in (1, 2, 5):
        assert depth.long_context_factor(dim, 1) == dim + 1
        assert depth.long_context_factor(dim, 2) == dim**2 + 3 * dim + 4
        for layers in (1, 2, 3):
            scaled = [
                float(depth.rational_optimum(Sizes(dim, length, 1.0, 1.0, 0.0, 0.0), layers))
                * length**layers
                for length in (10**5, 2 * 10**5)
            ]
            # Corrections are of order 1/N: extrapolated, of order 1/N².
            limit = float(depth.long_context_factor(dim, layers))
            assert 2 * scaled[1] - scaled[0] == pytest.approx(limit, rel=1e-6)


def test_shared_steps_of_a_long_context_cost_a_catalan_number():
    # R of the loop over R_L as α = N/d → ∞, in the proportional limit: 1, 2, 5.
    for layers, catalan in ((1, 1), (2, 2), (3, 5)):
        spectrum = Spectrum.proportional(1e-4)
        ratio = depth.tied_loop(spectrum, layers).risk / depth.proportional_bound(1e-4, layers)
        assert ratio == pytest.approx(catalan, rel=2e-3)


# Bad input --------------------------------------------------------------------------------------


def test_bad_input_is_refused_in_a_sentence(unchecked):
    cases = {
        "`layers` = 0": lambda: depth.optimal_stack(WHITE, 0),
        "`layers` = 13": lambda: depth.rational_optimum(WHITE, 13),
        "has noise": lambda: depth.rational_optimum(noisy(0.1), 2),
        "not white": lambda: depth.stack_risk(LinearRegression([1.0, 0.5], 9), [1.0]),
        "must have one context length": lambda: depth.stack_risk(
            LinearRegression(np.ones(2), (3, 4)), [1.0]
        ),
        "one number per layer": lambda: depth.stack_risk(WHITE, np.ones((2, 2))),
        "`highest` = 25": lambda: depth.white_moments(5, 20, 25),
        "those of a distribution": lambda: Spectrum(np.ones(2), np.array([1.5, -0.5])),
        "`weights` sum to 2": lambda: Spectrum(np.ones(2), np.ones(2)),
        "must not be negative": lambda: Spectrum(np.array([-1.0, 1]), np.ones(2) / 2),
        "has 2 values": lambda: depth.gauss_nodes(Spectrum(np.array([1.0, 2]), np.ones(2) / 2), 3),
        "nothing to learn": lambda: depth.stack_risk(
            LinearRegression(np.ones(2), 3, prior_covariance=np.zeros((2, 2))), [1.0]
        ),
        "`ratio` = 0": lambda: depth.proportional_bound(0, 2),
    }
    for words, call in cases.items():
        with pytest.raises(Refusal, match=words):
            call()
