import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import root

from iclflow.tasks import LinearRegression
from iclflow.theory._learning_order import learning_order
from iclflow.theory._moments import moments
from iclflow.theory._separate_hessian import (
    hessian_index,
    separate_hessian,
    separate_representative,
)
from iclflow.theory._separate_landscape import (
    number_of_stationary_losses,
    number_of_stationary_points,
    stationary_points,
)
from iclflow.theory._separate_modes import modes, plateau_losses, subset_loss
from separate_flow import Flow, Problem, gaussian, problem

FOUR = (0.4, 0.3, 0.2, 0.1)
EIGHT = tuple((9 - d) / 36 for d in range(1, 9))


def flat(v, K, Q):
    return np.concatenate([np.ravel(v), np.ravel(K), np.ravel(Q)])


def flat_loss(p, heads, rank):
    """The loss as a function of flattened weights, for autodiff."""
    dim = len(p.covariance)
    size = heads * dim * rank

    def loss(w):
        v = w[:heads]
        K = w[heads : heads + size].reshape(heads, dim, rank)
        Q = w[heads + size :].reshape(heads, dim, rank)
        A = jnp.einsum("h,hdr,her->de", v, K, Q)
        return p.base - 2 * jnp.sum(p.cross * A) + jnp.sum(A * (p.second @ A @ p.covariance))

    return loss


@functools.cache
def gradient_and_hessian(heads, dim, rank):
    """Compiled once a shape; the numbers of the problem are arguments."""

    def loss(w, cross, second, covariance):
        return flat_loss(Problem(covariance, cross, second, 0.0), heads, rank)(w)

    return jax.jit(lambda *arguments: (jax.grad(loss)(*arguments), jax.hessian(loss)(*arguments)))


def derivatives(p, v, K, Q):
    found = gradient_and_hessian(*K.shape)(flat(v, K, Q), p.cross, p.second, p.covariance)
    return tuple(map(np.asarray, found))


def negative_eigenvalues(hessian):
    # True ones are of order 1e-2 here, rounding of order 1e-15.
    values = np.linalg.eigvalsh(hessian)
    return values[values < -1e-9]


def general_task():
    """Λ and M that do not commute, a prior mean, noise, a noiseless query, three lengths."""
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 3, 3))
    covariance = a @ a.T / 3 + 0.2 * np.eye(3)
    prior, mean = b @ b.T / 3, np.array([0.4, -0.2, 0.3])
    task = LinearRegression(
        covariance=covariance,
        context=(5, 9, 30),
        noise=0.2,
        prior_mean=mean,
        prior_covariance=prior,
        noisy_query=False,
    )
    return task, problem(covariance, prior + np.outer(mean, mean), (5, 9, 30), noise=0.2)


def test_plateau_losses_are_the_reference_values():
    four = [1, 221 / 345, 27601 / 73140, 567769 / 2706180, 85873 / 631442]
    np.testing.assert_allclose(plateau_losses(LinearRegression(FOUR, 31)), four, rtol=1e-14)
    noisy = [1.1, 0.743165467625899, 0.482417804074497, 0.317084470741164, 0.244991447485350]
    np.testing.assert_allclose(
        plateau_losses(LinearRegression(FOUR, 31, noise=0.1)), noisy, rtol=1e-13
    )
    eight = plateau_losses(LinearRegression(EIGHT, 31))
    wanted = [1, 533 / 657, 0.648976993326308, 0.513012081045607, 0.403176480138577]
    wanted += [0.319165640030176, 0.260453518818055, 0.226009074373610, 0.213345675680800]
    np.testing.assert_allclose(eight, wanted, rtol=1e-13)
    np.testing.assert_allclose(
        modes(LinearRegression(EIGHT, 31)).strengths,
        [279 / 73, 279 / 65, 93 / 19, 279 / 49, 279 / 41, 93 / 11, 279 / 25, 279 / 17],
        rtol=1e-13,
    )


def test_every_subset_has_the_reference_loss_and_index():
    wanted = {
        (): (1, 0), (0,): (221 / 345, 0), (1,): (0.736792452830189, 1),
        (2,): (0.832432432432432, 2), (3,): (0.926190476190476, 3),
        (0, 1): (27601 / 73140, 0), (0, 2): (0.473012142577360, 1),
        (0, 3): (0.566770186335404, 2), (1, 2): (0.569224885262621, 2),
        (1, 3): (0.662982929020665, 3), (2, 3): (0.758622908622908, 4),
        (0, 1, 2): (567769 / 2706180, 0), (0, 1, 3): (0.303562639165592, 1),
        (0, 2, 3): (0.399202618767836, 2), (1, 2, 3): (0.495415361453097, 3),
        (0, 1, 2, 3): (85873 / 631442, 0),
    }  # fmt: skip
    task = LinearRegression(FOUR, 31)
    points = stationary_points(task, heads=4)
    assert {point.components for point in points} == set(wanted)
    for point in points:
        loss, index = wanted[point.components]
        assert point.loss == pytest.approx(loss, abs=2e-15)
        assert subset_loss(task, point.components) == pytest.approx(loss, abs=2e-15)
        assert point.index == index and point.strict == (index > 0) and point.isolated


