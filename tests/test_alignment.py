"""Alignment with eigenvectors, the order of learning, and conserved quantities."""

from functools import cache

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.analysis import (
    alignment,
    balancedness,
    drop_times,
    learned_components,
    learning_order,
    learning_times,
)
from iclflow.flows import SaveEvenly, gradient_descent, gradient_flow, stack
from iclflow.models import Attention, ConvolutionalLinear, Merged, Separate, TwoLayerLinear
from iclflow.risks import exact_bilinear_risk
from iclflow.tasks import LinearRegression
from iclflow.trajectory import Trajectory

VALUES = np.array([0.2, 0.4, 0.1, 0.3])
ORDER = [1, 3, 0, 2]  # from the largest eigenvalue down


@cache
def rotation() -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]


def rotated_task() -> LinearRegression:
    turn = rotation()
    return LinearRegression(covariance=(turn * VALUES) @ turn.T, context=31)


def vectors() -> np.ndarray:
    """Eigenvectors as columns, from the largest eigenvalue down, with signs of their own."""
    return rotation()[:, ORDER]


@cache
def run(kind: str, scale: float = 1e-2) -> Trajectory:
    if kind == "separate":
        model = Attention.separate(jr.key(0), 4, 5, 1, scale)
    else:
        model = Attention.merged(jr.key(0), 4, 3, scale)
    return gradient_flow(model, exact_bilinear_risk(rotated_task(), model), progress=False)


def still(model) -> Trajectory:
    """A run of two equal points."""
    stacked = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), model)
    return Trajectory(np.array([0.0, 1.0]), np.ones(2), stacked)


# Alignment ------------------------------------------------------------------------------------


def test_alignment_of_weights_that_are_known():
    e = vectors()
    keys = np.stack([3 * e[:, [0]], 0.1 * (e[:, [1]] + e[:, [2]])])
    queries = np.stack([-2 * e[:, [0]], 0.6 * e[:, [3]] + 0.8 * e[:, [1]]])
    model = Attention(Separate.of(jnp.array([1.0, 2.0]), jnp.asarray(keys), jnp.asarray(queries)))
    found = alignment(still(model), rotated_task())
    np.testing.assert_allclose(found.keys[0], [[1, 0, 0, 0], [0, 0.5, 0.5, 0]], atol=1e-12)
    np.testing.assert_allclose(found.queries[1], [[1, 0, 0, 0], [0, 0.64, 0, 0.36]], atol=1e-12)
    # A = −6 e₀e₀ᵀ + 0.2 (e₁ + e₂)(0.6 e₃ + 0.8 e₁)ᵀ.
    np.testing.assert_allclose(found.strengths[0], [-6, 0.16, 0, 0], atol=1e-12)
    outside = 0.2**2 * (0.6**2 * 2 + 0.8**2)
    whole = 36 + 0.2**2 * 2
    np.testing.assert_allclose(found.off_diagonal, outside / whole, rtol=1e-12)


def test_alignment_is_the_same_in_the_full_form_and_without_heads():
    task, model = rotated_task(), Attention.separate(jr.key(1), 4, 3, 2, 1.0)
    reduced = alignment(still(model), task)
    full = alignment(still(model.embed()), task)
    network = alignment(still(ConvolutionalLinear.from_attention(model)), task)
    for field in ("strengths", "off_diagonal", "keys", "queries"):
        np.testing.assert_allclose(getattr(full, field), getattr(reduced, field), atol=1e-12)
    np.testing.assert_allclose(network.strengths, reduced.strengths, atol=1e-12)
    merged = Attention.merged(jr.key(2), 4, 3, 1.0)
    whole = alignment(still(merged.embed()), task)
    np.testing.assert_allclose(whole.keys, alignment(still(merged), task).keys, atol=1e-12)
    np.testing.assert_allclose(np.sum(whole.keys, -1), 1.0, rtol=1e-12)


def test_labels_reach_the_effective_matrix_by_both_paths_of_the_full_form():
    model = Attention(
        Merged(jr.normal(jr.key(3), (2, 5))[:, None], jr.normal(jr.key(4), (2, 5, 4)))
    )
    # θ_abc multiplies G_ab x_c, and β stands at (a, y) and at (y, b).
    theta = np.asarray(model.coefficients())
    effective = theta[4, :4] + theta[:4, 4]
    expected = np.einsum("dk,de,ek->k", vectors(), effective, vectors())
    found = alignment(still(model), rotated_task())
    np.testing.assert_allclose(found.strengths[0], expected, atol=1e-12)


@pytest.mark.slow
def test_heads_align_with_one_eigenvector_each():
    found = alignment(run("separate"), rotated_task())
    active = np.argsort(np.abs(run("separate").models.circuits.v[-1]))[-4:]
    assert np.min(found.keys[0, active].max(-1)) < 0.9  # random at first
    # Four of the five heads carry a component each. Misalignment decays only as a power of the
    # initial weights: (1e-2)^(7/16) for the first two components, squared here.
    for heads in (found.keys[-1, active], found.queries[-1, active]):
        assert np.min(heads.max(-1)) > 0.95
        assert set(np.argmax(heads, -1).tolist()) == {0, 1, 2, 3}
    assert found.off_diagonal[0] > 0.1 and found.off_diagonal[-1] < 1e-6
    optimum = 1 / (VALUES[ORDER] * (1 + 1 / 31) + 1 / 31)
    # The run stops 1e-6 of the way down before the end; strengths are off by its square root.
    np.testing.assert_allclose(found.strengths[-1], optimum, rtol=1e-2)


