"""The fused pass: loss and gradient of sampled softmax attention without storing a sequence."""

import math
from functools import cache
from importlib.util import find_spec

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from iclflow.flows import SaveAtTimes, adam_rule, descend, descend_ensemble, init_many
from iclflow.models import Attention, Diagonal
from iclflow.risks import IntegratedRisk, SampledRisk
from iclflow.risks.fused import (
    FusedBatchRisk,
    Spec,
    can_be_fused,
    compiles_soon,
    loss_and_slopes,
    words_of,
)
from iclflow.risks.fused import _pass as passes
from iclflow.risks.fused._gradient import gather, xla_lanes
from iclflow.risks.fused._pallas import kernel_sums
from iclflow.risks.fused._philox import MULTIPLIERS, WEYL, _product, four_normals, philox
from iclflow.tasks import LinearRegression, MultiTaskRegression, isotropic

pytestmark = pytest.mark.skipif(
    jax.default_backend() == "cpu" and not find_spec("numba"), reason="needs `iclflow[fast]`"
)
KEY = jr.key(3)
SOFTMAX = dict(activation="softmax", self_attention=False)
# Rounding of float32 in sums of some hundred terms: measured 1e-6 at most.
ROUNDING = 1e-5


def normals(key, sequences: int, blocks: int) -> np.ndarray:
    """(blocks, 4, sequences) normals."""
    lane = jnp.arange(sequences, dtype=jnp.uint32)
    place = jnp.arange(blocks, dtype=jnp.uint32)[:, None]
    words = tuple(jnp.asarray(key, jnp.uint32))
    return np.asarray(jax.jit(lambda: jnp.stack(four_normals(philox(words, lane, place)), 1))())


# ---- random numbers


def test_words_are_those_of_philox():
    zero = jnp.uint32(0)
    words = [hex(int(word)) for word in philox((zero, zero), zero, zero)]
    assert words == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]  # as published


@pytest.mark.parametrize("counter", [(1, 2, 0), (2**32 - 1, 7, 1), (123456789, 2**31, 0)])
def test_words_equal_whole_number_arithmetic(counter):
    key = [0x12345678, 0x9ABCDEF0]
    sequence, block, purpose = counter
    x, k = [sequence, block, purpose, 0], list(key)
    for _ in range(10):
        first, second = x[0] * MULTIPLIERS[0], x[2] * MULTIPLIERS[1]
        low, high = lambda n: n & 0xFFFFFFFF, lambda n: n >> 32
        x = [high(second) ^ x[1] ^ k[0], low(second), high(first) ^ x[3] ^ k[1], low(first)]
        k = [low(k[0] + WEYL[0]), low(k[1] + WEYL[1])]
    found = philox(tuple(map(jnp.uint32, key)), jnp.uint32(sequence), jnp.uint32(block), purpose)
    assert [int(word) for word in found] == x


def test_products_are_the_same_without_words_of_64_bits():
    words = np.random.default_rng(0).integers(0, 2**32, 1000).astype(np.uint32)
    wide = _product(jnp.asarray(words), MULTIPLIERS[0])
    with jax.enable_x64(False):
        halves = _product(jnp.asarray(words), MULTIPLIERS[0])
    assert all(np.array_equal(one, other) for one, other in zip(wide, halves))


def test_normals_have_the_moments_and_the_law_of_normals():
    sample = normals((5, 6), 1024, 512).ravel().astype(float)
    count, powers = len(sample), np.ones_like(sample)
    for power in range(1, 9):
        powers *= sample
        exact = 0.0 if power % 2 else math.prod(range(1, power, 2))
        square = math.prod(range(1, 2 * power, 2))
        error = math.sqrt((square - exact**2) / count)
        assert abs(np.mean(powers) - exact) < 4.5 * error, power
    assert stats.kstest(sample, "norm").pvalue > 1e-3
    beyond, expected = np.sum(np.abs(sample) > 4), 2 * stats.norm.sf(4) * count
    assert abs(beyond - expected) < 4.5 * math.sqrt(expected)


