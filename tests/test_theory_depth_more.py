"""Stacks beyond scalars on white inputs: infinite context, pairs, value blocks, scaling laws."""

import itertools

import numpy as np
import pytest
import scipy.integrate

from iclflow.errors import Refusal
from iclflow.tasks import LinearRegression
from iclflow.theory import cascade, depth, loss_of_matrix
from iclflow.theory.depth import Spectrum

WHITE = LinearRegression(np.ones(5), context=20)
FOUR = LinearRegression([0.4, 0.3, 0.2, 0.1], context=31)
TWO = LinearRegression([0.7, 0.3], context=8)
ROWS = np.array([[1.0, 2, 3, 4], [2, 2, 2, 2], [1, 1, 1, 1], [0.5, 1, 0.5, 1]])


# Infinite context -------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_infinite_context_losses_are_those_of_the_integrated_flow(tied):
    values, prior, times = np.array([1.0, 0.5, 0.2]), np.array([0.5, 1.0, 2.0]), [0.0, 0.7, 5.0, 60]
    task = LinearRegression(values, 9, prior_covariance=np.diag(prior), noise=0.1)
    for layers in (1, 2, 3):

        def velocity(_, flat):
            gammas = flat.reshape(-1, 3)
            used = np.repeat(gammas, layers, axis=0) if tied else gammas
            left = 1 - used * values
            pull = [
                values**2 * prior * np.prod(left, axis=0) * np.prod(np.delete(left, l, 0), axis=0)
                for l in range(layers)
            ]
            return np.ravel(np.sum(pull, axis=0) if tied else pull)

        start = np.zeros(3 if tied else 3 * layers)
        options = {"t_eval": times, "rtol": 1e-10, "atol": 1e-12}
        found = scipy.integrate.solve_ivp(velocity, (0, 60), start, **options).y
        gammas = found.T.reshape(len(times), -1, 3)
        left = np.prod(1 - gammas * values, axis=1) ** (layers if tied else 1)
        expected = 0.1 + np.sum(values * prior * left**2, axis=1)
        predicted = depth.infinite_context_loss(task, layers, times, tied)
        np.testing.assert_allclose(predicted, expected, rtol=1e-7)
        halves = depth.direction_times(task, layers, 0.5, tied)
        for k in range(3):  # each direction alone
            alone = LinearRegression([values[k]], 9, prior_covariance=[[prior[k]]])
            loss = depth.infinite_context_loss(alone, layers, [0.0, halves[k]], tied)
            assert loss[1] == pytest.approx(loss[0] / 2, rel=1e-12)


def test_layers_at_infinite_context_keep_their_invariants():
    values, start = np.array([0.7, 0.3]), np.array([[0.3, 0.1], [0.0, 0.5], [-0.2, 0.0]])
    task = LinearRegression(values, 9)

    def velocity(_, flat):
        left = 1 - flat.reshape(3, 2) * values
        pull = [np.prod(left, 0) * np.prod(np.delete(left, l, 0), 0) for l in range(3)]
        return np.ravel(values**2 * pull)

    solved = scipy.integrate.solve_ivp(velocity, (0, 50), start.ravel(), rtol=1e-11, atol=1e-13)
    end = solved.y[:, -1].reshape(3, 2)
    first, last = (depth.layer_invariants(task, steps) for steps in (start, end))
    np.testing.assert_allclose(first, last, atol=1e-8)
    assert np.max(np.abs(end - start)) > 0.5
    # The layer that begins nearest to 1/λ takes the direction, the others stop.
    assert np.argmin(np.abs(1 - end * values), axis=0).tolist() == [0, 1]


def test_losses_at_another_covariance_are_those_of_layers_run_on_long_contexts():
    rng, length, pairs = np.random.default_rng(8), 400_000, 40_000
    shift, second = np.array([[0.9, 0.2], [0.2, 0.5]]), np.array([[1.0, 0.3], [0.3, 2.0]])
    task = LinearRegression([0.8, 0.4], 9)
    shifted = LinearRegression(covariance=shift, prior_covariance=second, context=9, noise=0.1)
    inputs = lambda count: rng.normal(size=(count, 2)) @ np.linalg.cholesky(shift).T
    x, step = inputs(length), np.diag([1 / 0.8, 1 / 0.4])
    w = rng.normal(size=(pairs, 2)) @ np.linalg.cholesky(second).T
    gram, x_query = x.T @ x / length, inputs(pairs)
    for layers in (1, 3):
        found = np.zeros_like(w)
        for _ in range(layers):
            found = found + (w - found) @ gram @ step
        squares = np.sum((w - found) * x_query, axis=1) ** 2
        error = squares.std() / np.sqrt(pairs)
        known = depth.shifted_loss(task, shifted, layers) - 0.1
        # S of the one context is off by 1/√N, which L layers see L times.
        assert abs(squares.mean() - known) < 4 * error + layers * known / length**0.5
    with pytest.raises(Refusal, match="must have that of `task`"):
        depth.shifted_loss(task, FOUR, 2)


