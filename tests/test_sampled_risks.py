"""Sampled risks of softmax attention: what is drawn, what is integrated out, how noisy it is."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from helpers import random_task
from iclflow.flows._descent_program import Blocks, draw_ahead
from iclflow.models import AbstractCircuits, Attention, Diagonal, Merged
from iclflow.risks import (
    AbstractBatchRisk,
    AbstractSampledRisk,
    IntegratedRisk,
    QuerySampledRisk,
    Resolution,
    SampledRisk,
    dataset_risk,
    exact_bilinear_risk,
    risk,
    sampled_risk,
)
from iclflow.risks._draws import normals
from iclflow.risks._query_quadrature import head_moments, pair_moments
from iclflow.tasks import (
    LinearRegression,
    MultiTaskRegression,
    Sequences,
    SparseRegression,
    isotropic,
)

DIM, HEADS = 3, 2
# The two-head pair, d = 5, L = 40, σ² = 0.1: its risk and gradient by deterministic quadrature.
PAIR_RISK, PAIR_GRADIENT = 0.24324363848, (0.11868424, 0.00436579)


class OwnCircuits(AbstractCircuits):
    """Values read inputs and labels, scores see inputs alone."""

    value: Float[Array, "H I T"]
    key_query: Float[Array, "H D D"]

    @property
    def dim(self):
        return self.key_query.shape[-1]

    @property
    def heads(self):
        return self.value.shape[-3]

    @property
    def labels(self):
        return self.value.shape[-2]

    @property
    def blind(self):
        return True

    def ov(self):
        return self.value

    def kq(self):
        return jnp.pad(self.key_query, ((0, 0), (0, self.labels), (0, 0)))


class Blind(Attention):
    """Attention with such circuits: a model of one's own."""

    @property
    def form(self):
        return "general"


def arrays(seed: int, *shapes):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(0.6 * rng.normal(size=shape)) for shape in shapes]


def blind(**options) -> Blind:
    return Blind(OwnCircuits(*arrays(1, (HEADS, 1, DIM + 1), (HEADS, DIM, DIM))), **options)


def task(**options) -> LinearRegression:
    """Anisotropic inputs, a prior with a mean, contexts of two lengths, noise."""
    settings = {"noise": 0.3, "noisy_query": True, "context_probabilities": [0.3, 0.7]}
    return random_task(np.random.default_rng(0), DIM, [4, 7], **(settings | options))


def pair(**options) -> Attention:
    omega, mu = jnp.asarray([0.13, -0.13]), jnp.asarray([3.45, -3.45])
    return Attention(Diagonal(omega, mu, 5), **options)


def flat(model) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])


# Drawn in one compiled call: operation by operation, each would be compiled by itself.
_drawn = eqx.filter_jit(lambda risk, key, count: risk.draw(key, count))
drawn = lambda risk, seed, count: _drawn(risk, jr.key(seed), count)
# Losses and gradient in one program.
jitted_both = eqx.filter_jit(lambda batch, model: (batch.losses(model), batch.gradient(model)))
jitted_losses = eqx.filter_jit(lambda batch, model: batch.losses(model))
jitted_gradient = eqx.filter_jit(lambda batch, model: batch.gradient(model))
jitted_predict = eqx.filter_jit(lambda model, sequences: model.predict(sequences))
jitted_posterior = eqx.filter_jit(
    lambda law, sequences: (law.bayes_predict(sequences), law.bayes_variance(sequences))
)


# What a batch says, given what was drawn ------------------------------------------------------


