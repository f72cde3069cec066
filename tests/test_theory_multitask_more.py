"""Several tasks on blocks of their own: bounds, ridge, lengths, regimes, approximate dynamics."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

from iclflow.tasks import isotropic
from iclflow.theory import kernel_regression_risk, multitask, one_head_optimum
from iclflow.theory.multitask import Blocks

# The paper's setting: three tasks of ten coordinates, no noise.
EQUAL = Blocks(np.full(3, 10.0), np.ones(3), np.zeros(3), 100.0)
UNLIKE = Blocks(np.array([4.0, 6, 10]), np.array([1, 0.5, 2]), np.array([0.5, 1, 0.2]), 50.0)
WIDTH = 30
OMEGA, MU = np.where(np.eye(3) > 0, 0.01, 0.008), np.full((3, 3), 0.2)


def one_task(ratio: float, count: int = 1) -> Blocks:
    """Signal and noise of variance 1 a task, d/L = `ratio`: the setting of the paper's Figure 5."""
    return Blocks(np.full(count, 100.0), np.full(count, 0.01), np.ones(count), 100 / ratio)


def turned(rng, count: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(count, count)))[0]


# Equiangular heads and the bound.


@pytest.mark.parametrize(
    ("a", "b", "heads"),
    [(0.7, 0.2, 3), (0.7, -0.35, 3), (1.2, -0.4, 4), (0.5, -0.5, 2), (0.6, 0.6, 5), (1, 0, 1)],
)
def test_equiangular_heads_have_their_angles_and_the_total_share_of_the_closed_form(a, b, heads):
    omega = multitask.equiangular_heads(UNLIKE, a, b, heads, turned(np.random.default_rng(1), 3))
    gram = np.einsum("hj,j,kj->hk", omega, UNLIKE.sizes, omega)
    np.testing.assert_allclose(gram, np.where(np.eye(heads) > 0, a, b), atol=1e-14)
    measured = multitask.angles(UNLIKE, omega)
    assert measured.deviation < 1e-14
    assert measured[:2] == pytest.approx((a, b if heads > 1 else a), abs=1e-14)
    total = multitask.total_share(a, b, heads)
    assert multitask.shares(UNLIKE, omega).sum() == pytest.approx(total, rel=1e-12)
    bent = omega + 0.01 * np.eye(heads, 3)
    assert heads == 1 or multitask.angles(UNLIKE, bent).deviation > 1e-3


def test_total_share_stays_below_heads_minus_one():
    rng = np.random.default_rng(0)
    for heads in (2, 3, 8, 20):
        for a, part in rng.uniform(size=(200, 2)) * [5, 1]:
            b = a * (part * heads - 1) / (heads - 1)  # from −a/(H − 1) to a
            assert multitask.total_share(a, b, heads) < heads - 1
        near = multitask.total_share(1e-9, -1e-9 / (heads - 1), heads)
        assert near == pytest.approx(heads - 1, rel=1e-8)


def test_heads_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="span 4 dimensions: must be at most 3"):
        multitask.equiangular_heads(UNLIKE, 1.0, 0.0, 4)
    for a, b in ((0.1, 0.2), (0.1, -0.2), (np.inf, 0.0)):
        with pytest.raises(ValueError, match="must be finite with a ≥ b and a"):
            multitask.equiangular_heads(UNLIKE, a, b, 3)
    with pytest.raises(ValueError, match="`frame` must be orthogonal"):
        multitask.equiangular_heads(UNLIKE, 1.0, 0.0, 3, 2 * np.eye(3))
    with pytest.raises(ValueError, match="`size` = 0"):
        multitask.approach(UNLIKE, 3, 0.0)


def any_blocks(rng) -> Blocks:
    sizes = rng.integers(1, 40, int(rng.integers(1, 7))).astype(float)
    signal, noise = 10 ** rng.uniform(-2, 1, (2, len(sizes)))
    return Blocks(sizes, signal, noise, float(10 ** rng.uniform(0.3, 3)))


def test_approach_comes_to_the_bound_of_any_tasks():
    # Shares miss their limits by about `size`/2, relatively, and losses by no more than that.
    rng = np.random.default_rng(0)
    for _ in range(100):
        blocks, heads = any_blocks(rng), int(rng.integers(1, 9))
        bound = multitask.lower_bound(blocks, heads).loss
        for size in (1e-2, 1e-4):
            omega = multitask.approach(blocks, heads, size)
            found = multitask.loss(blocks, omega, multitask.best_mu(blocks, omega)).sum()
            assert -1e-9 < found / bound - 1 < size
            if heads <= len(blocks.sizes) + 1:
                assert multitask.angles(blocks, omega).deviation < 1e-13


def equiangular_losses(flat: np.ndarray, heads: int):
    """Losses, at the best μ, of equiangular heads (log(a + (H − 1)b), log(a − b), Euler angles)."""
    together, alone = np.exp(flat[0]), np.exp(flat[1])
    if heads > 3:  # in three dimensions four of them must add up to zero
        together = together * 0
    a, b = (together + (heads - 1) * alone) / heads, (together - alone) / heads
    c, s = np.cos(flat[2:]), np.sin(flat[2:])
    rows = np.array(
        [
            [c[0] * c[1] * c[2] - s[0] * s[2], -c[0] * c[1] * s[2] - s[0] * c[2], c[0] * s[1]],
            [s[0] * c[1] * c[2] + c[0] * s[2], -s[0] * c[1] * s[2] + c[0] * c[2], s[0] * s[1]],
            [-s[1] * c[2], s[1] * s[2], c[1]],
        ]
    )
    # Overlaps have the eigenvector 1, and equal eigenvalues across it.
    own = alone / (np.exp(b) * np.expm1(alone))
    common = together / (np.exp(a) + (heads - 1) * np.exp(b))
    weights = [own] * 3 if heads > 3 else [common] + [own] * (heads - 1)
    shares = sum(weight * row**2 for weight, row in zip(weights, rows))
    each = UNLIKE.power[:, None] / (1 + UNLIKE.samples[:, None] * shares)
    return each.sum(0), a, b, rows


