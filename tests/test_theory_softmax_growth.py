"""Many heads from small weights: growth, roles, emergence, symmetry, and the trap of one sign."""

import numpy as np
import pytest
import scipy.integrate

from iclflow import theory
from iclflow.tasks import isotropic

SETTING = (5, 40, 0.1)
TASK = isotropic(*SETTING)


def small_heads(heads: int, seed: int, scale: float = 1e-2):
    return scale * np.random.default_rng(seed).normal(size=(2, heads))


def loss_of(state: np.ndarray, setting=SETTING) -> float:
    return theory.softmax_large_context_loss(isotropic(*setting), *np.split(state, 2))


def test_flow_of_heads_agrees_with_an_independent_solver():
    omega, mu = small_heads(3, 1)
    times = np.array([0.0, 3.0, 6.0, 12.0])
    flow = theory.large_context_flow(TASK, times, omega, mu)

    def velocity(_, state):
        gradient = theory.softmax_large_context_gradient(TASK, *np.split(state, 2))
        return -np.concatenate(gradient) / 2

    solved = scipy.integrate.solve_ivp(
        velocity,
        (0, 12),
        np.concatenate([omega, mu]),
        t_eval=times,
        method="DOP853",
        rtol=1e-11,
        atol=1e-13,
    )
    found = np.concatenate([flow.omega, flow.mu], 1)
    np.testing.assert_allclose(found, solved.y.T, atol=1e-7)
    np.testing.assert_allclose(flow.loss, [loss_of(s) for s in solved.y.T], atol=1e-8)


def test_early_growth_is_linear():
    omega, mu = small_heads(4, 2, scale=1e-5)
    times = np.array([0.0, 1.0, 4.0])
    flow = theory.large_context_flow(TASK, times, omega, mu)
    early = theory.early_heads(TASK, times, omega, mu)
    # Weights reach 1e-3, and corrections are of relative order d times their square.
    np.testing.assert_allclose(early.omega, flow.omega, rtol=2e-5, atol=1e-9)
    np.testing.assert_allclose(early.mu, flow.mu, rtol=2e-5, atol=1e-9)
    np.testing.assert_allclose(early.loss, flow.loss, atol=1e-10)


def test_the_sum_of_heads_grows_slower_than_the_rest():
    equal = theory.early_heads(TASK, np.array([20.0, 21.0]), 1e-9 * np.ones(3), np.zeros(3))
    rate = np.log(equal.omega[1] / equal.omega[0])
    # By t = 20 the decaying mode is gone by e⁻⁴⁰.
    np.testing.assert_allclose(rate, theory.sum_growth_rate(TASK, 3), rtol=1e-10)
    opposite = theory.early_heads(
        TASK, np.array([20.0, 21.0]), 1e-9 * np.array([1.0, -1.0]), np.zeros(2)
    )
    np.testing.assert_allclose(np.log(opposite.omega[1] / opposite.omega[0]), 1, rtol=1e-10)


def test_exact_loss_grows_at_the_gain_of_its_own():
    # dL/dμ_h at small weights: b_h = ω_h(1 − 1/L) and G = 1/L.
    integrals = theory.head_integrals(TASK, np.array([1e-3, -2e-3]))
    np.testing.assert_allclose(integrals.b, (1 - 1 / 40) * np.array([1e-3, -2e-3]), rtol=1e-4)
    quadratic = integrals.M / 5 + 0.9 * integrals.G
    np.testing.assert_allclose(quadratic, 1.1 / 40, rtol=1e-3)  # corrections of order Lω²
    slower = theory.early_heads(
        TASK, np.array([10.0]), np.array([1e-6, -1e-6]), np.array([1e-6, -1e-6]), 39 / 40
    )
    np.testing.assert_allclose(slower.omega[0, 0], 1e-6 * np.exp(9.75), rtol=1e-10)


@pytest.mark.parametrize("heads", [2, 4, 8])
def test_growing_parts_tell_positive_from_negative_heads(heads):
    for seed in range(6):
        omega, mu = small_heads(heads, seed)
        parts = theory.growing_parts(omega, mu)
        flow = theory.large_context_flow(TASK, np.array([8.0]), omega, mu)
        # Heads that are far behind may still be turned round by the others.
        leading = np.abs(parts) > 0.5 * np.abs(parts).max()
        assert leading.any()
        assert np.all(np.sign(flow.omega[0][leading]) == np.sign(parts[leading]))
        assert np.all(np.sign(flow.mu[0][leading]) == np.sign(parts[leading]))