MODELS = {
    "full": lambda: Attention(
        Merged(*arrays(2, (HEADS, 1, DIM + 1), (HEADS, DIM + 1, DIM))),
        "softmax",
        self_attention=False,
    ),
    "factored, self-attention": lambda: Attention.factored(
        jr.key(0), DIM, HEADS, self_attention=True
    ),
    "full, linear": lambda: Attention(
        Merged(*arrays(2, (HEADS, 1, DIM + 1), (HEADS, DIM + 1, DIM))), normaliser="tokens"
    ),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("name", "posterior"), [*((name, False) for name in MODELS), ("full", True)]
)
def test_one_pass_equals_the_prediction_of_the_model_and_its_autodiff(name, posterior):
    model, law = MODELS[name](), task()
    batch = drawn(SampledRisk(law, posterior_target=posterior), 3, 16)
    sequences = batch.lanes.sequences(batch.label)
    target, variance = sequences.y_query, 0.0
    if posterior:
        target, variance = jitted_posterior(law, sequences)

    @jax.jit
    def plain(model):
        loss = lambda m: jnp.sum((target - m.predict(sequences)) ** 2 + variance, -1)
        return loss(model), jax.grad(lambda m: jnp.mean(loss(m)))(model)

    losses, gradient = plain(model)
    assert {4.0, 7.0} == set(sequences.length.tolist())  # there is padding to be ignored
    # Rounding of sums of some ten terms; the posterior is found in two different ways.
    found, slopes = jitted_both(batch, model)
    assert found == pytest.approx(np.asarray(losses), rel=1e-10)
    assert flat(slopes) == pytest.approx(flat(gradient), rel=1e-9, abs=1e-12)


def averaged_over_labels(model, law, sequences: Sequences) -> np.ndarray:
    """E(ŷ − y_q)² over all labels for each context: ŷ is affine in the labels, whose mean and
    covariance are known; no formula of the library but `predict` is used."""
    losses = []
    sequences = jax.tree.map(np.asarray, sequences)
    for one in (sequences[i] for i in range(sequences.count)):
        answer = lambda y, one=one: float(
            jitted_predict(model, eqx.tree_at(lambda s: s.y, one, y))[0]
        )
        length = int(one.length)
        base = answer(np.zeros(one.y.shape))
        weights = np.array([answer(row[:, None]) - base for row in np.eye(len(one.y))[:length]])
        x = np.vstack([one.x[:length], one.x_query])
        coefficients = np.append(weights, -1.0)
        mean = base + coefficients @ x @ np.asarray(law.prior_mean)
        noise = np.append(np.full(length, law.noise), law.query_noise)
        covariance = x @ np.asarray(law.prior_covariance) @ x.T + np.diag(noise)
        losses.append(mean**2 + coefficients @ covariance @ coefficients)
    return np.asarray(losses)


@pytest.mark.parametrize(
    "options",
    [{}, {"self_attention": True}, {"activation": "linear", "self_attention": True}],
    ids=["softmax", "self-attention", "linear"],
)
def test_labels_are_averaged_over_exactly(options):
    model, law = blind(**options), task(noisy_query="linear" not in options.values())
    batch = drawn(IntegratedRisk(law), 5, 6)
    unlabelled = jnp.asarray(np.pad(batch.lanes.tokens, ((0, 0), (0, 1), (0, 0))))
    context = eqx.tree_at(lambda lanes: lanes.tokens, batch.lanes, unlabelled)
    expected = averaged_over_labels(model, law, context.sequences(jnp.zeros((1, 6))))
    assert jitted_losses(batch, model) == pytest.approx(expected, rel=1e-11)


