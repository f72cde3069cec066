"""Softmax attention in all its forms, against loops over heads and tokens in plain NumPy."""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.flows import init_many
from iclflow.models import (
    Attention,
    AttentionStack,
    Diagonal,
    Factored,
    Merged,
    known_models,
    model_arrays,
    name_of,
)
from iclflow.risks import risk
from iclflow.tasks import Sequences, isotropic
from iclflow.trajectory import Trajectory

DIM = 3


def drawn(seed: int, labels: int):
    """Twelve sequences of length 2 or 6, without compiling anything."""
    rng = np.random.default_rng(seed)
    length = np.where(np.arange(12) % 3 == 0, 2, 6)
    there = np.arange(6) < length[:, None]
    tokens, outputs = rng.normal(size=(12, 6, DIM)), rng.normal(size=(12, 6, labels))
    return Sequences(
        x=jnp.asarray(tokens * there[..., None]),
        y=jnp.asarray(outputs * there[..., None]),
        x_query=jnp.asarray(rng.normal(size=(12, DIM))),
        y_query=jnp.asarray(rng.normal(size=(12, labels))),
        length=jnp.asarray(length, float),
    )


ONE, SEVERAL = drawn(1, 1), drawn(2, 2)
# Loops and einsums round differently; values are of order one.
CLOSE = {"rtol": 1e-10, "atol": 1e-12}
SOFTMAX = {"activation": "softmax", "self_attention": False}


def numbers(seed: int):
    """Weights of order one, without compiling anything."""
    rng = np.random.default_rng(seed)
    return lambda *shape: jnp.asarray(rng.normal(size=shape))


def one_label(**options):
    """One of each form with one label."""
    w = numbers(0)
    return [
        Attention(Diagonal(w(2), w(2), DIM), **options),
        Attention(Diagonal(w(2, DIM), w(2), DIM), **options),
        Attention(Factored(K=w(2, 5, 4), Q=w(2, 5, 4), V=w(2, 5, 4), O=w(2, 1, 5)), **options),
        Attention(Merged(w(2, 1, 4), w(2, 4, DIM)), **{"self_attention": False, **options}),
    ]


def two_labels(**options):
    """One of each form with two labels."""
    w = numbers(1)
    return [
        Attention(Merged(w(3, 2, 5), w(3, 5, DIM)), **{**SOFTMAX, **options}),
        Attention(Factored(K=w(3, 6, 5), Q=w(3, 6, 5), V=w(3, 6, 5), O=w(3, 2, 6)), **options),
        Attention(Diagonal(w(3, DIM), w(3, 2), DIM), **options),
        Attention(Diagonal(w(3), w(3, 2), DIM), **options),
    ]


def stack(depth=3, layers=3, **options):
    """Small enough that three layers do not run away."""
    w = numbers(2)
    return AttentionStack(0.4 * w(layers, 2, 4, 4), 0.4 * w(layers, 2, 4, 4), depth, **options)


@eqx.filter_jit
def predict(models, sequences):
    """The predictions of several models, compiled as one program."""
    return [model.predict(sequences) for model in models]


def circuits(model) -> list[tuple[np.ndarray, np.ndarray]]:
    """(key-query, output-value) of each head over whole tokens, from the stored weights alone."""
    weights, heads = jax.tree.map(np.asarray, model.circuits), []
    if isinstance(weights, Diagonal):
        token = DIM + weights.mu.shape[1]
        for omega, mu in zip(weights.omega, weights.mu):
            kq = np.zeros((token, token))
            kq[np.arange(DIM), np.arange(DIM)] = omega
            ov = np.zeros((token - DIM, token))
            for i, weight in enumerate(mu):
                ov[i, DIM + i] = weight
            heads.append((kq, ov))
    elif isinstance(weights, Factored):
        for K, Q, V, O in zip(weights.K, weights.Q, weights.V, weights.O):  # noqa: E741
            heads.append((K.T @ Q / np.sqrt(len(K)), O @ V))
    else:
        for value, block in zip(weights.value, weights.key_query):
            idle = np.full((len(block), len(block) - DIM), 7.0)  # multiplies the query's zeros
            heads.append((np.hstack([block, idle]), value))
    return heads


