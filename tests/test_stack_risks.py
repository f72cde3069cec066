"""Exact and sampled risks of stacks of linear attention, against tokens and reference values."""

import dataclasses
from fractions import Fraction

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.optimize import minimize

import iclflow
from helpers import random_covariance
from iclflow.errors import InputError
from iclflow.models import (
    Attention,
    AttentionStack,
    DiagonalStack,
    FullStack,
    MergedStack,
    MovingDiagonalStack,
    MovingFullStack,
    MovingScalarStack,
    ScalarStack,
    SeparateStack,
)
from iclflow.risks import (
    GramRisk,
    StackRisk,
    WhiteStackRisk,
    available_kinds,
    stack_risk,
    white_stack_risk,
)
from iclflow.risks._wishart_rule import wishart_moments, wishart_rule
from iclflow.risks._wishart_words import trace_mean
from iclflow.tasks import LinearRegression, estimate_mean

FOUR = (0.4, 0.3, 0.2, 0.1)
ROWS = np.array([(1, 2, 3, 4), (2, 2, 2, 2), (1, 1, 1, 1), (0.5, 1, 0.5, 1)])


def white(dim: int, context, noise: float = 0.0) -> LinearRegression:
    """λ m d = 1, and no noise in the query: the loss of predicting zero is 1."""
    prior = np.eye(dim) / dim
    return LinearRegression(
        np.ones(dim), context, noise=noise, prior_covariance=prior, noisy_query=False
    )


def four(noise: float = 0.0, context=31) -> LinearRegression:
    return LinearRegression(FOUR, context, noise=noise, noisy_query=False)


def scalars(values, dim: int) -> ScalarStack:
    return ScalarStack(jnp.asarray(values, float), dim, depth=len(values))


def diagonals(rows) -> DiagonalStack:
    return DiagonalStack(jnp.asarray(rows, float), depth=len(rows))


def exact(task, model) -> float:
    return float(iclflow.risk(task, model, "exact")(model))


# Reference values were computed by programs that share no code with this one; docs/theory/depth.md.
@pytest.mark.parametrize(
    "dim, context, noise, gammas, wanted",
    [
        (5, 20, 0.0, (0.5, 1.2), 0.073),
        (5, 20, 0.25, (0.5, 1.2), 0.1331),
        (5, 20, 0.1, (0.4, 0.7, 1.7), 0.057019330960),
        (6, 3, 0.2, (0.3, 0.2), 0.674133333333),
    ],
)
def test_three_ways_to_the_risk_on_white_inputs_agree(dim, context, noise, gammas, wanted):
    task, model = white(dim, context, noise), scalars(gammas, dim)
    found = exact(task, model)
    assert abs(found - wanted) < 1e-12  # the digits of the reference
    assert isinstance(iclflow.risk(task, model), WhiteStackRisk)
    other = diagonals(np.outer(gammas, np.ones(dim)))
    assert abs(exact(task, other) - found) < 1e-13
    if len(gammas) == 2:
        full = FullStack(jnp.asarray(gammas)[:, None, None] * jnp.eye(dim), depth=2)
        assert abs(exact(task, full) - found) < 1e-13


@pytest.mark.parametrize(
    "depth, noise, wanted",
    [
        (2, 0.0, 0.102257460307),
        (2, 0.1, 0.109119129939),
        (3, 0.0, 0.075249095218),
        (3, 0.1, 0.083029624450),
        pytest.param(4, 0.0, 0.061660764499, marks=pytest.mark.slow),
        pytest.param(4, 0.1, 0.070026903586, marks=pytest.mark.slow),
    ],
)
def test_diagonal_stacks_have_the_reference_risks(depth, noise, wanted):
    assert abs(exact(four(noise), diagonals(ROWS[:depth])) - wanted) < 1e-12


def test_layers_are_not_equivalent_and_nothing_needs_to_commute():
    assert abs(exact(four(), diagonals(ROWS[[1, 0]])) - 0.098881944211) < 1e-12
    task = LinearRegression(
        covariance=[[1, 0.3], [0.3, 0.5]],
        prior_covariance=[[1, -0.2], [-0.2, 2]],
        context=4,
        noise=0.5,
        noisy_query=False,
    )
    steps = [[[0.5, 0.1], [-0.2, 0.4]], [[0.3, -0.1], [0.2, 0.6]]]
    model = FullStack(jnp.asarray(steps), depth=2)
    assert abs(exact(task, model) - 0.866717646350) < 1e-12


