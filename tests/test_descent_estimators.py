"""Several steps of gradient descent: estimators, the best ones, and models recognised as them."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.analysis import AlgorithmWatch, which_algorithm
from iclflow.errors import InputError, Refusal
from iclflow.estimators import (
    GradientStep,
    GradientSteps,
    MomentumSteps,
    MovingSteps,
    PreconditionedSteps,
    best_gradient_steps,
    chebyshev_steps,
)
from iclflow.models import FullStack, MovingScalarStack, ScalarStack
from iclflow.tasks import LinearRegression
from iclflow.theory.depth import optimal_stack, tied_loop

FOUR = (0.4, 0.3, 0.2, 0.1)


def white(noise: float = 0.0) -> LinearRegression:
    return LinearRegression(np.ones(3), (6, 9), noise=noise, prior_covariance=np.eye(3) / 3)


def descend(sequences, steps: int, size, matrix, momentum: float = 0.0) -> np.ndarray:
    """The predictions of steps, one after the other, in plain NumPy."""
    x, y = np.asarray(sequences.x), np.asarray(sequences.y)[..., 0]
    length = np.asarray(sequences.length)[:, None]
    w, before = np.zeros_like(x[:, 0]), np.zeros_like(x[:, 0])
    for step in range(steps):
        left = y - np.einsum("pnd,pd->pn", x, w)
        push = np.einsum("de,pne,pn->pd", matrix, x, left) / length
        w, before = w + np.broadcast_to(size, steps)[step] * push + momentum * (w - before), w
    return np.sum(w * np.asarray(sequences.x_query), -1)


@pytest.mark.parametrize(
    "estimator, size, momentum",
    [
        (GradientSteps(0.6, 3), 0.6, 0.0),
        (GradientSteps([0.4, 1.1, 0.7]), (0.4, 1.1, 0.7), 0.0),
        (MomentumSteps(0.5, 0.4, 3), 0.5, 0.4),
        (PreconditionedSteps(jnp.diag(jnp.array([1.0, 2.0, 3.0])), [0.4, 0.2, 0.3]),
         (0.4, 0.2, 0.3), 0.0),
    ],
)  # fmt: skip
def test_steps_are_those_made_one_by_one(estimator, size, momentum):
    sequences = white(0.2).sample(jr.key(0), 6)
    matrix = np.diag([1.0, 2.0, 3.0]) if hasattr(estimator, "matrix") else np.eye(3)
    wanted = descend(sequences, 3, size, matrix, momentum)
    # Rounding: predictions are about 1.
    assert np.max(np.abs(np.asarray(estimator.predict(sequences))[:, 0] - wanted)) < 1e-12


def test_exact_risks_are_those_of_sampling():
    task = white(0.1)
    matrix = jnp.diag(jnp.array([1.0, 0.8, 0.9]))
    for steps in (
        GradientSteps(0.6, 2),
        MomentumSteps(0.5, 0.3, 2),
        PreconditionedSteps(matrix, 0.6, 2),
        MovingSteps([0.4, 0.9], [0.3, 0.0]),
    ):
        exact, sampled = steps.exact_risk(task), steps.risk(task, jr.key(1), 4000)
        assert exact is not None
        assert abs(sampled.value - exact) < 4 * sampled.standard_error


def test_one_step_is_one_step():
    task = white(0.1)
    assert abs(GradientSteps(0.7).exact_risk(task) - GradientStep(0.7).exact_risk(task)) < 1e-13


def test_the_best_steps_are_those_of_theory():
    task = LinearRegression(np.ones(5), 20, prior_covariance=np.eye(5) / 5)
    for steps in (2, 3):
        loop, own = (best_gradient_steps(task, steps, own) for own in (False, True))
        # The risk is flat there: steps are found to the root of its rounding.
        assert abs(loop.step_sizes[0] - tied_loop(task, steps).step) < 1e-7
        best = optimal_stack(task, steps)
        assert np.max(np.abs(np.sort(own.step_sizes) - best.steps)) < 1e-7
        assert abs(own.exact_risk(task) - best.risk) < 1e-13


def test_chebyshev_steps_leave_the_same_at_both_ends():
    steps = chebyshev_steps(0.5, 2.0, 3)
    levels = np.linspace(0.5, 2.0, 2001)
    left = np.prod(1 - np.asarray(steps.step_sizes)[:, None] * levels, 0)
    # 1/T_3(m) with m = (a + b)/(b − a), reached at both ends.
    wanted = 1 / np.polynomial.chebyshev.chebval(2.5 / 1.5, [0, 0, 0, 1])
    assert np.max(np.abs(left)) == pytest.approx(wanted, rel=1e-12)
    assert abs(left[0]) == pytest.approx(abs(left[-1]), rel=1e-12)


def test_two_positive_steps_are_two_with_momentum():
    first, second = 1.3, 0.5
    size = np.sqrt(first * second)
    heavy = MomentumSteps(size, size * (1 / first + 1 / second) - 2, 2)
    assert np.allclose(heavy.stack(3).gamma, [first, second], rtol=1e-13)


def trained(*sizes: float, moves=None):
    gamma = jnp.asarray(sizes)
    if moves is not None:
        return MovingScalarStack(gamma, jnp.asarray(moves), 3, len(sizes))
    return ScalarStack(gamma, 3, len(sizes))


@pytest.mark.parametrize(
    "model, name, numbers",
    [
        (trained(1.25, 0.5), "2 steps of gradient descent, own step sizes", {"η": (1.25, 0.5)}),
        (ScalarStack(jnp.array([0.7]), 3, 2), "2 steps of gradient descent", {"η": (0.7,)}),
        (trained(0.5, 2.0, moves=(0.8, 0.0)), "2 steps of GD++", {"η": (0.5, 2.0), "b": (0.8,)}),
    ],
)
def test_a_stack_is_recognised(model, name, numbers):
    found = AlgorithmWatch(white(), steps=2, count=300).look(model)
    assert found is not None
    assert found[0].best.name == name
    assert found[0].best.distance < 1e-6
    for letter, values in numbers.items():
        assert np.allclose(found[0].best.estimator.numbers[letter], values, atol=1e-5)
        assert f"{letter} = {values[0]:.3g}" in str(found[0].best)


@pytest.mark.slow
def test_deeper_and_preconditioned_stacks_are_recognised():
    heavy = MomentumSteps(0.5, 0.3, 3)
    found = which_algorithm(heavy.stack(3), white(0.1), count=500)
    assert found.best.name == heavy.name and found.best.distance < 1e-6
    task = LinearRegression(FOUR, 31, noise=0.1)
    gamma = jnp.array([0.5, 1.2])[:, None, None] * jnp.diag(1 / jnp.array(FOUR))
    found = which_algorithm(FullStack(gamma, 2), task, count=500)
    assert found.best.name == "2 steps of preconditioned gradient descent, own step sizes"
    assert found.best.distance < 1e-6


def test_one_layer_is_not_compared_with_several_steps():
    watch = AlgorithmWatch(white(), count=300)
    found = watch.look(ScalarStack(jnp.array([0.7]), 3, 1))
    assert found is not None and not any("steps" in match.name for match in found[0].matches)


def test_bad_steps_are_refused():
    with pytest.raises(InputError, match="steps"):
        GradientSteps([0.1, 0.2], 3)
    with pytest.raises(InputError, match="momentum"):
        MomentumSteps(0.1, -0.2, 3)
    with pytest.raises(InputError, match="moves"):
        MovingSteps([0.1, 0.2], 0.3)
    with pytest.raises(InputError, match="highest"):
        chebyshev_steps(1.0, 0.5, 2)
    with pytest.raises(InputError, match="matrix"):
        PreconditionedSteps(jnp.eye(2)).predict(white().sample(jr.key(0), 2))
    with pytest.raises(Refusal, match="steps"):
        best_gradient_steps(LinearRegression(FOUR, 31), 9)
