"""The risk of a fixed data set: sufficient statistics against a plain loop over the sequences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.models import Attention, ConvolutionalLinear, Merged, TwoLayerLinear
from iclflow.risks._dataset import StoredSequencesRisk, dataset_risk
from iclflow.risks._quadratic import QuadraticRisk
from iclflow.tasks import Sequences


def draw(seed, count, contexts=(10,), dim=3):
    """Sequences of noisy linear regression, made without JAX: nothing is compiled."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, max(contexts) + 1, dim)) * np.sqrt([0.5, 0.3, 0.2][:dim])
    y = np.einsum("pnd,pd->pn", x, rng.normal(size=(count, dim)))
    y += 0.2 * rng.normal(size=y.shape)
    length = rng.choice(np.array(contexts, float), count)
    keep = np.arange(max(contexts)) < length[:, None]
    leaves = (
        x[:, :-1] * keep[..., None],
        (y[:, :-1] * keep)[..., None],
        x[:, -1],
        y[:, -1:],
        length,
    )
    return Sequences(*map(jnp.asarray, leaves))


# Compiled as a whole: operation by operation, most of the time of these tests is compilation.
value = eqx.filter_jit(lambda risk, model: risk(model))
value_and_gradient = eqx.filter_jit(lambda risk, model: risk.value_and_gradient(model))


@eqx.filter_jit
def plain_loss(model, sequences):
    return jnp.mean(sequences.squared_error(model.predict(sequences)))


def descend(value_and_gradient, model, rate, steps):
    """Losses and final weights of plain gradient descent."""
    weights, static = eqx.partition(model, eqx.is_inexact_array)

    def step(w, _):
        loss, gradient = value_and_gradient(eqx.combine(w, static))
        gradient = eqx.filter(gradient, eqx.is_inexact_array)
        return jax.tree.map(lambda a, b: a - rate * b, w, gradient), loss

    return jax.jit(lambda w: jax.lax.scan(step, w, None, length=steps))(weights)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "init,blind,seed,sizes",
    [
        (Attention.merged, False, 0, (4, 1e-2)),
        (Attention.separate, False, 1, (4, 2, 0.2)),
        (Attention.merged, True, 2, (2, 1e-2)),
        (Attention.separate, True, 3, (3, 1, 0.2)),
    ],
)
def test_engine_makes_the_steps_of_a_plain_loop(init, blind, seed, sizes):
    model, sequences, rate = init(jr.key(seed), 3, *sizes, blind=blind), draw(4, 200), 0.1
    risk = dataset_risk(sequences, model)
    assert isinstance(risk, QuadraticRisk) and risk.kind == "dataset" and not risk.stochastic
    plain = lambda m: eqx.filter_value_and_grad(plain_loss)(m, sequences)
    weights, losses = descend(risk.value_and_gradient, model, rate, 2000)
    plain_weights, plain_losses = descend(plain, model, rate, 2000)
    # The run must leave the plateau for the comparison to mean anything.
    assert plain_losses[-1] < 0.6 * plain_losses[0]
    # Rounding, 1e-16 a step, grows as the weights do (by 1e2 to 1e4) on the way off the plateau.
    np.testing.assert_allclose(losses, plain_losses, atol=1e-10, rtol=0)
    for a, b in zip(jax.tree.leaves(weights), jax.tree.leaves(plain_weights), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)


@pytest.mark.parametrize("normaliser", ["context", "tokens", "none"])
@pytest.mark.parametrize("self_attention", [True, False])
def test_contexts_of_different_length_are_handled(normaliser, self_attention):
    sequences = draw(5, 40, (2, 5, 9), dim=2)
    assert len(np.unique(sequences.length)) == 3
    model = Attention.merged(
        jr.key(6), 2, 3, 0.5, normaliser=normaliser, self_attention=self_attention, blind=False
    )
    model = eqx.tree_at(lambda m: m.circuits.value, model, jr.normal(jr.key(7), (3, 1, 3)))
    host = jax.tree.map(np.asarray, sequences)
    errors = []
    for index in range(40):  # every sequence by itself, cut to its length
        one, length = host[index], int(host.length[index])
        tokens = np.column_stack([one.x[:length], one.y[:length]])
        if self_attention:
            tokens = np.vstack([tokens, [*one.x_query, 0.0]])
        divisor = {"context": length, "tokens": length + 1, "none": 1}[normaliser]
        heads = zip(*(np.asarray(w) for w in (model.ov()[:, 0], model.kq())), strict=True)
        total = sum((tokens @ a) @ (tokens @ b @ one.x_query) for a, b in heads)
        errors.append((one.y_query[0] - total / divisor) ** 2)
    np.testing.assert_allclose(
        value(dataset_risk(sequences, model), model), np.mean(errors), rtol=1e-12
    )


def test_the_equivalent_networks_share_the_statistics_of_the_reduced_models():
    sequences = draw(8, 60)
    merged, separate = (
        Attention.merged(jr.key(9), 3, 2, 1.0),
        Attention.separate(jr.key(10), 3, 2, 2, 1.0),
    )
    risk = dataset_risk(sequences, merged)
    pairs = [
        (merged, TwoLayerLinear.from_attention(merged)),
        (separate, ConvolutionalLinear.from_attention(separate)),
    ]
    for attention, network in pairs:
        expected = plain_loss(network, sequences)
        np.testing.assert_allclose(value(risk, network), expected, rtol=1e-12)
        np.testing.assert_allclose(value(risk, attention), expected, rtol=1e-12)
        own = dataset_risk(sequences, network)
        assert jax.tree.structure(own) == jax.tree.structure(risk)
        np.testing.assert_array_equal(own.gram, risk.gram)