@pytest.mark.parametrize("heads, rank", [(4, 1), (6, 1), (2, 2), (1, 3), (2, 1)])
def test_gradient_vanishes_and_hessian_has_the_predicted_index_at_every_point(heads, rank):
    task, p = LinearRegression(FOUR, 31), problem(FOUR)
    points = stationary_points(task, heads, rank)
    assert len(points) == sum(math.comb(4, m) for m in range(min(4, heads * rank) + 1))
    assert len(points) == number_of_stationary_points(task, heads, rank)
    for point in points:
        gradient, hessian = derivatives(p, point.v, point.K, point.Q)
        assert np.max(np.abs(gradient)) < 1e-13
        A = np.einsum("h,hdr,her->de", point.v, point.K, point.Q)
        np.testing.assert_allclose(A, point.matrix, atol=1e-13)
        assert p.loss(A) == pytest.approx(point.loss, abs=1e-14)
        assert negative_eigenvalues(hessian).size == point.index


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_landscape_holds_for_any_covariance_and_prior(rank):
    task, p = general_task()
    for point in stationary_points(task, heads=3, rank=rank):
        gradient, hessian = derivatives(p, point.v, point.K, point.Q)
        assert np.max(np.abs(gradient)) < 1e-13
        assert p.loss(point.matrix) == pytest.approx(point.loss, rel=1e-13)
        assert negative_eigenvalues(hessian).size == point.index


@pytest.mark.slow
def test_random_restarts_find_all_stationary_functions_and_no_others():
    task, p = general_task()
    points = stationary_points(task, heads=3)
    both = gradient_and_hessian(3, 3, 1)
    rest = jax.device_put((p.cross, p.second, p.covariance))  # once, not at every step
    found = set()
    converged = 0
    for seed in range(150):
        start = np.random.default_rng(seed).normal(size=21)
        result = root(
            lambda w: tuple(map(np.asarray, both(w, *rest))),
            start,
            jac=True,
            method="lm",
            options={"xtol": 1e-15, "ftol": 1e-15, "maxiter": 400},
        )
        if np.max(np.abs(result.fun)) > 1e-11:
            continue
        converged += 1
        v, K, Q = result.x[:3], result.x[3:12].reshape(3, 3), result.x[12:].reshape(3, 3)
        A = np.einsum("h,hd,he->de", v, K, Q)
        # Degenerate zeros are approached slowly: a gradient of 1e-11 allows A to be off by 1e-4.
        distance = [np.max(np.abs(A - point.matrix)) for point in points]
        assert min(distance) < 1e-3
        found.add(points[int(np.argmin(distance))].components)
    assert converged >= 75
    assert found == {point.components for point in points}


@pytest.mark.parametrize(
    "layout, rank",
    [
        ([(0,), (0,)], 1),
        ([(1,), (1,)], 1),
        ([(0,), (0,), (0,)], 1),
        ([(0,), (0,), (2,), (2,)], 1),
        ([(0,), (1,), (1,)], 1),
        ([(3,), (3,)], 1),
        ([(0,)], 2),
        ([(0,), (1,)], 2),
        ([(0, 1), (2,)], 2),
        ([(2, 3)], 3),
        ([(0, 2), (0, 3)], 2),
        ([(0, 1), (1,)], 3),
    ],
)
def test_index_of_shared_components_and_unused_ranks(layout, rank):
    task, p = LinearRegression(FOUR, 31), problem(FOUR)
    v, K, Q = separate_representative(task, layout, heads=5, rank=rank)
    np.testing.assert_allclose(v**2, np.sum(K**2, axis=(1, 2)), atol=1e-13)
    np.testing.assert_allclose(np.swapaxes(K, 1, 2) @ K, np.swapaxes(Q, 1, 2) @ Q, atol=1e-13)
    gradient, hessian = derivatives(p, v, K, Q)
    assert np.max(np.abs(gradient)) < 1e-13
    assert negative_eigenvalues(hessian).size == hessian_index(task, layout, rank)


