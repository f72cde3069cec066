import dataclasses
import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from helpers import deterministic_merged, deterministic_separate, four_components
from iclflow.analysis import drop_times
from iclflow.flows import (
    Checkpoint,
    FlowOptions,
    SaveAtTimes,
    SaveEvenly,
    SaveLogSpaced,
    adam,
    descend,
    gradient_descent,
    gradient_flow,
    gradient_flow_ensemble,
    init_many,
    sgd,
)
from iclflow.flows._flow_program import _advance_briefly
from iclflow.models import AbstractModel, Attention, Merged
from iclflow.risks import AbstractRisk, SampledRisk, risk
from iclflow.tasks import LinearRegression, Sequences
from iclflow.theory import staircase
from iclflow.trajectory import Result


def three_heads(key, scale) -> Attention:
    """Merged heads of one size for all tests: those of other sizes are programs of their own."""
    return Attention.merged(key, 4, 3, scale)


def three_members(seed, scales):
    """The keys and models of an ensemble; all have three members, for the same reason."""
    keys = jr.split(jr.key(seed), 3)
    return keys, init_many(three_heads, keys, np.asarray(scales))


@eqx.filter_jit
def slope_norm(exact, model):
    return jnp.linalg.norm(jax.flatten_util.ravel_pytree(exact.gradient(model))[0])


def test_merged_flow_reproduces_reference_losses():
    model, times = deterministic_merged(), (20, 30, 35, 40, 45, 50, 60, 80, 120)
    run = gradient_flow(model, risk(four_components(), model), end=120.0, save=SaveAtTimes(times))
    reference = [
        0.9997946491, 0.9912494756, 0.9458892676, 0.7445084936, 0.4344672350,
        0.3068484417, 0.2268428374, 0.1812130195, 0.1558582380,
    ]  # fmt: skip
    assert run.times[1:].tolist() == list(times)
    # The reference is given to 1e-9; the solver's 1e-9 a step grows by e-folds on the drop.
    assert np.max(np.abs(run.losses[1:] - reference)) < 2e-8


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("solver", ["explicit", "implicit"])
def test_separate_flow_reproduces_reference_losses(solver):
    model, times = deterministic_separate(), (500, 1000, 2000, 5000, 10000, 20000)
    run = gradient_flow(
        model, risk(four_components(), model), end=2e4, save=SaveAtTimes(times), solver=solver
    )
    reference = [
        0.9999979842, 0.6406260773, 0.3773714092, 0.2098045923, 0.2098045738, 0.1359950716,
    ]  # fmt: skip
    # The implicit solver shifts drops by 1e-8 of their time, which shows where the loss moves.
    tolerance = 1e-8 if solver == "explicit" else 2e-7
    assert np.max(np.abs(run.losses[1:] - reference)) < tolerance


def test_flow_agrees_with_an_independent_solver():
    task = LinearRegression([0.5, 0.2], 7, noise=0.3)
    model = Attention.separate(jr.key(0), 2, 2, 2, 0.3)
    exact = risk(task, model)
    run = gradient_flow(model, exact, end=60.0, save=SaveEvenly(13))
    flat, rebuild = jax.flatten_util.ravel_pytree(model)
    slope = jax.jit(lambda w: -0.5 * jax.flatten_util.ravel_pytree(jax.grad(exact)(rebuild(w)))[0])
    other = solve_ivp(
        lambda t, w: np.asarray(slope(w)),
        (0, 60),
        flat,
        "DOP853",
        run.times,
        rtol=1e-11,
        atol=1e-13,
    )
    weights = np.column_stack([np.reshape(leaf, (13, -1)) for leaf in jax.tree.leaves(run.models)])
    assert np.max(np.abs(weights - other.y.T)) < 1e-7


def test_run_without_an_end_stops_at_the_smallest_loss_it_can_reach():
    model = deterministic_merged()
    exact = risk(four_components(), model)
    run = gradient_flow(model, exact, tolerance=1e-7)
    assert run.result is Result.converged
    floor = float(exact.floor(model))
    gap = (run.losses[-1] - floor) / (1 - floor)
    assert 0 <= gap <= 1e-7
    assert np.all(np.diff(run.times) > 0) and np.all(np.diff(run.losses) < 1e-12)


