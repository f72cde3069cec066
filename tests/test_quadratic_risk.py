"""Quadratic risks: packing, value and slope, floors, and exact moments against Monte Carlo."""

import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from iclflow.models import Attention, ConvolutionalLinear, Merged, Separate, TwoLayerLinear
from iclflow.risks._dataset import dataset_risk
from iclflow.risks._quadratic import FeatureLayout, QuadraticRisk
from iclflow.risks._token_moments import exact_quadratic_risk, joint_moments
from iclflow.tasks import LinearRegression, Mixture, RandomLabels, Sequences

SHAPES = [("bilinear", 1), ("bilinear", 3), ("cubic", 1), ("cubic", 2), ("cubic", 4)]


def numpy_sequences(count, contexts):
    """Sequences in two dimensions, made without JAX."""
    rng = np.random.default_rng(12)
    length = rng.choice(np.array(contexts, float), count)
    keep = np.arange(max(contexts)) < length[:, None]
    x, y = rng.normal(size=(count, max(contexts), 2)), rng.normal(size=(count, max(contexts), 1))
    x, y = x * keep[..., None], y * keep[..., None]
    query, label = rng.normal(size=(count, 2)), rng.normal(size=(count, 1))
    return Sequences(*map(jnp.asarray, (x, y, query, label, length)))


def normal(*shapes, seed=14):
    """Weights made without JAX."""
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=shape)) for shape in shapes]


def zeros(shape):
    return jnp.asarray(np.zeros(shape))


def random_risk(rng, layout):
    triangle = np.triu(rng.normal(size=(layout.size + 1, layout.size + 1)))
    return triangle, QuadraticRisk.from_factor(triangle, layout, "exact")


# Packing


@pytest.mark.parametrize("form,dim", SHAPES)
def test_packing_is_undone_by_unpacking(form, dim):
    layout = FeatureLayout(form, dim)
    expected = dim * dim if form == "bilinear" else dim * (dim + 1) * (dim + 2) // 2
    assert layout.size == expected
    packed = jnp.asarray(np.random.default_rng(0).normal(size=layout.size))
    unpacked = jax.jit(layout.unpack)(packed)
    assert unpacked.shape == layout.coefficient_shape
    np.testing.assert_array_equal(jax.jit(layout.pack)(unpacked), packed)
    if form == "cubic":
        np.testing.assert_array_equal(unpacked, np.swapaxes(unpacked, 0, 1))


@pytest.mark.parametrize("form,dim", SHAPES)
def test_spreading_is_the_transpose_of_packing(form, dim):
    layout, rng = FeatureLayout(form, dim), np.random.default_rng(1)
    slope = jnp.asarray(rng.normal(size=layout.size))
    coefficients = jnp.asarray(rng.normal(size=layout.coefficient_shape))
    transposed = jax.jit(lambda slope: jax.vjp(layout.pack, coefficients)[1](slope)[0])
    np.testing.assert_allclose(jax.jit(layout.unpack_slope)(slope), transposed(slope), rtol=1e-15)


@eqx.filter_jit
def packed_and_predicted(model, sequences):
    return FeatureLayout.of(model).pack(model.coefficients()), model.predict(sequences)


def test_packed_coefficients_times_features_are_the_prediction():
    sequences = numpy_sequences(6, (2, 5))
    for normaliser, attends in (("context", True), ("tokens", False), ("none", True)):
        weights = normal((3, 1, 3), (3, 3, 2))
        model = Attention(Merged(*weights), normaliser=normaliser, self_attention=attends)
        packed, predictions = packed_and_predicted(model, sequences)
        for index in range(6):
            one = jax.tree.map(lambda leaf: np.asarray(leaf)[index], sequences)
            rows = [(*one.x[n], *one.y[n]) for n in range(int(one.length))]
            rows += [(*one.x_query, 0.0)] if attends else []
            divisor = {"context": one.length, "tokens": one.length + 1, "none": 1}[normaliser]
            gram = sum(np.outer(row, row) for row in rows) / divisor
            features = [
                gram[a, b] * one.x_query[c] for a in range(3) for b in range(a, 3) for c in (0, 1)
            ]
            # Sums of a few dozen terms of order one.
            np.testing.assert_allclose(predictions[index], [np.dot(packed, features)], rtol=1e-12)


# Value, slope and gradient