def test_unused_rank_has_the_reference_eigenvalue():
    task, p = LinearRegression(FOUR, 31), problem(FOUR)
    (point,) = [q for q in stationary_points(task, 1, 2) if q.components == (0,)]
    _, hessian = derivatives(p, point.v, point.K, point.Q)
    assert negative_eigenvalues(hessian)[0] == pytest.approx(-0.2357400516, abs=1e-9)
    escape = point.escape_directions[0]
    assert (escape.component, escape.head, escape.kind) == (1, 0, "exponential")
    assert escape.hessian_eigenvalue == pytest.approx(-2 * point.v[0] * 0.3**2, rel=1e-12)
    assert escape.rate == pytest.approx(point.v[0] * 0.3**2, rel=1e-12)


@pytest.mark.parametrize("general", [False, True])
def test_exponential_escapes_are_the_negative_hessian_eigenvalues(general):
    task, p = general_task() if general else (LinearRegression(FOUR, 31), problem(FOUR))
    heads = task.dim
    for point in stationary_points(task, heads):
        _, hessian = derivatives(p, point.v, point.K, point.Q)
        np.testing.assert_allclose(
            separate_hessian(moments(task), point.v, point.K, point.Q), hessian, atol=1e-13
        )
        exponential = [e for e in point.escape_directions if e.kind == "exponential"]
        values = [e.hessian_eigenvalue for e in exponential]
        np.testing.assert_allclose(values, negative_eigenvalues(hessian), atol=1e-12)
        # A head turns from its component j to a better one, once for each pair.
        turns = {(e.head, e.component) for e in exponential}
        pairs = itertools.product(enumerate(point.components), range(heads))
        better = {(h, d) for (h, j), d in pairs if d < j and d not in point.components}
        assert turns == better and len(exponential) == point.index


def test_idle_heads_escape_algebraically_with_four_sign_patterns():
    task, p = LinearRegression(FOUR, 31), problem(FOUR)
    (point,) = [q for q in stationary_points(task, 3) if q.components == (0,)]
    found = modes(task)
    escapes = point.escape_directions
    assert {(e.component, e.head) for e in escapes} == set(itertools.product((1, 2, 3), (1, 2)))
    assert escapes[0].component == 1 and all(e.kind == "algebraic" for e in escapes)
    step = 1e-2
    for escape in escapes:
        falls = []
        for signs in itertools.product((1, -1), repeat=3):
            v, K, Q = point.v.copy(), point.K.copy(), point.Q.copy()
            v[escape.head] = signs[0] * step
            K[escape.head, :, 0] = signs[1] * step * found.left[:, escape.component]
            Q[escape.head, :, 0] = signs[2] * step * found.right[:, escape.component]
            change = p.loss(np.einsum("h,hdr,her->de", v, K, Q)) - point.loss
            # To third order the loss changes by ∓2 rate ε³; the next term is ε⁶.
            assert abs(change) == pytest.approx(2 * escape.rate * step**3, rel=1e-4)
            if change < 0:
                falls.append(signs)
        assert set(falls) == set(escape.sign_patterns)


def test_equal_eigenvalues_give_a_continuum_and_few_losses():
    task, p = LinearRegression([0.25] * 4, 31), problem([0.25] * 4)
    assert modes(task).degenerate and modes(task).groups == ((0, 1, 2, 3),)
    assert number_of_stationary_points(task, 4) == math.inf
    assert number_of_stationary_losses(task, 4) == 5
    points = stationary_points(task, 4)
    assert [point.continuum_dimension for point in points] == [0, 3, 4, 3, 0]
    strength = modes(task).strengths[0]
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 2)))[0]
    v = np.full(2, np.cbrt(strength))
    K = np.cbrt(strength) * basis.T[..., None]
    gradient, _ = derivatives(p, v, K, K)
    assert np.max(np.abs(gradient)) < 1e-14
    assert p.loss(strength * basis @ basis.T) == pytest.approx(points[2].loss, abs=1e-14)
    mixed = LinearRegression([0.4, 0.3, 0.3, 0.1], 31)
    assert modes(mixed).groups == ((0,), (1, 2), (3,))
    assert number_of_stationary_losses(mixed, 4) == 12 == len(stationary_points(mixed, 4))
    assert number_of_stationary_losses(mixed, 1) == 4 == len(stationary_points(mixed, 1))