@pytest.mark.slow
def test_tiny_initial_weights_switch_to_the_implicit_solver_and_end():
    model = deterministic_separate(1e-5)
    run = gradient_flow(model, risk(four_components(), model))
    assert run.statistics["solver"] == "explicit then implicit"
    assert run.result is Result.converged
    # Drop times scale as 1/s: at 1e-4 the last is at 1889665, found by an independent solver.
    # At 1e-5 it is ten times that, up to the corrections of order s that 1e-4 still shows.
    assert run.times[-1] == pytest.approx(1.8896e7, rel=2e-3)


@pytest.mark.slow
def test_weights_of_any_size_have_a_tolerance_of_their_own():
    model = deterministic_separate(1e-12)
    run = gradient_flow(model, risk(four_components(), model), solver="implicit")
    predicted = staircase(four_components(), model)
    # Cascade and solver agree to 2e-6. With an absolute tolerance that stops at the rounding of
    # learned weights, 1e-14, drops would be off by up to a thousandth.
    measured = drop_times(run, levels=predicted.levels)
    np.testing.assert_allclose(measured, predicted.drop_times, rtol=1e-5)


def test_small_steps_are_kept_around_drops_and_few_on_plateaus():
    run = gradient_flow(deterministic_separate(), risk(four_components(), deterministic_separate()))
    drop = run.losses[:-1] - run.losses[1:]
    assert drop.max() < 0.03  # 3 % of the whole way down
    assert len(run) < 1000
    plateau = run.between(6000, 15000)
    assert 20 < len(plateau) < 120


def test_log_spaced_and_linear_moments_are_hit_exactly():
    model = deterministic_merged()
    exact = risk(four_components(), model)
    # As many moments as other runs of these weights have: all share one program.
    run = gradient_flow(model, exact, end=45.0, save=SaveLogSpaced(9, first=0.5))
    assert run.times == pytest.approx([0, *np.geomspace(0.5, 45, 9)])
    run = gradient_flow(model, exact, end=45.0, save=SaveEvenly(10))
    assert run.times.tolist() == [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]


def test_a_saddle_is_reported_as_one():
    model = Attention(Merged.of(jnp.asarray(np.zeros(3)), jnp.asarray(np.zeros((3, 4, 4)))))
    run = gradient_flow(model, risk(four_components(), model))
    assert run.result is Result.stationary and run.losses[-1] == pytest.approx(1.0)


def test_a_start_at_the_minimum_is_converged_at_once():
    optimum = np.diag([155 / 69, 155 / 53, 155 / 37, 155 / 21])
    model = Attention(Merged.of(jnp.asarray(np.ones(3)), jnp.asarray(np.stack([optimum] * 3) / 3)))
    run = gradient_flow(model, risk(four_components(), model))
    assert run.result is Result.converged and len(run) == 1


def test_cancelling_keeps_what_was_computed():
    model = deterministic_separate(1e-3)
    seen = []
    run = gradient_flow(
        model,
        risk(four_components(), model),
        callback=lambda status: seen.append(status) or len(seen) < 3,
    )
    assert run.result is Result.cancelled
    assert len(seen) == 3 and run.times[-1] == pytest.approx(seen[-1].clock)


def test_step_limit_is_reported():
    model = deterministic_separate(1e-3)
    run = gradient_flow(model, risk(four_components(), model), max_steps=1000)
    assert run.result is Result.step_limit


@pytest.mark.slow
@pytest.mark.parametrize("most", [10, 700])
def test_steps_are_limited_alike_alone_and_together(most):
    models = [Attention.separate(jr.key(i), 4, 4, 1, 1e-3) for i in range(3)]
    exact = risk(four_components(), models[0])
    alone = gradient_flow(models[0], exact, max_steps=most)
    together = gradient_flow_ensemble(models, exact, max_steps=most, at_once=2)
    for run in (alone, *together):
        assert run.result is Result.step_limit
        assert run.statistics["steps"] + run.statistics["rejected"] == most


def test_ensemble_members_equal_single_runs():
    keys, models = three_members(1, [0.05] * 3)
    exact = risk(four_components(), models)
    together = gradient_flow_ensemble(models, exact, end=40.0, save=SaveEvenly(10))
    for key, member in zip(keys, together):
        alone = gradient_flow(three_heads(key, 0.05), exact, end=40.0, save=SaveEvenly(10))
        # Not the same bits: a batched program adds in another order.
        assert np.max(np.abs(alone.losses - member.losses)) < 1e-8