def test_heads_end_with_equal_magnitudes_and_zero_sum():
    omega, mu = small_heads(4, 8)
    parts = theory.growing_parts(omega, mu)
    assert np.abs(np.sign(parts).sum()) < 4  # both signs occur
    flow = theory.large_context_flow(TASK, np.array([2000.0]), omega, mu)
    sizes = np.abs(flow.omega[0])
    # Still drifting: equal to a few percent of their size.
    np.testing.assert_allclose(sizes, sizes.mean(), rtol=0.05)
    assert abs(flow.mu[0].sum()) < 0.01 * np.abs(flow.mu[0]).sum()
    assert abs(flow.loss[0] - theory.large_context_pair(TASK, 0.0)) < 1e-3


@pytest.mark.parametrize("scale", [1e-2, 1e-5, 1e-12])
def test_emergence_time_is_when_half_of_the_gain_is_made(scale):
    omega, mu = small_heads(3, 8, scale)
    time = theory.emergence_time(TASK, omega, mu)
    level = 1.1 - 0.5 / (1 + 1.1 * 5 / 40)
    flow = theory.large_context_flow(TASK, np.array([time]), omega, mu)
    # At the handover the weights are 1e-3: what the linear solution leaves out is 1e-5 of them.
    np.testing.assert_allclose(flow.loss, level, atol=1e-4)


def test_emergence_is_delayed_by_the_logarithm_of_the_scale():
    omega, mu = np.array([0.7, -0.4]), np.array([0.2, -0.5])
    times = [theory.emergence_time(TASK, s * omega, s * mu) for s in (1e-4, 1e-6)]
    # Only the difference of the growing parts grows at rate one; their sum falls behind.
    np.testing.assert_allclose(times[1] - times[0], np.log(100), rtol=0.02)
    opposite = np.array([1.0, -1.0])
    times = [theory.emergence_time(TASK, s * opposite, s * opposite) for s in (1e-4, 1e-6)]
    np.testing.assert_allclose(times[1] - times[0], np.log(100), atol=1e-5)


@pytest.mark.parametrize("setting", [SETTING, (10, 200, 0.5)])
def test_unequal_magnitudes_decay_at_the_symmetrisation_rate(setting):
    w = 0.02
    omega = np.array([w, -w])
    state = np.concatenate([omega, theory.optimal_mu(isotropic(*setting), omega)])

    def velocity(state):
        gradient = theory.softmax_large_context_gradient(isotropic(*setting), *np.split(state, 2))
        return -np.concatenate(gradient) / 2

    h = 1e-6
    jacobian = [(velocity(state + h * e) - velocity(state - h * e)) / (2 * h) for e in np.eye(4)]
    rates, modes = np.linalg.eig(np.array(jacobian).T)
    # The mode that moves ω₁ + ω₂: all others leave it.
    moving = np.argmax(np.abs(modes[0] + modes[1]))
    # Corrections of order dw².
    expected = theory.symmetrisation_rate(isotropic(*setting))
    np.testing.assert_allclose(-rates[moving].real, expected, rtol=0.01)


# The trap -------------------------------------------------------------------------------------


def hessian(loss, state: np.ndarray, step: float) -> np.ndarray:
    moves = step * np.eye(len(state))
    rows = [
        [
            loss(state + a + b) - loss(state + a - b) - loss(state - a + b) + loss(state - a - b)
            for b in moves
        ]
        for a in moves
    ]
    return np.array(rows) / (4 * step**2)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.2, 0.3, 0.5), (1.4, -0.4), (1.5, 0.2, -0.7)])
def test_shared_head_is_a_minimum_exactly_if_no_share_is_negative(shares):
    best = theory.large_context_one_head(TASK)
    shares = np.array(shares)
    state = np.concatenate([np.full(len(shares), best.omega), best.mu * shares])
    values = np.linalg.eigvalsh(hessian(loss_of, state, 1e-4))
    # Differences leave 1e-7; flat directions move μ from head to head.
    assert np.sum(values < -1e-5) == theory.shared_head_index(shares) == np.sum(shares < 0)
    move = np.random.default_rng(0).normal(size=len(shares))
    move -= (move @ shares) / shares.sum()
    curvature = theory.shared_head_curvature(TASK, shares)
    step = 1e-3
    shift = np.concatenate([step * move, np.zeros(len(shares))])
    change = (loss_of(state + shift) + loss_of(state - shift)) / 2 - loss_of(state)
    # Fourth-order terms are of relative order d·step².
    np.testing.assert_allclose(change, step**2 * curvature @ move**2, rtol=1e-3)


