"""What the explorer says about a moment of a run, and the estimators that it compares with."""

import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import four_components
from iclflow.analysis import AlgorithmWatch, which_algorithm
from iclflow.config import parse_config
from iclflow.experiment import overlay, prepare, train
from iclflow.explorer._words import Narrator, moments_to_tell
from iclflow.models import MergedKQ, SeparateKQ, StructuredAttention
from iclflow.tasks import isotropic
from iclflow.trajectory import Trajectory
from test_explorer_panels import (
    MIXTURE,
    REGRESSION,
    TASKS,
    TURNED,
    WHITE,
    experiment_of,
    path,
)


@pytest.fixture(scope="module")
def staircase():
    task = {"kind": "linear_regression", "eigenvalues": [0.4, 0.3, 0.2, 0.1], "context": 31}
    model = {"kind": "separate", "heads": 4, "scale": 1e-2}
    experiment = prepare(parse_config({"task": task, "model": model}))
    predicted = overlay(experiment)
    return Narrator(experiment, predicted), train(experiment), predicted


def test_a_plateau_is_told_with_its_components_and_its_estimator(staircase):
    narrator, run, predicted = staircase
    # In the middle between two drops.
    index = int(
        np.searchsorted(run.times, np.sqrt(predicted.drop_times[2] * predicted.drop_times[3]))
    )
    words = narrator.sentences(run, index)
    assert words[0].startswith("Plateau 4 of 4: the loss is 0.2098, theory's level is 0.2098")
    assert "Learned components: 1, 2, 3." in words
    assert words[-1].startswith("This model now equals PCR with 3 components to ")
    assert 2 <= len(words) <= 5


def test_a_drop_is_told_with_the_predicted_moment(staircase):
    narrator, run, predicted = staircase
    half = (predicted.levels[0] + predicted.levels[1]) / 2
    words = narrator.sentences(run, int(np.flatnonzero(run.losses <= half)[0]))
    assert words[0].startswith("Dropping: ") and " from level 1 to level 2;" in words[0]
    assert "predicted half-way at t = 77" in words[0]


def test_start_and_end_are_told(staircase):
    narrator, run, _ = staircase
    first, last = narrator.sentences(run, 0), narrator.sentences(run, -1)
    assert first[0].startswith("Plateau 1 of 4") and "No component is learned yet." in first
    assert first[-1] == "This model predicts next to nothing."
    assert last[0].startswith("The bottom: ") and "All 4 components are learned." in last


def test_words_do_not_look_ahead(staircase):
    narrator, run, _ = staircase
    for index in (0, 120, 250):
        assert narrator.sentences(run, index) == narrator.sentences(run[: index + 1], index)


@pytest.mark.parametrize(
    "task, model",
    [
        (WHITE, {"kind": "factored"}),
        (WHITE, {"kind": "structured", "heads": 6}),
        (TURNED, {"kind": "merged", "activation": "softmax"}),
        (MIXTURE, {"kind": "merged", "form": "full"}),
        (WHITE, {"kind": "stack", "depth": 2}),
        (TASKS, {"kind": "multi_merged"}),
        (TASKS, {"kind": "multi_spectral"}),
        ({"kind": "decision_tree", "inputs": 3, "context": 8}, {"kind": "factored"}),
    ],
)
def test_every_kind_of_run_has_sentences_without_gaps(task, model):
    experiment = experiment_of(task, model)
    narrator, run = Narrator(experiment, overlay(experiment)), path(experiment, 8)
    for index in (0, 3, 7):
        words = narrator.sentences(run, index)
        assert 2 <= len(words) <= 5, words
        assert all(
            each.endswith(".") and "nan" not in each and "inf " not in each for each in words
        )


def test_signs_of_softmax_heads_are_told():
    experiment = experiment_of(WHITE, {"kind": "structured"})
    model = StructuredAttention(omega=jnp.array([0.12, -0.12]), mu=jnp.array([3.4, -3.4]), dim=3)
    run = Trajectory(np.zeros(1), np.ones(1), _stacked(model))
    words = " ".join(Narrator(experiment, algorithms=False).sentences(run, 0))
    assert "Head 1 is positive (ω = 0.12, μ = 3.4); head 2 is negative (ω = −0.12" in words
    assert "Output-values sum to less than 0.01 % of their size: debiased." in words


def _stacked(model):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], model)


def test_a_run_that_ran_away_says_so():
    experiment = experiment_of(REGRESSION, {"kind": "merged"})
    run = path(experiment, 3)
    broken = Trajectory(run.times, np.array([1.0, np.inf, np.nan]), run.models)
    words = Narrator(experiment, algorithms=False).sentences(broken, 1)
    assert words == ["The loss is infinite or not a number: the weights ran away."]
    assert moments_to_tell(broken)[-1] == 2


def test_moments_are_few_and_have_the_ends_and_every_plateau(staircase):
    _, run, predicted = staircase
    moments = moments_to_tell(run)
    assert len(moments) <= 40 and moments == sorted(set(moments))
    assert moments[0] == 0 and moments[-1] == len(run) - 1
    for level in predicted.levels:
        assert np.min(np.abs(run.losses[moments] - level)) < 0.01 * level
    assert moments_to_tell(run[:1]) == [0] and moments_to_tell(run[:0]) == []


@pytest.mark.parametrize("scale", [0.02, 0.6])
def test_a_look_agrees_with_which_algorithm_on_linear_attention(scale):
    task = four_components(noise=0.1)
    for model in (
        SeparateKQ.init(jr.key(1), 4, 4, scale=scale),
        MergedKQ(v=jnp.ones(1), U=jnp.diag(jnp.array([2.0, 2.5, 0.0, 0.0]))[None]),
    ):
        found = AlgorithmWatch(task).look(model)
        assert found is not None and len(found) == 1
        _agree(found[0], which_algorithm(model, task, count=4000))


def test_a_look_agrees_with_which_algorithm_on_a_softmax_pair():
    task = isotropic(5, 40, 0.1)
    model = StructuredAttention(omega=jnp.array([0.14, -0.14]), mu=jnp.array([3.1, -3.1]), dim=5)
    looked = AlgorithmWatch(task, fitted=True).look(model)
    assert looked is not None
    found = looked[0]
    wanted = which_algorithm(model, task, count=4000)
    assert found.best.name == wanted.best.name == "one debiased gradient step"
    _agree(found, wanted)


def _agree(found, wanted):
    names = {match.name for match in found.matches}
    shared = [match for match in wanted.matches if match.name in names]
    assert len(shared) >= 5
    for match in shared:
        if match.name == "kernel regression":  # fitted to other sequences, with a coarser width
            continue
        other = found[match.name]
        error = np.hypot(match.standard_error, other.standard_error)
        assert abs(match.distance - other.distance) <= 4.5 * error + 1e-9, (match, other)


def test_a_look_takes_milliseconds():
    watch, model = AlgorithmWatch(four_components()), SeparateKQ.init(jr.key(0), 4, 4)
    watch.look(model)
    begin = time.perf_counter()
    for _ in range(5):
        watch.look(model)
    # 2 ms on a quiet core; a machine that is busy with other tests is far slower.
    assert time.perf_counter() - begin < 1.0


def test_a_look_at_weights_that_ran_away_finds_nothing():
    model = MergedKQ(v=jnp.full(1, jnp.nan), U=jnp.ones((1, 4, 4)))
    assert AlgorithmWatch(four_components(), count=50).look(model) is None


def test_one_sequence_is_too_few():
    with pytest.raises(ValueError, match="`count` = 1"):
        AlgorithmWatch(four_components(), count=1)