@pytest.mark.slow
def test_ensemble_sweeps_tasks_and_scales_in_one_program():
    _, models = three_members(2, [0.01, 0.1, 0.3])
    risks = [risk(four_components(noise=noise), deterministic_merged()) for noise in (0, 0.1, 0.5)]
    runs = gradient_flow_ensemble(models, risks)
    floors = [float(r.floor(run.final)) for r, run in zip(risks, runs)]
    assert runs.final_losses == pytest.approx(floors, abs=1e-5)
    assert all(result is Result.converged for result in runs.results)


def test_runs_of_one_shape_compile_once():
    model = deterministic_merged(0.1)
    task = LinearRegression([0.5, 0.3, 0.2, 0.1], 9)
    gradient_flow(model, risk(task, model), end=3.0, save=SaveEvenly(10))
    before = _advance_briefly._cached._cache_size()
    for noise, scale in ((0.1, 0.12), (0.3, 0.15)):
        task = LinearRegression([0.6, 0.3, 0.1, 0.05], 12, noise=noise)
        model = deterministic_merged(scale)
        gradient_flow(model, risk(task, model), end=5.0, save=SaveEvenly(10))
    assert _advance_briefly._cached._cache_size() == before


def test_flow_of_a_risk_with_unknown_floor_asks_for_an_end():
    model = Attention.merged(
        jr.key(0), 4, 2, 0.3, blind=False
    )  # too few heads to reach every coefficient
    with pytest.raises(ValueError, match="`end` is needed"):
        gradient_flow(model, risk(four_components(), model))


def test_flow_rests_where_the_gradient_is_small_enough():
    model = Attention.merged(
        jr.key(0), 4, 2, 0.3, blind=False
    )  # too few heads to know the smallest loss
    exact = risk(four_components(), model)
    norm = lambda model: slope_norm(exact, model)
    run = gradient_flow(model, exact, gradient_tolerance=1e-6)
    assert run.result is Result.stationary
    assert norm(run.final) <= 1e-6
    before = run.model_at(0.9 * run.times[-1])
    assert norm(before) > 1e-6  # and not long before
    again = gradient_flow(run.final, exact, gradient_tolerance=1e-6)
    assert again.result is Result.stationary and len(again) == 1
    short = gradient_flow(model, exact, gradient_tolerance=1e-6, end=3.0)
    assert short.result is Result.finished and short.times[-1] == 3.0


@pytest.mark.slow
def test_members_of_an_ensemble_rest_one_by_one():
    _, models = three_members(3, [0.05, 0.2, 0.4])
    exact = risk(four_components(), models)
    runs = gradient_flow_ensemble(models, exact, gradient_tolerance=1e-4)
    assert all(result is Result.stationary for result in runs.results)
    assert len({run.times[-1] for run in runs}) == 3
    for run in runs:
        assert slope_norm(exact, run.final) <= 1e-4


def test_flow_refuses_a_sampled_risk():
    model = deterministic_merged()
    with pytest.raises(ValueError, match="without randomness"):
        gradient_flow(model, SampledRisk(four_components()), end=1.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"end": -1.0}, "`end` = -1.0"),
        ({"rtol": 0.0}, "`rtol` = 0.0"),
        ({"gradient_tolerance": -1.0}, "`gradient_tolerance` = -1.0"),
        ({"solver": "euler"}, "`solver` = 'euler'"),
        ({"end": 5.0, "save": SaveEvenly(1)}, "`save.count` = 1"),
        ({"end": 5.0, "save": SaveAtTimes([3.0, 2.0])}, "increase strictly"),
        ({"end": 5.0, "save": SaveAtTimes([9.0])}, "within the run"),
        ({"save": SaveEvenly(5)}, "known end"),
        ({"end": "5"}, "`end` = '5': must be a number"),
        ({"end": 5.0, "save": "log"}, "`save` = 'log': must be `SaveAtDrops"),
        ({"end": 5.0, "checkpoint": "run"}, "`checkpoint` = 'run': must be a `Checkpoint"),
    ],
)
def test_impossible_options_are_refused(options, words, unchecked):
    model = deterministic_merged()
    with pytest.raises((ValueError, TypeError), match=words):
        gradient_flow(model, risk(four_components(), model), **options)