def attention_by_hand(model, sequences, index) -> np.ndarray:
    sequences = jax.tree.map(np.asarray, sequences)
    length = int(sequences.length[index])
    x = np.asarray(sequences.x[index])[:length]
    y = np.asarray(sequences.y[index])[:length]
    query = np.concatenate([np.asarray(sequences.x_query[index]), np.zeros(y.shape[1])])
    tokens = np.hstack([x, y])
    if model.self_attention:
        tokens = np.vstack([tokens, query])
    total = np.zeros(y.shape[1])
    for kq, ov in circuits(model):
        scores = np.array([token @ kq @ query for token in tokens])
        if model.activation == "softmax":
            weights = np.exp(scores) / np.exp(scores).sum()
        else:
            weights = (
                scores / {"context": length, "tokens": length + 1, "none": 1}[model.normaliser]
            )
        for weight, token in zip(weights, tokens):
            total = total + weight * (ov @ token)
    return total


@pytest.mark.parametrize("activation, self_attention", [("linear", True), ("softmax", False)])
def test_predictions_equal_loops_over_heads_and_tokens(activation, self_attention):
    options = {"activation": activation, "self_attention": self_attention, "normaliser": "tokens"}
    for models, sequences in ((one_label(**options), ONE), (two_labels(**options), SEVERAL)):
        for model, predicted in zip(models, predict(models, sequences)):
            for i in (0, 3, 11):
                by_hand = attention_by_hand(model, sequences, i)
                np.testing.assert_allclose(np.asarray(predicted)[i], by_hand, **CLOSE)
    assert set(np.asarray(ONE.length)[[0, 3, 11]]) == {2.0, 6.0}  # padding was there


def test_softmax_that_attends_to_the_query_equals_the_loops_too():
    options = {"activation": "softmax", "self_attention": True}
    for model, sequences in ((one_label(**options)[3], ONE), (two_labels(**options)[0], SEVERAL)):
        by_hand = attention_by_hand(model, sequences, 3)
        predicted = np.asarray(predict([model], sequences)[0])
        np.testing.assert_allclose(predicted[3], by_hand, **CLOSE)


def test_the_query_attends_to_the_context_alone_unless_told_otherwise():
    models = [*one_label(), *two_labels(), stack()]
    assert not any(model.self_attention for model in models)
    linear = [model for model in models if model.activation == "linear"]
    assert linear == models[3:4]  # merged circuits, which are linear unless told otherwise


# Stacks ---------------------------------------------------------------------------------------


def stack_by_hand(model, sequences, index) -> float:
    """Every layer, head and pair of tokens, one after the other."""
    sequences = jax.tree.map(np.asarray, sequences)
    length = int(sequences.length[index])
    x, y = (np.asarray(leaf[index])[:length] for leaf in (sequences.x, sequences.y))
    query = np.append(np.asarray(sequences.x_query[index]), 0.0)
    stream = np.vstack([np.column_stack([x, y]), query])
    for layer in range(model.depth):
        place = min(layer, model.key_query.shape[0] - 1)
        moved = stream.copy()
        for b in range(length + 1):
            keys = [a for a in range(length + int(model.self_attention))]
            keys = [a for a in keys if a <= b or not model.causal]
            for kq, ov in zip(*(np.asarray(w[place]) for w in (model.key_query, model.value))):
                scores = np.array([stream[a] @ kq @ stream[b] for a in keys])
                weights = scores / length
                if model.activation == "softmax":
                    weights = np.exp(scores) / np.exp(scores).sum()
                moved[b] += sum(w * (ov @ stream[a]) for w, a in zip(weights, keys))
        stream = moved
    return stream[-1, -1]


def test_stacks_equal_loops_over_layers_heads_and_pairs_of_tokens():
    models = [
        stack(layers=1),
        stack(causal=True),
        stack(causal=True, self_attention=True),
        stack(self_attention=True, activation="linear"),
        stack(layers=1, causal=True, activation="linear"),
    ]
    assert [model.tied for model in models] == [True, False, False, False, True]
    for model, predicted in zip(models, predict(models, ONE)):
        for i in (0, 3, 11):
            found = float(np.asarray(predicted)[i, 0])
            assert found == pytest.approx(stack_by_hand(model, ONE, i), rel=1e-10)


def test_a_stack_of_one_layer_is_merged_attention():
    one = stack(depth=1, layers=1)
    merged = Attention(Merged(one.value[0, :, -1:], one.key_query[0, :, :, :-1]), **SOFTMAX)
    np.testing.assert_allclose(*predict([one, merged], ONE), **CLOSE)