def test_a_word_by_word_risk_of_diagonal_matrices_is_that_of_the_table():
    task, rows = four(0.3, context=7), ROWS[:2]
    full = FullStack(jnp.asarray([np.diag(row) for row in rows]), depth=2)
    assert abs(exact(task, full) - exact(task, diagonals(rows))) < 1e-12


@pytest.mark.parametrize("options", [{}, {"normaliser": "tokens"}])
def test_several_context_lengths_are_averaged(options):
    shares = [0.25, 0.75]
    whole = LinearRegression(FOUR, (3, 9), noise=0.2, context_probabilities=shares)
    parts = [LinearRegression(FOUR, context, noise=0.2) for context in (3, 9)]
    for model in (diagonals(ROWS[:2]), ScalarStack(jnp.array([0.5, 2.0]), 4, depth=2)):
        model = dataclasses.replace(model, **options)
        wanted = np.dot(shares, [exact(part, model) for part in parts])
        assert abs(exact(whole, model) - wanted) < 1e-13
    task = LinearRegression(np.ones(4), (3, 9), noise=0.2, context_probabilities=shares)
    model = dataclasses.replace(ScalarStack(jnp.array([0.5, 0.2]), 4, depth=2), **options)
    assert abs(exact(task, model) - float(stack_risk_of_numbers(task, model))) < 1e-13


def stack_risk_of_numbers(task, model):
    """The same risk through the table over partitions."""
    wide = diagonals(np.outer(model.gamma, np.ones(model.dim)))
    wide = dataclasses.replace(wide, normaliser=model.normaliser)
    return stack_risk(task, wide)(wide)


def test_moments_are_those_of_small_tables():
    assert wishart_moments(5, 20, 7)[2:] == (
        *(Fraction(13, 10), Fraction(201, 100), Fraction(349, 100)),
        *(Fraction(65853, 10000), Fraction(662607, 50000)),
    )
    for dim, length in ((3, 7), (6, 2)):
        d, n = Fraction(dim), Fraction(length)
        third = 1 + 3 * (d + 1) / n + (d**2 + 3 * d + 4) / n**2
        fourth = 1 + 6 * (d + 1) / n + (6 * d**2 + 17 * d + 21) / n**2
        fourth += (d**3 + 6 * d**2 + 21 * d + 20) / n**3
        assert wishart_moments(dim, length, 5) == (1, 1, 1 + (d + 1) / n, third, fourth)


@pytest.mark.parametrize(
    "dim, length, depth",
    [
        *((5, 20, 6), (1, 4, 15), (10, 5, 3)),
        pytest.param(3, 2, 40, marks=pytest.mark.slow),
    ],
)
def test_rules_have_as_many_moments_as_a_gauss_rule_can(dim, length, depth):
    nodes, weights = wishart_rule(dim, length, depth + 1)
    moments = wishart_moments(dim, length, 2 * depth + 2)
    for k in range(2 * depth + 2):
        assert weights @ nodes**k == pytest.approx(float(moments[k]), rel=1e-11)
    assert np.all(nodes > 0) and np.all(weights > 0)


def test_words_are_means_of_traces_of_wishart_matrices():
    rng = np.random.default_rng(0)
    dim, length, count = 2, 3, 40_000
    letters = rng.normal(size=(4, dim, dim))
    x = rng.normal(size=(count, length, dim))
    grams = np.einsum("pnd,pne->pde", x, x) / length
    product = grams @ letters[0]
    for letter in letters[1:]:
        product = product @ grams @ letter
    sample = np.trace(product, axis1=1, axis2=2)
    found = 0.0
    for (power, traces), times in trace_mean(4, True).items():
        each = [np.trace(np.linalg.multi_dot([np.eye(dim), *(
            letters[i - 1] if i > 0 else letters[-i - 1].T for i in trace
        )])) for trace in traces]  # fmt: skip
        found += times * length**-power * np.prod(each)
    assert abs(found - sample.mean()) < 4 * sample.std() / count**0.5
    # Orders and transposes do not matter for diagonal letters: one term for each partition.
    assert len({traces for _, traces in trace_mean(4, False)}) == 15
    assert sum(trace_mean(4, False).values()) == 105 == sum(trace_mean(4, True).values())


def tokens_loss(task, model, count: int, seed: int = 0):
    """The loss of the real stack of attention on tokens, and its standard error."""
    sequences = task.sample(jr.key(seed), count)
    tokens: AttentionStack = model.to_attention()
    return estimate_mean(sequences.squared_error(tokens.predict(sequences)))


def agree(task, model, count: int = 20_000) -> None:
    found = tokens_loss(task, model, count)
    assert abs(exact(task, model) - float(found.value)) < 4 * float(found.standard_error)


