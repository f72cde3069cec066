"""What the explorer says about a moment of a run, and the estimators that it compares with."""

import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import four_components
from iclflow.analysis import (
    Algorithm,
    AlgorithmWatch,
    Match,
    directions,
    key_moments,
    which_algorithm,
)
from iclflow.circuits import Circuits
from iclflow.config import parse_config
from iclflow.estimators import Zero
from iclflow.experiment import overlay, prepare, train
from iclflow.explorer._head_sentences import describe_tasks
from iclflow.explorer._narrator import Narrator
from iclflow.explorer._sentences import describe_estimators, describe_learned, describe_stairs
from iclflow.explorer._text import percent_done
from iclflow.models import Attention, Diagonal, Merged
from iclflow.tasks import MultiTaskRegression, isotropic
from iclflow.trajectory import Trajectory
from test_explorer_panels import (
    TASKS,
    experiment_of,
    path,
)

# All as large as the task of the staircase: what is compiled for one serves the others.
STAIRS = {"kind": "linear_regression", "eigenvalues": [0.4, 0.3, 0.2, 0.1], "context": 31}
WHITE = {**STAIRS, "eigenvalues": [1.0] * 4, "noise": 0.1}
MIXTURE = {**STAIRS, "kind": "in_context_in_weight", "fraction": 0.5}
TREE = {"kind": "decision_tree", "inputs": 4, "context": 31}
TURNED = {
    "kind": "linear_regression",
    "covariance": (np.diag([0.5, 0.4, 0.3, 0.2]) + 0.05 * np.ones((4, 4))).tolist(),
    "context": [8, 31],
}


@pytest.fixture(scope="module")
def staircase():
    model = {"kind": "separate", "heads": 4, "scale": 1e-2}
    experiment = prepare(parse_config({"task": STAIRS, "model": model}))
    predicted = overlay(experiment)
    return Narrator(experiment, predicted), train(experiment), predicted


@pytest.mark.slow
def test_a_plateau_is_told_with_its_components_and_its_estimator(staircase):
    narrator, run, predicted = staircase
    # In the middle between two drops.
    index = int(
        np.searchsorted(run.times, np.sqrt(predicted.drop_times[2] * predicted.drop_times[3]))
    )
    words = narrator.sentences(run, index)
    assert words[0].startswith("Plateau 4 of 4: the loss is 0.2098, at theory's level 0.2098.")
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
    assert first[-1] == "This model predicts almost zero."
    assert last[0].startswith("The bottom: ") and "All 4 components are learned." in last


def test_words_do_not_look_ahead(staircase):
    narrator, run, _ = staircase
    for index in (0, 120, 250):
        assert narrator.sentences(run, index) == narrator.sentences(run[: index + 1], index)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "task, model",
    [
        (WHITE, {"kind": "factored"}),
        (WHITE, {"kind": "structured", "heads": 6}),
        (TURNED, {"kind": "merged", "activation": "softmax"}),
        (MIXTURE, {"kind": "merged", "form": "full"}),
        (WHITE, {"kind": "stack", "depth": 2}),
        (WHITE, {"kind": "linear_stack", "heads": 1, "depth": 2}),
        (TASKS, {"kind": "multi_merged"}),
        (TASKS, {"kind": "multi_spectral"}),
        (TREE, {"kind": "factored"}),
    ],
)
@pytest.mark.slow
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
    model = Attention(Diagonal(jnp.array([0.12, -0.12]), jnp.array([3.4, -3.4]), 4))
    run = Trajectory(np.zeros(1), np.ones(1), _stacked(model))
    words = " ".join(Narrator(experiment, algorithms=False).sentences(run, 0))
    assert "Head 1 is positive (ω = 0.12, μ = 3.4); head 2 is negative (ω = −0.12" in words
    assert "Output-values sum to less than 0.01 % of their size: debiased." in words


def test_heads_that_add_little_are_told_from_heads_that_average_labels():
    experiment = experiment_of(WHITE, {"kind": "structured"})
    quiet, loud = Narrator(experiment, algorithms=False), Narrator(experiment)
    loud.__dict__["_watch"] = _Small()
    mean = Attention(Diagonal(jnp.full(2, 1e-3), jnp.full(2, 0.4), 4))
    pair = Attention(Diagonal(jnp.array([0.1, -0.1]), jnp.array([0.1, -0.1]), 4))
    runs = [Trajectory(np.zeros(1), np.ones(1), _stacked(model)) for model in (mean, pair)]
    assert "The heads average the labels so far: Σμ = 0.8." in quiet.sentences(runs[0], 0)
    assert "The heads make less than 5 % of the best gradient step so far." in quiet.sentences(
        runs[1], 0
    )
    # Small predictions are called so by both sentences, whatever estimator they are nearest to.
    assert loud.sentences(runs[1], 0)[1:] == [
        "All heads are idle.",
        "This model predicts almost zero.",
    ]


