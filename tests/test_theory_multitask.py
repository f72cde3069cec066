"""Several tasks on blocks of their own: loss, named solutions, spectral flow."""

import itertools
from dataclasses import astuple, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

from iclflow.models import Attention, Diagonal
from iclflow.risks import risk
from iclflow.tasks import MultiTaskRegression
from iclflow.theory import multitask
from iclflow.theory.multitask import Blocks

# The paper's setting: three tasks of ten coordinates, no noise.
EQUAL = Blocks(np.full(3, 10.0), np.ones(3), np.zeros(3), 100.0)
UNLIKE = Blocks(np.array([4.0, 6, 10]), np.array([1, 0.5, 2]), np.array([0.5, 1, 0.2]), 50.0)
WIDTH = 30
OMEGA, MU = np.where(np.eye(3) > 0, 0.01, 0.008), np.full((3, 3), 0.2)


def random_heads(seed: int, heads: int, count: int, size: float = 0.3):
    return np.random.default_rng(seed).normal(size=(2, heads, count)) * size


def test_loss_is_that_of_the_large_context_risk():
    # Written anew there, for any coordinate sets, and differentiable.
    task = MultiTaskRegression(
        [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9], list(range(10, 20))],
        context=50, noise=[0.5, 1.0, 0.2], signal=[1.0, 0.5, 2.0],
    )  # fmt: skip
    blocks = multitask.Blocks.of(task)
    assert all(np.array_equal(a, b) for a, b in zip(astuple(blocks), astuple(UNLIKE)))
    omega, mu = random_heads(0, 4, 3)
    model = Attention(Diagonal(np.repeat(omega, [4, 6, 10], 1), mu, 20))
    large = risk(task, model, "large_context")
    value, slope = eqx.filter_jit(large.value_and_gradient)(model)
    assert multitask.loss(blocks, omega, mu).sum() + 1.7 == pytest.approx(float(value), rel=1e-12)
    ours = multitask.slopes(blocks, omega, mu)
    summed = np.add.reduceat(np.asarray(slope.circuits.omega), [0, 4, 10], axis=1)
    np.testing.assert_allclose(ours.omega, summed, rtol=1e-11)
    np.testing.assert_allclose(ours.mu, slope.circuits.mu, rtol=1e-11)


def test_best_mu_leaves_no_slope_and_the_loss_that_the_shares_say():
    omega, _ = random_heads(1, 4, 3)
    mu = multitask.best_mu(UNLIKE, omega)
    assert np.max(np.abs(multitask.slopes(UNLIKE, omega, mu).mu)) < 1e-9
    shares = multitask.shares(UNLIKE, omega)
    assert np.all((0 < shares) & (shares < 1))
    expected = UNLIKE.power / (1 + UNLIKE.samples * shares)
    np.testing.assert_allclose(multitask.loss(UNLIKE, omega, mu), expected, rtol=1e-10)


def test_named_solutions_have_their_reference_losses():
    assert multitask.gradient_flow_limit(EQUAL).loss == pytest.approx(6.411908146, abs=1e-9)
    assert multitask.lower_bound(EQUAL, 3).loss == pytest.approx(3.913043478, abs=1e-9)
    for heads in (4, 9):
        assert multitask.lower_bound(EQUAL, heads).loss == pytest.approx(2.727272727, abs=1e-9)
    assert multitask.debiased_steps(EQUAL).loss == multitask.lower_bound(EQUAL, 4).loss
    assert multitask.gradient_flow_limit(UNLIKE).loss == pytest.approx(8.784750406, abs=1e-9)
    for heads, value in ((2, 7.51271196), (3, 4.69817240), (4, 4.10513322)):
        assert multitask.lower_bound(UNLIKE, heads).loss == pytest.approx(value, abs=1e-8)
    assert multitask.lower_bound(UNLIKE, 1).loss == multitask.single_head(UNLIKE).loss


def test_gradient_flow_limit_is_where_one_head_a_task_rests_but_for_labels_of_others():
    omega = np.eye(3) * 10**-0.5
    own = 10**0.5 / (1 + np.e * 0.1)
    mu = np.eye(3) * own
    assert multitask.loss(EQUAL, omega, mu).sum() == pytest.approx(
        multitask.gradient_flow_limit(EQUAL).loss, rel=1e-12
    )
    slopes = multitask.slopes(EQUAL, omega, mu)
    assert np.max(np.abs(slopes.omega)) < 1e-12 and np.max(np.abs(np.diag(slopes.mu))) < 1e-12
    # The loss wants negative weights on labels of other tasks: debiasing.
    assert slopes.mu[0, 1] == pytest.approx(2 * own / 10, rel=1e-12)
    best = multitask.loss(EQUAL, omega, multitask.best_mu(EQUAL, omega)).sum()
    assert best == pytest.approx(5.370264935, abs=1e-9)