def test_the_gradient_is_the_closed_form_of_one_pass():
    """∂L/∂a_h, ∂L/∂μ_h and ∂L/∂u_h in terms of sums over tokens, isotropic case, against the
    gradient that training uses."""
    model, law, count = blind(), isotropic(DIM, 7, 0.3), 16
    batch = drawn(IntegratedRisk(law), 6, count)
    x, q = (np.asarray(a, float) for a in (batch.lanes.tokens, batch.lanes.query))
    value, W = map(np.asarray, (model.circuits.value[:, 0], model.circuits.key_query))
    u, mu = value[:, :-1], value[:, -1]
    scores = np.einsum("ndp,hde,ep->hnp", x, W, q)
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    m = np.einsum("hnp,ndp->hdp", p, x)
    M = np.einsum("hnp,ndp,nep->hdep", p, x, x)
    G = np.einsum("hnp,knp->hkp", p, p)
    n = np.einsum("hnp,knp,ndp->hkdp", p, p, x)
    r, e0 = np.einsum("h,hdp->dp", mu, m) - q, np.einsum("hd,hdp->p", u, m)
    d_mu = 2 / DIM * np.einsum("dp,hdp->hp", r, m) + 0.6 * np.einsum("hkp,k->hp", G, mu)
    d_u = 2 * e0 * m
    bracket = 2 / DIM * np.einsum("hdep,ep->hdp", M, r) + 0.6 * np.einsum("k,hkdp->hdp", mu, n)
    d_a = mu[:, None, None] * (bracket - d_mu[:, None] * m)
    inner = np.einsum("hd,hdp->hp", u, m)
    d_a += 2 * e0 * (np.einsum("hdep,he->hdp", M, u) - inner[:, None] * m)
    gradient = jitted_gradient(batch, model).circuits
    assert gradient.value[:, 0, -1] == pytest.approx(d_mu.mean(1), rel=1e-11)
    assert gradient.value[:, 0, :-1] == pytest.approx(d_u.mean(2), rel=1e-11, abs=1e-13)
    expected = np.einsum("hdp,ep->hde", d_a, q) / count
    assert gradient.key_query == pytest.approx(expected, rel=1e-10, abs=1e-13)


def test_single_precision_sees_the_same_sequences():
    model = MODELS["full"]()
    wide, narrow = (
        drawn(SampledRisk(task(), precision=precision), 7, 16)
        for precision in ("float64", "float32")
    )
    assert narrow.lanes.query.dtype == jnp.float32
    # Rounding of float32 through some hundred operations.
    expected, expected_gradient = jitted_both(wide, model)
    losses, gradient = jitted_both(narrow, model)
    assert losses == pytest.approx(np.asarray(expected), rel=2e-5)
    assert flat(gradient) == pytest.approx(flat(expected_gradient), rel=1e-4, abs=1e-5)


# Means ----------------------------------------------------------------------------------------


def test_normal_numbers_have_the_moments_of_a_normal_law():
    numbers = np.asarray(normals(jr.key(0), (3, 7, 20_000), jnp.float64))
    assert numbers.shape == (3, 7, 20_000) and np.all(np.isfinite(numbers))
    count = numbers.size
    for power, mean, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        # Four standard errors; Var z^k = 1, 2, 15, 96.
        assert abs(np.mean(numbers**power) - mean) < 4 * np.sqrt(spread / count)
    # Words that share their bits would be correlated.
    rows = numbers.reshape(21, -1)
    correlation = np.corrcoef(rows) - np.eye(21)
    assert np.max(np.abs(correlation)) < 5 / np.sqrt(rows.shape[1])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("sampled", "variance", "count"),
    # Variances a sequence: plain .180, with the posterior mean as target half of it, so that half
    # as many sequences have the same error.
    [(SampledRisk, 0.25, 20_480), (partial(SampledRisk, posterior_target=True), 0.12, 10_240)],
    ids=["plain", "posterior"],
)
@pytest.mark.slow
def test_the_risk_of_the_pair_is_reached(sampled, variance, count):
    law = isotropic(5, 40, 0.1)
    estimate = sampled(law, 2048, precision="float32").estimate(pair(), jr.key(1), count)
    assert estimate.standard_error**2 * count < variance
    assert abs(estimate.value - PAIR_RISK) < 4 * estimate.standard_error


def test_the_risk_and_the_gradient_of_the_pair_are_reached_with_labels_integrated_out():
    sampled, model = IntegratedRisk(isotropic(5, 40, 0.1), precision="float32"), pair()
    found = [jitted_both(drawn(sampled, seed, 1024), model) for seed in range(20)]
    losses = np.concatenate([part for part, _ in found], dtype=float)
    assert losses.var() < 0.022  # .0175 a sequence
    assert abs(losses.mean() - PAIR_RISK) < 4 * losses.std() / np.sqrt(losses.size)
    for name, reference in zip(("omega", "mu"), PAIR_GRADIENT):
        each = [np.ravel(getattr(gradient.circuits, name)) for _, gradient in found]
        values = np.stack(each) * [1, -1]
        error = values.std(0, ddof=1) / np.sqrt(20)
        assert np.all(np.abs(values.mean(0) - reference) < 4 * error)