class _Small:
    """Stands for a comparison that finds small predictions of one gradient step."""

    def sizes(self, model):
        return (0.02,)

    def look(self, model):
        return (_found("one gradient step", 0.01, 0.02),)


def _found(name, distance, step_size=None):
    return Algorithm((Match(name, distance, 0.0, Zero(), step_size),))


@pytest.mark.parametrize(
    "mu, words",
    [
        ([1.0, -0.92], "sum to 4.2 % of their size: debiased."),
        ([1.0, -0.8], "sum to 11 % of their size: nearly debiased."),
        ([1.0, -0.5], "sum to 33 % of their size."),
    ],
)
def test_between_debiased_and_biased_there_is_a_middle(mu, words):
    experiment = experiment_of(WHITE, {"kind": "structured"})
    model = Attention(Diagonal(jnp.array([0.5, -0.5]), jnp.array(mu), 4))
    run = Trajectory(np.zeros(1), np.ones(1), _stacked(model))
    told = Narrator(experiment, algorithms=False).sentences(run, 0)
    assert any(each.endswith(words) for each in told), told


def test_tasks_are_told_together_only_if_they_are_alike():
    kernel, far = _found("kernel regression", 0.039), _found("kernel regression", 0.38)
    step, other = (_found("one gradient step", x, x) for x in (0.2, 0.26))
    mixed = describe_estimators((far, kernel, far), (1.0, 1.0, 1.0))
    assert mixed == (
        "On tasks 1, 3 it matches no known estimator; "
        "on task 2 it now equals kernel regression to 3.90 %."
    )
    assert describe_estimators((far, far), (1.0, 1.0)) == "On no task is it a known estimator."
    # Each task has a step size of its own.
    together = describe_estimators((step, other), (1.0, 1.0))
    assert together == "On every task it is near one gradient step: at most 26.00 % apart."
    small = describe_estimators((far, far), (0.01, 0.02))
    assert small == "On every task it predicts almost zero."


BEST, SPREAD = np.array([2.0, 2.5, 4.0, 5.0]), np.array([0.4, 0.3, 0.2, 0.1])


def test_random_and_run_away_weights_have_learned_nothing():
    random = directions(np.random.default_rng(0).normal(size=(4, 4)) * 3, BEST, SPREAD)
    assert describe_learned(random).startswith("No component is learned")
    turned = directions(np.outer([0.7, 0.7, 0, 0], [0.7, 0.7, 0, 0]) * 2.5, BEST, SPREAD)
    assert describe_learned(turned) == "No component is learned by itself: the model mixes them."
    away = directions(np.diag([1.0, 50.0, 1.0, 1.0]) * BEST, BEST, SPREAD)
    told = "Learned components: 1, 3, 4; the strongest has 50 times its best strength."
    assert describe_learned(away) == told and not away.orderly
    two = directions(np.diag([0.9, 1.1, 0.2, 0.0]) * BEST, BEST, SPREAD)
    assert describe_learned(two) == "Learned components: 1, 2." and two.settled


def test_equal_components_are_counted_as_directions():
    along = np.full(4, 0.5)
    one = directions(3 * np.outer(along, along), np.full(4, 3.0), np.full(4, 0.25))
    assert describe_learned(one) == "1 of 4 directions is learned." and one.settled
    best, spread = np.array([2.0, 3.0, 3.0, 5.0]), np.array([0.4, 0.3, 0.3, 0.1])
    matrix = np.diag([2.0, 0.0, 0.0, 0.0])
    matrix[1:3, 1:3] = 1.5
    two = directions(matrix, best, spread)
    assert describe_learned(two) == "2 of 4 directions are learned."
    assert [list(space) for space in two.spaces] == [[0], [1, 2], [3]]


def test_stairs_are_told_only_of_models_that_stand_on_them():
    levels, none = np.array([1.0, 0.7, 0.4, 0.2, 0.1]), np.zeros(0)
    state = lambda *strengths: directions(np.diag(strengths) * BEST, BEST, SPREAD)
    any_model = Attention(Diagonal(jnp.zeros(3), jnp.zeros(3), 4))
    run = Trajectory(np.array([1.0, 2.0, 3.0]), np.array([0.9, 0.8, 0.69]), any_model)
    told = lambda run, found: describe_stairs(levels, none, run, len(run) - 1, found, 1)
    leaving = told(run, state(1, 0.02, 0, 0))
    assert leaving == (
        "Leaving plateau 2 of 4: the loss is 0.69, below theory's level 0.7 by 3.3 % of the drop."
    )
    # The same loss, with two components half learned.
    assert told(run, state(0.4, 0.4, 0, 0)) is None
    dropping = "Dropping: 67 % of the way from level 1 to level 2."
    assert told(run[:2], state(0.4, 0, 0, 0)) == dropping
    assert told(run[:2], state(0.3, 0.3, 0, 0)) is None
    # A rest between two levels is no drop.
    still = Trajectory(run.times, np.full(3, 0.8), any_model)
    assert told(still, state(0.4, 0, 0, 0)) is None
    between = "The loss is 0.8, between theory's level 1 and level 2."
    assert told(run[:2], state(0, 1, 0, 0)) == between


