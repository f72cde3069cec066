"""Stacks and loops of linear attention: predictions, tokens, initial weights, bad input."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import KINDS, model_of, random_task
from iclflow.checkpoints import load_model, save_model
from iclflow.config import parse_config
from iclflow.errors import InputError
from iclflow.experiment._build_model import build_model
from iclflow.models import (
    AbstractLinearStack,
    DiagonalStack,
    FullStack,
    MergedStack,
    MovingFullStack,
    MovingScalarStack,
    ScalarStack,
    SeparateStack,
)

STACKS = [name for name in KINDS if KINDS[name][0].endswith("Stack") and name != "stack"]


def random_sequences(dim=3, context=(4, 7), count=6):
    return random_task(np.random.default_rng(1), dim, context).sample(jr.key(2), count)


def plain_prediction(model: AbstractLinearStack, sequences) -> np.ndarray:
    """Eq. (0) and the movement of the inputs, sequence by sequence in NumPy."""
    steps, moves = np.asarray(model.steps()), np.asarray(model.moves())
    found = []
    for x, y, query, length in zip(
        *map(np.asarray, (sequences.x, sequences.y, sequences.x_query, sequences.length))
    ):
        count = int(length)
        inputs, labels = x[:count], y[:count, 0]
        if model.self_attention:  # one more pair, whose label is zero
            inputs, labels = np.vstack([inputs, query]), np.append(labels, 0.0)
        divisor = {"context": count, "tokens": count + 1, "none": 1}[model.normaliser]
        w, turn = np.zeros(len(query)), np.eye(len(query))
        for step, move in zip(steps, moves):
            # With moved inputs T x the layer is gradient descent preconditioned by TᵀΓT.
            along = inputs.T @ (labels - inputs @ w) / divisor
            gram = turn @ inputs.T @ inputs @ turn.T / divisor
            w = w + turn.T @ step @ turn @ along
            turn = turn - move @ gram @ step.T @ turn
        found.append(w @ query)
    return np.array(found)[:, None]


@pytest.mark.parametrize("kind", STACKS)
@pytest.mark.parametrize(
    "options",
    [{}, {"self_attention": True, "normaliser": "tokens"}],
    ids=["masked query", "attended query"],
)
def test_a_stack_is_gradient_descent_and_attention_between_tokens(kind, options):
    model, sequences = model_of(kind), random_sequences()
    model = type(model)(**{**fields(model), **options})
    found = model.predict(sequences)
    # Sums of a few products of order one, in another order.
    np.testing.assert_allclose(found, plain_prediction(model, sequences), rtol=1e-12, atol=1e-12)
    tokens = model.to_attention()
    np.testing.assert_allclose(tokens.predict(sequences), found, rtol=1e-12, atol=1e-12)


def fields(model) -> dict:

    return {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}


def test_a_loop_is_a_stack_of_equal_layers():
    loop = FullStack.init(jr.key(0), 3, 3, 0.5, tied=True)
    stack = FullStack(jnp.repeat(loop.gamma, 3, 0), depth=3)
    sequences = random_sequences()
    np.testing.assert_array_equal(loop.predict(sequences), stack.predict(sequences))
    longer = loop.with_depth(5)
    assert longer.depth == 5 and longer.steps().shape == (5, 3, 3)
    assert loop.to_attention().tied and not stack.to_attention().tied


@pytest.mark.parametrize("kind", [ScalarStack, DiagonalStack, FullStack, MovingScalarStack])
def test_equal_layers_differ_by_the_spread(kind):
    model = kind.init(jr.key(0), 2, 3, 0.5, "small_identity", spread=0.1)
    wanted = np.array([0.6, 0.5, 0.4])[:, None, None] * np.eye(2)
    np.testing.assert_allclose(model.steps(), wanted, rtol=1e-15)
    if model.moving:
        np.testing.assert_allclose(model.moves(), np.broadcast_to(0.5 * np.eye(2), (3, 2, 2)))


def test_balanced_heads_are_balanced_in_every_layer():
    merged = MergedStack.init(jr.key(0), 3, 2, heads=2, scale=0.3, scheme="balanced")
    products = np.einsum("lhab,lkab->lhk", merged.key_query, merged.key_query)
    np.testing.assert_allclose(
        products, merged.value[:, :, None] * merged.value[:, None, :], atol=1e-15
    )
    separate = SeparateStack.init(jr.key(0), 3, 2, heads=2, scale=0.3, scheme="balanced")
    norms = np.sum(np.asarray(separate.K) ** 2, (2, 3))
    np.testing.assert_allclose(norms, np.asarray(separate.value) ** 2, rtol=1e-12)
    assert not np.allclose(separate.value[0], separate.value[1])


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: ScalarStack.init(jr.key(0), 3, 0), "`depth` = 0: must be"),
        (lambda: FullStack.init(jr.key(0), 3, 2, spread=0.1, tied=True), "`spread` = 0.1: must be"),
        (lambda: FullStack(jnp.ones((3, 2, 2)), depth=2), "`gamma` holds weights for 3 layers"),
        (lambda: FullStack.init(jr.key(0), 3, 2).with_depth(3), "only a loop"),
        (lambda: MovingFullStack.init(jr.key(0), 3, 2, scheme="balanced"), "`scheme` = 'balanced'"),
        (lambda: SeparateStack.init(jr.key(0), 3, 2, rank=4), "`rank` = 4: must not exceed"),
        (lambda: ScalarStack(jnp.ones(2), 3, 2, normaliser="N"), "`normaliser` = 'N'"),
        (lambda: MovingFullStack(jnp.ones((2, 3, 3)), jnp.ones((1, 3, 3)), 2), "`move`"),
    ],
)
def test_bad_input_is_one_sentence(make, words, unchecked):
    with pytest.raises(InputError) as caught:
        make()
    assert words in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_weights_train_through_predictions():
    model, sequences = model_of("separate stack"), random_sequences()
    loss = lambda model: jnp.mean(sequences.squared_error(model.predict(sequences)))
    assert all(bool(jnp.any(leaf != 0)) for leaf in jax.tree.leaves(jax.grad(loss)(model)))


@pytest.mark.parametrize("kind", ["scalar stack", "separate stack", "moving full stack"])
def test_a_stack_comes_back_from_its_file(kind, tmp_path):
    model, sequences = model_of(kind), random_sequences()
    save_model(model, tmp_path / "model.safetensors")
    again = load_model(tmp_path / "model.safetensors")
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict(sequences), model.predict(sequences))


WEIGHTS = {
    "scalar": ScalarStack,
    "diagonal": DiagonalStack,
    "full": FullStack,
    "merged": MergedStack,
    "separate": SeparateStack,
}


@pytest.mark.parametrize("weights", WEIGHTS)
def test_configs_build_every_kind_of_stack(weights):
    heads = 2 if weights in ("merged", "separate") else 1
    model = {"kind": "linear_stack", "weights": weights, "heads": heads, "depth": 3, "tied": True}
    task = {"kind": "linear_regression", "eigenvalues": [0.5, 0.4], "context": 6}
    flow = {"kind": "adam", "learning_rate": 0.01, "steps": 3}
    config = parse_config({"task": task, "model": model, "flow": flow, "risk": {"kind": "sampled"}})
    made, equivalent = build_model(config, jr.key(0))
    assert type(made) is WEIGHTS[weights] and equivalent is None
    assert made.depth == 3 and made.tied and made.dim == 2
    count = sum(leaf.size for leaf in jax.tree.leaves(made))
    assert count == config.model.weight_count(2, 1)
