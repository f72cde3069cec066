import inspect
import pickle
import pydoc
import re
from functools import partial

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from helpers import KINDS, model_of, stack_of
from iclflow.flows import init_many
from iclflow.models import (
    SCHEMES,
    AbstractCircuits,
    AbstractModel,
    Attention,
    ConvolutionalLinear,
    Factored,
    Merged,
    Separate,
    TwoLayerLinear,
    known_circuits,
    known_models,
    steps_of,
)
from iclflow.papers import Lab
from iclflow.tasks import Sequences


@pytest.fixture(scope="module")
def sequences():
    """Of two lengths, made without JAX."""
    rng = np.random.default_rng(0)
    length = rng.choice([2.0, 6.0], 20)
    keep = np.arange(6) < length[:, None]
    x, y = (
        rng.normal(size=(20, 6, 3)) * keep[..., None],
        rng.normal(size=(20, 6, 1)) * keep[..., None],
    )
    query, label = rng.normal(size=(20, 3)), rng.normal(size=(20, 1))
    return Sequences(*map(jnp.asarray, (x, y, query, label, length)))


def attention_by_hand(model, sequences, index):
    """Attention with full (D+1)×(D+1) matrices over all tokens, read at the query's label."""
    length = int(sequences.length[index])
    x, y = np.asarray(sequences.x[index])[:length], np.asarray(sequences.y[index])[:length]
    query = np.append(np.asarray(sequences.x_query[index]), 0.0)
    tokens = np.column_stack([x, y])
    if model.self_attention:
        tokens = np.vstack([tokens, query])
    total = 0.0
    for value, block in zip(np.asarray(model.ov()), np.asarray(model.kq())):
        key_query = np.column_stack([block, np.full(len(block), 7.0)])  # multiplies a zero
        scores = tokens @ key_query @ query
        if model.activation == "softmax":
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
        else:
            divisor = {"context": length, "tokens": length + 1, "none": 1}[model.normaliser]
            weights = scores / divisor
        total += weights @ (tokens @ value.T)
    return total