def test_pooled_heads_learn_each_direction_once(unchecked):
    rng = np.random.default_rng(0)
    v, K, Q = (1e-3 * rng.normal(size=shape) for shape in ((2, 3), (2, 3, 4, 1), (2, 3, 4, 1)))
    found = depth.pooled_cascade(FOUR, v, K, Q)
    np.testing.assert_allclose(found.levels, [1, 0.6, 0.3, 0.1, 0], atol=1e-12)
    long = LinearRegression([0.4, 0.3, 0.2, 0.1], context=10**9)
    one = cascade(long, v.ravel(), K.reshape(6, 4, 1), Q.reshape(6, 4, 1))
    np.testing.assert_allclose(found.drop_times, one.drop_times, rtol=1e-6)
    assert found.heads == one.heads
    with pytest.raises(Refusal, match="must be"):
        depth.pooled_cascade(FOUR, v, K[:, :2], Q)


def test_pooled_heads_have_the_times_of_the_flow_of_all_layers():
    # Two layers of one aligned head for each of two directions, γ_lk = v_lk³, S = Λ.
    values = np.array([0.7, 0.3])
    start = 1e-3 * np.array([[1.0, 2.5], [1.6, 0.8]])

    def velocity(_, flat):
        v = flat.reshape(2, 2)
        left = 1 - v**3 * values
        force = values**2 * np.prod(left, 0) * left[::-1]
        return np.ravel(v**2 * force)

    loss = lambda flat: values @ np.prod(1 - flat.reshape(2, 2) ** 3 * values, axis=0) ** 2
    levels = [1.0, 0.3, 0.0]
    events = [lambda _, now, m=m: loss(now) - m for m in ((1 + 0.3) / 2, 0.3 / 2)]
    options = {"method": "LSODA", "rtol": 1e-9, "atol": 1e-13, "events": events}
    solved = scipy.integrate.solve_ivp(velocity, (0, 2e4), start.ravel(), **options)
    exact = [times[0] for times in solved.t_events]
    task = LinearRegression(values, 9)
    heads = np.eye(2)[None, :, :, None] * start[:, :, None, None]
    found = depth.pooled_cascade(task, start, heads, heads)
    np.testing.assert_allclose(found.levels, levels, atol=1e-12)
    # Leading order in the size of the weights: a head of the other layer that is not far behind
    # still pulls during the drop, for 1e-3 of the wait.
    np.testing.assert_allclose(found.drop_times, exact, rtol=5e-3)


# Diagonal layers at finite context --------------------------------------------------------------


def test_diagonal_stacks_have_their_reference_losses():
    noisy = LinearRegression([0.4, 0.3, 0.2, 0.1], 31, noise=0.1, noisy_query=False)
    known = {2: (0.102257460307, 0.109119129939), 3: (0.075249095218, 0.083029624450)}
    for layers, (free, noise) in known.items():
        assert depth.diagonal_stack_loss(FOUR, ROWS[:layers]) == pytest.approx(free, abs=6e-13)
        assert depth.diagonal_stack_loss(noisy, ROWS[:layers]) == pytest.approx(noise, abs=6e-13)
    exchanged = depth.diagonal_stack_loss(FOUR, ROWS[1::-1])
    assert exchanged == pytest.approx(0.098881944211, abs=6e-13)