def test_weights_for_the_wrong_number_of_layers_are_refused(getkey):
    weights = jnp.zeros((2, 1, 4, 4))
    with pytest.raises(ValueError, match="holds weights for 2 layers: must be 1 .tied. or `depth`"):
        AttentionStack(weights, weights, depth=3)


# Invariances ----------------------------------------------------------------------------------


def shuffled(sequences):
    """The context in another order; only for sequences without padding."""
    order = np.array([3, 0, 5, 1, 4, 2])
    return eqx.tree_at(
        lambda s: (s.x, s.y), sequences, (sequences.x[:, order], sequences.y[:, order])
    )


def test_the_order_of_the_context_matters_to_causal_stacks_alone():
    for models, drawn in (
        ([*one_label(activation="softmax"), stack(), stack(causal=True)], ONE),
        (two_labels(), SEVERAL),
    ):
        drawn = jax.tree.map(np.asarray, drawn)
        sequences = drawn[np.flatnonzero(drawn.length == 6)[:4]]
        here, there = predict(models, sequences), predict(models, shuffled(sequences))
        for model, before, after in zip(models, map(np.asarray, here), map(np.asarray, there)):
            causal = getattr(model, "causal", False)
            moved = np.max(np.abs(before - after)) / np.max(np.abs(before))
            # Sums in another order differ by rounding alone.
            assert moved > 1e-2 if causal else moved < 1e-12, type(model)


def test_one_omega_a_head_knows_no_direction():
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(DIM, DIM)))
    inputs = [jnp.asarray(np.asarray(x) @ rotation.T) for x in (ONE.x, ONE.x_query)]
    turned = eqx.tree_at(lambda s: (s.x, s.x_query), ONE, inputs)
    models = one_label()[:2]
    here, there = predict(models, ONE), predict(models, turned)
    np.testing.assert_allclose(here[0], there[0], **CLOSE)
    assert np.max(np.abs(np.asarray(here[1]) - np.asarray(there[1]))) > 1e-2


@pytest.mark.slow
def test_padding_and_batch_axes_change_nothing():
    for models, sequences in (
        ([*one_label(activation="softmax"), stack(), stack(causal=True)], ONE),
        (two_labels(), SEVERAL),
    ):
        sequences = jax.tree.map(np.asarray, sequences)
        short = int(np.argmin(sequences.length))
        cut = eqx.tree_at(
            lambda s: (s.x, s.y), sequences[short], (sequences.x[short, :2], sequences.y[short, :2])
        )
        square = jax.tree.map(lambda leaf: leaf.reshape(3, 4, *leaf.shape[1:]), sequences)
        everywhere = zip(predict(models, sequences), predict(models, cut), predict(models, square))
        for whole, alone, boxed in (map(np.asarray, each) for each in everywhere):
            np.testing.assert_allclose(alone, whole[short], **CLOSE)
            np.testing.assert_allclose(boxed, whole.reshape(boxed.shape), **CLOSE)


# Linear twins ---------------------------------------------------------------------------------


def test_linear_twins_have_exact_risks():
    task = isotropic(DIM, 5, noise=0.2)
    drawn = eqx.filter_jit(lambda task, key: task.sample(key, 20_000))(task, jr.key(3))
    models = one_label(activation="linear")[:3]
    for model, predicted in zip(models, predict(models, drawn)):
        assert model.form == ("cubic" if isinstance(model.circuits, Factored) else "bilinear")
        exact = float(eqx.filter_jit(risk(task, model, "exact"))(model))
        squared = (np.asarray(drawn.y_query) - np.asarray(predicted)) ** 2
        error = squared.std() / np.sqrt(len(squared))
        assert abs(squared.mean() - exact) < 4 * error


def test_softmax_forms_have_no_coefficients():
    for model in one_label(activation="softmax"):
        assert model.form == "general"


# Initial weights ------------------------------------------------------------------------------


@eqx.filter_jit
def started(key, scheme: str):
    """Models of three heads with one label and with two, and their circuits."""
    one = [
        Attention.diagonal(key, DIM, 3, 0.1, scheme),
        Attention.merged(key, DIM, 3, 0.1, scheme),
        Attention.factored(key, DIM, 3, scale=0.1, scheme=scheme),
    ]
    several = [
        Attention.merged(key, DIM, 3, 0.1, scheme, labels=2, blind=False, **SOFTMAX),
        Attention.factored(key, DIM, 3, scale=0.1**0.5, scheme=scheme, labels=2),
        Attention.diagonal(key, DIM, 3, 0.1, scheme, labels=2),
    ]
    return [[(model, model.kq(), model.ov()) for model in models] for models in (one, several)]