@pytest.mark.parametrize("heads", [2, 3, 4])
def test_no_equiangular_heads_found_from_1000_starts_go_below_the_bound(heads):
    rng = np.random.default_rng(heads)
    start = rng.uniform([[-5.0], [-5], [-np.pi], [-np.pi], [-np.pi]], np.pi / 2, size=(5, 1000))

    def total(flat):
        # All starts at once: their losses add up, so their gradients do not meet. Complex steps.
        flat = flat.reshape(5, 1000)
        steps = flat[:, None] + 1e-30j * np.eye(5)[:, :, None]
        losses = equiangular_losses(steps.reshape(5, -1), heads)[0].reshape(5, 1000)
        return losses[0].real.sum(), losses.imag.ravel() / 1e-30

    found = scipy.optimize.minimize(
        total, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 80}
    ).x.reshape(5, 1000)
    losses, a, b, rows = equiangular_losses(found, heads)
    bound = multitask.lower_bound(UNLIKE, heads).loss
    assert losses.min() >= bound * (1 - 1e-12)
    assert losses.min() < bound * (1 + 1e-4)
    assert losses.mean() < equiangular_losses(start, heads)[0].mean()
    # They are losses of heads, not of a formula alone. Heads that are nearly equal lose digits.
    for k in np.nonzero(a - b > 1e-4)[0][:10]:
        omega = multitask.equiangular_heads(UNLIKE, a[k], b[k], heads, rows[:, :, k].copy())
        at = multitask.loss(UNLIKE, omega, multitask.best_mu(UNLIKE, omega)).sum()
        assert at == pytest.approx(losses[k], rel=1e-9)


# Ridge and Bayes.

RATIOS = (0.05, 0.2, 0.5, 1, 1.2, 2, 4, 8)
FIGURE_FIVE = {
    "ridge .05": (0.04988, 0.21984, 0.73384, 1.88889, 1.90110, 1.33814, 1.06920, 1.01556),
    "ridge 5": (0.69869, 0.71101, 0.73384, 0.76711, 0.77892, 0.81904, 0.88426, 0.94287),
    "bayes": (0.04988, 0.19258, 0.41421, 0.61803, 0.66667, 0.78078, 0.88278, 0.93945),
    "flow": (0.21373, 0.52092, 0.73106, 0.84464, 0.86709, 0.91578, 0.95604, 0.97752),
    "single head of 10": (0.73106, 0.91578, 0.96452, 0.98194, 0.98490, 0.99089, 0.99542, 0.99771),
}


def test_figure_five_has_its_reference_values():
    found = {
        "ridge .05": lambda r: multitask.ridge_limit(one_task(r), 0.05, "per sample")[0],
        "ridge 5": lambda r: multitask.ridge_limit(one_task(r), 5.0, "per sample")[0],
        "bayes": lambda r: multitask.bayes_limit(one_task(r))[0],
        "flow": lambda r: multitask.gradient_flow_limit(one_task(r)).loss,
        "single head of 10": lambda r: multitask.single_head(one_task(r, 10)).loss / 10,
    }
    for name, values in FIGURE_FIVE.items():
        np.testing.assert_allclose([found[name](r) for r in RATIOS], values, atol=5.1e-6)


@pytest.mark.parametrize(
    ("size", "sampled", "limits"),
    [
        (50, (0.02031, 0.02734, 0.01959), (0.01992, 0.02670, 0.01924)),
        (100, (0.2347, 0.1311, 0.0974), (0.2298, 0.1289, 0.0951)),
        (120, (0.2090, 0.2207, 0.2009), (0.2072, 0.2195, 0.2000)),
    ],
)
def test_ridge_has_its_reference_values(size, sampled, limits):
    blocks = Blocks(np.array([float(size)]), np.ones(1), np.ones(1), 100.0)
    exact = [multitask.ridge(blocks, p, "once")[0] for p in (0.05, 5.0)]
    exact = np.array([*exact, multitask.bayes(blocks)[0]]) / size
    # Sampled references; the one with the largest error has a standard error of 1e-3.
    np.testing.assert_allclose(exact, sampled, rtol=4e-3)
    limit = [multitask.ridge_limit(blocks, p, "once")[0] for p in (0.05, 5.0)]
    limit = np.array([*limit, multitask.bayes_limit(blocks)[0]]) / size
    np.testing.assert_allclose(limit, limits, atol=5.1e-5)