def random_steps(key, depth: int, dim: int) -> jax.Array:
    return 0.4 * jnp.eye(dim) + 0.15 * jr.normal(key, (depth, dim, dim))


@pytest.mark.slow
@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("context", [2, 8])
@pytest.mark.parametrize("noise", [0.0, 0.4])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_exact_risks_are_the_losses_of_tokens(dim, context, noise, depth):
    rng = np.random.default_rng(dim + context)
    steps = random_steps(jr.key(depth), depth, dim)
    agree(white(dim, context, noise), scalars(np.asarray(steps[:, 0, 0]), dim))
    values = rng.uniform(0.3, 1.0, dim)
    prior = random_covariance(rng, dim)
    task = LinearRegression(values, context, noise=noise, prior_covariance=prior)
    agree(task, diagonals(np.einsum("laa->la", np.asarray(steps))))
    turned = random_covariance(rng, dim)
    task = LinearRegression(
        covariance=turned, context=context, noise=noise, prior_covariance=prior, prior_mean=values
    )
    agree(task, scalars(np.asarray(steps[:, 0, 0]), dim))
    if depth <= 2:
        agree(task, FullStack(steps, depth=depth))


@pytest.mark.parametrize("tied", [False, True])
def test_risks_of_heads_and_loops_are_those_of_their_steps(tied):
    rng = np.random.default_rng(2)
    task = LinearRegression(covariance=random_covariance(rng, 3), context=5, noise=0.3)
    for model in (
        MergedStack.init(jr.key(1), 3, 2, heads=2, scale=0.5, tied=tied),
        SeparateStack.init(jr.key(2), 3, 2, heads=3, scale=0.8, tied=tied),
    ):
        plain = FullStack(model.steps(), depth=2)
        assert exact(task, model) == pytest.approx(exact(task, plain), rel=1e-13)