def test_the_statistics_do_not_depend_on_the_chunks():
    sequences = draw(11, 101)
    model = Attention.merged(jr.key(12), 3, 4, 1.0, blind=False)
    whole = dataset_risk(sequences, model)
    for chunk in (1, 7, 100):
        parts = dataset_risk(sequences, model, chunk)
        # A triangular factor is unique up to the signs of its rows.
        np.testing.assert_allclose(parts.gram, whole.gram, atol=1e-13)
        np.testing.assert_allclose(parts.moment, whole.moment, atol=1e-13)
        np.testing.assert_allclose(value(parts, model), value(whole, model), rtol=1e-12)


def test_cost_of_a_step_depends_on_neither_the_number_nor_the_length_of_sequences():
    model = Attention.merged(jr.key(13), 3, 4, 0.1, blind=False)
    step = eqx.filter_jit(
        eqx.debug.assert_max_traces(lambda r, m: r.value_and_gradient(m), max_traces=1)
    )
    for count, context in ((20, 4), (300, 4), (300, 25)):
        sequences = draw(14, count, (context,))
        risk = dataset_risk(sequences, model)
        assert sum(leaf.size for leaf in jax.tree.leaves(risk)) == 31 * 30 + 31 + 30 * 30 + 30 + 1
        loss, _ = step(risk, model)  # one program serves all three
        np.testing.assert_allclose(loss, plain_loss(model, sequences), rtol=1e-12)


def test_fewer_sequences_than_features_can_be_fitted_without_error():
    sequences = draw(15, 12)
    model = Attention.merged(jr.key(16), 3, 4, 1.0, blind=False)
    risk = dataset_risk(sequences, model)
    np.testing.assert_allclose(value(risk, model), plain_loss(model, sequences), rtol=1e-12)
    assert 0 <= risk.floor(model) < 1e-24
    best = risk.minimiser()
    fitted = Attention(Merged(jnp.eye(4)[:, None], best))
    assert plain_loss(fitted, sequences) < 1e-24


def test_floor_is_ordinary_least_squares_on_the_features():
    sequences = draw(17, 300)
    model = Attention.merged(jr.key(18), 3, 1)
    beta = np.einsum("pnd,pni->pd", sequences.x, sequences.y) / 10
    features = np.einsum("pd,pe->pde", beta, sequences.x_query).reshape(300, 9)
    residual = np.linalg.lstsq(features, np.asarray(sequences.y_query), rcond=None)[1][0]
    np.testing.assert_allclose(
        dataset_risk(sequences, model).floor(model), residual / 300, rtol=1e-11
    )


def test_floor_of_diagonal_matrices_is_least_squares_on_their_features():
    sequences = draw(21, 300)
    model = Attention.diagonal(
        jr.key(22), 3, 2, scale=0.5, per_coordinate=True, activation="linear"
    )
    beta = np.einsum("pnd,pni->pd", sequences.x, sequences.y) / 10
    features, label = beta * np.asarray(sequences.x_query), np.asarray(sequences.y_query)
    level = np.linalg.lstsq(features, label, rcond=None)[1][0] / 300
    risk = dataset_risk(sequences, model)
    np.testing.assert_allclose(risk.floor(model), level, rtol=1e-11)
    # Nine features leave less than three.
    assert level > 1.001 * risk.minimum


# Models without statistics


def softmax_model():
    return Attention.merged(
        jr.key(19), 3, 2, 0.5, activation="softmax", self_attention=False, blind=False
    )


def test_softmax_gets_the_plain_mean():
    sequences = draw(20, 23)
    risk = dataset_risk(sequences, softmax_model())
    assert isinstance(risk, StoredSequencesRisk) and risk.kind == "dataset"
    assert risk.floor(softmax_model()) is None
    np.testing.assert_allclose(
        value(risk, softmax_model()), plain_loss(softmax_model(), sequences), rtol=1e-14
    )


@pytest.mark.parametrize("chunk", [5, 22, 23, 100])
def test_chunks_change_neither_the_plain_mean_nor_its_gradient(chunk):
    sequences = draw(20, 23)
    whole = value_and_gradient(StoredSequencesRisk(sequences), softmax_model())
    parts = value_and_gradient(StoredSequencesRisk(sequences, chunk), softmax_model())
    for a, b in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-15)


def test_forms_with_too_many_features_get_the_plain_mean():
    zeros = jnp.zeros
    sequences = Sequences(
        zeros((3, 2, 65)), zeros((3, 2, 1)), zeros((3, 65)), zeros((3, 1)), jnp.ones(3)
    )
    model = Attention(Merged.of(zeros(1), zeros((1, 65, 65))))
    assert isinstance(dataset_risk(sequences, model), StoredSequencesRisk)


def test_bad_sequences_are_refused():
    sequences = draw(23, 4)
    model = Attention.merged(jr.key(24), 3, 1)
    with pytest.raises(ValueError, match=r"shape \(10, 3\)"):
        dataset_risk(sequences[0], model)
    with pytest.raises(ValueError, match="NaN"):
        dataset_risk(eqx.tree_at(lambda s: s.y, sequences, sequences.y * jnp.nan), model)
    with pytest.raises(ValueError, match="`dim` = 3, `model` has 2"):
        dataset_risk(sequences, Attention.merged(jr.key(25), 2, 1))
    with pytest.raises(ValueError, match="`chunk` = 0"):
        dataset_risk(sequences, model, 0)
