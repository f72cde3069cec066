"""Plateaus, drop times and shapes of loss curves: exact flows, noise, and curves by hand."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iclflow.analysis import (
    drop_count,
    drop_times,
    exponential_fit,
    passage_times,
    plateau_fraction,
    plateaus,
    resolves,
    sharpness,
)
from iclflow.errors import InputError, Refusal
from iclflow.flows import gradient_flow
from iclflow.models import Attention, Merged, Separate
from iclflow.risks import exact_bilinear_risk
from iclflow.tasks import LinearRegression
from iclflow.trajectory import Trajectory

LEVELS = np.array([1, 221 / 345, 27601 / 73140, 567769 / 2706180, 85873 / 631442])


@cache
def flow(kind: str, scale: float, seed: int = 0) -> Trajectory:
    """A run on D = 4, N = 31, eigenvalues .4 .3 .2 .1, saved as by default."""
    key = jr.key(seed)
    model = {
        "separate": lambda: Attention.separate(key, 4, 4, 1, scale),
        "rank two": lambda: Attention.separate(key, 4, 3, 2, scale),
        "merged": lambda: merged_model(scale, seed),
        "reference": lambda: reference_model(scale),
    }[kind]()
    task = LinearRegression([0.4, 0.3, 0.2, 0.1], 31)
    return gradient_flow(model, exact_bilinear_risk(task, model), progress=False)


def merged_model(scale: float, seed: int) -> Attention:
    """Gaussian weights from NumPy: nothing is compiled for them."""
    rng = np.random.default_rng(seed)
    v, U = (jnp.asarray(scale * rng.normal(size=shape)) for shape in ((4,), (4, 4, 4)))
    return Attention(Merged.of(v, U))


def reference_model(scale: float) -> Attention:
    """Deterministic weights whose half-drop times are known."""
    h, d = np.arange(4.0)[:, None], np.arange(4.0)[None]
    keys, queries = np.cos(2 + 3 * h + d), np.sin(1 + 2 * h + 3 * d)
    weights = np.cos(1 + h[:, 0]), keys[..., None], queries[..., None]
    return Attention(Separate.of(*(jnp.asarray(scale * each) for each in weights)))


def sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))


def staircase(times, drops, heights, width):
    """A curve that falls by `heights` at `drops`, each over about `width`, down to zero."""
    steps = sigmoid((np.asarray(drops) - times[:, None]) / width)
    return steps @ np.asarray(heights)


def trajectory(times, losses) -> Trajectory:
    model = Attention(Merged.of(jnp.asarray(np.zeros(1)), jnp.asarray(np.zeros((1, 1, 1)))))
    models = jax.tree.map(lambda leaf: np.zeros((len(times), *leaf.shape)), model)
    return Trajectory(np.asarray(times), np.asarray(losses), models)


# Exact flows ----------------------------------------------------------------------------------


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("scale, tolerance", [(1e-2, 1e-4), (1e-3, 1e-6)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_four_component_staircase_has_its_five_levels(scale, tolerance, seed):
    run = flow("separate", scale, seed)
    found = plateaus(run)
    assert len(found) == 5 and drop_count(run) == 4
    # A plateau is left by a head that grows as a power of time: the nearer to zero it starts,
    # the closer the loss comes to the saddle. The last level is where the run stops, 1e-6 off.
    np.testing.assert_allclose([p.level for p in found], LEVELS, atol=tolerance)
    assert [p.initial for p in found] == [True] + [False] * 4
    assert [p.final for p in found] == [False] * 4 + [True]
    assert found[0].start == 0 and found[-1].end == run.times[-1]
    edges = [edge for p in found for edge in (p.start, p.end)]
    assert edges == sorted(edges)
    # Plateaus of very different lengths, all of them seen.
    durations = [p.duration for p in found[:-1]]
    assert max(durations) > 10 * min(durations)
    assert all(p.spread < 0.01 for p in found)


def test_plateaus_lie_between_the_drops():
    run = flow("reference", 1e-2)
    found, times = plateaus(run), drop_times(run)
    for before, after, time in zip(found, found[1:], times):
        assert before.end < time < after.start
        for edge, share in ((before.end, 0.05), (after.start, 0.95)):
            expected = before.level + share * (after.level - before.level)
            # Linear between saved points, which are 0.2 % of the range apart.
            assert float(run.loss_at(edge)) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("points", [10, 50, 200])
@pytest.mark.parametrize("levels", [(1.0, 0.0), (1.0, 0.5, 0.0), (1.0, 0.7, 0.4, 0.0)])
def test_drops_between_two_points_separate_exact_levels(levels, points):
    losses = np.repeat(levels, points)
    found = plateaus(np.arange(len(losses), dtype=float), losses)
    assert [plateau.level for plateau in found] == pytest.approx(levels, abs=1e-9)


@pytest.mark.parametrize("scale", [1e-1, 1e-2, 1e-4])
def test_merged_attention_has_one_drop(scale):
    run = flow("merged", scale)
    first, last = plateaus(run)
    assert first.initial and last.final and drop_count(run) == 1
    assert last.level == pytest.approx(LEVELS[-1], abs=2e-6)


@pytest.mark.parametrize("scale", [1e-2, 1e-3])
def test_rank_two_heads_show_short_and_long_plateaus(scale):
    found = plateaus(flow("rank two", scale))
    # Inside a head a plateau lasts only ln(1/s) and is left before its level is quite reached.
    np.testing.assert_allclose([p.level for p in found], LEVELS, atol=2e-3)
    durations = [p.duration for p in found]
    assert durations[2] > 3 * durations[1] and durations[0] > 3 * durations[1]


def test_half_drop_times_have_their_reference_values():
    reference = [899.529379, 1512.162346, 2662.894185, 19197.234327]
    run = flow("reference", 1e-2)
    # The default save keeps points 0.2 % of the range apart; a cubic between them is far closer.
    np.testing.assert_allclose(drop_times(run, levels=LEVELS), reference, rtol=2e-6)
    np.testing.assert_allclose(drop_times(run), reference, rtol=2e-6)


# Curves made by hand --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "losses, plateau_count, drops",
    [
        (lambda t: np.exp(-12 * t), 1, 1),
        (lambda t: (1 + 200 * t) ** -1.0, 1, 1),
        (lambda t: np.exp(-0.5 * t), 0, 0),  # not yet slow anywhere
        (lambda t: 1 - t, 0, 0),
        (lambda t: np.exp(-12 * t) + 0.2 * np.exp(-3 * t), 1, 1),
        (lambda t: sigmoid(40 * (0.5 - t)), 2, 1),
        (lambda t: np.full_like(t, 3.0), 1, 0),
        (lambda t: 1 - sigmoid(40 * (0.5 - t)), 2, 1),  # upwards
        (lambda t: staircase(t, [0.2, 0.5], [1, 1], 0.01) - staircase(t, [0.8], [0.5], 0.01), 4, 3),
        (lambda t: staircase(t, [0.03, 0.1, 0.5], [1, 1, 1], 1e-3), 4, 3),
        (lambda t: np.exp(-60 * t) + staircase(t, [0.6], [1.0], 0.01), 2, 2),  # begins falling
    ],
)
@pytest.mark.parametrize("points", [150, 1000])
def test_curves_by_hand(losses, plateau_count, drops, points):
    times = np.linspace(0, 1, points)
    found = plateaus(times, losses(times))
    assert (len(found), drop_count(times, losses(times))) == (plateau_count, drops)
    if plateau_count:
        assert found[-1].final


def test_plateaus_of_hugely_different_lengths():
    """Drops at 1e2, 1e4 and 1e6, each as quick as the first, seen at logarithmic save points."""
    drops = [1e2, 1e4, 1e6]
    near = [np.linspace(drop - 30, drop + 30, 60) for drop in drops]
    times = np.unique(np.concatenate([np.geomspace(1, 2e6, 200), *near]))
    losses = staircase(times, drops, [0.5, 0.3, 0.2], 3.0)
    found = plateaus(times, losses)
    np.testing.assert_allclose([p.level for p in found], [1, 0.5, 0.2, 0], atol=1e-6)
    np.testing.assert_allclose(drop_times(times, losses), drops, rtol=1e-4)
    np.testing.assert_allclose([p.end for p in found[:-1]], drops, atol=12)


def test_a_drop_lower_than_the_resolution_is_not_seen():
    times = np.linspace(0, 1, 2000)
    low = lambda height: staircase(times, [0.3, 0.7], [1.0, height], 0.005)
    assert len(plateaus(times, low(0.03))) == 3
    assert len(plateaus(times, low(0.003))) == 2
    assert len(plateaus(times, low(0.003), resolution=5e-4)) == 3


def test_contrast_decides_what_counts_as_slow():
    times = np.linspace(0, 1, 2000)
    rates = np.where(np.abs(times - 0.5) < 0.2, 0.1, 1.0)  # ten times slower in the middle
    losses = -np.cumsum(rates)
    (found,) = plateaus(times, losses)
    assert (found.initial, found.final) == (False, False)
    assert plateaus(times, losses, contrast=15.0) == ()


# Noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.05])
@pytest.mark.parametrize("points", [500, 4000])
def test_noisy_staircases_keep_their_plateaus(noise, points):
    counts = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        times = np.sort(rng.uniform(0, 1, points))
        clean = staircase(times, [0.1, 0.35, 0.7], [0.45, 0.3, 0.25], 0.003)
        losses = clean + noise * rng.standard_normal(points)
        found = plateaus(times, losses)
        counts.append(len(found))
        if len(found) == 4:
            assert found[0].initial and found[-1].final
            # Means over at least 20 points each.
            error = 4 * noise / np.sqrt(20)
            np.testing.assert_allclose([p.level for p in found], [1, 0.55, 0.25, 0], atol=error)
            np.testing.assert_allclose(drop_times(times, losses), [0.1, 0.35, 0.7], atol=0.01)
            assert found[-1].spread == pytest.approx(noise, rel=0.25)
    assert counts.count(4) >= 9


@pytest.mark.parametrize("noise", [0.003, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("points", [300, 3000])
def test_noise_makes_no_plateaus(noise, points):
    """Straight lines, exponentials and constants under noise: at most one false alarm in ten."""
    times = np.linspace(0, 1, points)
    for losses, expected in ((1 - times, 0), (np.exp(-10 * times), 1), (0 * times, 1)):
        counts = []
        for seed in range(10):
            rng = np.random.default_rng(seed)
            counts.append(len(plateaus(times, losses + noise * rng.standard_normal(points))))
        assert counts.count(expected) >= 9


def test_a_staircase_seen_through_minibatches():
    """The exact loss at evenly spaced steps, with noise in proportion to the loss."""
    run = flow("separate", 1e-1, 1)
    times = np.linspace(0, 1.3 * run.times[-1], 4000)  # the run ends as soon as it has converged
    rng = np.random.default_rng(0)
    exact = np.interp(times, run.times, run.losses)  # and stays where it is
    losses = exact * rng.chisquare(500, len(times)) / 500  # 6 % of the loss
    found = plateaus(times, losses)
    np.testing.assert_allclose([p.level for p in found], LEVELS, atol=0.01)
    clean = drop_times(run, levels=LEVELS)
    # Plateaus here are 50 to 400 long and drops 10 to 100 wide.
    np.testing.assert_allclose(drop_times(times, losses), clean, atol=15)


def test_spikes_do_not_split_a_plateau():
    times = np.linspace(0, 1, 1000)
    losses = staircase(times, [0.4], [1.0], 0.005)
    losses[[100, 250, 600, 900]] += [0.3, -0.2, 0.4, 0.3]
    assert len(plateaus(times, losses)) == 2


# Invariance -----------------------------------------------------------------------------------


@st.composite
def staircases(draw):
    """Two to four plateaus of any lengths, with at least 30 points to each drop."""
    lengths = draw(st.lists(st.floats(1.0, 1e4), min_size=2, max_size=4))
    heights = draw(st.lists(st.floats(0.2, 1.0), min_size=len(lengths), max_size=len(lengths)))
    drops = np.cumsum(np.asarray(lengths) + 1.0)
    near = [drop + np.linspace(-0.6, 0.6, 40) for drop in drops]
    times = np.unique(np.concatenate([[0.0], *near, [drops[-1] + lengths[0]]]))
    return times, staircase(times, drops, heights, 0.05), len(lengths) + 1


@settings(max_examples=40, deadline=None)
@given(staircases(), st.floats(-12, 12), st.floats(-8, 8), st.floats(-50, 50))
def test_stretching_time_and_loss_changes_nothing(curve, time_power, loss_power, shift):
    times, losses, count = curve
    stretch, gain = 2.0**time_power, 2.0**loss_power
    found = plateaus(times, losses)
    assert len(found) == count
    moved = plateaus(stretch * times, gain * losses + shift)
    assert len(moved) == count
    # Rounding of gain · loss + shift is what limits the agreement.
    level = [gain * p.level + shift for p in found]
    np.testing.assert_allclose([p.level for p in moved], level, atol=1e-6 * gain + 1e-11)
    for name in ("start", "end"):
        expected = [stretch * getattr(p, name) for p in found]
        np.testing.assert_allclose(
            [getattr(p, name) for p in moved], expected, rtol=1e-4, atol=1e-3 * stretch
        )


@settings(max_examples=40, deadline=None)
@given(staircases())
def test_a_staircase_upside_down_has_the_same_plateaus(curve):
    times, losses, count = curve
    found, turned = plateaus(times, losses), plateaus(times, -losses)
    assert len(found) == len(turned) == count
    np.testing.assert_allclose([p.level for p in turned], [-p.level for p in found], atol=1e-12)


# Drop times -----------------------------------------------------------------------------------


def test_interpolation_is_better_than_linear():
    """Between points of a logistic curve: cubic accuracy, hence a factor 2⁴ at half the spacing
    (2³ at least where points are uneven); linear interpolation would gain 2²."""
    exact = 0.37 + 0.05 * np.log(0.25 / 0.75)  # where sigmoid((0.37 − t)/0.05) = 0.75
    errors = []
    for points in (41, 81, 161):
        times = np.linspace(0, 1, points)
        losses = sigmoid((0.37 - times) / 0.05)
        (found,) = drop_times(times, losses, levels=[1, 0], fraction=0.25)
        errors.append(abs(found - exact))
    assert errors[0] < 2e-4
    assert errors[2] < errors[0] / 30


def test_a_drop_that_never_comes_is_nan():
    run = flow("merged", 1e-2)
    times = drop_times(run, levels=[1.0, 0.5, 0.1, 0.0])
    np.testing.assert_array_equal(np.isfinite(times), [True, True, False])
    assert np.isnan(drop_times([0.0, 1.0, 2.0], [0.4, 0.3, 0.2], levels=[1.0, 0.9])).all()


def test_drops_are_found_in_order_even_if_levels_rise_again():
    times = np.linspace(0, 1, 2000)
    losses = staircase(times, [0.2], [1.0], 0.01) - staircase(times, [0.6], [0.5], 0.01) + 0.5
    found = drop_times(times, losses, levels=[1.0, 0.0, 0.5])
    np.testing.assert_allclose(found, [0.2, 0.6], atol=1e-3)


def test_two_drops_between_the_same_two_points_are_both_seen():
    first, second = drop_times([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 0.0, 0.0], levels=[1.0, 0.5, 0.0])
    assert 1 < first < second < 2


@pytest.mark.parametrize("points, told", [(8, False), (30, False), (120, True), (4000, True)])
def test_a_drop_is_timed_only_where_points_resolve_it(points, told):
    """A logistic step of width 0.01 on the unit interval: about 0.04 from end to end."""
    times = np.linspace(0, 1, points)
    run = trajectory(times, sigmoid((0.505 - times) / 0.01))
    (found,) = drop_times(run, levels=[1, 0])
    assert resolves(run, found, height=1.0) is told
    # What is told is right to a small part of the width; what is not can be off by all of it.
    assert not told or abs(found - 0.505) < 2e-4


def test_saved_points_and_single_steps_need_no_more_points():
    run = trajectory([0.0, 10.0, 20.0], [1.0, 1.0, 0.0])
    assert resolves(run, 10.0, 1.0) and not resolves(run, 15.0, 1.0)
    steps = dataclasses.replace(trajectory([0.0, 10.0, 11.0], [1.0, 1.0, 0.0]), clock="step")
    assert resolves(steps, 10.5, 1.0)


# Shape ----------------------------------------------------------------------------------------


def test_sharpness_of_exponentials_and_steps():
    times = np.linspace(0, 30, 3000)
    decay = trajectory(times, np.exp(-times))
    assert sharpness(decay, 0.0) == pytest.approx(np.log(10 / 9) / np.log(10), rel=1e-5)
    step = trajectory(times, sigmoid((15 - times) / 0.02))
    assert sharpness(step, 0.0) == pytest.approx(1.0, abs=0.01)
    assert np.isnan(sharpness(trajectory(times, np.exp(-times / 100)), 0.0))


def test_sharpness_of_the_white_closed_form():
    """σ(t) is a rescaled logistic curve, so that ρ has a closed form in σ₀."""
    dim, context, start = 4, 31, 1e-3
    task = LinearRegression(np.ones(dim), context)
    v = np.array([np.sqrt(start * np.sqrt(dim))])
    U = v[:, None, None] * np.eye(dim) / np.sqrt(dim)
    model = Attention(Merged.of(jnp.asarray(v), jnp.asarray(U)))
    run = gradient_flow(model, exact_bilinear_risk(task, model), progress=False)
    kappa = 1 + (1 + dim) / context
    share = lambda f: (1 - np.sqrt(1 - f)) / np.sqrt(1 - f)
    early, late = (np.log((1 / (kappa * start) - 1) * share(f)) for f in (0.1, 0.9))
    # The way down starts at the loss of predicting zero, 4; the run itself starts 1e-3 below.
    floor = dim * (1 - 1 / kappa)
    # Saved points are 0.2 % of the range apart; the cubic between them leaves about 1e-5.
    assert sharpness(run, floor, top=float(dim)) == pytest.approx(early / late, rel=1e-4)


def test_plateau_fraction_is_the_share_of_time_near_a_level():
    times = np.array([0.0, 4.0, 4.0001, 7.0, 7.0001, 10.0])
    losses = np.array([1.0, 1.0, 0.5, 0.45, 0.0, 0.0])
    run = trajectory(times, losses)
    # Until 99.9 % of the way (t = 7): 4 at the first level; within 0.02 of 0.5 for two fifths of
    # the slope from 0.5 to 0.45.
    assert plateau_fraction(run, [1.0, 0.5, 0.0]) == pytest.approx((4 + 0.4 * 3) / 7, rel=1e-3)
    assert plateau_fraction(run, [1.0, 0.0]) == pytest.approx(4 / 7, rel=1e-3)
    assert plateau_fraction(run, [1.0, 0.5, 0.0], within=0.2) == pytest.approx(1.0, rel=1e-3)


def test_plateau_fraction_grows_as_weights_shrink():
    off = [1 - plateau_fraction(flow("separate", scale, 1), LEVELS) for scale in (0.1, 1e-2, 1e-3)]
    # One minus the share is proportional to the scale, and between 1 and 5 times as large.
    assert off[0] > 5 * off[1] > 25 * off[2]
    assert 1 < off[2] / 1e-3 < 5


def test_exponential_fit_tells_exponentials_from_sigmoids():
    times = np.concatenate([np.linspace(0, 1, 50), np.linspace(1.2, 40, 300)])
    fit = exponential_fit(trajectory(times, 0.3 + 2 * np.exp(-0.7 * times)))
    # Points are 0.13 apart, a tenth of the decay time: the cubic between them leaves about 1e-4.
    assert fit.rate == pytest.approx(0.7, rel=1e-3)
    assert (fit.floor, fit.height) == pytest.approx((0.3, 2.0), rel=1e-3)
    assert fit.deviation < 1e-3
    np.testing.assert_allclose(fit.loss(times), 0.3 + 2 * np.exp(-0.7 * times), atol=1e-3)
    assert exponential_fit(trajectory(times, sigmoid(20 - times))).deviation > 0.2


def test_passage_times_of_a_straight_line():
    run = trajectory(np.linspace(0, 2, 21), np.linspace(1, 0, 21))
    found = passage_times(run, [0.1, 0.5, 0.87], top=1.0, bottom=0.0)
    np.testing.assert_allclose(found, [0.2, 1.0, 1.74], rtol=1e-9)


# Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: plateaus([0, 1, 1], [1, 1, 1]), InputError, "increase strictly"),
        (lambda: plateaus([0, 1], [1, np.nan]), Refusal, "finite"),
        (lambda: plateaus([0, 1, 2], [1, 1]), InputError, "one length"),
        (lambda: plateaus([0], [1]), Refusal, "at least 2 points"),
        (lambda: plateaus([0.0, 1.0]), TypeError, "times and losses"),
        (lambda: plateaus(flow("merged", 1e-2), [1.0]), TypeError, "its own losses"),
        (lambda: plateaus([0, 1], [1, 0], contrast=1.0), InputError, "contrast"),
        (lambda: plateaus([0, 1], [1, 0], resolution=0.7), InputError, "resolution"),
        (lambda: plateaus([0, 1], [1, 0], margin=0.0), InputError, "margin"),
        (lambda: drop_times([0, 1], [1, 0], levels=[1, 0], fraction=1.0), InputError, "fraction"),
        (lambda: drop_times([0, 1], [1, 0], levels=[1, np.inf]), InputError, "levels"),
        (lambda: plateau_fraction(flow("merged", 1e-2), [0.1, 1.0]), InputError, "levels"),
    ],
)
def test_bad_input_is_refused(call, error, words):
    # A `Refusal` speaks of the run, and is an answer to a claim; a wrong argument is none.
    with pytest.raises(error, match=words):
        call()
