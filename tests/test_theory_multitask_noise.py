"""What batch noise does to balanced heads, against sampling and finite differences."""

import numpy as np
import pytest

from iclflow.errors import Refusal
from iclflow.theory import multitask
from iclflow.theory.multitask import Blocks

TASKS = Blocks(np.full(3, 40.0), np.ones(3) / 40, np.full(3, 0.3), 800.0)
SMALL = Blocks(np.full(3, 6.0), np.ones(3), np.zeros(3), 40.0)
OMEGA = np.array([[1.0, 0.3, 0.2], [0.1, 0.8, 0.3], [0.2, 0.1, 0.9]]) / 40**0.5
MU = np.array([[0.7, 0.1, 0.2], [0.1, 0.6, 0.1], [0.2, 0.1, 0.8]]) * 40**0.5


def draw(rng, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Errors e (S, I) and returns z (S, H, I) of heads on drawn sequences."""
    size, length, labels = 40, 800, 3
    errors, returns = [], []
    for _ in range(count):
        x = rng.standard_normal((length, labels, size))
        query = rng.standard_normal((labels, size))
        beta = rng.standard_normal((labels, size)) / size**0.5
        y = np.einsum("lid,id->li", x, beta) + 0.3**0.5 * rng.standard_normal((length, labels))
        scores = np.einsum("hi,lid,id->hl", OMEGA, x, query)
        p = np.exp(scores - scores.max(1, keepdims=True))
        z = p / p.sum(1, keepdims=True) @ y
        goal = np.sum(beta * query, 1) + 0.3**0.5 * rng.standard_normal(labels)
        errors.append(np.einsum("hi,hi->i", MU, z) - goal)
        returns.append(z)
    return np.array(errors), np.array(returns)


def test_the_noise_of_slopes_is_that_of_drawn_sequences():
    errors, returns = draw(np.random.default_rng(0), 2000)
    slopes = 2 * np.concatenate(
        [errors[:, :1] * returns[..., 1], errors[:, 1:2] * returns[..., 0]], 1
    )
    found = slopes.T @ slopes / len(slopes)
    expected = multitask.slope_noise(TASKS, OMEGA, MU, (0, 1))
    # Products of four normal numbers: 10 % at 2000 draws; blocks of 40 leave some 1/d.
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(found / scale, expected / scale, atol=0.15)


def test_the_drift_is_the_linear_part_of_the_flow_of_factors():
    labels, heads, step = (0, 2), 3, 1e-6
    products = multitask.label_products(SMALL, OMEGA)
    base = np.stack([np.diag(np.sqrt(row)) for row in MU])

    def velocity(at: np.ndarray) -> np.ndarray:
        """Ȯ and V̇ᵀ from the loss Σ_i (λd − 2λd Σ_h ω_hi U_h,ii + Σ_j u_ijᵀ M_j u_ij)."""
        read, write = at
        circuits = np.einsum("hie,hje->hij", read, write)
        slope = 2 * np.einsum("jhk,kij->hij", products, circuits)
        for head in range(heads):
            slope[head] -= 2 * np.diag(SMALL.power * OMEGA[head])
        return np.stack([
            -0.5 * np.einsum("hij,hje->hie", slope, write),
            -0.5 * np.einsum("hji,hje->hie", slope, read),
        ])  # fmt: skip

    i, j = labels
    places = [(part, head, *at) for head in range(heads) for part, at in
              ((0, (i, j)), (0, (j, i)), (1, (i, j)), (1, (j, i)))]  # fmt: skip
    start = np.stack([base, base])
    columns = []
    for place in places:
        moved = np.zeros_like(start)
        moved[place] = step
        change = (velocity(start + moved) - velocity(start - moved)) / (2 * step)
        columns.append([change[other] for other in places])
    expected = multitask.off_diagonal(SMALL, OMEGA, MU, labels).drift
    np.testing.assert_allclose(np.array(columns).T, expected, atol=1e-7)


def test_noise_keeps_the_factors_in_balance_to_first_order():
    # OᵀO − VVᵀ changes by a_i (O_ij − V_ij) + a_j (O_ji − V_ji), which no slope moves.
    root = np.sqrt(MU)
    noise = multitask.off_diagonal(SMALL, OMEGA, MU, (0, 1)).noise
    for head in range(3):
        seen = np.zeros(len(noise))
        seen[4 * head : 4 * head + 4] = (
            np.array([1, 0, -1, 0]) * root[head, 0] + np.array([0, 1, 0, -1]) * root[head, 1]
        )
        assert seen @ noise @ seen == pytest.approx(0.0, abs=1e-12 * np.abs(noise).max())


@pytest.fixture(scope="module")
def seed():
    omega, mu = np.where(np.eye(3) > 0, 0.02, 0.01), np.full((3, 3), 0.2)
    return multitask.noise_seed(SMALL, omega, mu, 18, 60.0)


@pytest.mark.slow
def test_equal_tasks_get_equal_seeds_in_the_head_of_the_third(seed):
    assert seed.heads == ((2, 0, 1), (1, 0, 2), (0, 1, 2))
    np.testing.assert_allclose(seed.deviations, seed.deviations[0], rtol=1e-3)


@pytest.mark.slow
def test_each_decade_of_batch_over_rate_takes_the_same_time(seed):
    first, second = (multitask.leaving_times(seed, ratio)[0] for ratio in (1e-4, 1e-5))
    rate = float(multitask.escape_rate(SMALL)[0])
    # Attention to other tasks, which falls as 1/t, slows the escape by some per cent.
    assert second - first == pytest.approx(np.log(10) / rate, rel=0.06)


@pytest.mark.slow
def test_the_time_of_leaving_is_that_of_a_flow_with_the_same_imbalance(seed):
    ratio, level = 1e-4, 0.1
    time = multitask.leaving_quantiles(seed, ratio, np.array([0.5]), level)[0, 0]
    delta = 0.674490 * seed.deviations[0] * ratio**0.5
    omega, mu = np.where(np.eye(3) > 0, 0.02, 0.01), np.full((3, 3), 0.2)
    imbalance = np.zeros((3, 3))
    imbalance[2, :2] = delta
    times = np.linspace(0.0, 60.0, 1201)
    flow = multitask.spectral_flow(SMALL, times, omega, mu, 18, value_imbalance=imbalance)
    reached = np.interp(level, -flow.mu[300:, 2, 0], times[300:])
    assert time == pytest.approx(reached, rel=0.02)


@pytest.mark.slow
def test_the_share_that_has_left_is_the_inverse_of_the_quantiles(seed):
    shares = np.array([0.1, 0.5, 0.9])
    times = multitask.leaving_quantiles(seed, 1e-4, shares)[:, 0]
    found = [multitask.share_left(seed, 1e-4, time)[0] for time in times]
    np.testing.assert_allclose(found, shares, rtol=1e-3)


def test_two_labels_are_refused():
    pair = Blocks(np.full(2, 6.0), np.ones(2), np.zeros(2), 40.0)
    with pytest.raises(Refusal, match="three labels"):
        multitask.noise_seed(pair, np.full((2, 2), 0.01), np.full((2, 2), 0.2), 12)


def test_the_bound_at_finite_length_is_that_of_drawn_linear_steps():
    # Two of three tasks' worth of shares: Γ_i is the i-th part of a projection of rank 2.
    size, length, draws = 3, 12, 40_000
    blocks = Blocks(np.full(3, float(size)), np.ones(3), np.zeros(3), float(length))
    rng = np.random.default_rng(1)
    project = np.eye(3) - 1 / 3
    n = length - 1
    odds = size / (n * 2 / 3) + 1 / n
    step = project / project[0, 0] / (1 + odds) * length / n
    x = rng.standard_normal((draws, length, 3, size))
    query = rng.standard_normal((draws, 3, size))
    centred = x - x.mean(1, keepdims=True)
    # The prediction of label i is β_i·m_i, m_i = (1/L) Σ_ℓ x_iℓ Σ_j γ_ij x̃_jℓ·q_j.
    scores = np.einsum("nljd,njd->nlj", centred, query)
    returned = np.einsum("nlid,ij,nlj->nid", x, step, scores) / length
    losses = np.sum((query - returned) ** 2, (1, 2))
    expected = multitask.finite_bound(blocks, 3).loss
    assert losses.mean() == pytest.approx(expected, abs=4 * losses.std() / draws**0.5)