def test_diagonal_losses_meet_one_layer_white_inputs_and_infinite_context():
    noisy = LinearRegression([0.4, 0.3, 0.2, 0.1], 31, noise=0.2)
    one = depth.diagonal_stack_loss(noisy, ROWS[:1])
    assert one == pytest.approx(loss_of_matrix(noisy, np.diag(ROWS[0])), rel=1e-12)
    white = LinearRegression(np.full(3, 0.5), 4, noise=0.3)
    for steps in ([0.7, 1.5], [0.4, 2.0, 1.1]):
        rows = np.repeat(np.array(steps)[:, None], 3, axis=1)
        assert depth.diagonal_stack_loss(white, rows) == pytest.approx(
            depth.stack_loss(white, steps), rel=1e-11
        )
    long = LinearRegression([0.4, 0.3, 0.2, 0.1], 10**12)
    left = np.prod(1 - ROWS[:2] * np.array([0.4, 0.3, 0.2, 0.1]), axis=0)
    expected = np.array([0.4, 0.3, 0.2, 0.1]) @ left**2
    assert depth.diagonal_stack_loss(long, ROWS[:2]) == pytest.approx(expected, rel=1e-10)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("layers", [2, 3])
def test_diagonal_losses_are_those_of_layers_run_on_sampled_contexts(layers):
    values, prior, noise = np.array([1.0, 0.4]), np.array([0.5, 2.0]), 0.3
    rng, count, length = np.random.default_rng(layers), 60_000, 5
    steps = np.array([[0.5, 1.0], [0.8, 0.3], [0.3, 1.4]])[:layers]
    x = rng.normal(size=(count, length, 2)) * np.sqrt(values)
    w = rng.normal(size=(count, 2)) * np.sqrt(prior)
    y = np.einsum("cnd,cd->cn", x, w) + np.sqrt(noise) * rng.normal(size=(count, length))
    found = np.zeros_like(w)
    for gamma in steps:
        left = y - np.einsum("cnd,cd->cn", x, found)
        found = found + gamma * np.einsum("cn,cnd->cd", left, x) / length
    squares = (w - found) ** 2 @ values
    task = LinearRegression(
        values, length, noise=noise, prior_covariance=np.diag(prior), noisy_query=False
    )
    error = squares.std() / np.sqrt(count)
    assert abs(squares.mean() - depth.diagonal_stack_loss(task, steps)) < 4 * error


def test_levels_of_pairs_have_their_reference_values():
    # (layer, direction) counted from 0: the two orders in which training visits them.
    first = [[(1, 0)], [(0, 0), (1, 0)], [(0, 0), (1, 0), (0, 1)]]
    for pairs, level in zip(first, (0.463014, 0.380698, 0.176965)):
        assert depth.pair_level(TWO, pairs, 2).loss == pytest.approx(level, abs=6e-7)
    second = [[(0, 0), (1, 0)], [(0, 0), (1, 0), (1, 1)]]
    for pairs, level in zip(second, (0.380698, 0.155901)):
        assert depth.pair_level(TWO, pairs, 2).loss == pytest.approx(level, abs=6e-7)
    # All pairs: two minima, and the race for the first direction decides.
    every = list(itertools.product(range(2), range(2)))
    ends = [depth.pair_level(TWO, every, 2, np.array(start)).loss
            for start in ([[1.0, 3], [2, 1]], [[2.0, 2], [1, 1]])]  # fmt: skip
    assert sorted(ends) == pytest.approx([0.108981, 0.110199], abs=6e-7)


@pytest.mark.slow
def test_training_from_small_heads_visits_the_levels_of_pairs():
    start = np.array([[0.010, 0.012], [0.014, 0.009]])  # (layer, direction)
    risk = lambda v: depth.diagonal_stack_loss(TWO, v.reshape(2, 2) ** 3)

    def velocity(_, v):
        width = 1e-5  # central differences: relative errors of 1e-6 where the loss bends
        slope = [(risk(v + e) - risk(v - e)) / (2 * width) for e in width * np.eye(4)]
        return -np.array(slope) / 6  # dv/dt = v²E, and ∂L/∂v = −2·3v²E

    options = {"method": "LSODA", "rtol": 1e-4, "atol": 1e-7}
    solved = scipy.integrate.solve_ivp(velocity, (0, 700), start.ravel(), **options)
    losses = np.array([risk(v) for v in solved.y.T])
    # The first plateau after the start is {(layer 1, direction 0)}.
    level = depth.pair_level(TWO, [(1, 0)], 2).loss
    near = np.abs(losses - level) < 2e-3
    assert np.ptp(solved.t[near]) > 20


