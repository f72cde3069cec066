"""Stacks in training: the loop and its escape, stationary points, merged layers, full matrices."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

from iclflow.errors import Refusal
from iclflow.tasks import LinearRegression, isotropic
from iclflow.theory import depth
from iclflow.theory.depth import Spectrum

WHITE = LinearRegression(np.ones(5), context=20)
SPECTRUM = Spectrum.of(WHITE)
# Directions of the differences between layers, with the constant of the escape time.
DIRECTIONS = {(1, -1): -1.3813, (1, 0, -1): -0.9703, (1, 0.3, -0.3, -1): 0.0021}


def noisy(noise: float, dim: int = 5, length: int = 20) -> LinearRegression:
    return isotropic(dim, context=length, noise=noise)


# The loop ---------------------------------------------------------------------------------------


def test_loops_have_their_reference_values():
    steps = {2: 0.74251814, 3: 0.71558672, 4: 0.68895320, 5: 0.66320312}
    risks = {2: 0.0998014776, 3: 0.0536684436, 4: 0.0326506763, 5: 0.0215794083}
    rates = {2: 0.23922991, 3: 0.09204024, 4: 0.04617964}
    for layers, step in steps.items():
        loop = depth.tied_loop(WHITE, layers)
        assert loop.step == pytest.approx(step, abs=6e-9)
        assert loop.risk == pytest.approx(risks[layers], abs=6e-11)
        assert loop.rate == pytest.approx(rates.get(layers, loop.rate), abs=6e-9)
        assert loop.index == layers - 1


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_rates_of_the_loop_are_eigenvalues_of_its_hessian(noise):
    for layers in (1, 2, 4):
        loop = depth.tied_loop(noisy(noise), layers)
        hessian = depth.stack_hessian(noisy(noise), np.full(layers, loop.step))
        expected = [-loop.rate] * (layers - 1) + [loop.stable_rate]
        np.testing.assert_allclose(np.linalg.eigvalsh(hessian), expected, atol=1e-12)
        if noise == 0 and layers > 1:
            assert loop.stable_rate == pytest.approx((2 * layers - 1) * loop.rate, rel=1e-12)


def test_small_differences_keep_their_invariant_along_the_flow():
    for layers, direction in ((2, [1, -1]), (3, [1, 0.2, -1.2])):
        start = 0.05 + 1e-7 * np.array(direction)
        flow = depth.stack_flow(WHITE, start, [0.0, 1.0, 4.0, 8.0])
        kept = np.array([depth.tied_invariant(WHITE, steps) for steps in flow])
        # Corrections are of the order of the differences, which grow; the solver's are 1e-11/1e-7.
        np.testing.assert_allclose(kept, kept[:1] * np.ones_like(kept), rtol=1e-3)
    with pytest.raises(Refusal, match="noise"):
        depth.tied_invariant(noisy(0.1), [0.1, 0.2])


def test_noise_thresholds_have_their_reference_values():
    known = {(1, 20, 2): 1.888544, (2, 20, 2): 1.275608, (5, 20, 2): 0.849728,
             (5, 40, 2): 0.979102, (5, 5, 2): 0.552741, (5, 20, 3): 0.86405,
             (5, 20, 4): 0.55978, (5, 20, 6): 0.37736}  # fmt: skip
    for sizes, value in known.items():
        digits = 6e-7 if sizes[2] == 2 else 6e-6
        assert depth.loop_noise_threshold(*sizes) == pytest.approx(value, abs=digits)
    for ratio, value in ((0.25, 0.18046042), (1.0, 0.43050087)):
        assert depth.cost_threshold_limit(ratio) == pytest.approx(value, abs=6e-9)
    for ratio in (0.1, 1.0, 3.0):
        found = depth.cost_threshold(Spectrum.proportional(ratio), 2)
        assert found == pytest.approx(depth.cost_threshold_limit(ratio), rel=1e-10)


def test_best_two_steps_merge_at_the_threshold():
    threshold = depth.loop_noise_threshold(5, 20, 2)
    for factor, apart in ((0.999, True), (1.001, False)):
        steps = depth.best_steps(noisy(threshold * factor), 2).steps
        assert (steps[1] - steps[0] > 1e-3) == apart


def test_more_loops_than_trained_diverge():
    step = depth.tied_loop(WHITE, 2).step
    known = [0.23170, 0.09980, 0.05476, 0.03757, 0.05138, 0.32243, 4.857]
    found = depth.more_loops(WHITE, step, [1, 2, 3, 4, 6, 8, 10])
    np.testing.assert_allclose(found[:-1], known[:-1], atol=6e-6)
    assert found[-1] == pytest.approx(known[-1], abs=6e-4)
    # Exactly, from the moments: E(1 − γs)^{2L} in fractions, as its terms cancel.
    moments, exact = depth.white_moments(5, 20, 24), Fraction(step)
    terms = [math.comb(24, k) * (-exact) ** k * moment for k, moment in enumerate(moments)]
    assert depth.more_loops(WHITE, step, [12])[0] == pytest.approx(float(sum(terms)), rel=1e-12)
    assert np.all(np.diff(depth.more_loops(noisy(1.0), step, range(5, 12))) > 0)
    with pytest.raises(Refusal, match="too large for a number"):
        depth.more_loops(WHITE, step, [1000])


# Its escape -------------------------------------------------------------------------------------


def test_flows_have_their_reference_values():
    known = [(0.4081124, 0.3732520), (0.7402516, 0.6717916), (1.1313113, 0.5190864),
             (1.2493326, 0.5153707)]  # fmt: skip
    found = depth.stack_flow(WHITE, [0.01, -0.01], [1.0, 5.0, 20.0, 60.0])
    np.testing.assert_allclose(found, known, atol=6e-8)
    loop = depth.stack_flow(WHITE, [0.0, 0.0], [0.5, 1.0, 2.0, 5.0], tied=True)
    np.testing.assert_allclose(loop[:, 0], [0.390811, 0.530815, 0.672833, 0.741407], atol=6e-7)
    # Times are those of the task: λ = ½ and m = 2 stretch γ by 1/λ, and slow λγ by mλ³ = ¼.
    slow = LinearRegression(np.full(5, 0.5), 20, prior_covariance=2.0 * np.eye(5))
    again = depth.stack_flow(slow, [0.02, -0.02], [4.0, 20.0])
    np.testing.assert_allclose(again, 2 * np.array(known[:2]), atol=2e-7)


def half_way(start: np.ndarray, level: float, end: float) -> float:
    """When the exact flow passes a level for the last time: another solver, in other variables.

    The mean and the differences, so that differences of 1e-12 are not lost to rounding: they obey
    d(γ_l − γ_1)/dt = (γ_l − γ_1) E[s G p_l1].
    """
    s, weights = SPECTRUM.values, SPECTRUM.weights
    first, others = start[0], start[1:] - start[0]

    def velocity(_, now):
        steps = now[0] + np.concatenate([[0.0], now[1:]])
        factors = 1 - steps[:, None] * s
        p = np.prod(factors, axis=0)
        rates = [
            weights @ (s * s * p * np.prod(np.delete(factors, [0, layer], 0), axis=0))
            for layer in range(1, len(steps))
        ]
        pull = weights @ (s * p * np.prod(factors[1:], axis=0))
        return np.concatenate([[pull], now[1:] * rates])

    def passes(_, now):
        steps = now[0] + np.concatenate([[0.0], now[1:]])
        return weights @ np.prod(1 - steps[:, None] * s, axis=0) ** 2 - level

    options = {"method": "DOP853", "rtol": 1e-10, "atol": 1e-18, "events": passes}
    begin = np.concatenate([[first], others])
    return scipy.integrate.solve_ivp(velocity, (0, end), begin, **options).t_events[0][-1]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_escape_times_are_those_of_the_exact_flow(direction):
    for spread in (1e-2, 1e-4, 1e-8, 1e-12):
        start = spread * np.array(direction)
        found = depth.loop_escape(WHITE, start)
        assert found.constant == pytest.approx(DIRECTIONS[direction], abs=6e-5)
        exact = half_way(start, sum(found.levels) / 2, 2 * found.time)
        # The error is of the order of the spread: within two percent at 1e-2 for all depths.
        assert found.time == pytest.approx(exact, rel=max(2 * spread, 2e-5))


@pytest.mark.slow
def test_escape_rates_are_those_of_the_exact_flow():
    # From the times themselves: a spread smaller by e takes longer by 1/κ.
    for direction in DIRECTIONS:
        times = [depth.loop_escape(WHITE, d * np.array(direction)) for d in (1e-7, 1e-9)]
        level = sum(times[0].levels) / 2
        exact = [
            half_way(d * np.array(direction), level, 2 * at.time)
            for d, at in zip((1e-7, 1e-9), times)
        ]
        measured = np.log(100) / (exact[1] - exact[0])
        assert measured == pytest.approx(times[0].rate, rel=1e-6)


@pytest.mark.slow
def test_escape_with_noise_and_from_a_start_that_is_not_zero():
    task = noisy(0.3)
    start = 0.2 + 1e-4 * np.array([1.0, -1.0])
    found = depth.loop_escape(task, start)
    risk = lambda time: depth.stack_risk(task, depth.stack_flow(task, start, [time])[0])
    middle = sum(found.levels) / 2
    exact = scipy.optimize.brentq(lambda t: risk(t) - middle, 0.7 * found.time, 1.5 * found.time)
    assert found.time == pytest.approx(exact, rel=1e-3)


def test_loops_that_never_break_are_refused():
    for task, steps, words in (
        (WHITE, [0.1, 0.1], "stay a loop"),
        (WHITE, [0.1, 0.1, 0.2], "stay tied"),
        (noisy(1.0), [0.1, 0.2], "stable at this noise"),
        (WHITE, [0.9, 0.8], "must be below"),
        (WHITE, [0.5, -0.5], "too much for them to stay a loop"),
    ):
        with pytest.raises(Refusal, match=words):
            depth.loop_escape(task, steps)
    with pytest.raises(Refusal, match="a loop has one step"):
        depth.stack_flow(WHITE, [0.1, 0.2], [1.0], tied=True)


# Stationary points ------------------------------------------------------------------------------


def test_atlas_has_its_reference_levels():
    three = {point.composition: point for point in depth.stack_atlas(WHITE, 3)}
    assert three[2, 1].risk == pytest.approx(0.030885, abs=6e-7)
    np.testing.assert_allclose(three[2, 1].steps, [0.5238, 0.5238, 1.6255], atol=6e-5)
    assert three[1, 2].risk == pytest.approx(0.037568, abs=6e-7)
    np.testing.assert_allclose(three[1, 2].steps, [0.4362, 1.0410, 1.0410], atol=6e-5)
    known = [0.010991, 0.012141, 0.012826, 0.015555, 0.015764, 0.017309, 0.022908, 0.032651]
    four = [point.risk for point in depth.stack_atlas(WHITE, 4)]
    np.testing.assert_allclose(four, known, atol=6e-7)


@pytest.mark.parametrize(("dim", "length"), [(5, 20), (5, 6)])
def test_every_point_of_the_atlas_rests_with_the_hessian_that_it_says(dim, length):
    task = noisy(0, dim, length)
    for layers in (1, 2, 3, 4, 5):
        points = depth.stack_atlas(task, layers)
        assert len(points) == depth.number_of_stack_functions(layers)
        assert sum(p.copies for p in points) == depth.number_of_stack_points(layers)
        # Morse: a landscape that grows in every direction has Σ (−1)^index = 1.
        assert sum((-1) ** p.index * p.copies for p in points) == 1
        for point in points:
            assert np.max(np.abs(depth.stack_force(task, point.steps))) < 1e-12
            values = np.linalg.eigvalsh(depth.stack_hessian(task, point.steps))
            np.testing.assert_allclose(values, point.curvatures, atol=1e-11)
            assert np.sum(values < 0) == point.index
        best = depth.optimal_stack(task, layers)
        np.testing.assert_allclose(points[0].steps, best.steps, rtol=1e-9)
        assert points[-1].risk == pytest.approx(depth.tied_loop(task, layers).risk, rel=1e-10)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("layers", [2, 3])
def test_roots_found_from_random_starts_are_those_of_the_atlas(layers):
    # Newton's method on F = 0 alone, which knows nothing of compositions.
    rng, found = np.random.default_rng(layers), set()
    force = lambda steps: depth.stack_force(SPECTRUM, steps)
    slope = lambda steps: -depth.stack_hessian(SPECTRUM, steps)
    for _ in range(60 * layers):
        root = scipy.optimize.root(force, rng.uniform(0.1, 2.2, layers), jac=slope, tol=1e-13)
        if root.success and np.max(np.abs(force(root.x))) < 1e-11:
            found.add(tuple(np.sort(root.x).round(6)))
    atlas = {tuple(point.steps.round(6)) for point in depth.stack_atlas(WHITE, layers)}
    assert found == atlas


def test_atlas_of_tasks_with_noise_is_refused():
    with pytest.raises(Refusal, match="noise"):
        depth.stack_atlas(noisy(0.1), 2)
    with pytest.raises(Refusal, match="`layers` = 13"):
        depth.stack_atlas(WHITE, 13)


# Across the scalar layers -----------------------------------------------------------------------


def matrix_risk(layers: np.ndarray, contexts: np.ndarray, cost: float) -> np.ndarray:
    """d·R of any matrices Γ_l on given S: tr ΠΠᵀ + c tr VSVᵀ, one number for each context."""
    product = estimate = None
    for layer in layers:
        left = np.eye(len(layer)) - layer @ contexts
        estimate = layer if estimate is None else left @ estimate + layer
        product = left if product is None else left @ product
    noise = np.sum(np.asarray(estimate) @ contexts * estimate, axis=(1, 2))
    return np.sum(np.asarray(product) ** 2, axis=(1, 2)) + cost * noise


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("sign", "noise"), [(1, 0.0), (-1, 0.0), (1, 0.5), (-1, 0.5)])
def test_transverse_curvatures_are_those_of_sampled_risks(sign, noise):
    # One generic direction of the form: second differences on the same sampled contexts.
    dim, length, count = 3, 8, 40_000
    rng = np.random.default_rng(5)
    x = rng.normal(size=(count, dim, length))
    contexts = x @ np.swapaxes(x, 1, 2) / length
    steps, shares = np.array([0.6, 1.1, 0.4]), np.array([0.8, -0.5, 1.0])
    a = rng.normal(size=(dim, dim))
    a = (a + sign * a.T) / 2
    a = a - np.trace(a) / dim * np.eye(dim)
    cost, width = dim * noise / length, 1e-2
    risk = lambda size: matrix_risk(
        steps[:, None, None] * np.eye(dim) + size * shares[:, None, None] * a, contexts, cost
    )
    sampled = (risk(width) + risk(-width) - 2 * risk(0.0)) / (2 * width**2)
    error = sampled.std() / np.sqrt(count)
    form = depth._transverse._form(depth.Sizes(dim, length, 1.0, 1 / dim, noise, 0.0), steps, sign)
    expected = shares @ form @ shares * np.sum(a**2)
    # The fourth order adds width² times a number of order one.
    assert abs(sampled.mean() - expected) < 4 * error + 1e-3


def test_scalar_layers_are_minima_among_matrices_without_noise_in_every_order():
    known = {2: 0.1420, 3: 0.0236, 4: 0.0055}
    for layers, value in known.items():
        best = depth.optimal_stack(WHITE, layers).steps
        lowest = min(
            min(np.concatenate(depth.transverse_curvatures(WHITE, np.array(order))))
            for order in itertools.permutations(best)
        )
        assert lowest == pytest.approx(value, abs=6e-5)
    for dim, length in ((5, 5), (10, 5), (2, 20)):
        task = noisy(0, dim, length)
        for layers in (2, 3):
            best = depth.optimal_stack(task, layers).steps
            assert min(np.concatenate(depth.transverse_curvatures(task, best))) > 0


@pytest.mark.slow
def test_noise_makes_scalar_layers_saddles_towards_antisymmetric_matrices():
    known = {(3, 2.0): -0.0020, (4, 1.0): -0.0028, (5, 1.0): -0.0023, (3, 1.0): 0.0148}
    for (layers, noise), value in known.items():
        steps = depth.best_steps(noisy(noise), layers).steps
        found = depth.transverse_curvatures(noisy(noise), steps)
        assert found.antisymmetric[0] == pytest.approx(value, abs=6e-5)
        assert found.symmetric[0] > 0
    with pytest.raises(Refusal, match="one dimension"):
        depth.transverse_curvatures(noisy(0, 1), [1.0])


# Merged layers ----------------------------------------------------------------------------------


def test_merged_layers_have_their_reference_times():
    known = {1.0: (1.7117, 2.9036), 0.17: (1.7942, 4.1834), 1e-3: (1.8037, 10.2748),
             1e-6: (1.8037, 18.4325)}  # fmt: skip
    for ratio, times in known.items():
        found = depth.merged_drop_times(WHITE, [1e-4, 1e-4 * ratio])
        np.testing.assert_allclose(found, times, atol=6e-5)
    assert depth.fresh_layer_rate(WHITE, 1) == pytest.approx(0.8467949737, abs=6e-11)
    m = [float(value) for value in depth.white_moments(5, 20, 3)]
    by_moments = 2 * np.sqrt(5) * (m[3] / m[2] ** 2 - 1)
    assert depth.fresh_layer_rate(WHITE, 1) == pytest.approx(by_moments, rel=1e-12)


@pytest.mark.slow
def test_merged_levels_last_as_the_ratios_of_steps_say():
    # Three layers: each plateau is longer by the difference of the predicted durations.
    drops = [depth.merged_drop_times(WHITE, [1e-4, 1e-7, small]) for small in (1e-12, 1e-16)]
    plans = [depth.merged_levels(WHITE, [1e-4, 1e-7, small]) for small in (1e-12, 1e-16)]
    assert drops[0][:2] == pytest.approx(drops[1][:2], rel=1e-4)
    longer = plans[1].durations[1] - plans[0].durations[1]
    assert drops[1][2] - drops[0][2] == pytest.approx(longer, rel=1e-3)
    np.testing.assert_allclose(plans[0].levels, [1, 3 / 13, 0.0722479, 0.0267217], atol=6e-8)
    assert depth.merged_stack_flow(WHITE, [1e-4, 1e-4], [40.0])[0] == pytest.approx(0.742518)


def test_merged_flow_is_that_of_merged_weights():
    # v̇ = ⟨U, E⟩, U̇ = vE with the force of the scalar stack, for every layer, balanced.
    dim, start = 5, np.array([0.02, 0.005])

    def velocity(_, now):
        v, u = now[:2], now[2:]  # U = u I, |U|² = d u²
        force = depth.stack_force(SPECTRUM, v * u)
        return np.concatenate([dim * u * force, v * force])

    begin = np.concatenate([dim**0.25 * np.sqrt(start), dim**-0.25 * np.sqrt(start)])
    solved = scipy.integrate.solve_ivp(velocity, (0, 6), begin, rtol=1e-10, atol=1e-12)
    expected = solved.y[:2, -1] * solved.y[2:, -1]
    np.testing.assert_allclose(depth.merged_stack_flow(WHITE, start, [6.0])[0], expected, rtol=1e-7)
    # From steps of any size: the largest is what counts.
    tiny = depth.merged_stack_flow(WHITE, [1e-300, 1e-3], [10.0])[0]
    assert tiny == pytest.approx([0, 10 / 13], abs=1e-6)
    with pytest.raises(Refusal, match="must be positive"):
        depth.merged_levels(WHITE, [0.0, 1.0])
