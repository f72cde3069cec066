"""What the claims on several tasks are made of."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow import theory
from iclflow.models import Attention, Factored, Spectral
from iclflow.papers import Lab, select_claims
from iclflow.papers.multitask import claims_authors, runs_authors
from iclflow.papers.multitask.claims_separation import DIVISIONS
from iclflow.papers.multitask.runs import (
    closed_under_symmetries,
    paper_task,
    rotate_weights,
    rotated_task,
    small_task,
)
from iclflow.papers.multitask.runs_curved import attention_moments, curved_loss
from iclflow.risks import IntegratedRisk, large_context_risk, risk
from iclflow.tasks import MultiTaskRegression, isotropic
from iclflow.theory import multitask


def rows(data) -> np.ndarray:
    """All sequences, each as one row, in an order that depends on the set of them alone."""
    leaves = (data.x, data.y, data.x_query, data.y_query)
    flat = np.hstack([np.asarray(leaf).reshape(data.count, -1) for leaf in leaves])
    return flat[np.lexsort(np.round(flat, 12).T)]


def test_closed_data_do_not_change_under_flips_and_permutations():
    task = small_task()
    drawn = task.sample(jr.key(0), 2)
    data = closed_under_symmetries(drawn, task.coordinates)
    assert data.count == 2 * 2**3 * 2**2 * 2
    again = type(data)(
        data.x[..., [0, 2, 1]] * np.array([1.0, -1.0, 1.0]),
        data.y * np.array([-1.0, 1.0]),
        data.x_query[..., [0, 2, 1]] * np.array([1.0, -1.0, 1.0]),
        data.y_query * np.array([-1.0, 1.0]),
        data.length,
    )
    assert np.allclose(rows(again), rows(data), atol=1e-12)
    assert not np.allclose(rows(data)[:2], rows(drawn))


def test_closed_data_without_noise_are_still_linear_regressions():
    task = MultiTaskRegression([[0], [1, 2]], context=6, noise=0.0, signal=1.0)
    data = closed_under_symmetries(task.sample(jr.key(0), 1), task.coordinates)
    for x, y, query, label in zip(data.x, data.y, data.x_query, data.y_query):
        for task_labels, block, value in zip(np.asarray(y).T, task.coordinates, label):
            inputs = np.asarray(x)[:, list(block)]
            beta = np.linalg.lstsq(inputs, task_labels, rcond=None)[0]
            assert inputs @ beta == pytest.approx(task_labels, abs=1e-10)
            assert float(np.asarray(query)[list(block)] @ beta) == pytest.approx(float(value))


@pytest.mark.slow
def test_turned_factors_are_those_of_the_model_in_turned_coordinates():
    task, hidden = paper_task(), rotated_task()
    start = Attention(Spectral.of(0.2 * np.eye(3) + 0.05, np.eye(3) + 0.3, task.coordinates))
    plain = Attention(start.circuits.factored(jr.key(1)))
    turns = hidden.input_rotation, hidden.output_rotation
    direct = start.circuits.factored(jr.key(1), *turns)
    moved = rotate_weights(plain, hidden)
    for name in "KQVO":
        assert np.allclose(getattr(moved.circuits, name), getattr(direct, name), atol=1e-13)
    loss, again = (
        risk(task, plain, "large_context")(plain),
        risk(hidden, moved, "large_context")(moved),
    )
    assert float(again) == pytest.approx(float(loss), rel=1e-12)


# Labels that are not linear -------------------------------------------------------------------


@pytest.mark.parametrize("slope", [0.3, 1.0, 3.0])
def test_moments_of_attention_are_those_of_the_theory_of_linear_labels(slope):
    whole, square, own = attention_moments(slope, 400, 0)
    concentration = multitask.concentration(slope, 400)
    # Attention adds up to 1.
    assert (whole, square) == pytest.approx((1.0, 1.0), abs=1e-10)
    assert own[0] == pytest.approx(concentration, rel=1e-8)
    # Stein's identity.
    assert attention_moments(slope, 400, 1)[0] == pytest.approx(slope * (1 - concentration))


@pytest.mark.parametrize("omega, mu, dim, length", [(0.3, 2.9, 10, 400), (0.5, 1.2, 5, 40)])
def test_curved_loss_of_degree_one_is_that_of_linear_labels(omega, mu, dim, length):
    linear = theory.kernel_regression_risk(isotropic(dim, length, 0.0), omega, mu)
    assert curved_loss(omega, mu, dim, length, 1) == pytest.approx(linear, rel=1e-8)


@pytest.mark.parametrize("degree", [2, 3])
def test_curved_loss_is_the_mean_loss_on_contexts_that_are_drawn(degree):
    omega, mu, dim, length = 0.3, 1.5, 6, 30
    rng = np.random.default_rng(degree)
    x, query = rng.normal(size=(20_000, length, dim)), rng.normal(size=(20_000, dim))
    scores = omega * np.einsum("pnd,pd->pn", x, query)
    weights = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    label = {2: lambda z: (z**2 - 1) / 2**0.5, 3: lambda z: (z**3 - 3 * z) / 6**0.5}[degree]
    predicted = mu * np.einsum("pn,pnd->pd", weights, label(x))
    # Endless contexts return gain times qᵏ/√k!, whose loss is known: drawn is the difference.
    gain, power = mu * omega**degree, {2: 3 / 2, 3: 15 / 6}[degree]
    endless = gain * query**degree / {2: 2, 3: 6}[degree] ** 0.5
    rest = np.mean((label(query) - predicted) ** 2 - (label(query) - endless) ** 2, 1)
    drawn = rest.mean() + 1 - 2 * gain + power * gain**2
    error = rest.std() / len(rest) ** 0.5
    assert abs(drawn - curved_loss(omega, mu, dim, length, degree)) < 4 * error < 0.05


# Numbers in sentences -------------------------------------------------------------------------


def sentence(name: str) -> str:
    return select_claims([f"multitask/{name}"])[0].statement


def test_numbers_in_sentences_are_those_of_theory():
    lengths = (1e2, 1e4, 1e6)
    edges = [multitask.regime_edges(length).exponential for length in lengths]
    units = [
        length * multitask.concentration(edge, length) / np.exp(edge**2)
        for edge, length in zip(edges, lengths)
    ]
    assert "{:.2f}, {:.2f} and {:.2f}".format(*units) in sentence("regimes")
    omega, mu = 10**-0.5, 10**0.5 / (1 + np.e / 40)
    finite = [curved_loss(omega, mu, 10, 400, degree) for degree in (2, 3)]
    endless = [curved_loss(omega, mu, 10, 10**7, degree) for degree in (2, 3)]
    transfer = sentence("hermite-transfer")
    assert "{:.2f} on quadratic labels and {:.2f} on cubic".format(*finite) in transfer
    assert "{:.2f} and {:.2f}".format(*endless) in transfer
    blocks = multitask.Blocks(np.full(4, 10.0), np.full(4, 0.1), np.zeros(4), 1e9)
    losses = [multitask.divided_limit(blocks, owners).loss for owners in DIVISIONS]
    assert losses[0] / losses[3] == pytest.approx(8 / 3, rel=1e-6)
    assert "8/3 where three heads have 2, 1 and 1" in sentence("separation")


@pytest.mark.slow
def test_the_closed_form_from_the_authors_starts_is_the_risk_with_its_slopes():
    rng = np.random.default_rng(3)
    omega = 0.2 * rng.standard_normal((2, 3, 30))
    read = rng.standard_normal((2, 3, 3, 3))
    loss, by_omega, by_read = runs_authors.closed_form_slopes(omega, read, gain=1.0)
    task, token = paper_task(), runs_authors.TOKEN
    keys = token**0.5 * omega[:, :, None, :] * np.eye(token, 30)
    ones = np.broadcast_to(np.eye(token, 30), (3, token, 30))
    labels = np.broadcast_to(np.eye(token, 3), (3, token, 3))

    def value(circuits):
        K, U = circuits
        O = U @ np.swapaxes(labels, 1, 2)  # noqa: E741
        model = Attention(Factored(K, jnp.asarray(ones), jnp.asarray(labels), O))
        return large_context_risk(task)(model)

    for n in range(2):
        found, slopes = jax.value_and_grad(value)((jnp.asarray(keys[n]), jnp.asarray(read[n])))
        # Two sums of a thousand terms of order one.
        assert np.allclose(loss[n], found, rtol=1e-12)
        own = token**0.5 * np.einsum("hdd->hd", np.asarray(slopes[0])[:, :30])
        assert np.allclose(by_omega[n], own, rtol=1e-9, atol=1e-9)
        assert np.allclose(by_read[n], slopes[1], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_without_noise_the_authors_first_start_follows_theorys_flow(monkeypatch):
    lab = Lab("smoke")
    monkeypatch.setattr(runs_authors, "RATE", 0.0125)
    slopes = runs_authors.closed_form_slopes
    monkeypatch.setattr(runs_authors, "closed_form_slopes", partial(slopes, gain=1.0))
    found = claims_authors.lab_flow(lab, 0, 0, 600.0)
    k, q = (each[0].reshape(3, 3, 10).mean(-1) for each in runs_authors.diagonal_factors(0))
    mu = np.einsum("hii->hi", runs_authors.read_factors()) ** 2
    omega = k * q / runs_authors.TOKEN**0.5
    half = multitask.phase_times(paper_task(), omega, mu, runs_authors.TOKEN, (0.5,))[0]
    # Losses are 1 apart, and steps of 0.025 are late by some 0.3 in all.
    drop = 0.5 * (found.losses[0, 0] + multitask.gradient_flow_limit(paper_task()).loss)
    time = found.times[np.argmax(found.losses[0] < drop)]
    assert 0 < time - half < 1.5
    assert np.array_equal(found.owners(), [[0, 1, 2]])


@pytest.mark.slow
def test_the_noise_of_batches_on_the_authors_start_is_what_gradients_have():
    k, q = runs_authors.diagonal_factors(0)
    model = runs_authors.authors_model(k[0], q[0], blind=True)
    data = IntegratedRisk(paper_task(), 64)
    slope = eqx.filter_jit(lambda key: data.value_and_gradient(model, key)[1].circuits.V)
    own = np.array([np.asarray(slope(key))[0, 30, 0] for key in jr.split(jr.key(0), 400)])
    # ∂L/∂V = Oᵀ ∂L/∂U, and that of U has the noise 2G.
    expected = 2 * runs_authors.read_factors()[0, 0, 0] * (10 / (100 * 64)) ** 0.5
    # 400 draws know a deviation to 3.5 %: four of these.
    assert abs(own.std() / expected - 1) < 0.14