def test_normals_of_neighbours_are_independent():
    found = normals((7, 8), 512, 256).astype(float)
    other = normals((7, 9), 512, 256).astype(float)
    pairs = {
        "sequences": (found[..., 1:], found[..., :-1]),
        "blocks": (found[1:], found[:-1]),
        "words of a pair": (found[:, 0], found[:, 1]),
        "words of two pairs": (found[:, 0], found[:, 2]),
        "keys": (found, other),
    }
    for name, (one, two) in pairs.items():
        for function in (lambda x: x, lambda x: x**2 - 1, np.abs):
            correlation = np.corrcoef(function(one).ravel(), function(two).ravel())[0, 1]
            assert abs(correlation) < 4.5 / math.sqrt(one.size), name


# ---- loss and gradient


def made(law, words, count: int, drawn: bool):
    """The batch of these words, in one program."""
    return eqx.filter_jit(lambda law, words: law.batch(words, count, drawn))(law, words)


@cache
def white(dim: int, drawn: bool, count: int):
    """A law of white inputs and a batch of it, which all numbers of heads share."""
    risk = (SampledRisk if drawn else IntegratedRisk)(isotropic(dim, 9), count, precision="float32")
    return risk.white, made(risk.white, words_of(KEY), count, drawn)


@eqx.filter_jit
def pass_of_this_device(law, spec, words, kq, ov):
    return loss_and_slopes(spec, law.numbers(words, kq, ov, spec.drawn))


def by_hand(law, batch, kq, ov, drawn: bool, count: int):
    """Loss and slopes of white circuits on stored white tokens, in float64 and by matrices."""
    lanes = batch.lanes
    tokens, query = np.asarray(lanes.tokens, float), np.asarray(lanes.query, float)
    scores = np.einsum("nap,had,dp->hnp", tokens, kq, query)
    if lanes.keep is not None:
        scores = np.where(lanes.keep, scores, -np.inf)
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    m = np.einsum("hnp,nap->hap", p, tokens)
    if drawn:
        error = np.einsum("hia,hap->ip", ov, m) - np.asarray(batch.label, float)
        loss, of_ov = np.sum(error**2, 0), 2 * np.einsum("ip,hap->hia", error, m)
        of_p = 2 * np.einsum("ip,hia,nap->hnp", error, ov, tokens)
    else:  # one label, prior cI, no mean
        prior, noise = float(law.covariance[0, 0]), float(law.moments.noise[0])
        v = ov[:, 0, -1]
        r, shares = np.einsum("h,hdp->dp", v, m) - query, np.einsum("h,hnp->np", v, p)
        loss = prior * np.sum(r**2, 0) + noise * np.sum(shares**2, 0) + noise
        of_v = 2 * prior * np.einsum("hdp,dp->h", m, r) + 2 * noise * np.einsum(
            "hnp,np->h", p, shares
        )
        of_ov = np.concatenate([np.zeros((len(v), 1, tokens.shape[1])), of_v[:, None, None]], 2)
        of_p = 2 * prior * np.einsum("h,ndp,dp->hnp", v, tokens, r)
        of_p += 2 * noise * v[:, None, None] * shares
    of_scores = p * (of_p - np.sum(p * of_p, 1, keepdims=True))
    of_kq = np.einsum("hnp,nap,dp->had", of_scores, tokens, query)
    return np.mean(loss), of_kq / count, of_ov / count


def flat(parts) -> np.ndarray:
    return np.concatenate([np.ravel(part) for part in parts])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("heads", [1, 2, 4, 8])