class OneNumber(AbstractModel):
    """ŷ = w βᵀx_q: a model of one's own."""

    w: jax.Array

    @property
    def form(self):
        return "bilinear"

    def coefficients(self):
        return self.w * jnp.eye(4)

    def predict(self, sequences):
        beta = jnp.einsum("...nd,...n->...d", sequences.x, sequences.y[..., 0])
        beta = beta / sequences.length[..., None]
        return self.w * jnp.sum(beta * sequences.x_query, -1, keepdims=True)


@pytest.mark.slow
def test_own_models_have_exact_risks_and_flow_too():
    task = LinearRegression([1.0] * 4, 31)
    model = OneNumber(jnp.asarray(0.3))
    exact = risk(task, model)
    # Sequences of this task by its definition, drawn by NumPy: nothing is compiled for them.
    rng, count = np.random.default_rng(0), 20_000
    weights, x = rng.normal(size=(count, 4)), rng.normal(size=(count, 32, 4))
    labels = np.einsum("cnd,cd->cn", x, weights)[..., None]
    parts = x[:, :31], labels[:, :31], x[:, 31], labels[:, 31], np.full(count, 31.0)
    sequences = Sequences(*map(jnp.asarray, parts))
    errors = (labels[:, 31] - np.asarray(model.predict(sequences))) ** 2
    assert abs(float(exact(model)) - errors.mean()) < 4 * errors.std() / count**0.5
    run = gradient_flow(model, exact, end=20.0)
    assert float(run.final.w) == pytest.approx(1 / (1 + 5 / 31), abs=1e-8)


@pytest.mark.slow
def test_every_member_of_an_ensemble_has_the_tolerance_of_its_own_size():
    keys, models = three_members(0, [1e-7, 0.5, 0.5])
    exact = risk(four_components(), models)
    together = gradient_flow_ensemble(models, exact, end=90.0, save=SaveEvenly(10))
    alone = gradient_flow(three_heads(keys[0], 1e-7), exact, end=90.0, save=SaveEvenly(10))
    assert np.max(np.abs(together[0].losses - alone.losses)) < 1e-7
    assert [run.statistics["atol"] for run in together] == [1e-17, 1e-10, 1e-10]


def test_members_of_different_shapes_are_refused():
    whole = deterministic_merged().circuits
    models = [Attention(Merged.of(whole.v[:heads], whole.U[:heads])) for heads in (2, 3)]
    with pytest.raises(ValueError, match="one kind and size"):
        gradient_flow_ensemble(models, risk(four_components(), models[0]))


def test_statistics_count_the_steps_of_the_run_alone():
    model = deterministic_merged()
    run = gradient_flow(model, risk(four_components(), model), end=0.5, save=SaveEvenly(10))
    assert 0 < run.statistics["steps"] < 30 and run.statistics["rejected"] < 10


def test_a_model_that_does_not_fit_the_task_is_refused():
    exact = risk(four_components(), deterministic_merged())
    v, U = (jnp.asarray(np.ones(shape)) for shape in ((3,), (3, 4, 4)))
    with pytest.raises(ValueError, match="D = 3 and the task D = 4"):
        exact(Attention(Merged.of(v, jnp.asarray(np.ones((3, 3, 3))))))
    with pytest.raises(ValueError, match="`normaliser` = 'context'"):
        exact(Attention(Merged.of(v, U), normaliser="none"))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("scale", [3.0, 30.0])
def test_huge_weights_have_not_converged_before_they_predict_well(scale):
    model = Attention.separate(jr.key(0), 4, 4, 1, scale)
    exact = risk(four_components(), model)
    run = gradient_flow(model, exact)
    if run.result is Result.converged:
        floor = float(exact.floor(model))
        assert run.losses[-1] - floor <= 1e-6 * (1 - floor) * (1 + 1e-9)


def test_floor_of_a_task_without_signal_is_the_loss_of_predicting_zero():
    task = four_components(prior_covariance=np.zeros((4, 4)), noise=0.0)
    model = deterministic_merged()
    assert float(risk(task, model).floor(model)) == 0.0