@pytest.mark.parametrize("length", [8, 15])
def test_ridge_and_bayes_are_those_of_sampled_regressions(length):
    blocks, penalty = UNLIKE.with_length(float(length)), 0.7
    rng, draws = np.random.default_rng(length), 20_000
    tuned = blocks.noise / blocks.signal
    for i, size in enumerate((4, 6, 10)):
        inputs = rng.normal(size=(draws, length, size))
        vectors = rng.normal(size=(draws, size, 1)) * blocks.signal[i] ** 0.5
        labels = inputs @ vectors + rng.normal(size=(draws, length, 1)) * blocks.noise[i] ** 0.5
        gram, seen = inputs.swapaxes(1, 2) @ inputs, inputs.swapaxes(1, 2) @ labels
        for strength, expected in (
            (penalty, multitask.ridge(blocks, penalty, "once")[i]),
            (penalty * length, multitask.ridge(blocks, penalty, "per sample")[i]),
            (tuned[i], multitask.bayes(blocks)[i]),
        ):
            errors = np.linalg.solve(gram + strength * np.eye(size), seen) - vectors
            errors = np.sum(errors**2, (1, 2))
            assert abs(errors.mean() - expected) < 4 * errors.std() / draws**0.5


def test_bayes_is_the_best_ridge_and_below_all_attention():
    bayes = multitask.bayes(UNLIKE)
    for i, tuned in enumerate(UNLIKE.noise / UNLIKE.signal):
        ridges = [multitask.ridge(UNLIKE, tuned * f, "once")[i] for f in (0.5, 1, 2)]
        assert ridges[1] == pytest.approx(bayes[i], rel=1e-12) and min(ridges) == ridges[1]
    assert np.all(bayes < multitask.debiased_steps(UNLIKE).losses)
    # Without noise a context that spans the block tells all.
    np.testing.assert_allclose(multitask.bayes(EQUAL), 0)
    np.testing.assert_allclose(multitask.bayes(EQUAL.with_length(6.0)), 4)


def test_weak_ridge_has_its_peak_where_samples_are_as_many_as_coordinates():
    sizes = np.arange(5.0, 41)
    ones = np.ones_like(sizes)
    blocks = Blocks(sizes, ones, ones, 20.0)  # a curve over d at one length
    for curve in (
        multitask.ridge(blocks, 0.001, "once"),
        multitask.ridge_limit(blocks, 1e-3, "once"),
    ):
        assert sizes[np.argmax(curve / sizes)] == 20
    strong = multitask.ridge(blocks, 20.0, "once") / sizes
    flow = multitask.gradient_flow_limit(blocks).losses / sizes
    assert np.all(np.diff(strong) > 0) and np.all(np.diff(flow) > 0)


def test_ridge_asks_for_its_convention():
    with pytest.raises(ValueError, match="`blocks.length` = 50.5"):
        multitask.ridge(UNLIKE.with_length(50.5), 1.0, "once")
    for solver in (multitask.ridge, multitask.ridge_limit):
        with pytest.raises(ValueError, match="`penalty` = 0"):
            solver(UNLIKE, 0.0, "once")


def test_an_unknown_convention_of_the_penalty_is_refused(unchecked):
    with pytest.raises(ValueError, match="`counted` = 'twice': must be 'once' or 'per sample'"):
        multitask.ridge(UNLIKE, 1.0, "twice")  # pyright: ignore[reportArgumentType]


# Other lengths.


def test_length_generalisation_has_its_reference_values():
    blocks = Blocks(np.array([10.0]), np.array([0.1]), np.array([0.1]), 20.0)
    rows = {10: 0.9394, 20: 0.6992, 40: 0.5791, 100: 0.5071, 1000: 0.4639}
    for length, value in rows.items():
        found = multitask.at_length(blocks, length).losses[0] + 0.1  # with the query's noise
        assert found == pytest.approx(value, abs=5.1e-5)
    # The exact best head of L = 20, at the same lengths.
    best = one_head_optimum(isotropic(10, 20, 0.1))
    exact = [
        kernel_regression_risk(isotropic(10, length, 0.1), best.omega, best.mu) for length in rows
    ]
    np.testing.assert_allclose(exact, [0.8946, 0.7040, 0.5766, 0.4730, 0.3774], atol=5.1e-5)
    assert np.max(np.abs(np.array(list(rows.values())) / exact - 1)) == pytest.approx(
        0.23, abs=5e-3
    )


@pytest.mark.parametrize("length", [1, 7.5, 50, 3000, np.inf])
def test_losses_at_other_lengths_are_those_of_the_trained_weights(length):
    # Contexts without end are those of 1e18 to all digits.
    there = UNLIKE.with_length(min(float(length), 1e18))
    omega, mu = multitask.limit_heads(UNLIKE)
    found = multitask.at_length(UNLIKE, length)
    np.testing.assert_allclose(found.losses, multitask.loss(there, omega, mu), rtol=1e-12)
    np.testing.assert_allclose(found.steps, np.sum(omega * mu, 0), rtol=1e-12)
    # The own head alone, tuned anew.
    tuned = multitask.gradient_flow_limit(there).losses if length < np.inf else np.zeros(3)
    np.testing.assert_allclose(found.retuned, tuned, rtol=1e-12)
    assert np.all(np.maximum(found.retuned, found.floor) <= found.losses * (1 + 1e-12))
    # Any other solution, by its heads: here the best single one, which leaves a task out.
    weak = replace(UNLIKE, signal=np.array([1, 0.02, 2]))
    head = multitask.approach(weak, 1)
    found = multitask.at_length(weak, length, multitask.single_head(weak))
    there = weak.with_length(min(float(length), 1e18))
    expected = multitask.loss(there, head, multitask.best_mu(weak, head))
    np.testing.assert_allclose(found.losses, expected, rtol=1e-12)
    assert found.losses[1] == found.retuned[1] == weak.power[1]