@pytest.mark.parametrize("dim", [1, 2, 5, 16])
@pytest.mark.parametrize("drawn", [True, False])
def test_the_pass_of_this_device_equals_matrices_in_float64(dim, heads, drawn):
    batch, rng = 70, np.random.default_rng(dim + heads)
    law, stored = white(dim, drawn, batch)
    kq = rng.normal(size=(heads, dim + drawn, dim)).astype(np.float32) / dim**0.5
    ov = rng.normal(size=(heads, 1, dim + 1)).astype(np.float32)
    if not drawn:
        ov[..., :dim] = 0
    model = Attention(Diagonal(np.zeros(heads), np.zeros(heads), dim))  # its size counts
    if not can_be_fused(law, model, drawn, batch):
        pytest.skip("a kernel of this size is not compiled")
    found = pass_of_this_device(law, law.spec(model, drawn, batch), words_of(KEY), kq, ov)
    loss, of_kq, of_ov = by_hand(law, stored, kq.astype(float), ov.astype(float), drawn, batch)
    loss -= 0 if drawn else float(law.moments.query_noise[0])
    assert float(found[0]) == pytest.approx(loss, rel=ROUNDING)
    for part, expected in zip(found[1:], (of_kq, of_ov)):
        np.testing.assert_allclose(part, expected, atol=ROUNDING * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "heads", "drawn", "held"), [
    (2, 2, True, 140), (2, 2, False, 140), (2, 2, True, 0), (2, 2, False, 0),
])  # fmt: skip
def test_the_kernel_of_a_gpu_finds_what_the_pass_of_this_device_finds(
    monkeypatch, dim, heads, drawn, held
):
    monkeypatch.setattr(passes, "_MOST_HELD", held)  # in one pass, or in two
    task, batch = LinearRegression(np.ones(dim), [3, 5], noise=0.3), 70
    risk = (SampledRisk if drawn else IntegratedRisk)(task, batch, precision="float32")
    model = Attention.merged(KEY, dim, heads, 0.7, **SOFTMAX)
    law, spec = risk.white, risk.white.spec(model, drawn, batch)

    @jax.jit
    def both(model, words):
        numbers = law.numbers(words, *law.circuits(model, drawn), drawn)
        return kernel_sums(spec, numbers, interpret=True), loss_and_slopes(spec, numbers)

    found, passed = both(model, words_of(KEY))
    expected = flat(passed)
    np.testing.assert_allclose(flat(found), expected, atol=ROUNDING * np.abs(expected).max())


@pytest.mark.slow
def test_the_pass_in_xla_finds_what_the_pass_of_this_device_finds():
    """Several labels, a full prior with a mean, values that read inputs: the form for which sums
    are left to products of matrices."""
    risk = IntegratedRisk(TWO_TASKS, 70, "float32")
    model = Attention.factored(KEY, 3, 2, labels=2, blind=True)
    law, spec = risk.white, risk.white.spec(model, False, 70)

    @jax.jit
    def in_xla(model, words):
        numbers = law.numbers(words, *law.circuits(model, False), False)
        numbers = numbers._replace(mean=numbers.mean + 0.3)
        return gather(spec, xla_lanes(spec, numbers)), numbers

    found, numbers = in_xla(model, words_of(KEY))
    expected = flat(loss_and_slopes(spec, numbers))  # outside of a compiled program, too
    np.testing.assert_allclose(flat(found), expected, atol=ROUNDING * np.abs(expected).max())


def turned(size: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(0).normal(size=(size, size)))[0]


TILTED = turned(3) @ np.diag([1.0, 0.5, 0.2]) @ turned(3).T
ANISOTROPIC = LinearRegression(
    covariance=(TILTED + TILTED.T) / 2,
    context=[9, 13],
    noise=0.3,
    prior_mean=[0.3, -0.2, 0.5],
    prior_covariance=(TILTED + TILTED.T),
)
NOISELESS_QUERY = LinearRegression([1.0, 0.5, 0.2], 12, noise=0.2, noisy_query=False)
TWO_TASKS = MultiTaskRegression(
    [[0, 1], [1, 2]], 3, 11, noise=[0.1, 0.3], input_rotation=turned(3), output_rotation=turned(2)
)


@eqx.filter_jit
def fused_and_stored(risk, model):
    """A batch, and its loss and gradient: by the pass, and from stored sequences."""
    batch = risk.draw_for(KEY, model)
    stored = eqx.filter_value_and_grad(lambda model: jnp.mean(batch.losses(model)))
    return batch, batch.value_and_gradient(model), stored(model)


