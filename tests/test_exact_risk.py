"""The exact risk of reduced linear attention against Monte Carlo and finite differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import EIGENVALUES, deterministic_merged, four_components, random_task
from iclflow.models import AbstractModel, Attention, Merged, Separate
from iclflow.risks import BilinearRisk, SampledRisk, available_kinds, exact_bilinear_risk, risk
from iclflow.tasks import LinearRegression, Mixture, RandomLabels, in_context_in_weight

# Compiled as a whole: operation by operation, each would be compiled by itself.
value = eqx.filter_jit(lambda risk, model: risk(model))


def random_model(rng, dim, heads, rank, normaliser):
    """Normal weights of size 0.7, drawn without compiling anything."""
    weights = lambda *shape: jnp.asarray(0.7 * rng.normal(size=shape))
    if rank == 0:
        return Attention(Merged.of(weights(heads), weights(heads, dim, dim)), normaliser=normaliser)
    shape = heads, dim, min(rank, dim)
    return Attention(
        Separate.of(weights(heads), weights(*shape), weights(*shape)), normaliser=normaliser
    )


@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 10_000),
    # Few shapes, since each compiles; everything else about task and model is random.
    shape=st.sampled_from(
        [(1, 1, 0, 1, "context"), (3, 2, 2, (2, 7), "tokens"), (4, 2, 0, 5, "context")]
    ),
)
def test_exact_risk_is_the_mean_of_sampled_losses(seed, shape):
    dim, heads, rank, context, normaliser = shape
    rng = np.random.default_rng(seed)
    task = random_task(rng, dim, context)
    model = random_model(rng, dim, heads, rank, normaliser)
    exact = float(value(risk(task, model, "exact"), model))
    estimate = SampledRisk(task, 4000).estimate(model, jr.key(seed), 40_000)
    # Four standard errors; the loss of a cubic model has heavy tails, hence many sequences.
    assert abs(exact - float(estimate.value)) < 4 * float(estimate.standard_error)


@eqx.filter_jit
def slopes_of(exact, model, direction, step: float = 1e-4):
    """A central difference along a direction, the gradient in closed form, and by autodiff."""
    shifted = lambda sign: jax.tree.map(lambda w, d: w + sign * step * d, model, direction)
    difference = (exact(shifted(1)) - exact(shifted(-1))) / (2 * step)
    return difference, exact.gradient(model), jax.grad(lambda m: exact(m))(model)


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 10_000),
    shape=st.sampled_from([(1, 1, 0, 1), (3, 2, 2, (2, 7)), (4, 2, 0, 5)]),
)
def test_closed_form_gradient_equals_finite_differences(seed, shape):
    dim, heads, rank, context = shape
    rng = np.random.default_rng(seed)
    task = random_task(rng, dim, context)
    model = random_model(rng, dim, heads, rank, "context")
    exact = risk(task, model, "exact")
    direction = jax.tree.map(lambda w: jnp.asarray(rng.normal(size=w.shape)), model)
    difference, gradient, by_autodiff = slopes_of(exact, model, direction)
    inner = lambda g, d: np.sum(np.asarray(g) * np.asarray(d))
    along = sum(jax.tree.leaves(jax.tree.map(inner, gradient, direction)))
    # Central differences of a sextic: error step² f‴/6, with f‴ up to about 100 here.
    assert abs(along - difference) < 1e-6 * max(1.0, abs(float(along)))
    # And automatic differentiation of the value, to rounding.
    same = jax.tree.map(
        lambda a, b: np.allclose(a, b, rtol=1e-11, atol=1e-12), gradient, by_autodiff
    )
    assert jax.tree.all(same)


def test_diagonal_and_dense_storage_agree():
    model = deterministic_merged(0.5)
    diagonal = exact_bilinear_risk(four_components(noise=0.2), model)
    assert diagonal.covariance.ndim == 1
    dense = BilinearRisk(
        diagonal.constant,
        *(jnp.asarray(np.diag(m)) for m in (diagonal.cross, diagonal.second, diagonal.covariance)),
    )
    both = eqx.filter_jit(
        lambda risks, model: [(r(model), r.gradient(model).circuits.U) for r in risks]
    )
    (loss, slopes), (expected, expected_slopes) = both((diagonal, dense), model)
    assert float(loss) == pytest.approx(float(expected), rel=1e-14)
    assert np.allclose(slopes, expected_slopes, atol=1e-14)


def test_rotating_the_inputs_changes_nothing():
    rng = np.random.default_rng(3)
    basis, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    model = Attention.merged(jr.key(0), 4, 2, 0.7)
    turned = Attention(
        Merged.of(model.circuits.v, jnp.asarray(basis @ np.asarray(model.circuits.U) @ basis.T))
    )
    straight, rotated = (
        four_components(),
        LinearRegression(covariance=basis @ np.diag(EIGENVALUES) @ basis.T, context=31),
    )
    assert float(value(risk(straight, model), model)) == pytest.approx(
        float(value(risk(rotated, turned), turned)), rel=1e-13
    )


def test_floor_is_the_best_loss_of_the_rank_that_the_weights_allow():
    task = four_components()
    # Exact rational values of the plateau losses for these eigenvalues and N = 31.
    levels = [1, 221 / 345, 27601 / 73140, 567769 / 2706180, 85873 / 631442]
    rng = np.random.default_rng(0)
    for heads, level in zip((1, 2, 3, 4, 6), (*levels[1:], levels[4])):
        model = random_model(rng, 4, heads, 1, "context")
        assert float(risk(task, model).floor(model)) == pytest.approx(level, abs=1e-14)
    model = random_model(rng, 4, 1, 0, "context")
    assert float(risk(task, model).floor(model)) == pytest.approx(levels[4], abs=1e-14)


@pytest.mark.parametrize("per_coordinate", [False, True])
def test_floor_of_diagonal_heads_is_that_of_the_matrices_that_they_can_make(per_coordinate):
    rng = np.random.default_rng(3)
    task = random_task(rng, 3, 9)
    model = Attention.diagonal(
        jr.key(0), 3, 2, per_coordinate=per_coordinate, activation="linear", self_attention=True
    )
    own = risk(task, model, "exact")
    make = lambda z: np.diag(z) if per_coordinate else z[0] * np.eye(3)
    loss = lambda z: float(own.of_coefficients(jnp.asarray(make(z))))
    best = scipy.optimize.minimize(loss, np.zeros(3), method="BFGS", tol=1e-12).fun
    # A minimum is flat: the solver's point is good to 1e-8, its value to the square of that.
    assert float(own.floor(model)) == pytest.approx(best, rel=1e-10)
    free = Attention.merged(jr.key(0), 3, 4)
    assert best > float(risk(task, free, "exact").floor(free)) * 1.001


@pytest.mark.parametrize("shared", [True, False])
def test_mixture_risk_is_the_average_of_its_parts(shared):
    first = four_components(noise=0.1)
    second = four_components(prior_mean=np.ones(4), prior_covariance=np.zeros((4, 4)))
    if not shared:
        second = LinearRegression([1.0, 0.5, 0.2, 0.1], 11)
    model = deterministic_merged(0.6)
    mixed = risk(Mixture((first, second), (0.3, 0.7)), model, "exact")
    parts = [float(value(risk(task, model), model)) for task in (first, second)]
    assert float(value(mixed, model)) == pytest.approx(0.3 * parts[0] + 0.7 * parts[1], rel=1e-12)


def test_random_labels_leave_only_what_is_stored(getkey):
    task, model = RandomLabels(four_components(), np.ones(4), 0.5), deterministic_merged(2.0)
    estimate = SampledRisk(task, 5000).estimate(model, getkey(), 20_000)
    exact = float(value(risk(task, model), model))
    assert abs(exact - estimate.value) < 4 * estimate.standard_error


@pytest.mark.slow
def test_posterior_target_has_the_same_mean_and_less_noise(getkey):
    task = in_context_in_weight(four_components(noise=0.5), 0.5)
    model = deterministic_merged(1.0)
    plain = SampledRisk(task, 2000).estimate(model, getkey(), 20_000)
    better = SampledRisk(task, 2000, posterior_target=True).estimate(model, getkey(), 20_000)
    error = np.hypot(plain.standard_error, better.standard_error)
    assert abs(plain.value - better.value) < 4 * error
    assert better.standard_error < plain.standard_error


def test_monte_carlo_error_falls_as_the_square_root_of_the_count(getkey):
    sampled = SampledRisk(four_components(), 1000)
    few, many = (sampled.estimate(deterministic_merged(1.0), getkey(), n) for n in (2000, 32_000))
    slope = np.log(float(many.standard_error / few.standard_error)) / np.log(16)
    assert slope == pytest.approx(-0.5, abs=0.1)  # heavy tails make the error itself noisy


def test_asking_for_a_risk_that_does_not_exist_names_those_that_do():
    model = Attention.merged(jr.key(0), 4, 2, activation="softmax")
    assert available_kinds(four_components(), model) == ("dataset", "minibatch", "sampled")
    with pytest.raises(ValueError, match="choose one of dataset, minibatch, sampled"):
        risk(four_components(), model, "exact")


def test_natural_mistakes_are_told_in_one_sentence(unchecked):
    task, model = four_components(), deterministic_merged()
    with pytest.raises(TypeError, match="`task` and `model` are swapped: the task comes first."):
        risk(model, task)
    with pytest.raises(TypeError, match="`task` is of type int: must be a task."):
        risk(3, model)
    for small in (
        Attention.merged(jr.key(0), 3, 2),
        Attention.merged(jr.key(0), 3, 2, blind=False),
    ):
        with pytest.raises(ValueError, match="model has D = 3 and the task D = 4: must be equal"):
            risk(task, small)
    softmax = Attention.merged(jr.key(0), 3, 2, activation="softmax")
    with pytest.raises(ValueError, match="model has D = 3 and the task D = 4: must be equal"):
        risk(task, softmax, "sampled")


class Diagonal(AbstractModel):
    """ŷ = Σ_d w_d β_d x_q,d, with coefficients that may be wrong by a factor."""

    w: jax.Array
    error: float = 1.0

    def predict(self, sequences):
        beta = jnp.einsum("...nd,...ni->...d", sequences.x, sequences.y)
        beta = beta / sequences.length[..., None]
        return jnp.sum(self.w * beta * sequences.x_query, -1, keepdims=True)

    @property
    def form(self):
        return "bilinear"

    def coefficients(self):
        return jnp.diag(self.error * self.w)


@pytest.mark.parametrize("options", [{}, {"kind": "dataset", "sequences": 8}])
def test_coefficients_of_a_model_of_ones_own_must_be_those_of_its_predictions(options):
    task, weights = four_components(), jnp.asarray([1e-3, 2e-3, -1e-3, 5e-4])
    assert risk(task, Diagonal(weights), **options).kind == options.get("kind", "exact")
    with pytest.raises(ValueError, match=r"`coefficients\(\)` of Diagonal does not match its"):
        risk(task, Diagonal(weights, error=1.01), **options)
    # Where there is nothing to compare, nothing is said.
    stacked = jax.vmap(Diagonal)(jnp.stack([weights, weights]))
    assert risk(task, stacked).kind == "exact"


def test_best_risk_is_exact_for_linear_and_sampled_for_softmax():
    linear = Attention.merged(jr.key(0), 4, 2, blind=False)
    softmax = Attention.merged(jr.key(0), 4, 2, activation="softmax", blind=False)
    assert risk(four_components(), linear).kind == "exact"
    assert risk(four_components(), softmax).kind == "sampled"


def test_exact_risk_without_float64_says_how_to_switch_it_on():
    jax.config.update("jax_enable_x64", False)
    try:
        model = Attention.merged(jr.key(0), 4, 2)
        with pytest.raises(RuntimeError, match="enable_float64"):
            risk(LinearRegression(EIGENVALUES, 31), model)
    finally:
        jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (
            "exact",
            {"batch": 4},
            "is not an option of `kind` = 'exact': allowed are digits",
        ),
        ("sampled", {"digits": 9}, "`digits` = 9 is not an option of `kind` = 'sampled'"),
        ("best", {"chunk": 3}, "`chunk` = 3 is not an option of `kind` = 'best'"),
    ],
)
def test_options_that_a_kind_of_risk_does_not_have_are_refused(kind, options, said):
    with pytest.raises(ValueError, match=said):
        risk(four_components(), Attention.merged(jr.key(0), 4, 1), kind, **options)
