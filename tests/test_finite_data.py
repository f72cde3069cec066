"""Training on n sequences of K tasks: where flows end, what a ridge does, losses on tests."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import iclflow as icl
from iclflow.analysis import task_operator
from iclflow.config import InputError, parse_config
from iclflow.risks import dataset_risk
from iclflow.tasks import FiniteTasks, LinearRegression


def few_tasks(dim: int, count: int, context: int = 8) -> FiniteTasks:
    fresh = LinearRegression(np.ones(dim), context, noise=0.1, prior_covariance=np.eye(dim) / dim)
    return FiniteTasks.draw(jr.key(3), count, fresh, law="sphere")


def features(sequences) -> tuple[np.ndarray, np.ndarray]:
    """The rows β ⊗ x_q, and the labels."""
    x, y = np.asarray(sequences.x), np.asarray(sequences.y)[..., 0]
    beta = np.einsum("pnd,pn->pd", x, y) / x.shape[1]
    rows = np.einsum("pd,pe->pde", beta, np.asarray(sequences.x_query))
    return rows.reshape(len(rows), -1), np.asarray(sequences.y_query)[:, 0]


def matrix_of(model) -> np.ndarray:
    return np.asarray(model.coefficients())


@pytest.mark.parametrize("count", [10, 40])
def test_ridge_is_the_solution_of_the_normal_equations(count):
    task, model = few_tasks(4, 3), icl.Attention.merged(jr.key(0), dim=4, heads=4)
    data = task.sample(jr.key(1), count)
    rows, labels = features(data)
    penalty = 0.02
    risk = dataset_risk(data, model, ridge=penalty)
    gram = rows.T @ rows / count + penalty * np.eye(16)
    expected = np.linalg.solve(gram, rows.T @ labels / count)
    # 1e-10: the condition number of the normal equations, some 1e3, times rounding, and a margin.
    assert np.allclose(np.asarray(risk.minimiser()).ravel(), expected, atol=1e-10)
    A = matrix_of(model)
    plain = np.mean((labels - rows @ A.ravel()) ** 2)
    assert float(risk(model)) == pytest.approx(plain + penalty * np.sum(A**2), rel=1e-12)


def test_flow_on_data_with_a_ridge_ends_at_ridge_regression():
    settings = {
        "task": {"kind": "finite_tasks", "eigenvalues": [1, 1, 1], "tasks": 2, "noise": 0.1},
        "model": {"kind": "merged", "heads": 4, "scale": 0.1},
        "risk": {"kind": "dataset", "sequences": 6, "ridge": 0.05},
        "flow": {"kind": "gradient_flow", "tolerance": 1e-13},
    }
    run = icl.run(settings)
    found = run.trajectory.final
    best = run.experiment.risk.minimiser()  # pyright: ignore[reportAttributeAccessIssue]
    # Within 1e-13 of the smallest loss, so within the root of that over the curvature of the ridge.
    assert np.allclose(matrix_of(found), best, atol=(1e-13 / 0.05) ** 0.5 * 3)
    losses = run.test_losses()
    task = run.experiment.task
    assert isinstance(task, FiniteTasks)
    operator = task_operator(np.asarray(best), task.fresh)
    assert losses.idg[-1] == pytest.approx(
        float(operator.risk(task.weight_second_moment)), abs=1e-5
    )
    assert losses.icl[-1] == pytest.approx(float(operator.risk(np.eye(3))), abs=1e-5)
    # What the run reports has the penalty, the training loss has not.
    A = run.trajectory.coefficients()
    assert losses.train == pytest.approx(run.trajectory.losses - 0.05 * np.sum(A**2, (1, 2)))
    data = task.sample(jr.split(jr.key(0), 4)[1], 6)
    rows, labels = features(data)
    assert losses.train[-1] == pytest.approx(np.mean((labels - rows @ A[-1].ravel()) ** 2))


def ends_of_training(task, model, count, seed, end=2e4):
    """A data set, and the end of gradient flow on it."""
    data = task.sample(jr.key(seed), count)
    risk = dataset_risk(data, model)
    run = icl.gradient_flow(model, risk, end=end, tolerance=1e-14)
    return data, risk, run


def test_merged_attention_ends_at_the_least_norm_and_what_it_cannot_move():
    """U_h moves within the span of the features: where the flow interpolates it ends at
    A = A_least norm + Σ v_h(∞) Π⊥ U_h(0)."""
    task = few_tasks(4, 3)
    gaps = []
    for scale in (1e-2, 1e-3):
        model = icl.Attention.merged(jr.key(0), dim=4, heads=4, scale=scale)
        data, risk, run = ends_of_training(task, model, 10, 1)
        assert run.losses[-1] < 1e-12
        rows, _ = features(data)
        outside = np.eye(16) - np.linalg.pinv(rows) @ rows
        start, v = (np.asarray(part) for part in (model.circuits.U, run.final.circuits.v))
        least = np.asarray(risk.minimiser())
        kept = outside @ np.einsum("h,hde->de", v, start).ravel()
        found = matrix_of(run.final)
        # The loss is 1e-12: what is left along the features is below its root over the smallest
        # singular value, 0.05.
        assert np.allclose(found, least + kept.reshape(4, 4), atol=3e-5)
        gaps.append(np.linalg.norm(found - least))
    assert gaps[0] == pytest.approx(10 * gaps[1], rel=0.2)
    assert gaps[0] < 0.1


@pytest.mark.slow
def test_separate_heads_interpolate_with_larger_norm_and_larger_loss_on_unseen_tasks():
    task, seeds = few_tasks(4, 3), range(6)
    worse = []
    for seed in seeds:
        merged = icl.Attention.merged(jr.key(seed), dim=4, heads=4, scale=1e-2)
        separate = icl.Attention.separate(jr.key(seed), dim=4, heads=4, scale=1e-2)
        _, _, flat = ends_of_training(task, merged, 10, seed)
        _, _, low = ends_of_training(task, separate, 10, seed)
        assert flat.losses[-1] < 1e-10 and low.losses[-1] < 1e-10
        assert np.linalg.norm(matrix_of(low.final)) > np.linalg.norm(matrix_of(flat.final))
        ratio = icl.test_losses(low, task).icl[-1] / icl.test_losses(flat, task).icl[-1]
        worse.append(float(ratio))
    # At each of six data sets: by chance alone one in 64.
    assert min(worse) > 1


@pytest.mark.slow
def test_double_descent_in_a_sweep():
    """The loss on unseen tasks peaks where n is the number of features, D² = 9."""
    spec = {
        "seeds": 8,
        "base": {
            "task": {
                **{"kind": "finite_tasks", "eigenvalues": [1, 1, 1], "tasks": 4, "context": 8},
                **{"noise": 0.1, "prior_variance": 1 / 3},
            },
            "model": {"kind": "merged", "heads": 4, "scale": 1e-2},
            "risk": {"kind": "dataset", "sequences": 12},
            "flow": {"kind": "gradient_flow", "end": 3e3},
        },
        "axes": {"risk.sequences": [3, 9, 36]},
        "measure": {"names": ["idg", "icl", "g_task", "overshoot", "recall"]},
    }
    table = icl.sweep(spec)
    query = "median(final_loss), median(idg), median(icl), median(g_task), min(overshoot)"
    _, rows = table.ask(f'SELECT {query} FROM results GROUP BY "risk.sequences" ORDER BY ALL')
    _, far = table.ask("SELECT bool_and(ridge_icl > 0 AND dmmse_idg > 0) FROM results")
    assert far == [(True,)]
    train, idg, icl_loss, gap, overshoot = np.array(sorted(rows)).T
    assert train[0] < 1e-9 and train[1] < 1e-4 and np.all(np.diff(train) > 0)
    assert np.argmax(idg) == np.argmax(icl_loss) == 1
    assert icl_loss[1] > 3 * max(icl_loss[0], icl_loss[2])
    assert np.all(gap > 0) and np.all(overshoot >= 0)


@pytest.mark.slow
def test_more_data_reaches_the_population_optimum():
    task, model = few_tasks(3, 2), icl.Attention.merged(jr.key(0), dim=3, heads=3)
    population = icl.risk(task, model)
    best = float(population.floor(model))  # pyright: ignore[reportArgumentType]
    excess = []
    for count in (500, 20_000):
        data = dataset_risk(task.sample(jr.key(5), count), model)
        excess.append(float(population.of_coefficients(data.minimiser())) - best)  # pyright: ignore
    # Least squares: the excess is near L* F / n, with F = 9.
    for count, found in zip((500, 20_000), excess):
        assert 0.2 < found * count / (9 * best) < 5


# Bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [-1.0, np.nan, "much"])
def test_a_ridge_that_is_no_penalty_is_refused(ridge):
    task, model = few_tasks(2, 2), icl.Attention.merged(jr.key(0), dim=2, heads=2)
    with pytest.raises((InputError, TypeError), match="ridge"):
        icl.risk(task, model, "dataset", sequences=4, ridge=ridge)


def test_a_ridge_needs_reduced_linear_attention():
    task = few_tasks(2, 2)
    for model in (
        icl.Attention.merged(jr.key(0), dim=2, heads=2, blind=False),
        icl.Attention.diagonal(jr.key(0), dim=2, heads=2),
    ):
        with pytest.raises(InputError, match="^`ridge` = 0.1: must be 0, unless the model is red"):
            icl.risk(task, model, "dataset", sequences=4, ridge=0.1)
    settings = {
        "task": {"kind": "finite_tasks", "eigenvalues": [1, 1], "tasks": 2},
        "model": {"kind": "merged", "heads": 2, "form": "full"},
        "risk": {"kind": "dataset", "sequences": 6, "ridge": 0.05},
    }
    with pytest.raises(InputError) as refused:
        parse_config(settings)
    assert str(refused.value) == (
        '`risk.ridge` = 0.05: must be 0 for `model.kind` = "merged", unless that is reduced linear '
        "attention."
    )


@pytest.mark.parametrize("count", [0, -3, 1.5])
def test_a_data_set_needs_a_sequence(count):
    task, model = few_tasks(2, 2), icl.Attention.merged(jr.key(0), dim=2, heads=2)
    with pytest.raises((InputError, TypeError), match="sequences"):
        icl.risk(task, model, "dataset", sequences=count)


def test_the_mean_of_sequences_is_what_the_data_set_risk_is():
    task, model = few_tasks(3, 2), icl.Attention.merged(jr.key(0), dim=3, heads=2, scale=0.5)
    data = task.sample(jr.key(2), 5)
    rows, labels = features(data)
    expected = jnp.mean((labels - rows @ matrix_of(model).ravel()) ** 2)
    assert float(dataset_risk(data, model)(model)) == pytest.approx(float(expected), rel=1e-12)
