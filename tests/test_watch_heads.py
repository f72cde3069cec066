"""The heads of watched models: read at every look, recorded, drawn, and never in the way."""

import numpy as np
import pytest

import iclflow as icl
from iclflow.analysis import patterns, roles
from iclflow.errors import InputError
from iclflow.watching import read_looks
from iclflow.watching._follow import read_verdicts
from iclflow.watching._heads import role_on
from state_dicts import MU, OMEGA, stacked

DIM, CONTEXT = 5, 12


@pytest.fixture(scope="module")
def task():
    return icl.LinearRegression(eigenvalues=[1.0] * DIM, context=CONTEXT, noise=0.1)


def zero(x, y, query):
    return np.zeros(len(x))


def watch(task, circuits, **options):
    return icl.watch(task, zero, every=1, count=50, circuits=circuits, **options)


def look_at(watched, step=0):
    """A look with heads."""
    look = watched(step)
    assert look is not None and look.layers is not None
    return look


def test_heads_are_those_that_inspect_names(task):
    tensors = stacked()
    look = look_at(watch(task, icl.watch.heads(tensors, 3), strict=True))
    (layer,) = look.layers
    icl.enable_float64()
    model = icl.checkpoints.from_state_dict(tensors, 3)
    assert layer.name == "layer" and layer.left_out == ()
    assert layer.roles == roles(model, task) == ("positive", "negative", "dummy")
    assert layer.labels == (patterns(model, task=task),)
    assert "; heads: 1 positive, 1 negative, 1 dummy" in str(look)
    metrics = look.metrics()
    assert metrics["icl/layer/head 1/omega"] == pytest.approx(0.13)
    assert metrics["icl/layer/head 2/mu"] == pytest.approx(-3.45)


def models_of(tensors):
    """The ways in which a function may say what heads are."""
    model = icl.checkpoints.from_state_dict(tensors, 3)
    return {
        "model": lambda: model,
        "circuits": lambda: (model.kq(), model.ov()),
        "layers": lambda: icl.checkpoints.read_layers(tensors, 3),
    }


@pytest.mark.parametrize("way", ["model", "circuits", "layers"])
def test_a_function_may_say_what_the_heads_are(task, way):
    tensors = stacked()
    expected = look_at(watch(task, icl.watch.heads(tensors, 3), strict=True)).layers
    (found,) = look_at(watch(task, models_of(tensors)[way], strict=True)).layers
    assert found.roles == expected[0].roles
    omega = [head.omega for head in found.labels[0].heads]
    assert omega == pytest.approx([head.omega for head in expected[0].labels[0].heads])


def test_heads_of_several_layers_are_named_by_signs_alone(task):
    # Weights of this size would be idle, were they the whole model.
    parts = {name: 0.01 * part for name, part in stacked().items()}
    tensors = parts | {name.replace("layer", "other"): part for name, part in parts.items()}
    look = look_at(watch(task, icl.watch.heads(tensors, 3), strict=True))
    assert [layer.name for layer in look.layers] == ["layer", "other"]
    assert {layer.roles for layer in look.layers} == {("positive", "negative", "dummy")}
    assert look.layers[0].left_out == ("what other layers write",)
    (alone,) = look_at(watch(task, icl.watch.heads(parts, 3), strict=True)).layers
    assert alone.roles == ("idle",) * 3


def test_weights_are_read_anew_at_each_look_recorded_and_shown(task, tmp_path):
    tensors = stacked()
    watched = watch(task, icl.watch.heads(lambda: tensors, 3), strict=True, out=tmp_path / "run")
    first = look_at(watched, 0)
    tensors["layer.q_proj.weight"][:6] *= -1
    second = look_at(watched, 1)
    assert first.layers[0].roles[0] == "positive" and second.layers[0].roles[0] == "opposing"
    assert read_looks(tmp_path / "run") == [first, second]
    assert len(watched.plot()) == 6
    page = watched.report(tmp_path / "page.html").read_text()
    assert "head 1 positive, head 2 negative" in page and "step 1: head 1 opposing" in page
    watched.close()


