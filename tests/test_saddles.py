"""Hessians at points of known index, and the search for stationary points."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.analysis import find_stationary_points, hessian_spectrum
from iclflow.models import Attention, Merged, Separate
from iclflow.risks import SampledRisk, exact_bilinear_risk
from iclflow.tasks import LinearRegression

VALUES = np.array([0.4, 0.3, 0.2, 0.1])
STRENGTHS = np.array([155 / 69, 155 / 53, 155 / 37, 155 / 21])
INDICES = {
    (): 0, (0,): 0, (1,): 1, (2,): 2, (3,): 3, (0, 1): 0, (0, 2): 1, (0, 3): 2, (1, 2): 2,
    (1, 3): 3, (2, 3): 4, (0, 1, 2): 0, (0, 1, 3): 1, (0, 2, 3): 2, (1, 2, 3): 3, (0, 1, 2, 3): 0,
}  # fmt: skip
LOSSES = {
    (): 1.0, (1,): 0.736792452830189, (2,): 0.832432432432432, (3,): 0.926190476190476,
    (0, 2): 0.473012142577360, (1, 3): 0.662982929020665, (1, 2, 3): 0.495415361453097,
    (0, 1, 2, 3): 0.135995071598025,
}  # fmt: skip


def four_components() -> LinearRegression:
    return LinearRegression(VALUES, 31)


def aligned(subset, heads: int = 4, rank: int = 1) -> Attention:
    """Each component of a subset on a balanced head of its own, the other heads at zero."""
    v, k = np.zeros(heads), np.zeros((heads, 4, rank))
    for head, d in enumerate(subset):
        v[head] = k[head, d, 0] = np.cbrt(STRENGTHS[d])
    return Attention(Separate.of(jnp.asarray(v), jnp.asarray(k), jnp.asarray(k)))


def separate_risk():
    return exact_bilinear_risk(four_components(), aligned(()))


# Hessians -------------------------------------------------------------------------------------


@pytest.mark.parametrize("subset", INDICES)
def test_every_saddle_of_the_four_component_task_has_its_index(subset):
    found = hessian_spectrum(separate_risk(), aligned(subset))
    assert found.gradient_norm < 1e-13
    assert found.index == INDICES[subset]
    if subset in LOSSES:
        assert found.loss == pytest.approx(LOSSES[subset], abs=1e-14)


def test_curvature_along_an_unused_rank_is_known():
    found = hessian_spectrum(separate_risk(), aligned((0,), rank=2))
    assert found.eigenvalues[0] == pytest.approx(-0.2357400516, abs=1e-10)
    assert found.index == 3  # one for each component that is not learned


def test_merged_saddle_and_minimum_have_index_and_nullity():
    task = LinearRegression([0.5, 0.3, 0.2], 31)
    heads = 4
    at_zero = Attention(
        Merged.of(jnp.asarray(np.zeros(heads)), jnp.asarray(np.zeros((heads, 3, 3))))
    )
    risk = exact_bilinear_risk(task, at_zero)
    assert hessian_spectrum(risk, at_zero).index == heads
    optimum = np.diag(1 / (np.array([0.5, 0.3, 0.2]) * 32 / 31 + 1 / 31))
    blocks = jnp.asarray(np.stack([optimum / heads] * heads))
    minimum = hessian_spectrum(risk, Attention(Merged.of(jnp.asarray(np.ones(heads)), blocks)))
    assert (minimum.index, minimum.nullity) == (0, heads * (9 + 1) - 9)
    assert minimum.gradient_norm < 1e-13


def test_spectrum_against_finite_differences():
    rng = np.random.default_rng(0)
    v, K, Q = (jnp.asarray(0.7 * rng.normal(size=size)) for size in ((2,), (2, 2, 1), (2, 2, 1)))
    model = Attention(Separate.of(v, K, Q))
    risk = exact_bilinear_risk(LinearRegression([0.7, 0.3], 9, noise=0.1), model)
    leaves, structure = jax.tree.flatten(model)
    sizes = np.cumsum([leaf.size for leaf in leaves])[:-1]
    flat = np.concatenate([np.asarray(leaf).reshape(-1) for leaf in leaves])

    @jax.jit
    def compiled(x):
        parts = [p.reshape(l.shape) for p, l in zip(jnp.split(x, sizes), leaves)]
        return risk(jax.tree.unflatten(structure, parts))

    loss = lambda x: float(compiled(x))

    step = 1e-3
    moves = step * np.eye(len(flat))
    hessian = np.empty((len(flat), len(flat)))
    for (i, a), (j, b) in itertools.product(enumerate(moves), repeat=2):
        corners = loss(flat + a + b) - loss(flat + a - b) - loss(flat - a + b) + loss(flat - a - b)
        hessian[i, j] = corners / (4 * step**2)
    found = hessian_spectrum(risk, model)
    # Central differences: step² times a fourth derivative of about 10.
    np.testing.assert_allclose(found.eigenvalues, np.linalg.eigvalsh(hessian), atol=1e-4)
    slopes = [(loss(flat + a) - loss(flat - a)) / (2 * step) for a in moves]
    assert found.gradient_norm == pytest.approx(np.linalg.norm(slopes), rel=1e-4)
    assert found.loss == pytest.approx(loss(flat), rel=1e-12)


# Search ---------------------------------------------------------------------------------------


@cache
def separate_search():
    """Nothing in this task is diagonal; eight stationary functions are known to exist."""
    task = LinearRegression(
        covariance=[[0.5, 0.2, 0.0], [0.2, 0.4, 0.1], [0.0, 0.1, 0.3]],
        context=9,
        prior_covariance=[[1.0, 0.3, 0.1], [0.3, 0.8, 0.0], [0.1, 0.0, 0.6]],
    )
    # A template gives shapes, and the size of the starts, which are drawn from the key.
    v, K = jnp.asarray(np.ones(3)), jnp.asarray(np.ones((3, 3, 1)))
    template = Attention(Separate.of(v, K, K))
    risk = exact_bilinear_risk(task, template)
    return task, risk, find_stationary_points(risk, template, 80, jr.key(1))


def subset_losses(task: LinearRegression) -> np.ndarray:
    """tr(ΛM) − Σ_{j∈S} y_j² for every subset S of the singular values of C^(−½)ΛMΛ^½."""
    inputs, second = np.asarray(task.covariance), np.asarray(task.weight_second_moment)
    signal, power = inputs @ second @ inputs, np.sum(inputs * second)
    square = (1 + 1 / 9) * signal + power / 9 * inputs
    root = lambda a, p: (lambda w, v: (v * w**p) @ v.T)(*np.linalg.eigh(a))
    gains = np.linalg.svd(root(square, -0.5) @ inputs @ second @ root(inputs, 0.5))[1] ** 2
    subsets = itertools.chain.from_iterable(itertools.combinations(gains, m) for m in range(4))
    return np.sort([power - sum(subset) for subset in subsets])


@pytest.mark.slow
def test_restarts_find_subsets_of_components_and_nothing_else():
    task, _, found = separate_search()
    expected = subset_losses(task)
    distances = np.min(np.abs(found.losses[:, None] - expected), axis=1)
    # The gradient is below 1e-10; near a degenerate saddle the loss is off by its power 3/2.
    assert distances.max() < 1e-12
    assert found.gradient_norms.max() <= 1e-10
    assert len(found.losses) + found.failed == 80 and found.failed < 8
    assert np.all(np.diff(found.losses) >= 0)


@pytest.mark.slow
def test_distinct_losses_and_functions_are_counted_once():
    task, risk, found = separate_search()
    distinct = found.distinct_losses()
    assert 5 <= len(distinct) <= 8 and len(found.distinct_functions()) == len(distinct)
    assert np.all(np.min(np.abs(distinct[:, None] - subset_losses(task)), 1) < 1e-12)
    for model, loss in zip(found.distinct_functions(), distinct):
        assert float(risk(model)) == pytest.approx(loss, abs=1e-9)
        found_matrix = model.coefficients()
        slope, matrix = np.asarray(risk.slope(found_matrix)), np.asarray(found_matrix)
        # Stationary functions satisfy EᵀA = 0 and EAᵀ = 0.
        assert np.max(np.abs(slope.T @ matrix)) < 1e-4
    assert float(risk(found.at(0))) == pytest.approx(found.losses[0], abs=1e-12)


def merged_template() -> Attention:
    return Attention(Merged.of(jnp.asarray(np.ones(3)), jnp.asarray(np.ones((3, 4, 4)))))


@pytest.mark.slow
def test_merged_attention_has_two_stationary_losses():
    template = merged_template()
    risk = exact_bilinear_risk(four_components(), template)
    found = find_stationary_points(risk, template, 30, jr.key(3))
    np.testing.assert_allclose(found.distinct_losses(), [85873 / 631442, 1.0], atol=1e-12)


def test_scale_of_the_starts_matters_and_searches_repeat():
    template = merged_template()
    risk = exact_bilinear_risk(four_components(), template)
    near = find_stationary_points(risk, template, 5, jr.key(3), scale=1e-3)
    np.testing.assert_allclose(near.losses, 1.0, atol=1e-12)
    again = find_stationary_points(risk, template, 5, jr.key(3), scale=1e-3)
    np.testing.assert_array_equal(near.losses, again.losses)


def test_bad_input_is_refused():
    template, task = aligned(()), four_components()
    with pytest.raises(ValueError, match="without randomness"):
        hessian_spectrum(SampledRisk(task), template)
    with pytest.raises(ValueError, match="without randomness"):
        find_stationary_points(SampledRisk(task), template, 1, jr.key(0))
    with pytest.raises(ValueError, match="restarts"):
        find_stationary_points(separate_risk(), template, 0, jr.key(0))