def test_a_test_length_below_one_is_refused():
    for length in (0.5, np.nan):
        with pytest.raises(ValueError, match="`test_length` = .*must be at least 1"):
            multitask.at_length(UNLIKE, length)


# Regimes of softmax.


def test_concentration_has_its_reference_values():
    rows = {
        100: {0.5: 0.01278390, 1: 0.02553848, 2: 0.12626215, 4: 0.42289972},
        1e4: {1: 0.00027162, 2: 0.00450745, 4: 0.16622703},
    }
    for length, row in rows.items():
        for deviation, value in row.items():
            assert multitask.concentration(deviation, length) == pytest.approx(value, abs=1.1e-8)
    # Ratios to e^{a²}/L: exact, and to first order.
    for length, a, exact, first in (
        (100, 0.5, 0.99561, 0.9955), (100, 1, 0.93951, 0.9238),
        (1e4, 1, 0.99924, 0.9992), (1e4, 1.5, 0.98619, 0.9847),
    ):  # fmt: skip
        plain = np.exp(a**2) / length
        assert multitask.concentration(a, length) / plain == pytest.approx(exact, abs=5.1e-6)
        found = multitask.exponential_concentration(a, length) / plain
        assert found == pytest.approx(first, abs=5.1e-5)


def test_concentration_is_that_of_sampled_scores():
    scores = 1.5 * np.random.default_rng(0).normal(size=(20_000, 100))
    weights = np.exp(scores)
    squares = np.sum((weights / weights.sum(1, keepdims=True)) ** 2, 1)
    error = squares.std() / len(squares) ** 0.5
    assert abs(squares.mean() - multitask.concentration(1.5, 100)) < 4 * error


def test_first_order_misses_terms_of_second_order_alone():
    gaps = [
        multitask.exponential_concentration(0.8, n) / multitask.concentration(0.8, n) - 1
        for n in (1e3, 1e4)
    ]
    # A relative term of 1/L², with 1/L³ behind it.
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.05)


def test_regimes_lie_where_their_edges_are():
    edges = multitask.regime_edges(100)
    assert edges == pytest.approx((np.sqrt(np.log(100) / 2), np.sqrt(2 * np.log(100))))
    names = [multitask.attention_regime(a, 100) for a in (0, 1.5, 1.6, 3, 3.1)]
    assert names == ["exponential", "exponential", "crossover", "crossover", "saturated"]
    # The expansion is off by half before the first edge: the closer to it, the longer the context.
    parts = [
        multitask.expansion_reach(n, 0.5) / multitask.regime_edges(n)[0] for n in (1e2, 1e4, 1e6)
    ]
    np.testing.assert_allclose(parts, [0.895, 0.933, 0.953], atol=1e-3)
    reach = multitask.expansion_reach(1e4, 0.01)
    exact = multitask.concentration(reach, 1e4)
    assert abs(multitask.exponential_concentration(reach, 1e4) / exact - 1) == pytest.approx(0.01)


def test_the_frozen_limit_is_slow_to_come():
    for length, exact, limit in ((100, 0.5954, 0.494), (1e4, 0.3871, 0.285)):
        assert multitask.concentration(6, length) == pytest.approx(exact, abs=5.1e-5)
        assert multitask.frozen_concentration(6, length) == pytest.approx(limit, abs=5.1e-4)
    assert multitask.frozen_concentration(1.0, 100) == 0 == multitask.frozen_concentration(0, 100)
    # At a = 2√(2 log L), where the limit is ½.
    gaps = [
        multitask.concentration(2 * multitask.regime_edges(n).saturated, n) - 0.5
        for n in (1e2, 1e4, 1e8, 1e12)
    ]
    assert np.all(np.diff(gaps) < 0) and 0 < gaps[-1] < 0.05


def test_deviations_and_lengths_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="`deviation` = -1"):
        multitask.attention_regime(-1, 100)
    with pytest.raises(ValueError, match="`length` = 1: must be finite and above 1"):
        multitask.regime_edges(1)
    with pytest.raises(ValueError, match="`deviation` = 20: must be at most 18"):
        multitask.exponential_concentration(20, 100)
    with pytest.raises(ValueError, match="`error` = 2"):
        multitask.expansion_reach(100, 2)


# Approximate dynamics.


def test_own_heads_move_as_the_flow_of_one_head_and_one_task():
    omega, mu, times = (
        np.array([0.02, 0.03, 0.01]),
        np.array([0.2, 0.1, 0.5]),
        [0.0, 3.0, 9.0, 30.0],
    )
    found = multitask.own_head_flow(UNLIKE, times, omega, mu, WIDTH)
    for i in range(3):
        one = slice(i, i + 1)
        block = Blocks(UNLIKE.sizes[one], UNLIKE.signal[one], UNLIKE.noise[one], UNLIKE.length)
        alone = multitask.spectral_flow(block, times, omega[one, None], mu[one, None], WIDTH)
        np.testing.assert_allclose(found.omega[:, i], alone.omega[:, 0, 0], rtol=1e-7)
        np.testing.assert_allclose(found.mu[:, i], alone.mu[:, 0, 0], rtol=1e-7)
        np.testing.assert_allclose(found.losses[:, i], alone.losses[:, 0], rtol=1e-7)
    late = multitask.own_head_flow(UNLIKE, [300.0], omega, mu, WIDTH)
    np.testing.assert_allclose(
        late.losses[0], multitask.gradient_flow_limit(UNLIKE).losses, rtol=1e-9
    )


