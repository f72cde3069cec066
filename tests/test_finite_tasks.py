"""Pretraining on K tasks: the task, its risks, its posterior, its settings."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import iclflow as icl
from helpers import cosine_tasks, random_covariance
from iclflow.config import InputError, parse_config, to_toml
from iclflow.estimators import DiscreteMMSE, LeastSquares, PopulationPCR
from iclflow.experiment import build_task
from iclflow.risks import exact_bilinear_risk, exact_quadratic_risk
from iclflow.tasks import FiniteTasks, LinearRegression, Mixture


def fixed_tasks(task: FiniteTasks) -> Mixture:
    """The same as a mixture of regressions, each with one fixed task vector."""
    law, zero = task.fresh, np.zeros((task.dim, task.dim))
    parts = [
        LinearRegression(
            covariance=law.covariance,
            context=law.contexts,
            noise=float(law.noise),
            prior_mean=vector,
            prior_covariance=zero,
            noisy_query=law.noisy_query,
        )
        for vector in np.asarray(task.vectors)
    ]
    return Mixture(parts, np.full(task.count, 1 / task.count))


@pytest.fixture(scope="module")
def task() -> FiniteTasks:
    """Three tasks on correlated inputs and two lengths."""
    covariance = random_covariance(np.random.default_rng(0), 4)
    fresh = LinearRegression(covariance=covariance, context=(3, 6), noise=0.2, noisy_query=False)
    return FiniteTasks(cosine_tasks(3, 4), fresh)


def test_exact_risks_are_those_of_a_mixture_of_fixed_tasks(task):
    # Means of products over the tasks, summed in another order: rounding.
    mixture = fixed_tasks(task)
    blind = icl.Attention.merged(jr.key(0), dim=4, heads=2, scale=0.7)
    whole = icl.Attention.separate(jr.key(1), dim=4, heads=3, scale=0.7, blind=False)
    for model, exact in ((blind, exact_bilinear_risk), (whole, exact_quadratic_risk)):
        assert float(exact(task, model)(model)) == pytest.approx(
            float(exact(mixture, model)(model)), rel=1e-12
        )
    assert type(icl.risk(task, blind)).__name__ == "BilinearRisk"
    assert type(icl.risk(task, whole)).__name__ == "QuadraticRisk"


def test_exact_risk_is_the_mean_of_sampled_losses(task):
    for blind in (True, False):
        model = icl.Attention.separate(jr.key(2), dim=4, heads=3, scale=0.5, blind=blind)
        sampled = icl.SampledRisk(task, 4000).estimate(model, jr.key(3), 40_000)
        gap = float(icl.risk(task, model)(model) - sampled.value)
        assert abs(gap) < 4 * float(sampled.standard_error)


# The optimum of three unit tasks on white inputs: from the theory of docs/theory/linear.md (reduced
# form) and, for the full form, from a mixture of three fixed tasks before this class existed.
@pytest.mark.parametrize(
    "heads, blind, optimum", [(4, True, 0.380679579142), (20, False, 0.319940040879)]
)
def test_smallest_risk_on_three_unit_tasks(heads, blind, optimum):
    fresh = LinearRegression(np.ones(4), 10, noise=0.1)
    model = icl.Attention.separate(jr.key(0), dim=4, heads=heads, blind=blind)
    found = icl.risk(FiniteTasks(cosine_tasks(3, 4), fresh), model).floor(model)
    assert found == pytest.approx(optimum, abs=6e-13)


def test_reduced_form_optimum_has_as_many_steps_as_independent_tasks():
    fresh = LinearRegression(np.ones(4), 10, noise=0.1)
    one = LinearRegression(np.ones(4), 10, noise=0.1, prior_mean=[1, 0, 0, 0],
                           prior_covariance=np.zeros((4, 4)))  # fmt: skip
    twice = FiniteTasks([[1, 0, 0, 0], [1, 0, 0, 0]], fresh)
    model = icl.Attention.separate(jr.key(0), dim=4, heads=4)
    # Tasks that coincide are one task.
    assert icl.risk(twice, model).floor(model) == icl.risk(one, model).floor(model)
    levels = []
    for heads in (1, 2, 3, 4):
        model = icl.Attention.separate(jr.key(0), dim=4, heads=heads)
        levels.append(float(icl.risk(FiniteTasks(cosine_tasks(2, 4), fresh), model).floor(model)))
    assert levels[0] > levels[1] + 0.1
    assert np.ptp(levels[1:]) < 1e-14


def test_bayes_prediction_is_that_of_the_mixture(task):
    mixture, drawn = fixed_tasks(task), task.sample(jr.key(0), 20)
    expected = jax.tree.map(
        np.asarray, (mixture.bayes_predict(drawn), mixture.bayes_variance(drawn))
    )
    assert np.allclose(task.bayes_predict(drawn), expected[0], rtol=1e-10, atol=1e-12)
    assert np.allclose(task.bayes_variance(drawn), expected[1], rtol=1e-9, atol=1e-12)
    dmmse = DiscreteMMSE(task.vectors, task.fresh.noise)
    assert np.array_equal(dmmse.predict(drawn), task.bayes_predict(drawn))


def test_posterior_in_chunks_is_the_posterior_at_once(monkeypatch):
    from iclflow.tasks import _posterior

    fresh = LinearRegression(np.ones(3), 5, noise=0.05)
    many = FiniteTasks.draw(jr.key(0), 1001, fresh)
    drawn = many.sample(jr.key(1), 7)
    x, y, query = (np.asarray(part) for part in (drawn.x, drawn.y[..., 0], drawn.x_query))
    fits = np.einsum("pnd,kd->pnk", x, np.asarray(many.vectors))
    score = -np.sum((y[..., None] - fits) ** 2, 1) / (2 * 0.05)
    weight = np.exp(score - score.max(1, keepdims=True))
    weight /= weight.sum(1, keepdims=True)
    values = query @ np.asarray(many.vectors).T
    mean = np.sum(weight * values, 1)
    variance = np.sum(weight * (values - mean[:, None]) ** 2, 1)
    for numbers in (2**22, 7 * 5 * 64):
        monkeypatch.setattr(_posterior, "_LARGEST_CHUNK", numbers)
        found = _posterior.discrete_posterior(drawn, many.vectors, fresh.noise)
        assert np.allclose(found.mean[:, 0], mean, rtol=1e-11, atol=1e-13)
        # Deviations are summed about means, so that small variances keep their digits.
        assert np.allclose(found.variance[:, 0], variance, rtol=1e-9, atol=1e-15)


def test_posterior_does_not_underflow():
    # Log-likelihoods of about -1e9: without log space every weight would be zero.
    fresh = LinearRegression(np.ones(2), 6, noise=1e-8)
    task = FiniteTasks([[10.0, 0.0], [-10.0, 1.0], [0.0, 30.0]], fresh)
    drawn = task.sample(jr.key(0), 50)
    # Labels deviate by 1e-4; the posterior knows the task.
    assert np.max(np.abs(np.asarray(task.bayes_predict(drawn) - drawn.y_query))) < 6e-4
    assert np.all(np.isfinite(np.asarray(task.bayes_variance(drawn))))


def test_drawn_tasks_have_the_covariance_of_the_prior():
    prior = random_covariance(np.random.default_rng(1), 3)
    fresh = LinearRegression(np.ones(3), 5, prior_mean=[0.3, 0.0, -0.2], prior_covariance=prior)
    for options in ({}, {"law": "sphere"}, {"clusters": 20_000, "spread": 0.3}):
        vectors = np.asarray(FiniteTasks.draw(jr.key(0), 20_000, fresh, **options).vectors)
        # Five standard errors of a covariance of 20 000 draws with entries of about 1.
        assert np.allclose(np.cov(vectors.T), prior, atol=5 * 1.5 / 20_000**0.5)
        assert np.allclose(vectors.mean(0), [0.3, 0.0, -0.2], atol=5 / 20_000**0.5)


def test_sphere_and_clusters():
    fresh = icl.isotropic(5, context=6)
    sphere = np.asarray(FiniteTasks.draw(jr.key(0), 9, fresh, law="sphere").vectors)
    assert np.allclose(np.linalg.norm(sphere, axis=1), 1.0, atol=1e-14)
    tight = np.asarray(FiniteTasks.draw(jr.key(0), 9, fresh, clusters=3, spread=0.0).vectors)
    # Without spread the tasks of a cluster coincide.
    assert np.array_equal(tight[:3], tight[3:6]) and not np.allclose(tight[0], tight[1])


def test_matched_regression_has_the_same_moments(task):
    matched = task.matched
    mean = np.asarray(task.vectors).mean(0)
    assert np.allclose(matched.weight_second_moment, task.weight_second_moment, atol=1e-15)
    assert np.allclose(matched.prior_mean, mean, atol=1e-16)
    single = FiniteTasks(cosine_tasks(1, 4), task.fresh).matched
    assert not np.any(np.asarray(single.prior_covariance))


def test_estimators_have_exact_risks_on_finitely_many_tasks():
    fresh = LinearRegression([0.4, 0.3, 0.2, 0.1], 12, noise=0.1)
    task = FiniteTasks(cosine_tasks(3, 4), fresh)
    for estimator in (LeastSquares(), PopulationPCR(task, 2)):
        exact = estimator.exact_risk(task)
        sampled = estimator.risk(task, jr.key(0), 20_000)
        assert exact is not None
        assert abs(float(exact - sampled.value)) < 4 * float(sampled.standard_error)


# Bad input --------------------------------------------------------------------------------------

FRESH = LinearRegression([0.5, 0.5], 4)


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: FiniteTasks(np.zeros((0, 2)), FRESH), "`vectors` is empty"),
        (lambda: FiniteTasks(np.ones(2), FRESH), "`vectors` has 1 axes"),
        (lambda: FiniteTasks([[1.0, 2.0, 3.0]], FRESH), "`vectors` has 3 columns: must have 2"),
        (lambda: FiniteTasks([[1.0, np.nan]], FRESH), "`vectors` holds NaN"),
        (lambda: FiniteTasks.draw(jr.key(0), 0, FRESH), "`count` = 0: must be a whole number"),
        (lambda: FiniteTasks.draw(jr.key(0), 2, FRESH, clusters=3), "`clusters` = 3"),
        (lambda: FiniteTasks.draw(jr.key(0), 2, FRESH, spread=1.5), "`spread` = 1.5"),
        (lambda: LinearRegression([0.5, 0.0], 4), "`eigenvalues` holds 0"),
    ],
)
def test_tasks_that_cannot_exist_are_refused(make, sentence):
    with pytest.raises(InputError) as refused:
        make()
    assert str(refused.value).startswith(sentence)


def test_a_task_that_is_no_regression_is_refused():
    with pytest.raises(TypeError, match="fresh"):
        FiniteTasks([[1.0, 2.0]], fixed_tasks(FiniteTasks([[1.0, 2.0]], FRESH)))  # pyright: ignore


# Settings ---------------------------------------------------------------------------------------


def settings(**changes) -> dict:
    task = {"kind": "finite_tasks", "eigenvalues": [0.5, 0.5], "tasks": 3, "context": 4}
    task = {key: value for key, value in {**task, **changes}.items() if value is not None}
    return {"task": task, "model": {"kind": "separate", "heads": 2}}


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"tasks": 0}, "`task.tasks` = 0: must be at least 1."),
        (
            {"tasks": None},
            "`task.tasks` and `task.vectors`: neither is given, must be exactly one.",
        ),
        (
            {"vectors": [[1, 2]]},
            "`task.tasks` and `task.vectors`: both are given, must be exactly one.",
        ),
        (
            {"tasks": None, "vectors": [[1, 2], [1, 2, 3]]},
            "`task.vectors` has rows of 2 and 3 numbers: must have 2, one per input.",
        ),
        ({"clusters": 4}, "`task.clusters` = 4: must not exceed `task.tasks` = 3."),
        (
            {"tasks": None, "vectors": [[1, 2]], "law": "sphere"},
            "`task.law` = 'sphere': must not be given: `task.vectors` are given, so none are "
            "drawn.",
        ),
        (
            {"test_variance": 1.0, "test_covariance": [[1, 0], [0, 1]]},
            "`task.test_covariance` and `task.test_variance`: both are given, must be at most one.",
        ),
        ({"eigenvalues": [0.5, 0]}, "`task.eigenvalues[1]` = 0: must be greater than 0."),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, sentence):
    with pytest.raises(InputError) as refused:
        parse_config(settings(**changes))
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    "changes, sentence",
    [
        (
            {"test_covariance": [[-1, 0], [0, 1]]},
            "`task.test_covariance` has an eigenvalue -1: must be positive semi-definite.",
        ),
        (
            {"eigenvalues": None, "covariance": [[1, 1], [1, 1]]},
            "`task.covariance` has an eigenvalue 0: must be positive definite.",
        ),
    ],
)
def test_matrices_that_do_not_fit_are_refused(changes, sentence):
    with pytest.raises(InputError) as refused:
        build_task(parse_config(settings(**changes)))
    assert str(refused.value) == sentence


def test_settings_build_the_task_that_they_describe():
    config = parse_config(
        settings(law="sphere", prior_variance=0.5, test_variance=2.0, task_seed=7)
    )
    task = build_task(config)
    assert isinstance(task, FiniteTasks)
    prior = LinearRegression([0.5, 0.5], 4, prior_covariance=0.5 * np.eye(2))
    drawn = FiniteTasks.draw(jr.key(7), 3, prior, law="sphere")
    assert np.array_equal(task.vectors, drawn.vectors)
    assert np.array_equal(task.fresh.prior_covariance, 2 * np.eye(2))
    given = build_task(parse_config(settings(tasks=None, vectors=[[1, 2], [3, 4]])))
    assert isinstance(given, FiniteTasks) and np.array_equal(given.vectors, [[1, 2], [3, 4]])
    assert parse_config(config.given()) == config and "task_seed = 7" in to_toml(config.given())


def test_runs_from_settings():
    run = icl.run(settings(noise=0.1) | {"flow": {"kind": "gradient_flow"}})
    assert run.trajectory.result.ok
    # Converged to a millionth of the way down, which is the default.
    assert run.trajectory.losses[-1] == pytest.approx(run.floor, abs=1e-6)
    assert jnp.all(run.experiment.task.matched.weight_second_moment > -1)


def test_theory_of_the_staircase_is_drawn_over_few_tasks():
    vectors = cosine_tasks(3, 4).tolist()
    run = icl.run(
        {
            "task": {"kind": "finite_tasks", "eigenvalues": [1, 1, 1, 1], "vectors": vectors,
                     "context": 10, "noise": 0.1},
            "model": {"kind": "separate", "heads": 4, "scale": 1e-3},
        }
    )  # fmt: skip
    assert run.theory is not None
    # The levels of three unit tasks on white inputs; there is no fourth step.
    levels = [1.1, 0.666858338015, 0.416091498015, 0.380679579142]
    assert np.asarray(run.theory.levels) == pytest.approx(levels, abs=1e-11)
    drops = run.summary().drops
    assert len(drops) == 3
    # The cascade is right to the share of weights that are not small.
    assert all(drop.predicted == pytest.approx(drop.measured, rel=0.05) for drop in drops)


@pytest.mark.slow
def test_a_million_tasks_in_two_dimensions_are_all_tasks():
    """Far more tasks than a context can tell apart: recalling them is ridge regression."""
    fresh = LinearRegression(np.ones(2), 6, noise=0.25)
    task = FiniteTasks.draw(jr.key(0), 2**20, fresh)
    drawn = fresh.sample(jr.key(1), 20)
    gap = np.asarray(task.bayes_predict(drawn) - fresh.bayes_predict(drawn))
    # Some 2^20 σ²/N tasks are within the posterior: the mean deviates by a thousandth of its width.
    assert np.sqrt(np.mean(gap**2)) < 0.01


# Softmax attention that does not read labels ----------------------------------------------------


def test_structured_softmax_sees_the_mean_norm_of_tasks_alone():
    """Two tasks in five dimensions, and isotropic tasks of the same mean squared norm."""
    fresh = LinearRegression(np.ones(5), 12, noise=0.1)
    task = FiniteTasks([[2.0, 0, 0, 0, 0], [0, 1.0, 1.0, 0, 0]], fresh)
    pair = icl.Attention.diagonal(jr.key(0), dim=5, heads=2, scale=0.4)
    assert icl.available_kinds(task, pair)[0] == "exact"
    exact = float(icl.risk(task, pair)(pair))
    round_tasks = LinearRegression(np.ones(5), 12, noise=0.1, prior_covariance=np.eye(5) * 3 / 5)
    assert exact == pytest.approx(float(icl.risk(round_tasks, pair)(pair)), rel=1e-14)
    for integrate in ("none", "labels"):
        sampled = icl.risk(task, pair, "sampled", integrate=integrate, batch=2000)
        estimate = sampled.estimate(pair, jr.key(1), 20_000)  # pyright: ignore
        assert abs(float(estimate.value) - exact) < 4 * float(estimate.standard_error)


def test_labels_of_few_tasks_are_integrated_for_blind_heads():
    fresh = LinearRegression([0.6, 0.4, 0.3], 6, noise=0.1)
    task = FiniteTasks(2 * cosine_tasks(2, 3), fresh)
    model = icl.Attention.factored(jr.key(0), dim=3, heads=2, scale=0.7, blind=True)
    integrated = icl.risk(task, model, "sampled", batch=2000)
    assert type(integrated).__name__ == "IntegratedRisk"
    plain = icl.risk(task, model, "sampled", integrate="none", batch=2000)
    one, other = (risk.estimate(model, jr.key(1), 20_000) for risk in (integrated, plain))  # pyright: ignore
    assert float(one.standard_error) < float(other.standard_error)
    gap = float(one.value) - float(other.value)
    assert abs(gap) < 4 * np.hypot(float(one.standard_error), float(other.standard_error))


@pytest.mark.parametrize(
    "model, kinds",
    [
        ({"kind": "structured", "heads": 2}, {"exact", "large_context", "first_order"}),
        (
            {"kind": "merged", "heads": 2, "activation": "softmax", "self_attention": False},
            {"large_context"},
        ),
        ({"kind": "merged", "heads": 2}, {"exact"}),
    ],
    ids=["structured", "softmax", "linear"],
)
def test_settings_know_the_risks_that_exist(model, kinds):
    """What a config says, before JAX is loaded, is what the library finds."""
    from iclflow.config._checks import risk_kinds
    from iclflow.experiment import prepare

    data = settings(eigenvalues=[1, 1]) | {
        "model": model,
        "flow": {"kind": "gradient_flow", "end": 1},
    }
    if "exact" not in kinds:
        data |= {"flow": {"kind": "adam", "learning_rate": 0.01, "steps": 2}}
    config = parse_config(data)
    experiment = prepare(config)
    found = icl.available_kinds(experiment.task, experiment.model)
    assert found == risk_kinds(config.task, config.model)
    assert kinds == set(found) - {"dataset", "minibatch", "sampled"}


@pytest.mark.slow
def test_softmax_trains_on_few_tasks_from_settings():
    data = settings(noise=0.1) | {
        "model": {"kind": "factored", "heads": 2},
        "risk": {"kind": "sampled", "batch": 64},
        "flow": {"kind": "adam", "learning_rate": 0.01, "steps": 40},
        "save": {"kind": "linear", "count": 4},
    }
    run = icl.run(data)
    assert run.trajectory.result.ok and np.all(np.isfinite(run.trajectory.losses))