@pytest.mark.parametrize(
    "model",
    [
        Attention(Merged.of(*normal((2,), (2, 3, 3)))),
        Attention(Separate.of(*normal((2,), (2, 3, 2), (2, 3, 2)))),
        TwoLayerLinear.from_attention(Attention(Merged.of(*normal((2,), (2, 3, 3))))),
        ConvolutionalLinear.from_attention(
            Attention(Separate.of(*normal((2,), (2, 3, 2), (2, 3, 2))))
        ),
        Attention(Merged(*normal((2, 1, 4), (2, 4, 3)))),
        Attention(Separate(*normal((2, 1, 4), (2, 4, 2), (2, 3, 2)))),
    ],
    ids=["merged", "separate", "two layers", "convolution", "full merged", "full separate"],
)
def test_value_and_gradient_are_those_of_the_plain_quadratic_form(model):
    layout = FeatureLayout.of(model)
    triangle, risk = random_risk(np.random.default_rng(2), layout)
    joint = triangle.T @ triangle
    gram, moment, constant = joint[:-1, :-1], joint[:-1, -1], joint[-1, -1]

    def plain(m):
        theta = layout.pack(m.coefficients())
        return theta @ gram @ theta - 2 * moment @ theta + constant

    @eqx.filter_jit  # compiled as a whole: operation by operation takes far longer
    def everything(m):
        gradients = risk.gradient(m), eqx.filter_grad(risk)(m)
        return eqx.filter_value_and_grad(plain)(m), risk(m), risk.value_and_gradient(m), gradients

    (value, gradient), alone, both, gradients = everything(model)
    # The plain form cancels: 1e-11 of the largest term, which is a few hundred.
    np.testing.assert_allclose(alone, value, rtol=1e-11)
    np.testing.assert_array_equal(both[0], alone)
    for found in (*gradients, both[1]):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(gradient), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_slope_agrees_with_finite_differences():
    layout = FeatureLayout("cubic", 2)
    _, risk = random_risk(np.random.default_rng(3), layout)
    theta = jnp.asarray(np.random.default_rng(4).normal(size=layout.coefficient_shape))
    step = 1e-4 * jnp.asarray(np.random.default_rng(5).normal(size=theta.shape))
    # A central difference of a quadratic is exact; 1e-7 is rounding divided by the step.
    difference = risk.of_coefficients(theta + step) - risk.of_coefficients(theta - step)
    np.testing.assert_allclose(difference / 2, jnp.sum(risk.slope(theta) * step), rtol=1e-7)


def test_tiny_losses_are_exact():
    """A teacher of the same form labels the queries: the loss vanishes, and only R shows it."""
    teacher = Attention(Merged(*normal((3, 1, 3), (3, 3, 2))))
    sequences = numpy_sequences(50, (6,))
    sequences = eqx.tree_at(lambda s: s.y_query, sequences, teacher.predict(sequences))
    risk = dataset_risk(sequences, teacher)
    student = eqx.tree_at(lambda m: m.circuits.value, teacher, teacher.circuits.value + 1e-10)
    plain = jnp.mean((student.predict(sequences) - sequences.y_query) ** 2)
    assert plain < 1e-18
    # Rounding of θ and φ, 1e-16, is seen against a residual of 1e-10.
    np.testing.assert_allclose(risk(student), plain, rtol=1e-4)
    theta = risk.layout.pack(student.coefficients())
    constant = risk.target @ risk.target
    cancelling = theta @ risk.gram @ theta - 2 * risk.moment @ theta + constant
    # That form has no digit left: it is off by the whole loss, or by more.
    assert abs(cancelling - plain) > 0.5 * plain


def test_risks_of_one_shape_can_be_stacked():
    model = Attention(Merged(*normal((3, 1, 3), (3, 3, 2))))
    risks = [
        exact_quadratic_risk(LinearRegression([0.5, 0.3], context=n), model) for n in (3, 8, 20)
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *risks)
    together = eqx.filter_vmap(lambda risk: risk(model))(stacked)
    np.testing.assert_allclose(together, [risk(model) for risk in risks], rtol=1e-13)


# Floors


