import numpy as np
import pytest

from iclflow.tasks import LinearRegression
from iclflow.theory._idle_head import as_rank_one, idle_heads_after
from iclflow.theory._learning_order import (
    first_drop_time,
    log_plateau_slope,
    rank_plateaus,
    single_head_flow,
    single_head_rate,
)
from iclflow.theory._separate_modes import plateau_losses
from separate_flow import Flow, gaussian, problem

FOUR = (0.4, 0.3, 0.2, 0.1)
EIGHT = tuple((9 - d) / 36 for d in range(1, 9))
TASK = LinearRegression(FOUR, 31)


def test_slopes_inside_a_head_are_the_reference_values():
    task = LinearRegression(EIGHT, 31)
    slopes = [log_plateau_slope(task, 8, m) for m in range(1, 8)]
    wanted = [3.965, 4.753, 6.735, 10.985, 21.402, 55.583, 273.025]
    np.testing.assert_allclose(slopes, wanted, atol=5e-4)


@pytest.mark.parametrize("rank, powers", [(1, range(8)), (2, (0, 2, 4, 6)), (4, (0, 4)), (8, (0,))])
def test_new_heads_are_needed_where_the_rank_divides_the_count(rank, powers):
    task = LinearRegression(EIGHT, 31)
    plateaus = rank_plateaus(task, heads=9, rank=rank)
    assert [p.learned for p in plateaus] == list(range(8))
    assert [p.learned for p in plateaus if p.scaling == "power"] == list(powers)
    for p in plateaus:
        assert np.isinf(p.log_slope) == (p.scaling == "power")
        if p.scaling == "logarithm":
            assert p.log_slope == log_plateau_slope(task, rank, p.learned)
    np.testing.assert_allclose([p.loss for p in plateaus], plateau_losses(task)[:-1], rtol=1e-14)
    assert len(rank_plateaus(task, heads=1, rank=3)) == 3


def test_single_head_equations_are_those_of_the_full_flow():
    kappa = np.array([0.02, 0.03, 0.01, 0.05])
    K = np.diag(kappa)[None]
    flow = Flow(problem(FOUR, noise=0.1), np.array([0.04]), K, K, end=800)
    times = np.linspace(1, 800, 40)
    head = single_head_flow(
        LinearRegression(FOUR, 31, noise=0.1, noisy_query=False), 0.04, kappa, times
    )
    weights = [flow.weights(t) for t in times]
    # Two solvers at a relative tolerance of 1e-10, with one drop in between.
    np.testing.assert_allclose(head.v, [w[0][0] for w in weights], rtol=1e-6)
    np.testing.assert_allclose(head.kappa, [np.diag(w[1][0]) for w in weights], rtol=1e-6)
    np.testing.assert_allclose(head.loss, flow.losses(times), atol=1e-7)


def test_single_head_rate_is_minus_half_the_gradient():
    p, v, kappa = problem(FOUR), 0.7, np.array([0.9, 0.5, 0.3, 0.8])
    loss = lambda v, kappa: p.loss(v * np.diag(kappa**2))
    rate_v, rate_kappa = single_head_rate(TASK, v, kappa)
    step = 1e-6
    slope = (loss(v + step, kappa) - loss(v - step, kappa)) / (2 * step)
    assert rate_v == pytest.approx(-slope / 2, abs=1e-9)
    for j in range(4):
        d = step * np.eye(4)[j]
        # Both K and Q carry κ, so that ∂L/∂κ is twice the gradient of one of them.
        slope = (loss(v, kappa + d) - loss(v, kappa - d)) / (2 * step)
        assert rate_kappa[j] == pytest.approx(-slope / 4, abs=1e-9)


def plateaus_of_single_head(size):
    """Times between half-drops of one balanced rank-4 head that starts aligned."""
    K = size * np.eye(4)[None]
    flow = Flow(problem(FOUR), np.array([2 * size]), K, K, end=20 / size)
    return np.diff(flow.drop_times(plateau_losses(TASK)))


def test_plateaus_inside_a_head_grow_with_the_logarithm_at_the_predicted_slope():
    small, large = plateaus_of_single_head(1e-5), plateaus_of_single_head(1e-3)
    measured = (small - large) / np.log(100)
    wanted = [log_plateau_slope(TASK, 4, m) for m in (1, 2, 3)]
    # The O(1) part of the duration still changes by a few per cent of the slope at these sizes.
    np.testing.assert_allclose(measured, wanted, rtol=0.05)


def test_plateaus_between_heads_grow_as_the_inverse_of_the_weights():
    levels, durations = plateau_losses(TASK), {}
    for size in (1e-2, 1e-3):
        flow = Flow(problem(FOUR), *gaussian(2, size, 2, 4, rank=2), end=400 / size, rtol=1e-9)
        drops = np.concatenate([[0.0], flow.drop_times(levels)])
        assert np.all(np.isfinite(drops))
        durations[size] = np.diff(drops)
    ratio = durations[1e-3] / durations[1e-2]
    scaling = [p.scaling for p in rank_plateaus(TASK, 2, 2)]
    assert scaling == ["power", "logarithm", "power", "logarithm"]
    # Ten times smaller weights: ten times as long, against a fraction more.
    np.testing.assert_allclose(ratio[[0, 2]], 10, rtol=0.2)
    assert np.all(ratio[[1, 3]] < 3)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_an_idle_head_of_rank_r_moves_its_value_as_one_of_rank_one(rank):
    v, K, Q = gaussian(3, 1e-3, 3, 4, rank)
    # The largest drive gives blow-up times of 2000 and more: at 1500 heads have grown twofold.
    flow = Flow(problem(FOUR), v, K, Q, end=1500)
    found, _, _ = idle_heads_after(1500.0, v, *as_rank_one(K, Q), np.square(FOUR))
    # A of 1e-8 feeds back on the drive.
    np.testing.assert_allclose(found, flow.weights(1500.0)[0], rtol=1e-5)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_the_first_drop_of_any_rank_follows_from_the_initial_weights(rank):
    errors = []
    for size in (1e-2, 1e-3):
        v, K, Q = gaussian(5, size, 3, 4, rank)
        flow = Flow(problem(FOUR), v, K, Q, end=60 / size, rtol=1e-9)
        measured = flow.drop_times(plateau_losses(TASK)[:2])[0]
        errors.append(abs(first_drop_time(TASK, v, K, Q) / measured - 1))
    # The limit of small weights: the error falls with them.
    assert errors[1] < 2e-3 and errors[1] < errors[0]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: log_plateau_slope(TASK, 2, 4), "`learned` = 4"),
        (lambda: rank_plateaus(TASK, 2, 0), "`rank` = 0"),
        (lambda: single_head_flow(TASK, 0.1, np.ones(1), np.ones(1)), "`kappa` has 1 entries"),
        (
            lambda: single_head_flow(TASK, 0.1, np.ones(4), np.array([2.0, 1.0])),
            "`times` must increase",
        ),
        (
            lambda: rank_plateaus(
                LinearRegression([1, 0.2], prior_covariance=np.diag([0.1, 1])), 2, 1
            ),
            "same order",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call()