@pytest.mark.slow
def test_order_of_unequal_steps_makes_different_minima():
    every = list(itertools.product(range(2), range(4)))
    large, small = np.array([3.2, 4.2, 6.1, 11.0]), np.array([1.6, 2.0, 3.0, 6.0])
    best = depth.pair_level(FOUR, every, 2, np.array([large, small]))
    assert best.loss == pytest.approx(0.0256401151, abs=6e-11)
    np.testing.assert_allclose(best.steps[0], [3.23871, 4.23825, 6.13369, 11.13942], atol=2e-5)
    np.testing.assert_allclose(best.steps[1], [1.56015, 2.07095, 3.07878, 5.99764], atol=2e-5)
    other = depth.pair_level(FOUR, every, 2, np.array([small, large]))
    assert other.loss == pytest.approx(0.0258901242, abs=6e-11)
    single = depth.pair_level(FOUR, [(0, k) for k in range(4)], 1)
    assert single.loss == pytest.approx(85873 / 631442, rel=1e-9)


def test_bad_pairs_and_shapes_are_refused():
    for call, words in (
        (lambda: depth.pair_level(TWO, [(2, 0)], 2), r"holds \(2, 0\)"),
        (lambda: depth.pair_level(TWO, [], 2), "is empty"),
        (lambda: depth.pair_level(TWO, [(0, 0)], 4), "`layers` = 4"),
        (lambda: depth.diagonal_stack_loss(FOUR, np.ones((4, 4))), "at most 3 layers"),
        (lambda: depth.diagonal_stack_loss(FOUR, np.ones((2, 3))), "must be"),
        (lambda: depth.layer_invariants(FOUR, np.ones((2, 3))), "must be"),
        (lambda: depth.infinite_context_loss(FOUR, 0, [1.0]), "`layers` = 0"),
    ):
        with pytest.raises(Refusal, match=words):
            call()


# Published experiments --------------------------------------------------------------------------


def test_published_losses_have_their_reference_values():
    known = {1: (15 / 13, 15 / 13, 1.2), 2: (0.3612397, 0.4990074, 0.5419008),
             3: (0.1336084, 0.2683422, 0.3236621),
             4: (0.0549526, 0.1632534, 0.2609389)}  # fmt: skip
    for layers, losses in known.items():
        np.testing.assert_allclose(depth.published_losses(WHITE, layers), losses, atol=6e-8)
    lengths = [3.2535077, 2.0402429, 1.2955444, 0.8503240, 0.5793670, 0.4089439, 0.2978517,
               0.2229340, 0.1708367, 0.1336084]  # fmt: skip
    found = [
        depth.published_losses(LinearRegression(np.ones(5), n), 3).optimum for n in range(2, 21, 2)
    ]
    np.testing.assert_allclose(found, lengths, atol=6e-8)


def test_released_baseline_is_gradient_descent_on_all_pairs_but_one():
    rng, count = np.random.default_rng(6), 40_000
    x, w = rng.normal(size=(count, 20, 5))[:, :19], rng.normal(size=(count, 5))
    left = w
    for _ in range(2):
        left = left - 0.04 * np.einsum("cnd,cne,ce->cd", x, x, left)
    squares = np.sum(left**2, axis=1)
    error = squares.std() / np.sqrt(count)
    assert abs(squares.mean() - depth.released_baseline(WHITE, 2)) < 4 * error


def test_value_blocks_have_their_reference_minima():
    one = depth.value_block_minima(WHITE, 1, starts=4)
    assert [5 * minimum.risk for minimum in one] == pytest.approx([15 / 13])
    two = [5 * minimum.risk for minimum in depth.value_block_minima(WHITE, 2, starts=40)]
    np.testing.assert_allclose(two, [0.0575012, 0.0865479, 0.1023449], atol=6e-8)


@pytest.mark.slow
def test_three_layers_with_value_blocks_have_their_reference_minima():
    found = depth.value_block_minima(WHITE, 3)
    known = [0.00096131, 0.00101157, 0.00104926, 0.00115808]
    np.testing.assert_allclose([5 * minimum.risk for minimum in found[:4]], known, atol=6e-9)