def test_floor_is_given_only_where_the_weights_can_reach_every_coefficient():
    _, cubic = random_risk(np.random.default_rng(6), FeatureLayout("cubic", 3))
    _, bilinear = random_risk(np.random.default_rng(7), FeatureLayout("bilinear", 3))
    # A floor depends on the shapes of the weights alone.
    for heads, reached in ((3, False), (4, True), (6, True)):
        model = Attention(Merged(zeros((heads, 4))[:, None], zeros((heads, 4, 3))))
        assert (cubic.floor(model) is not None) == reached
    for heads, rank, reached in ((4, 3, True), (4, 2, False), (7, 2, False), (8, 2, True)):
        model = Attention(
            Separate(
                value=zeros((heads, 4))[:, None],
                K=zeros((heads, 4, rank)),
                Q=zeros((heads, 3, rank)),
            )
        )
        assert (cubic.floor(model) is not None) == reached
    assert bilinear.floor(Attention(Merged.of(zeros(1), zeros((1, 3, 3))))) is not None
    for heads, rank, reached in ((2, 1, False), (3, 1, True), (1, 3, True)):
        keys = zeros((heads, 3, rank))
        assert (
            bilinear.floor(Attention(Separate.of(zeros(heads), keys, keys))) is not None
        ) == reached


def test_floor_is_the_least_squares_minimum_and_its_weights_exist():
    triangle, risk = random_risk(np.random.default_rng(8), FeatureLayout("cubic", 2))
    model = Attention(Merged(zeros((3, 3))[:, None], zeros((3, 3, 2))))
    # The last diagonal entry is what a triangular system cannot remove.
    np.testing.assert_allclose(risk.floor(model), triangle[-1, -1] ** 2, rtol=1e-10)
    best = risk.minimiser()
    # Head a reads token entry a: θ[a] is its block.
    reached = Attention(Merged(jnp.eye(3)[:, None], best))
    np.testing.assert_allclose(reached.coefficients(), best, rtol=1e-14)
    np.testing.assert_allclose(risk(reached), risk.floor(model), rtol=1e-10)


def test_floor_of_features_without_full_rank():
    """Two equal columns: a matrix that no triangular solve can invert."""
    rng = np.random.default_rng(9)
    rows = rng.normal(size=(40, 5))
    rows[:, 1] = rows[:, 0]
    risk = QuadraticRisk.from_factor(
        np.linalg.qr(rows, mode="r"), FeatureLayout("bilinear", 2), "dataset"
    )
    residual = np.linalg.lstsq(rows[:, [0, 2, 3]], rows[:, 4], rcond=None)[1][0]
    np.testing.assert_allclose(risk.minimum, residual, rtol=1e-12)
    np.testing.assert_allclose(risk.of_coefficients(risk.minimiser()), residual, rtol=1e-12)


# Refusals


def test_a_model_of_another_layout_is_refused():
    _, risk = random_risk(np.random.default_rng(10), FeatureLayout("cubic", 3))
    full = Merged(zeros((4, 1, 4)), zeros((4, 4, 3)))
    wrong = [
        (Attention(Merged.of(zeros(4), zeros((4, 3, 3)))), "bilinear"),
        (Attention(Merged(zeros((4, 3))[:, None], zeros((4, 3, 2)))), "`dim` = 2"),
        (Attention(full, normaliser="tokens"), '`normaliser` = "tokens"'),
        (Attention(full, self_attention=False), "`self_attention` = False"),
    ]
    for model, words in wrong:
        for call in (risk, risk.gradient, risk.value_and_gradient, risk.floor):
            with pytest.raises(ValueError, match=words):
                jax.eval_shape(call, model)  # refused before anything is computed
    with pytest.raises(TypeError, match="not linear in known features"):
        risk(Attention(full, activation="softmax"))
    assert jnp.isfinite(risk(Attention(full)))


def test_exact_moments_refuse_what_they_cannot_do():
    task = LinearRegression([0.5, 0.3])
    with pytest.raises(ValueError, match="`dim` = 2"):
        exact_quadratic_risk(task, Attention(Merged(zeros((2, 4))[:, None], zeros((2, 4, 3)))))
    with pytest.raises(TypeError, match="not linear in known features"):
        softmax = Attention(Merged(zeros((2, 3))[:, None], zeros((2, 3, 2))), activation="softmax")
        exact_quadratic_risk(task, softmax)
    large = LinearRegression(np.ones(20), context=3)
    with pytest.raises(ValueError, match="4620 features"):
        exact_quadratic_risk(large, Attention(Merged(zeros((2, 21))[:, None], zeros((2, 21, 20)))))


