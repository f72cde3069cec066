"""Losses of structured softmax heads: large context, first order, exact; and their minima."""

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

from iclflow import theory
from iclflow.tasks import isotropic

SETTING = (5, 40, 0.1)
TASK = isotropic(*SETTING)
HEADS = np.array([0.3, -0.2, 0.05]), np.array([1.2, -0.7, 0.4])


def pair(w: float, mu: float):
    return np.array([w, -w]), np.array([mu, -mu])


def one(omega: float, mu: float):
    return np.array([omega]), np.array([mu])


# Large context --------------------------------------------------------------------------------


def test_large_context_loss_has_the_reference_values():
    loss = theory.softmax_large_context_loss
    for heads, setting, value in [
        (pair(0.13, 3.45), SETTING, 0.2213744433),
        (pair(0.2, 1.6), (10, 20, 0.1), 0.4609357099),
        (one(10**-0.5, 2.486403), (10, 100, 0.0), 0.2137302715),
    ]:
        np.testing.assert_allclose(loss(isotropic(*setting), *heads), value, atol=1e-9)


def test_large_context_gradient_agrees_with_differences():
    gradient = theory.softmax_large_context_gradient(TASK, *HEADS)
    state, step = np.concatenate(HEADS), 1e-5

    def loss(state):
        return theory.softmax_large_context_loss(TASK, *np.split(state, 2))

    found = [(loss(state + step * e) - loss(state - step * e)) / (2 * step) for e in np.eye(6)]
    # Central differences: h² times third derivatives of order 100.
    np.testing.assert_allclose(np.concatenate(gradient), found, atol=1e-7)


def test_optimal_mu_minimises_the_large_context_loss():
    omega, _ = HEADS
    best = theory.optimal_mu(TASK, omega)
    found = scipy.optimize.minimize(
        lambda mu: theory.softmax_large_context_loss(TASK, omega, mu), np.zeros(3), tol=1e-12
    )
    np.testing.assert_allclose(best, found.x, rtol=1e-4)
    assert theory.softmax_large_context_loss(TASK, omega, best) <= found.fun + 1e-15


def test_heads_of_equal_strength_share_equally():
    shared = theory.optimal_mu(TASK, np.array([0.4, 0.4]))
    alone = theory.optimal_mu(TASK, np.array([0.4]))
    np.testing.assert_allclose(shared, np.repeat(alone / 2, 2), rtol=1e-10)


def test_best_head_of_the_large_context_loss():
    best = theory.large_context_one_head(TASK)
    np.testing.assert_allclose(best, (0.4472136, 1.6276947, 0.37207280), atol=6e-8)
    found = scipy.optimize.minimize(
        lambda v: theory.softmax_large_context_loss(TASK, *one(*v)), [0.3, 1.0], tol=1e-13
    )
    # The minimiser stops at the root of rounding; the value is better by the square.
    np.testing.assert_allclose(found.x, best[:2], rtol=1e-6)
    np.testing.assert_allclose(found.fun, best.loss, rtol=1e-12)


def test_pair_of_the_large_context_loss_falls_to_its_infimum():
    widths = np.array([0.2, 0.1, 0.02, 0.0])
    losses = [theory.large_context_pair(TASK, w) for w in widths]
    np.testing.assert_allclose(losses, [0.22158842, 0.22092340, 0.22087919, 0.22087912], atol=6e-9)
    for w, loss in zip(widths[:3], losses):
        found = scipy.optimize.minimize_scalar(
            lambda mu: theory.softmax_large_context_loss(TASK, *pair(w, mu))
        )
        np.testing.assert_allclose(loss, found.fun, rtol=1e-12)
    np.testing.assert_allclose(losses[-1], theory.proportional_risks(5 / 40, 0.1).step, rtol=1e-14)