# Order ----------------------------------------------------------------------------------------


def test_components_are_learned_from_the_largest_eigenvalue_down():
    task, flow = rotated_task(), run("separate")
    assert learning_order(flow, task) == (0, 1, 2, 3)
    times = learning_times(flow, task)
    drops = drop_times(flow)
    # Half the strength is three quarters of the loss step, shortly after half of it; drops are
    # tens of τ wide.
    assert np.all(times > drops) and np.all(times - drops < 30)


def test_learned_components_by_the_criterion_stated():
    task, e = rotated_task(), vectors()
    optimum = 1 / (VALUES[ORDER] * (1 + 1 / 31) + 1 / 31)
    strengths = np.array([0.51, 0.49, 1.2, -0.6]) * optimum
    matrix = (e * strengths) @ e.T
    assert learned_components(matrix, task) == (0, 2)
    assert learned_components(matrix, task, fraction=0.4) == (0, 1, 2)
    assert learned_components(np.zeros((4, 4)), task) == ()
    # Without division by N, A is N times smaller.
    assert learned_components(matrix / 31, task, normaliser="none") == (0, 2)


def test_learning_times_interpolate_and_say_never():
    task, e = LinearRegression([0.4, 0.1], 31), np.eye(2)
    optimum = 1 / (0.4 * 32 / 31 + 0.5 / 31)
    strength = np.array([0.0, 0.2, 0.8, 1.0]) * optimum
    blocks = strength[:, None, None, None] * np.outer(e[0], e[0])
    models = stack([Attention(Merged.of(jnp.ones(1), jnp.asarray(block))) for block in blocks])
    flow = Trajectory(np.array([0.0, 1.0, 3.0, 4.0]), np.ones(4), models)
    np.testing.assert_allclose(learning_times(flow, task), [2.0, np.nan])
    assert learning_order(flow, task) == (0,)
    assert learning_times(flow, task, fraction=1e-9)[0] == pytest.approx(0.0, abs=1e-8)


# Balance --------------------------------------------------------------------------------------


def test_gradient_flow_conserves():
    for kind in ("separate", "merged"):
        found = balancedness(run(kind))
        assert found.drift.shape == run(kind).times.shape and found.drift[0] == 0
        # Steps at a relative tolerance of 1e-9, a few hundred to a few thousand of them.
        assert 0 < found.relative_drift < 1e-8


def test_conserved_quantities_are_those_of_the_papers_index_by_index():
    merged, separate = run("merged"), run("separate")
    values = balancedness(merged).values["value - key-query"]
    v, U = merged.models.circuits.v, merged.models.circuits.U
    for t, i, j in [(0, 0, 1), (-1, 2, 2), (5, 1, 0)]:
        assert values[t, i, j] == pytest.approx(v[t, i] * v[t, j] - np.sum(U[t, i] * U[t, j]))
    values = balancedness(separate).values
    weights = separate.models.circuits
    v, K, Q = weights.v, weights.K, weights.Q
    for t, h in [(0, 0), (-1, 3)]:
        difference = K[t, h].T @ K[t, h] - Q[t, h].T @ Q[t, h]
        np.testing.assert_allclose(values["key - query"][t, h], difference, atol=1e-14)
        expected = v[t, h] ** 2 - np.sum(K[t, h] ** 2)
        assert values["value - key"][t, h] == pytest.approx(expected, abs=1e-14)


def test_networks_and_full_forms_have_the_same_balance():
    merged, separate = (
        Attention.merged(jr.key(5), 3, 2, 1.0),
        Attention.separate(jr.key(6), 3, 2, 2, 1.0),
    )
    pairs = [
        (merged, TwoLayerLinear.from_attention(merged)),
        (merged, merged.embed()),
        (separate, ConvolutionalLinear.from_attention(separate)),
        (separate, separate.embed()),
    ]
    for first, second in pairs:
        ours, theirs = balancedness(still(first)), balancedness(still(second))
        assert ours.values.keys() == theirs.values.keys()
        for name in ours.values:
            np.testing.assert_allclose(theirs.values[name], ours.values[name], atol=1e-12)


def test_balanced_initialisations_are_balanced_and_descent_drifts():
    for model in (
        Attention.merged(jr.key(7), 4, 3, 0.5, "balanced"),
        Attention.separate(jr.key(7), 4, 3, 2, 0.5, "balanced"),
    ):
        start = balancedness(still(model))
        assert max(np.abs(x).max() for x in start.values.values()) < 1e-14
    risk = exact_bilinear_risk(rotated_task(), model)
    drifts = [
        balancedness(gradient_descent(model, risk, rate, steps, save=SaveEvenly(10))).relative_drift
        for rate, steps in ((0.1, 200), (0.05, 400))
    ]
    # The drift of descent is of first order in the step: large, and halved with it.
    assert drifts[0] > 1e-3
    assert drifts[0] / drifts[1] == pytest.approx(2, rel=0.1)


def test_softmax_attention_is_refused():
    model = Attention.merged(jr.key(8), 3, 2, 1.0, activation="softmax")
    with pytest.raises(TypeError, match="conserves nothing"):
        balancedness(still(model))