def test_each_label_of_a_page_has_the_role_of_a_head_on_it():
    assert role_on("positive / negative", 1) == "negative" and role_on("idle", 1) == "idle"


def test_heads_that_cannot_be_read_do_not_stop_the_look(task):
    tensors = stacked()
    reader = icl.watch.heads(tensors, 3)
    watched, strict = watch(task, reader), watch(task, reader, strict=True)
    tensors["layer.q_proj.weight"].fill(np.nan)
    with pytest.warns(UserWarning, match="The heads could not be read: .*finite numbers"):
        look = watched(0)
    assert look is not None and look.layers is None and set(watched.problems) == {0}
    with pytest.raises(ValueError, match="finite numbers"):
        strict(0)


@pytest.mark.parametrize(
    ("circuits", "words"),
    [
        (3, "`circuits` is a int: must be a module"),
        (lambda: "text", "`circuits` returned a str: must be a module"),
        (stacked(), "`heads` is missing"),
        (icl.watch.heads(stacked(dim=4), 3), "reads tokens with 4 inputs, and the task has 5"),
        (icl.watch.heads(stacked(), 3, labels=2), "`labels` = 2"),
        (icl.Attention(icl.Diagonal(np.ones(1), np.ones(1), DIM)), "a function that returns"),
    ],
)
def test_what_cannot_be_read_is_refused_before_the_training(task, circuits, words):
    with pytest.raises(InputError, match=words):
        watch(task, circuits)


# Claims -------------------------------------------------------------------------------------------

LIKE = {
    "name": "theirs",
    "task": {
        "kind": "linear_regression",
        "eigenvalues": [1.0] * DIM,
        "prior_variance": 1 / DIM,
        "context": 40,
        "noise": 0.1,
    },
    "model": {"kind": "factored", "heads": 2},
    "risk": {"kind": "sampled", "batch": 64},
    "flow": {"kind": "adam", "learning_rate": 0.01, "steps": 10},
}
DATASET = {"kind": "dataset", "sequences": 100}
FLOW = {"kind": "gradient_flow", "end": 5.0}


@pytest.fixture(scope="module")
def like_task():
    prior = np.eye(DIM) / DIM
    return icl.LinearRegression([1.0] * DIM, 40, noise=0.1, prior_covariance=prior)


def test_claims_are_checked_on_a_training_that_a_config_describes(like_task, tmp_path):
    state = {"mu": (0.1, -0.1)}
    tensors = lambda: stacked((0.13, -0.13), state["mu"])
    reader = icl.watch.heads(tensors, 2)
    watched = watch(like_task, reader, strict=True, like=LIKE)
    for step, mu in enumerate((0.1, 1.0, 3.45)):
        state["mu"] = (mu, -mu)
        watched(step)
    found = {each.id: each for each in watched.claims()}
    zero_sum = found["softmax/zero-sum-ov"]
    assert zero_sum.outcome is not None and zero_sum.outcome.verdict == "holds"
    assert "is about merged attention" in found["linear/single-drop"].reason
    # Heads that do not sum to zero lose so much that they are not trained, as the claim asks.
    state["mu"] = (3.8, -3.1)
    watched(3)
    found = {each.id: each for each in watched.claims()}
    assert found["softmax/zero-sum-ov"].outcome.verdict == "inconclusive"
    assert "above that of the best pair" in found["softmax/zero-sum-ov"].reason
    page = watched.report(tmp_path / "page.html").read_text()
    assert "Claims on such a training" in page
    assert "inconclusive: softmax/zero-sum-ov (its loss is" in page