# Made when they are needed: every process of the tests reads this file.
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("make", [
    lambda: (SampledRisk(ANISOTROPIC, 100, False, "float32"), Attention.factored(KEY, 3, 2)),
    lambda: (SampledRisk(ANISOTROPIC, 100, False, "float32"),
             Attention.merged(KEY, 3, 3, 0.3, blind=False, **SOFTMAX)),
    lambda: (IntegratedRisk(ANISOTROPIC, 100, "float32"),
             Attention.merged(KEY, 3, 2, 0.3, **SOFTMAX)),
    lambda: (IntegratedRisk(NOISELESS_QUERY, 100, "float32"),
             Attention.diagonal(KEY, 3, 4, 0.5, per_coordinate=True)),
    lambda: (SampledRisk(TWO_TASKS, 100, precision="float32"),
             Attention.merged(KEY, 3, 2, 0.3, labels=2, blind=False, **SOFTMAX)),
    lambda: (IntegratedRisk(TWO_TASKS, 100, "float32"),
             Attention.factored(KEY, 3, 2, labels=2, blind=True)),
])  # fmt: skip
def test_every_kind_of_task_and_model_has_the_gradient_of_its_stored_batch(make):
    batch, (loss, gradient), (expected_loss, expected) = fused_and_stored(*make())
    assert isinstance(batch, FusedBatchRisk)
    assert float(loss) == pytest.approx(float(expected_loss), rel=ROUNDING)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, atol=ROUNDING * np.abs(other).max())


@pytest.mark.parametrize("risk", [SampledRisk, IntegratedRisk])
def test_losses_lie_within_four_standard_errors_of_the_exact_loss(risk):
    task = isotropic(5, 40, 0.1)
    model = Attention(Diagonal([0.6, -0.3], [1.0, -2.0], 5))
    exact = 0.36389311  # a reference value of the exact risk, in `test_softmax_exact`
    fused = risk(task, 512, precision="float32")
    losses = jax.jit(lambda keys: jax.vmap(lambda key: fused(model, key))(keys))(jr.split(KEY, 400))
    losses = np.asarray(losses)
    error = losses.std(ddof=1) / len(losses) ** 0.5
    assert abs(losses.mean() - exact) < 4 * error
    assert error < 0.01 * exact  # so that the comparison says something


def test_scores_of_any_size_are_exponentiated_safely():
    risk = SampledRisk(isotropic(3, 9), 40, precision="float32")
    model = Attention.merged(KEY, 3, 2, 60.0, blind=False, **SOFTMAX)
    _, (loss, gradient), (expected, _) = fused_and_stored(risk, model)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    assert float(loss) == pytest.approx(float(expected), rel=1e-4)


def test_second_derivatives_are_refused_with_a_way_out_which_works():
    model = Attention.diagonal(KEY, 3, 2, 0.3)

    def hessian(precision):
        risk = SampledRisk(isotropic(3, 9), 40, precision=precision)
        at = lambda omega: eqx.tree_at(lambda model: model.circuits.omega, model, omega)
        omega = model.circuits.omega
        return jax.jit(jax.jacrev(jax.jacrev(lambda omega: risk(at(omega), KEY))))(omega)

    with pytest.raises(TypeError, match="Choose 'float64'"):
        hessian("float32")
    assert np.all(np.isfinite(hessian("float64")))


# ---- the same bits


def test_a_model_has_the_same_bits_alone_and_among_others():
    risk = SampledRisk(isotropic(4, 11), 100, precision="float32")
    models = init_many(Attention.factored, jr.split(KEY, 3), dim=4, heads=2)
    one = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[1]), models)
    law, spec = risk.white, risk.white.spec(one, True, 100)
    made = jax.jit(jax.vmap(lambda key, model: (words_of(key), *law.circuits(model, True))))
    arguments = [np.asarray(part) for part in made(jr.split(KEY, 3), models)]
    run = lambda words, kq, ov: loss_and_slopes(spec, law.numbers(words, kq, ov, True))
    many = jax.jit(jax.vmap(run))(*arguments)
    alone = jax.jit(run)(*(part[1] for part in arguments))
    assert np.array_equal(flat(np.asarray(part)[1] for part in many), flat(alone))