def test_directions_that_no_task_uses_are_no_components():
    task = LinearRegression([0.5, 0.3, 0.2], 31, prior_covariance=np.diag([1.5, 0.9, 0.0]))
    p = problem([0.5, 0.3, 0.2], np.diag([1.5, 0.9, 0.0]))
    assert modes(task).count == 2
    for point in stationary_points(task, 3, 2):
        gradient, hessian = derivatives(p, point.v, point.K, point.Q)
        assert np.max(np.abs(gradient)) < 1e-13
        assert negative_eigenvalues(hessian).size == point.index


@pytest.mark.parametrize("normaliser, gain", [("tokens", lambda n: n / (n + 1)), ("none", float)])
def test_landscape_follows_the_normaliser(normaliser, gain):
    task = LinearRegression(FOUR, range(1, 32))
    p = problem(FOUR, lengths=range(1, 32), gain=gain)
    for point in stationary_points(task, 4, normaliser=normaliser):
        assert p.loss(point.matrix) == pytest.approx(point.loss, abs=1e-13)
        gradient, _ = derivatives(p, point.v, point.K, point.Q)
        assert np.max(np.abs(gradient)) < 1e-10  # un-normalised moments are about 1000 times larger
    if normaliser == "tokens":  # the optimum of training on all lengths 1 … 31
        wanted = [2.0513654429743, 2.5807771489019, 3.4785006471667, 5.3338970978436]
        np.testing.assert_allclose(modes(task, normaliser).strengths, wanted, rtol=1e-12)


def test_growth_and_gain_order_can_disagree_and_the_flow_turns_at_a_strict_saddle():
    prior = np.diag([0.1, 1.0])
    task = LinearRegression([1.0, 0.2], 31, prior_covariance=prior)
    order = learning_order(task)
    assert order.growth_order == (1, 0) and order.gain_order == (0, 1)
    assert order.commuting and not order.agree
    assert [visit.components for visit in order.visits] == [(), (1,), (0,), (0, 1)]
    levels = [visit.loss for visit in order.visits]
    np.testing.assert_allclose(levels, [0.3, 0.211428571, 0.114925373, 0.026353945], atol=1e-9)
    assert order.strict_saddle.components == (1,) and order.strict_saddle.index == 1
    flow = Flow(problem([1.0, 0.2], prior), *gaussian(0, 1e-4, 3, 2), end=4e5)
    # Time spent within 1 % of each level on the way down: the flow stops at the strict saddle too,
    # though for less than a thousand where the others take ten thousands.
    stays = [flow.crossing(0.99 * level) - flow.crossing(1.01 * level) for level in levels[1:3]]
    assert 100 < stays[0] < 1000 < stays[1]
    assert flow.loss(flow.times[-1]) == pytest.approx(levels[3], abs=1e-9)


def test_strict_saddle_is_left_at_the_turning_rate():
    prior = np.diag([0.1, 1.0])
    task = LinearRegression([1.0, 0.2], 31, prior_covariance=prior)
    (point,) = [q for q in stationary_points(task, 1) if q.components == (1,)]
    nudge = np.array([0.0, 1e-6])[None, :, None]
    flow = Flow(problem([1.0, 0.2], prior), point.v, point.K + nudge, point.Q + nudge, end=700)
    tilts = [np.abs(flow.weights(t)[1][0, 1, 0]) for t in (400, 700)]
    # From 1e-6 the misalignment stays below 1e-2, where the equation is linear.
    rate = np.log(tilts[1] / tilts[0]) / 300
    assert rate == pytest.approx(learning_order(task).strict_saddle.turning_rate, rel=1e-4)


def test_orders_agree_for_an_isotropic_prior():
    order = learning_order(LinearRegression(FOUR, 31))
    assert order.agree and order.strict_saddle is None
    assert [visit.components for visit in order.visits] == [
        (),
        (0,),
        (0, 1),
        (0, 1, 2),
        (0, 1, 2, 3),
    ]
    assert not learning_order(general_task()[0]).commuting


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda t: subset_loss(t, (0, 4)), "from 0 to 3"),
        (lambda t: subset_loss(t, (1, 1)), "listed once"),
        (lambda t: plateau_losses(t, 5), "`count` = 5"),
        (lambda t: stationary_points(t, 0), "`heads` = 0"),
        (lambda t: stationary_points(t, 2, -1), "`rank` = -1"),
        (lambda t: hessian_index(t, [(0, 1)], 1), "holds a head with 2 components"),
        (lambda t: separate_representative(t, [(0,), (1,)], 1, 1), "2 active heads"),
        (lambda t: modes(LinearRegression(FOUR, prior_covariance=np.zeros((4, 4)))), "nothing"),
        (lambda t: stationary_points(LinearRegression(np.arange(1, 21)), 20), "1048576"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call(LinearRegression(FOUR, 31))