def test_identity_schemes_give_the_circuits_they_name(getkey):
    signs = {"small_identity": [1, 1, 1], "opposite": [1, -1, 1]}
    for scheme, sign in signs.items():
        one, several = jax.tree.map(np.asarray, started(getkey(), scheme))
        assert len(one) == len(several) == 3
        for model, kq, ov in one:
            # K, Q, V and O are 0.1 times the identity each; the width is 4.
            size, scale = (0.01, 0.005) if isinstance(model.circuits, Factored) else (0.1, 0.1)
            blocks = np.einsum("h,de->hde", sign, scale * np.eye(DIM))
            np.testing.assert_allclose(kq[:, :-1], blocks, atol=1e-15)
            np.testing.assert_allclose(kq[:, -1], 0, atol=1e-15)
            np.testing.assert_allclose(ov[:, 0, -1], size * np.asarray(sign), atol=1e-15)
            np.testing.assert_allclose(ov[:, 0, :-1], 0, atol=1e-15)
        for model, kq, ov in several:
            values = np.einsum("h,ij->hij", sign, np.hstack([np.zeros((2, DIM)), 0.1 * np.eye(2)]))
            np.testing.assert_allclose(ov, values, atol=1e-15)
            width = 5**0.5 if isinstance(model.circuits, Factored) else 1
            blocks = np.einsum("h,de->hde", sign, 0.1 / width * np.eye(DIM + 2, DIM))
            np.testing.assert_allclose(kq, blocks, atol=1e-15)


def test_default_weights_are_those_of_linear_layers(getkey):
    model = Attention.factored(getkey(), DIM, 40, 30)
    for weights, inputs in (
        (model.circuits.K, 4),
        (model.circuits.Q, 4),
        (model.circuits.V, 4),
        (model.circuits.O, 40 * 30),
    ):
        bound = 1 / np.sqrt(inputs)
        # 1200 and more numbers: the largest misses the bound by more than 1 % once in 1e5 times,
        # and the mean square has a standard error of 0.9/√1200 = 2.6 % of its value.
        assert 0.99 * bound < np.max(np.abs(weights)) <= bound
        assert np.mean(np.square(weights)) == pytest.approx(bound**2 / 3, rel=0.11)
    full = Attention.merged(getkey(), DIM, 400, 1.0, "default", blind=False).circuits
    for block in (full.value[..., :-1], full.value[..., -1], full.key_query):
        assert 0.98 / 2 < np.max(np.abs(block)) <= 1 / 2  # T = 4


def test_random_weights_are_proportional_to_the_scale():
    # The schemes that draw nothing are compared with what they name, above.
    key = jr.key(4)
    inits = [
        lambda scale: Attention.diagonal(key, 2, 2, scale),
        lambda scale: Attention.diagonal(key, 2, 2, scale, per_coordinate=False, labels=2),
        lambda scale: Attention.factored(key, 1, 2, 2, scale, "gaussian"),
        lambda scale: Attention.merged(key, 1, 2, scale, labels=1, blind=False, **SOFTMAX),
        lambda scale: AttentionStack.init(key, 1, 2, 2, scale, "default"),
    ]
    for init in inits:
        small, large = init(0.1), init(0.2)
        for leaf, twice in zip(jax.tree.leaves(small), jax.tree.leaves(large)):
            np.testing.assert_allclose(2 * np.asarray(leaf), twice, rtol=1e-14)
            assert np.all(np.asarray(leaf) != 0)


@pytest.mark.parametrize(
    ("init", "words"),
    [
        (lambda key: Attention.diagonal(key, 3, 2, scheme="balanced"), "`scheme` = 'bal"),
        (lambda key: Attention.diagonal(key, 3, 0), "`heads` = 0"),
        (
            lambda key: Attention(Diagonal(jnp.zeros((2, 4)), jnp.zeros(2), 3)),
            r"`omega` has shape \(2, 4\): must be \(heads,\) or \(heads, 3\)",
        ),
        (
            lambda key: Attention.factored(key, 3, 2, 3, scheme="opposite"),
            "`width` = 3: must be at least 4, the size of a token",
        ),
        (lambda key: Attention.factored(key, 3, 2, 0), "`width` = 0"),
        (
            lambda key: Attention.merged(key, 3, 2, labels=0, blind=False, **SOFTMAX),
            "`labels` = 0",
        ),
        (lambda key: AttentionStack.init(key, 3, 2, 0), "`depth` = 0"),
    ],
)
def test_impossible_models_are_refused(getkey, unchecked, init, words):
    with pytest.raises(ValueError, match=words):
        init(getkey())