def test_value_block_risk_is_that_of_layers_that_move_the_inputs():
    rng, count = np.random.default_rng(7), 20_000
    x, w = rng.normal(size=(count, 20, 5)), rng.normal(size=(count, 5))
    a, b = np.array([0.4, 0.7]), np.array([0.5, -0.3])
    # Residuals of labels, and inputs of the context and of the query, layer by layer.
    query = rng.normal(size=(count, 5))
    labels, answer = np.einsum("cnd,cd->cn", x, w), np.zeros(count)
    for key_query, value in zip(a, b):
        weights = key_query * np.einsum("cnd,ced->cne", x, x) / 20
        from_query = key_query * np.einsum("cnd,cd->cn", x, query) / 20
        answer = answer + np.einsum("cn,cn->c", from_query, labels)
        labels = labels - np.einsum("cne,ce->cn", weights, labels)
        query = query - value * np.einsum("cn,cnd->cd", from_query, x)
        x = x - value * np.einsum("cne,ced->cnd", weights, x)
    first = np.random.default_rng(7)
    first.normal(size=(count, 20, 5)), first.normal(size=(count, 5))
    target = np.einsum("cd,cd->c", w, first.normal(size=(count, 5)))
    squares = (target - answer) ** 2
    error = squares.std() / np.sqrt(count)
    assert abs(squares.mean() - 5 * depth.value_block_risk(WHITE, a, b)) < 4 * error


# Scaling laws -----------------------------------------------------------------------------------


def test_power_laws_have_their_reference_risks():
    spectrum = Spectrum.power_law(1.5, 1.0)
    known = {1: 0.14822734591, 2: 0.044263557478, 4: 0.0089231878176, 8: 0.0012938757986}
    for layers, value in known.items():
        assert depth.stack_bound(spectrum, layers) == pytest.approx(value, rel=1e-10)
    loops = {2: (0.083126000420, 1.27464695), 4: (0.039252547938, 1.4597021),
             8: (0.018377720534, 1.62771333)}  # fmt: skip
    for layers, (risk, step) in loops.items():
        loop = depth.tied_loop(spectrum, layers)
        assert loop.risk == pytest.approx(risk, abs=6e-13)
        assert loop.step == pytest.approx(step, abs=6e-9)
    steps = depth.optimal_stack(spectrum, 8).steps
    np.testing.assert_allclose(steps[:4], [1.000, 2.828, 5.196, 8.003], atol=6e-4)
    assert steps[-1] == pytest.approx(105.7, abs=0.05)


def test_modes_taken_together_have_the_risks_of_all_modes():
    k = np.arange(1, 5001.0)
    weights = k**-2.5 / np.sum(k**-2.5)
    each, bins = Spectrum(k**-1.5, weights), Spectrum.power_law(1.5, 1.0, 5000)
    assert len(bins.values) < 1200
    for layers in (1, 8, 20):  # bins of one percent: smooth where no step falls on a mode
        exact = depth.stack_bound(each, layers)
        assert depth.stack_bound(bins, layers) == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize(("nu", "beta"), [(1.5, 1.0), (1.0, 1.0), (2.0, 0.5)])
def test_time_law_is_the_corrected_one_at_every_depth(nu, beta):
    law = depth.time_law(nu, beta)
    # Stated beforehand: from when direction 10² is learned to when 10⁶ is, of 10¹⁰.
    grows = 2 * nu + nu * beta + 1
    times = np.geomspace(100**grows, 1e6**grows, 30)
    for layers in (1, 2, 4):
        losses = depth.power_law_loss(nu, beta, layers, times, 10**10)
        slope = depth.fitted_exponent(times, losses)
        assert slope == pytest.approx(law.exponent, rel=1e-3)
        assert law.printed is not None and abs(slope / law.printed - 1) > 0.05


def test_time_law_of_rotated_covariances_depends_on_the_parametrisation():
    for beta, nu in ((1.0, 1.5), (0.5, 2.0)):
        spectrum = Spectrum.power_law(nu, beta, 10**12)
        times = np.geomspace(1e6, 1e10, 15)
        for degree in (1, 2, 3, 5):
            slope = depth.fitted_exponent(times, depth.deep_loop_loss(spectrum, times, degree))
            law = depth.rotated_time_law(beta, degree)
            assert slope == pytest.approx(law.exponent, rel=1e-3)
    assert depth.rotated_time_law(1.0, 1).printed == 1 / 3
    assert depth.rotated_time_law(1.0, 3).printed is None


