"""The polynomial that a stack applies, measured from its predictions."""

import dataclasses

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.analysis import applied_polynomial
from iclflow.errors import InputError
from iclflow.models import (
    Attention,
    AttentionStack,
    DiagonalStack,
    FullStack,
    MovingScalarStack,
    ScalarStack,
    first_layers,
)
from iclflow.tasks import LinearRegression

GAMMAS = (0.5, 1.2)


@pytest.mark.parametrize("tokens", [False, True])
def test_each_layer_adds_a_factor(tokens):
    task = LinearRegression([0.7, 0.3], context=5)
    stack = DiagonalStack(jnp.outer(jnp.array(GAMMAS), jnp.array([1.0, 2.0])), depth=2)
    found = applied_polynomial(stack.to_attention() if tokens else stack, task)
    factors = 1 - np.multiply.outer(np.outer(GAMMAS, (0.7, 0.6)), found.levels)
    np.testing.assert_allclose(found.values, np.cumprod(factors, axis=0), atol=1e-13)
    assert np.all(found.mixing < 1e-13) and np.all(found.scatter < 1e-13)
    wanted = np.outer((0.7, 0.6), GAMMAS[::-1])
    # Zeros of a quadratic from nine values with rounding errors.
    np.testing.assert_allclose(found.steps(), wanted, rtol=1e-10)


def test_moved_inputs_make_a_polynomial_of_higher_degree():
    task = LinearRegression(np.ones(2), context=6)
    a, b, move = 0.3, 0.5, 0.4
    stack = MovingScalarStack(jnp.array([a, b]), jnp.array([move, 0.0]), 2, depth=2)
    found = applied_polynomial(stack, task)
    s = found.levels
    wanted = (1 - a * s) * (1 - b * s * (1 - a * move * s) ** 2)
    np.testing.assert_allclose(found.values[-1], [wanted, wanted], atol=1e-13)
    assert found.steps(degree=4).shape == (2, 4)


def test_attention_that_is_no_descent_scatters_and_mixes():
    task = LinearRegression([0.7, 0.3], context=5)
    model = AttentionStack.init(jr.key(0), 2, 1, 2, scale=0.8)
    found = applied_polynomial(model, task)
    assert found.scatter[-1] > 1e-3 and found.mixing[-1] > 1e-3


def test_the_lower_layers_of_a_loop_are_the_loop():
    loop = FullStack.init(jr.key(0), 2, 3, 0.4, tied=True)
    assert first_layers(loop, 2).tied and first_layers(loop, 2).depth == 2
    stack = ScalarStack(jnp.array([0.1, 0.2, 0.3]), 2, depth=3)
    np.testing.assert_array_equal(first_layers(stack, 2).gamma, [0.1, 0.2])
    assert dataclasses.replace(stack, depth=3).depth == first_layers(stack, 3).depth


def test_bad_input_is_refused():
    task = LinearRegression([0.7, 0.3], context=5)
    stack = ScalarStack(jnp.array(GAMMAS), 2, depth=2)
    with pytest.raises(InputError, match="`count` = 3: must"):
        first_layers(stack, 3)
    with pytest.raises(InputError, match="`levels` = .*two or more numbers"):
        applied_polynomial(stack, task, levels=np.array([-1.0, 2.0]))
    with pytest.raises(InputError, match="`degree` = 9: must be below the 9 levels"):
        applied_polynomial(stack, task).steps(degree=9)


def test_only_stacks_have_layers(unchecked):
    task = LinearRegression([0.7, 0.3], context=5)
    with pytest.raises(TypeError, match="Attention has no layers"):
        applied_polynomial(Attention.merged(jr.key(0), 2, 1), task)