def test_a_larger_batch_begins_with_the_sequences_of_a_smaller_one():
    law, words = SampledRisk(ANISOTROPIC, 50, precision="float32").white, words_of(KEY)
    small, large = made(law, words, 50, True), made(law, words, 170, True)
    assert np.array_equal(small.lanes.tokens, large.lanes.tokens[..., :50])
    assert np.array_equal(small.label, large.label[..., :50])


def test_training_does_not_depend_on_where_it_is_looked_at():
    risk = SampledRisk(isotropic(3, 9), 64, precision="float32")
    model = Attention.factored(KEY, 3, 2)
    run = lambda save: descend(model, risk, adam_rule(1e-2), 60, key=KEY, save=save)
    often, once = run(SaveAtTimes(tuple(range(1, 61, 7)))), run(SaveAtTimes((60,)))
    for one, other in zip(jax.tree.leaves(often.final), jax.tree.leaves(once.final)):
        np.testing.assert_allclose(one, other, rtol=1e-5)  # rounded in other programs


@pytest.mark.slow
def test_an_ensemble_trains_as_its_members_do():
    risk = IntegratedRisk(isotropic(3, 9), 64, "float32")
    models = [Attention.merged(key, 3, 2, 0.3, **SOFTMAX) for key in jr.split(KEY, 3)]
    keys = jr.split(jr.key(1), 3)
    rule, save = adam_rule(1e-2), SaveAtTimes((40,))
    together = descend_ensemble(models, risk, rule, 40, keys=keys, save=save)
    alone = descend(models[2], risk, rule, 40, key=keys[2], save=save)
    np.testing.assert_allclose(
        together[2].final.circuits.U, alone.final.circuits.U, rtol=1e-4, atol=1e-6
    )


# ---- where there is no pass


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("options", "make"), [
    ({}, lambda: Attention.factored(KEY, 3, 2)),  # float64
    ({"posterior_target": True, "precision": "float32"}, lambda: Attention.factored(KEY, 3, 2)),
    ({"precision": "float32"}, lambda: Attention.merged(KEY, 3, 2)),  # linear
    ({"precision": "float32"},
     lambda: Attention.merged(KEY, 3, 2, activation="softmax", self_attention=True)),
])  # fmt: skip
def test_what_has_no_pass_is_stored(options, make):
    risk, model = SampledRisk(isotropic(3, 9), 20, **options), make()
    # Which kind of batch it is shows without drawing one.
    assert not isinstance(eqx.filter_eval_shape(risk.draw_for, KEY, model), FusedBatchRisk)
    assert np.isfinite(eqx.filter_jit(risk)(model, KEY))


def test_kernels_that_would_compile_for_minutes_are_not_chosen():
    spec = lambda dim, heads, drawn: Spec(dim, heads, 1, drawn, drawn, True, (40,), 256)
    for drawn in (True, False):
        for sizes in ((5, 2), (5, 8), (20, 2), (16, 4), (34, 2)):  # up to two minutes on an H200
            assert compiles_soon(spec(*sizes, drawn)), sizes
        for sizes in ((16, 8), (40, 2), (12, 8), (200, 2)):
            assert not compiles_soon(spec(*sizes, drawn)), sizes
        # What is too large stays so when it grows.
        for heads in (2, 3, 4, 6, 8, 12, 16):
            chosen = [compiles_soon(spec(dim, heads, drawn)) for dim in range(1, 60)]
            assert chosen == sorted(chosen, reverse=True), heads


@pytest.mark.parametrize("batch", [2.5, 1, "20"])
def test_a_batch_is_a_whole_number(batch, unchecked):
    sentence = f"`batch` = {batch!r}: must be a whole number from 2 up"
    with pytest.raises(ValueError, match=sentence):
        SampledRisk(TWO_TASKS, batch)
    assert type(SampledRisk(TWO_TASKS, np.int64(20)).batch) is int


def test_a_model_of_another_size_is_refused_and_never_read_beyond_its_end():
    risk = SampledRisk(TWO_TASKS, 64, precision="float32")
    model = Attention.merged(KEY, 3, 2, 0.3, blind=False, **SOFTMAX)  # of one label
    assert not isinstance(risk.draw_for(KEY, model), FusedBatchRisk)
    with pytest.raises((TypeError, ValueError)):
        risk(model, KEY)
