"""Two opposite heads: the optimum inside, the slow manifold, and the flow that follows it."""

import numpy as np
import pytest
import scipy.integrate

from iclflow import theory
from iclflow.tasks import isotropic

SETTING = (5, 40, 0.1)
TASK = isotropic(*SETTING)


def opposite(w: float, mu: float):
    return np.array([w, -w]), np.array([mu, -mu])


# The optimum ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_pair_loss_is_the_exact_loss_of_two_heads():
    for w, mu, setting in [
        (0.13, 3.45, SETTING),
        (0.45, 0.9, SETTING),
        (1e-3, 400.0, SETTING),
        (0.2, 1.6, (10, 20, 0.1)),
    ]:
        exact = theory.softmax_exact_loss(isotropic(*setting), *opposite(w, mu))
        # At w = 1e-3 the general form subtracts numbers that agree to five digits, times μ².
        tolerance = 1e-9 if w < 0.01 else 1e-12
        np.testing.assert_allclose(
            theory.pair_loss(isotropic(*setting), w, mu), exact, atol=tolerance
        )


@pytest.mark.parametrize(
    ("setting", "w", "mu", "loss"),
    [
        ((10, 20, 0.1), 0.070556, 4.58687, 0.48698236),
        ((20, 40, 0.1), 0.02453, 13.154, 0.47096104),
        ((10, 100, 0.1), 0.02575, 17.496, 0.20810683),
        ((10, 20, 0.0), 0.073847, 4.52999, 0.36653334),
        ((20, 40, 0.0), 0.02561, 13.019, 0.34999221),
        ((10, 100, 0.0), 0.02674, 17.000, 0.09999860),
        ((5, 40, 0.1), 0.071246, 6.17546, 0.24282410),
        ((5, 40, 0.0), 0.073728, 6.03430, 0.13329720),
    ],
)
def test_best_pair_has_the_reference_values(setting, w, mu, loss):
    best = theory.pair_optimum(isotropic(*setting))
    # The references carry four to six digits of w and μ, and eight decimals of the loss.
    np.testing.assert_allclose(best.w, w, rtol=3e-4)
    np.testing.assert_allclose(best.mu, mu, rtol=3e-4)
    np.testing.assert_allclose(best.loss, loss, atol=6e-9)
    np.testing.assert_allclose(best.gain, 2 * best.w * best.mu, rtol=1e-14)
    # Better than the debiased step that it is the finite form of, worse than a plain step.
    assert best.loss < theory.debiased_optimum(isotropic(*setting)).risk
    assert best.loss > theory.gradient_step_optimum(isotropic(*setting)).risk


def test_best_pair_of_the_standard_setting_to_all_digits():
    best = theory.pair_optimum(TASK)
    np.testing.assert_allclose(best.w, 0.071246, atol=1e-6)
    np.testing.assert_allclose(best.mu, 6.1755, atol=1e-4)
    np.testing.assert_allclose(best.gain, 0.879952, atol=1e-6)
    for change in (0.999, 1.001):
        assert theory.pair_effective_loss(TASK, change * best.w) > best.loss


def test_best_pair_is_stationary_for_heads_that_are_not_opposite():
    best = theory.pair_optimum(TASK)
    state, step = np.array([best.w, -best.w, best.mu, -best.mu]), 1e-4

    def loss(state):
        return theory.softmax_exact_loss(TASK, state[:2], state[2:])

    for direction in np.eye(4) * [1, 1, 100, 100]:
        slope = (loss(state + step * direction) - loss(state - step * direction)) / (2 * step)
        # Second derivatives of order μ² = 40, third ones times h²; rounding 1e-14/h.
        assert abs(slope) < 1e-5


def test_effective_loss_along_the_manifold_has_the_reference_values():
    for w, value in [
        (0.02, 0.24285208),
        (0.05, 0.24283250),
        (0.1, 0.24285360),
        (0.13, 0.24298784),
        (0.2, 0.24407084),
        (0.3, 0.24830322),
        (0.447214, 0.25961918),
    ]:
        np.testing.assert_allclose(theory.pair_effective_loss(TASK, w), value, atol=6e-9)


def test_vanishing_pair_is_debiased_gradient_descent():
    for setting in [SETTING, (10, 100, 0.1), (3, 10, 0.0)]:
        step = theory.debiased_optimum(isotropic(*setting))
        np.testing.assert_allclose(
            theory.pair_effective_loss(isotropic(*setting), 0.0), step.risk, atol=1e-11
        )
        w = 1e-4
        loss = theory.pair_loss(isotropic(*setting), w, 0.6 / (2 * w))
        # Corrections are of order w².
        np.testing.assert_allclose(loss, theory.debiased_risk(isotropic(*setting), 0.6), atol=1e-7)


