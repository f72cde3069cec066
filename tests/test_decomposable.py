"""Decomposable attention: its forms, its risks in closed form and exact, and its flow."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.checkpoints import load_model, save_model
from iclflow.flows import SaveAtTimes, gradient_flow
from iclflow.models import Attention, BalancedSpectral, Diagonal, Merged, Spectral
from iclflow.risks import (
    ExactMultiRisk,
    IntegratedRisk,
    LargeContextRisk,
    SpectralRisk,
    available_kinds,
    exact_multi_risk,
    risk,
    spectral_risk,
)
from iclflow.tasks import LinearRegression, MultiTaskRegression, isotropic
from iclflow.theory import multitask

SETS = ((0, 1, 2), (3, 4, 5, 6))
OMEGA, MU = [[0.4, 0.1], [-0.2, 0.35]], [[1.2, 0.3], [-0.4, 1.0]]


@eqx.filter_jit
def spectral_heads(omega: np.ndarray, mu: np.ndarray, sets, **imbalances) -> Attention:
    """As a whole: operation by operation, each would be compiled by itself."""
    return Attention(Spectral.of(omega, mu, sets, **imbalances))


# The example of reference value 36: losses without the noise of the query.
TASK = MultiTaskRegression(SETS, context=20, noise=0.2, signal=[0.5, 0.3], noisy_query=False)
HEADS = Attention(Spectral.of(OMEGA, MU, SETS, value_imbalance=0.3, key_imbalance=-0.1))


def rotation(size: int, seed: int) -> jax.Array:
    return jnp.asarray(np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0])


def sampled_mean(task, model, key, count: int) -> tuple[float, float]:
    """The mean loss over fresh sequences with labels integrated out, and its standard error."""
    sampled = IntegratedRisk(task, count)
    # As a whole: one by one, its hundred operations would each be compiled.
    losses = np.asarray(eqx.filter_jit(lambda m, k: sampled.draw(k, count).evaluate(m))(model, key))
    return float(losses.mean()), float(losses.std() / count**0.5)


# Compiled as a whole: operation by operation, each would be compiled by itself.
sample = eqx.filter_jit(lambda task, key: task.sample(key, 5))
predict = eqx.filter_jit(lambda models, drawn: [model.predict(drawn) for model in models])
factored = eqx.filter_jit(
    lambda model, key, *turns: Attention(model.circuits.factored(key, *turns))
)
losses_of = eqx.filter_jit(lambda pairs: [risk(model) for risk, model in pairs])


def test_all_forms_of_decomposable_heads_predict_alike():
    full = factored(HEADS, jr.key(1))
    each = np.repeat(np.asarray(OMEGA), [3, 4], axis=1)
    models = (
        HEADS,
        Attention(BalancedSpectral.of(OMEGA, MU, SETS)),
        full,
        full.embed(),
        Attention(Diagonal(each, jnp.asarray(MU), 7)),
    )
    wanted, *others = predict(models, sample(TASK, jr.key(0)))
    assert len(others) == 4
    for found in others:
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_singular_values_and_imbalances_are_those_asked_for():
    np.testing.assert_allclose(HEADS.circuits.omega(), OMEGA, rtol=1e-14)
    np.testing.assert_allclose(HEADS.circuits.mu(), MU, rtol=1e-14)
    k, q, o, v = map(np.asarray, HEADS.circuits.factors())
    np.testing.assert_allclose(k**2 - q**2, np.full((2, 2), -0.1), rtol=1e-12)
    np.testing.assert_allclose(o**2 - v**2, np.full((2, 2), 0.3), rtol=1e-12)
    balanced = Attention(BalancedSpectral.of(OMEGA, MU, SETS))
    np.testing.assert_allclose(balanced.circuits.omega(), OMEGA, rtol=1e-14)
    np.testing.assert_allclose(balanced.circuits.mu(), MU, rtol=1e-14)
    full = factored(HEADS, jr.key(0))
    gram = lambda factor: np.einsum("hea,heb->hab", factor, factor)
    difference = gram(full.circuits.K) - gram(full.circuits.Q)
    np.testing.assert_allclose(difference, np.broadcast_to(-0.1 * np.eye(7), (2, 7, 7)), atol=1e-14)


def test_rotated_factors_predict_rotated_labels_from_rotated_inputs():
    turn, mix = (np.asarray(rotation(*each)) for each in ((7, 0), (2, 1)))
    plain = jax.tree.map(np.asarray, sample(TASK, jr.key(0)))
    turned = eqx.tree_at(
        lambda s: (s.x, s.x_query, s.y),
        plain,
        (plain.x @ turn.T, plain.x_query @ turn.T, plain.y @ mix.T),
    )
    (wanted,) = predict([HEADS], plain)
    (found,) = predict([factored(HEADS, jr.key(1), jnp.asarray(turn), jnp.asarray(mix))], turned)
    np.testing.assert_allclose(found, np.asarray(wanted) @ mix.T, rtol=1e-11)


def test_random_starts_lie_in_the_stated_range_and_distinct_ones_where_they_should():
    # One head is ahead on each task, whatever their numbers are.
    ahead = {3: [[0.01, 0.008], [0.008, 0.01], [0.008, 0.008]], 1: [[0.01, 0.01]]}

    @jax.jit
    def starts(key):
        drawn = Attention.balanced(key, SETS, 500, omega=0.02, mu=0.3, spread=0.4)
        factors = Attention.spectral(key, SETS, 500, 0.02, 0.3, 0.4, value_imbalance=0.1)
        distinct = [
            (kind.init(key, SETS, heads, scheme="distinct").omega(), np.asarray(rows))
            for heads, rows in ahead.items()
            for kind in (BalancedSpectral, Spectral)
        ]
        weights = drawn.circuits
        return weights.omega(), weights.mu(), factors, factors.circuits.omega(), distinct

    omega, mu, factors, of_factors, distinct = starts(jr.key(0))
    omega = np.asarray(omega)
    assert 0.012 < omega.min() < 0.0121 and 0.0199 < omega.max() < 0.02
    np.testing.assert_allclose(mu, np.full((500, 2), 0.3), rtol=1e-14)
    assert len(distinct) == 4
    for found, rows in distinct:
        np.testing.assert_allclose(found, rows, rtol=1e-14)
    np.testing.assert_allclose(of_factors, omega, rtol=1e-14)
    difference = np.asarray(factors.circuits.O) ** 2 - np.asarray(factors.circuits.V) ** 2
    np.testing.assert_allclose(difference, np.full((500, 2), 0.1), rtol=1e-12)


def test_closed_form_is_one_number_in_all_forms_and_by_theory():
    spectral = risk(TASK, HEADS, "large_context")
    full = factored(HEADS, jr.key(1))
    general = risk(TASK, full, "large_context")
    assert isinstance(spectral, SpectralRisk) and isinstance(general, LargeContextRisk)
    value, *others, losses = losses_of(
        [(spectral, HEADS), (general, full), (general, HEADS), (spectral.losses, HEADS)]
    )
    assert float(value) == pytest.approx(1.0862, abs=1e-4)
    np.testing.assert_allclose(others, [value, value], rtol=1e-13)
    theory = multitask.loss(TASK, np.asarray(OMEGA), np.asarray(MU))
    np.testing.assert_allclose(losses, theory, rtol=1e-13)


def test_closed_form_of_rotated_tasks_is_that_of_plain_ones():
    turn, mix = rotation(7, 0), rotation(2, 1)
    turned = MultiTaskRegression(
        SETS, context=20, noise=0.2, signal=[0.5, 0.3], noisy_query=False,
        input_rotation=turn, output_rotation=mix,
    )  # fmt: skip
    model = factored(HEADS, jr.key(1), turn, mix)
    value, plain = losses_of(
        [(risk(turned, model, "large_context"), model), (risk(TASK, HEADS, "large_context"), HEADS)]
    )
    assert float(value) == pytest.approx(float(plain), rel=1e-12)


@pytest.mark.slow
def test_closed_form_holds_for_full_matrices_in_long_contexts():
    # Weights so small that what the closed form neglects in its 1/N term is 2 % of that term.
    task = LinearRegression(covariance=[[1.0, 0.3], [0.3, 0.6]], context=200, noise=0.3)
    options = {"activation": "softmax", "self_attention": False}
    drawn = Attention.merged(jr.key(2), 2, 2, 1.0)
    weights = 4 * np.asarray(drawn.circuits.v), 0.15 * np.asarray(drawn.circuits.U)
    model = Attention(Merged.of(*map(jnp.asarray, weights)), **options)
    (closed,) = map(float, losses_of([(risk(task, model, "large_context"), model)]))
    mean, error = sampled_mean(task, model, jr.key(3), 20_000)
    assert abs(closed - mean) < 4 * error + 0.02 * closed / 200


@pytest.mark.slow
def test_exact_risk_has_its_reference_value_and_says_how_right_it_is():
    exact = risk(TASK, HEADS, "exact", digits=5)
    assert isinstance(exact, ExactMultiRisk)
    both = jax.jit(lambda m: (exact.losses(m), exact.with_error(m)))
    losses, (value, error) = jax.tree.map(np.asarray, both(HEADS))
    np.testing.assert_allclose(losses, [0.5327687, 0.6962013], atol=2e-7)
    assert float(value) == pytest.approx(1.22896999, abs=3e-8)
    assert abs(losses.sum() - float(value)) <= float(error) < 1e-6


@pytest.mark.slow
def test_exact_risk_of_one_task_is_that_of_the_single_task_quadrature():
    # Another engine, with grids and identities of its own.
    task = MultiTaskRegression([range(5)], context=30, noise=0.1, signal=0.2)
    omega, mu = np.array([[0.5], [-0.3], [0.2]]), np.array([[0.8], [-0.9], [0.3]])
    model = spectral_heads(omega, mu, task.coordinates)
    single = Attention(Diagonal(omega[:, 0], mu[:, 0], 5))
    wanted, found = losses_of(
        [
            (risk(isotropic(5, 30, 0.1), single, "exact"), single),
            (risk(task, model, "exact", digits=5), model),
        ]
    )
    assert float(found) == pytest.approx(float(wanted), abs=1e-7)


UNLIKE = MultiTaskRegression(
    [(0, 1), (2, 3, 4, 5), (6,)], context=12, noise=[0.3, 0.0, 0.1], signal=[0.5, 0.3, 1.0]
)


def unlike_heads() -> Attention:
    omega = np.array([[0.7, 0.2, -0.3], [-0.4, 0.5, 0.3], [0.1, -0.3, 0.9]])
    mu = np.array([[0.9, 0.3, -0.2], [-0.4, 0.8, 0.3], [0.2, -0.3, 0.6]])
    return spectral_heads(omega, mu, UNLIKE.coordinates)


@pytest.mark.slow
def test_exact_risk_of_unlike_tasks_is_the_mean_over_random_contexts():
    model = unlike_heads()
    # Three digits are more than the samples have.
    value = eqx.filter_jit(risk(UNLIKE, model, "exact", digits=3))(model)
    mean, spread = sampled_mean(UNLIKE, model, jr.key(0), 60_000)
    assert spread < 0.01
    assert abs(float(value) - mean) < 4 * spread


@pytest.mark.slow
def test_exact_risk_has_the_slope_of_its_differences():
    exact, rng = risk(TASK, HEADS, "exact", digits=4), np.random.default_rng(0)
    value_and_slope = eqx.filter_jit(exact.value_and_gradient)
    slope = value_and_slope(HEADS)[1]
    # Along one way that moves every weight by an amount of its own.
    way = jax.tree.map(lambda weight: rng.normal(size=weight.shape), HEADS)
    moved = lambda size: jax.tree.map(lambda weight, step: weight + size * step, HEADS, way)
    value = lambda size: float(value_and_slope(moved(size))[0])
    difference = (value(1e-4) - value(-1e-4)) / 2e-4
    along = sum(np.sum(a * b) for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(way)))
    # Grids follow the weights without being part of the slope: errors of the grid remain.
    assert along == pytest.approx(difference, rel=1e-4)


@pytest.mark.slow
def test_exact_risk_of_many_tasks_is_the_sum_of_those_that_heads_attend_to():
    # Heads that leave two of four tasks alone: points spread over four norms against the product
    # rule over two.
    sets = [(0, 1, 2), (3, 4, 5, 6), (7, 8), (9,)]
    four = MultiTaskRegression(sets, context=20, noise=0.2, signal=[0.5, 0.3, 0.4, 0.9])
    wide = lambda rows: np.pad(np.asarray(rows), ((0, 0), (0, 2)))
    model = spectral_heads(wide(OMEGA), wide(MU), sets)
    losses = eqx.filter_jit(exact_multi_risk(four, model, digits=4).losses)(model)
    # 512 points whose weights make polynomials of degree 4 in the squares exact: what is left is
    # of the fifth order in fluctuations of ω²r², about 0.3.
    np.testing.assert_allclose(losses[:2], [0.5327687 + 0.2, 0.6962013 + 0.2], atol=5e-5)
    np.testing.assert_allclose(losses[2:], [0.8 + 0.2, 0.9 + 0.2], rtol=1e-10)


def test_exact_risk_exists_where_it_holds_alone():
    assert "exact" in available_kinds(TASK, HEADS)
    other = MultiTaskRegression([(0, 1), (2, 3, 4, 5, 6)], context=20)
    turned = MultiTaskRegression(SETS, context=20, input_rotation=rotation(7, 0))
    for task in (other, turned):
        kinds = available_kinds(task, HEADS)
        assert "exact" not in kinds and "large_context" in kinds
    model = factored(HEADS, jr.key(0))
    assert "exact" not in available_kinds(TASK, model)
    assert "large_context" not in available_kinds(TASK, model.embed())


def test_length_of_a_risk_can_be_any_number():
    closed = spectral_risk(TASK, HEADS)
    assert closed is not None
    for found in (closed, exact_multi_risk(TASK, HEADS)):
        longer = found.at_length(20.0)
        assert float(longer.task.lengths[0]) == 20.0
        with pytest.raises(ValueError, match="`length` = 0.5: must be at least 1"):
            longer.at_length(0.5)


THIRDS = (range(10), range(10, 20), range(20, 30))
PAPER = MultiTaskRegression(THIRDS, context=100, noise=0.0, signal=1.0)


THREE = (range(3), range(3, 6), range(6, 9))


@pytest.mark.slow
def test_singular_values_follow_the_full_factors_moment_by_moment():
    task = MultiTaskRegression(THREE, context=100, noise=0.0, signal=1.0)
    start = Attention.balanced(jr.key(0), THREE, 3, scheme="distinct")
    full = factored(start, jr.key(3))
    times = np.linspace(0.0, 60.0, 31)
    options = {"end": 60.0, "save": SaveAtTimes(times), "progress": False}
    small = gradient_flow(start, risk(task, start, "large_context"), **options)
    large = gradient_flow(full, risk(task, full, "large_context"), atol=1e-14, **options)
    each = lambda function: eqx.filter_jit(eqx.filter_vmap(function))
    omega, mu = map(np.asarray, each(lambda m: (m.circuits.omega(), m.circuits.mu()))(small.models))
    keys, values = each(lambda m: (m.kq(), m.ov()))(large.models)
    diagonal = np.diagonal(np.asarray(keys)[:, :, :9], axis1=2, axis2=3)
    blocks = diagonal.reshape(*diagonal.shape[:2], 3, 3)
    np.testing.assert_allclose(blocks, np.broadcast_to(omega[..., None], blocks.shape), rtol=1e-6)
    read = np.diagonal(np.asarray(values)[..., 9:], axis1=2, axis2=3)
    np.testing.assert_allclose(read, mu, rtol=1e-6)
    # And the independent integration by theory, in other coordinates.
    flow = multitask.spectral_flow(task, times, omega[0], mu[0], 9)
    np.testing.assert_allclose(omega, flow.omega, rtol=1e-6)
    np.testing.assert_allclose(mu, flow.mu, rtol=1e-6)


@pytest.mark.slow
def test_imbalance_lets_signs_change_and_balance_does_not():
    # The limit of balanced flow wants negative weights on labels of other tasks.
    omega, mu = np.where(np.eye(3) > 0, 0.01, 0.008), np.full((3, 3), 0.2)
    options = {"end": 200.0, "save": SaveAtTimes((0.0, 100.0, 200.0)), "progress": False}
    balanced = Attention(BalancedSpectral.of(omega, mu, THIRDS))
    tilted = spectral_heads(omega, mu, THIRDS, value_imbalance=4e-4)
    ends = []
    for model in (balanced, tilted):
        run = gradient_flow(model, risk(PAPER, model, "large_context"), **options)
        ends.append((run.losses[-1], run.final.circuits.mu()))
    assert ends[0][0] > multitask.gradient_flow_limit(PAPER).loss
    assert np.all(np.asarray(ends[0][1]) >= 0)
    assert ends[1][0] < 4.2 and np.min(np.asarray(ends[1][1])) < -0.1
    _, _, o, v = map(np.asarray, run.final.circuits.factors())  # the last run
    np.testing.assert_allclose(o**2 - v**2, np.full((3, 3), 4e-4), rtol=1e-5)


def test_decomposable_models_survive_being_saved(tmp_path):
    signed = Attention(BalancedSpectral.of(OMEGA, MU, SETS))
    for number, model in enumerate((HEADS, signed, factored(HEADS, jr.key(0)))):
        save_model(model, tmp_path / f"{number}.safetensors")
        found = load_model(tmp_path / f"{number}.safetensors")
        assert type(found.circuits) is type(model.circuits)
        # Equal and hashable settings: the same compiled programs serve both.
        assert eqx.tree_equal(found, model)
        eqx.filter_jit(lambda m: m.ov())(found)


@pytest.mark.parametrize(
    "build, said",
    [
        (lambda: Attention(Spectral.of([[0.1]], MU, SETS)), r"`omega` has shape \(1, 1\)"),
        (
            lambda: Attention(Spectral.of(OMEGA, MU, [(0, 1), (1, 2)])),
            "must be sets that do not ov",
        ),
        (
            lambda: Attention(Spectral.of(OMEGA, MU, SETS, dim=6)),
            "`dim` = 6: must be a whole number",
        ),
        (lambda: Attention(Spectral.of(OMEGA, MU, SETS, width=0)), "`width` = 0: must be a whole"),
        (lambda: Attention(Spectral.of(OMEGA, MU, [(), (1,)])), "each with at least one"),
        (lambda: Attention.balanced(jr.key(0), SETS, 0), "`heads` = 0: must be a whole"),
        (lambda: Attention.balanced(jr.key(0), SETS, 2, omega=-1.0), "`omega` = -1.0: must be"),
        (
            lambda: Spectral.of(OMEGA, MU, SETS, width=6).factored(jr.key(0)),
            "`width` = 6: must be at least 7",
        ),
        (
            lambda: risk(TASK, HEADS, "exact", digits=2),
            "`digits` = 2: must be a whole number from 3 to 10",
        ),
    ],
)
def test_impossible_heads_are_refused_in_one_sentence(build, said, unchecked):
    with pytest.raises(ValueError, match=said):
        build()


def test_label_blind_factors_start_as_those_over_whole_tokens_do():
    blind = Attention.factored(
        jr.key(0), 7, 3, scheme="small_identity", scale=0.1, labels=2, blind=True
    )
    np.testing.assert_allclose(blind.ov()[:, :, 7:], np.broadcast_to(0.01 * np.eye(2), (3, 2, 2)))
    assert blind.blind and blind.circuits.K.shape == (3, 9, 7)