# Citizenship ----------------------------------------------------------------------------------


def every_model():
    return [*one_label()[:3], *two_labels(), stack(layers=1, causal=True)]


def test_every_form_is_registered_and_survives_being_saved(tmp_path):
    for i, model in enumerate(every_model()):
        assert known_models()[type(model).__name__] is type(model)
        saved = jax.tree.map(lambda leaf: np.stack([leaf, 2 * leaf]), model)
        run = Trajectory(np.array([0.0, 1.0]), np.array([1.0, 0.5]), saved)
        run.save(tmp_path / str(i))
        back = Trajectory.load(tmp_path / str(i)).at(1)
        doubled = jax.tree.map(lambda leaf: 2 * np.asarray(leaf), model)
        # Equal structures have equal static fields.
        assert jax.tree.structure(back) == jax.tree.structure(doubled)
        assert jax.tree.all(jax.tree.map(np.array_equal, back, doubled))


@pytest.mark.slow
def test_ensembles_start_as_their_members_do():
    keys, scales = jr.split(jr.key(5), 3), jnp.asarray([0.1, 0.2, 0.3])
    many = init_many(lambda key, scale: Attention.diagonal(key, DIM, 2, scale), keys, scales)
    one = Attention.diagonal(keys[1], DIM, 2, 0.2)
    np.testing.assert_allclose(many.circuits.omega[1], one.circuits.omega, rtol=1e-14)
    predicted = eqx.filter_jit(eqx.filter_vmap(lambda m: m.predict(ONE)))(many)
    np.testing.assert_allclose(predicted[1], predict([one], ONE)[0], **CLOSE)


def test_gradients_reach_every_weight():
    def loss(models):
        drawn = [SEVERAL if model.labels > 1 else ONE for model in models]
        return sum(jnp.sum(d.squared_error(m.predict(d))) for m, d in zip(models, drawn))

    gradients = eqx.filter_jit(jax.grad(loss))(every_model())
    for gradient in gradients:
        for name, leaf in model_arrays(gradient).items():
            assert np.all(np.isfinite(leaf)) and np.any(leaf != 0), (name_of(gradient), name)


@pytest.mark.parametrize(
    ("omega", "mu", "said"),
    [
        ([0.1, -0.1], [3.0], "`mu` has shape (1, 1) and `omega` has 2 heads: must be (heads,)"),
        ([[0.1] * 4], [3.0], "`omega` has shape (1, 4): must be (heads,) or (heads, 5)"),
        ([0.1], [[[3.0]]], "`mu` has shape (1, 1, 1)"),
        (0.1, 3.0, "`omega` has shape ()"),
    ],
)
def test_structured_numbers_that_are_not_one_row_a_head_are_refused(omega, mu, said, unchecked):
    with pytest.raises(ValueError, match=re.escape(said)):
        Attention(Diagonal(omega, mu, 5))


def test_structured_heads_can_be_given_as_lists():
    pair = Attention(Diagonal([0.13, -0.13], [3.45, -3.45], 5))
    assert pair.circuits.mu.dtype == float and pair.kq().shape == (2, 6, 5)
    with pytest.raises(ValueError, match=r"must be \(heads,\) or \(heads, labels\)"):
        Attention(Diagonal([[0.1] * 6] * 4, [[1.0] * 4] * 2, 6))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("activation", "foo", "must be one of 'linear', 'softmax'"),
        ("normaliser", "foo", "must be one of 'context', 'tokens', 'none'"),
        ("self_attention", "no", "must be one of True, False"),
    ],
)
def test_words_that_mean_nothing_are_refused(field, value, said, unchecked):
    for model in (Attention(Diagonal([0.1], [1.0], 3)), Attention(Diagonal([0.1], [[1.0]], 3))):
        with pytest.raises(ValueError, match=f"`{field}` = '{value}': {said}"):
            dataclasses.replace(model, **{field: value})
