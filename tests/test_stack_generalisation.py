"""Loops that run longer than they were trained, and stacks on contexts of other lengths."""

import jax.numpy as jnp
import numpy as np
import pytest

from iclflow.analysis import more_loops, other_contexts
from iclflow.errors import InputError
from iclflow.estimators import best_gradient_steps
from iclflow.models import DiagonalStack, ScalarStack
from iclflow.tasks import LinearRegression
from iclflow.theory import depth


def white(context=20, noise: float = 0.0) -> LinearRegression:
    return LinearRegression(
        np.ones(5), context, noise=noise, prior_covariance=np.eye(5) / 5, noisy_query=False
    )


def test_a_loop_trained_with_two_loops_diverges_at_ten():
    task = white()
    loop = best_gradient_steps(task, 2).stack(5)
    loops = [1, 2, 3, 4, 6, 8, 10]
    found = more_loops(loop, task, loops)
    # To the digits of the reference; docs/theory/depth.md.
    wanted = [0.23170, 0.09980, 0.05476, 0.03757, 0.05138, 0.32243, 4.857]
    assert np.allclose(found.losses, wanted, rtol=0, atol=5.1e-6 * np.array([1] * 6 + [100]))
    assert (found.best, found.breaks_at, found.of_zero) == (4, 10, pytest.approx(1.0))
    assert more_loops(loop, task, loops[:5]).breaks_at is None
    # Theory has its own spectrum. A step known to 1e-8 makes 1e-7 of the last one, which grows
    # as a high power of it.
    theirs = depth.more_loops(task, float(loop.gamma[0]), loops)
    assert np.allclose(found.losses, theirs, rtol=1e-11)


def test_the_order_of_loops_does_not_matter():
    loop = ScalarStack(jnp.array([0.74]), 5, 2)
    mixed, sorted_ = (more_loops(loop, white(), each) for each in ([12, 4, 10], [4, 10, 12]))
    assert (mixed.best, mixed.breaks_at) == (sorted_.best, sorted_.breaks_at) == (4, 10)


def test_loops_of_vectors_run_longer_too():
    loop = DiagonalStack(jnp.full((1, 5), 0.7), 1)
    found = more_loops(loop, white(noise=0.2), [1, 2, 3])
    same = more_loops(ScalarStack(jnp.array([0.7]), 5, 1), white(noise=0.2), [1, 2, 3])
    assert np.allclose(found.losses, same.losses, atol=1e-13)


def test_other_contexts_are_other_tasks():
    stack = ScalarStack(jnp.array([1.25, 0.51]), 5, 2)
    found = other_contexts(stack, white((10, 20), 0.1), [5, 40])
    for length, loss in zip((5, 40), found):
        # Signal and noise of the same polynomial, on the spectrum of theory.
        task = white(length, 0.1)
        assert loss == pytest.approx(depth.stack_risk(task, [1.25, 0.51]), rel=1e-12)


def test_only_loops_run_longer():
    with pytest.raises(InputError, match="loop"):
        more_loops(ScalarStack(jnp.array([1.2, 0.5]), 5, 2), white(), [3])
    with pytest.raises(InputError, match="loops"):
        more_loops(ScalarStack(jnp.array([1.2]), 5, 2), white(), [])
    # Vectors have an exact risk at four layers, but not at nine.
    with pytest.raises(InputError, match="kind"):
        more_loops(DiagonalStack(jnp.ones((1, 5)), 2), white(), [9])
