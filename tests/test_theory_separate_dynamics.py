import itertools

import numpy as np
import pytest
from scipy.integrate import quad, solve_ivp

from iclflow.tasks import LinearRegression
from iclflow.theory._idle_head import blow_up_times, idle_head_weights, idle_heads_after
from iclflow.theory._separate_dynamics import (
    aligned_drop_time,
    aligned_loss,
    aligned_rate,
    aligned_time,
    aligned_value,
    drop_clock,
    drop_offset,
    drop_profile,
    final_loss,
    residual_drive,
    separate_conserved,
)
from iclflow.theory._separate_modes import modes
from separate_flow import Flow, gaussian, problem

FOUR = (0.4, 0.3, 0.2, 0.1)
DRIVE = np.square(FOUR)


def scalar(component):
    found = modes(LinearRegression(FOUR, 31))
    return float(found.growth_rates[component]), float(found.strengths[component])


def test_closed_form_time_is_the_reference_value():
    first = aligned_time(np.array([0.1, 0.5, 1, 1.2, 1.3]), 0.01, *scalar(0))
    wanted = [562.513774655191, 612.855664716175, 620.492376135974, 623.169808873278]
    np.testing.assert_allclose(first, [*wanted, 627.431971245003], rtol=1e-13)
    last = aligned_time(np.array([0.1, 0.5, 1, 1.5, 1.9]), 0.01, *scalar(3))
    wanted = [9000.067068187578, 9801.704466340001, 9907.175150561256, 9952.578375133646]
    np.testing.assert_allclose(last, [*wanted, 10004.993385782689], rtol=1e-13)
    sizes = np.cbrt([scalar(0)[1], scalar(3)[1]])
    np.testing.assert_allclose(sizes, [1.3096669533079182, 1.9470217416380282], rtol=1e-13)


@pytest.mark.parametrize("component", range(4))
@pytest.mark.parametrize("start", [0.02, 2.5, -0.3])
def test_closed_form_value_solves_the_scalar_equation(component, start):
    growth, strength = scalar(component)
    end = 3 / (growth * abs(start))
    solution = solve_ivp(
        lambda t, v: aligned_rate(v, growth, strength),
        (0, end),
        [start],
        method="DOP853",
        rtol=1e-12,
        atol=1e-14,
        t_eval=np.linspace(0, end, 50),
    )
    value = aligned_value(solution.t, start, growth, strength)
    # The solver's own error, amplified by the steepness of the drop.
    np.testing.assert_allclose(value, solution.y[0], rtol=1e-8)


def test_rate_equation_is_the_projection_of_the_full_gradient():
    growth, strength = scalar(1)
    lam, trace, N, v = 0.3, 1.0, 31, 0.7
    direct = lam**2 * v**2 - lam**3 * (1 + (1 + trace / lam) / N) * v**5
    assert aligned_rate(v, growth, strength) == pytest.approx(direct, rel=1e-13)


def test_profile_inverts_the_clock_over_sixteen_decades():
    u = np.concatenate([np.geomspace(1e-9, 0.5, 60), 1 - np.geomspace(1e-14, 0.5, 60)])
    np.testing.assert_allclose(drop_profile(drop_clock(u)), u, rtol=1e-14)
    # −1/u + ∫₀ᵘ s/(1 − s³) ds by quadrature.
    for value in (0.1, 0.6, 0.95, -3.0):
        integral = quad(lambda s: s / (1 - s**3), 0, value, epsabs=1e-14)[0]
        assert drop_clock(value) == pytest.approx(-1 / value + integral, abs=1e-12)


def test_special_starts_of_the_scalar_equation():
    growth, strength = scalar(0)
    times = np.array([0.0, 10.0, 1e4, 1e8])
    assert np.all(aligned_value(times, 0.0, growth, strength) == 0)
    end = np.cbrt(strength)
    np.testing.assert_allclose(aligned_value(times, float(end), growth, strength), end, rtol=1e-15)
    assert aligned_value(1e8, 0.01, growth, strength) == pytest.approx(end, rel=1e-14)
    late = aligned_value(1e8, -0.5, growth, strength)
    assert late == pytest.approx(-1 / (growth * 1e8), rel=1e-6)
    slow = aligned_value(times, 0.01, growth, strength, tau=3.0)
    np.testing.assert_allclose(slow, aligned_value(times / 3, 0.01, growth, strength), rtol=1e-14)


def test_half_drop_constants():
    assert drop_offset(0.5) == pytest.approx(-1.2533911927, abs=1e-10)
    assert drop_clock(np.cbrt(0.5)) == pytest.approx(-0.8502506921, abs=1e-10)
    growth, strength = scalar(2)
    at = aligned_drop_time(1e-3, growth, strength)
    # 1/(c v₀) + offset/(c a^⅓) up to ∫₀^{u₀} s/(1 − s³) ds ≈ u₀²/2 in units of 1/(c a^⅓).
    simple = 1 / (growth * 1e-3) + drop_offset() / (growth * np.cbrt(strength))
    assert at == pytest.approx(simple, abs=1e-6 / growth)
    v = aligned_value(at, 1e-3, growth, strength)
    assert 1 - (1 - v**3 / strength) ** 2 == pytest.approx(0.5, abs=1e-9)