def random_blocks(rng) -> Blocks:
    count = int(rng.integers(1, 7))
    return Blocks(
        rng.integers(1, 40, count).astype(float), 10 ** rng.uniform(-2, 1, count),
        10 ** rng.uniform(-2, 1, count), float(10 ** rng.uniform(0.3, 3)),
    )  # fmt: skip


@pytest.mark.slow
def test_water_filling_is_the_best_single_head_of_random_sets_of_tasks():
    rng, left_out = np.random.default_rng(0), []
    for _ in range(200):
        blocks = random_blocks(rng)
        found = multitask.single_head(blocks)

        # One head: ω_i² = s_i/d_i, with the best μ; s = softmax-free positive numbers.
        def loss_of(logs):
            strength = np.exp(logs)
            kernel = np.exp(strength.sum())
            return np.sum(blocks.power / (1 + blocks.samples * strength / kernel))

        def slope_of(logs):
            strength = np.exp(logs)
            gain = blocks.samples * strength / np.exp(strength.sum())
            each = blocks.power * gain / (1 + gain) ** 2
            return strength * each.sum() - each

        start = np.log(np.maximum(np.e * found.shares, 1e-3))
        options = {"gtol": 1e-12}
        best = scipy.optimize.minimize(loss_of, start + 0.1, jac=slope_of, options=options)
        left_out.append(found.shares.min() == 0)
        # Tasks that are left out are approached from above only.
        floor = loss_of(np.log(np.maximum(np.e * found.shares, 1e-300)))
        assert found.loss == pytest.approx(floor, rel=1e-10)
        assert found.loss <= best.fun * (1 + 1e-8)
        if found.shares.min() > 1e-3:
            assert found.loss == pytest.approx(best.fun, rel=1e-8)
    assert 20 < sum(left_out) < 180  # both kinds are part of the sample


def test_tasks_that_are_too_weak_are_left_out():
    weak = replace(UNLIKE, signal=np.array([1, 0.02, 2]))
    found = multitask.single_head(weak)
    assert found.shares[1] == 0 and found.loss == pytest.approx(10.4430525518, abs=1e-9)
    strong = multitask.single_head(UNLIKE)
    assert strong.loss == pytest.approx(13.3049534097, abs=1e-9)
    np.testing.assert_allclose(np.e * strong.shares, [0.16022, 0.03258, 0.80720], atol=1e-5)


@pytest.mark.parametrize("heads", [2, 4])
def test_no_heads_go_below_the_bound_and_some_come_near(heads):
    bound = multitask.lower_bound(UNLIKE, heads).loss
    slot = (heads, 3)

    def profile(flat):
        omega = flat.reshape(slot)
        mu = multitask.best_mu(UNLIKE, omega)
        slope = multitask.slopes(UNLIKE, omega, mu).omega
        return multitask.loss(UNLIKE, omega, mu).sum(), slope.ravel()

    found = [
        scipy.optimize.minimize(
            profile, 0.1 * start.ravel(), jac=True, method="L-BFGS-B", bounds=[(-1, 1)] * start.size
        ).fun
        for start in np.random.default_rng(heads).normal(size=(6, *slot))
    ]
    assert min(found) > bound * (1 - 1e-6)  # approached by heads that are equal up to rounding
    assert min(found) < bound * (1 + 1e-4)


def test_spectral_flow_reproduces_reference_values():
    # Reference times are those of a flow along −∂L/∂W, twice as fast as −½ ∂L/∂W.
    rows = [
        (2, 0.014183981, 0.010992221, 0.296516512, 0.243762576, 29.614080785, 1e-8),
        (4, 0.025511559, 0.016386928, 0.590660596, 0.320583834, 28.945513402, 2e-8),
        (5, 0.044814924, 0.020720287, 1.150805504, 0.354417988, 27.220371832, 1e-7),
        (6, 0.138944725, 0.024438711, 3.664215394, 0.224328611, 12.985471168, 1e-6),
        (8, 0.271011740, 0.023167099, 2.888116686, 0.015375983, 6.740516395, 1e-7),
        (20, 0.316217422, 0.017241510, 2.483314827, 1.18864e-7, 6.441933151, 1e-7),
    ]
    flow = multitask.spectral_flow(EQUAL, [2 * row[0] for row in rows], OMEGA, MU, WIDTH)
    for k, (_, *reference, tolerance) in enumerate(rows):
        own, other = flow.omega[k, 0, 0], flow.omega[k, 0, 1]
        found = [own, other, flow.mu[k, 0, 0], flow.mu[k, 0, 1], flow.loss[k]]
        np.testing.assert_allclose(found, reference, atol=tolerance)


