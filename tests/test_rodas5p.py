"""The implicit solver of gradient flow."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from iclflow.flows._solvers import Rodas5P, _jacobian, _largest_array


def solve(velocity, start, end: float, steps: int) -> np.ndarray:
    """The solution after equal steps."""
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: velocity(y)),
        Rodas5P(),
        0.0,
        end,
        end / steps,
        start,
        stepsize_controller=diffrax.ConstantStepSize(),
    )
    return np.asarray(solution.ys[-1])


def pendulum(y):
    return jnp.stack([y[1], -jnp.sin(y[0]) - 0.1 * y[1] ** 3])


def stiff(y):
    """A fast way onto the curve y₁ = cos y₀, 10⁶ times as fast as the way along it."""
    return jnp.stack([jnp.asarray(1.0), -1e6 * (y[1] - jnp.cos(y[0])) - jnp.sin(y[0])])


@pytest.mark.slow
def test_error_falls_with_the_fifth_power_of_the_step():
    start = jnp.asarray([1.0, 0.5])
    exact = solve_ivp(
        lambda t, y: np.asarray(pendulum(y)), (0, 2), start, "DOP853", rtol=1e-13, atol=1e-14
    ).y[:, -1]
    few, many = (np.max(np.abs(solve(pendulum, start, 2.0, n) - exact)) for n in (16, 32))
    assert np.log2(few / many) > 4.7  # 5 in the limit of small steps
    assert many < 1e-7


def test_stiffness_does_not_limit_the_step():
    start = jnp.asarray([0.0, 1.0])
    # An explicit solver would need a million steps. Order reduction leaves the fourth power.
    errors = [abs(solve(stiff, start, 1.0, n)[1] - np.cos(1.0)) for n in (5, 10)]
    assert errors[0] < 1e-5 and errors[1] < errors[0] / 8


def test_a_jacobian_is_found_some_columns_at_a_time():
    def velocity(y):  # not symmetric, and with an array of 100 numbers on its way
        return jnp.sum(jnp.sin(jnp.outer(y, jnp.arange(25.0))), 1) * jnp.roll(y, 1)

    start = jnp.asarray([0.3, -1.0, 0.7, 2.0])
    assert _largest_array(jax.make_jaxpr(velocity)(start)) == 100
    whole = jax.jacfwd(velocity)(start)
    for numbers in (1, 100, 250):  # one column at a time, one, and two
        columns = jax.jit(lambda y: _jacobian(velocity, y, numbers))
        np.testing.assert_allclose(columns(start), whole, rtol=1e-12, atol=1e-12)
        # Nothing as large as all columns together is made.
        assert _largest_array(jax.make_jaxpr(columns)(start)) <= max(100, numbers)
