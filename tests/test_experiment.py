"""Experiments: what a config builds, what theory says about it, and what a run leaves behind."""

import json
from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.config import Config, InputError, parse_config
from iclflow.config._model import ModelBase
from iclflow.config._task import TaskBase
from iclflow.experiment import (
    Overlay,
    build_model,
    build_task,
    loss_figure,
    overlay,
    prepare,
    summarise,
    train,
)
from iclflow.experiment._summary import Drop
from iclflow.models import Merged
from iclflow.tasks import Mixture, Sequences
from iclflow.trajectory import Result, Trajectory


def config(**sections):
    """A small staircase: two components, three heads."""
    data = {
        "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20},
        "model": {"kind": "separate", "heads": 3, "scale": 0.01},
    }
    for name, value in sections.items():
        data[name] = {**data.get(name, {}), **value} if isinstance(value, dict) else value
    return parse_config(data)


class PlainTask(TaskBase):
    """A kind of task that needs no preparation."""

    kind: str = "plain"
    builds: ClassVar[str] = "LinearRegression"
    eigenvalues: tuple[float, ...]

    @property
    def dim(self) -> int:
        return len(self.eigenvalues)


class PlainModel(ModelBase):
    """A kind of attention that needs no preparation."""

    kind: str = "plain"
    builds: ClassVar[str] = "Diagonal"
    per_coordinate: bool = True
    activation: str = "linear"


DESCENT = {"kind": "gradient_descent", "learning_rate": 0.05, "steps": 60}


# Building -------------------------------------------------------------------------------------


def test_a_new_kind_needs_the_name_of_what_it_builds_alone():
    task, model = PlainTask(eigenvalues=(0.8, 0.5), context=(20,)), PlainModel(heads=3)
    plain = Config.model_construct(task=task, model=model)
    built, same = build_task(plain), build_task(config())
    assert all(map(np.array_equal, jax.tree.leaves(built), jax.tree.leaves(same)))
    attention, none = build_model(plain, jr.key(0))
    assert none is None and attention.activation == "linear"
    assert attention.circuits.omega.shape == (3, 2)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "model, built",
    [
        ({"kind": "merged"}, ("Merged", True)),
        ({"kind": "merged", "form": "full"}, ("Merged", False)),
        ({"kind": "separate", "rank": 2}, ("Separate", True)),
        ({"kind": "separate", "form": "full"}, ("Separate", False)),
        ({"kind": "two_layer"}, ("TwoLayerLinear", None)),
        ({"kind": "convolutional", "rank": 2}, ("ConvolutionalLinear", None)),
    ],
)
def test_every_kind_of_model_is_built_with_the_weights_of_its_attention(model, built):
    experiment = prepare(config(model=model))
    circuits = getattr(experiment.model, "circuits", experiment.model)
    assert (type(circuits).__name__, getattr(circuits, "blind", None)) == built
    # The equivalent models are the same function of the input at the start.
    rng = np.random.default_rng(5)
    parts = [rng.normal(size=shape) for shape in ((6, 20, 2), (6, 20, 1), (6, 2), (6, 1))]
    sequences = Sequences(*map(jnp.asarray, (*parts, np.full(6, 20.0))))
    np.testing.assert_allclose(
        experiment.model.predict(sequences), experiment.attention.predict(sequences), rtol=1e-12
    )


def test_a_seed_decides_the_weights_and_the_data():
    data = {"kind": "dataset", "sequences": 50}
    one, same, other = (
        prepare(config(risk=data, seed=seed, flow={"kind": "gradient_flow", "end": 1.0}))
        for seed in (4, 4, 5)
    )
    assert np.array_equal(one.model.circuits.v, same.model.circuits.v)
    assert np.array_equal(one.risk.factor, same.risk.factor)
    assert not np.array_equal(one.model.circuits.v, other.model.circuits.v)
    assert not np.array_equal(one.risk.factor, other.risk.factor)


def test_a_mixture_has_the_fraction_of_the_config():
    settings = {"kind": "in_context_in_weight", "fraction": 0.25, "fixed_weight": [1.0, -2.0]}
    task = build_task(config(task=settings))
    assert isinstance(task, Mixture)
    np.testing.assert_allclose(task.probabilities, [0.25, 0.75])
    np.testing.assert_allclose(task.components[1].prior_mean, [1.0, -2.0])


@pytest.mark.parametrize(
    "settings, sentence",
    [
        (
            {"eigenvalues": None, "covariance": [[1.0, 2.0], [2.0, 1.0]]},
            "`task.covariance` has an eigenvalue -1: must be positive definite.",
        ),
        (
            {"eigenvalues": None, "covariance": [[1.0, 0.5], [0.0, 1.0]]},
            "`task.covariance` is not symmetric: must equal its transpose.",
        ),
        (
            {"prior_covariance": [[1.0, 2.0], [3.0]]},
            "`task.prior_covariance` = ((1.0, 2.0), (3.0,)): must be an array of numbers.",
        ),
        ({"prior_mean": [1.0]}, "`task.prior_mean` has 1 entries: must have 2."),
    ],
)
def test_what_needs_linear_algebra_is_refused_by_the_name_in_the_file(settings, sentence):
    with pytest.raises(InputError) as caught:
        build_task(config(task=settings))
    assert str(caught.value) == sentence


