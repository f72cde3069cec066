"""Other people's models, measured while they train."""

import json
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import iclflow as icl
from iclflow.errors import InputError
from iclflow.estimators import DiscreteMMSE, PopulationPCR
from iclflow.files import LOCK
from iclflow.watching import Follower, PredictionError, describe, read_about, read_looks
from iclflow.watching._plot import shown_estimators
from iclflow.watching._schedule import Budget, Every, LogSpaced

DIM, CONTEXT, NOISE = 4, 12, 0.25
EIGENVALUES = np.array([1.0, 0.7, 0.4, 0.2])
PRETRAINING = np.random.default_rng(5).standard_normal((6, DIM))


@pytest.fixture(scope="module")
def task():
    return icl.LinearRegression(eigenvalues=EIGENVALUES.tolist(), context=CONTEXT, noise=NOISE)


def look_at(watched, step=0):
    """A look that is due."""
    found = watched(step)
    assert found is not None
    return found


# Models written without iclflow, as others would write them.


def step(size, centred=False):
    def predict(x, y, query):
        y = y - y.mean(1, keepdims=True) if centred else y
        return size * np.einsum("bnd,bn,bd->b", x, y, query) / x.shape[1]

    return predict


def ridge(penalty):
    def predict(x, y, query):
        gram = np.einsum("bnd,bne->bde", x, x) + penalty * np.eye(x.shape[2])
        weights = np.linalg.solve(gram, np.einsum("bnd,bn->bd", x, y)[..., None])[..., 0]
        return np.sum(weights * query, 1)

    return predict


def recall(x, y, query):
    squares = np.sum((y[:, :, None] - x @ PRETRAINING.T) ** 2, 1)
    score = np.exp(-(squares - squares.min(1, keepdims=True)) / (2 * NOISE))
    return np.sum(score / score.sum(1, keepdims=True) * (query @ PRETRAINING.T), 1)


def zero(x, y, query):
    return np.zeros(len(x))


MODELS = {
    "zero": zero,
    "one gradient step": step(0.8),
    "one debiased gradient step": step(0.8, centred=True),
    "ridge regression": ridge(NOISE),
    "least squares": ridge(1e-9),
    "dMMSE": recall,
}


@pytest.fixture(scope="module")
def looked(task):
    """One look at each model, on one evaluation set."""
    watched = icl.watch(task, zero, every=1, count=300, pretraining=PRETRAINING, strict=True)
    found = {}
    for number, (name, model) in enumerate(MODELS.items()):
        watched._predict = model
        found[name] = watched(number)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_a_model_whose_algorithm_is_known_is_named(looked, name):
    nearest = looked[name].nearest[0]
    # On white priors Bayes is ridge regression, and PCR without components is zero.
    same = {"zero": {"zero", "PCR with 0 components"}, "ridge regression": {"Bayes"}}
    assert nearest.name in {name} | same.get(name, set())
    assert nearest.distance < 1e-4
    if nearest.step_size is not None:
        assert nearest.step_size == pytest.approx(0.8, rel=1e-5)


def test_the_loss_is_that_of_the_evaluation_set_and_the_excess_that_over_bayes(task, looked):
    look = looked["ridge regression"]
    assert look.excess.value < 1e-10
    assert look.loss.value == pytest.approx(look.losses[-1].value)
    worse = looked["zero"]
    # E(y − ŷ)² = Bayes + E(ŷ − ŷ_Bayes)²: both sides are means over the same sequences.
    assert worse.loss.value - look.loss.value == pytest.approx(
        worse.excess.value, abs=4 * np.hypot(worse.loss.standard_error, look.loss.standard_error)
    )
    assert list(look.lengths) == sorted(look.lengths) and look.lengths[-1] == CONTEXT
    assert look.losses[0].value > look.losses[-1].value


def test_a_causal_model_is_measured_at_every_position(task):
    def causal(x, y, query):
        whole = np.concatenate([x, query[:, None]], 1)
        known = [ridge(NOISE)(x[:, :n], y[:, :n], whole[:, n]) for n in range(CONTEXT + 1)]
        return np.stack(known, 1)

    look = look_at(icl.watch(task, causal, every=1, count=100, strict=True))
    assert look.lengths == tuple(range(CONTEXT + 1)) and look.excesses is not None
    assert max(each.value for each in look.excesses) < 1e-10