MOVING = {
    "scalar": lambda: MovingScalarStack(jnp.array([0.3, 0.5]), jnp.array([0.4, 0.1]), 3, depth=2),
    "diagonal": lambda: MovingDiagonalStack(
        jnp.asarray(0.3 * ROWS[:2, :3]), jnp.asarray(0.2 * ROWS[1:3, :3]), depth=2
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MOVING)
@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_exact_risks_of_moving_stacks_are_the_losses_of_tokens(kind, noise):
    model = MOVING[kind]()
    task = LinearRegression([0.9, 0.6, 0.3], 6, noise=noise)
    agree(task, model, 40_000)
    if kind == "scalar":
        task = white(3, 6, noise)
        agree(task, model, 40_000)
        wide = MovingDiagonalStack(
            jnp.outer(model.gamma, jnp.ones(3)), jnp.outer(model.move, jnp.ones(3)), depth=2
        )
        assert exact(task, wide) == pytest.approx(exact(task, model), rel=1e-12)


def test_without_movement_a_moving_stack_is_a_plain_one():
    gamma = jnp.array([0.5, 1.2, 0.3])
    still = MovingScalarStack(gamma, jnp.zeros(3), 5, depth=3)
    assert exact(white(5, 20), still) == pytest.approx(exact(white(5, 20), scalars(gamma, 5)))
    one = MovingFullStack(random_steps(jr.key(0), 1, 4), jnp.ones((1, 4, 4)), depth=1)
    plain = FullStack(one.gamma, depth=1)
    assert exact(four(0.2), one) == pytest.approx(exact(four(0.2), plain), rel=1e-13)


@pytest.mark.parametrize(
    "task, model",
    [
        (white(5, 20, 0.1), scalars((0.4, 0.7, 1.7), 5)),
        (four(0.1), diagonals(ROWS[:2])),
        (four(0.1), FullStack(random_steps(jr.key(0), 2, 4), depth=2)),
        (white(3, 6, 0.1), MOVING["scalar"]()),
    ],
    ids=["spectrum", "partitions", "words", "moving"],
)
def test_gradients_are_differences_of_risks(task, model):
    risk = iclflow.risk(task, model)
    gradient = risk.gradient(model)
    value = jax.jit(lambda model: risk(model))
    for name, slope in iclflow.models.model_arrays(gradient).items():
        weights, place = np.array(getattr(model, name)), (0,) * slope.ndim
        ends = []
        for sign in (1, -1):
            moved = weights.copy()
            moved[place] += sign * 1e-5
            ends.append(float(value(dataclasses.replace(model, **{name: jnp.asarray(moved)}))))
        # Central differences: an error of h² third derivatives, and rounding over h.
        assert slope[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-9)


def test_the_risk_depends_on_inputs_through_their_product_with_the_weights():
    # x → A x, w → A⁻ᵀ w, Γ → A⁻ᵀ Γ A⁻¹ changes no prediction.
    rng = np.random.default_rng(3)
    turn = rng.normal(size=(3, 3)) + 2 * np.eye(3)
    back = np.linalg.inv(turn)
    covariance, prior = random_covariance(rng, 3), random_covariance(rng, 3)
    steps = np.asarray(random_steps(jr.key(4), 2, 3))
    options = {"context": 5, "noise": 0.3}
    task = LinearRegression(covariance=covariance, prior_covariance=prior, **options)
    moved = LinearRegression(
        covariance=turn @ covariance @ turn.T,
        prior_covariance=back.T @ prior @ back,
        **options,
    )
    one = FullStack(jnp.asarray(steps), depth=2)
    two = FullStack(jnp.asarray(back.T @ steps @ back), depth=2)
    assert exact(moved, two) == pytest.approx(exact(task, one), rel=1e-11)


def test_only_on_white_inputs_layers_may_be_exchanged():
    assert exact(white(5, 9, 0.2), scalars((0.3, 0.7, 0.1), 5)) == pytest.approx(
        exact(white(5, 9, 0.2), scalars((0.1, 0.3, 0.7), 5)), rel=1e-14
    )


def test_the_loop_is_a_saddle_with_the_known_curvature():
    # Along differences −κ, along the sum (2L − 1)κ; κ and γ° are reference values.
    task = white(5, 20)
    for depth, gamma, kappa in ((2, 0.74251814, 0.23922991), (3, 0.71558672, 0.09204024)):
        risk = iclflow.risk(task, scalars([gamma] * depth, 5))
        half = jax.hessian(lambda g: risk(ScalarStack(g, 5, depth=depth)) / 2)(
            jnp.full(depth, gamma)
        )
        wanted = [-kappa] * (depth - 1) + [(2 * depth - 1) * kappa]
        # γ° is known to 5e-9, κ to 5e-9.
        np.testing.assert_allclose(np.linalg.eigvalsh(half), wanted, rtol=1e-6)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_sampled_risks_have_the_exact_mean_and_little_noise(precision):
    task = LinearRegression(FOUR, (5, 9), noise=0.2)
    model = dataclasses.replace(diagonals(ROWS[:2]), normaliser="tokens")
    risk = iclflow.risk(task, model, "sampled", precision=precision)
    assert isinstance(risk, GramRisk)
    found = risk.estimate(model, jr.key(0), 20_000)
    assert abs(float(found.value) - exact(task, model)) < 4 * float(found.standard_error)
    tokens = iclflow.risk(task, model, "sampled", integrate="none")
    assert float(tokens.estimate(model, jr.key(0), 2000).standard_error) > 5 * float(
        risk.estimate(model, jr.key(0), 2000).standard_error
    )


def test_moving_matrices_are_sampled_with_the_mean_of_tokens():
    task = LinearRegression(covariance=random_covariance(np.random.default_rng(0), 2), context=6)
    model = MovingFullStack(random_steps(jr.key(0), 2, 2), random_steps(jr.key(1), 2, 2), depth=2)
    assert available_kinds(task, model)[0] == "dataset"
    found = iclflow.risk(task, model).estimate(model, jr.key(0), 20_000)
    tokens = tokens_loss(task, model, 20_000)
    error = np.hypot(float(found.standard_error), float(tokens.standard_error))
    assert abs(float(found.value) - float(tokens.value)) < 4 * error


@pytest.mark.parametrize(
    "task, model, words",
    [
        (four(), diagonals(np.vstack([ROWS, ROWS[:1]])), "stacks of 5 layers like these"),
        (four(), FullStack.init(jr.key(0), 4, 3), "other matrices up to 2"),
        (white(4, 9), scalars([0.1] * 41, 4), "numbers on white inputs have one up to 40 layers"),
        (four(), MovingFullStack.init(jr.key(0), 4, 2), "GD\\+\\+ stacks of 2 layers"),
        (four(), FullStack.init(jr.key(0), 4, 2, self_attention=True), "query is attended"),
    ],
)
def test_where_no_exact_risk_exists_a_sentence_says_where_one_does(task, model, words):
    assert available_kinds(task, model) == ("dataset", "minibatch", "sampled")
    with pytest.raises(InputError, match=f"does not exist for .*{words}.*choose one of dataset"):
        iclflow.risk(task, model, "exact")


def test_a_risk_refuses_stacks_that_it_is_not_about():
    task, model = four(), diagonals(ROWS[:2])
    risk = iclflow.risk(task, model)
    assert isinstance(risk, StackRisk)
    for other in (diagonals(ROWS[:3]), FullStack.init(jr.key(0), 4, 2)):
        with pytest.raises(ValueError, match="make a risk for each kind of stack"):
            risk(other)
    with pytest.raises(InputError, match="`normaliser` = 'none'"):
        risk(dataclasses.replace(model, normaliser="none"))
    with pytest.raises(TypeError, match="whose query is no key"):
        risk(dataclasses.replace(model, self_attention=True))
    with pytest.raises(ValueError, match="exact for polynomials of degree 2"):
        iclflow.risk(white(4, 9), scalars((1, 1), 4))(scalars((1, 1, 1), 4))


def test_a_loop_that_runs_longer_than_it_was_trained_diverges():
    task, trained = white(5, 20), ScalarStack(jnp.array([0.74251814]), 5, depth=2)
    wanted = {1: 0.23170, 2: 0.09980, 3: 0.05476, 4: 0.03757, 6: 0.05138, 8: 0.32243, 10: 4.857}
    for depth, loss in wanted.items():
        found = exact(task, trained.with_depth(depth))
        # Half a unit of the last digit of the reference.
        assert abs(found - loss) < (6e-4 if depth == 10 else 6e-6)


@pytest.mark.parametrize(
    "gamma, move, wanted",
    [
        ((0.51676, 3.47466), (0.86846,), 0.0575012),
        ((1.83252, 1.33421), (0.10267,), 0.1023449),
        ((0.3383, 2.09084, 8.56806), (0.87758, 0.57816), 0.00096131),
    ],
)
def test_moving_stacks_have_the_known_minima(gamma, move, wanted):
    # Steps are given to five digits: the risk at a minimum feels their error squared.
    depth = len(gamma)
    model = MovingScalarStack(jnp.array(gamma), jnp.array([*move, 0.0]), 5, depth=depth)
    task = LinearRegression(np.ones(5), 20, noisy_query=False)
    assert exact(task, model) == pytest.approx(wanted, rel=5e-5 if depth == 3 else 2e-6)


def test_reduced_linear_attention_is_one_step_for_a_sampled_risk():
    # Runs compare the loss of a stack with its loss on the same contexts.
    task = LinearRegression(covariance=random_covariance(np.random.default_rng(0), 3), context=5)
    attention = Attention.merged(jr.key(0), 3, 2, scale=0.5)
    stack = FullStack(attention.coefficients().T[None], depth=1)
    batch = GramRisk(task).draw(jr.key(1), 8)
    np.testing.assert_allclose(batch.losses(attention), batch.losses(stack), rtol=1e-14)
    assert exact(task, stack) == pytest.approx(exact(task, attention), rel=1e-13)


@pytest.mark.parametrize("dim, context", [(5, 20), (6, 3), (2, (4, 7))])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_smallest_risk_is_that_of_a_search(dim, context, depth):
    task = white(dim, context)
    for sets in (1, depth):
        model = ScalarStack(jnp.full(sets, 0.3), dim, depth)
        risk = white_stack_risk(task, model)
        # Unequal starts: equal layers are a saddle.
        start = 0.5 + 0.3 * np.arange(sets)
        found = minimize(_slope_of(risk, model), start, jac=True, method="BFGS", tol=1e-12)
        # A search ends at a gradient of 1e-12 or where the risk, about 1, changes no more.
        assert abs(float(risk.floor(model)) - found.fun) < 1e-13


def _slope_of(risk, model):
    def value(gamma):
        return risk(dataclasses.replace(model, gamma=gamma))

    compiled = jax.jit(jax.value_and_grad(value))
    return lambda gamma: tuple(np.asarray(part) for part in compiled(jnp.asarray(gamma)))


def test_the_smallest_risk_of_trained_layers_is_a_fraction():
    # R_2 = 359/4969 of five inputs and twenty examples; docs/theory/depth.md.
    model = scalars((0.5, 1.2), 5)
    found = white_stack_risk(white(5, 20), model).floor(model)
    assert abs(float(found) - 359 / 4969) < 1e-15


def test_the_smallest_risk_is_not_stated_where_it_is_not_known():
    noisy = white(5, 20, 0.1)
    two, one = scalars((0.5, 1.2), 5), scalars((0.5,), 5)
    assert np.isnan(white_stack_risk(noisy, two).floor(two))
    assert float(white_stack_risk(noisy, one).floor(one)) < exact(noisy, one)
    moving = MovingScalarStack(jnp.ones(2), jnp.ones(2), 5, 2)
    assert white_stack_risk(white(5, 20), moving).floor(moving) is None
