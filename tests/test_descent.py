import jax
import jax.random as jr
import numpy as np
import optax
import pytest

from helpers import deterministic_merged, four_components
from iclflow.flows import (
    SaveAtTimes,
    SaveEvenly,
    adam,
    adam_rule,
    descend,
    descend_ensemble,
    gradient_descent,
    gradient_flow,
    sgd,
    sgd_rule,
)
from iclflow.risks import MinibatchRisk, SampledRisk, risk
from iclflow.trajectory import Result


def start():
    return deterministic_merged(0.05)


def exact():
    return risk(four_components(), start())


def test_gradient_descent_equals_a_plain_loop():
    model, loss = start(), exact()
    run = gradient_descent(model, loss, 0.1, 50, save=SaveAtTimes([1, 7, 50]))
    losses = []
    step = jax.jit(lambda m: jax.tree.map(lambda w, g: w - 0.1 * g, m, jax.grad(loss)(m)))
    for n in range(1, 51):
        model = step(model)
        if n in (1, 7, 50):
            losses.append(float(loss(model)))
    assert run.times.tolist() == [0, 1, 7, 50] and run.clock == "step"
    assert run.losses[1:] == pytest.approx(losses, rel=1e-13)
    assert np.allclose(run.final.circuits.U, model.circuits.U, rtol=1e-12)


def test_descent_goes_on_to_its_last_step_whatever_is_saved():
    run = gradient_descent(start(), exact(), 0.1, 100, save=SaveAtTimes([10, 20]))
    assert run.times.tolist() == [0, 10, 20, 100] and run.result is Result.finished
    with pytest.raises(ValueError, match="whole step numbers"):
        gradient_descent(start(), exact(), 0.1, 100, save=SaveAtTimes([1.5]))


def test_few_points_that_lie_far_apart_are_those_of_many():
    steps = 30_000  # so many between two points that each is computed by itself
    few = gradient_descent(start(), exact(), 1e-3, steps, save=SaveEvenly(2))
    many = gradient_descent(start(), exact(), 1e-3, steps, save=SaveEvenly(21))
    assert few.times.tolist() == [0, steps] and few.result is Result.finished
    assert few.losses == pytest.approx(many.losses[[0, -1]], rel=1e-12)


def test_descent_tends_to_gradient_flow_in_first_order():
    model, loss = start(), exact()
    flow = gradient_flow(model, loss, end=40.0, save=SaveEvenly(5))
    errors = []
    for rate in (0.2, 0.1, 0.05):
        run = gradient_descent(model, loss, rate, round(20 / rate), save=SaveEvenly(5))
        errors.append(np.max(np.abs(run.losses - flow.losses)))
    slopes = np.diff(np.log(errors)) / np.log(0.5)
    assert slopes == pytest.approx(1.0, abs=0.1)


def test_adam_equals_optax_step_by_step():
    model, loss = start(), exact()
    run = adam(model, loss, 0.01, 20, save=SaveAtTimes([20]))
    optimiser = optax.adam(0.01)
    state = optimiser.init(model)

    @jax.jit
    def step(model, state):
        updates, state = optimiser.update(jax.grad(loss)(model), state)
        return optax.apply_updates(model, updates), state

    for _ in range(20):
        model, state = step(model, state)
    assert float(loss(model)) == pytest.approx(run.losses[-1], rel=1e-12)


def test_any_optax_optimiser_can_be_used():
    run = descend(start(), exact(), optax.rmsprop(0.01), 200)
    assert run.losses[-1] < 0.9 * run.losses[0]


def test_stochastic_training_reports_the_monitored_risk_and_is_reproducible():
    sampled = SampledRisk(four_components(), 64)
    options = {"key": jr.key(4), "monitor": exact(), "save": SaveEvenly(5)}
    first = sgd(start(), sampled, 0.1, 100, **options)
    second = sgd(start(), sampled, 0.1, 100, **options)
    assert np.array_equal(first.losses, second.losses)
    assert first.losses[-1] == pytest.approx(float(exact()(first.final)), rel=1e-12)


def test_minibatches_train_towards_the_loss_of_the_data_set():
    task = four_components()
    sequences = task.sample(jr.key(0), 400)
    whole = risk(task, start(), "dataset", sequences=sequences)
    run = sgd(
        start(), MinibatchRisk(sequences, 50), 0.1, 400, momentum=0.5, key=jr.key(1), monitor=whole
    )
    assert run.losses[-1] < 0.5 * run.losses[0]