def random_full(model):
    """The full form with all blocks non-zero."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape)), model)


@pytest.mark.parametrize("activation", ["linear", "softmax"])
@pytest.mark.parametrize("normaliser", ["context", "tokens", "none"])
@pytest.mark.parametrize("self_attention", [True, False])
def test_predictions_equal_attention_written_out_by_hand(
    getkey, sequences, activation, normaliser, self_attention
):
    options = {
        "activation": activation,
        "normaliser": normaliser,
        "self_attention": self_attention,
    }
    merged = Attention.merged(getkey(), 3, 2, 1.0, **options)
    separate = Attention.separate(getkey(), 3, 2, 2, 1.0, **options)
    full_merged = random_full(merged.embed())
    full_separate = random_full(separate.embed())
    for model in (merged, separate, full_merged, full_separate):
        predicted = np.asarray(model.predict(sequences))
        for i in (0, 3, 11):
            assert predicted[i] == pytest.approx(attention_by_hand(model, sequences, i), rel=1e-10)


def test_one_sequence_and_a_batch_give_the_same_prediction(getkey, sequences):
    model = Attention.separate(getkey(), 3, 2, 2, 1.0, activation="softmax")
    one = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[4]), sequences)
    assert model.predict(one) == pytest.approx(np.asarray(model.predict(sequences))[4])


def test_embedding_and_equivalent_networks_compute_the_same_function(getkey, sequences):
    merged = Attention.merged(getkey(), 3, 2, 1.0)
    separate = Attention.separate(getkey(), 3, 2, 2, 1.0)
    twins = (
        (merged, [merged.embed(), TwoLayerLinear.from_attention(merged)]),
        (separate, [separate.embed(), ConvolutionalLinear.from_attention(separate)]),
    )
    for model, others in twins:
        for other in others:
            assert np.allclose(model.predict(sequences), other.predict(sequences), atol=1e-12)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("activation", ["linear", "softmax"])
def test_blind_circuits_and_the_same_with_all_parts_predict_the_same(labels, activation):
    rng = np.random.default_rng(5)
    w = lambda *shape: jnp.asarray(rng.normal(size=shape))
    shapes = (20, 6, 3), (20, 6, labels), (20, 3), (20, labels)
    sequences = Sequences(*(w(*shape) for shape in shapes), length=jnp.full(20, 6.0))
    for circuits in (
        Merged(w(2, labels, labels), w(2, 3, 3)),
        Separate(w(2, labels, labels), w(2, 3, 2), w(2, 3, 2)),
        Factored(K=w(2, 4, 3), Q=w(2, 4, 3), V=w(2, 4, labels), O=w(2, labels, 4)),
    ):
        blind = Attention(circuits, activation)
        whole = blind.embed()
        assert blind.blind and not whole.blind and whole.labels == labels
        assert type(whole.circuits) is type(circuits) and whole.activation == activation
        for before, after in (
            (blind.predict(sequences), whole.predict(sequences)),
            (blind.kq(), whole.kq()),
            (blind.ov(), whole.ov()),
        ):
            assert np.allclose(before, after, atol=1e-12)
        # What has all parts already stays as it is.
        assert jax.tree.all(jax.tree.map(np.array_equal, whole.embed(), whole))


def test_circuits_that_are_always_blind_cannot_be_embedded():
    with pytest.raises(TypeError, match="Diagonal is always blind"):
        model_of("diagonal").embed()


def test_coefficients_are_the_function_of_bilinear_models(getkey, sequences):
    x, y, query, length = map(
        np.asarray, (sequences.x, sequences.y, sequences.x_query, sequences.length)
    )
    beta = np.einsum("pnd,pn->pd", x, y[..., 0]) / length[:, None]
    for model in (
        Attention.merged(getkey(), 3, 2, 1.0),
        Attention.separate(getkey(), 3, 2, 2, 1.0),
        TwoLayerLinear.from_attention(Attention.merged(getkey(), 3, 2, 1.0)),
        ConvolutionalLinear.from_attention(Attention.separate(getkey(), 3, 2, 2, 1.0)),
    ):
        by_hand = np.einsum("pd,de,pe->p", beta, np.asarray(model.coefficients()), query)
        assert np.allclose(model.predict(sequences)[..., 0], by_hand, atol=1e-12)


def test_softmax_models_have_no_coefficients(getkey):
    model = Attention.merged(getkey(), 3, 2, activation="softmax")
    assert model.form == "general"
    with pytest.raises(TypeError, match="no features"):
        model.coefficients()


def test_balanced_initialisations_have_no_conserved_quantity(getkey):
    merged = Attention.merged(getkey(), 4, 3, 0.1, "balanced")
    v, U = np.asarray(merged.circuits.v), np.asarray(merged.circuits.U)
    assert np.allclose(np.outer(v, v), np.einsum("hde,kde->hk", U, U), atol=1e-15)
    separate = Attention.separate(getkey(), 4, 3, 2, 0.1, "balanced")
    v, K, Q = map(np.asarray, (separate.circuits.v, separate.circuits.K, separate.circuits.Q))
    keys, queries = (np.einsum("hdr,hds->hrs", each, each) for each in (K, Q))
    assert np.allclose(keys, queries, atol=1e-15)
    assert np.allclose(v**2, np.trace(keys, axis1=1, axis2=2), atol=1e-15)


def test_paper_initialisation_has_the_stated_standard_deviations(getkey):
    model = Attention.separate(getkey(), 4, 500, 2, 0.3, "paper")
    # 500 heads: relative standard error of a standard deviation is 1/sqrt(2 n), n ≥ 500.
    assert np.std(model.circuits.v) == pytest.approx(0.3 / np.sqrt(500 * 25), rel=0.15)
    assert np.std(model.circuits.K) == pytest.approx(0.3 / np.sqrt(500 * 2 * 5), rel=0.07)
    assert np.std(model.circuits.Q) == pytest.approx(0.3 / np.sqrt(500 * 2 * 5), rel=0.07)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_weight_is_proportional_to_the_scale(getkey, scheme):
    key = getkey()
    for init in (
        lambda scale: Attention.merged(key, 4, 3, scale, scheme),
        lambda scale: Attention.separate(key, 4, 3, 2, scale, scheme),
    ):
        small, large = (jax.tree.map(np.asarray, init(scale)) for scale in (0.1, 0.2))
        assert jax.tree.all(jax.tree.map(lambda a, b: np.allclose(2 * a, b), small, large))
        assert not jax.tree.all(jax.tree.map(lambda a: np.allclose(a, 0), small))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 5}, "`rank` = 5: must not exceed `dim` = 4"),
        ({"heads": 0}, "`heads` = 0"),
        ({"scale": -1.0}, "`scale` = -1.0"),
        ({"scale": float("nan")}, "`scale` = nan"),
        ({"dim": 0}, "`dim` = 0"),
    ],
)
def test_impossible_sizes_are_refused(getkey, options, words):
    settings = {"dim": 4, "heads": 2, "rank": 1, "scale": 0.1} | options
    with pytest.raises(ValueError, match=words):
        Attention.separate(getkey(), **settings)


def test_a_seed_in_the_place_of_a_key_is_refused(unchecked):
    for init in (Attention.merged, Attention.separate, partial(Attention.merged, blind=False)):
        with pytest.raises(TypeError, match="`key` = 0: must be a random key, such as `jax"):
            init(0, dim=4, heads=4)
    assert Attention.merged(jr.PRNGKey(0), dim=4, heads=4).circuits.v.shape == (4,)  # old keys


def test_kinds_of_models_are_all_tried():
    tried = {name for name, _, _ in KINDS.values()}
    known = (set(known_models()) | set(known_circuits())) - {"Attention"}
    assert tried == known, f"`KINDS` in `tests/helpers.py` differs in {sorted(tried ^ known)}."


def is_method(thing, name: str) -> bool:
    """Whether something has a method of that name that computes with its weights."""
    method = inspect.getattr_static(type(thing), name, None)
    return inspect.isfunction(method) and method is not AbstractCircuits.embed


@pytest.mark.parametrize("kind", KINDS)
def test_methods_refuse_a_stack_of_models_and_properties_are_the_same_for_it(kind):
    stack = stack_of(kind)
    one = jax.tree.map(lambda leaf: leaf[0], stack)
    arguments = {"predict": [None], "network": [None], "factored": [None]}
    methods = ["kq", "ov", "predict", "network", "omega", "mu", "factors", "factored"]
    methods += ["embed", "to_attention"] + ["coefficients"] * (stack.form != "general")
    properties = ["form", "labels", "blind", "divides_by", "coefficient_rank", "tied", "sizes"]
    properties += ["heads", "dim", "width", "per_coordinate"]
    parts = {"model": (stack, one)}
    if isinstance(stack, Attention):
        parts["model.circuits"] = stack.circuits, one.circuits
    for path, (many, single) in parts.items():
        found = [name for name in methods if is_method(many, name)]
        assert "predict" in found or "kq" in found
        for name in found:
            asked = "…" if name in arguments else ""
            suggestion = re.escape(f"`run.map(lambda model: {path}.{name}({asked}))`")
            with pytest.raises(ValueError, match=f"is a stack of models.*{suggestion}"):
                getattr(many, name)(*arguments.get(name, []))
        for name in properties:
            shown = getattr(single, name, None)
            assert callable(shown) or getattr(many, name, None) == shown


@pytest.mark.parametrize(
    "convert, kind",
    [
        (Attention.embed, "blind merged"),
        (Attention.embed, "blind separate"),
        (TwoLayerLinear.from_attention, "blind merged"),
        (ConvolutionalLinear.from_attention, "blind separate"),
    ],
)
def test_a_stack_is_not_taken_for_a_model_to_convert(convert, kind):
    with pytest.raises(ValueError, match="stack of models"):
        convert(stack_of(kind))


def test_a_model_of_ones_own_refuses_a_stack_where_its_shapes_say_so():
    class Own(AbstractModel):
        weights: Float[Array, "H D"]
        free: Array

        def predict(self, sequences):
            return jnp.sum(self.weights)[None]

        def __call__(self):
            return self.free

    one = Own(np.ones((2, 3)), np.ones((5, 5, 5)))
    assert one().shape == (5, 5, 5)
    with pytest.raises(ValueError, match=r"`weights` of this Own has shape \(4, 2, 3\)"):
        Own(np.ones((4, 2, 3)), np.ones(1))()


@pytest.mark.parametrize("network", ["two layers", "convolution"])
def test_coefficients_of_a_network_take_no_more_than_its_weights(network):
    one = model_of(network)
    program = jax.make_jaxpr(type(one).coefficients)(one)
    largest = max(out.aval.size for step in steps_of(program.jaxpr) for out in step.outvars)
    assert largest <= 4 * max(leaf.size for leaf in jax.tree.leaves(one))


def test_networks_come_back_as_the_attention_they_are_equivalent_to():
    for network, kind in (("two layers", Merged), ("convolution", Separate)):
        one = model_of(network)
        attention = one.to_attention()
        assert type(attention.circuits) is kind and attention.blind
        assert jnp.allclose(attention.coefficients(), one.coefficients(), atol=1e-14)


@pytest.mark.parametrize("scale", ["small", None, [1.0, 2.0], -1.0])
def test_sizes_of_weights_that_are_no_numbers_are_refused(scale, unchecked):
    with pytest.raises(ValueError, match="`scale` = .*: must be a number, finite and not negative"):
        Attention.merged(jr.key(0), 2, 2, scale=scale)


def test_many_initialisations_need_many_keys(unchecked):
    for keys, words in ((jr.key(0), "`keys` is one key"), (3, "`key` = 3: must be a random key")):
        with pytest.raises((ValueError, TypeError), match=words):
            init_many(Attention.merged, keys, dim=2, heads=2)


@pytest.mark.parametrize(
    "name", ["merged", "separate", "factored", "diagonal", "spectral", "balanced"]
)
def test_ways_to_draw_attention_say_which_fields_they_take(name):
    make = getattr(Attention, name)
    given = inspect.signature(make).parameters
    assert {"key", "heads", "activation", "normaliser", "self_attention"} <= set(given)
    assert all(each.annotation is not inspect.Parameter.empty for each in given.values())
    assert f"{name}(key" in pydoc.render_doc(make, renderer=pydoc.plaintext)
    assert make.__qualname__ == f"Attention.{name}" and pickle.loads(pickle.dumps(make)) is make


def test_drawn_attention_is_cached_by_what_draws_it():
    lab = Lab()
    arguments = (jr.key(0), 3, 2)
    softmax = lab.compute(Attention.merged, *arguments, activation="softmax")
    linear = lab.compute(Attention.merged, *arguments)
    other = lab.compute(Attention.diagonal, *arguments)
    assert (softmax.activation, linear.activation) == ("softmax", "linear")
    assert type(other.circuits) is not type(linear.circuits)