def test_several_labels_are_an_axis():
    task = icl.MultiTaskRegression(((0, 1), (1, 2)), context=8, noise=0.1)

    def predict(x, y, query):
        assert y.shape == (50, x.shape[1], 2) and x.dtype == np.float32
        return np.zeros((50, 2))

    look = look_at(icl.watch(task, predict, every=1, count=50, strict=True))
    assert len(look.nearest) == 2


def test_anything_with_samples_can_be_watched():
    class Squares:
        def sample(self, seed, count):
            rng = np.random.default_rng(seed)
            x = rng.standard_normal((count, 9, 3))
            y = np.sum(x, 2)
            return x[:, :-1], y[:, :-1], x[:, -1], y[:, -1]

    look = look_at(icl.watch(Squares(), ridge(1e-9), every=1, count=50, strict=True))
    assert look.nearest[0].name == "least squares" and look.excess is None
    with pytest.raises(InputError, match="sample"):
        icl.watch(object(), zero)


def test_a_step_with_a_matrix_is_named_where_nothing_simpler_is_near(task):
    """Every layer of linear attention is one: near a plateau PCR says more."""

    def names(matrix):
        layer = lambda x, y, q: np.einsum("bnd,bn,de,be->b", x, y, matrix, q) / x.shape[1]
        look = look_at(icl.watch(task, layer, every=1, count=500, strict=True))
        found = {each.name: each.distance for each in look.distances[0]}
        assert found["one preconditioned gradient step"] < 1e-5
        # A picture shows those that were the nearest, whatever else came closer.
        assert shown_estimators([look])[0] == look.nearest[0].name
        return look.nearest[0].name

    first = PopulationPCR(task, 1).coefficients()
    assert names(np.asarray(first) + 0.02) == "PCR with 1 component"
    assert names(np.eye(DIM)[::-1]) == "one preconditioned gradient step"


def test_a_task_with_several_lengths_is_measured_at_each():
    task = icl.LinearRegression(eigenvalues=[1.0, 1.0], context=(3, 8), noise=0.1)
    watched = icl.watch(task, zero, every=1, count=300, strict=True)
    look = look_at(watched)
    assert look.lengths == (3, 8) and look.excesses is not None
    drawn = watched._evaluation.sequences
    for length, loss in zip(look.lengths, look.losses):
        labels = np.asarray(drawn.y_query)[np.asarray(drawn.length) == length]
        assert loss.value == pytest.approx(np.mean(labels**2))
    assert look_at(icl.watch(task, zero, every=1, count=300, lengths=[8])).lengths == (8,)
    with pytest.raises(InputError, match="among those of the task, 3, 8"):
        icl.watch(task, zero, lengths=[5])


def test_plateaus_and_the_drops_between_them_are_found(task):
    """The loss of a step of the size s is quadratic in s: half-way down at 1 − √(1/2)."""
    best = 1.2
    sizes = best / (1 + np.exp(-(np.arange(100) - 50) / 4))
    state = {"size": 0.0}
    watched = icl.watch(task, lambda *parts: step(state["size"])(*parts), every=1, count=50)
    for number, size in enumerate(sizes):
        state["size"] = size
        watched(number)
    losses = [look.loss.value for look in watched.looks]
    assert len(watched.plateaus()) == 2
    (found,) = watched.drops()
    half = (watched.plateaus()[0].level + watched.plateaus()[1].level) / 2
    assert np.interp(found, np.arange(100), losses) == pytest.approx(half, rel=0.02)


# What goes wrong ----------------------------------------------------------------------------------


def fail(x, y, query):
    raise RuntimeError("out of luck")


class OnDevice:
    """An array that NumPy cannot convert, as a tensor on a GPU is."""

    def __array__(self, *_, **__):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )


@pytest.mark.parametrize(
    "predict, words",
    [
        (fail, "raised RuntimeError: out of luck"),
        (lambda x, y, q: np.full(len(x), np.nan), "50 of 50 predictions that are not finite"),
        (lambda x, y, q: np.zeros((len(x), 7)), r"the shape \(50, 7\): must be \(50,\)"),
        (lambda x, y, q: np.zeros(len(x), complex), "no array of real numbers"),
        (lambda x, y, q: "text", "no array of real numbers"),
        (lambda x, y, q: None, "no array of real numbers"),
        (lambda x, y, q: OnDevice(), "no array of real numbers: can't convert cuda:0"),
        (lambda x, y, q: np.zeros(len(x), object), "no array of real numbers"),
        (lambda x, y, q: np.zeros((len(x), 3, 2, 1)), r"the shape \(50, 3, 2, 1\)"),
        (lambda x, y, q: np.full(len(x), np.inf, np.float16), "predictions that are not finite"),
        (
            lambda x, y, q: np.full(len(x), 1e200),
            r"up to 1e\+200, which are too large for a loss\.",
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_the_training_goes_on(task, predict, words):
    watched = icl.watch(task, predict, every=1, count=50)
    with pytest.warns(UserWarning, match=words) as caught:
        assert watched(0) is None
    assert str(caught[0].message).count("\n") == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert watched(1) is None  # the same problem is said once
    assert set(watched.problems) == {0, 1}
    strict = icl.watch(task, predict, every=1, count=50, strict=True)
    with pytest.raises(PredictionError, match=words):
        strict(0)


def test_a_kind_of_problem_is_said_once_and_two_problems_of_a_step_are_both_kept(task, tmp_path):
    state = {"wrong": 0}

    def predict(x, y, query):
        return np.where(np.arange(len(x)) < state["wrong"], np.nan, 0.0)

    def log(metrics, step):
        raise OSError("no network")

    def circuits():
        if state["broken"]:
            raise KeyError("weights")
        return np.zeros((1, DIM + 1, DIM)), np.zeros((1, 1, DIM + 1))

    state["broken"] = False
    options = {"every": 1, "count": 50, "log": log, "circuits": circuits, "out": tmp_path / "run"}
    with icl.watch(task, predict, **options) as watched:
        state["broken"] = True
        with pytest.warns(UserWarning) as caught:
            for number in range(4):
                state["wrong"] = 10 * number
                watched(number)
        said = [str(each.message) for each in caught]
        assert len(said) == 3 and "10 of 50 predictions that are not finite" in said[2]
        assert watched.problems[0].startswith("The heads could not be read: 'weights'. `log` rai")
        assert "30 of 50" in watched.problems[3]
        follower = Follower(tmp_path / "run")
        follower.read()
        assert follower.problems == watched.problems
    state["broken"] = False
    with icl.watch(task, predict, **options) as again:
        assert again.problems == watched.problems


def test_a_look_that_fails_takes_that_of_the_same_step_before_back(task, tmp_path):
    state = {"model": zero}
    with icl.watch(
        task, lambda *parts: state["model"](*parts), every=1, count=50, out=tmp_path
    ) as w:
        for number in range(3):
            w(number)
        state["model"] = fail
        with pytest.warns(UserWarning, match="out of luck"):
            w(1)
        follower = Follower(tmp_path)
        follower.read()
        assert [look.step for look in w.looks] == list(follower.columns.steps) == [0]
        state["model"] = zero
        w(2)
        follower.read()
        assert [look.step for look in read_looks(tmp_path)] == [0, 2]
        assert list(follower.columns.steps) == [0, 2] and set(follower.problems) == {1}


def test_a_model_that_changes_its_input_does_not_change_the_evaluation_set(task):
    def spoil(x, y, query):
        x[:] = y[:] = 0
        return zero(x, y, query)

    watched = icl.watch(task, spoil, every=1, count=50)
    assert look_at(watched).loss == look_at(watched, 1).loss


def test_a_logger_gets_numbers_by_name_and_may_fail(task):
    seen = []
    log = lambda metrics, step: seen.append((step, metrics))
    icl.watch(task, zero, every=1, count=50, log=log)(3)
    ((step, metrics),) = seen
    assert step == 3 and metrics["icl/loss"] > 0 and "icl/distance/least squares" in metrics
    assert all(isinstance(value, float) for value in metrics.values())

    def broken(metrics, step):
        raise OSError("no network")

    with pytest.warns(UserWarning, match="no network"):
        assert icl.watch(task, zero, every=1, count=50, log=broken)(0) is not None


# Schedules ----------------------------------------------------------------------------------------


def test_schedules_choose_steps():
    due = lambda schedule, last: [n for n in range(last + 1) if schedule.is_due(n, 0, 0, 0)]
    assert due(Every(3), 10) == [0, 3, 6, 9]
    spaced = due(LogSpaced(5, 1000), 1000)
    assert spaced == [0, 1, 10, 100, 1000] and len(due(LogSpaced(50, 10**4), 10**4)) <= 50
    schedule = LogSpaced(50, 10**4)
    assert schedule.steps is schedule.steps  # computed once: asked at every step of a training


def test_a_budget_is_kept():
    schedule, now, spent, last, looks = Budget(0.05), 0.0, 0.0, 0.0, 0
    for step in range(1000):
        now += 0.01
        if schedule.is_due(step, spent, now, last):
            now, spent, last, looks = now + 0.02, spent + 0.02, 0.02, looks + 1
    assert 0.03 < spent / now <= 0.05 and looks > 10


@pytest.mark.parametrize(
    "options, words",
    [
        ({"every": 0}, "`every` = 0"),
        ({"budget": 1.5}, "`budget` = 1.5"),
        ({"every": 2, "budget": 0.1}, "both are given"),
        ({"looks": 5}, "needs `steps`"),
        ({"dtype": "int8"}, "`dtype` = 'int8'"),
        ({"lengths": [0]}, "`lengths`"),
        ({"lengths": np.array([2.5])}, "`lengths`"),
        ({"steps": 0}, "`steps` = 0"),
        ({"seed": -1}, "`seed` = -1"),
        ({"count": 1}, "`count` = 1"),
        ({"predict": 3}, "`predict` is a int"),
        ({"out": ""}, "`out` = '': must be the path of a folder"),
        ({"circuits": lambda: ("kq", "ov")}, "`circuits` returned a str that is no array"),
        ({"circuits": lambda: {}["kq"]}, "`circuits` raised KeyError: 'kq'"),
        ({"pretraining": np.zeros((2, 9))}, "`pretraining`"),
        ({"pretraining": [[np.nan] * DIM]}, "`pretraining` has weights that are not finite"),
        ({"pretraining": "weights"}, "`pretraining` is no array of real numbers"),
        ({"dtype": np.int64}, "`dtype` = <class 'numpy.int64'>: must be float32 or float64"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(task, tmp_path, options, words):
    given = {"predict": zero, "out": tmp_path / "run"} | options
    with pytest.raises(InputError, match=words):
        icl.watch(task, **given)
    assert not (tmp_path / "run").exists()


def test_numbers_of_numpy_are_numbers(task, tmp_path):
    sizes = {"steps": np.int64(10), "count": np.int32(50), "seed": np.int64(0)}
    lengths = np.array([4, 2, 4])
    with icl.watch(
        task, zero, every=np.int64(5), lengths=lengths, out=tmp_path, **sizes
    ) as watched:
        assert look_at(watched, np.int64(0)).lengths == (2, 4)
    about = read_about(tmp_path)
    assert about["lengths"] == [2, 4] and about["steps"] == 10 and about["count"] == 50


def test_turns_are_those_that_the_live_page_lists(task, tmp_path):
    """An estimator that is the nearest from far away, and then comes near, turns once."""
    far = lambda x, y, query: step(0.8)(x, y, query) + 0.7 * np.sin(50 * query[:, 0])
    with icl.watch(task, far, every=1, count=50, out=tmp_path) as watched:
        first = look_at(watched)
        watched._predict = step(0.8)
        second = look_at(watched, 1)
        assert [look.nearest[0].name for look in (first, second)] == ["one gradient step"] * 2
        assert first.closeness != second.closeness and watched.turns() == [first]
        follower = Follower(tmp_path)
        follower.read()
        assert "Nearest: one gradient step, since step 0" in describe(follower.columns)[1]


def test_a_picture_has_three_panels_or_six(task):
    watched = icl.watch(task, zero, every=1, count=50)
    with pytest.raises(InputError, match="`axes` has 1 panels"):
        watched.plot([None])


# Records ------------------------------------------------------------------------------------------


def train(task, folder, steps, shrink=0.9):
    """A model whose step grows, watched at every second step."""
    with icl.watch(task, zero, every=2, count=50, out=folder) as watched:
        for number in steps:
            watched._predict = step(1 - shrink**number)
            watched(number)
        return watched.looks


def without_time(looks):
    return [json.dumps(look.as_json() | {"seconds": 0}) for look in looks]


def test_a_training_that_resumes_has_the_record_of_an_undisturbed_one(task, tmp_path):
    whole = train(task, tmp_path / "whole", range(9))
    train(task, tmp_path / "cut", range(6))
    # Killed while a line was written, and taken up at the checkpoint of step 3.
    looks = tmp_path / "cut" / "looks.jsonl"
    looks.write_bytes(looks.read_bytes() + b'{"step": 6, "lo')
    resumed = train(task, tmp_path / "cut", range(3, 9))
    assert without_time(resumed) == without_time(whole)
    assert without_time(read_looks(tmp_path / "cut")) == without_time(whole)
    times = [look.seconds for look in resumed]
    assert times == sorted(times)
    # What was measured before is not lost.
    taken = (tmp_path / "cut" / "taken_back.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in taken] == [4]


def test_a_training_that_resumes_says_what_it_plans_now(task, tmp_path):
    for steps in (100, 200):
        with icl.watch(task, zero, looks=5, steps=steps, count=50, out=tmp_path):
            assert read_about(tmp_path)["steps"] == steps


def test_the_record_of_another_training_is_refused(task, tmp_path):
    train(task, tmp_path, range(2))
    with pytest.raises(InputError, match="another training"):
        icl.watch(task, zero, count=51, out=tmp_path)
    (tmp_path / "looks.jsonl").write_text("nonsense\n")
    with pytest.raises(InputError, match="line 1: it is damaged"):
        icl.watch(task, zero, every=2, count=50, out=tmp_path)


@pytest.mark.parametrize(
    "name", ["looks.jsonl", "problems.jsonl", "taken_back.jsonl", "verdicts.json"]
)
def test_a_file_of_somebody_else_is_never_written_to(task, tmp_path, name):
    (tmp_path / name).write_text("mine\n")
    with pytest.raises(InputError, match=f"{name}` is not of iclflow: choose another folder"):
        icl.watch(task, zero, count=50, out=tmp_path)
    assert (tmp_path / name).read_text() == "mine\n" and len(list(tmp_path.iterdir())) == 1


def test_a_lock_of_somebody_else_is_refused_in_a_sentence(task, tmp_path):
    (tmp_path / LOCK).write_text("mine\n")
    with pytest.raises(InputError, match="is not a lock of iclflow: remove it, or choose another"):
        icl.watch(task, zero, count=50, out=tmp_path)
    assert (tmp_path / LOCK).read_text() == "mine\n" and len(list(tmp_path.iterdir())) == 1


def test_two_processes_do_not_write_one_record(task, tmp_path):
    with icl.watch(task, zero, count=50, out=tmp_path):
        with pytest.raises(InputError, match="another process"):
            icl.watch(task, zero, count=50, out=tmp_path)


# The posterior over known tasks ------------------------------------------------------------------


def test_dmmse_is_the_posterior_mean_in_chunks_and_without_noise(task, monkeypatch):
    sequences = task.sample(icl_key(0), 20)
    x, y, query = (np.asarray(p) for p in (sequences.x, sequences.y[..., 0], sequences.x_query))
    found = np.asarray(DiscreteMMSE(jnp.asarray(PRETRAINING), NOISE).predict(sequences))[:, 0]
    assert found == pytest.approx(recall(x, y, query), rel=1e-10)
    monkeypatch.setattr("iclflow.tasks._posterior._LARGEST_CHUNK", 20 * CONTEXT * 4)
    parts = np.asarray(DiscreteMMSE(jnp.asarray(PRETRAINING), NOISE).predict(sequences))[:, 0]
    assert parts == pytest.approx(found, rel=1e-12)
    sure = np.asarray(DiscreteMMSE(jnp.asarray(PRETRAINING), 0.0).predict(sequences))[:, 0]
    best = np.argmin(np.sum((y[:, :, None] - x @ PRETRAINING.T) ** 2, 1), 1)
    assert sure == pytest.approx(np.sum(query * PRETRAINING[best], 1))


def icl_key(number):
    import jax.random as jr

    return jr.key(number)