# Exact moments


def random_task(rng, dim, kind):
    """A task with everything switched on, from covariances that do not commute."""

    def covariance(rank):
        factor = rng.normal(size=(dim, rank))
        return factor @ factor.T / rank + (0.2 * np.eye(dim) if rank == dim else 0)

    def regression():
        return LinearRegression(
            covariance=covariance(dim),
            context=[1, 3, 6],
            context_probabilities=[0.2, 0.5, 0.3],
            noise=rng.uniform(0, 0.5),
            prior_mean=rng.normal(size=dim),
            prior_covariance=covariance(max(1, dim - 1)),
            noisy_query=bool(rng.integers(2)),
        )

    if kind == "mixture":
        return Mixture([regression(), regression()], [0.3, 0.7])
    if kind == "labels":
        return RandomLabels(regression(), rng.normal(size=dim), rng.uniform(0.5, 2))
    return regression()


def model_like(form, dim, **options):
    if form == "bilinear":
        return Attention(Merged.of(zeros(dim + 1), zeros((dim + 1, dim, dim))), **options)
    return Attention(
        Merged(zeros((dim + 1, 1, dim + 1)), zeros((dim + 1, dim + 1, dim))), **options
    )


MONTE_CARLO = [
    ("regression", "cubic", 1, "context", True),
    ("regression", "cubic", 3, "tokens", True),
    ("regression", "cubic", 2, "none", False),
    ("regression", "bilinear", 3, "context", True),
    ("mixture", "cubic", 2, "context", True),
    ("mixture", "bilinear", 2, "tokens", True),
    ("labels", "cubic", 2, "context", True),
    ("labels", "cubic", 3, "none", False),
]


