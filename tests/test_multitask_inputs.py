"""Wrong inputs of the multi-task parts are refused in one sentence, and lists serve as arrays."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.analysis import allocation, decomposition
from iclflow.flows import Checkpoint
from iclflow.models import Attention, BalancedSpectral, Spectral
from iclflow.risks import ExactMultiRisk, exact_multi_risk
from iclflow.tasks import LinearRegression, MultiTaskRegression, QuadraticRegression
from iclflow.theory import multitask
from iclflow.theory.multitask import Blocks

BLOCKS = Blocks(np.full(3, 10.0), np.ones(3), np.zeros(3), 100.0)
OMEGA, MU = np.full((3, 3), 0.008) + 0.002 * np.eye(3), np.full((3, 3), 0.2)
SETS = ((0, 1), (2, 3))
SMALL = np.full((2, 2), 0.1)
TASK = MultiTaskRegression(SETS, context=10)
HEADS = Attention(Spectral.of(SMALL, SMALL, SETS))
NAN = float("nan")


@pytest.mark.parametrize(
    "build, said",
    [
        (lambda: multitask.spectral_flow(BLOCKS, [0, NAN], OMEGA, MU, 30), "`times` must be"),
        (lambda: multitask.spectral_flow(BLOCKS, [0, 1], OMEGA, MU, 0), "`width` = 0: must be a"),
        (lambda: multitask.spectral_flow(BLOCKS, [0, 1], OMEGA * NAN, MU, 9), "`omega` = .*finite"),
        (lambda: multitask.spectral_flow(BLOCKS, [0, 1], OMEGA[0], MU[0], 9), r"shape \(3,\)"),
        (
            lambda: multitask.spectral_flow(BLOCKS, [0, 1], OMEGA[:, :2], MU[:, :2], 9),
            r"`omega` has shape \(3, 2\) and `mu` has shape \(3, 2\): must be \(heads, 3\)",
        ),
        (
            lambda: multitask.spectral_flow(BLOCKS, [1], OMEGA, MU, 9, value_imbalance=np.ones(2)),
            r"`value_imbalance` has shape \(2,\): must be one number, or \(3, 3\)",
        ),
        (lambda: multitask.spectral_flow(BLOCKS, [1], OMEGA, MU, 9, "a"), "`key_imbalance` = 'a'"),
        (lambda: multitask.own_head_flow(BLOCKS, [1], OMEGA[0], MU[0], 0), "`width` = 0"),
        (lambda: multitask.own_head_flow(BLOCKS, [1], OMEGA[0, :2], MU[0], 9), r"must be \(3,\)"),
        (lambda: multitask.emergence_estimate(BLOCKS, np.zeros(3), 9), "`omega` = .*positive"),
        (lambda: multitask.emergence_velocity(BLOCKS, [0.1], 9), "last axis must be the 3 tasks"),
        (lambda: multitask.phase_times(BLOCKS, OMEGA, MU, 9, (1.5,)), r"`fractions` = \[1.5\]"),
        (lambda: multitask.phase_times(BLOCKS, OMEGA, MU, 9, (-1.0,)), "above 0 and below 1"),
        (lambda: multitask.phase_times(BLOCKS, OMEGA, MU, 9, ()), "`fractions` is empty: must"),
        (lambda: multitask.loss(BLOCKS, OMEGA, MU[:2]), r"`mu` has shape \(2, 3\)"),
        (lambda: multitask.lower_bound(BLOCKS, "3"), "`heads` = '3': must be a whole number"),
        (lambda: multitask.lower_bound(BLOCKS, NAN), "`heads` = nan: must be a whole number"),
        (lambda: multitask.single_head(replace(BLOCKS, signal=np.array([0.0, 1, 1]))), "`blocks.s"),
        (lambda: multitask.single_head(replace(BLOCKS, noise=MU[0] * NAN)), "`blocks.noise` = "),
        (lambda: multitask.single_head(BLOCKS.with_length(-3.0)), "`blocks.length` = -3.0"),
        (lambda: multitask.divided_limit(BLOCKS, [NAN, NAN, 0]), "whole numbers from 0 up"),
        (lambda: multitask.divided_limit(BLOCKS, [-1, 0, 1]), r"`owners` = \[-1, 0, 1\]"),
        (lambda: multitask.divided_limit(BLOCKS, ["a", "b", "c"]), "`owners` = "),
        (lambda: multitask.head_starts(BLOCKS, OMEGA, MU, 0), "`width` = 0"),
        (lambda: multitask.convergence_rates(BLOCKS, 0), "`width` = 0"),
        (lambda: multitask.tail_excess(BLOCKS, np.ones((4, 3))), r"must be \(3, 3\)"),
        (lambda: multitask.escape_time(BLOCKS, 0.2, 0.1, NAN), "`imbalance` = nan: must be finite"),
        (lambda: multitask.escape_time(BLOCKS, "a", 0.1, 0.1), "`start` = 'a': must be a size"),
        (lambda: multitask.equiangular_heads(BLOCKS, 1, 0, 2, np.eye(3) * NAN), "`frame` = "),
        (lambda: multitask.equiangular_heads(BLOCKS, 1, 0, 2, np.eye(2)), "`frame` has shape"),
        (lambda: multitask.approach(BLOCKS, 3, 1e-14), "`size` = 1e-14: .*1e-08; rounding"),
        (lambda: multitask.at_length(BLOCKS, "a"), "`test_length` = 'a': must be at least 1"),
        (lambda: multitask.ridge(BLOCKS, NAN, "once"), "`penalty` = nan: must be finite"),
        (lambda: multitask.Blocks.of(MultiTaskRegression(SETS, signal=[0, 1])), "`task.signal` = "),
        (lambda: MultiTaskRegression(5), "`coordinates` = 5: must be a list for each task"),
        (lambda: MultiTaskRegression([0, 1]), "`coordinates` = .*must be a list for each task"),
        (lambda: MultiTaskRegression(SETS, context="10"), "`context` = '10': must be a whole"),
        (lambda: MultiTaskRegression(SETS, dim="4"), "`dim` = '4': must be a whole number"),
        (lambda: MultiTaskRegression(SETS, noisy_query="no"), "`noisy_query` = 'no': must be True"),
        (lambda: LinearRegression([1.0], noisy_query="no"), "`noisy_query` = 'no': must be True"),
        (lambda: QuadraticRegression(2, noisy_query="no"), "`noisy_query` = 'no': must be True"),
        (lambda: Attention(3), "`circuits` = 3: must be circuits, such as"),
        (lambda: Spectral.of(SMALL * NAN, SMALL, SETS), "`omega` = .*must be finite"),
        (lambda: Spectral.of("x", SMALL, SETS), "`omega` = 'x': must be numbers"),
        (lambda: BalancedSpectral.of(SMALL, SMALL * np.inf, SETS), "`mu` = .*must be finite"),
        (lambda: Spectral.of(SMALL, SMALL, SETS, key_imbalance=NAN), "`key_imbalance` ="),
        (
            lambda: Spectral.of(SMALL, SMALL, SETS, value_imbalance=np.ones((5, 2, 2))),
            r"`value_imbalance` has shape \(5, 2, 2\): must be one number, or \(2, 2\)",
        ),
        (lambda: Spectral.of(SMALL, SMALL, [[0.5, 1], [2, 3]]), r"holds \[0.5, 1\]"),
        (lambda: Spectral.of(SMALL, SMALL, [[-1, 1], [2, 3]]), r"holds \[-1, 1\]"),
        (lambda: Spectral.of(SMALL, SMALL, TASK), "give `task.coordinates`"),
        (lambda: Spectral.of(SMALL, SMALL, SETS, width="4"), "`width` = '4': must be a"),
        (lambda: Spectral.of(SMALL, SMALL, SETS, width=-4), "`width` = -4: must be a"),
        (lambda: Attention.balanced(jr.key(0), SETS, 2, spread=2.0), "`spread` = 2.0: .*below"),
        (lambda: Attention.balanced(jr.key(0), SETS, 2, mu=np.ones(3)), "`mu` has shape"),
        (lambda: BalancedSpectral.of(SMALL, SMALL, SETS, signs=-np.ones((2, 2, 2))), "`signs` = "),
        (
            lambda: HEADS.circuits.factored(jr.key(0), np.ones((4, 4))),
            "`input_rotation` is not orthogonal",
        ),
        (lambda: exact_multi_risk(TASK, HEADS, 5.5), "`digits` = 5.5: must be a whole number"),
        (lambda: exact_multi_risk(TASK, HEADS, "5"), "`digits` = '5': must be a whole number"),
        (lambda: exact_multi_risk(TASK, HEADS).at_length("a"), "`length` = 'a': must be at least"),
        (lambda: exact_multi_risk(TASK, HEADS).at_length([1, 2]), "`length` = .*must be at least"),
        (
            lambda: allocation(eqx.tree_at(lambda m: m.circuits.K, HEADS, SMALL * NAN), TASK),
            "be finite",
        ),
        (lambda: Checkpoint("run", every="a"), "`every` = 'a': must be a number of seconds"),
        (lambda: Checkpoint("."), "`path` = '.' is a folder"),
    ],
)  # fmt: skip
def test_wrong_inputs_are_refused_in_one_sentence(build, said, unchecked):
    with pytest.raises(ValueError, match=said):
        build()


@pytest.mark.parametrize(
    "build, said",
    [
        (lambda: multitask.Blocks.of(LinearRegression([1.0])), "must be a MultiTaskRegression"),
        (lambda: multitask.lower_bound("a", 2), "`task` is a str: must be a MultiTaskRegression"),
        (lambda: decomposition(HEADS, "a"), "`task` is a str: must be a MultiTaskRegression"),
    ],
)
def test_objects_of_another_kind_are_refused(build, said, unchecked):
    with pytest.raises(TypeError, match=said):
        build()


def test_lists_serve_as_arrays():
    omega, mu = OMEGA.tolist(), MU.tolist()
    row = OMEGA[0].tolist()
    plain = Blocks(BLOCKS.sizes.tolist(), BLOCKS.signal.tolist(), BLOCKS.noise.tolist(), 100)
    for name, given, same in [
        ("loss", (omega, mu), (OMEGA, MU)),
        ("linear_loss", (omega, mu), (OMEGA, MU)),
        ("shares", (omega,), (OMEGA,)),
        ("best_mu", (omega,), (OMEGA,)),
        ("quasi_stationary_mu", (row,), (OMEGA[0],)),
    ]:
        found = getattr(multitask, name)(BLOCKS, *given)
        np.testing.assert_array_equal(found, getattr(multitask, name)(BLOCKS, *same))
    np.testing.assert_array_equal(
        multitask.emergence_velocity(BLOCKS, row, 30),
        multitask.emergence_velocity(BLOCKS, OMEGA[0], 30),
    )
    assert multitask.angles(BLOCKS, omega) == multitask.angles(BLOCKS, OMEGA)
    assert multitask.as_softmax(omega, mu, 0.1)[0].shape == (4, 3)
    assert multitask.single_head(plain).loss == multitask.single_head(BLOCKS).loss


def test_small_heads_stay_above_the_bound_but_for_rounding():
    omega = multitask.approach(BLOCKS, 3, 1e-8)
    gap = multitask.loss(BLOCKS, omega, multitask.best_mu(BLOCKS, omega)).sum()
    # As much for the size as for rounding, 2e-16 over the size.
    assert abs(gap / multitask.lower_bound(BLOCKS, 3).loss - 1) < 4e-8


def test_escape_without_imbalance_takes_for_ever():
    assert np.all(multitask.escape_time(BLOCKS, 0.0, 0.0, 0.0) == np.inf)


def test_retuned_weights_are_those_of_the_own_head_alone():
    omega, own = multitask.limit_heads(BLOCKS)
    found = multitask.at_length(BLOCKS, BLOCKS.length).retuned
    np.testing.assert_allclose(found, multitask.loss(BLOCKS, omega, own), rtol=1e-12)
    # Weights on other labels help: the sentence must not say more.
    best = multitask.loss(BLOCKS, omega, multitask.best_mu(BLOCKS, omega))
    assert np.all(best < 0.9 * found)


def test_balanced_heads_are_made_within_jit_and_vmap():
    omega, mu = jnp.asarray([[0.4, 0.1], [-0.2, 0.35]]), jnp.asarray([[1.2, 0.3], [-0.4, 1.0]])
    seen = BalancedSpectral.of(omega, mu, SETS)
    build = lambda w, m: BalancedSpectral.of(w, m, SETS, signs=seen.signs)
    made = jax.jit(lambda w, m: build(w, m).omega())(omega, mu)
    np.testing.assert_allclose(made, omega, rtol=1e-14)
    plain = jax.vmap(lambda w: BalancedSpectral.of(w, mu, SETS).omega())(jnp.abs(omega)[None])
    np.testing.assert_allclose(plain[0], jnp.abs(omega), rtol=1e-14)
    # Signs of numbers that are known are seen, beside traced ones too.
    both = jax.jit(lambda w: BalancedSpectral.of(w, mu, SETS).mu())(jnp.abs(omega))
    np.testing.assert_allclose(both, mu, rtol=1e-14)


@pytest.mark.slow
def test_steep_heads_are_resolved_and_their_error_told(monkeypatch):
    # One block, so that a test is quick: two coordinates and a deviation of 5.7.
    task = MultiTaskRegression([[0, 1]], context=20, noise=0.2)
    steep = Attention(Spectral.of([[4.0]], [[0.6]], [[0, 1]]))
    gentle = exact_multi_risk(task, Attention(Spectral.of([[0.5]], [[0.6]], [[0, 1]])))
    exact = exact_multi_risk(task, steep)
    assert (gentle.steepest, exact.steepest) == (4.0, 16.0)
    fine, errors = eqx.filter_jit(exact.losses_with_error)(steep)
    with monkeypatch.context() as patch:  # of these, which are not computed again
        patch.setattr(ExactMultiRisk, "losses_with_error", lambda *_: (fine, errors))
        value, error = exact.with_error(steep)
    assert value == pytest.approx(float(fine.sum())) and error >= errors.sum() * (1 - 1e-12)
    # Means over contexts: labels and noise integrated out.
    rng, count = np.random.default_rng(0), 40_000
    x, q = rng.standard_normal((count, 20, 2)), rng.standard_normal((count, 1, 2))
    p = np.exp(4 * np.sum(x * q, -1) - np.max(4 * np.sum(x * q, -1), 1, keepdims=True))
    p = 0.6 * p / p.sum(1, keepdims=True)
    missed = np.sum((q[:, 0] - np.einsum("bl,bld->bd", p, x)) ** 2, 1) / 2
    each = missed + 0.2 * np.sum(p**2, 1) + 0.2
    assert abs(value - each.mean()) < 4 * each.std() / count**0.5 + error
    monkeypatch.setattr(ExactMultiRisk, "_losses", lambda *_: fine)  # it is told before that
    with pytest.warns(UserWarning, match="steepness 13.7, .*made for 4: `with_error` says"):
        gentle.losses(steep)