def test_emergence_equation_is_the_flow_with_mu_at_rest():
    omega = np.array([0.05, 0.1, 0.2])
    mu = multitask.quasi_stationary_mu(UNLIKE, omega)
    for i in range(3):
        one = slice(i, i + 1)
        block = Blocks(UNLIKE.sizes[one], UNLIKE.signal[one], UNLIKE.noise[one], UNLIKE.length)
        slope = multitask.slopes(block, omega[one, None], mu[one, None])
        assert abs(slope.mu[0, 0]) < 1e-12
        velocity = -omega[i] * slope.omega[0, 0] / (WIDTH**0.5 * UNLIKE.sizes[i])
        found = multitask.emergence_velocity(UNLIKE, omega, WIDTH)[i]
        assert found == pytest.approx(velocity, rel=1e-12)
    # One equation in one unknown: its time is an integral.
    flow = multitask.emergence_flow(UNLIKE, [0.0, 2.0, 6.0], omega, WIDTH)
    for i in range(3):

        def slowness(w, i=i):
            return 1 / multitask.emergence_velocity(UNLIKE, np.full(3, w), WIDTH)[i]

        taken = scipy.integrate.quad(slowness, omega[i], flow.omega[2, i], epsrel=1e-10)[0]
        assert taken == pytest.approx(6.0, rel=1e-7)
    expected = UNLIKE.power * (1 - flow.mu * flow.omega)
    np.testing.assert_allclose(flow.losses, expected, rtol=1e-10)


def test_velocity_of_emergence_is_slow_then_fast_then_nothing():
    omega = np.linspace(1e-3, 10**-0.5, 1001)
    grid = np.repeat(omega[:, None], 3, 1)
    velocity = multitask.emergence_velocity(EQUAL, grid, WIDTH)[:, 0]
    top = int(np.argmax(velocity))
    assert np.all(np.diff(velocity[: top + 1]) > 0) and np.all(np.diff(velocity[top:]) < 0)
    # At first (2λL/φ√E)ω², with ω²L = 1e-4 as the next term, twice; at rest at d^−½; between them
    # the largest where ω² is about (φ/L)e^{dω²}, 0.105².
    assert velocity[0] == pytest.approx(200 / 30**0.5 * 1e-6, rel=3e-4)
    assert abs(velocity[-1]) < 1e-15 and omega[top] == pytest.approx(0.094, abs=1e-3)
    assert velocity[top] > 400 * velocity[0]


def test_approximate_phases_are_early_but_alike():
    found = multitask.approximate_phase_times(EQUAL, OMEGA, MU, WIDTH)
    np.testing.assert_allclose(found.full, [8.685, 11.544, 13.978], atol=2e-3)
    # Measured: other heads hold the first one back, by a quarter of its time.
    np.testing.assert_allclose(found.own_heads, [6.826, 9.100, 11.400], atol=2e-3)
    np.testing.assert_allclose(found.emergence, [1.450, 2.917, 5.179], atol=2e-3)
    lasting = [times[2] - times[0] for times in found]
    assert lasting[1] / lasting[0] == pytest.approx(0.864, abs=2e-3)
    assert lasting[2] / lasting[0] == pytest.approx(0.705, abs=2e-3)
    estimate = multitask.emergence_estimate(EQUAL, np.full(3, 0.01), WIDTH)
    assert estimate[0] == pytest.approx(30**0.5 / 2) and 0.9 < estimate[0] / found.emergence[1] < 1
    # Heads that take over from the full flow when it has begun are right within 3 %.
    begun = multitask.spectral_flow(EQUAL, [10.0], OMEGA, MU, WIDTH)
    omega, mu = (np.diag(x[0]).copy() for x in (begun.omega, begun.mu))
    after = multitask.own_head_flow(EQUAL, np.linspace(0, 5, 2001), omega, mu, WIDTH)
    first, last = multitask.loss(EQUAL, OMEGA, MU).sum(), multitask.gradient_flow_limit(EQUAL).loss
    late = np.interp([0.5, 0.95], (first - after.loss) / (first - last), 10 + after.times)
    np.testing.assert_allclose(late, [11.338, 13.599], atol=2e-3)
    np.testing.assert_allclose(late, found.full[1:], rtol=0.03)


def test_phases_that_own_heads_reach_at_once_or_late_are_told_too():
    # More heads than tasks, which share what one would do alone; and a step that μ has at once.
    omega = np.vstack([OMEGA, np.full((3, 3), 0.0099)])
    found = multitask.approximate_phase_times(
        EQUAL, omega, np.full((6, 3), 0.2), WIDTH, (0.01, 0.9)
    )
    assert found.emergence[0] == 0 and np.all(np.diff(found) > 0)
    rows = multitask.own_head_flow(EQUAL, found.own_heads, np.full(3, 0.01), np.full(3, 0.2), WIDTH)
    first = EQUAL.power.sum() * (1 - 0.002) ** 2 + 30 / 100 * np.exp(1e-3) * 0.2**2
    done = (first - rows.loss) / (first - multitask.gradient_flow_limit(EQUAL).loss)
    np.testing.assert_allclose(done, [0.01, 0.9], atol=1e-7)