def test_natural_mistakes_are_told_in_one_sentence(unchecked):
    model = deterministic_merged()
    exact = risk(four_components(), model)
    for flow in (gradient_flow, lambda *parts: gradient_descent(*parts, 0.1, 10)):
        with pytest.raises(TypeError, match="`model` and `risk` are swapped"):
            flow(exact, model)
    with pytest.raises(TypeError, match="`models` and `risks` are swapped"):
        gradient_flow_ensemble(exact, [model])
    with pytest.raises(TypeError, match="`risk` is of type int: must be a risk."):
        gradient_flow(model, 3)
    with pytest.raises(TypeError, match="`tol` is not an option of gradient flow: did you mean `r"):
        gradient_flow(model, exact, tol=3)


class Table(AbstractRisk):
    """A risk that is defined up to some size of the value weights alone, as a table would be."""

    risk: AbstractRisk
    reach: jax.Array

    def __call__(self, model, key=None):
        return jnp.where(self.table_used(model) <= 1, self.risk(model), jnp.nan)

    def table_used(self, model):
        return jnp.max(jnp.abs(model.circuits.v)) / self.reach


class Costly(AbstractRisk):
    """A risk with tables that reach 0.04, 0.08 … up to `widest`."""

    risk: AbstractRisk
    widest: float = eqx.field(static=True)

    def __call__(self, model, key=None):
        return self.risk(model)

    def table_reach(self, models):
        reach = 0.04
        while reach < np.max(np.abs(models.circuits.v)) / 0.9 * (1 + 1e-9):
            reach *= 2
        return reach if reach <= self.widest else None

    def tabulate(self, reach, report=None):
        return Table(self.risk, jnp.asarray(reach))


TABLED = {"end": 2000.0, "save": SaveEvenly(9), "progress": False}


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["explicit", "implicit"])
@pytest.mark.parametrize("widest", [5.0, 0.3])
def test_weights_that_outgrow_a_table_go_on_with_a_wider_one_or_without(solver, widest):
    model = deterministic_separate()
    exact = risk(four_components(), model)
    plain = gradient_flow(model, exact, solver=solver, **TABLED)
    run = gradient_flow(model, Costly(exact, widest), solver=solver, **TABLED)
    assert run.result is Result.finished and np.max(np.abs(run.models.circuits.v)) > 0.6
    # The same equation by other steps: some end early, at the end of a table.
    np.testing.assert_allclose(run.losses, plain.losses, atol=2e-7)


@pytest.mark.slow
def test_members_of_an_ensemble_share_a_table_as_wide_as_the_widest_needs():
    exact = risk(four_components(), deterministic_separate())
    models = [deterministic_separate(scale) for scale in (1e-2, 3e-2, 1e-1)]
    options = TABLED | {"at_once": 2}
    runs = gradient_flow_ensemble(models, Costly(exact, 5.0), **options)
    for run, other in zip(runs, gradient_flow_ensemble(models, exact, **options)):
        np.testing.assert_allclose(run.losses, other.losses, atol=2e-7)


@pytest.mark.slow
def test_a_flow_resumed_after_its_table_was_widened_has_the_same_bits(monkeypatch, tmp_path):
    monkeypatch.setattr("iclflow.flows._flow_runs.FLOW_TRIES", 64)
    model = deterministic_separate()
    costly = Costly(risk(four_components(), model), 5.0)
    whole, seen = gradient_flow(model, costly, **TABLED), []
    file = Checkpoint(tmp_path / "checkpoint.safetensors", 0.0)
    # Stops within the second drop: the first component is learned, the first tables are too narrow.
    stop = lambda status: seen.append(status.clock) or status.clock < 800
    part = gradient_flow(model, costly, checkpoint=file, callback=stop, **TABLED)
    assert part.result is Result.cancelled and 800 <= seen[-1] < 2000
    again = Checkpoint(tmp_path / "checkpoint.safetensors", 0.0)
    run = gradient_flow(model, costly, checkpoint=again, **TABLED)
    np.testing.assert_array_equal(run.losses, whole.losses)
    np.testing.assert_array_equal(run.models.circuits.v, whole.models.circuits.v)
    assert run.statistics["steps"] == whole.statistics["steps"]


def test_the_options_of_flows_are_spelled_out_for_completion():
    fields = {field.name: field.default for field in dataclasses.fields(FlowOptions)}
    given = lambda function: {
        name: each.default
        for name, each in inspect.signature(function).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }
    assert given(gradient_flow_ensemble) == fields
    assert given(gradient_flow) == {n: v for n, v in fields.items() if n != "at_once"}
    shared = given(descend)
    assert all(given(each) == shared for each in (gradient_descent, sgd, adam))