class Draws(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    x_query: np.ndarray
    y_query: np.ndarray
    length: np.ndarray


def draw(task, rng, count) -> Draws:
    """Sequences of a task from its definition, made without JAX."""
    if isinstance(task, Mixture):
        pairs = zip(task.components, rng.multinomial(count, task.probabilities))
        parts = [draw(part, rng, int(n)) for part, n in pairs]
        return Draws(*(np.concatenate(leaves) for leaves in zip(*parts)))
    if isinstance(task, RandomLabels):
        drawn = draw(task.inputs, rng, count)
        labels = np.sqrt(task.label_variance) * rng.normal(size=drawn.y.shape)
        keep = np.arange(labels.shape[1]) < drawn.length[:, None]
        return drawn._replace(y=labels * keep, y_query=drawn.x_query @ np.asarray(task.weight))
    longest = max(task.contexts)
    length = rng.choice(np.array(task.contexts, float), count, p=task.context_probabilities)
    keep = np.arange(longest) < length[:, None]
    root = np.linalg.cholesky(np.asarray(task.covariance))
    x = rng.normal(size=(count, longest + 1, task.dim)) @ root.T
    w = rng.multivariate_normal(task.prior_mean, task.prior_covariance, count)
    clean = np.einsum("pnd,pd->pn", x, w)
    y = clean + np.sqrt(task.noise) * rng.normal(size=clean.shape)
    query = y[:, -1] if task.noisy_query else clean[:, -1]
    return Draws(x[:, :-1] * keep[..., None], y[:, :-1] * keep, x[:, -1], query, length)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind,form,dim,normaliser,attends", MONTE_CARLO)
def test_exact_moments_agree_with_monte_carlo(kind, form, dim, normaliser, attends):
    seed = MONTE_CARLO.index((kind, form, dim, normaliser, attends))
    rng = np.random.default_rng(seed)
    task = random_task(rng, dim, kind)
    model = model_like(form, dim, normaliser=normaliser, self_attention=attends)
    layout = FeatureLayout.of(model)
    exact = joint_moments(task, layout)

    # The features, built here from the tokens.
    drawn = draw(task, rng, 100_000)
    tokens = np.concatenate([drawn.x, drawn.y[..., None]], -1)
    if attends:
        query = np.pad(drawn.x_query, ((0, 0), (0, 1)))
        tokens = np.concatenate([tokens, query[:, None]], 1)
    divisor = {"context": drawn.length, "tokens": drawn.length + 1, "none": 1}[normaliser]
    gram = np.einsum("pna,pnb->abp", tokens, tokens, optimize=True) / divisor
    pairs = [(a, dim) for a in range(dim)] if form == "bilinear" else None
    pairs = pairs or [(a, b) for a in range(dim + 1) for b in range(a, dim + 1)]
    features = np.stack(
        [gram[a, b] * drawn.x_query[:, c] for a, b in pairs for c in range(dim)] + [drawn.y_query]
    )
    mean = features @ features.T / features.shape[1]
    square = features**2 @ (features**2).T / features.shape[1]
    error = np.sqrt((square - mean**2) / features.shape[1])
    np.testing.assert_array_equal(exact[error == 0], mean[error == 0])  # exact zeros
    # Up to 500 entries are looked at together, so that the largest of them gets 5 standard
    # errors: chance exceeds that in less than one draw of a thousand. They are correlated (at
    # D = 1 almost one number), so that their mean square says nothing more.
    assert np.max(np.abs(exact - mean)[error > 0] / error[error > 0]) < 5

    # Losses at random coefficients and at the optimum: 4 standard errors.
    risk = exact_quadratic_risk(task, model)
    for theta in (risk.minimiser(), rng.normal(size=layout.coefficient_shape) / dim):
        packed, exact_loss = packed_and_loss(risk, layout, jnp.asarray(theta))
        residual = np.append(packed, -1.0) @ features
        loss, spread = np.mean(residual**2), np.std(residual**2) / np.sqrt(residual.size)
        assert abs(exact_loss - loss) < 4 * spread


@eqx.filter_jit
def packed_and_loss(risk, layout, theta):
    return layout.pack(theta), risk.of_coefficients(theta)


def test_bilinear_form_is_the_kronecker_formula():
    """L = tr ΛM + σ_q² − 2 tr ΛMΛA + tr ΛAᵀCA, with noise and a prior that does not commute."""
    rng = np.random.default_rng(11)
    task = random_task(rng, 3, "regression")
    one_length = LinearRegression(
        covariance=task.covariance,
        context=9,
        noise=0.2,
        prior_mean=task.prior_mean,
        prior_covariance=task.prior_covariance,
    )
    model = Attention(Merged.of(*normal((2,), (2, 3, 3))))
    cov, second = np.asarray(task.covariance), np.asarray(task.weight_second_moment)
    signal = cov @ second @ cov
    spread = (1 + 1 / 9) * signal + (np.trace(second @ cov) + 0.2) / 9 * cov
    a = np.asarray(model.coefficients())
    expected = np.trace(cov @ second) + 0.2 - 2 * np.trace(signal @ a)
    expected += np.trace(cov @ a.T @ spread @ a)
    np.testing.assert_allclose(exact_quadratic_risk(one_length, model)(model), expected, rtol=1e-12)
    # The same function in the full form: its other blocks are there and zero.
    full = model.embed()
    np.testing.assert_allclose(exact_quadratic_risk(one_length, full)(full), expected, rtol=1e-12)


def test_reference_values_with_varying_context_length():
    task = LinearRegression([0.4, 0.3, 0.2, 0.1], context=range(1, 32))
    cases = {
        "tokens": (
            [2.0513654429743, 2.5807771489019, 3.4785006471667, 5.3338970978436],
            0.3213212085,
        ),
        "context": (
            [1.7185804286936, 2.1327214939250, 2.8098304313550, 4.1168824276050],
            0.3795201554,
        ),
    }
    for normaliser, (diagonal, loss) in cases.items():
        risk = exact_quadratic_risk(task, model_like("bilinear", 4, normaliser=normaliser))
        np.testing.assert_allclose(np.diag(risk.minimiser()), diagonal, atol=1e-12)
        np.testing.assert_allclose(risk.minimum, loss, atol=5e-11)  # ten published digits


def test_eight_dimensions_are_exact_and_take_seconds():
    task = LinearRegression(np.arange(8, 0, -1) / 36, context=31)
    model = Attention(Merged(zeros((9, 9))[:, None], zeros((9, 9, 8))))
    start = time.perf_counter()
    risk = exact_quadratic_risk(task, model)
    assert time.perf_counter() - start < 10  # measured 0.03 s
    # Random w never needs the blocks u and h, so the floor is that of the reduced model.
    np.testing.assert_allclose(risk.floor(model), 144519084323 / 677394017300, rtol=1e-11)
    assert risk.kind == "exact" and not risk.stochastic