@pytest.mark.parametrize("imbalance", [0.0, 0.3])
def test_spectral_flow_is_gradient_flow_of_the_factors(imbalance):
    # K, Q, O, V as full matrices in random frames, by automatic differentiation of the trace form.
    rng, width, sizes = np.random.default_rng(0), 7, [2, 2]
    blocks = Blocks(np.full(2, 2.0), np.array([1.0, 0.6]), np.array([0.1, 0.3]), 30.0)
    frame = lambda columns: np.linalg.qr(rng.normal(size=(width, columns)))[0]
    masks = np.repeat(np.eye(2), sizes, axis=1)
    omega0, mu0 = np.array([[0.2, 0.1], [0.12, 0.25]]), np.array([[0.3, 0.2], [0.1, 0.4]])
    # k² − q² and o² − v² are the imbalance.
    split = lambda product: (
        np.sqrt(np.sqrt(product**2 + imbalance**2 / 4) + imbalance / 2),
        np.sqrt(np.sqrt(product**2 + imbalance**2 / 4) - imbalance / 2),
    )
    factors = []
    for h in range(2):
        k, q = split(np.repeat(omega0[h], sizes) * width**0.5)
        o, v = split(mu0[h])
        psi, xi = frame(4), frame(2)
        factors.append((psi * k, psi * q, (xi * o).T, xi * v))
    shapes = [[np.shape(x) for x in head] for head in factors]
    start = np.concatenate([x.ravel() for head in factors for x in head])
    power, phi = blocks.power, blocks.phi

    def circuits(flat):
        heads, at = [], 0
        for head in shapes:
            parts = []
            for shape in head:
                size = int(np.prod(shape))
                parts.append(flat[at : at + size].reshape(shape))
                at += size
            K, Q, O, V = parts  # noqa: E741
            heads.append((K.T @ Q / width**0.5, O @ V))
        return heads

    @jax.jit
    def total(flat):
        heads = circuits(flat)
        W, U = (jnp.stack([head[i] for head in heads]) for i in (0, 1))
        step = jnp.einsum("hij,hab->ijab", U, W)  # how x of label j's block moves prediction i
        kernel = jnp.exp(jnp.einsum("hab,kab->hk", W, W))
        value = 0.0
        for i, j in itertools.product(range(2), repeat=2):
            gap = masks[j][:, None] * (step[i, j] - (i == j) * jnp.diag(masks[i]))
            spread = jnp.einsum("h,hk,k->", U[:, i, j], kernel, U[:, i, j])
            value += blocks.signal[j] * jnp.sum(gap**2)
            value += power[j] * phi[j] / blocks.length * spread
        return value

    gradient = jax.jit(jax.grad(total))
    end = 8.0
    solved = scipy.integrate.solve_ivp(
        lambda t, y: -0.5 * np.asarray(gradient(y)), (0, end), start, "DOP853", rtol=1e-10,
        atol=1e-12,
    ).y[:, -1]  # fmt: skip
    flow = multitask.spectral_flow(blocks, [end], omega0, mu0, width, imbalance, imbalance)
    for h, (W, U) in enumerate(circuits(solved)):
        np.testing.assert_allclose(W, np.diag(np.repeat(flow.omega[0, h], sizes)), atol=2e-8)
        np.testing.assert_allclose(U, np.diag(flow.mu[0, h]), atol=2e-8)
    assert flow.loss[0] == pytest.approx(float(total(solved)), rel=1e-8)


def test_phases_have_their_reference_times():
    times = multitask.phase_times(EQUAL, OMEGA, MU, WIDTH, (0.05, 0.5, 0.95, 0.999))
    np.testing.assert_allclose(times / 2, [4.344, 5.783, 6.999, 26.33], rtol=3e-3)
    # One head for three tasks does not get there.
    with pytest.raises(ValueError, match="must be reached; after t = "):
        multitask.phase_times(EQUAL, OMEGA[:1], MU[:1], WIDTH)


def test_the_smallest_imbalance_escapes_from_the_limit_to_the_lower_bound():
    late = np.array([60.0, 120.0, 2e4])
    stays = multitask.spectral_flow(EQUAL, late, OMEGA, MU, WIDTH)
    limit, bound = multitask.gradient_flow_limit(EQUAL).loss, multitask.lower_bound(EQUAL, 3).loss
    assert stays.loss[-1] == pytest.approx(limit, rel=1e-5) and stays.mu.min() >= 0
    leaves = multitask.spectral_flow(EQUAL, late, OMEGA, MU, WIDTH, value_imbalance=1e-7)
    assert leaves.loss[0] > 6.4 and leaves.loss[1] < 4.3
    assert bound < leaves.loss[-1] < bound * 1.001 and leaves.mu.min() < 0


def test_what_the_theory_does_not_cover_is_refused():
    with pytest.raises(ValueError, match="must not overlap"):
        multitask.Blocks.of(MultiTaskRegression([[0, 1], [1, 2]]))
    with pytest.raises(ValueError, match="must have one context length"):
        multitask.Blocks.of(MultiTaskRegression([[0], [1]], context=[3, 4]))
    with pytest.raises(ValueError, match="`heads` = 0"):
        multitask.lower_bound(EQUAL, 0)
    with pytest.raises(ValueError, match="`omega` has a zero without imbalance"):
        multitask.spectral_flow(EQUAL, [1.0], 0 * OMEGA, MU, WIDTH)
