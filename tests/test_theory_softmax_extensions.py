"""Anisotropic inputs, several tasks, other lengths, and labels that are not linear."""

import numpy as np
import pytest
import scipy.optimize

from iclflow import theory
from iclflow.tasks import LinearRegression, MultiTaskRegression, isotropic

TASK = isotropic(5, 40, 0.1)


def correlated(context=30, **options) -> LinearRegression:
    """Four correlated inputs, the first with extra variance; β ~ N(0, I/4)."""
    places = np.arange(4)
    covariance = 0.5 ** np.abs(places[:, None] - places) + np.diag([1.0, 0, 0, 0])
    options = {"prior_covariance": np.eye(4) / 4, "noise": 0.1} | options
    return LinearRegression(covariance=covariance, context=context, **options)


def general(context=7) -> LinearRegression:
    """Inputs and priors that do not commute, a prior mean, and a noiseless query."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 3, 3))
    return LinearRegression(
        covariance=a @ a.T / 3 + 0.2 * np.eye(3),
        prior_covariance=b @ b.T / 3,
        prior_mean=rng.normal(size=3),
        context=context,
        noise=0.3,
        noisy_query=False,
    )


def sampled_step(task: LinearRegression, matrix, count: int, centre: bool):
    """Mean risk of (1/L) Σ y_l (x_l − x̄)·Γq, labels integrated out, and its standard error."""
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(np.asarray(task.covariance))
    length = task.contexts[0]
    x = rng.normal(size=(count, length, task.dim)) @ root.T
    q = rng.normal(size=(count, task.dim)) @ root.T
    shifted = x - x.mean(1, keepdims=True) if centre else x
    c = np.einsum("pld,de,pe->pl", shifted, matrix, q) / length
    miss = q - np.einsum("pl,pld->pd", c, x)
    second = np.asarray(task.weight_second_moment)
    risks = np.einsum("pd,de,pe->p", miss, second, miss) + float(task.noise) * np.sum(c**2, 1)
    risks = risks + float(task.query_noise)
    return risks.mean(), risks.std() / np.sqrt(count)


# Anisotropic inputs ---------------------------------------------------------------------------


def test_preconditioner_has_the_reference_values():
    task = correlated()
    values = np.linalg.eigvalsh(theory.debiased_matrix(task))[::-1]
    np.testing.assert_allclose(values, [1.724257, 1.152582, 0.610222, 0.379698], atol=6e-7)
    np.testing.assert_allclose(theory.debiased_matrix_optimum(task), 0.28538995, atol=5e-9)
    np.testing.assert_allclose(theory.optimal_loss(task), 0.28030345, atol=5e-9)
    eigenvalues = np.linalg.eigvalsh(np.asarray(task.covariance))
    shrunk = eigenvalues / (eigenvalues + (eigenvalues.sum() + 0.4) / 30)
    closed = 0.1 + np.mean(eigenvalues * (1 - 29 / 30 * shrunk))
    np.testing.assert_allclose(theory.debiased_matrix_optimum(task), closed, rtol=1e-13)


@pytest.mark.parametrize("task", [correlated(), correlated(context=2), general()])
def test_centred_steps_agree_with_sampled_contexts(task):
    rng = np.random.default_rng(1)
    for matrix in (theory.debiased_matrix(task), 0.3 * rng.normal(size=(task.dim, task.dim))):
        value, error = sampled_step(task, matrix, 40_000, centre=True)
        assert error < 0.02 * value
        assert abs(value - theory.debiased_matrix_risk(task, matrix)) < 4 * error


@pytest.mark.parametrize("task", [correlated(), general()])
def test_preconditioner_is_the_minimum(task):
    best = theory.debiased_matrix(task)
    loss = theory.debiased_matrix_risk(task, best)
    np.testing.assert_allclose(loss, theory.debiased_matrix_optimum(task), rtol=1e-14)
    rng = np.random.default_rng(2)
    for _ in range(5):
        change = rng.normal(size=best.shape)
        up, down = (theory.debiased_matrix_risk(task, best + s * change) for s in (1e-3, -1e-3))
        assert min(up, down) > loss
        # The slope at the minimum, against the curvature: rounding alone.
        np.testing.assert_allclose(up - loss, down - loss, rtol=1e-6)


def test_isotropic_preconditioner_is_the_debiased_step():
    task = TASK
    best = theory.debiased_optimum(TASK)
    np.testing.assert_allclose(theory.debiased_matrix(task), best.step * np.eye(5), atol=1e-14)
    np.testing.assert_allclose(theory.debiased_matrix_optimum(task), best.risk, rtol=1e-13)


@pytest.mark.parametrize("task", [correlated(), general()])
def test_one_anisotropic_head_is_the_brute_minimum(task):
    best = theory.one_head_matrix(task)
    covariance = np.asarray(task.covariance)
    scores = np.sum(best.key_query * (covariance @ best.key_query @ covariance))
    np.testing.assert_allclose(scores, 1, rtol=1e-13)
    np.testing.assert_allclose(best.mu * best.key_query, best.matrix, rtol=1e-13)
    loss = theory.softmax_matrix_loss(task, best.key_query[None], np.array([best.mu]))
    np.testing.assert_allclose(loss, best.loss, rtol=1e-12)
    size = task.dim**2

    def total(v):
        return theory.softmax_matrix_loss(task, v[:size].reshape(1, task.dim, task.dim), v[size:])

    start = np.append(0.3 * np.eye(task.dim).ravel(), 1.0)
    found = scipy.optimize.minimize(total, start, options={"gtol": 1e-9})
    np.testing.assert_allclose(found.fun, best.loss, rtol=1e-9)


def test_small_pair_of_matrices_reaches_the_preconditioned_step():
    task = correlated()
    target = theory.debiased_matrix(task)
    losses = []
    for size in (0.05, 0.02):
        heads = np.stack([size * target, -size * target])
        losses.append(theory.softmax_matrix_loss(task, heads, np.array([0.5, -0.5]) / size))
    # By the large-context loss, which counts L samples where the exact risk counts L − 1: at Γ*
    # it is tr(MΛ) + σ² − ⟨ΛMΛ, Γ*⟩.
    covariance = np.asarray(task.covariance)
    limit = np.trace(covariance) / 4 + 0.1 - np.sum(covariance @ covariance * target) / 4
    assert losses[1] < losses[0]
    np.testing.assert_allclose(losses[1], limit, rtol=1e-4)


def test_isotropic_matrices_have_the_scalar_loss():
    task = TASK
    omega, mu = np.array([0.3, -0.2]), np.array([1.0, -0.8])
    matrices = omega[:, None, None] * np.eye(5)
    np.testing.assert_allclose(
        theory.softmax_matrix_loss(task, matrices, mu),
        theory.softmax_large_context_loss(TASK, omega, mu),
        rtol=1e-13,
    )


# Several tasks --------------------------------------------------------------------------------


def two_tasks(**options) -> MultiTaskRegression:
    options = {"context": 48, "noise": 0.1} | options
    return MultiTaskRegression([[0, 1, 2, 3], [2, 3, 4, 5]], dim=6, **options)


def test_floors_of_two_tasks_have_the_reference_values():
    task = two_tasks()
    np.testing.assert_allclose(theory.task_floors(task), 0.103053, atol=6e-7)
    np.testing.assert_allclose(theory.task_floors(task), 5.4 / (47 + 5.4), rtol=1e-13)
    shared = theory.shared_steps(task, 2)
    np.testing.assert_allclose(shared.excess.mean(), 0.137794, atol=6e-7)
    profile = shared.profiles[0]
    np.testing.assert_allclose(profile[[0, 1, 4, 5]] / profile[2], 0.9225, atol=5e-5)
    enough = theory.shared_steps(task, 3)
    np.testing.assert_allclose(enough.excess, theory.task_floors(task), rtol=1e-13)


def test_floors_are_those_of_each_task_alone():
    task = MultiTaskRegression(
        [[0], [1, 2], [0, 2, 3]], context=9, noise=[0.3, 0.0, 1.0], signal=[2.0, 0.5, 0.1]
    )
    alone = [theory.debiased_matrix_optimum(task.part(i)) - float(task.noise[i]) for i in range(3)]
    np.testing.assert_allclose(theory.task_floors(task), alone, rtol=1e-12)


@pytest.mark.parametrize("heads", [2, 3])
def test_shared_steps_are_risks_of_centred_steps_and_a_minimum(heads):
    task = MultiTaskRegression(
        [[0, 1], [1, 2], [2, 3, 4]], context=20, noise=[0.1, 0.2, 0.5], signal=[0.5, 1.0, 0.2]
    )
    found = theory.shared_steps(task, heads)
    assert found.profiles.shape == (heads - 1, 5)
    diagonals = found.steps @ found.profiles
    risks = [
        theory.debiased_matrix_risk(task.part(i), np.diag(diagonals[i])) - float(task.noise[i])
        for i in range(3)
    ]
    np.testing.assert_allclose(found.excess, risks, rtol=1e-10)
    assert np.all(found.excess >= theory.task_floors(task) - 1e-12)

    def total(flat):
        steps, profiles = np.split(flat, [3 * (heads - 1)])
        rows = steps.reshape(3, -1) @ profiles.reshape(heads - 1, 5)
        parts = (task.part(i) for i in range(3))
        return sum(
            theory.debiased_matrix_risk(part, np.diag(row)) - float(part.noise)
            for part, row in zip(parts, rows)
        )

    best = np.concatenate([found.steps.ravel(), found.profiles.ravel()])
    np.testing.assert_allclose(total(best), found.excess.sum(), rtol=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(10):
        assert total(best + 1e-3 * rng.normal(size=len(best))) > total(best)


def test_number_of_heads_and_what_it_means():
    task = two_tasks()
    assert theory.heads_needed(task) == 3
    regimes = [theory.head_regime(task, heads) for heads in (1, 2, 3, 4, 9)]
    assert regimes == ["too few", "too few", "superposed", "separable", "separable"]
    twins = MultiTaskRegression([[0, 1], [0, 1], [2]], context=10)
    assert theory.heads_needed(twins) == 3
    # {0}, {1} and {0, 1} span two dimensions: three heads do for three tasks.
    dependent = MultiTaskRegression([[0], [1], [0, 1]], context=10)
    assert theory.heads_needed(dependent) == 3
    shared = theory.shared_steps(dependent, 3)
    np.testing.assert_allclose(shared.excess, theory.task_floors(dependent), rtol=1e-12)


def test_equal_disjoint_tasks_with_two_heads_pay_for_the_inputs_of_all():
    # One profile, by symmetry the same everywhere: a step in D = 6 dimensions for each task.
    task = MultiTaskRegression([[0, 1], [2, 3], [4, 5]], context=50, noise=0.0)
    shared = theory.shared_steps(task, 2)
    np.testing.assert_allclose(shared.excess, 7 / (50 + 6), rtol=1e-9)
    np.testing.assert_allclose(np.abs(shared.profiles), 6**-0.5, rtol=1e-4)
    np.testing.assert_allclose(theory.task_floors(task), 3 / (49 + 3), rtol=1e-12)


# Other lengths --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test_length", "step", "unnormalised", "retrained"),
    [
        (10, 0.709375, 0.689844, 0.645455),
        (20, 0.475, 0.475, 0.475),
        (40, 0.357813, 0.631250, 0.330769),
        (100, 0.287500, 5.787500, 0.207143),
        (1000, 0.245313, 926.88, 0.111858),
    ],
)
def test_steps_at_other_lengths_have_the_reference_values(
    test_length, step, unnormalised, retrained
):
    found = theory.length_transfer(isotropic(10, 20, 0.1), test_length)
    np.testing.assert_allclose(found.step, step, atol=6e-7)
    np.testing.assert_allclose(found.unnormalised, unnormalised, rtol=2e-6)
    np.testing.assert_allclose(found.retrained, retrained, atol=6e-7)
    task = isotropic(10, 20, 0.1)
    matrix = theory.optimal_matrix(task)
    for value, normalised in ((found.step, True), (found.unnormalised, False)):
        expected = theory.loss_at_other_context(task, matrix, np.array(test_length), normalised)
        np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_trained_heads_at_other_lengths_have_the_reference_values():
    task = isotropic(10, 20, 0.1)
    pair, head = theory.pair_optimum(task), theory.one_head_optimum(task)
    for length, of_pair, of_head in [
        (10, 0.723497, 0.894640),
        (40, 0.359003, 0.576567),
        (100, 0.279053, 0.473022),
        (1000, 0.229935, 0.377388),
    ]:
        found = theory.pair_loss(isotropic(10, length, 0.1), pair.w, pair.mu)
        np.testing.assert_allclose(found, of_pair, atol=6e-7)
        found = theory.kernel_regression_risk(isotropic(10, length, 0.1), head.omega, head.mu)
        np.testing.assert_allclose(found, of_head, atol=2e-6)


def test_endless_contexts_leave_the_bias():
    omega, mu = np.array([0.2, -0.3]), np.array([1.5, -1.0])
    limit = theory.infinite_length_loss(isotropic(4, 40, 0.1), omega, mu)
    tasks = [isotropic(4, length, 0.1) for length in (100_000, 200_000)]
    near, far = (theory.softmax_exact_loss(task, omega, mu) for task in tasks)
    # The approach is as 1/L: extrapolating removes it.
    np.testing.assert_allclose(2 * far - near, limit, atol=1e-8)


# Labels that are not linear -------------------------------------------------------------------


def hermite(x, degree):
    return np.polynomial.hermite_e.hermeval(x, [0] * degree + [1])


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_long_contexts_return_powers_of_hermite_components(degree):
    rng = np.random.default_rng(degree)
    omega, mu, q = np.array([0.5, -0.3]), np.array([1.2, 0.7]), 0.9
    # L → ∞: the average of f under the tilted law N(ωq, 1).
    z = rng.normal(size=400_000)
    values = sum(m * hermite(z + w * q, degree) for w, m in zip(omega, mu))
    expected = theory.hermite_gain(omega, mu, degree) * q**degree
    assert abs(values.mean() - expected) < 4 * values.std() / np.sqrt(len(z))


def test_opposite_heads_return_odd_components_alone():
    omega, mu = np.array([0.2, -0.2]), np.array([2.0, -2.0])
    gains = [theory.hermite_gain(omega, mu, k) for k in range(5)]
    np.testing.assert_allclose(gains, [0, 0.8, 0, 0.8 * 0.2**2, 0], atol=1e-15)


@pytest.mark.parametrize("degrees", [{2: 0.36}, {0: 0.4, 2: 0.2}])
def test_risk_with_components_agrees_with_sampled_labels(degrees):
    dim, length, noise, count, step = 4, 12, 0.2, 100_000, 0.7
    rng = np.random.default_rng(5)
    x = rng.normal(size=(count, length + 1, dim))
    y = np.einsum("pld,pd->pl", x, rng.normal(size=(count, dim)) / dim**0.5)
    for degree, variance in degrees.items():
        sign = rng.choice([-1.0, 1.0], size=(count, 1))
        scale = np.sqrt(variance / [1, 1, 2, 6][degree])
        y = y + sign * scale * hermite(x[..., 0], degree)
    y = y + noise**0.5 * rng.normal(size=y.shape)
    context = y[:, :-1] - y[:, :-1].mean(1, keepdims=True)
    predicted = step / length * np.einsum("pl,pld,pd->p", context, x[:, :-1], x[:, -1])
    errors = (y[:, -1] - predicted) ** 2
    error = errors.std() / np.sqrt(count)
    assert error < 0.01 * errors.mean()
    expected = theory.transfer_risk(isotropic(dim, length, noise), step, degrees)
    assert abs(errors.mean() - expected) < 4 * error


@pytest.mark.parametrize("degree", [2, 3])
def test_component_alone_makes_the_noise_that_theory_says(degree):
    dim, length, count = 3, 5, 400_000
    rng = np.random.default_rng(6)
    x = rng.normal(size=(count, length, dim))
    f = hermite(x[..., 0], degree) / [1, 1, 2, 6][degree] ** 0.5
    moments = np.einsum("pl,pld->pd", f - f.mean(1, keepdims=True), x) / length
    squares = np.sum(moments**2, 1)  # E over the query of the squared prediction at step 1
    error = squares.std() / np.sqrt(count)
    task = isotropic(dim, length, 0.0)
    with_it, without = (theory.transfer_risk(task, 1.0, c) for c in ({degree: 1.0}, {}))
    expected = with_it - without - 1
    assert abs(squares.mean() - expected) < 4 * error
    # Sharp enough to tell d + 2k(L − 1)/L from d + 2k.
    naive = (length - 1) / length**2 * (dim + 2 * degree)
    assert abs(naive - expected) > 6 * error


def test_components_are_worse_than_noise_of_the_same_variance():
    best = theory.transfer_optimum(TASK, {2: 0.36})
    found = scipy.optimize.minimize_scalar(lambda step: theory.transfer_risk(TASK, step, {2: 0.36}))
    np.testing.assert_allclose(best.step, found.x, rtol=1e-6)
    np.testing.assert_allclose(best.risk, found.fun, rtol=1e-13)
    assert best.risk > theory.debiased_optimum(isotropic(5, 40, 0.46)).risk
    # No component: the debiased step on a noisy linear task.
    np.testing.assert_allclose(
        theory.transfer_optimum(TASK, {}), theory.debiased_optimum(TASK), rtol=1e-13
    )
    # A constant is removed by centring, and missed at the query.
    constant = theory.transfer_risk(TASK, 0.8, {0: 0.5})
    np.testing.assert_allclose(constant, theory.debiased_risk(TASK, 0.8) + 0.5, rtol=1e-13)


def test_inputs_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="one context length"):
        theory.debiased_matrix(correlated(context=(3, 4)))
    with pytest.raises(ValueError, match="`key_query` has shape"):
        theory.softmax_matrix_loss(correlated(), np.zeros((2, 3, 3)), np.zeros(2))
    with pytest.raises(ValueError, match="`heads` = 1"):
        theory.shared_steps(two_tasks(), 1)
    with pytest.raises(ValueError, match="has 1 label: the regimes are about heads shared"):
        theory.head_regime(MultiTaskRegression([[0, 1]], context=10), 2)
    with pytest.raises(ValueError, match="at least 2"):
        theory.task_floors(two_tasks(context=1))
    with pytest.raises(ValueError, match="degrees other than 1"):
        theory.transfer_risk(TASK, 0.5, {1: 0.2})