def test_too_large_a_step_is_reported_as_divergence():
    run = gradient_descent(start(), exact(), 1e3, 3000)
    assert run.result is Result.diverged
    assert np.all(np.isfinite(run.losses)) and len(run) < 1000


def test_cancelling_keeps_what_was_computed():
    run = gradient_descent(start(), exact(), 0.01, 3000, callback=lambda status: False)
    assert run.result is Result.cancelled and 0 < run.times[-1] < 3000


def test_drops_are_saved_densely():
    run = gradient_descent(start(), exact(), 0.05, 3000)
    assert np.max(-np.diff(run.losses)) < 0.02
    assert len(run) < 1000


@pytest.mark.slow
def test_ensemble_members_equal_single_runs_with_their_keys():
    sampled = SampledRisk(four_components(), 16)
    keys = jr.split(jr.key(7), 2)
    models = [deterministic_merged(scale) for scale in (0.05, 0.1)]
    together = descend_ensemble(models, sampled, adam_rule(0.01), 30, keys=keys, save=SaveEvenly(4))
    for model, key, member in zip(models, keys, together, strict=True):
        alone = adam(model, sampled, 0.01, 30, key=key, save=SaveEvenly(4))
        # Batched sums are added in another order: rounding, amplified by Adam's normalisation.
        assert member.losses == pytest.approx(alone.losses, rel=1e-6)


def test_another_learning_rate_does_not_compile_again(caplog):
    options = {"steps": 10, "save": SaveEvenly(3)}
    descend(start(), exact(), sgd_rule(0.1), **options)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        for rate in (0.2, 0.3):
            descend(start(), exact(), sgd_rule(rate), **options)
        assert "advance" not in caplog.text
        descend(start(), exact(), adam_rule(0.1), **options)
        assert "Compiling jit(advance)" in caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learning_rate": -0.1}, "`learning_rate` = -0.1"),
        ({"learning_rate": float("nan")}, "`learning_rate` = nan"),
        ({"steps": 0}, "`steps` = 0"),
        ({"steps": "10"}, "`steps` = '10'"),
        ({"learning_rate": "fast"}, "`learning_rate` = 'fast': must be a number"),
        ({"save": "log"}, "`save` = 'log': must be `SaveAtDrops"),
        ({"save": SaveEvenly(1)}, "`save.count` = 1: must be a whole number from 2 up"),
        ({"monitor": "exact"}, "`monitor` = 'exact': must be a risk"),
        ({"checkpoint": "run"}, "`checkpoint` = 'run': must be a `Checkpoint"),
        ({"key": 3}, "`key` = 3: must be a random key"),
    ],
)
def test_impossible_options_are_refused(options, words, unchecked):
    settings = {"learning_rate": 0.1, "steps": 10} | options
    with pytest.raises((ValueError, TypeError), match=words):
        gradient_descent(start(), exact(), **settings)


@pytest.mark.parametrize("optimiser", ["adam", None, adam_rule])
def test_what_is_no_optimiser_is_refused_by_name(optimiser, unchecked):
    with pytest.raises(TypeError, match="`optimiser` = .*: must be `adam_rule"):
        descend(start(), exact(), optimiser, 10)


def test_a_sampled_risk_needs_a_key():
    with pytest.raises(ValueError, match="random `key`"):
        sgd(start(), SampledRisk(four_components()), 0.1, 10)


def test_a_run_can_be_watched_while_it_goes_on():
    model, loss = start(), exact()
    plain = gradient_descent(model, loss, 0.1, 400, save=SaveEvenly(41))
    seen = []
    watched = gradient_descent(
        model, loss, 0.1, 400, save=SaveEvenly(41),
        callback=lambda status: seen.append(status.so_far()), stretch=50,
    )  # fmt: skip
    assert len(seen) >= 8 and seen[0].result is Result.cancelled
    np.testing.assert_array_equal(watched.losses, plain.losses)
    np.testing.assert_array_equal(watched.times, plain.times)
    for part in seen:  # the last point of each may be one that is not kept
        kept = len(part) - 1
        np.testing.assert_array_equal(part.losses[:kept], plain.losses[:kept])
    assert len(seen[-1]) == len(plain) and seen[-1].result is Result.finished


@pytest.mark.parametrize("stretch", [0, -3])
def test_a_stretch_of_no_steps_is_refused(stretch):
    with pytest.raises(ValueError, match=f"`stretch` = {stretch}: must be at least 1"):
        gradient_descent(start(), exact(), 0.1, 10, stretch=stretch)