def test_an_end_that_is_needed_is_asked_for_by_its_name():
    # Four numbers of freedom less than the full form has: its smallest loss is not known.
    experiment = prepare(config(model={"form": "full", "heads": 2}))
    with pytest.raises(InputError, match="`flow.end` is needed"):
        train(experiment)


# Training -------------------------------------------------------------------------------------


def test_the_same_config_gives_the_same_bits():
    first, second = (train(prepare(config(flow=DESCENT))) for _ in range(2))
    assert np.array_equal(first.losses, second.losses)
    assert np.array_equal(first.models.circuits.K, second.models.circuits.K)


def test_a_run_on_fresh_sequences_reports_its_exact_loss():
    sampled = {"kind": "sampled", "batch": 16}
    settings = {"kind": "sgd", "learning_rate": 0.05, "steps": 60}
    experiment = prepare(config(risk=sampled, flow=settings, model={"scale": 0.3}))
    run = train(experiment)
    exact = prepare(config(model={"scale": 0.3})).risk
    np.testing.assert_allclose(run.losses[-1], exact(run.final), rtol=1e-12)
    assert run.losses[-1] < run.losses[0]


def test_a_minibatch_run_reports_the_loss_of_its_whole_data_set():
    risk = {"kind": "minibatch", "sequences": 64, "batch": 8}
    settings = {"kind": "adam", "learning_rate": 0.01, "steps": 20}
    experiment = prepare(config(risk=risk, flow=settings))
    sequences = experiment.risk.sequences
    run = train(experiment)
    plain = np.mean((sequences.y_query - run.final.predict(sequences)) ** 2)
    np.testing.assert_allclose(run.losses[-1], plain, rtol=1e-10)


@pytest.mark.parametrize(
    "save, count",
    [
        ({"kind": "linear", "count": 7}, 7),
        ({"kind": "log", "count": 5, "first": 2.0}, 6),
        ({"kind": "explicit", "times": [3, 10, 60]}, 4),
    ],
)
def test_runs_keep_the_moments_that_were_asked_for(save, count):
    run = train(prepare(config(flow=DESCENT, save=save)))
    assert len(run) == count and run.times[-1] == 60


# Theory ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_staircase_is_predicted_from_its_start():
    experiment = prepare(config(model={"scale": 1e-3}))
    predicted, run = overlay(experiment), train(experiment)
    assert isinstance(predicted, Overlay) and "cascade" in predicted.source
    summary = summarise(experiment.config, run, experiment.floor(), predicted)
    # The cascade is exact in the limit of small weights; 1 % is what 1e-3 leaves room for.
    assert len(summary.drops) == 2
    assert all(drop.error is not None and drop.error < 0.01 for drop in summary.drops)
    assert [rest.predicted for rest in summary.plateaus] == list(predicted.levels)
    for rest in summary.plateaus:
        assert rest.level == pytest.approx(rest.predicted, abs=1e-3)
    assert summary.floor == pytest.approx(predicted.levels[-1], abs=1e-12)


def test_a_run_saved_too_sparsely_gives_no_times():
    flow = {"kind": "gradient_flow", "end": 6000.0}
    experiment = prepare(config(flow=flow, save={"kind": "linear", "count": 8}))
    summary = summarise(experiment.config, train(experiment), None, overlay(experiment))
    assert [drop.measured for drop in summary.drops] == [None, None]
    assert all(drop.note and drop.predicted and drop.error is None for drop in summary.drops)
    assert summary.plateaus[-1].start is None and summary.plateaus[-1].end == 6000.0


def test_a_run_that_is_stopped_in_a_fall_does_not_rest_at_its_end():
    experiment = prepare(config())
    times = np.linspace(0.0, 600.0, 301)
    losses = 0.3 + 0.7 / (1 + np.exp((times - 250) / 40))  # a drop, half done at 250
    models = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (301, *leaf.shape)), experiment.model)
    whole = Trajectory(times, losses, models, "step", Result.cancelled)
    levels = {
        stop: [rest.level for rest in summarise(experiment.config, part, None, None).plateaus]
        for stop in (330.0, 600.0)
        for part in [whole[: int(np.searchsorted(times, stop))]]
    }
    # In the fall, at 0.38, only the first plateau is one; at the end the second is too.
    assert len(levels[330.0]) == 1 and levels[330.0][0] == pytest.approx(1.0, abs=0.01)
    assert len(levels[600.0]) == 2 and levels[600.0][1] == pytest.approx(0.3, abs=0.01)


