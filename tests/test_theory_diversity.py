"""K tasks in the population: statics, dynamics, the full form, and what other heads see."""

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize

from diversity_tasks import draw_data, few_tasks, fresh, vectors
from helpers import random_covariance
from iclflow import theory
from iclflow.errors import Refusal
from iclflow.tasks import LinearRegression, Mixture
from iclflow.theory import Setting, diversity

FOUR = (0.4, 0.3, 0.2, 0.1)


def near(found, expected, digits=11.5):
    """Agreement to the digits that a reference value shows (half a unit of the last, at 12)."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=10**-digits)


# Statics -----------------------------------------------------------------------------------------


def test_task_vectors_are_the_reference_ones():
    near(vectors(4, 1)[0], [0.382857594477, -0.463171120336, 0.534214273072, -0.594565123501])


def test_white_inputs_have_the_reference_values():
    task = few_tasks(3, 10, 0.1)
    found = diversity.components(task)
    near(found.variances, [0.561334896175, 0.353807761622, 0.084857342203])
    near(found.strengths, [0.771627890831, 0.708765796571, 0.417311194930])
    near(theory.plateau_losses(task), [1.1, 0.666858338015, 0.416091498015, 0.380679579142])
    levels = diversity.levels_on_test(task, fresh(task))
    near(levels, [1.1, 0.943418751319, 0.782440200473, 0.640831826873])


def test_matrices_that_do_not_commute_have_the_reference_values():
    task = few_tasks(3, 31, 0.1, FOUR)
    found = diversity.components(task)
    near(found.variances, [0.173168164674, 0.061358151460, 0.016449609919])
    levels = [0.350975926053, 0.193211625605, 0.142784883928, 0.133224103019]
    near(theory.plateau_losses(task), levels)
    tested = diversity.levels_on_test(task, fresh(task, 1.0))
    near(tested, [1.1, 0.799085818993, 0.643792901374, 0.462969197026])
    best = found.matrix()
    near(best[0], [1.526626421757, -0.788506019550, 0.636335549664, 0.819907970084])
    near(np.linalg.norm(best), 6.975503169966)
    near(best, theory.optimal_matrix(task), 14)


@pytest.mark.parametrize("normaliser", ["context", "tokens", "none"])
def test_components_are_those_of_the_landscape_for_every_normaliser(normaliser):
    rng = np.random.default_rng(0)
    task = LinearRegression(
        covariance=random_covariance(rng, 4), context=(3, 9), noise=0.3, noisy_query=False
    )
    task = diversity.with_tasks(task, rng.standard_normal((2, 4)))
    found, modes = diversity.components(task, normaliser), theory.modes(task, normaliser)
    assert found.count == modes.count == 2
    for chosen in ((0,), (1,), (0, 1)):
        near(found.matrix(chosen), modes.matrix(chosen), 12)
    A = rng.standard_normal((4, 4))
    second = np.asarray(task.weight_second_moment)
    risk = diversity.task_risk(task, A, normaliser)
    near(risk.mean(second), theory.loss_of_matrix(task, A, normaliser), 12)


def losses_of_draws(rng, task, rows, A, count):
    beta, query, label = draw_data(rng, task, rows, count)
    losses = (label - np.einsum("sd,de,se->s", beta, A, query)) ** 2
    return losses.mean(), losses.std(ddof=1) / count**0.5


@pytest.mark.parametrize("cases", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_one_operator_gives_the_loss_of_every_set_of_tasks(cases):
    rng = np.random.default_rng(1)
    for _ in range(cases):
        dim, count, length = rng.integers(2, 5), rng.integers(1, 4), int(rng.integers(1, 8))
        inputs = LinearRegression(covariance=random_covariance(rng, dim), context=length,
                                  noise=float(rng.uniform(0, 0.5)))  # fmt: skip
        rows, other = rng.standard_normal((2, count, dim))
        A = rng.standard_normal((dim, dim))
        risk = diversity.task_risk(inputs, A)
        for seen in (rows, other):
            mean, error = losses_of_draws(rng, inputs, seen, A, 4000)
            assert abs(risk.of(seen).mean() - mean) < 4 * error
            near(risk.mean(seen.T @ seen / count), risk.of(seen).mean(), 10)
        train, test = diversity.with_tasks(inputs, rows), diversity.with_tasks(inputs, other)
        expected = risk.mean(test.weight_second_moment) - risk.mean(train.weight_second_moment)
        near(diversity.task_gap(train, test, A), expected, 10)


def test_heads_of_few_tasks_end_at_the_levels_of_their_number():
    """Separate heads on two tasks, non-commuting: plain gradient flow in SciPy."""
    task, test = few_tasks(2, 5, 0.1, FOUR), fresh(few_tasks(2, 5, 0.1, FOUR))
    m_t = diversity.levels_on_test(task, test)
    rng = np.random.default_rng(2)
    for heads in (1, 2, 3):
        v, k, q = (0.1 * rng.standard_normal(shape) for shape in
                   (heads, (heads, 4), (heads, 4)))  # fmt: skip

        def loss(flat, heads=heads):
            v, k, q = flat[:heads], *flat[heads:].reshape(2, heads, 4)
            return np.einsum("h,hd,he->de", v, k, q)

        def slope(flat, heads=heads):
            v, k, q = flat[:heads], *flat[heads:].reshape(2, heads, 4)
            E = theory.loss_slope(task, loss(flat))
            return -2 * np.concatenate([np.einsum("hd,de,he->h", k, E, q),
                                        (v[:, None] * (q @ E.T)).ravel(),
                                        (v[:, None] * (k @ E)).ravel()])  # fmt: skip

        end = scipy.optimize.minimize(
            lambda flat: theory.loss_of_matrix(task, loss(flat)), np.concatenate(
                [v, k.ravel(), q.ravel()]), jac=slope, method="BFGS",
            options={"gtol": 1e-11, "maxiter": 3000})  # fmt: skip
        level = min(heads, 2)
        near(end.fun, theory.plateau_losses(task)[level], 9)
        # The test loss is not stationary there: first order in what is left of the gradient.
        near(theory.loss_of_matrix(test, loss(end.x)), m_t[level], 5)


def test_long_contexts_leave_what_no_task_shows():
    task = few_tasks(2, 31, 0.1, FOUR)
    test = fresh(task)
    limit = diversity.infinite_context_loss(task, test)
    long = [diversity.with_tasks(LinearRegression(FOUR, n, noise=0.1), vectors(4, 2))
            for n in (10**5, 10**6)]  # fmt: skip
    found = [diversity.levels_on_test(t, fresh(t))[-1] for t in long]
    # Off by a multiple of 1/N.
    near((10 * found[1] - found[0]) / 9, limit, 7)
    white = few_tasks(3, 10, 0.1, (1.0,) * 5)
    near(diversity.infinite_context_loss(white, fresh(white)), 0.1 + 1 - 3 / 5)


def test_the_threshold_is_that_of_random_tasks():
    rng, at = np.random.default_rng(3), Setting(10, 20, 0.1)
    inputs, count = LinearRegression(np.ones(10), 20, noise=0.1), 1000
    best = theory.optimal_loss(fresh(inputs))
    own, other = [], []
    for _ in range(40):
        rows = rng.standard_normal((count, 10))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        task = diversity.with_tasks(inputs, rows)
        own.append(best - theory.optimal_loss(task))
        other.append(diversity.levels_on_test(task, fresh(task))[-1] - best)
    expected = diversity.few_tasks_excess(at, count)
    near(expected * count / 9, 0.0738, 4)
    for found in (own, other):
        error = np.std(found, ddof=1) / 40**0.5
        # The next order in 1/K is d/K = 1 % of the first.
        assert abs(np.mean(found) - expected) < 4 * error + 0.02 * expected
    assert diversity.diversity_threshold(at, expected) == pytest.approx(count)


def test_alignment_has_the_reference_values():
    task = few_tasks(5, 16, 0.1, (1.0,) * 8)
    found = diversity.alignment(task, fresh(task))
    near(theory.optimal_loss(task), 0.386177489552)
    near(found.loss, 0.721570598020)
    near(found.within + found.constant, [0.364541, 0.379531, 0.386239, 0.388260, 0.442383], 6)
    near(found.outside + found.constant, 1.270537, 6)


def test_alignment_is_the_test_loss_for_any_inputs():
    rng = np.random.default_rng(4)
    inputs = LinearRegression(covariance=random_covariance(rng, 4), context=7, noise=0.2)
    task = diversity.with_tasks(inputs, rng.standard_normal((2, 4)))
    for _ in range(3):
        test = diversity.with_second_moment(inputs, random_covariance(rng, 4))
        loss = theory.loss_of_matrix(test, theory.optimal_matrix(task))
        near(diversity.alignment(task, test).loss, loss, 12)
        assert loss > theory.optimal_loss(test)


def test_matched_tasks_are_best_in_the_population_and_not_on_data():
    inputs, j = LinearRegression(np.ones(20), 40, noise=0.1), np.arange(1.0, 21)
    law = lambda p: diversity.with_second_moment(inputs, np.diag(j**-p / np.sum(j**-p)))
    powers, test = (0, 0.5, 0.8, 1, 1.2, 1.5, 2), law(1)
    expected = {
        0.5: [1.2476, 1.1282, 1.0754, 1.0515, 1.0360, 1.0254, 1.0275],
        1.5: [1.3952, 1.2420, 1.2188, 1.2225, 1.2355, 1.2621, 1.3018],
        4: [0.6201, 0.5586, 0.5449, 0.5433, 0.5481, 0.5666, 0.6177],
        20: [0.4896, 0.4435, 0.4314, 0.4290, 0.4323, 0.4494, 0.5025],
    }
    n = 400 * np.array([*expected])
    found = [diversity.data_risks(law(p), n, test=test).test for p in powers]
    near(found, np.transpose([*expected.values()]), 4.2)
    population = [diversity.levels_on_test(law(p), test)[-1] for p in powers]
    near(population, [0.4651, 0.4219, 0.4101, 0.4075, 0.4106, 0.4275, 0.4809], 4.2)


# Dynamics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["gaussian", "sphere"])
def test_few_tasks_lengthen_the_second_moment(law):
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((4000, 3, 6))
    if law == "sphere":
        rows *= 6**0.5 / np.linalg.norm(rows, axis=-1, keepdims=True)
    squares = np.sum((rows.transpose(0, 2, 1) @ rows / 3) ** 2, (1, 2))
    error = squares.std(ddof=1) / 4000**0.5
    assert abs(squares.mean() - diversity.mean_growth_of_few_tasks(6, 3, law)) < 4 * error


def test_small_heads_drop_when_the_exact_clock_says():
    task = few_tasks(3, 10, 0.1)
    found, modes = diversity.small_head_drop_times(task, 1e-4), theory.modes(task)
    exact = [theory.aligned_drop_time(1e-4, c, a) for c, a in
             zip(modes.growth_rates, modes.strengths)]  # fmt: skip
    # What is left out is u₀²/2 in the clock.
    np.testing.assert_allclose(found, exact, rtol=1e-10)
    assert diversity.plateau_ratio(10, 40) == pytest.approx(1 / 9)


def test_orthogonal_tasks_have_the_reference_values():
    inputs = LinearRegression(np.ones(20), 10, noise=0.1)
    task, v = diversity.with_tasks(inputs, np.eye(20)[:4]), np.array([0.01, 0.02, -0.015])
    stop = diversity.equal_tasks_stop(task, fresh(task), float(v @ v) / 2)
    near([stop.loss, stop.end], [1.039393939394, 1.118552875696])
    near(stop.time, 7.356614, 6)
    near(diversity.components(task).strengths, 50 / 77)
    near(diversity.overshoot(task, fresh(task)).best, 10 / 33)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("dim, length, count, noise", [(8, 3, 2, 0), (6, 10, 3, 0.2)])
def test_the_curve_of_equal_tasks_is_the_flow_of_the_weights(dim, length, count, noise):
    inputs = LinearRegression(np.ones(dim), length, noise=noise)
    task, v = diversity.with_tasks(inputs, np.eye(dim)[:count]), np.array([0.05, 0.02, -0.03])
    P, times = np.diag(np.arange(dim) < count) / count**0.5, np.array([0.0, 3.0, 8.0, 30.0])

    def velocity(_, flat):
        v, U = flat[:3], flat[3:].reshape(3, dim, dim)
        E = theory.loss_slope(task, np.einsum("h,hde->de", v, U))
        return np.concatenate([np.einsum("hde,de->h", U, E), (v[:, None, None] * E).ravel()])

    start = np.concatenate([v, (v[:, None, None] * P).ravel()])
    flow = scipy.integrate.solve_ivp(velocity, (0, 30), start, "DOP853", times,
                                     rtol=1e-11, atol=1e-13).y  # fmt: skip
    A = np.einsum("ht,hdet->tde", flow[:3], flow[3:].reshape(3, dim, dim, -1))
    first = float(v @ v) / count**0.5
    for test in (fresh(task), task):
        expected = [theory.loss_of_matrix(test, a) for a in A]
        near(diversity.equal_tasks_curve(task, test, times, first), expected, 9)
    stop = diversity.equal_tasks_stop(task, fresh(task), first)
    worse = length + 1 < (1 + noise) * (dim - 2 * count)
    assert worse == (stop.end > 1 + noise + 1e-12)
    if np.isfinite(stop.time):
        beside = diversity.equal_tasks_curve(task, fresh(task), stop.time * np.array([0.99, 1.01]),
                                             first)  # fmt: skip
        assert np.all(beside > stop.loss)


def test_an_aligned_head_has_the_reference_values_and_follows_its_flow():
    task = few_tasks(3, 4, 0.2, (1.0,) * 6)
    test = fresh(task)
    stop = diversity.aligned_stop(task, test, 0.05)
    near(stop.time, 44.497938, 6)
    near(stop.loss, 1.145355191, 9)
    modes, found = theory.modes(task), diversity.components(task)
    c, a = modes.growth_rates[0], modes.strengths[0]
    times = np.linspace(0, 60, 6001)
    v = scipy.integrate.solve_ivp(lambda _, v: c * v**2 * (1 - v**3 / a), (0, 60), [0.05],
                                  "DOP853", times, rtol=1e-10, atol=1e-12).y[0]  # fmt: skip
    losses = diversity.losses_of_matrices(test, (v**3 / a)[:, None, None] * found.matrix([0]))
    assert abs(times[np.argmin(losses)] - stop.time) <= 0.01
    near(losses.min(), stop.loss, 6)


def test_steps_overshoot_where_the_condition_says():
    rng = np.random.default_rng(6)
    inputs = LinearRegression(covariance=random_covariance(rng, 5), context=3, noise=0.1)
    task = diversity.with_tasks(inputs, rng.standard_normal((3, 5)))
    test = diversity.with_second_moment(inputs, random_covariance(rng, 5))
    found, steps = diversity.components(task), diversity.overshoot(task, test)
    levels = diversity.levels_on_test(task, test)
    share = np.linspace(0, 1, 2001)
    for j in range(3):
        path = found.matrix(range(j)) + share[:, None, None] * found.matrix([j])
        losses = diversity.losses_of_matrices(test, path)
        assert steps.raises[j] == (levels[j + 1] > levels[j])
        assert steps.passes[j] == (np.argmin(losses) < 2000)
        near(losses[-1] - losses.min(), steps.rise[j], 6)
        if steps.passes[j]:
            near(losses[0] - losses.min(), steps.gain[j], 6)
    # m_j/T > t_j/T_t, for one length.
    root = np.linalg.inv(found.inverse_root)
    power = lambda each: float(each.label_variance)
    t = np.einsum("dj,de,ej->j", found.directions, root @ np.asarray(test.weight_second_moment)
                  @ root, found.directions)  # fmt: skip
    assert np.array_equal(steps.passes, found.variances / power(task) > t / power(test))


# The full form -----------------------------------------------------------------------------------


def test_the_full_optimum_has_the_reference_value():
    near(diversity.full_optimum(few_tasks(3, 10, 0.1), vectors(4, 3)).train, 0.319940040879)


def test_one_stored_task_has_the_floor_of_in_weight_learning():
    inputs, one = LinearRegression(np.ones(3), 8), vectors(3, 1)
    found = diversity.full_optimum(inputs, one, fresh(inputs))
    near([found.train, found.test], [2 / 31, 1.935483870968])
    near(theory.optimal_loss(diversity.with_tasks(inputs, one)), 0.2)


@pytest.mark.parametrize("self_attention", [True, False])
def test_four_moments_give_what_a_mixture_of_tasks_gives(self_attention):
    rng = np.random.default_rng(7)
    inputs = LinearRegression(covariance=random_covariance(rng, 2), context=(3, 5), noise=0.2)
    rows, shares = rng.standard_normal((4, 2)), np.array([0.1, 0.2, 0.3, 0.4])
    fixed = [LinearRegression(covariance=np.asarray(inputs.covariance), context=(3, 5), noise=0.2,
                              prior_mean=w, prior_covariance=np.zeros((2, 2)))
             for w in rows]  # fmt: skip
    mixed = theory.token_moments(Mixture(fixed, shares), "tokens", self_attention)
    seen = diversity.task_moments(inputs, rows, shares)
    found = diversity.full_moments(inputs, seen, "tokens", self_attention)
    for one, other in zip(found, mixed):
        near(one, other, 11)


def test_tasks_with_the_same_four_moments_are_the_same():
    # On the circle w̄ and M are all: 4, 5 and 7 tasks with other third harmonics.
    inputs, found = LinearRegression(np.ones(2), 6, noise=0.1), []
    for count in (4, 5, 7):
        angle = 2 * np.pi * np.arange(count) / count
        rows = np.stack([np.cos(angle), np.sin(angle)], 1)
        shares = (1 + 0.8 * np.cos(angle)) / count
        loss = diversity.full_optimum(inputs, rows, None, shares).train
        found.append((shares @ np.cos(3 * angle), loss))
    third, losses = np.transpose(found)
    near(third, [0.4, 0, 0], 12)
    near(losses, losses[0], 13)


def test_the_full_form_gains_nothing_on_tasks_that_come_in_pairs():
    inputs, rows = LinearRegression(np.ones(3), 8, noise=0.1), vectors(3, 2)
    paired = np.concatenate([rows, -rows])
    found = diversity.full_optimum(inputs, paired).train
    near(found, theory.optimal_loss(diversity.with_tasks(inputs, paired)), 10)
    # With w̄ = 0, the third moment E[(wᵀw)w] is enough.
    lopsided = np.array([[2.0, 0, 0], [-1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]])
    found = diversity.full_optimum(inputs, lopsided).train
    assert found < theory.optimal_loss(diversity.with_tasks(inputs, lopsided)) - 1e-3


# Label-blind heads, Bayes ------------------------------------------------------------------------


def attend(rng, omega, mu, dim, length, count):
    """ψ and e of softmax heads W_h = ω_hI on drawn contexts."""
    x, query = rng.standard_normal((count, length, dim)), rng.standard_normal((count, dim))
    scores = np.einsum("h,snd,sd->shn", omega, x, query)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    psi = np.einsum("h,shn->sn", mu, p / p.sum(-1, keepdims=True))
    return psi, np.einsum("sn,snd->sd", psi, x) - query, x, query


def test_structured_heads_see_the_trace_of_the_tasks_alone():
    rng, omega, mu = np.random.default_rng(8), np.array([0.13, -0.13]), np.array([3.45, -3.45])
    inputs, rows = LinearRegression(np.ones(5), 40, noise=0.1), vectors(5, 2)
    loss = diversity.structured_heads_loss(inputs, rows, omega, mu)
    near(loss, 0.243243638, 9)
    psi, miss, x, query = attend(rng, omega, mu, 5, 40, 20000)
    second = rows.T @ rows / 2
    found = diversity.label_blind_risk(second, 0.1, miss, psi)
    assert abs(found.value - loss) < 4 * found.error
    # And by drawing labels.
    w = rows[rng.integers(2, size=20000)]
    y = np.einsum("snd,sd->sn", x, w) + 0.1**0.5 * rng.standard_normal((20000, 40))
    goal = np.sum(query * w, 1) + 0.1**0.5 * rng.standard_normal(20000)
    losses = (goal - np.sum(psi * y, 1)) ** 2
    assert abs(losses.mean() - loss) < 4 * losses.std(ddof=1) / 20000**0.5


def test_values_on_inputs_see_the_mean_task():
    rng, rows = np.random.default_rng(9), vectors(3, 2)
    psi, miss, x, query = attend(rng, np.array([0.5]), np.array([1.0]), 3, 10, 20000)
    offset = 0.4 * query @ rows.mean(0)
    found = diversity.label_blind_risk(rows.T @ rows / 2, 0.1, miss, psi, rows.mean(0), offset)
    w = rows[rng.integers(2, size=20000)]
    y = np.einsum("snd,sd->sn", x, w) + 0.1**0.5 * rng.standard_normal((20000, 10))
    goal = np.sum(query * w, 1) + 0.1**0.5 * rng.standard_normal(20000)
    losses = (goal - np.sum(psi * y, 1) - offset) ** 2
    # The two means share contexts, but not tasks and noise.
    assert abs(losses.mean() - found.value) < 4 * losses.std(ddof=1) / 20000**0.5


def test_the_label_linear_bound_has_the_reference_value_and_is_ridge_regression():
    task = few_tasks(4, 12, 0.1, (1.0,) * 6)
    near(diversity.label_linear_limit(task).residual, 0.146335539662)
    rng, second = np.random.default_rng(10), np.asarray(task.weight_second_moment)
    risks = []
    for _ in range(4000):
        x = rng.standard_normal((12, 6))
        # The posterior of w ~ N(0, M): M − MXᵀ(XMXᵀ + σ²)⁻¹XM.
        gain = second @ x.T @ np.linalg.inv(x @ second @ x.T + 0.1 * np.eye(12))
        risks.append(0.1 + np.trace(second - gain @ x @ second))
    found = diversity.label_linear_bound(task, 4000)
    error = np.hypot(found.error, np.std(risks, ddof=1) / 4000**0.5)
    assert abs(found.value - np.mean(risks)) < 4 * error
    # The large-size limit is some per cent low at this size.
    assert 0.9 < diversity.label_linear_limit(task).residual / found.value < 1


def test_the_bound_for_one_task_is_exact():
    task = diversity.with_tasks(LinearRegression(FOUR, 7, noise=0.3), [[1.0, -1, 0.5, 0]])
    found = diversity.label_linear_bound(task, 20000)
    assert abs(found.value - diversity.label_linear_bound_one_task(task)) < 4 * found.error


@pytest.mark.parametrize(
    "distance, noise, length, expected",
    [
        (2, 0.5, 6, 0.536611574496),
        (2, 0.25, 15, 0.250048914409),
        (0.5, 0.25, 4, 0.290285707104),
    ],
)
def test_two_tasks_have_the_reference_values(distance, noise, length, expected):
    task, side = LinearRegression(np.ones(2), length, noise=noise), (distance / 2) ** 0.5
    found = diversity.two_tasks_risk(task, [side, 0.0], [0.0, side])
    near(found, expected)
    if expected - noise < 1e-3:
        return  # errors are too rare to be sampled
    # dMMSE on drawn sequences.
    rng, rows = np.random.default_rng(11), side * np.eye(2)
    w = rows[rng.integers(2, size=20000)]
    x = rng.standard_normal((20000, length, 2))
    y = np.einsum("snd,sd->sn", x, w) + noise**0.5 * rng.standard_normal((20000, length))
    query = rng.standard_normal((20000, 2))
    misfit = np.stack([np.sum((y - x @ each) ** 2, 1) for each in rows], 1) / (2 * noise)
    weights = np.exp(misfit.min(1, keepdims=True) - misfit)
    mean = (weights / weights.sum(1, keepdims=True)) @ rows
    losses = noise + np.sum(query * (w - mean), 1) ** 2
    assert abs(losses.mean() - found) < 4 * losses.std(ddof=1) / 20000**0.5


def test_the_information_in_a_context_has_the_reference_value():
    task = fresh(LinearRegression(np.ones(8), 15, noise=0.25), 1.0)
    near(diversity.code_information(task), 15.182645775133)
    found = diversity.code_information_sampled(task, 4000)
    assert abs(found.value - 15.014) < 4 * np.hypot(found.error, 0.003)
    rav = fresh(LinearRegression(np.ones(8), 8, noise=0.25), 1.0)
    bits = diversity.code_information_sampled(rav, 4000).value / np.log(2)
    # The limit is 2 % above at this size.
    assert abs(bits - 15.8) < 0.05 < diversity.code_information(rav) / np.log(2) - bits < 0.5


def test_distances_on_own_tasks_are_differences_of_risks():
    near(diversity.distance_on_own_tasks([1.35, 0.55], 0.55, 8), [0.1, 0])
    with pytest.raises(Refusal, match="`loss` = 0.5: must be at least that of Bayes, 0.55"):
        diversity.distance_on_own_tasks(0.5, 0.55, 8)


# Random covariance -------------------------------------------------------------------------------


def turned(values, count=16):
    """A spectrum at evenly spaced angles: in two dimensions all averages needed are exact."""
    angle = np.pi * np.arange(count) / count
    turn = np.stack([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.einsum("ijs,j,kjs->sik", turn, values, turn)


def test_turned_spectra_have_the_reference_values():
    found = diversity.rotated_staircase([2.0, 1.0, 0.6, 0.4], 12, 0.1)
    near([found.along, found.across], [1.709092592593, 0.255148148148])
    levels = [4.1, 3.241925955593, 2.560802993452, 2.007011390542, 1.547897705064]
    near(found.levels, levels)
    # Steps of falling height, and what is learned shrinks.
    assert np.all(np.diff(np.diff(found.levels)) > 0) and np.all(np.diff(found.strengths[1:]) < 0)


def test_turned_spectra_agree_with_averages_over_angles():
    values = np.array([2.0, 0.5])
    kinds = turned(values)
    found = diversity.rotated_staircase(values, 12, 0.1)
    best = diversity.random_covariance_optimum(kinds, np.eye(2), 12, 0.1)
    near(best.loss, found.levels[2], 12)
    near(best.matrix, found.optimum * np.eye(2), 12)
    a1, a2 = diversity.turned_product(values**2, values)
    mean = np.einsum("sij,skl->ijkl", turned(values**2), kinds) / len(kinds)
    near([mean[0, 0, 1, 1], mean[0, 1, 0, 1], mean[0, 0, 0, 0]], [a1, a2, a1 + 2 * a2], 12)

    def loss(flat):
        """Of one head of rank one, from the definition, averaged over angles."""
        A = np.outer(flat[:2], flat[2:])
        signal = kinds @ kinds
        second = 13 / 12 * signal + (np.trace(kinds, axis1=1, axis2=2) + 0.1)[:, None, None] * (
            kinds / 12
        )
        curve = np.einsum("sij,jk,skl,il->s", second, A, kinds, A)
        return np.mean(np.trace(kinds, axis1=1, axis2=2) + 0.1 - 2 * np.sum(signal * A, (1, 2))
                       + curve)  # fmt: skip

    end = scipy.optimize.minimize(loss, [0.5, 0.1, 0.4, 0.2], tol=1e-12)
    near(end.fun, found.levels[1], 9)


def test_diagonal_covariances_agree_with_all_their_kinds():
    pair = np.array([0.3, 1.4])
    kinds = [np.diag(pair[list(i)]) for i in np.ndindex(2, 2, 2)]
    found = diversity.random_covariance_optimum(kinds, np.eye(3), 9, 0.2)
    moments = tuple(np.mean(pair**k) for k in (1, 2, 3))
    expected = diversity.diagonal_covariance_optimum(moments, 3, 9, 0.2)
    near(found.matrix, np.diag(expected.matrix), 12)
    near([found.loss, found.floor], [expected.loss, expected.floor], 12)
    exponential = diversity.diagonal_covariance_optimum((1, 2, 6), 5, 20)
    near([exponential.floor / 5, exponential.loss / 5], [1 / 3, 3 / 7])


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda t: diversity.with_tasks(t, np.zeros((0, 4))), "`vectors` is empty"),
        (lambda t: diversity.with_tasks(t, np.ones((2, 3))), r"must be \(K, 4\)"),
        (lambda t: diversity.with_tasks(t, np.eye(4), [1, 1, 1, 1]), "add up to 1"),
        (lambda t: diversity.components(diversity.with_tasks(t, [[0.0] * 4])), "nothing to learn"),
        (lambda t: diversity.overshoot(t, few_tasks(2, 5, 0.1)), "must have the same covariance"),
        (lambda t: diversity.alignment(t, few_tasks(2, 5, 0.1, (1.0,) * 5)), "same covariance"),
        (lambda t: diversity.equal_tasks_stop(t, t, 0.1), "must have white inputs, and tasks of"),
        (lambda t: diversity.aligned_stop(t, t, 0.1), "do not commute"),
        (lambda t: diversity.two_tasks_risk(t, [1.0], [2.0]), r"`first` has shape \(1,\)"),
        (lambda t: diversity.label_linear_bound_one_task(t), "more than one component"),
        (lambda t: diversity.structured_heads_loss(t, np.eye(4), [1.0], [1.0]), "inputs N"),
        (lambda t: diversity.rotated_staircase([1.0, -1.0], 5), "must be positive"),
        (lambda t: diversity.diagonal_covariance_optimum((1, 0.5, 1), 2, 5), "no positive number"),
        (lambda t: diversity.mean_growth_of_few_tasks(3, 0), "`count` = 0: must be a whole"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, words):
    with pytest.raises(Refusal, match=words):
        call(few_tasks(3, 7, 0.1, FOUR))


def test_tasks_that_coincide_are_one_task():
    inputs = LinearRegression(np.ones(3), 9, noise=0.1)
    same, one = (diversity.with_tasks(inputs, [[1.0, 0, 0]] * n) for n in (4, 1))
    assert diversity.components(same).count == 1
    near(theory.plateau_losses(same), theory.plateau_losses(one), 14)
    p = 1.0
    near(theory.optimal_loss(one), 0.1 + p * (2 * p + 0.1) / (11 * p + 0.1))