def test_residual_drive_is_the_integral_of_what_is_left():
    growth, strength = scalar(0)
    assert residual_drive(0.02, growth, strength) == pytest.approx(307.727794376, abs=1e-9)
    left = lambda t: 1 - aligned_value(t, 0.02, growth, strength) ** 3 / strength
    total = sum(quad(left, a, b, epsabs=1e-10)[0] for a, b in ((0, 300), (300, 330), (330, 400)))
    assert total == pytest.approx(residual_drive(0.02, growth, strength), abs=1e-8)


def test_aligned_heads_do_not_interact():
    task, start = LinearRegression(FOUR, 31), np.array([0.01, 0.02, 0.015, 0.03])
    times = np.array([600.0, 1000, 2000, 3000, 4000])
    losses = aligned_loss(task, start, times)
    wanted = [0.731858987734, 0.377366369996, 0.209796158756, 0.209268488930, 0.135995071598]
    np.testing.assert_allclose(losses, wanted, atol=1e-11)
    K = np.diag(start)[..., None]
    flow = Flow(problem(FOUR), start, K, K, end=4000)
    # Relative tolerance 1e-10 of the solver on drops that the plateau delays by 1000.
    np.testing.assert_allclose(flow.losses(times), losses, atol=1e-7)


@pytest.mark.parametrize("rank", [1, 2])
def test_conserved_quantities_stay_put(rank):
    weights = gaussian(1, 0.3, 3, 4, rank)
    flow = Flow(problem(FOUR, noise=0.1), *weights, end=300.0)
    before, after = separate_conserved(*weights), separate_conserved(*flow.weights(300.0))
    assert flow.loss(300.0) < 0.8  # the weights did move
    for a, b in zip(before, after):
        np.testing.assert_allclose(a, b, atol=1e-8)  # the solver's relative tolerance is 1e-10


def ride(v, k, q, drive):
    """An idle head by an explicit solver, up to where it is huge; T by the last 1/(e v)."""
    dim = len(drive)

    def rhs(t, z):
        k, q = z[1 : dim + 1], z[dim + 1 :]
        return np.concatenate([[np.sum(drive * k * q)], z[0] * drive * q, z[0] * drive * k])

    huge = lambda t, z: abs(z[0]) - 1e9
    huge.terminal = True
    start = np.concatenate([[v], k, q])
    run = solve_ivp(
        rhs,
        (0, 1e5),
        start,
        method="DOP853",
        rtol=1e-11,
        atol=1e-13,
        events=huge,
        dense_output=True,
    )
    return run.t[-1] + 1 / (drive[0] * abs(run.y[0, -1])), run.sol


@pytest.mark.slow
def test_idle_heads_grow_turn_and_blow_up_as_an_ode_solver_says():
    v, K, Q = gaussian(5, 1.0, 40, 4)
    k, q = K[..., 0], Q[..., 0]
    times = blow_up_times(v, k, q, DRIVE)
    turned = 0
    for h in range(40):
        end, solution = ride(v[h], k[h], q[h], DRIVE)
        # The rule with 32 nodes is exact to 1e-9 for almost all heads, to 1e-6 for the worst.
        assert times[h] == pytest.approx(end, rel=2e-6)
        for part in (0.2, 0.5, 0.8, 0.95):
            found = idle_heads_after(
                part * times[h], v[h : h + 1], k[h : h + 1], q[h : h + 1], DRIVE
            )
            now = solution(part * times[h])
            flat = np.concatenate([np.ravel(w) for w in found])
            # Close to the blow-up an error of T is amplified by T/(T − t) = 20.
            np.testing.assert_allclose(flat, now, atol=1e-4 * np.max(np.abs(now)))
        turned += np.sign(solution(0.99 * times[h])[0]) != np.sign(v[h])
    assert turned >= 5  # heads whose v changes sign are part of the sample


def test_idle_weights_follow_the_closed_form_in_eta():
    v, k, q = 0.3, np.array([0.2, -0.1, 0.3, 0.1]), np.array([0.1, 0.2, -0.2, 0.4])
    run = solve_ivp(
        lambda t, z: np.concatenate(
            [
                [np.sum(DRIVE * z[1:5] * z[5:9])],
                z[0] * DRIVE * z[5:9],
                z[0] * DRIVE * z[1:5],
                [z[0]],
            ]
        ),
        (0, 20),
        np.concatenate([[v], k, q, [0.0]]),
        method="DOP853",
        rtol=1e-12,
        atol=1e-14,
    )
    end = run.y[:, -1]
    square, k_end, q_end = idle_head_weights(end[9], v, k, q, DRIVE)
    assert np.sqrt(square) == pytest.approx(end[0], rel=1e-10)
    np.testing.assert_allclose(np.concatenate([k_end, q_end]), end[1:9], atol=1e-10)