def test_depth_laws_of_loops_and_of_untied_layers():
    for (nu, beta), value in {(1.5, 1.0): -1.02, (2.0, 0.5): -0.508, (1.2, 0.7): -0.712}.items():
        spectrum, depths = Spectrum.power_law(nu, beta, 10**6), np.array([64.0, 256.0])
        loops = [depth.tied_loop(spectrum, int(count)).risk for count in depths]
        slope = -depth.fitted_exponent(depths, np.array(loops))
        assert slope == pytest.approx(value, abs=6e-4 if value > -1 else 6e-3)
        assert -slope == pytest.approx(depth.depth_law(nu, beta, True).exponent, rel=0.03)
    untied = {(1.5, 1.0): -3.39, (2.0, 0.5): -1.95, (1.0, 1.0): -2.90, (1.2, 0.7): -2.17,
              (3.0, 0.5): -2.43}  # fmt: skip
    for (nu, beta), value in untied.items():
        spectrum, depths = Spectrum.power_law(nu, beta, 10**12), np.array([32.0, 64.0])
        risks = [depth.stack_bound(spectrum, int(count)) for count in depths]
        slope = depth.fitted_exponent(depths, np.array(risks))
        assert -slope == pytest.approx(value, abs=6e-3)
        law = depth.depth_law(nu, beta, False)
        # Tending to it from below, and far from β.
        assert 0.96 * law.exponent < slope < law.exponent and slope > 2 * beta
    steps = [depth.tied_loop(Spectrum.power_law(1.5, 1.0, 10**6), n).step for n in (16, 64, 256)]
    np.testing.assert_allclose(steps, [1.76, 1.91, 1.97], atol=6e-3)


def test_steps_on_single_eigenvalues_are_sharp():
    # ½∂²R along the step on λ₁: gradient descent must use steps below its inverse.
    known = {2: 4.8, 4: 1.2e4, 6: 9.9e8, 8: 7e14}
    spectrum = Spectrum.power_law(1.5, 1.0)
    for layers, value in known.items():
        steps = depth.optimal_stack(spectrum, layers).steps
        sharp = depth.stack_hessian(spectrum, steps)[0, 0]
        assert sharp == pytest.approx(value, rel=0.03)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("count", [16, 8])
def test_width_and_context_losses_are_those_of_sampled_projections(count):
    rng, modes, draws = np.random.default_rng(count), 100, 200
    k = np.arange(1, modes + 1.0)
    values, weights = k**-1.5, k**-2.5 / np.sum(k**-2.5)
    spectrum, width, context = Spectrum(values, weights), [], []
    for _ in range(draws):
        # The span of Λ^½Aᵀ for features Ax, and that of samples x = Λ^½z, are drawn alike.
        span, _ = np.linalg.qr((rng.normal(size=(count, modes)) * np.sqrt(values)).T)
        left = np.eye(modes) - span @ span.T
        width.append(weights @ np.diag(left))
        context.append(values @ left**2 @ (weights / values))
    # Deterministic equivalents: corrections of order 1/count beside the standard error.
    for sampled, found in (
        (width, depth.width_loss(spectrum, count)),
        (context, depth.context_loss(spectrum, count)),
    ):
        error = np.std(sampled) / np.sqrt(draws) / found
        assert np.mean(sampled) / found == pytest.approx(1, abs=0.6 / count + 4 * error)


def test_width_and_context_laws_saturate_where_the_corrected_ones_say():
    k = np.arange(1, 50_001.0)
    counts = np.geomspace(100, 400, 6)
    for nu, beta in ((1.5, 1.5), (1.5, 0.6), (2.0, 3.0)):
        weights = k ** -(nu * beta + 1)
        spectrum = Spectrum(k**-nu, weights / weights.sum())
        for law, loss in (
            (depth.width_law(nu, beta), depth.width_loss),
            (depth.context_law(nu, beta), depth.context_loss),
        ):
            slope = depth.fitted_exponent(counts, [loss(spectrum, n) for n in counts])
            assert slope == pytest.approx(law.exponent, rel=0.03)


def test_shape_law_balances_width_and_depth():
    assert depth.shape_law(1.5, 0.7, True).exponent == pytest.approx(1.5)
    assert depth.shape_law(1.5, 0.7, False).exponent == pytest.approx(1.5 / 3.5)
    assert depth.shape_law(1.5, 2.0, True).exponent == pytest.approx(0.75)
    with pytest.raises(Refusal, match="`nu` = 0"):
        depth.shape_law(0, 1.0, True)
    with pytest.raises(Refusal, match="`width` = 0"):
        depth.width_loss(Spectrum.power_law(1.5, 1.0), 0)
    with pytest.raises(Refusal, match="must be positive"):
        depth.deep_loop_loss(Spectrum.power_law(1.5, 1.0), [0.0, 1.0])