def test_approximate_dynamics_refuse_what_they_cannot_describe():
    with pytest.raises(ValueError, match="head i ahead of all others on task i"):
        multitask.approximate_phase_times(EQUAL, OMEGA[::-1].copy(), MU, WIDTH)
    with pytest.raises(ValueError, match="`mu` = .*must be positive"):
        multitask.own_head_flow(EQUAL, [1.0], np.full(3, 0.01), np.zeros(3), WIDTH)
    with pytest.raises(ValueError, match="`omega` = .*must be positive"):
        multitask.emergence_flow(EQUAL, [1.0], np.zeros(3), WIDTH)


# Convergence, and the half-stable saddle.


def test_the_tail_of_convergence_is_algebraic_in_omega_and_exponential_in_mu():
    rates = multitask.convergence_rates(EQUAL, WIDTH)
    assert rates.mu[0] == pytest.approx(0.4972806, abs=1e-7)
    # Reference times 30 and 400 along −∂L/∂W: 454.22 by the flow, 454.08 by the rate.
    flow = multitask.spectral_flow(EQUAL, [60.0, 800.0, 1200.0, 1240.0], OMEGA, MU, WIDTH)
    other = flow.omega[:, 0, 1]
    assert 1 / other[1] - 1 / other[0] == pytest.approx(454.22, abs=0.01)
    assert rates.omega[0] * 740 == pytest.approx(454.08, abs=0.01)
    fall = -np.log(flow.mu[3, 0, 1] / flow.mu[2, 0, 1]) / 40
    # What is left of ω, 0.0013, is worth about 0.4 % of the rate of μ.
    assert fall == pytest.approx(rates.mu[0], rel=4e-3)
    limit = multitask.gradient_flow_limit(EQUAL).loss
    assert flow.loss[1] == pytest.approx(6.412275, abs=1e-6)
    assert multitask.tail_excess(EQUAL, flow.omega[1]) == pytest.approx(
        flow.loss[1] - limit, rel=1e-4
    )


def test_rates_are_those_of_unlike_tasks_too():
    omega, mu = multitask.limit_heads(UNLIKE)
    limit = multitask.gradient_flow_limit(UNLIKE)
    np.testing.assert_allclose(multitask.loss(UNLIKE, omega, mu), limit.losses, rtol=1e-12)
    slope = multitask.slopes(UNLIKE, omega, mu)
    off = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(
        slope.mu[off], np.broadcast_to(multitask.escape_rate(UNLIKE), (3, 3))[off], rtol=1e-12
    )
    # ω̇ = −ω ∂L/∂ω/(√E d), of which ϱω² is the first term in a small ω.
    bent = omega + 1e-6 * off
    slope = multitask.slopes(UNLIKE, bent, mu).omega / (WIDTH**0.5 * UNLIKE.sizes) / 1e-6
    expected = np.broadcast_to(multitask.convergence_rates(UNLIKE, WIDTH).omega[:, None], (3, 3))
    np.testing.assert_allclose(slope[off], expected[off], rtol=1e-5)


def test_relative_imbalances_have_their_reference_losses():
    rows = {
        1e-1: (4.276, 4.073, 4.006, 3.916),
        1e-3: (4.515, 4.104, 4.015, 3.916),
        1e-6: (6.417, 4.191, 4.034, 3.916),
    }
    for delta, losses in rows.items():
        imbalance = multitask.relative_imbalance(MU, delta)
        factors = 0.2**0.5 * (1 + delta), 0.2**0.5 / (1 + delta)
        assert imbalance[0, 0] == pytest.approx(factors[0] ** 2 - factors[1] ** 2, rel=1e-9)
        times = [60.0, 120.0, 200.0] + [2e4] * (delta == 0.1)  # the end is the same for all
        flow = multitask.spectral_flow(EQUAL, times, OMEGA, MU, WIDTH, value_imbalance=imbalance)
        np.testing.assert_allclose(flow.loss, losses[: len(times)], atol=5.1e-4)


def test_escape_from_the_limit_takes_the_time_of_the_closed_form():
    # At the limit itself, with nearly no attention to other tasks. Weights on one label alone are
    # out of balance: others, on their way out, would take their heads along.
    omega, mu = multitask.limit_heads(UNLIKE)
    off, imbalance = ~np.eye(3, dtype=bool), 1e-9
    times = multitask.escape_time(UNLIKE, 1e-4, 1e-4, imbalance)
    for i in range(3):
        here = off & (np.arange(3) == i)
        flow = multitask.spectral_flow(
            UNLIKE,
            times[i : i + 1],
            omega + 1e-9 * off,
            mu + np.where(here, 1e-4, 1e-9 * off),
            WIDTH,
            value_imbalance=np.where(here, imbalance, 0.0),
        )
        # A weight changes its own slope by its size, relatively, over two growths to 1e-4.
        np.testing.assert_allclose(flow.mu[0][here], -1e-4, rtol=1e-3)
    assert np.all(multitask.escape_time(UNLIKE, 0.1, 0.1, 0.0) == np.inf)