@pytest.mark.parametrize("kind", [SampledRisk, IntegratedRisk])
def test_anisotropic_inputs_and_a_prior_mean_are_drawn_right(kind):
    # Linear attention knows its exact risk, which depends on every moment of the task.
    law = task()
    model = Attention(Merged.of(*arrays(4, (HEADS,), (HEADS, DIM, DIM))))
    estimate = kind(law, 4096).estimate(model, jr.key(2), 40_960)
    exact = exact_bilinear_risk(law, model)(model)
    assert abs(estimate.value - exact) < 4 * estimate.standard_error


# Several labels -------------------------------------------------------------------------------


def rotation(seed: int, size: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


@pytest.mark.slow
def test_several_labels_are_averaged_over():
    # Labels feed each other's outputs, and both rotations mix what is independent.
    law = MultiTaskRegression(
        [[0, 1], [1, 2]], context=[3, 6], noise=[0.1, 0.4], signal=[0.5, 2.0],
        input_rotation=rotation(0, DIM), output_rotation=rotation(1, 2),
    )  # fmt: skip
    circuits = OwnCircuits(*arrays(5, (HEADS, 2, DIM + 2), (HEADS, DIM, DIM)))
    model = Blind(circuits, self_attention=True)
    plain = SampledRisk(law, 4096).estimate(model, jr.key(1), 40_960)
    ours = IntegratedRisk(law, 4096).estimate(model, jr.key(2), 8_192)
    error = np.hypot(plain.standard_error, ours.standard_error)
    assert abs(plain.value - ours.value) < 4 * error
    assert ours.standard_error < 1.5 * plain.standard_error  # with a fifth of the sequences
    sequences = eqx.filter_jit(lambda law, key: law.sample(key, 50))(law, jr.key(3))
    assert isinstance(sequences, Sequences)
    predicted = np.asarray(jitted_predict(model, sequences))
    error = np.sum((np.asarray(sequences.y_query) - predicted) ** 2, -1)
    found = eqx.filter_jit(dataset_risk(sequences, model))(model)
    assert float(found) == pytest.approx(error.mean(), rel=1e-12)


# Queries alone --------------------------------------------------------------------------------


@jax.jit
def moments_of(a, b, product, length):
    """E m in units of v, E|p|², E p·p′, E(p·s)(p′·s) for scores a s and b s; all of a pair."""
    first, second = (head_moments(s * s, length, Resolution()) for s in (a, b))
    both = pair_moments(a * a, b * b, product, length, Resolution())
    A, B, C, D = both.coefficients(first, second)
    along = both.overlap + (A + C) * a * b + B * a * a + D * b * b
    return (a * first.mean, first.square, both.overlap, along), jnp.stack(both)


def test_moments_of_parallel_heads_have_their_reference_values():
    length = jnp.asarray([40.0, 40.0, 100.0, 8.0])
    a, b = jnp.asarray([0.5, 1.0, 1.5, 0.8]), jnp.asarray([-0.5, 0.3, -0.7, -0.8])
    reference = [
        [0.484122126922, 0.031755746155, 0.019637452331, -0.219366882391],
        [0.940357797074, 0.059642202926, 0.033046644446, 0.315618933278],
        [1.407753752306, 0.061497498463, 0.003674822787, -0.969122827853],
        [0.643454917011, 0.195681353737, 0.075649845549, -0.366954523991],
    ]
    found = np.stack(moments_of(a, b, a * b, length)[0], 1)
    # What is neglected at the ends of the grids is about 1e-9; the reference has twelve digits.
    assert found == pytest.approx(np.asarray(reference), abs=1e-9)


@pytest.mark.slow
def test_moments_of_heads_at_an_angle_are_those_of_samples_and_have_exact_slopes():
    point = np.asarray([1.1, 0.7, -0.3, 6.0])
    factor = np.linalg.cholesky([[1.21, -0.3], [-0.3, 0.49]])
    scores = np.random.default_rng(0).normal(size=(40_000, 6, 2)) @ factor.T
    p, s = np.moveaxis(np.exp(scores) / np.exp(scores).sum(1, keepdims=True), 2, 0)
    overlap, first, second = (p * s).sum(1), (p * p).sum(1), (s * s).sum(1)
    samples = [overlap, first * second, (p * p * s).sum(1), (p * s * s).sum(1)]
    samples = np.stack([*samples, overlap**2, first * overlap, second * overlap])
    error = samples.std(1) / np.sqrt(samples.shape[1])

    @jax.jit
    def with_slopes(point):
        pair = lambda point: (moments_of(*point)[1],) * 2
        return jax.jacrev(pair, has_aux=True)(point)

    slopes, values = with_slopes(point)
    assert np.all(np.abs(samples.mean(1) - values) < 4 * error)
    step = 1e-2 * np.asarray([1.0, -0.5, 0.7, 0.0])
    # Four points at once, as many as the reference values have: one program serves both.
    points = point + np.outer([1, -1, 2, -2], step)
    near, back, far, behind = np.asarray(moments_of(*points.T)[1]).T
    difference = (8 * (near - back) - (far - behind)) / 12
    # Of fourth order in steps of 1e-2; nodes move with the slopes, which costs 1e-9.
    assert slopes @ step == pytest.approx(difference, abs=3e-9)


@pytest.mark.slow
def test_a_query_gives_the_mean_over_its_contexts():
    law, model, count = task(), blind(), 10_240
    batch = drawn(QuerySampledRisk(law), 1, 2)
    contexts = drawn(IntegratedRisk(law), 0, count)
    values = np.asarray(jitted_losses(batch, model))
    for query, value in zip(np.asarray(batch.queries), values):
        same = jnp.asarray(np.broadcast_to(query[:, None], (DIM, count)))
        turned = eqx.tree_at(lambda b: b.lanes.query, contexts, same)
        losses = np.asarray(jitted_losses(turned, model))
        assert abs(value - losses.mean()) < 4 * losses.std() / np.sqrt(count)


@pytest.mark.slow
def test_queries_alone_have_the_mean_of_the_exact_risk_and_less_noise():
    sampled = QuerySampledRisk(isotropic(5, 40, 0.1))
    losses = np.asarray(jitted_losses(drawn(sampled, 0, 128), pair()))
    assert abs(losses.mean() - PAIR_RISK) < 4 * losses.std() / np.sqrt(128)
    # A variance of .0082 a query, against .0175 with labels integrated out.
    assert losses.var() < 0.7 * 0.0175


@pytest.mark.slow
def test_two_tasks_on_blocks_have_their_reference_risk():
    law = MultiTaskRegression(
        [[0, 1, 2], [3, 4, 5, 6]], context=20, noise=0.2, signal=[0.5, 0.3], noisy_query=False
    )
    omega = np.repeat([[0.4, 0.1], [-0.2, 0.35]], [3, 4], axis=1)
    mu = jnp.asarray([[1.2, 0.3], [-0.4, 1.0]])
    model = Attention(Diagonal(jnp.asarray(omega), mu, 7))
    losses = np.asarray(jitted_losses(drawn(QuerySampledRisk(law), 0, 128), model))
    assert abs(losses.mean() - (0.5327687 + 0.6962013)) < 4 * losses.std() / np.sqrt(128)


# Training -------------------------------------------------------------------------------------


class Number(AbstractBatchRisk):
    """A number that was drawn."""

    value: jax.Array

    def evaluate(self, model):
        return self.value[None]


class Numbers(AbstractSampledRisk):
    """Draws one number."""

    batch: int = 1

    def draw(self, key, count):
        return Number(jr.uniform(key))


@pytest.mark.parametrize(
    "blocks", [Blocks(7, True, True), Blocks(3, False, False), Blocks(1, False, True)]
)
def test_steps_do_not_depend_on_how_many_are_drawn_together(blocks):
    key = jr.key(3)
    keys_of = lambda state, ahead: jr.fold_in(state[2], state[0] + ahead)
    step = lambda state, drawn: (state[0] + 1, state[1] / 2 + drawn.value, state[2])
    start = jnp.asarray(2), jnp.asarray(0.0), key
    run = jax.jit(lambda count: draw_ahead(Numbers(), None, keys_of, step, start, count, blocks))
    number, total, same = run(7)
    expected = 0.0
    for n in range(2, 9):
        expected = expected / 2 + float(jr.uniform(jr.fold_in(key, n)))
    assert number == 9 and same == key
    assert float(total) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("strides", "most", "blocks"),
    [
        ([25, 25], 64, Blocks(25, False, True)),
        ([100, 100], 64, Blocks(50, False, True)),
        ([97, 97], 64, Blocks(49, False, False)),
        ([1, 5, 20], 8, Blocks(7, False, False)),
        ([1, 1], 0, Blocks(1, True, True)),
        ([3, 2], 1, Blocks(1, False, True)),
    ],
)
def test_stretches_are_cut_into_few_equal_blocks(strides, most, blocks):
    assert Blocks.cut(np.asarray(strides), most) == blocks