# Averages at fixed slopes ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "a", "b", "expected"),
    [
        (
            *(40, 0.5, -0.5),
            (0.484122126922, 0.031755746155, 0.019637452331, -0.219366882391, 0.273429046847),
        ),
        (
            *(40, 1.0, 0.3),
            (0.940357797074, 0.059642202926, 0.033046644446, 0.315618933278, 0.982077913431),
        ),
        (
            *(100, 1.5, -0.7),
            (1.407753752306, 0.061497498463, 0.003674822787, -0.969122827853, 2.100729297723),
        ),
        (
            *(8, 0.8, -0.8),
            (0.643454917011, 0.195681353737, 0.075649845549, -0.366954523991, 0.663919255134),
        ),
    ],
)
def test_slope_averages_have_the_reference_values(length, a, b, expected):
    powers, both = theory.attention_powers(a, length), theory.slope_moments(a, b, length)
    found = (
        *(a * (1 - powers.second), powers.second),
        *(both.overlap, both.signal, powers.signal(a)),
    )
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_concentration_of_attention_has_the_reference_values():
    for length, expected in {
        100: {0.5: 0.01278390, 1: 0.02553848, 2: 0.12626215, 4: 0.42289972},
        10_000: {1: 0.00027162, 2: 0.00450745, 4: 0.16622703},
    }.items():
        for slope, value in expected.items():
            found = theory.attention_powers(slope, length).second
            np.testing.assert_allclose(found, value, atol=6e-9)


@pytest.mark.parametrize(("a", "b"), [(0.3, -0.3), (2.0, 0.5), (6.0, -2.0), (0.01, 0.01)])
def test_two_points_agree_with_one_dimensional_integrals(a, b):
    # With L = 2 and δ = s₁ − s₂ the weights are (1 ± tanh(aδ/2))/2.
    def average(f):
        inside = lambda x: f(2**0.5 * x) * np.exp(-x * x / 2) / (2 * np.pi) ** 0.5
        return scipy.integrate.quad(inside, -10, 10, points=[0.0], epsabs=1e-14, limit=400)[0]

    both = lambda x: np.tanh(a * x / 2) * np.tanh(b * x / 2)
    found = theory.slope_moments(a, b, 2)
    np.testing.assert_allclose(found.overlap, (1 + average(both)) / 2, atol=1e-12)
    expected = 0.5 + average(lambda x: x * x * both(x)) / 4
    np.testing.assert_allclose(found.signal, expected, atol=1e-12)


def test_averages_agree_with_sampled_scores():
    rng = np.random.default_rng(0)
    s = rng.normal(size=(200_000, 5))
    a, b = 1.5, -3.0
    p, r = (np.exp(v - v.max(1, keepdims=True)) for v in (a * s, b * s))
    p, r = p / p.sum(1, keepdims=True), r / r.sum(1, keepdims=True)
    both, powers = theory.slope_moments(a, b, 5), theory.attention_powers(a, 5)
    squares = np.sum(p * p, 1)
    for sample, value in [
        (np.sum(p * r, 1), both.overlap),
        (np.sum(p * s, 1) * np.sum(r * s, 1), both.signal),
        (squares, powers.second),
        (np.sum(p**3, 1), powers.third),
        (squares**2, powers.second_squared),
        (np.sum(p * s, 1) ** 2, powers.signal(a)),
    ]:
        assert abs(sample.mean() - value) < 4 * sample.std() / np.sqrt(len(s))


@pytest.mark.parametrize(("a", "length"), [(0.02, 40), (1.0, 7), (3.0, 1000), (7.0, 3), (4.0, 1)])
def test_double_integral_at_equal_slopes_is_the_single_one(a, length):
    powers, both = theory.attention_powers(a, length), theory.slope_moments(a, a, length)
    # Two different routes: integration by parts in one, explicit scores in the other.
    np.testing.assert_allclose(both.overlap, powers.second, atol=1e-13)
    np.testing.assert_allclose(both.signal, powers.signal(a), atol=2e-12)