def test_all_is_done_only_when_nothing_is_left():
    shares = (0.5, 0.997, 0.9999, 1.0, 1.2)
    assert [percent_done(share) for share in shares] == [
        "50 %",
        "99.7 %",
        "99.9 %",
        "100 %",
        "100 %",
    ]


def test_heads_of_many_tasks_are_told_from_what_they_do():
    tasks = {**TASKS, "coordinates": [[i] for i in range(5)], "noise": 0.1}
    task = experiment_of(tasks, {"kind": "multi_merged"}).task
    assert isinstance(task, MultiTaskRegression)
    # The first head works for tasks 1 to 4, with attention of the other sign; the second shares
    # task 2.
    omega = np.array([[[-0.5, -0.4, -0.5, -0.5, 0.0], [0.0, 0.4, 0.0, 0.0, 0.0]]])
    attention, values = np.zeros((1, 2, 10, 5)), np.zeros((1, 2, 5, 10))
    attention[..., :5, :] = omega[..., None] * np.eye(5)
    values[..., 5:] = np.sign(omega)[..., None] * np.eye(5)
    assert describe_tasks(Circuits(attention, values, np.eye(5)), task) == [
        "Head 1 has task 1 (100 % of its step); heads 1, 2 share task 2; "
        "head 1 has task 3 (100 % of its step); head 1 has task 4 (100 % of its step); "
        "task 5 has not begun."
    ]


def _stacked(model):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], model)


def test_a_run_that_ran_away_says_so():
    experiment = experiment_of(STAIRS, {"kind": "merged"})
    run = path(experiment, 3)
    broken = Trajectory(run.times, np.array([1.0, np.inf, np.nan]), run.models)
    words = Narrator(experiment, algorithms=False).sentences(broken, 1)
    assert words == ["The loss is infinite or not a number: the weights have diverged."]
    assert key_moments(broken)[-1] == 2


def test_moments_are_few_and_have_the_ends_and_every_plateau(staircase):
    _, run, predicted = staircase
    moments = key_moments(run)
    assert len(moments) <= 40 and moments == sorted(set(moments))
    assert moments[0] == 0 and moments[-1] == len(run) - 1
    for level in predicted.levels:
        assert np.min(np.abs(run.losses[moments] - level)) < 0.01 * level
    assert key_moments(run[:1]) == [0] and key_moments(run[:0]) == []


def test_a_look_agrees_with_which_algorithm_on_linear_attention():
    task = four_components(noise=0.1)
    watch = AlgorithmWatch(task)
    for model in (
        Attention.separate(jr.key(1), 4, 4, scale=0.02),
        Attention(Merged.of(jnp.ones(1), jnp.diag(jnp.array([2.0, 2.5, 0.0, 0.0]))[None])),
    ):
        found = watch.look(model)
        assert found is not None and len(found) == 1
        _agree(found[0], _asked_afresh(model, task))


def test_a_look_agrees_with_which_algorithm_on_a_softmax_pair():
    task = isotropic(4, 31, 0.1)
    model = Attention(Diagonal(jnp.array([0.14, -0.14]), jnp.array([3.1, -3.1]), 4))
    looked = AlgorithmWatch(task, fitted=True).look(model)
    assert looked is not None
    found = looked[0]
    wanted = _asked_afresh(model, task)
    assert found.best.name == wanted.best.name == "one debiased gradient step"
    _agree(found, wanted)


def _asked_afresh(model, task):
    """On other sequences than a watch has, and as many of them: programs are compiled once."""
    return which_algorithm(model, task, jr.key(1), count=1000)


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


@pytest.mark.timed
def test_a_look_takes_milliseconds():
    watch, model = AlgorithmWatch(four_components()), Attention.separate(jr.key(0), 4, 4)
    watch.look(model)
    begin = time.perf_counter()
    for _ in range(5):
        watch.look(model)
    # 2 ms on a quiet core; other programs may run beside.
    assert time.perf_counter() - begin < 0.2


def test_a_look_at_weights_that_ran_away_finds_nothing():
    watch = AlgorithmWatch(four_components())
    # The squares of 1e160 are infinite, and 1e90 has infinite squares of squares.
    for size in (jnp.nan, 1e160, 1e90):
        model = Attention(Merged.of(jnp.full(1, size), jnp.ones((1, 4, 4))))
        assert watch.look(model) is None
    assert watch.sizes(Attention(Merged.of(jnp.zeros(1), jnp.ones((1, 4, 4))))) == (0.0,)


def test_one_sequence_is_too_few():
    with pytest.raises(ValueError, match="`count` = 1"):
        AlgorithmWatch(four_components(), count=1)