@pytest.mark.parametrize(
    ("setting", "slope"),
    [((5, 40, 0.1), -0.013186813), ((10, 100, 0.1), -0.003856830), ((3, 10, 0.0), -0.1065089)],
)
def test_loss_falls_as_the_pair_leaves_zero(setting, slope):
    step = theory.debiased_optimum(isotropic(*setting)).step
    np.testing.assert_allclose(theory.pair_slope(isotropic(*setting), step), slope, atol=6e-8)
    dim, length, noise = setting
    closed = -4 * (dim + 2) * (length - 1) / (length * (length + dim + dim * noise) ** 2)
    np.testing.assert_allclose(theory.pair_slope(isotropic(*setting), step), closed, rtol=1e-12)
    for gain in (step, 0.4):
        low, high = (
            theory.pair_loss(isotropic(*setting), w, gain / (2 * w))
            - theory.debiased_risk(isotropic(*setting), gain)
            for w in (0.01, 0.02)
        )
        # Richardson: the term of order w⁴ is removed, w⁶ is left; the fits know b and c to 1e-12.
        measured = (16 * low - high) / (12 * 0.01**2)
        np.testing.assert_allclose(
            measured, theory.pair_slope(isotropic(*setting), gain), rtol=2e-4
        )


def test_width_of_the_best_pair_has_its_leading_form_for_long_contexts():
    for length, tolerance in [(400, 0.02), (4000, 0.002)]:
        best = theory.pair_optimum(isotropic(5, length, 0.1))
        leading = theory.leading_pair_width(isotropic(5, length, 0.1))
        # Relative corrections of order d/L.
        np.testing.assert_allclose(best.w, leading, rtol=tolerance)
        gain = theory.debiased_optimum(isotropic(5, length, 0.1)).risk - best.loss
        expected = 24 * 7 / (length**3 * 9 * 8.5)
        np.testing.assert_allclose(gain, expected, rtol=0.1)
    np.testing.assert_allclose(theory.leading_pair_width(TASK), 0.0626, atol=5e-5)


# Flow -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exact_flow():
    # Each head moves by −½ of the gradient: times are twice those of a flow of −1 times it.
    return theory.pair_flow(TASK, 2 * 10.0 ** np.arange(1, 8), 0.1, 0.1)