def test_order_and_common_sign_of_two_heads_do_not_matter():
    first = theory.slope_moments(0.7, -0.4, 9)
    assert theory.slope_moments(-0.4, 0.7, 9) == first
    assert theory.slope_moments(-0.7, 0.4, 9) == first


# The exact loss -------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("omega", "mu", "setting", "value", "tolerance"),
    [
        ([0.13, -0.13], [3.45, -3.45], SETTING, 0.24324363848, 1e-11),
        ([0.1, -0.1], [4.0, -4.0], SETTING, 0.25005463199, 1e-11),
        ([5**-0.5], [1.627695], SETTING, 0.4080761952, 1e-10),
        ([0.6, -0.3], [1.0, -2.0], SETTING, 0.36389311, 1e-8),
        ([0.5, 0.1, -0.4], [0.7, 0.4, -0.9], SETTING, 0.2859819021, 1e-9),
        ([0.2, -0.2], [1.6, -1.6], (10, 20, 0.1), 0.49096015283, 1e-11),
        ([10**-0.5], [2.486403], (10, 100, 0.0), 0.23546569170, 1e-11),
        ([0.05, -0.05], [6.5, -6.5], (20, 40, 0.0), 0.35050179229, 1e-11),
        ([0.1, -0.1], [4.4, -4.4], (30, 300, 0.1), 0.20424398094, 1e-11),
    ],
)
def test_exact_loss_has_the_reference_values(omega, mu, setting, value, tolerance):
    loss = theory.softmax_exact_loss(isotropic(*setting), np.array(omega), np.array(mu))
    np.testing.assert_allclose(loss, value, atol=tolerance)
    assert loss > theory.any_heads_bound(isotropic(*setting))


def test_exact_loss_agrees_with_sampled_layers():
    dim, length, noise = 3, 6, 0.2
    omega, mu = np.array([1.1, -0.6]), np.array([0.8, -0.5])
    rng = np.random.default_rng(1)
    x, q = rng.normal(size=(100_000, length, dim)), rng.normal(size=(100_000, dim))
    scores = np.exp(omega[:, None, None] * np.einsum("pld,pd->pl", x, q))
    c = np.einsum("h,hpl->pl", mu, scores / scores.sum(-1, keepdims=True))
    miss = q - np.einsum("pl,pld->pd", c, x)
    losses = noise + np.sum(miss**2, 1) / dim + noise * np.sum(c**2, 1)
    error = losses.std() / np.sqrt(len(losses))
    assert error < 0.01
    assert (
        abs(losses.mean() - theory.softmax_exact_loss(isotropic(dim, length, noise), omega, mu))
        < 4 * error
    )


def test_best_mu_from_integrals_minimises_the_exact_loss():
    omega = np.array([0.4, -0.2])
    integrals = theory.head_integrals(TASK, omega)
    best = theory.optimal_mu_from(TASK, integrals)
    loss = theory.softmax_exact_loss(TASK, omega, best)
    np.testing.assert_allclose(loss, 1.1 - best @ integrals.b, rtol=1e-12)
    for change in np.array([[1e-3, 0], [0, 1e-3], [1e-3, -1e-3]]):
        for sign in (1, -1):
            assert theory.softmax_exact_loss(TASK, omega, best + sign * change) > loss


def test_first_order_has_a_remainder_of_second_order():
    omega, mu = np.array([0.25, -0.1]), np.array([2.0, -1.0])
    first, large = theory.softmax_first_order_loss, theory.softmax_large_context_loss
    # The exact loss less L₁, times L².
    for length, value in [(100, -11.94), (1600, -14.10), (6400, -14.34)]:
        exact = theory.softmax_exact_loss(isotropic(5, length, 0.1), omega, mu)
        gap = length**2 * (exact - first(isotropic(5, length, 0.1), omega, mu))
        np.testing.assert_allclose(gap, value, atol=6e-3)
    # The large-context loss is wrong in first order.
    wrong = 6400 * (exact - large(isotropic(5, 6400, 0.1), omega, mu))
    np.testing.assert_allclose(wrong, 1.33, atol=6e-3)