def test_escape_from_a_start_far_from_the_limit_is_told_within_three_percent():
    plateau = multitask.spectral_flow(EQUAL, [20.0], OMEGA, MU, WIDTH)
    waiting = float(plateau.mu[0, 0, 1])
    found = []
    for delta in (1e-4, 1e-8):
        imbalance = multitask.relative_imbalance(MU, delta)
        told = 20 + multitask.escape_time(EQUAL, waiting, 0.1, float(imbalance[0, 0]))[0]
        times = np.linspace(told - 5, told + 5, 101)
        flow = multitask.spectral_flow(EQUAL, times, OMEGA, MU, WIDTH, value_imbalance=imbalance)
        crossed = np.interp(0.1, -flow.mu[:, 0, 1], times)
        # Attention to other tasks, which falls as 1/t, slows it down.
        assert 1 < crossed / told < 1.03
        found.append(crossed)
    # (2/g) log(1/δ): four decades.
    rate = multitask.escape_rate(EQUAL)[0]
    assert found[1] - found[0] == pytest.approx(2 / rate * np.log(1e4), rel=0.03)
    with pytest.raises(ValueError, match="`delta` = -1"):
        multitask.relative_imbalance(MU, -1.0)
    with pytest.raises(ValueError, match="`start` = -0.1: must be a size"):
        multitask.escape_time(EQUAL, -0.1, 0.1, 1e-3)


# Linear attention.


def test_linear_loss_is_that_of_sampled_linear_attention():
    rng, draws, length, sizes = np.random.default_rng(0), 40_000, 12, (2, 3)
    blocks = Blocks(np.array(sizes, float), np.array([1.0, 0.5]), np.array([0.3, 0.1]), 12.0)
    omega, mu = np.array([[0.5, 0.2], [-0.1, 0.4]]), np.array([[1.2, 0.4], [0.3, 1.1]])
    inputs, query = rng.normal(size=(draws, length, 5)), rng.normal(size=(draws, 5))
    parts = (slice(0, 2), slice(2, 5))
    scores = np.einsum("hj,nl,nlj->nhl", *(omega, np.ones((draws, length))),
        np.stack([np.einsum("nla,na->nl", inputs[..., p], query[:, p]) for p in parts], 2),
    )  # fmt: skip
    expected = multitask.linear_loss(blocks, omega, mu, finite=True)
    for i, part in enumerate(parts):
        vectors = rng.normal(size=(draws, sizes[i])) * blocks.signal[i] ** 0.5
        labels = np.einsum("nla,na->nl", inputs[..., part], vectors)
        labels += rng.normal(size=(draws, length)) * blocks.noise[i] ** 0.5
        predicted = np.einsum("h,nhl,nl->n", mu[:, i], scores, labels) / length
        errors = (np.sum(vectors * query[:, part], 1) - predicted) ** 2
        assert abs(errors.mean() - expected[i]) < 4 * errors.std() / draws**0.5
    # To leading order: the softmax loss with overlaps in place of their exponentials.
    overlaps = (omega * blocks.sizes) @ omega.T
    spread = np.einsum("hi,hk,ki->i", mu, overlaps, mu)
    plain = blocks.power * ((1 - np.sum(mu * omega, 0)) ** 2 + blocks.phi / 12 * spread)
    np.testing.assert_allclose(multitask.linear_loss(blocks, omega, mu), plain, rtol=1e-12)


def test_linear_heads_attain_their_bound_and_none_go_below():
    rng = np.random.default_rng(0)
    for _ in range(100):
        blocks, heads = any_blocks(rng), int(rng.integers(1, 8))
        count = len(blocks.sizes)
        bound = multitask.linear_bound(blocks, heads)
        assert bound.shares.sum() == pytest.approx(min(heads, count))
        omega, mu = multitask.linear_heads(blocks, heads)
        assert omega.shape == mu.shape == (heads, count)
        found = multitask.linear_loss(blocks, omega, mu)
        np.testing.assert_allclose(found, bound.losses, rtol=1e-10)
        other = rng.normal(size=(heads, count))
        shares = multitask.linear_shares(blocks, other)
        assert shares.sum() == pytest.approx(min(heads, count))
        assert np.sum(blocks.power / (1 + blocks.samples * shares)) > bound.loss * (1 - 1e-12)
        # One softmax head more does the same.
        assert multitask.lower_bound(blocks, heads + 1).loss == pytest.approx(bound.loss, rel=1e-12)


def test_one_linear_head_is_worth_e_softmax_heads():
    linear, softmax = multitask.linear_bound(UNLIKE, 1), multitask.single_head(UNLIKE)
    assert linear.shares.sum() == pytest.approx(np.e * softmax.shares.sum())


def test_small_softmax_heads_do_what_linear_heads_do():
    omega, mu = np.random.default_rng(0).normal(size=(2, 2, 3)) * 0.3
    linear = multitask.linear_loss(UNLIKE, omega, mu)
    gaps = [
        np.max(np.abs(multitask.loss(UNLIKE, *multitask.as_softmax(omega, mu, s)) / linear - 1))
        for s in (1e-1, 1e-2)
    ]
    # E has second-order terms in the overlaps, that is fourth in ω: relatively second order.
    assert gaps[1] < 1e-4 and gaps[0] / gaps[1] == pytest.approx(100, rel=0.05)
    # And on one context, number by number: linear attention to centred inputs.
    rng = np.random.default_rng(1)
    inputs, query, labels = rng.normal(size=(50, 3)), rng.normal(size=3), rng.normal(size=(50, 3))
    small, weights = multitask.as_softmax(omega, mu, 1e-4)
    attention = np.exp((small * query) @ inputs.T)
    attention /= attention.sum(1, keepdims=True)
    softmax = np.einsum("hl,hi,li->i", attention, weights, labels)
    centred = (omega * query) @ (inputs - inputs.mean(0)).T / 50
    np.testing.assert_allclose(softmax, np.einsum("hl,hi,li->i", centred, mu, labels), atol=1e-3)
    with pytest.raises(ValueError, match="`size` = inf"):
        multitask.as_softmax(omega, mu, np.inf)