def test_the_same_key_draws_the_same():
    sampled = SampledRisk(task())
    first, again, other = (drawn(sampled, seed, 16).lanes.tokens for seed in (1, 1, 2))
    assert np.array_equal(first, again) and not np.any(first[0] == other[0])
    with pytest.raises(ValueError, match="random `key`"):
        sampled(blind())


# Choosing -------------------------------------------------------------------------------------


def test_as_much_is_integrated_out_as_can_be():
    law, noiseless = task(), task(noise=0.0)
    choose = lambda law, model, **options: sampled_risk(law, model, 32, **options)
    assert isinstance(choose(law, pair()), IntegratedRisk)
    assert choose(law, MODELS["full"]()).posterior_target
    assert not choose(noiseless, MODELS["full"]()).posterior_target
    assert not choose(law, pair(), integrate="none", precision="float32").posterior_target
    assert isinstance(risk(law, blind(), "sampled", integrate="context"), QuerySampledRisk)
    assert isinstance(choose(SparseRegression(4, 2), pair()), SampledRisk)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: sampled_risk(task(), MODELS["full"](), integrate="labels"), "`integrate` = 'lab"),
        (
            lambda: sampled_risk(task(), blind(self_attention=True), integrate="context"),
            "'context'",
        ),
        (lambda: sampled_risk(task(), pair(), integrate="all"), "`integrate` = 'all'"),
        (lambda: SampledRisk(task(), 1), "`batch` = 1"),
        (lambda: IntegratedRisk(task(), precision="half"), "`precision` = 'half'"),
        (lambda: risk(task(), blind(), "exat"), "`kind` = 'exat' does not exist"),
        (lambda: risk(task(), blind(), "dataset", sequences="9"), "`sequences` = '9': must be"),
        (lambda: risk(task(), blind(), "dataset", sequences=2.5), "`sequences` = 2.5: must be"),
        (
            lambda: risk(task(), blind(), "dataset", sequences=9, key=3),
            "`key` = 3: must be a random",
        ),
        (
            lambda: risk(task(), blind(), "dataset", sequences=9, chunk="a"),
            "`chunk` = 'a': must be",
        ),
    ],
)
def test_what_does_not_exist_is_refused(call, words, unchecked):
    with pytest.raises((ValueError, TypeError), match=words):
        call()


def test_labels_that_scores_see_cannot_be_integrated_out():
    # Traced alone: nothing is drawn or compiled before it is refused.
    with pytest.raises(TypeError, match="Merged attention depend on the labels"):
        eqx.filter_jit(IntegratedRisk(task(), 4))(MODELS["full"](), jr.key(0))