def test_first_order_has_the_reference_values():
    first = theory.softmax_first_order_loss
    np.testing.assert_allclose(first(TASK, *pair(0.13, 3.45)), 0.2470823376, atol=1e-9)
    np.testing.assert_allclose(
        first(isotropic(30, 300, 0.1), *pair(0.1, 4.4)), 0.2048352929, atol=1e-9
    )
    with pytest.raises(ValueError, match="below 1/√2"):
        first(TASK, *one(0.71, 1.0))


# One head -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "omega", "mu", "loss"),
    [
        ((10, 20, 0.1), 0.443873, 1.107602, 0.7040263),
        ((20, 40, 0.1), 0.261801, 1.652761, 0.7035773),
        ((10, 100, 0.1), 0.319148, 2.422297, 0.3517479),
        ((10, 20, 0.0), 0.445523, 1.166719, 0.5818605),
        ((20, 40, 0.0), 0.261805, 1.745753, 0.5812671),
        ((10, 100, 0.0), 0.318425, 2.480335, 0.2354426),
        ((5, 40, 0.1), 0.517905, 1.497089, 0.40396316),
        ((5, 40, 0.0), 0.518172, 1.534701, 0.2861812),
    ],
)
def test_best_head_has_the_reference_values(setting, omega, mu, loss):
    best = theory.one_head_optimum(isotropic(*setting))
    # Printed to six decimals, losses to seven; the minimiser knows ω to 1e-7.
    np.testing.assert_allclose(best[:2], (omega, mu), atol=2e-6)
    np.testing.assert_allclose(best.loss, loss, atol=6e-8)


def test_kernel_regression_is_one_head():
    omega, mu = one(0.6, 1.3)
    for length in (1, 7, 40.5):
        setting = theory.Setting(4, length, 0.2)
        risk = theory.kernel_regression_risk(setting, 0.6, mu=1.3)
        exact = theory.softmax_exact_loss(setting, omega, mu)
        np.testing.assert_allclose(risk, exact, rtol=1e-13)


def test_best_kernel_regression_is_a_minimum_above_the_best_head():
    best = theory.kernel_regression_optimum(TASK)
    assert best.mu == 1
    for omega in (0.98 * best.omega, 1.02 * best.omega):
        assert theory.kernel_regression_risk(TASK, omega) > best.loss
    assert best.loss > theory.one_head_optimum(TASK).loss


@pytest.mark.slow
def test_heads_whose_best_strength_is_not_found_are_refused():
    with pytest.raises(ValueError, match="picks single points"):
        theory.one_head_optimum(isotropic(1, 2, 0.0))


def test_saturated_attention_picks_the_largest_score():
    # As a → ∞ every power of p sums to 1 and p·s is the largest score; the approach is as 1/a.
    rng = np.random.default_rng(2)
    top = rng.normal(size=(200_000, 12)).max(1)
    near, far = (theory.attention_powers(slope, 12) for slope in (10.0, 20.0))
    for one_power, other in zip(near, far):
        np.testing.assert_allclose(2 * other - one_power, 1, atol=0.01)
    error = np.std(top**2) / np.sqrt(len(top))
    extrapolated = 2 * far.signal(20.0) - near.signal(10.0)
    assert abs(extrapolated - np.mean(top**2)) < 0.01 + 4 * error


def test_heads_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="one number per head"):
        theory.softmax_large_context_loss(TASK, np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match="NaN or infinity"):
        theory.softmax_exact_loss(TASK, *one(np.nan, 1.0))
    with pytest.raises(ValueError, match="picks single points"):
        theory.kernel_regression_risk(TASK, 1e4)