@pytest.mark.slow
def test_shared_head_is_a_minimum_of_the_exact_loss_too():
    best = theory.one_head_optimum(TASK)
    state = np.array([best.omega, best.omega, 0.5 * best.mu, 0.5 * best.mu])

    def loss(state):
        return theory.softmax_exact_loss(TASK, state[:2], state[2:])

    # In the plane of stationary points nothing changes; apart, the loss rises.
    for direction in np.array([[1, -1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, -1, 1, -1]]):
        for size in (0.03, -0.03):
            assert loss(state + size * direction) > best.loss + 1e-6
    shared = loss(state + 0.2 * np.array([0, 0, 1, -1]))
    np.testing.assert_allclose(shared, best.loss, rtol=1e-12)
    assert best.loss > theory.pair_optimum(TASK).loss + 0.1


def test_two_heads_of_one_sign_end_as_one_head():
    omega, mu = 1e-3 * np.array([0.6, 1.0]), 1e-3 * np.array([0.9, 0.4])
    flow = theory.large_context_flow(TASK, np.array([400.0]), omega, mu)
    best = theory.large_context_one_head(TASK)
    np.testing.assert_allclose(flow.omega[0], best.omega, rtol=1e-4)
    np.testing.assert_allclose(flow.mu[0].sum(), best.mu, rtol=1e-4)
    np.testing.assert_allclose(flow.loss[0], best.loss, rtol=1e-7)
    with pytest.raises(ValueError, match="heads of one sign"):
        theory.emergence_time(TASK, omega, mu, fraction=0.95)


@pytest.mark.slow
def test_share_of_lost_starts_at_long_contexts():
    setting = (10, 1000, 0.1)
    one_head = theory.large_context_one_head(isotropic(*setting)).loss
    lost = []
    for seed in range(24):
        omega, mu = small_heads(2, seed)
        flow = theory.large_context_flow(isotropic(*setting), np.array([200.0]), omega, mu)
        lost.append(abs(flow.loss[0] - one_head) < 1e-3)
        parts = theory.growing_parts(omega, mu)
        # At L ≫ d the signs decide, but for a head that is far behind.
        if np.abs(parts).min() > 0.05 * np.abs(parts).max() or parts[0] * parts[1] < 0:
            assert lost[-1] == (parts[0] * parts[1] > 0)
    # 24 coins: a standard deviation of .1.
    assert abs(np.mean(lost) - theory.one_sign_share(2)) < 4 * 0.1
    assert theory.one_sign_share(4) == 1 / 8


def test_weights_that_do_not_grow_are_refused():
    with pytest.raises(ValueError, match="do not grow"):
        theory.emergence_time(TASK, np.array([0.1]), np.array([-0.1]))
    with pytest.raises(ValueError, match="`fraction` = 1"):
        theory.emergence_time(TASK, np.array([0.1]), np.array([0.1]), fraction=1.0)
    with pytest.raises(ValueError, match="positive sum"):
        theory.shared_head_curvature(TASK, np.array([1.0, -1.0]))


@pytest.mark.slow
def test_the_share_of_one_sign_is_that_of_single_flows():
    omega, mu = 0.1 * np.random.default_rng(0).standard_normal((2, 64, 2))
    end = np.log(1 / 0.1) + 30
    flows = [theory.large_context_flow(TASK, np.array([0.0, end]), w, m) for w, m in zip(omega, mu)]
    one = 0
    for flow in flows:
        work = np.abs(flow.omega[-1] * flow.mu[-1])
        signs = np.sign(flow.omega[-1][work > 0.1 * work.max()])
        one += len(set(signs)) == 1
    found = theory.settled_one_sign_share(TASK, 2, 0.1, starts=64)
    assert found.value == pytest.approx(one / 64)
    assert found.value < theory.one_sign_share(2)