def test_special_idle_heads():
    one = np.array([1.0, 0, 0, 0])
    two = np.array([0, 1.0, 0, 0])
    v = np.array([0.3, 0.0, 0.0, -0.3, 0.0, -0.5, 0.0, -0.3])
    k = np.array([0.3, 0.01, 0.0, 0.3, 0.1, 0.3, 0.01, 0.3])[:, None] * one
    q = k.copy()
    q[4], q[6], q[7] = 0.1 * two, -k[6], -k[7]
    times = blow_up_times(v, k, q, DRIVE)
    e = DRIVE[0]
    assert times[0] == pytest.approx(1 / (e * 0.3), rel=1e-9)  # balanced and aligned
    assert times[1] == pytest.approx(np.pi / (2 * e * 0.01), rel=1e-9)  # v = 0
    assert times[1] == pytest.approx(981.7477042, abs=1e-6)
    assert np.isinf(times[2])  # zero
    assert np.isinf(times[3])  # the wrong sign, balanced: decays as 1/t
    assert np.isinf(times[4])  # v = 0 and kᵀEq = 0: at rest
    assert np.isinf(times[5])  # the wrong sign, v² > ‖k‖²: keeps √(v² − ‖k‖²)
    assert times[6] == pytest.approx(times[1], rel=1e-12)  # the mirror image, v < 0 later
    assert times[7] == pytest.approx(times[0], rel=1e-12)
    later, k_later, _ = idle_heads_after(1000.0, v, k, q, DRIVE)
    np.testing.assert_allclose(later[2:6], [0.0, -1 / (1 / 0.3 + 160), 0.0, -0.4], atol=1e-8)
    np.testing.assert_allclose(k_later[3], -later[3] * one, rtol=1e-7)
    np.testing.assert_allclose(k_later[4], k[4])
    assert np.all(np.isnan(later[[0, 1, 6, 7]]))  # those are past their blow-up


def test_gaussian_heads_blow_up_at_the_reference_quantiles():
    v, K, Q = gaussian(0, 1.0, 20_000, 4)
    times = DRIVE[0] * blow_up_times(v, K[..., 0], Q[..., 0], DRIVE)
    quantiles = np.quantile(times, [0.05, 0.25, 0.5, 0.75, 0.95])
    # The reference is a sample of 600: about 3 % of sampling error, more in the tails.
    np.testing.assert_allclose(quantiles, [0.77, 1.08, 1.53, 2.20, 4.05], rtol=0.08)


def test_misalignment_decays_as_a_power():
    v, k = np.full(8, 1e-6), np.tile(1e-6 * np.array([1.0, 0.5, 0, 0]), (8, 1))
    q = k
    time = blow_up_times(v, k, q, DRIVE)[0]
    states = [idle_heads_after((1 - left) * time, v, k, q, DRIVE) for left in (1e-2, 1e-4)]
    ratio = [w[1][0, 1] / w[1][0, 0] for w in states]
    grown = [w[0][0] for w in states]
    slope = np.log(ratio[1] / ratio[0]) / np.log(grown[1] / grown[0])
    assert slope == pytest.approx(-(1 - (0.3 / 0.4) ** 2), rel=1e-2)


@pytest.mark.parametrize("heads, rank", [(1, 1), (3, 1), (4, 1), (1, 2), (2, 2), (1, 4)])
def test_learning_stops_where_the_head_count_says(heads, rank):
    task = LinearRegression(FOUR, 31)
    for seed in (0, 1):
        flow = Flow(problem(FOUR), *gaussian(seed, 0.1, heads, 4, rank), end=2e4, rtol=1e-8)
        assert flow.loss(2e4) == pytest.approx(final_loss(task, heads, rank), abs=1e-10)


def test_final_loss_needs_no_more_heads_than_components():
    task = LinearRegression(FOUR, 31)
    for heads, rank in itertools.product((1, 2, 5), (1, 2, 4)):
        kept = min(4, heads * rank)
        losses = [1, 221 / 345, 27601 / 73140, 567769 / 2706180, 85873 / 631442]
        assert final_loss(task, heads, rank) == pytest.approx(losses[kept], abs=1e-14)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: aligned_drop_time(-0.1, 1.0, 1.0), "`start` = -0.1"),
        (lambda: drop_offset(1.5), "`fraction` = 1.5"),
        (lambda: aligned_loss(LinearRegression(FOUR), np.ones(1), 1.0), r"must be \(4,\)"),
        (
            lambda: idle_heads_after(-1.0, DRIVE[:1], DRIVE[None], DRIVE[None], DRIVE),
            "`elapsed` = -1.0",
        ),
        (lambda: final_loss(LinearRegression(FOUR), 0), "`heads` = 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
