"""Losses on training tasks, on unseen ones and on other distributions, over a run."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import iclflow as icl
from helpers import cosine_tasks, random_covariance, random_task
from iclflow.analysis import task_operator
from iclflow.estimators import PreconditionedStep
from iclflow.risks import exact_bilinear_risk
from iclflow.tasks import FiniteTasks, LinearRegression

SEQUENCES = 20_000


def sampled_loss(rng, inputs, vectors, matrix, context, noise) -> tuple[float, float]:
    """The mean loss of ŷ = βᵀAx_q on drawn contexts, and its standard error, in NumPy alone.

    The query is averaged over by hand: E(y_q − ŷ)² = (w − Aᵀβ)ᵀΛ(w − Aᵀβ) + σ² for each context.
    """
    dim = len(inputs)
    x = rng.normal(size=(SEQUENCES, context, dim)) @ np.linalg.cholesky(inputs).T
    w = vectors[rng.integers(len(vectors), size=SEQUENCES)]
    y = np.einsum("pnd,pd->pn", x, w) + noise**0.5 * rng.normal(size=(SEQUENCES, context))
    missed = w - np.einsum("pnd,pn->pd", x, y) / context @ matrix
    losses = np.einsum("pd,de,pe->p", missed, inputs, missed) + noise
    return float(losses.mean()), float(losses.std(ddof=1) / SEQUENCES**0.5)


def deviation(seed: int) -> float:
    """The deviation of (1) from a sample, in standard errors, on one random problem: training tasks
    and test tasks of another number and size, inputs, lengths and weights."""
    rng = np.random.default_rng(seed)
    dim, context = int(rng.integers(1, 6)), int(rng.integers(1, 12))
    inputs = random_covariance(rng, dim)
    noise = float(rng.uniform(0, 0.5))
    law = LinearRegression(covariance=inputs, context=context, noise=noise)
    # Of the size of the best A, and not symmetric.
    matrix = 0.5 * np.linalg.inv(inputs) + 0.3 * rng.normal(size=(dim, dim))
    train = rng.normal(size=(int(rng.integers(1, 8)), dim))
    test = rng.normal(size=(50, dim)) @ random_covariance(rng, dim)
    operator = task_operator(matrix, law)
    gaps = []
    for vectors in (train, test):
        mean, error = sampled_loss(rng, inputs, vectors, matrix, context, noise)
        exact = operator.risk(vectors.T @ vectors / len(vectors))
        gaps.append(abs(float(exact) - mean) / error)
    return max(gaps)


@pytest.mark.parametrize(
    "seeds", [range(10), pytest.param(range(10, 200), marks=pytest.mark.slow)], ids=["10", "190"]
)
def test_operator_is_the_mean_of_sampled_losses(seeds):
    # 4 standard errors: of 400 normal numbers none is beyond with 97.5 %; the seeds are fixed.
    assert max(map(deviation, seeds)) < 4


@pytest.mark.parametrize("normaliser", ["context", "tokens", "none"])
def test_operator_of_one_task_is_the_exact_risk_on_it(normaliser):
    rng = np.random.default_rng(3)
    law = random_task(rng, 3, (2, 5))
    vectors, matrix = rng.normal(size=(4, 3)), 0.3 * rng.normal(size=(3, 3))
    found = task_operator(matrix, law, normaliser).each(vectors)
    step = PreconditionedStep(jnp.asarray(matrix), normaliser)
    for vector, loss in zip(vectors, found):
        single = FiniteTasks(vector[None], law)
        exact = exact_bilinear_risk(single, step)
        assert exact is not None
        # Another order of the same products: rounding.
        assert float(exact(step)) == pytest.approx(loss, rel=1e-12)


@pytest.fixture(scope="module")
def staircase():
    """Three unit tasks on white inputs, separate heads; and the run."""
    fresh = LinearRegression(np.ones(4), 10, noise=0.1, prior_covariance=np.eye(4) / 4)
    task = FiniteTasks(cosine_tasks(3, 4), fresh)
    model = icl.Attention.separate(jr.key(0), dim=4, heads=4, scale=1e-2)
    return task, icl.gradient_flow(model, icl.risk(task, model), tolerance=1e-13)


def test_training_loss_is_the_loss_on_fresh_sequences_of_the_training_tasks(staircase):
    task, run = staircase
    losses = icl.test_losses(run, task)
    assert np.max(np.abs(losses.train - losses.idg)) < 1e-14
    assert np.max(np.abs(losses.g_task - (losses.icl - losses.idg))) == 0
    # The operator at a covariance of tests, and the risk on the regression with that prior.
    exact = run.map(icl.risk(task.fresh, run.final))
    assert np.max(np.abs(losses.icl - exact)) < 1e-14


def test_losses_on_another_distribution(staircase):
    task, run = staircase
    rng = np.random.default_rng(0)
    other = random_task(rng, 4, (3, 30))
    losses = icl.test_losses(run, task, other)
    assert losses.other is not None
    assert np.allclose(losses.other, run.map(icl.risk(other, run.final)), rtol=1e-13)
    few = FiniteTasks(rng.normal(size=(2, 4)), other)
    found = icl.test_losses(run, task, few).other
    assert np.allclose(found, run.map(icl.risk(few, run.final)), rtol=1e-13)


# The last of the levels of docs/theory/linear.md with a prior covariance M of three unit tasks, and
# the loss of that optimum on isotropic tests, from its closed form in the eigenbasis of M.
def test_end_of_the_staircase_on_training_and_unseen_tasks(staircase):
    task, run = staircase
    losses = icl.test_losses(run, task)
    assert losses.idg[-1] == pytest.approx(0.380679579142, abs=1e-11)
    assert losses.icl[-1] == pytest.approx(0.640831826873, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "covariance, context, prior, train, tests",
    [
        (
            np.eye(4),
            10,
            np.eye(4) / 4,
            (0.666858338015, 0.416091498015, 0.380679579142),
            (0.943418751319, 0.782440200473, 0.640831826873),
        ),
        (
            np.diag([0.4, 0.3, 0.2, 0.1]),
            31,
            np.eye(4),
            (0.193211625605, 0.142784883928, 0.133224103019),
            (0.799085818993, 0.643792901374, 0.462969197026),
        ),
    ],
    ids=["white", "not commuting"],
)
def test_heads_fewer_than_tasks_end_at_the_levels_of_the_staircase(
    covariance, context, prior, train, tests
):
    """m rank-one heads end where the m largest components are learned: m = 1, 2, 3 of K = 3."""
    fresh = LinearRegression(covariance=covariance, context=context, noise=0.1,
                             prior_covariance=prior)  # fmt: skip
    task = FiniteTasks(cosine_tasks(3, 4), fresh)
    for heads in (1, 2, 3):
        model = icl.Attention.separate(jr.key(1), dim=4, heads=heads, scale=0.05)
        run = icl.gradient_flow(model, icl.risk(task, model), tolerance=1e-13)
        losses = icl.test_losses(run, task)
        assert losses.idg[-1] == pytest.approx(train[heads - 1], abs=1e-9)
        # The loss on tests is linear in the distance from the end, where that of training is
        # quadratic: 1e-13 becomes 1e-6.5.
        assert losses.icl[-1] == pytest.approx(tests[heads - 1], abs=1e-6)


INPUTS = random_covariance(np.random.default_rng(5), 3)
TASKS = np.random.default_rng(6).normal(size=(2, 3))
NOISE, CONTEXT = 0.3, 7


def population_loss(model) -> jax.Array:
    """The loss on the tasks of TASKS, moment by moment as in docs/theory/linear.md, Eq. (1)."""
    A = jnp.einsum("h,hdr,her->de", model.circuits.v, model.circuits.K, model.circuits.Q)

    def on_task(w):
        power = w @ INPUTS @ w
        outer = INPUTS @ jnp.outer(w, w) @ INPUTS
        second = (1 + 1 / CONTEXT) * outer + (power + NOISE) / CONTEXT * INPUTS
        return NOISE + power - 2 * jnp.sum(outer * A) + jnp.sum(A * (second @ A @ INPUTS))

    return jnp.mean(jax.vmap(on_task)(jnp.asarray(TASKS)))


@pytest.fixture(scope="module")
def two_tasks():
    law = LinearRegression(covariance=INPUTS, context=CONTEXT, noise=NOISE)
    model = icl.Attention.separate(jr.key(0), dim=3, heads=2, scale=0.4)
    return FiniteTasks(TASKS, law), model


def test_gradient_is_automatic_differentiation_of_population_moments(two_tasks):
    task, model = two_tasks
    risk = icl.risk(task, model)
    assert float(risk(model)) == pytest.approx(float(population_loss(model)), rel=1e-13)
    slopes = risk.gradient(model), jax.grad(population_loss)(model)
    for one, other in zip(*map(jax.tree.leaves, slopes)):
        assert np.allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.slow
def test_flow_is_runge_kutta_on_population_moments(two_tasks):
    task, model = two_tasks
    times, step, slope = np.linspace(0, 4, 9), 1e-3, jax.grad(population_loss)
    move = lambda m, k, h: jax.tree.map(lambda a, b: a - h / 2 * b, m, k)

    def steps(model, _):
        """A step of fourth order of dW/dt = −½ ∂L/∂W: its error is far below 1e-12."""
        first = slope(model)
        second = slope(move(model, first, step / 2))
        third = slope(move(model, second, step / 2))
        last = slope(move(model, third, step))
        mean = lambda a, b, c, d: (a + 2 * b + 2 * c + d) / 6
        return move(model, jax.tree.map(mean, first, second, third, last), step), None

    on = jax.jit(lambda model: jax.lax.scan(steps, model, None, length=500)[0])
    # The error of the solver is 1e-12 a step.
    options = {"end": 4.0, "save": icl.SaveAtTimes(times), "rtol": 1e-12}
    run = icl.gradient_flow(model, icl.risk(task, model), **options)
    losses, unseen = icl.test_losses(run, task), icl.risk(task.fresh, model)
    for index in range(1, len(times)):
        model = on(model)
        assert losses.train[index] == pytest.approx(float(population_loss(model)), abs=1e-9)
        assert losses.icl[index] == pytest.approx(float(unseen(model)), abs=1e-9)


def test_overshoot_of_orthogonal_tasks_is_the_closed_form():
    """K orthogonal unit tasks, white inputs, merged heads along their projector: A = ς(t)P with
    1/ς a sum of two exponentials, and a parabola in ς as the loss on unseen tasks."""
    dim, context, count, noise = 20, 10, 4, 0.1
    fresh = LinearRegression(np.ones(dim), context, noise=noise, prior_covariance=np.eye(dim) / dim)
    task = FiniteTasks(np.eye(dim)[:count], fresh)
    v = np.array([0.01, 0.02, -0.015])
    U = v[:, None, None] * np.diag(np.arange(dim) < count) / count**0.5
    model = icl.Attention(icl.Merged.of(jnp.asarray(v), jnp.asarray(U)))
    times = np.sort(np.concatenate([np.linspace(0, 40, 81), np.linspace(7.3, 7.4, 11)]))
    times = np.unique(times)
    run = icl.gradient_flow(model, icl.risk(task, model), end=40.0, save=icl.SaveAtTimes(times))
    losses = icl.test_losses(run, task)
    variance = 1 + noise
    first, rate = np.sum(v**2) / count**0.5, 2 / count**0.5
    last = 1 / (1 + 1 / context + count * variance / context)
    decay = np.exp(-rate * times)
    strength = 1 / ((1 - decay) / last + decay / first)
    expected = (
        variance - 2 * count / dim * strength
        + count * ((1 + 1 / context) / dim + variance / context) * strength**2
    )  # fmt: skip
    assert last == pytest.approx(50 / 77, rel=1e-14)
    assert losses.icl == pytest.approx(expected, abs=1e-8)
    # Points 0.01 apart around the vertex: the parabola is right to their cube.
    assert losses.best.time == pytest.approx(7.356614, abs=1e-4)
    assert losses.best.loss == pytest.approx(1.039393939394, abs=1e-8)
    assert losses.icl[-1] == pytest.approx(1.118552875696, abs=1e-8)
    assert losses.overshoot == pytest.approx(1.118552875696 - 1.039393939394, abs=2e-8)


# |w̄|² of K unit tasks helps the full form on them and hurts it on unseen ones. One task: 2/31 and
# 0.2 follow from closed forms; the reduced ones on unseen tasks are those of the optimum.
def test_full_form_stores_the_one_task():
    fresh = LinearRegression(np.ones(3), 8, prior_covariance=np.eye(3) / 3)
    task = FiniteTasks([[1.0, 0.0, 0.0]], fresh)
    whole = icl.Attention.separate(jr.key(0), dim=3, heads=12, blind=False)
    blind = icl.Attention.separate(jr.key(0), dim=3, heads=3)
    full, reduced = (icl.risk(task, model) for model in (whole, blind))
    assert full.floor(whole) == pytest.approx(2 / 31, abs=1e-12)
    assert reduced.floor(blind) == pytest.approx(0.2, abs=1e-14)
    unseen = icl.risk(fresh, whole)
    assert float(unseen.of_coefficients(full.minimiser())) == pytest.approx(1.93548, abs=6e-6)
    best = np.diag([8 / 10, 0.0, 0.0])
    found = task_operator(best, fresh).risk(np.eye(3) / 3)
    assert found == pytest.approx(0.78667, abs=6e-6)


def floors(task) -> tuple[float, float]:
    """The smallest risks of the full and of the reduced form."""
    dim = task.dim
    whole = icl.Attention.separate(jr.key(0), dim=dim, heads=dim * (dim + 1), blind=False)
    blind = icl.Attention.separate(jr.key(0), dim=dim, heads=dim)
    return float(icl.risk(task, whole).floor(whole)), float(icl.risk(task, blind).floor(blind))


def polygon(sides: int) -> np.ndarray:
    angles = 2 * np.pi * np.arange(sides) / sides
    return np.column_stack([np.cos(angles), np.sin(angles)])


def test_full_form_sees_mean_and_second_moment_of_tasks_of_one_norm():
    """A seventh of the tasks at one point and the rest on a regular polygon: mean and second moment
    are those of every polygon, third moments are not."""
    fresh = LinearRegression(np.ones(2), 5, noise=0.1)
    first = np.array([[1.0, 0.0]])
    sets = [
        np.concatenate([np.repeat(polygon(sides), copies, 0), np.repeat(first, extra, 0)])
        for sides, copies, extra in ((3, 2, 1), (6, 1, 1), (12, 1, 2))
    ]
    thirds = [np.mean(each[:, 0] ** 3) for each in sets]
    assert thirds[0] > thirds[1] + 0.1
    found = [floors(FiniteTasks(each, fresh)) for each in sets]
    # Rounding of a least-squares problem with 12 features.
    assert np.ptp([full for full, _ in found]) < 1e-13
    assert found[0][0] < found[0][1] - 1e-3


def test_full_form_gains_from_norms_unless_tasks_come_with_their_negatives():
    fresh = LinearRegression(covariance=[[1.0, 0.3], [0.3, 0.5]], context=5, noise=0.1)
    rows = np.array([[1.0, 0.4], [-0.3, 1.2], [0.5, -0.8]])
    both = FiniteTasks(np.concatenate([rows, -rows]), fresh)
    full, reduced = floors(both)
    assert full == pytest.approx(reduced, abs=1e-13)
    # Mean zero, but E (wᵀΛw) w is not: only the full form can use that.
    skewed = FiniteTasks([[2.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]], fresh)
    full, reduced = floors(skewed)
    assert full < reduced - 1e-4


@pytest.mark.slow
def test_losses_of_a_full_form_run():
    fresh = LinearRegression(np.ones(3), 8, noise=0.2)
    task = FiniteTasks(cosine_tasks(2, 3), fresh)
    model = icl.Attention.merged(jr.key(0), dim=3, heads=4, scale=0.1, blind=False)
    run = icl.gradient_flow(model, icl.risk(task, model), end=5.0)
    losses = icl.test_losses(run, task)
    assert losses.idg == pytest.approx(losses.train, abs=1e-12)
    sampled = icl.SampledRisk(fresh, 4000).estimate(run.final, jr.key(1), 20_000)
    gap = losses.icl[-1] - float(sampled.value)
    assert abs(gap) < 4 * float(sampled.standard_error)


def test_models_without_a_closed_form_are_refused():
    task = FiniteTasks(np.eye(2), icl.isotropic(2, context=5))
    model = icl.Attention.diagonal(jr.key(0), dim=2, heads=2)
    flat = icl.Trajectory(np.zeros(1), np.zeros(1), jax.tree.map(lambda leaf: leaf[None], model))
    with pytest.raises(ValueError, match="are not linear in known features"):
        icl.test_losses(flat, task)