def test_flow_of_the_pair_has_the_reference_values(exact_flow):
    np.testing.assert_allclose(
        exact_flow.w, [0.48594, 0.26684, 0.16615, 0.11301, 0.08298, 0.07153, 0.07125], atol=6e-6
    )
    np.testing.assert_allclose(
        exact_flow.loss,
        [0.263713, 0.246578, 0.243385, 0.242895, 0.2428282, 0.2428241, 0.2428241],
        atol=6e-7,
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("state", [(0.1, 0.1), (0.5, 1.2), (0.08, 5.0)])
def test_flow_starts_along_minus_half_the_gradient_of_one_head(state):
    w, mu = state
    step, h = 1e-4, 1e-6
    moved = theory.pair_flow(TASK, np.array([h]), w, mu)
    velocity = (moved.w[0] - w) / h, (moved.mu[0] - mu) / h
    omegas, mus = opposite(w, mu)
    first = np.array([1.0, 0.0])

    def loss(a, b):
        return theory.softmax_exact_loss(TASK, omegas + a * first, mus + b * first)

    forces = (
        (loss(-step, 0) - loss(step, 0)) / (4 * step),
        (loss(0, -step) - loss(0, step)) / (4 * step),
    )
    # Differences of the loss: 1e-8 times third derivatives; of the flow: 1e-6 times the second,
    # rounding 1e-16/h.
    np.testing.assert_allclose(velocity, forces, rtol=1e-3, atol=1e-5)


def test_flow_of_the_large_context_loss_agrees_with_an_independent_solver():
    times = np.array([1.0, 4.0, 30.0])
    flow = theory.pair_flow(TASK, times, 0.1, 0.1, loss="large_context")

    def velocity(_, state):
        gradient = theory.softmax_large_context_gradient(TASK, state[:2], state[2:])
        return -np.concatenate(gradient) / 2

    start = np.concatenate(opposite(0.1, 0.1))
    solved = scipy.integrate.solve_ivp(
        velocity, (0, 30), start, t_eval=times, method="DOP853", rtol=1e-11, atol=1e-13
    )
    np.testing.assert_allclose(flow.w, solved.y[0], rtol=1e-7)
    np.testing.assert_allclose(flow.mu, -solved.y[3], rtol=1e-7)
    losses = [theory.softmax_large_context_loss(TASK, s[:2], s[2:]) for s in solved.y.T]
    np.testing.assert_allclose(flow.loss, losses, rtol=1e-8)


def test_slow_manifold_follows_the_flow_to_the_optimum(exact_flow):
    start = 1  # t = 200 in this time
    times = exact_flow.times[start:] - exact_flow.times[start]
    slow = theory.slow_manifold(TASK, times, 0.26684)
    np.testing.assert_allclose(slow.w[1:], [0.16604, 0.11298, 0.08298, 0.07153, 0.07125], atol=6e-6)
    # The reduction leaves out a lag behind the manifold, largest at the start.
    np.testing.assert_allclose(slow.w, exact_flow.w[start:], rtol=1e-3)
    np.testing.assert_allclose(slow.w[-1], theory.pair_optimum(TASK).w, rtol=1e-6)


def test_drift_time_is_that_of_the_slow_manifold():
    time = theory.drift_time(TASK, 0.3, 0.1)
    slow = theory.slow_manifold(TASK, np.array([0.0, time]), 0.3)
    np.testing.assert_allclose(slow.w[-1], 0.1, rtol=1e-7)
    with pytest.raises(ValueError, match="one side of the optimum"):
        theory.drift_time(TASK, 0.3, 0.05)


def test_approach_to_the_optimum_is_exponential():
    best = theory.pair_optimum(TASK)
    rate = theory.final_rate(TASK, best.w)
    times = np.array([0.0, 1.0, 2.0]) / rate
    gaps = theory.slow_manifold(TASK, times, 1.0001 * best.w).w - best.w
    # Relative gaps of 1e-4 make corrections of that order.
    np.testing.assert_allclose(gaps[1:] / gaps[:-1], np.exp(-1), rtol=2e-3)


def test_large_context_drift_follows_a_power_law_for_ever():
    times = np.array([1e6, 1e7, 1e8])
    flow = theory.pair_flow(TASK, times, 0.1, 0.1, loss="large_context")
    law = theory.drift_law(TASK, times)
    # Corrections of order (dw²)².
    np.testing.assert_allclose(flow.w, law, rtol=3e-4)
    np.testing.assert_allclose(law[1:] / law[:-1], 10 ** (-1 / 6), rtol=1e-12)
    started = theory.drift_law(TASK, np.array([0.0]), start=0.2)
    np.testing.assert_allclose(started, 0.2, rtol=1e-14)


def test_exact_flow_follows_the_power_law_and_stops(exact_flow):
    law = theory.drift_law(TASK, exact_flow.times)
    np.testing.assert_allclose(law[1:5], [0.267, 0.182, 0.124, 0.084], atol=6e-4)
    # A guide to 10 %, until the optimum at .0712 holds the exact flow.
    np.testing.assert_allclose(exact_flow.w[1:5], law[1:5], rtol=0.1)
    assert law[-1] < 0.6 * exact_flow.w[-1]


def test_landing_keeps_the_difference_of_squares():
    for start, tolerance in [((0.02, 3.0), 0.002), ((0.001, 1.5), 0.02), ((0.1, 0.1), 0.15)]:
        there = theory.landing(TASK, *start)
        np.testing.assert_allclose(
            there.w**2 - there.mu**2, start[0] ** 2 - start[1] ** 2, atol=1e-9
        )
        loss = theory.pair_loss(TASK, there.w, there.mu)
        np.testing.assert_allclose(loss, theory.pair_effective_loss(TASK, there.w), rtol=1e-12)
        reached = theory.pair_flow(TASK, np.linspace(0, 12, 60), *start)
        # The drift during landing is left out: it matters where dw² is not small.
        np.testing.assert_allclose(there.w, reached.w.max(), rtol=tolerance)


def test_minima_too_flat_for_their_digits_are_refused():
    with pytest.raises(ValueError, match="too flat"):
        theory.pair_optimum(isotropic(5, 1_000_000, 0.1))


def test_starts_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="`w` = -0.1"):
        theory.slow_manifold(TASK, np.array([1.0]), -0.1)
    with pytest.raises(ValueError, match="does not decrease"):
        theory.pair_flow(TASK, np.array([2.0, 1.0]), 0.1, 0.1)


def test_equal_times_are_reported_twice():
    flow = theory.pair_flow(TASK, np.array([0.0, 1.0, 1.0]), 0.1, 0.1, loss="large_context")
    assert flow.w[1] == flow.w[2] > flow.w[0] and flow.loss[1] == flow.loss[2] < flow.loss[0]


def test_a_flow_over_no_time_stays_at_its_start():
    flow = theory.pair_flow(TASK, np.array([0.0]), 0.1, 0.1, loss="large_context")
    np.testing.assert_allclose([flow.w[0], flow.mu[0]], 0.1, rtol=1e-9)


def test_losses_without_a_pair_form_are_refused(unchecked):
    with pytest.raises(ValueError, match="`loss` = 'sampled'"):
        theory.pair_flow(TASK, np.array([1.0]), 0.1, 0.1, loss="sampled")
