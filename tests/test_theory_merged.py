"""Merged key-query attention: landscape, dynamics, the drop, rich to lazy.

The reference everywhere is gradient flow of the weights themselves: automatic differentiation of
the population loss, written out here once more, through SciPy's ODE solver.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.optimize

from iclflow import theory
from iclflow.tasks import LinearRegression
from iclflow.theory._optimum import loss_of_matrix, loss_slope, optimal_loss, optimal_matrix

FOUR = LinearRegression([0.4, 0.3, 0.2, 0.1], 31)
EIGHT = LinearRegression([(9 - d) / 36 for d in range(1, 9)], 31)


def general_task(dim: int, context: int = 9) -> LinearRegression:
    """Λ and M that do not commute, with noise."""
    a, b = np.random.default_rng(0).normal(size=(2, dim, dim))
    return LinearRegression(
        covariance=a @ a.T / dim + 0.2 * np.eye(dim),
        prior_covariance=b @ b.T / dim,
        context=context,
        noise=0.2,
    )


def gaussian(seed: int, heads: int, dim: int, scale: float):
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=heads), scale * rng.normal(size=(heads, dim, dim))


def deterministic(scale: float = 1e-3):
    h, d = np.arange(3), np.arange(4)
    return (
        scale * np.cos(1 + h),
        scale * np.sin(1 + h[:, None, None] + 2 * d[:, None] + 3 * d),
    )


class Numbers(NamedTuple):
    """What the loss of a task is made of."""

    covariance: np.ndarray
    signal: np.ndarray
    second: np.ndarray
    base: np.ndarray


def numbers_of(task: LinearRegression) -> Numbers:
    """For one context length and division by N."""
    n, covariance = task.contexts[0], np.asarray(task.covariance)
    weight, noise = np.asarray(task.weight_second_moment), np.asarray(task.noise)
    signal = covariance @ weight @ covariance
    power = np.trace(covariance @ weight)
    second = (1 + 1 / n) * signal + (power + noise) / n * covariance
    return Numbers(covariance, signal, second, power + np.asarray(task.query_noise))


def loss_of(numbers: Numbers, v, U):
    """L(v, U), of arrays of NumPy and of JAX alike."""
    covariance, signal, second, base = numbers
    A = (v[:, None, None] * U).sum(0)
    return base - 2 * (signal @ A).trace() + (covariance @ A.T @ second @ A).trace()


def population_loss(task: LinearRegression):
    return functools.partial(loss_of, numbers_of(task))


# Compiled once for all tasks with weights of one shape.
@functools.partial(jax.jit, static_argnums=2)
def velocity(state, numbers: Numbers, heads: int):
    """−½ ∂L/∂W of flattened weights."""
    return -0.5 * jax.grad(flat_loss)(state, numbers, heads)


@functools.partial(jax.jit, static_argnums=2)
def derivatives_of(state, numbers: Numbers, heads: int):
    return tuple(of(flat_loss)(state, numbers, heads) for of in (jax.grad, jax.hessian))


def flat_loss(state, numbers: Numbers, heads: int):
    dim = len(numbers.covariance)
    return loss_of(numbers, state[:heads], state[heads:].reshape(heads, dim, dim))


def flow(task, v, U, times):
    """v(t), U(t) and the loss of the full gradient flow τ dW/dt = −½ ∂L/∂W, τ = 1."""
    numbers, heads = numbers_of(task), len(v)
    given = jax.device_put(numbers)  # once, not at every step
    solution = scipy.integrate.solve_ivp(
        lambda _, state: np.asarray(velocity(state, given, heads)),
        (0.0, times[-1]),
        np.concatenate([v, U.ravel()]),
        method="DOP853",
        t_eval=times,
        rtol=1e-12,
        atol=1e-14 * max(np.max(np.abs(v)), np.max(np.abs(U))),
    )
    v_t = solution.y.T[:, :heads]
    U_t = solution.y.T[:, heads:].reshape(-1, *U.shape)
    return v_t, U_t, np.array([loss_of(numbers, *point) for point in zip(v_t, U_t)])


def matrices(v_t, U_t):
    return np.einsum("th,thde->tde", v_t, U_t)


def gradient_and_hessian(task, heads: int):
    """The norm of the gradient, and the Hessian, as functions of (v, U)."""
    numbers = numbers_of(task)

    def evaluate(v, U):
        gradient, hessian = derivatives_of(np.concatenate([v, U.ravel()]), numbers, heads)
        return np.linalg.norm(gradient), np.asarray(hessian)

    return evaluate


def signature(matrix):
    """How many eigenvalues are negative, and how many zero."""
    values = np.linalg.eigvalsh(matrix)
    zero = 1e-10 * np.max(np.abs(values))
    return int(np.sum(values < -zero)), int(np.sum(np.abs(values) <= zero))


# The landscape.


@pytest.mark.parametrize("task", [LinearRegression([0.5, 0.3, 0.2], 31), general_task(3)])
def test_hessian_has_the_predicted_index_and_nullity(task):
    heads = 4
    saddles, minima = theory.merged_stationary_sets(task, heads)
    loss = population_loss(task)
    derivatives = gradient_and_hessian(task, heads)
    for seed in range(4):
        v, U = theory.merged_saddle_point(task, gaussian(seed, heads, 3, 0.3 * seed)[1])
        slope, hessian = derivatives(v, U)
        assert slope < 1e-14
        assert signature(hessian) == (saddles.hessian_index, saddles.hessian_nullity)
        np.testing.assert_allclose(loss(v, U), saddles.loss, rtol=1e-13)
        assert theory.merged_stationary_set_of(task, v, U) == "saddles"
    points = [theory.merged_minimum_point(task, np.array([1.0, -2.0, 0.0, 0.5]))]
    # A minimum that is far from balanced: one head makes up for all the others.
    v, U = gaussian(1, heads, 3, 1.0)
    U[0] += (optimal_matrix(task) - np.einsum("h,hde->de", v, U)) / v[0]
    points.append((v, U))
    for v, U in points:
        slope, hessian = derivatives(v, U)
        assert slope < 1e-12
        assert signature(hessian) == (0, minima.hessian_nullity)
        np.testing.assert_allclose(loss(v, U), minima.loss, rtol=1e-12)
        assert theory.merged_stationary_set_of(task, v, U) == "minima"
    assert (saddles.hessian_index, minima.hessian_nullity) == (4, 31)


def test_random_searches_find_no_other_stationary_point():
    task, heads = general_task(2), 2
    numbers = jax.device_put(numbers_of(task))
    slope, curvature = (lambda s, i=i: derivatives_of(s, numbers, heads)[i] for i in (0, 1))
    rng = np.random.default_rng(0)
    found = []
    for _ in range(40):
        root = scipy.optimize.least_squares(
            lambda s: np.asarray(slope(s)),
            rng.normal(size=heads * 5),
            jac=lambda s: np.asarray(curvature(s)),
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
        )
        if np.linalg.norm(root.fun) < 1e-10:
            v, U = root.x[:heads], root.x[heads:].reshape(heads, 2, 2)
            found.append(theory.merged_stationary_set_of(task, v, U, 1e-6))
    assert len(found) > 30
    assert set(found) == {"saddles", "minima"}
    v, U = gaussian(0, heads, 2, 1.0)
    assert theory.merged_stationary_set_of(task, v, U) is None


def test_escape_rates_are_the_negative_curvatures():
    task = general_task(3)
    v, U = theory.merged_saddle_point(task, gaussian(5, 4, 3, 1.0)[1])
    _, hessian = gradient_and_hessian(task, 4)(v, U)
    curvature = np.linalg.eigvalsh(hessian / 2)
    rates = theory.merged_escape_rates(task, U)
    np.testing.assert_allclose(rates, -curvature[:4], rtol=1e-11)
    origin = theory.merged_escape_rates(task, 0 * U)
    np.testing.assert_allclose(origin, theory.growth_rate(task), rtol=1e-13)
    assert np.all(rates <= origin[0])


# Early times, conservation, white inputs.


def test_every_entry_of_the_conserved_matrix_stays():
    v, U = gaussian(0, 5, 3, 0.3)
    v_t, U_t, loss = flow(general_task(3), v, U, np.linspace(0, 30, 7))
    assert loss[-1] < 0.9 * loss[0]
    start = theory.merged_conserved(v, U)
    for now in zip(v_t, U_t):
        # The solver keeps about ten digits of weights of order one.
        np.testing.assert_allclose(theory.merged_conserved(*now), start, atol=1e-10)


@pytest.mark.parametrize("task", [FOUR, general_task(4)])
def test_early_weights_follow_the_flow_until_the_drop(task):
    v, U = gaussian(3, 5, 4, 1e-4)
    half = theory.drop_time(task, v, U) / 2
    times = np.linspace(0, half, 5)
    v_t, U_t, _ = flow(task, v, U, times)
    early_v, early_U = theory.early_weights(task, v, U, times)
    A, early_A = matrices(v_t, U_t), matrices(early_v, early_U)
    sizes = np.linalg.norm(A, axis=(1, 2))
    errors = np.linalg.norm(A - early_A, axis=(1, 2)) / sizes
    # The neglected force C A Λ, relative to the force S, is the relative error it leaves in A.
    zero = np.zeros((4, 4))
    force = loss_slope(task, zero)
    neglected = np.array([np.linalg.norm(loss_slope(task, a) - force) for a in A])
    neglected /= np.linalg.norm(force)
    # The solver adds some 1e-11.
    assert np.all(errors < 1.5 * neglected + 1e-10)
    assert errors[-1] > 0.3 * neglected[-1]
    assert sizes[-1] > 30 * sizes[0]
    # In the end A is (Σ p²) e^{2gt} Ê alone, up to the rest of the initial weights.
    rate, direction = theory.unstable_direction(task)
    size = np.sum(theory.growing_amplitudes(task, v, U) ** 2) * np.exp(2 * rate * half)
    assert np.linalg.norm(A[-1] - size * direction) < 0.1 * size


@pytest.mark.parametrize(
    ("start", "eigenvalue", "times", "expected"),
    [
        (
            1e-4,
            1.0,
            [0.5, 1, 1.5, 2, 2.5, 3, 3.5],
            [0.000738357781718, 0.005426041685032, 0.038541685097694, 0.221458091799842]
            + [0.619104232586544, 0.817845178378030, 0.854989765150729],
        ),
        (
            1e-3,
            0.25,
            [10, 20, 30, 40, 60],
            [0.012143071109924, 0.142322145746674, 1.185893027464794, 2.978767377858579]
            + [3.440820030356702],
        ),
    ],
)
def test_white_strength_reference_values(start, eigenvalue, times, expected):
    task = LinearRegression([eigenvalue] * 4, 31)
    # The references carry 15 decimals.
    np.testing.assert_allclose(
        theory.white_strength(task, np.asarray(times), start), expected, rtol=1e-11
    )


@pytest.mark.parametrize(
    ("dim", "context", "eigenvalue", "noise", "prior"),
    [(4, 31, 1.0, 0.0, 1.0), (4, 31, 0.25, 0.0, 1.0), (3, 7, 0.7, 0.4, 1.0), (2, 5, 1.3, 0.2, 2.5)],
)
def test_white_closed_form_is_the_flow_of_many_heads(dim, context, eigenvalue, noise, prior):
    task = LinearRegression(
        [eigenvalue] * dim, context, noise=noise, prior_covariance=prior * np.eye(dim)
    )
    v = np.array([0.01, -0.02, 0.015])
    U = v[:, None, None] * np.eye(dim) / np.sqrt(dim)
    start = theory.white_initial_strength(task, v, U)
    np.testing.assert_allclose(start, np.sum(v**2) / np.sqrt(dim), rtol=1e-13)
    times = np.linspace(0, 2 * theory.white_drop_time(task, start), 20)
    v_t, U_t, loss = flow(task, v, U, times)
    strength = theory.white_strength(task, times, start)
    # The error of the solver over the whole course.
    np.testing.assert_allclose(
        matrices(v_t, U_t), strength[:, None, None] * np.eye(dim), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(theory.white_loss(task, times, start), loss, rtol=1e-10)


def test_white_closed_form_predicts_generic_small_weights():
    task = LinearRegression([0.25] * 4, 31)
    errors = []
    for scale in (1e-2, 1e-3):
        v, U = gaussian(1, 8, 4, scale)
        start = theory.white_initial_strength(task, v, U)
        times = np.linspace(0, 1.6 * theory.white_drop_time(task, start), 60)
        *_, loss = flow(task, v, U, times)
        errors.append(np.max(np.abs(theory.white_loss(task, times, start) - loss)))
    # What the closed form leaves out shrinks with the weights.
    assert errors[0] < 0.03 and errors[1] < errors[0] / 5


# The reduced flow.


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("imbalance", [0.0, 0.7, -0.7])
@pytest.mark.parametrize("task", [FOUR, general_task(4)], ids=["aligned", "general"])
def test_reduced_flow_is_the_flow_of_heads_that_are_multiples(task, imbalance):
    rng = np.random.default_rng(2)
    share = rng.normal(size=5)
    share /= np.linalg.norm(share)
    omega = np.diag([0.3, 0.2, 0.1, 0.25]) if task is FOUR else 0.2 * rng.normal(size=(4, 4))
    if imbalance < 0:
        omega *= np.sqrt(1 + np.sum(omega**2)) / np.linalg.norm(omega)
    nu = np.sqrt(np.sum(omega**2) + imbalance)
    v, U = share * nu, share[:, None, None] * omega
    times = np.linspace(0, 60, 13)
    v_t, U_t, loss = flow(task, v, U, times)
    start = theory.reduced_start(v, U)
    np.testing.assert_allclose(start.imbalance, imbalance, atol=1e-14)
    runs = [(theory.reduced_flow(task, times, *start), matrices(v_t, U_t))]
    if task is FOUR:
        diagonal = np.diagonal(matrices(v_t, U_t), axis1=1, axis2=2)
        runs.append((theory.reduced_flow(task, times, np.diag(start.matrix), imbalance), diagonal))
    for run, expected in runs:
        # Two adaptive solvers, each to about ten digits.
        np.testing.assert_allclose(run.matrix, expected, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(run.loss, loss, rtol=1e-9)
    assert loss[-1] < optimal_loss(task) + 0.3 * (loss[0] - optimal_loss(task))


def test_reduced_flow_in_rotated_coordinates_is_the_same():
    turn, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))
    task = LinearRegression(covariance=turn @ FOUR.covariance @ turn.T, context=31)
    times, start = np.linspace(0, 40, 5), np.array([0.1, 0.2, 0.3, 0.05])
    expected = theory.reduced_flow(FOUR, times, start)
    rotated = theory.reduced_flow(task, times, start)
    full = theory.reduced_flow(task, times, turn @ np.diag(start) @ turn.T)
    for run in (rotated, full):
        np.testing.assert_allclose(run.loss, expected.loss, rtol=1e-9)
    np.testing.assert_allclose(rotated.matrix, expected.matrix, rtol=1e-8)


def test_reduced_flow_predicts_the_loss_curve_of_small_weights():
    times = np.array([20.0, 30, 35, 40, 45, 50, 60, 80, 120])
    # The flow of these weights, known to 1e-9.
    expected = [0.9997946491, 0.9912494756, 0.9458892676, 0.7445084936, 0.4344672350]
    expected += [0.3068484417, 0.2268428374, 0.1812130195, 0.1558582380]
    start = theory.growing_start(FOUR, *deterministic())
    run = theory.reduced_flow(FOUR, times, *start)
    # Weights of size 1e-3: the rest that does not grow shifts the drop by about 3e-3 in time.
    np.testing.assert_allclose(run.loss, expected, atol=5e-4)
    assert np.max(np.abs(run.loss - expected)) > 1e-7


# The time of the drop, and the tail.


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (FOUR, [-1.356011030, 0.990358967, 7.925213807]),
        (EIGHT, [-0.492679521, 1.849635802, 8.136218396]),
    ],
    ids=["four", "eight"],
)
def test_drop_constants_reference_values(task, expected):
    constants = [theory.drop_constant(task, fraction) for fraction in (0.1, 0.5, 0.9)]
    # The references are good to 2e-9.
    np.testing.assert_allclose(constants, expected, atol=3e-9)


def test_drop_constant_of_white_inputs_is_closed_form():
    task = LinearRegression([0.7] * 3, 7, noise=0.4)
    for fraction in (0.01, 0.5, 0.99):
        x = 1 - np.sqrt(1 - fraction)
        expected = np.log(x / (1 - x)) + np.log(np.sqrt(3) * optimal_matrix(task)[0, 0])
        np.testing.assert_allclose(theory.drop_constant(task, fraction), expected, atol=1e-8)


def test_growth_rates_reference_values():
    np.testing.assert_allclose(theory.growth_rate(FOUR), 0.188148877222268, rtol=1e-13)
    np.testing.assert_allclose(theory.growth_rate(EIGHT), 0.072267712802272, rtol=1e-13)


def half_drop_of_flow(task, v, U, near):
    """When the full flow has lost half of L(A = 0) − L*."""
    half = (loss_of_matrix(task, np.zeros((task.dim, task.dim))) + optimal_loss(task)) / 2
    times = np.concatenate([[0.0], np.linspace(0.97 * near, 1.03 * near, 400)])
    *_, loss = flow(task, v, U, times)
    curve = scipy.interpolate.CubicSpline(times[1:], loss[1:] - half)
    return scipy.optimize.brentq(curve, times[1], times[-1], xtol=1e-12)


def test_drop_time_of_the_deterministic_weights():
    predicted = theory.drop_time(FOUR, *deterministic())
    np.testing.assert_allclose(predicted, 42.59779, atol=5e-6)
    measured = half_drop_of_flow(FOUR, *deterministic(), predicted)
    # The spline through 400 points adds less than 1e-6.
    np.testing.assert_allclose(measured, 42.60105590, atol=2e-6)


@pytest.mark.parametrize("task", [FOUR, general_task(3)], ids=["aligned", "general"])
def test_drop_time_becomes_exact_as_the_weights_shrink(task):
    errors = []
    for scale in (1e-2, 1e-4):
        v, U = gaussian(4, 4, task.dim, scale)
        predicted = theory.drop_time(task, v, U)
        errors.append(abs(half_drop_of_flow(task, v, U, predicted) - predicted) / predicted)
    assert errors[0] < 1e-2
    assert errors[1] < 2e-5


def test_drop_time_over_gaussian_weights():
    scale, heads, count = 1e-3, 6, 4000
    v, U = gaussian(0, heads * count, 4, scale)
    size = (theory.growing_amplitudes(FOUR, v, U) ** 2).reshape(count, heads).sum(1)
    rate = 2 * theory.growth_rate(FOUR)
    times = (theory.drop_constant(FOUR) - np.log(size)) / rate
    one = theory.drop_time(FOUR, v[:heads], U[:heads])
    np.testing.assert_allclose(times[0], one, rtol=1e-12)
    predicted = theory.gaussian_drop_time(FOUR, heads, scale)
    assert abs(times.mean() - predicted.mean) < 4 * times.std() / count**0.5
    # The standard deviation of 4000 draws of a slightly skewed variable is good to 2 %.
    np.testing.assert_allclose(times.std(), predicted.standard_deviation, rtol=0.06)


def test_tail_rates_reference_values():
    # The references carry four digits.
    np.testing.assert_allclose(
        theory.tail_rates(FOUR), [0.01813, 0.1042, 0.3131, 0.7027], rtol=5e-4
    )
    np.testing.assert_allclose(theory.tail_rates(EIGHT)[0], 0.00147, rtol=2e-3)


@pytest.mark.parametrize("task", [FOUR, general_task(3)], ids=["aligned", "general"])
def test_tail_rates_linearise_the_balanced_flow(task):
    loss = population_loss(task)

    def balanced(flat):
        A = flat.reshape(task.dim, task.dim)
        force = -0.5 * jax.grad(lambda a: loss(np.ones(1), a[None]))(A)
        size = jnp.linalg.norm(A)
        return (size * force + A * jnp.sum(A * force) / size).ravel()

    jacobian = jax.jit(jax.jacfwd(balanced))(optimal_matrix(task).ravel())
    rates = np.sort(-np.linalg.eigvals(np.asarray(jacobian)).real)
    np.testing.assert_allclose(theory.tail_rates(task, aligned=False), rates, rtol=1e-8)
    if task is FOUR:
        assert all(np.min(np.abs(rates - r)) < 1e-10 for r in theory.tail_rates(task))
    else:
        with pytest.raises(ValueError, match="do not commute"):
            theory.tail_rates(task)


def test_loss_decays_at_twice_the_slowest_tail_rate():
    times = np.array([0.0, 600.0, 700.0])
    excess = theory.reduced_flow(FOUR, times, 0.5 * np.ones(4)).loss - optimal_loss(FOUR)
    measured = np.log(excess[1] / excess[2]) / 100
    # By then the next mode is down by e^{-50}; rounding of the loss leaves 1e-5.
    np.testing.assert_allclose(measured, 2 * theory.tail_rates(FOUR)[0], rtol=1e-4)


# Rich to lazy.


@pytest.mark.parametrize(
    ("nu", "omega"),
    [(0.02, 0.0173), (0.5, 0.1), (0.1, 0.9), (17.0, 0.0), (0.0, 5.0), (0.4, -0.1), (0.1, 0.1)],
)
def test_white_interpolation_is_the_flow_of_many_heads(nu, omega):
    task = LinearRegression([0.7] * 3, 7, noise=0.4)
    share = np.array([0.6, -0.48, 0.64])
    v, U = share * nu, share[:, None, None] * omega * np.eye(3) / np.sqrt(3)
    # Large weights learn fast: follow each for a few of its own times.
    times = np.linspace(0, 12 / (1 + nu**2 + omega**2), 15)
    v_t, U_t, loss = flow(task, v, U, times)
    exact = theory.white_interpolation(task, times, nu, omega)
    # The error of the solver.
    np.testing.assert_allclose(exact.strength, matrices(v_t, U_t)[:, 0, 0], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(exact.loss, loss, rtol=1e-9)


def test_white_interpolation_is_a_sigmoid_when_balanced_and_an_exponential_when_not():
    task = LinearRegression([1.0] * 4, 31)
    optimum = optimal_matrix(task)[0, 0]
    times = np.linspace(0, 5, 30)
    near = theory.white_interpolation(task, times, 0.05 + 1e-12, 0.05).strength
    sigmoid = theory.white_strength(task, times, 0.05**2 / 2)
    np.testing.assert_allclose(near, sigmoid, rtol=1e-9)
    delta = 1e4 * theory.crossover_imbalance(task)
    rate = delta * 1.0 / optimum  # 2β = λC|δ|, and λC = λ²/a*
    times = np.linspace(0, 5, 30) / rate
    lazy_run = theory.white_interpolation(task, times, np.sqrt(delta), 0.0).strength
    # Corrections are of order (crossover/δ)².
    np.testing.assert_allclose(lazy_run, optimum * (1 - np.exp(-rate * times)), rtol=1e-6)


def test_frozen_kernel_is_the_jacobian_of_the_prediction():
    v, U = gaussian(0, 3, 4, 1.0)
    prediction = lambda v, U: jnp.einsum("h,hde->de", v, U).ravel()
    jacobian = jax.jit(jax.jacobian(prediction, (0, 1)))(v, U)
    flat = np.concatenate([np.asarray(part).reshape(16, -1) for part in jacobian], axis=1)
    np.testing.assert_allclose(theory.frozen_kernel(v, U), flat @ flat.T, rtol=1e-12, atol=1e-13)


def test_frozen_kernel_loss_is_the_matrix_exponential():
    task = general_task(3)
    v, U = gaussian(1, 2, 3, 0.8)
    times = np.array([0.0, 0.3, 2.0, 9.0])
    loss = population_loss(task)
    A = np.einsum("h,hde->de", v, U).ravel()

    def of_matrix(a):
        return loss(np.ones(1), a.reshape(1, 3, 3))

    optimum = optimal_matrix(task).ravel()
    curvature = np.asarray(jax.jit(jax.hessian(of_matrix))(A))
    generator = -theory.frozen_kernel(v, U) @ curvature / 2
    expected = [
        of_matrix(optimum + scipy.linalg.expm(t * generator) @ (A - optimum)) for t in times
    ]
    np.testing.assert_allclose(theory.frozen_kernel_loss(task, v, U, times), expected, rtol=1e-11)
    rates = np.sort(-np.linalg.eigvals(generator).real)
    np.testing.assert_allclose(theory.frozen_kernel_rates(task, v, U), rates, rtol=1e-9)


def test_large_paired_heads_follow_the_frozen_kernel():
    heads, deviations = 16, []
    for ratio in (1.0, 4.0, 16.0):
        scale = theory.crossover_scale(FOUR, heads) * np.sqrt(ratio)
        v, U = gaussian(2, heads // 2, 4, scale)
        v, U = np.concatenate([v, v]), np.concatenate([U, -U])  # A(0) = 0
        rates = theory.frozen_kernel_rates(FOUR, v, U)
        times = np.append(0.0, np.geomspace(0.01 / rates[-1], 1 / rates[0], 200))
        *_, loss = flow(FOUR, v, U, times)
        gap = np.abs(theory.frozen_kernel_loss(FOUR, v, U, times) - loss)
        deviations.append(np.max(gap) / (loss[0] - optimal_loss(FOUR)))
    # The size of it depends on Σ v² of the draw (.003 to .03 over seeds); for this one .0044.
    assert deviations[0] < 0.01
    # It falls as the square of H s²/‖A*‖: sixteenfold each time, up to higher orders.
    slopes = np.asarray(deviations[:-1]) / np.asarray(deviations[1:])
    np.testing.assert_allclose(slopes, 16, rtol=0.1)


def test_crossover_scale_and_imbalance():
    np.testing.assert_allclose(theory.crossover_imbalance(FOUR), 2 * 9.253477113005209, rtol=1e-13)
    np.testing.assert_allclose(16 * theory.crossover_scale(FOUR, 16) ** 2, 9.253477113005209)


def test_white_sharpness_is_the_ratio_of_crossing_times_of_the_loss():
    task = LinearRegression([0.25] * 4, 31)
    start = 1e-4
    zero, floor = loss_of_matrix(task, np.zeros((4, 4))), optimal_loss(task)

    def crossing(fraction):
        level = zero - fraction * (zero - floor)
        gap = lambda t: theory.white_loss(task, np.array([t]), start)[0] - level
        return scipy.optimize.brentq(gap, 0, 1e3, xtol=1e-12)

    np.testing.assert_allclose(
        theory.white_sharpness(task, start), crossing(0.1) / crossing(0.9), rtol=1e-10
    )
    scales = [theory.white_sharpness(task, s) for s in (1e-1, 1e-4, 1e-8)]
    assert 0 < scales[0] < scales[1] < scales[2] < 1


def test_other_normalisers_only_rescale_weights_and_time():
    # Un-normalised attention is normalised attention with weights √N larger, N times as fast.
    n = 31
    start = 0.3 * np.diag([1.0, 2.0, 3.0, 4.0])
    times = np.linspace(0, 20, 4)
    plain = theory.reduced_flow(FOUR, times, start)
    other = theory.reduced_flow(FOUR, times / n, start / n, normaliser="none")
    np.testing.assert_allclose(other.loss, plain.loss, rtol=1e-9)
    v, U = deterministic()
    np.testing.assert_allclose(
        n * theory.drop_time(FOUR, v / n**0.5, U / n**0.5, normaliser="none"),
        theory.drop_time(FOUR, v, U),
        rtol=1e-9,
    )


@pytest.mark.usefixtures("unchecked")
def test_formulas_refuse_what_they_do_not_cover():
    v, U = deterministic()
    with pytest.raises(ValueError, match="White input needed"):
        theory.white_strength(FOUR, [1.0], 1e-3)
    tilted = LinearRegression([1.0, 1.0], 9, prior_covariance=np.diag([1.0, 2.0]))
    with pytest.raises(ValueError, match="White input needed: M"):
        theory.white_interpolation(tilted, [1.0], 1.0, 0.5)
    white = LinearRegression([1.0, 1.0], 9)
    with pytest.raises(ValueError, match="never leave the saddle"):
        theory.white_interpolation(white, [1.0], 0.5, -0.5)
    with pytest.raises(ValueError, match="`initial_strength` = -1"):
        theory.white_loss(white, [1.0], -1.0)
    with pytest.raises(ValueError, match="starts below"):
        theory.white_sharpness(white, 0.7)
    with pytest.raises(ValueError, match="not multiples of one another"):
        theory.reduced_start(v, U)
    with pytest.raises(ValueError, match="would not move"):
        theory.reduced_flow(FOUR, [1.0], np.zeros((4, 4)))
    with pytest.raises(ValueError, match="do not commute"):
        theory.reduced_flow(general_task(3), [1.0], np.ones(3))
    with pytest.raises(ValueError, match="does not decrease"):
        theory.reduced_flow(FOUR, [2.0, 1.0], np.eye(4))
    with pytest.raises(ValueError, match="`fraction` = 1"):
        theory.drop_time(FOUR, v, U, 1.0)
    with pytest.raises(ValueError, match="no growing part"):
        theory.drop_time(FOUR, 0 * v, 0 * U)
    with pytest.raises(ValueError, match=r"`v` has shape \(3,\)"):
        theory.early_weights(EIGHT, v, U, [1.0])
    silent = LinearRegression([1.0, 1.0], 5, noise=0.1, prior_covariance=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="nothing to learn"):
        theory.merged_stationary_sets(silent, 3)
    with pytest.raises(ValueError, match="`heads` = 0"):
        theory.merged_stationary_sets(FOUR, 0)
