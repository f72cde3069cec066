"""The predictors that pretraining on K tasks is compared with, and the distances from them."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2

import iclflow as icl
from helpers import cosine_tasks, random_covariance
from iclflow.analysis import compare, known_estimators, recall_distances
from iclflow.errors import InputError
from iclflow.estimators import DiscreteMMSE, LabelLinear, Ridge, best_ridge
from iclflow.tasks import FiniteTasks, LinearRegression


def test_label_linear_prediction_is_the_kernel_formula():
    rng = np.random.default_rng(0)
    law = LinearRegression(covariance=random_covariance(rng, 4), context=5, noise=0.3)
    task = FiniteTasks(cosine_tasks(2, 4), law)
    drawn = task.sample(jr.key(0), 6)
    x, y, query = (np.asarray(part) for part in (drawn.x, drawn.y[..., 0], drawn.x_query))
    moment = np.asarray(task.vectors).T @ np.asarray(task.vectors) / 2
    gram = np.einsum("pnd,de,pme->pnm", x, moment, x) + 0.3 * np.eye(5)
    weight = np.einsum("de,pne,pn->pd", moment, x, np.linalg.solve(gram, y[..., None])[..., 0])
    found = np.asarray(LabelLinear(task).predict(drawn))[:, 0]
    # Another factorisation of the same well-conditioned matrices.
    assert found == pytest.approx(np.sum(weight * query, 1), rel=1e-9, abs=1e-12)


def test_label_linear_bound_of_one_task_is_an_integral():
    """R = σ² + E σ²p/(σ² + pχ²_N) with p = wᵀΛw."""
    noise, context = 0.25, 7
    law = LinearRegression([1.0, 0.5, 0.2], context, noise=noise)
    task = FiniteTasks([[0.4, -1.0, 0.7]], law)
    power = 0.4**2 + 0.5 + 0.2 * 0.7**2
    share = lambda z: noise * power / (noise + power * z) * chi2.pdf(z, context)
    exact = noise + quad(share, 0, np.inf)[0]
    bound = LabelLinear(task).bound(jr.key(0), 20_000)
    assert abs(float(bound.value) - exact) < 4 * float(bound.standard_error)
    # The same from drawn labels, with the posterior of the one task as the target.
    sampled = LabelLinear(task).risk(task, jr.key(1), 20_000)
    assert abs(float(sampled.value) - exact) < 4 * float(sampled.standard_error)


def test_label_linear_bound_is_near_its_large_size_limit():
    # θ = σ² + Σ m_j θ/(N m_j + θ) for these four tasks is .146335539662; the limit is from 0 to 6 %
    # low in sizes such as these.
    law = LinearRegression(np.ones(6), 12, noise=0.1)
    bound = LabelLinear(FiniteTasks(cosine_tasks(4, 6), law)).bound(jr.key(0), 5000)
    assert 0.146335539662 < float(bound.value) < 1.06 * 0.146335539662


def test_nothing_label_linear_beats_the_bound():
    law = LinearRegression(np.ones(4), 10, noise=0.1)
    task = FiniteTasks(cosine_tasks(3, 4), law)
    bound = LabelLinear(task).bound(jr.key(0), 5000)
    model = icl.Attention.separate(jr.key(0), dim=4, heads=4)
    # Linear attention at its optimum, dMMSE, which is not linear in labels, and the bound.
    attention = float(icl.risk(task, model).floor(model))  # pyright: ignore[reportArgumentType]
    dmmse = float(task.bayes_risk(jr.key(1), 5000).value)
    assert dmmse < float(bound.value) < attention


def test_best_ridge_on_isotropic_tasks_is_the_bayes_predictor():
    # Without sampling for one variance of tasks; and for any other numbers the minimum of a mean
    # over contexts, each of which is smallest at σ²/γ.
    assert float(best_ridge(icl.isotropic(5, context=8, noise=0.3)).penalty) == pytest.approx(1.5)
    nearly = np.eye(5) / 5
    nearly[0, 0] *= 1 + 1e-9
    law = LinearRegression(np.ones(5), 8, noise=0.3, prior_covariance=nearly)
    # A minimum is found to the root of rounding.
    assert float(best_ridge(law).penalty) == pytest.approx(1.5, rel=1e-6)


@pytest.mark.slow
def test_best_ridge_has_the_smallest_risk_of_all_penalties():
    rng = np.random.default_rng(1)
    law = LinearRegression(covariance=random_covariance(rng, 3), context=4, noise=0.5)
    task = FiniteTasks(2 * cosine_tasks(2, 3), law)
    best = best_ridge(task)
    at = lambda penalty: float(Ridge(penalty).risk(task, jr.key(2), 40_000).value)
    risks = [at(float(best.penalty) * factor) for factor in (1 / 2, 1, 2)]
    # The same sequences each time, so that differences are far better known than the risks.
    assert risks[1] < risks[0] and risks[1] < risks[2]


def test_best_ridge_needs_noise_and_signal():
    with pytest.raises(InputError, match="`task` has no label noise"):
        best_ridge(icl.isotropic(3, context=4, noise=0.0))
    with pytest.raises(InputError, match="`task` has no signal"):
        best_ridge(FiniteTasks([[0.0, 0.0]], LinearRegression([1, 1], 4, noise=0.1)))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("eigenvalues", [[0.5, 0.5, 0.5], [0.4, 0.3, 0.1]], ids=["white", "three"])
def test_every_estimator_names_itself_on_few_tasks(eigenvalues):
    law = LinearRegression(eigenvalues, 6, noise=0.1)
    task = FiniteTasks(cosine_tasks(2, 3), law)
    names = [estimator.name for estimator in known_estimators(task)]
    for name in ("dMMSE", "best label-linear", "ridge regression", "least squares"):
        assert name in names
    for estimator in (DiscreteMMSE(task.vectors, law.noise), LabelLinear(task)):
        found = icl.which_algorithm(estimator, task, count=500)
        assert found.best.name == estimator.name and found.best.distance < 1e-12


@pytest.mark.slow
def test_trained_attention_is_compared_on_few_tasks():
    task = FiniteTasks.draw(jr.key(0), 2, icl.isotropic(3, context=12, noise=0.2))
    softmax = icl.Attention.diagonal(jr.key(1), dim=3, heads=2, scale=0.5)
    names = [match.name for match in compare(softmax, task, count=500).algorithms[0].matches]
    assert "dMMSE" in names and "kernel regression" in names


def test_distances_are_differences_of_risks():
    """On the distribution that it is best for, E(ŷ − ŷ')² is the excess risk over a predictor."""
    fresh = icl.isotropic(3, context=12, noise=0.2)
    task = FiniteTasks.draw(jr.key(0), 2, fresh)
    model = icl.Attention.merged(jr.key(1), dim=3, heads=3, scale=0.3)
    run = icl.gradient_flow(model, icl.risk(task, model), end=4.0, save=icl.SaveEvenly(4))
    found = recall_distances(run, task, count=20_000)
    losses = icl.test_losses(run, task)
    for name, curve, bayes in (
        ("dmmse_idg", losses.idg, task.bayes_risk(jr.key(2), 20_000)),
        ("ridge_icl", losses.icl, fresh.bayes_risk(jr.key(3), 20_000)),
    ):
        expected = (curve - float(bayes.value)) / 3
        errors = np.hypot(found.standard_errors[name], float(bayes.standard_error) / 3)
        # 4 standard errors at each of the saved moments.
        assert np.all(np.abs(getattr(found, name) - expected) < 4 * errors)
    assert np.array_equal(found.times, run.times)


def test_distances_of_the_predictors_themselves_are_zero():
    fresh = LinearRegression(np.ones(2), 5, noise=0.4)
    task = FiniteTasks(cosine_tasks(3, 2), fresh)
    own = {"dmmse": DiscreteMMSE(task.vectors, fresh.noise), "ridge": Ridge(0.4)}
    for name, estimator in own.items():
        stacked = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], estimator)
        run = icl.Trajectory(np.zeros(1), np.zeros(1), stacked)
        found = recall_distances(run, task, count=200)
        for test in ("idg", "icl"):
            assert getattr(found, f"{name}_{test}")[0] < 1e-24
            other = "ridge" if name == "dmmse" else "dmmse"
            assert getattr(found, f"{other}_{test}")[0] > 1e-3


def test_distances_need_few_tasks_and_two_sequences():
    model = icl.Attention.merged(jr.key(1), dim=2, heads=2)
    run = icl.Trajectory(np.zeros(1), np.zeros(1), jax.tree.map(lambda leaf: leaf[None], model))
    with pytest.raises(TypeError, match="task"):
        recall_distances(run, icl.isotropic(2, context=4))  # pyright: ignore[reportArgumentType]
    task = FiniteTasks(np.eye(2), icl.isotropic(2, context=4))
    with pytest.raises(InputError, match="`count` = 1"):
        recall_distances(run, task, count=1)