def test_a_slow_drift_is_no_plateau():
    experiment = prepare(config())
    times = np.concatenate([[0.0], np.geomspace(0.01, 1e5, 400)])
    # A drop at a rate of 1; then either nothing, or a drift a thousand times slower.
    quick, slow = np.exp(-times), np.exp(-times / 1e3)
    models = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (401, *leaf.shape)), experiment.model)
    summaries = []
    for losses in (quick, 0.97 * quick + 0.03 * slow):
        run = Trajectory(times, 0.2 + losses, models)
        summaries.append(summarise(experiment.config, run, None, None).plateaus[-1])
    assert summaries[0].drift == 0.0 and 2 < summaries[0].start < 4
    # 0.03 e^(−t/1000) has come to half a per cent of the drop, 0.005, at t = 1792; points are 4 %
    # apart there.
    assert summaries[1].start == pytest.approx(1792, rel=0.05)
    # The margin within which a plateau begins is 0.05 of the drop.
    assert summaries[1].drift == pytest.approx(0.05, rel=0.1)
    assert summaries[1].end == 1e5 and summaries[1].level == pytest.approx(0.2, abs=1e-6)


def test_deviations_are_relative_to_the_prediction():
    assert Drop(predicted=200.0, measured=150.0).error == 0.25


def test_descent_and_flow_are_predicted_on_one_clock():
    flow = overlay(prepare(config()))
    steps = overlay(prepare(config(flow=DESCENT)))
    # A step is 2η of the flow's time.
    np.testing.assert_allclose(steps.drop_times * 0.1, flow.drop_times, rtol=1e-12)
    np.testing.assert_allclose(steps.curve(flow.drop_times * 10), flow.curve(flow.drop_times))


@pytest.mark.parametrize(
    "task, source",
    [({"eigenvalues": [0.5, 0.5]}, "closed form"), ({}, "reduced equation")],
)
def test_a_merged_run_lies_on_its_predicted_curve(task, source):
    experiment = prepare(config(task=task, model={"kind": "merged", "scale": 1e-3}))
    predicted, run = overlay(experiment), train(experiment)
    assert source in predicted.source
    # Generic weights of 1e-3 shift the drop by that order, and the loss falls by less than one
    # in the width of the drop.
    assert np.nanmax(np.abs(predicted.curve(run.times) - run.losses)) < 5e-3
    summary = summarise(experiment.config, run, experiment.floor(), predicted)
    assert summary.drops[0].error < 1e-3


def test_the_full_form_follows_the_reduced_one_where_theory_says_so():
    symmetric = prepare(config(model={"kind": "merged", "form": "full"}))
    assert isinstance(symmetric.model.circuits, Merged) and not symmetric.model.blind
    assert "reduced equation" in overlay(symmetric).source
    tilted = config(model={"kind": "merged", "form": "full"}, task={"prior_mean": [1.0, 0.0]})
    assert overlay(prepare(tilted)) is None


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "sections",
    [
        {"theory": False},
        {"model": {"activation": "softmax"}, "flow": {**DESCENT, "kind": "adam"}},
        {"risk": {"kind": "dataset", "sequences": 40}, "flow": DESCENT},
        {"task": {"kind": "in_context_in_weight", "fraction": 0.5}},
    ],
)
def test_nothing_is_drawn_where_no_theory_applies(sections):
    assert overlay(prepare(config(**sections))) is None


@pytest.mark.parametrize(
    "sections",
    [
        {"model": {"rank": 2}},
        {"model": {"scale": 1.5}},
        {"flow": {**DESCENT, "kind": "adam"}},
        # Growth rates and gains in different orders: the cascade does not describe that.
        {"task": {"eigenvalues": [1.0, 0.2], "prior_covariance": [[0.1, 0.0], [0.0, 1.0]]}},
    ],
)
def test_levels_are_drawn_without_times_where_only_they_are_known(sections):
    predicted = overlay(prepare(config(**sections)))
    assert len(predicted.levels) == 3 and len(predicted.drop_times) == 0
    assert not hasattr(predicted.for_plot(np.arange(3.0)), "loss")


@pytest.mark.parametrize(
    "flow, scale", [({"learning_rate": 1e4}, 1.0), ({"learning_rate": 8}, 0.5)]
)
def test_a_diverging_run_says_so_on_its_figure_and_in_its_summary(flow, scale):
    settings = config(flow={**DESCENT, **flow}, model={"scale": scale})
    experiment = prepare(settings)
    run = train(experiment)
    assert run.result is Result.diverged
    summary = summarise(settings, run, experiment.floor(), overlay(experiment))
    assert summary.as_json()["result"] == "diverged"
    assert json.dumps(summary.as_json(), allow_nan=False)
    assert loss_figure(run, overlay(experiment), None, "diverging")["loss.png"]


@pytest.mark.slow
def test_a_run_at_rest_has_a_figure():
    experiment = prepare(config(model={"scale": 0.0}))
    run = train(experiment)
    assert run.result is Result.stationary
    assert loss_figure(run, overlay(experiment), experiment.floor(), "rest")["loss.png"]
