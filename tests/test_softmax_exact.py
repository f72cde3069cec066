"""The exact risk of structured softmax attention, against simulation and independent numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.optimize
from scipy.stats import chi

from iclflow.models import Attention, Diagonal
from iclflow.risks import IntegratedRisk, available_kinds, exact_softmax_risk, risk
from iclflow.risks._softmax_quadrature import head_moments, pair_moments
from iclflow.tasks import LinearRegression, isotropic


def structured(omega, mu, dim: int = 5) -> Attention:
    return Attention(Diagonal(jnp.asarray(omega, float), jnp.asarray(mu, float), dim))


def few_heads(omega, mu, dim: int, least: int = 2) -> Attention:
    """With heads that read nothing added, up to two or four: then all share two programs."""
    count = 4 if len(omega) > 2 else least
    fill = lambda x: [*x, *[0.0] * (count - len(x))]
    return structured(fill(omega), fill(mu), dim)


def moments(function, *arguments, digits: int = 10, check: bool = False) -> np.ndarray:
    columns = [jnp.asarray(column, float) for column in arguments]
    return np.asarray(function(*columns, jnp.ones(len(columns[0])), digits, check))


def test_moments_equal_reference_values():
    # L, a, b: E|p|², E[p·p′], E[(p·s)(p′·s)], E(p·s)², from an independent quadrature.
    rows = np.asarray([
        (40, 0.5, -0.5, 0.031755746155, 0.019637452331, -0.219366882391, 0.273429046847),
        (40, 1.0, 0.3, 0.059642202926, 0.033046644446, 0.315618933278, 0.982077913431),
        (100, 1.5, -0.7, 0.061497498463, 0.003674822787, -0.969122827853, 2.100729297723),
        (8, 0.8, -0.8, 0.195681353737, 0.075649845549, -0.366954523991, 0.663919255134),
    ])  # fmt: skip
    length, a, b, square, overlap, product, product_square = rows.T
    own = moments(head_moments, a, length)
    both = moments(pair_moments, a, b, length)
    # Given to 12 decimals; 10 digits of precision are nominal, and these slopes are small.
    assert np.max(np.abs(own - np.stack([square, product_square], 1))) < 1e-11
    assert np.max(np.abs(both - np.stack([overlap, product], 1))) < 1e-11


def test_overlap_of_a_head_with_itself_from_flat_to_saturated():
    slopes = [0.5, 1, 2, 4, 1, 2, 4]
    lengths = [100] * 4 + [1e4] * 3
    reference = [
        0.01278390, 0.02553848, 0.12626215, 0.42289972, 0.00027162, 0.00450745, 0.16622703,
    ]  # fmt: skip
    found = moments(head_moments, slopes, lengths)[:, 0]
    assert np.max(np.abs(found - reference)) < 1e-8  # the last decimal given


@pytest.mark.slow
def test_every_grid_adds_up_to_one_from_flat_to_saturated_heads():
    # Σ_ℓ Σ_ℓ′ E[p_ℓ p′_ℓ′] = 1 for slopes to 40 and L from 1 to 10⁶, all signs and ratios.
    slopes, lengths = [0.01, 0.7, 1.6, 3, 8, 40], [1, 1.3, 2, 40, 1e6]
    grid = np.meshgrid(slopes, [-1, -0.3, 0, 0.01, 1], lengths)
    slope, ratio, length = (axis.ravel() for axis in grid)
    alone, tokens = (axis.ravel() for axis in np.meshgrid(slopes, lengths))
    own = moments(head_moments, alone, tokens, check=True)
    both = moments(pair_moments, slope * ratio, -slope, length, check=True)
    # At L = 10⁶ the exponent alone turns rounding into 10⁶ · 10⁻¹⁶.
    assert np.max(np.abs(own[:, 2] - 1)) < 1e-9 and np.max(np.abs(both[:, 2] - 1)) < 1e-9
    # A pair of equal heads is a head with itself, by entirely different integrals.
    equal = moments(pair_moments, alone, alone, tokens)
    assert np.max(np.abs(equal - own[:, :2]) / own[:, :2]) < 1e-9
    # Saturated heads all read the token at the end of the sample.
    assert both[(slope == 40) & (ratio == -1) & (length == 2), 0] > 0.98


_PAIR = ((0.13, -0.13), (3.45, -3.45))
_REFERENCE = [
    (5, 40, 0.1, *_PAIR, 0.24324363848, 1e-10, (0.11868424, -0.11868424, 0.00436579, -0.00436579)),
    (5, 40, 0.1, (0.1, -0.1), (4, -4), 0.25005463199, 1e-10,
     (-0.70995941, 0.70995941, -0.01784080, 0.01784080)),
    (5, 40, 0.1, (5**-0.5,), (1.627695,), 0.4080761952, 1e-9, (-0.1837121, -0.0270190)),
    (5, 40, 0.1, (0.6, -0.3), (1, -2), 0.36389311, 1e-8,
     (0.497009, -1.044110, 0.288859, -0.212768)),
    (5, 40, 0.1, (0.5, 0.1, -0.4), (0.7, 0.4, -0.9), 0.2859819021, 1e-9,
     (-0.1512501, -0.1476774, 0.2489053, -0.1449751, -0.0267354, 0.1481903)),
    (10, 20, 0.1, (0.2, -0.2), (1.6, -1.6), 0.49096015283, 1e-10, None),
    (10, 100, 0.0, (10**-0.5,), (2.486403,), 0.23546569170, 1e-10, None),
    (20, 40, 0.0, (0.05, -0.05), (6.5, -6.5), 0.35050179229, 1e-10, None),
    (30, 300, 0.1, (0.1, -0.1), (4.4, -4.4), 0.20424398094, 1e-10, None),
]  # fmt: skip


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("dim", "length", "noise", "omega", "mu", "loss", "tol", "slope"), _REFERENCE
)
def test_risk_and_gradient_equal_reference_values(dim, length, noise, omega, mu, loss, tol, slope):
    exact = exact_softmax_risk(isotropic(dim, length, noise))
    value, gradient = exact.value_and_gradient(few_heads(omega, mu, dim, least=4))
    assert abs(float(value) - loss) < tol
    if slope is not None:
        heads = len(omega)
        found = np.concatenate([gradient.circuits.omega[:heads], gradient.circuits.mu[:heads, 0]])
        # The reference has seven decimals, or six: two of its last unit.
        assert np.max(np.abs(found - slope)) < (2e-6 if tol == 1e-8 else 1e-6)


def noisy(exact, noise):
    """The same risk with labels of another noise, of context and query alike."""
    return eqx.tree_at(lambda r: (r.task.noise, r.task.query_noise), exact, (noise, noise))


def simulated(rng, omega, mu, dim: int, length: int, noises, count: int, chunk: int = 2500):
    """Means and standard errors with weights, noise and all but one direction integrated out; in
    chunks that fit into the cache of a processor."""
    samples = []
    for _ in range(count // chunk):
        s = rng.normal(size=(chunk, length))
        r = rng.permutation(chi.ppf((np.arange(chunk) + rng.random(chunk)) / chunk, dim))
        c = np.zeros_like(s)
        for w, m in zip(omega, mu):
            scores = w * r[:, None] * s
            p = np.exp(scores - scores.max(1, keepdims=True))
            c += m * p / p.sum(1, keepdims=True)
        signal, spread = (r - np.sum(c * s, 1)) ** 2 / dim, np.sum(c**2, 1)
        samples.append([n + signal + ((dim - 1) / dim + n) * spread for n in noises])
    samples = np.concatenate(samples, 1)
    return samples.mean(1), samples.std(1) / np.sqrt(samples.shape[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "length", "omega", "mu", "count"),
    [
        (1, 1, (2.0, -0.3), (1.0, 0.5), 150_000),
        (1, 2, (2.0, -2.0), (0.7, -0.4), 150_000),
        (1, 10, (-1.7, 0.2, 0.9, 0.0), (0.8, -0.5, 0.3, 0.2), 100_000),
        (1, 40, (-2.0,), (0.9,), 100_000),
        (2, 10, (2.0, 2.0), (0.3, 0.4), 100_000),
        (2, 200, (0.4, -1.3), (0.8, 0.6), 50_000),
        (5, 40, (1.75, -1.75, 0.07, -0.07), (0.04, -0.04, 5.6, -5.6), 50_000),
        (20, 2, (-2.0, -0.4, 1.1), (0.5, 0.5, -0.6), 50_000),
        (20, 40, (2.0, -2.0), (0.5, 0.3), 50_000),
        (20, 200, (-0.6, 0.3), (0.7, 1.0), 50_000),
    ],
)
def test_risk_agrees_with_simulation(dim, length, omega, mu, count):
    # The noise enters both sides linearly: two values of it stand for all.
    rng, noises = np.random.default_rng(length + 7 * dim), (0.0, 3.0)
    mean, error = simulated(rng, omega, mu, dim, length, noises, count)
    model, exact = few_heads(omega, mu, dim), exact_softmax_risk(isotropic(dim, length))
    # Together: the integrals, which take long, are the same.
    found = jax.vmap(lambda noise: noisy(exact, noise)(model))(jnp.asarray(noises))
    assert np.max(error / mean) < 5e-3  # a simulation that could not fail would be no test
    # A sample of one token has no variance left where the noise does not enter.
    assert np.all(np.abs(found - mean) < 4 * error + 1e-9)


@pytest.mark.slow
def test_risk_agrees_with_the_model_itself_for_any_scale_of_inputs_and_weights(getkey):
    task = LinearRegression(
        covariance=1.7 * np.eye(3),
        prior_covariance=0.4 * np.eye(3),
        noise=0.3,
        context=[4, 9],
        context_probabilities=[0.25, 0.75],
        noisy_query=False,
    )
    model = structured([0.35, -0.2], [1.1, -0.8], 3)
    exact = float(risk(task, model)(model))
    # With labels integrated out a fifth of the sequences will do.
    estimate = IntegratedRisk(task, 10_000).estimate(model, getkey(), 200_000)
    assert estimate.standard_error < 3e-3 * exact
    assert abs(estimate.value - exact) < 4 * estimate.standard_error


@pytest.mark.slow
def test_closed_forms_of_heads_that_do_not_look_and_of_a_single_token():
    for dim, length, noise in ((1, 2.5, 0.0), (5, 40, 0.1), (20, 7, 3.0)):
        exact = exact_softmax_risk(isotropic(dim, 2, noise)).at_length(length)
        blind = few_heads([0.0, 0.0], [0.8, 0.5], dim)
        uniform = noise + 1 + 1.3**2 * (1 + noise) / length
        assert float(exact(blind)) == pytest.approx(uniform, abs=1e-10)
        alone = exact.at_length(1.0)(few_heads([0.9, -0.4], [0.8, 0.5], dim))
        assert float(alone) == pytest.approx(noise + 1 + 1.3**2 * (1 + noise), abs=1e-9)


@pytest.mark.slow
def test_heads_may_be_permuted_mirrored_and_merged():
    exact = exact_softmax_risk(isotropic(5, 40, 0.1))
    value = lambda omega, mu: float(exact(few_heads(omega, mu, 5)))
    one = value([1.2, 1.2, -0.4], [0.3, 0.5, 0.7])
    assert value([-0.4, 1.2, 1.2], [0.7, 0.5, 0.3]) == pytest.approx(one, abs=1e-9)
    assert value([-1.2, -1.2, 0.4], [-0.3, -0.5, -0.7]) == pytest.approx(one, abs=1e-9)
    assert value([1.2, -0.4], [0.8, 0.7]) == pytest.approx(one, abs=1e-9)


def test_any_real_length_lies_on_one_smooth_curve_through_the_whole_ones():
    exact = exact_softmax_risk(isotropic(5, 40, 0.1))
    model = few_heads([0.5, -0.2], [1.0, -1.5], 5)
    at = lambda length: float(exact.at_length(length)(model))
    lengths = (38, 39, 40, 41)
    whole = [float(exact_softmax_risk(isotropic(5, n, 0.1))(model)) for n in lengths]
    assert [at(float(n)) for n in lengths] == pytest.approx(whole, abs=1e-12)
    # A cubic through four neighbours errs by a fourth difference, of the order of L⁻⁵.
    cubic = np.polynomial.Polynomial.fit(lengths, whole, 3)
    assert at(39.5) == pytest.approx(cubic(39.5), abs=1e-7)
    assert abs(at(39.5) - (whole[1] + whole[2]) / 2) > 1e-6  # and it is no straight line


@pytest.fixture(scope="module")
def value_and_slopes():
    """The risk of two heads as a function of all that it depends on; in one program, the same and
    its first derivatives."""
    setting = exact_softmax_risk(isotropic(5, 40, 0.1))

    def value(weights, length, noise):
        return noisy(setting.at_length(length), noise)(structured(weights[:2], weights[2:]))

    # The value by itself is not compiled as a whole: what it consists of is there already.
    return value, jax.jit(jax.value_and_grad(value, argnums=(0, 1, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("omega", [(0.07, -0.07), (0.6, -0.3), (1.7, -1.7)])
def test_derivatives_equal_finite_differences(value_and_slopes, omega):
    any_value, slopes = value_and_slopes
    weights, step = jnp.asarray([*omega, 1.1, -0.7]), 1e-4
    # Two ways that move every weight, each by an amount of its own.
    ways = step * np.array([[0.5, 0.7, -0.4, 0.3], [-0.6, 0.2, 0.6, 0.5]])
    between = lambda f, x, way: (f(x + way) - f(x - way)) / (2 * step)
    value = lambda w, length=40.0, noise=0.1: any_value(w, length, noise)
    slope = lambda w: slopes(w, 40.0, 0.1)[1][0]
    # Central differences err by step²/6 times third derivatives, of up to a hundred.
    _, (by_weights, by_length, by_noise) = slopes(weights, 40.0, 0.1)
    along = lambda derivative: [derivative @ way / step for way in ways]
    assert np.allclose(along(by_weights), [between(value, weights, w) for w in ways], atol=2e-6)
    if omega == (0.07, -0.07):  # second derivatives take long to compile
        hessian = jax.jit(jax.jacfwd(jax.grad(value)))(weights)
        assert np.allclose(along(hessian), [between(slope, weights, w) for w in ways], atol=1e-5)
        assert np.allclose(hessian, hessian.T, atol=1e-9)
    # All that μ and σ² enter is polynomial; L is the one argument left.
    assert by_length == pytest.approx(
        float(between(lambda n: value(weights, n), 40.0, step)), abs=1e-8
    )
    assert by_noise == pytest.approx(
        float(between(lambda n: value(weights, 40.0, n), 0.1, step)), abs=1e-9
    )


@pytest.mark.slow
def test_many_heads_at_once_equal_one_at_a_time(value_and_slopes):
    exact = exact_softmax_risk(isotropic(5, 40, 0.1))
    weights = jnp.asarray([[0.1, -0.1, 3, -3], [0.6, 0.2, 1, 0.4], [1.9, -0.3, 0.2, 1]])
    many = jax.vmap(lambda w: exact.value_and_gradient(structured(w[:2], w[2:])))
    values, gradients = jax.jit(many)(weights)
    for k in range(3):
        value, (slope, *_) = value_and_slopes[1](weights[k], 40.0, 0.1)
        # Another order of summation, nothing else.
        assert float(values[k]) == pytest.approx(float(value), abs=1e-12)
        assert np.allclose(gradients.circuits.omega[k], slope[:2], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "length", "omega"),
    [
        (1, 2, (-1.8, 1.6)), (1, 40, (3.0, 0.0)), (1, 200, (2.0, -1.1)), (2, 2, (1.9, 1.6)),
        (5, 2, (1.07, 1.11)), (5, 40, (0.13, -0.13)), (20, 2, (2.0, 1.9)), (20, 40, (2.0, -2.0)),
    ],
)  # fmt: skip
def test_error_estimates_hold_and_errors_fall_with_the_digits(dim, length, omega):
    task = isotropic(dim, length, 0.1)
    model = few_heads(omega, (1.3, -0.9), dim)
    found, error = exact_softmax_risk(task).with_error(model)
    at = lambda digits: float(exact_softmax_risk(task, digits)(model))
    values = [at(8), at(10), float(found)]
    assert abs(values[1] - values[2]) <= float(error) < 1e-8
    unit = (1.3 + 0.9) ** 2  # what the digits promise: (Σ|μ|)² in that digit
    assert abs(values[0] - values[2]) < 1e-8 * unit
    assert abs(values[1] - values[2]) < 1e-10 * unit
    if (dim, length) == (5, 40):  # as good as that, it is taken as it is
        assert at(12) == values[2]
        assert exact_softmax_risk(task).refine(model, 1e-8) == (values[2], float(error), 10)


@pytest.mark.slow
def test_errors_that_no_grid_brings_down_are_said(monkeypatch):
    monkeypatch.setattr("iclflow.risks._softmax_exact._DIGITS", (6, 10))
    exact = exact_softmax_risk(isotropic(5, 40, 0.1))
    with pytest.raises(RuntimeError, match="on the finest grid: more than `tolerance` = 1e-30"):
        exact.refine(few_heads((0.13, -0.13), (3.45, -3.45), 5), 1e-30)


def test_best_risk_of_structured_heads_is_exact_on_isotropic_tasks_alone():
    scalar = structured([0.1, -0.1], [0.1, -0.1])
    kinds = ("exact", "large_context", "first_order", "dataset", "minibatch", "sampled")
    assert available_kinds(isotropic(5), scalar) == kinds
    assert risk(isotropic(5), scalar).kind == "exact"
    tilted = LinearRegression([1.0, 1.0, 1.0, 1.0, 2.0], 40)
    assert available_kinds(tilted, scalar) == ("large_context", *kinds[3:])
    each = Attention.diagonal(jr.key(0), 5, 2, per_coordinate=True)
    assert available_kinds(isotropic(5), each) == ("large_context", *kinds[3:])
    attending = Attention.diagonal(jr.key(0), 5, 2, self_attention=True)
    assert available_kinds(isotropic(5), attending) == kinds[3:]


def test_what_has_no_exact_risk_is_refused():
    with pytest.raises(ValueError, match="multiples of the identity"):
        exact_softmax_risk(LinearRegression([1.0, 2.0], 9))
    exact = exact_softmax_risk(isotropic(5))
    with pytest.raises(TypeError, match="one `omega` per head"):
        exact(Attention.merged(jr.key(0), 5, 2, activation="softmax", blind=False))
    with pytest.raises(ValueError, match="D = 3 and the task D = 5"):
        exact(structured([0.1], [0.1], 3))
    with pytest.raises(ValueError, match="`digits` = 20"):
        exact_softmax_risk(isotropic(5), 20)
    for length in (0.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"`length` = {length}: must be at least 1 and finite"):
            exact.at_length(length)


@pytest.mark.slow
def test_the_slope_of_the_pair_vanishes_at_its_interior_optimum(value_and_slopes):
    # (`softmax/interior-optimum` is the claim that gradient flow ends there.)
    exact = exact_softmax_risk(isotropic(5, 40, 0.1))

    def best_mu(w: float) -> float:
        form, signs = exact.quadratic_form(jnp.asarray([w, -w])), np.array([1.0, -1.0])
        return float(signs @ form.linear / (signs @ form.square @ signs))

    def at(w: float):
        mu = best_mu(w)
        loss, (slope, *_) = value_and_slopes[1](jnp.asarray([w, -w, mu, -mu]), 40.0, 0.1)
        return loss, slope

    # Along the valley μ = μ*(w) the loss has one slope, that in w.
    found = float(scipy.optimize.brentq(lambda w: float(at(w)[1][0]), 0.06, 0.09, xtol=1e-8))
    assert found == pytest.approx(0.071246, abs=2e-6)
    assert best_mu(found) == pytest.approx(6.1755, abs=2e-4)
    loss, slope = at(found)
    assert float(loss) == pytest.approx(0.24282410, abs=1e-8)
    assert np.max(np.abs(slope[2:])) < 1e-9