def test_a_training_that_resumes_has_the_weights_and_verdicts_of_an_undisturbed_one(
    like_task, tmp_path
):
    state = {"mu": 0.1}
    reader = icl.watch.heads(lambda: stacked((0.13, -0.13), (state["mu"], -state["mu"])), 2)
    start = lambda name: watch(like_task, reader, strict=True, like=LIKE, out=tmp_path / name)

    def train(watched, *steps):
        for step in steps:
            state["mu"] = (0.1, 1.0, 3.0, 3.45)[step]
            watched(step)

    with start("undisturbed") as watched:
        train(watched, 0, 1, 2, 3)
        expected = [each.as_json() for each in watched.claims()]
    with start("resumed") as watched:
        train(watched, 0, 1, 2)
        watched.claims()
        assert read_verdicts(tmp_path / "resumed")["step"] == 2
    with start("resumed") as watched:  # from a checkpoint at step 1
        train(watched, 1)
        assert read_verdicts(tmp_path / "resumed") is None  # they were about looks taken back
        train(watched, 2, 3)
        assert [each.as_json() for each in watched.claims()] == expected
    assert read_verdicts(tmp_path / "resumed") == {"step": 3, "claims": expected}
    assert "holds" in {each["verdict"] for each in expected}


def test_claims_need_all_weights_of_a_training(like_task, tmp_path):
    reader = icl.watch.heads(stacked(OMEGA[:2], MU[:2]), 2)
    with watch(like_task, reader, strict=True, like=LIKE, out=tmp_path) as watched:
        watched(0)
        watched(1)
    (tmp_path / "weights" / "0.safetensors").unlink()
    with watch(like_task, reader, strict=True, like=LIKE, out=tmp_path) as watched:
        found = {each.id: each for each in watched.claims()}
        assert "of every look, and has none of step 0" in found["softmax/zero-sum-ov"].reason


@pytest.mark.filterwarnings("ignore:iclflow, step 1")
def test_weights_of_a_step_that_is_repeated_are_never_judged(like_task, tmp_path):
    """The second time, the weights at step 1 cannot be read: those of before are not its."""
    state = {"weights": stacked(OMEGA[:2], MU[:2])}
    reader = icl.watch.heads(lambda: state["weights"], 2)
    with watch(like_task, reader, like=LIKE, out=tmp_path) as watched:
        for step in (0, 1, 2):
            watched(step)
        good, state["weights"] = state["weights"], {}
        watched(1)
        state["weights"] = good
        watched(2)
        assert [look.step for look in watched.looks] == [0, 1, 2]
        found = {each.id: each for each in watched.claims()}
        assert "has none of step 1" in found["softmax/zero-sum-ov"].reason
        names = sorted(path.name for path in (tmp_path / "weights").iterdir())
        assert names == ["0.safetensors", "2.safetensors"]


def test_weights_of_somebody_else_are_never_removed(like_task, tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "500.safetensors").write_text("mine")
    reader = icl.watch.heads(stacked(OMEGA[:2], MU[:2]), 2)
    with pytest.raises(InputError, match="weights` is not of iclflow"):
        watch(like_task, reader, like=LIKE, out=tmp_path)
    with watch(like_task, reader, out=tmp_path) as watched:  # without claims it needs no weights
        watched(0)
    assert (tmp_path / "weights" / "500.safetensors").read_text() == "mine"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"like": None}, "`like` is missing"),
        ({"circuits": None}, "`like` needs `circuits=`"),
        ({"like": LIKE | {"model": {"kind": "factored", "heads": 3}}}, "with 3 heads"),
        ({"like": LIKE | {"task": LIKE["task"] | {"noise": 0.2}}}, "another task"),
        ({"like": 3}, "`like` = 3: must be a config"),
        ({"like": LIKE | {"risk": DATASET, "flow": FLOW}}, "has a gradient flow"),
    ],
)
def test_a_config_that_does_not_describe_the_training_is_refused(like_task, change, words):
    reader = icl.watch.heads(stacked(OMEGA[:2], MU[:2]), 2)
    options = {"circuits": reader, "like": LIKE} | change
    with pytest.raises(InputError, match=words):
        icl.watch(like_task, zero, every=1, count=50, **options).claims()