# Implicit regularisation.


@pytest.mark.parametrize("ratio", [0.05, 1.0, 4.0])
def test_ridge_and_early_stopping_shrink_as_attention_does(ratio):
    blocks = one_task(ratio)
    found = multitask.same_shrinkage(blocks)
    step = multitask.at_length(blocks, 1e9).steps[0]
    assert found.step[0] == pytest.approx(step, rel=1e-12)
    # Large matrices: the part of the signal that comes back is self-averaging, as 1/d.
    size, length = 200, int(200 / ratio)
    inputs = np.random.default_rng(0).normal(size=(size, length))
    spectrum = np.linalg.eigvalsh(inputs @ inputs.T / length)
    ridge = np.mean(spectrum / (spectrum + found.penalty[0]))
    stopped = np.mean(-np.expm1(-found.time[0] * spectrum))
    assert ridge == pytest.approx(step, rel=5e-3) and stopped == pytest.approx(step, rel=5e-3)


def test_ridge_that_shrinks_as_attention_does_is_near_five_at_equal_numbers():
    # The paper compares with a penalty of 5. The same shrinkage costs attention more: it has noise
    # of e samples for each one.
    blocks = one_task(1.0)
    penalty = float(multitask.same_shrinkage(blocks).penalty[0])
    assert penalty == pytest.approx(4.5919, abs=1e-4)
    ridge = multitask.ridge_limit(blocks, penalty, "per sample")[0]
    assert ridge == pytest.approx(0.75579, abs=1e-5)
    assert ridge < multitask.gradient_flow_limit(blocks).loss


def test_noise_hardly_moves_the_attention_of_the_best_head():
    # Closed form: dω² = 1 at every noise. Exactly: down by 7 % at L = 20, up by 5 % at L = 100.
    rows = {
        20: (1.98491, 1.97023, 1.90904, 1.85476, 0.171965, 0.171092, 0.167429, 0.164154),
        100: (1.01394, 1.01856, 1.03958, 1.06098, 0.027083, 0.027195, 0.027704, 0.028229),
    }
    for length, row in rows.items():
        found = [
            multitask.best_head_spread(isotropic(10, length, noise))
            for noise in (0.0, 0.1, 1.0, 10.0)
        ]
        np.testing.assert_allclose([x.score_variance for x in found], row[:4], atol=1e-4)
        np.testing.assert_allclose([x.concentration for x in found], row[4:], atol=1e-5)
        assert found[1].loss == one_head_optimum(isotropic(10, length, 0.1)).loss
    # Attention itself, sampled, at the noiseless optimum of L = 100.
    rng = np.random.default_rng(0)
    best = one_head_optimum(isotropic(10, 100, 0.0))
    inputs, query = rng.normal(size=(5000, 100, 10)), rng.normal(size=(5000, 10, 1))
    weights = np.exp(best.omega * (inputs @ query)[..., 0])
    squares = np.sum((weights / weights.sum(1, keepdims=True)) ** 2, 1)
    assert abs(squares.mean() - rows[100][4]) < 4 * squares.std() / 5000**0.5


def test_splits_cost_what_the_named_solutions_cost():
    blocks = UNLIKE
    limit, alone = multitask.gradient_flow_limit(blocks).loss, multitask.single_head(blocks).loss
    assert multitask.divided_limit(blocks, [2, 0, 1]).loss == pytest.approx(limit, rel=1e-12)
    assert multitask.divided_limit(blocks, [1, 1, 1]).loss == pytest.approx(alone, rel=1e-12)
    assert limit < multitask.divided_limit(blocks, [0, 0, 1]).loss < alone


def test_a_head_start_is_one_over_the_time_of_running_away():
    blocks, width = EQUAL, 30
    omega, mu = np.full((1, 3), [0.01, 0.009, 0.004]), np.full((1, 3), [0.2, 0.18, 0.2])
    a, b = 2 * blocks.signal[0] / width**0.5, 2 * blocks.power[0]
    for task, found in enumerate(multitask.head_starts(blocks, omega, mu, width)[0]):
        run_away = lambda _, z: z[0] - 15.0
        run_away.terminal = True
        flow = lambda _, z: [a * np.exp(z[1]), b * np.exp(z[0])]
        start = np.log([omega[0, task], mu[0, task]])
        solved = scipy.integrate.solve_ivp(
            flow, (0.0, 100.0), start, events=run_away, rtol=1e-10, atol=1e-10
        )
        # At ω = e¹⁵ what is left of the way takes 1e-8.
        assert 1 / found == pytest.approx(float(solved.t_events[0][0]), rel=1e-6)


def test_a_head_start_has_no_gap_where_both_means_are_one():
    # bω = aμ: the logarithmic mean is the number itself.
    omega = np.array([[0.01, 0.01 * (1 + 1e-9), 0.01 * (1 + 1e-4)]])
    mu = np.full((1, 3), 0.01 * 10 * WIDTH**0.5)
    found = multitask.head_starts(EQUAL, omega, mu, WIDTH)[0]
    np.testing.assert_allclose(found, [0.2, 0.2, 0.2 * (1 + 0.5e-4)], rtol=1e-8)
    with pytest.raises(ValueError, match="must be positive"):
        multitask.head_starts(EQUAL, -omega, mu, WIDTH)
    with pytest.raises(ValueError, match="must name a head for each task"):
        multitask.divided_limit(EQUAL, [0, 1])
