"""Runs of softmax attention from a config: what is built, trained, saved, drawn and loaded."""

import json
import re
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from iclflow.cli import main
from iclflow.config import HeldOutSize, InputError, parse_config, with_flags
from iclflow.experiment import build_task, overlay, prepare, summarise, train
from iclflow.experiment._build_model import build_model
from iclflow.experiment._comparison import describe_loss, round_to_error
from iclflow.models import Diagonal, Factored, Merged
from iclflow.papers import STUDIES
from iclflow.risks import sampled_risk
from iclflow.tasks import MultiTaskRegression, isotropic
from iclflow.theory import pair_optimum, task_floors
from iclflow.trajectory import Trajectory

SOFTMAX_PAIR = dict(STUDIES["softmax/pair-exact"].data)
WHITE = {"kind": "linear_regression", "eigenvalues": [1.0, 1.0], "prior_variance": 0.5}
TWO = {"kind": "multi_task", "coordinates": [[0, 1], [1, 2]], "context": 6}
STEPS = {"kind": "adam", "learning_rate": 1e-2, "steps": 4}


@pytest.fixture(autouse=True)
def quiet(tmp_path, monkeypatch):
    """Works in an empty folder, and leaves the user's compile cache alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("iclflow.runtime._start.enable_compile_cache", lambda: None)


def config(task, model, **sections):
    return parse_config({"task": task, "model": model, "flow": STEPS, **sections})


# Building -------------------------------------------------------------------------------------

MODELS = {
    "structured": ("Diagonal", {"omega": (3,), "mu": (3, 1)}),
    "factored": ("Factored", {"K": (3, 4, 3), "O": (3, 1, 4)}),
    "stack": ("AttentionStack", {"key_query": (1, 3, 3, 3)}),
    "multi_merged": ("Merged", {"value": (3, 2, 5), "key_query": (3, 5, 3)}),
    "multi_factored": ("Factored", {"K": (3, 5, 5), "O": (3, 2, 5)}),
    "multi_structured": ("Diagonal", {"omega": (3, 3), "mu": (3, 2)}),
}
OPTIONS = {
    "factored": {"width": 4, "scheme": "gaussian"},
    "stack": {"depth": 3, "causal": True, "tied": True},
    "multi_factored": {"scheme": "opposite", "scale": 0.2},
    "multi_structured": {"activation": "linear", "self_attention": True},
}


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_of_model_is_built_as_the_config_says(kind):
    name, shapes = MODELS[kind]
    options = OPTIONS.get(kind, {})
    settings = {"kind": kind, "heads": 3, "scale": 0.1, **options}
    task = TWO if kind.startswith("multi") else WHITE
    model, attention = build_model(config(task, settings), jr.key(0))
    assert attention is None
    weights = getattr(model, "circuits", model)
    assert type(weights).__name__ == name
    for weight, shape in shapes.items():
        assert getattr(weights, weight).shape == shape
    for setting in ("depth", "causal", "tied", "activation", "self_attention"):
        if setting in options:
            assert getattr(model, setting) == options[setting]
    if "opposite" in options.values():
        np.testing.assert_allclose(model.circuits.O[1], -0.2 * np.eye(2, 5, 3))


TASKS = {
    "multi_task": ({**TWO, "noise": [0.1, 0.2], "signal": 0.3, "inputs": 4}, (4, 2)),
    "quadratic": ({"kind": "quadratic", "inputs": 3, "variance": 2.0}, (3, 2.0)),
    "sparse": ({"kind": "sparse", "inputs": 4, "sparsity": 2}, (4, 2)),
    "two_layer_relu": ({"kind": "two_layer_relu", "inputs": 3, "hidden": 7}, (3, 7)),
    "decision_tree": ({"kind": "decision_tree", "inputs": 3, "depth": 2}, (3, 2)),
    "hermite": ({"kind": "hermite", "inputs": 3, "degree": 3}, (3, 3)),
}
READ = {
    "multi_task": "labels",
    "quadratic": "variance",
    "sparse": "sparsity",
    "two_layer_relu": "hidden",
    "decision_tree": "depth",
    "hermite": "degree",
}


@pytest.mark.parametrize("kind", TASKS)
def test_every_kind_of_task_is_built_as_the_config_says(kind):
    settings, (dim, number) = TASKS[kind]
    model = {"kind": "multi_merged" if kind == "multi_task" else "structured", "heads": 1}
    task = build_task(config(settings, model))
    assert task.dim == dim and getattr(task, READ[kind]) == number


def test_a_prior_variance_is_a_prior_covariance():
    task = build_task(config(WHITE, {"kind": "structured", "heads": 1}))
    np.testing.assert_allclose(task.prior_covariance, 0.5 * np.eye(2))


def test_default_weights_of_the_full_form_fill_all_blocks():
    settings = {"kind": "merged", "form": "full", "heads": 2, "scheme": "default"}
    model, attention = build_model(config(WHITE, settings), jr.key(0))
    weights = model.circuits
    assert isinstance(weights, Merged) and not model.blind and attention is None
    assert np.all(weights.value != 0) and np.all(weights.key_query != 0)


@pytest.mark.parametrize(
    "task, model, sentence",
    [
        (
            {**TWO, "coordinates": [[0, 0], [1]]},
            {"kind": "multi_merged"},
            "`task.coordinates` holds [0, 0]: must be whole numbers from 0 up, each listed once "
            "per task.",
        ),
        (
            {**TWO, "noise": [1.0, 2.0, 3.0]},
            {"kind": "multi_merged"},
            "`task.noise` = (1.0, 2.0, 3.0): must be one number, or 2 of them.",
        ),
        (
            {**TWO, "output_rotation": [[1.0, 1.0], [0.0, 1.0]]},
            {"kind": "multi_merged"},
            "`task.output_rotation` is not orthogonal: its transpose must be its inverse.",
        ),
        (
            WHITE,
            {"kind": "factored", "width": 2, "scheme": "opposite"},
            "`model.width` = 2: must be at least 3, the size of a token, for the scheme "
            '"opposite".',
        ),
    ],
)
def test_what_only_the_library_sees_is_refused_by_the_name_in_the_file(task, model, sentence):
    with pytest.raises(InputError) as caught:
        prepare(config(task, {"heads": 2, **model}))
    assert str(caught.value) == sentence


# Running --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_run_of_the_paper_is_an_ordinary_run(capsys):
    flags = ("--flow.steps", "300", "--flow.learning_rate", "1e-2", "--risk.batch", "32")
    words = ["run", "softmax/paper", "--out", "result", "--json", *flags]
    assert main([*words, "--save.count", "5"]) == 0, capsys.readouterr().err
    files = sorted(path.name for path in Path("result").iterdir())
    assert files == [
        *("config.toml", "loss.pdf", "loss.png", "manifest.json", "trajectory.safetensors")
    ]
    summary, run = json.loads(capsys.readouterr().out), Trajectory.load("result")
    assert isinstance(run.final.circuits, Factored) and run.final.circuits.K.shape == (2, 6, 6)
    assert summary["result"] == "finished"
    known = {each["name"]: each for each in summary["comparisons"]}
    pair = known["best opposite pair"]
    assert pair["loss"] == pair_optimum(isotropic(5, 40, 0.1)).loss
    assert pair["difference"] == pytest.approx(summary["final_loss"] / pair["loss"] - 1)
    assert known["Bayes"]["loss"] < pair["loss"] < known["best single head"]["loss"]
    assert "known losses on this task: best single head 0.403963 (the run ends" in summary["theory"]
    # The bound is for heads with one ω each.
    assert "lower bound, any heads" not in known
    assert 0 < summary["standard_error"] < 0.01 * summary["final_loss"]
    digits = r"\d\.\d+ ± 0\.\d+"
    assert re.fullmatch(f"{digits} → {digits}, on 16384 other sequences", describe_loss(run))
    # A short run with large steps learns something; what is learnt in the end is a claim.
    assert summary["final_loss"] < 0.9 * summary["initial_loss"]


def trained(name: str, *flags) -> Trajectory:
    """A study of the project, made short by flags."""
    data = with_flags(STUDIES[name].data, flags)
    return train(prepare(parse_config(data)))


@pytest.mark.slow
def test_two_tasks_with_shared_heads_are_an_ordinary_run():
    flags = ("--flow.steps", "200", "--flow.learning_rate", "3e-2", "--risk.batch", "32")
    run = trained("softmax/two-tasks-adam", *flags, "--save.count", "5")
    assert isinstance(run.final.circuits, Merged) and run.final.circuits.value.shape == (3, 2, 8)
    # The loss is the sum of both tasks: 2(1 + σ²) for a model that predicts zero.
    assert run.losses[0] == pytest.approx(2.2, rel=0.1)
    assert run.losses[-1] < 0.9 * run.losses[0]


@pytest.fixture(scope="module")
def flow_of_a_pair():
    """An experiment with the approximate risk of two heads, and its run."""
    flags = ("--risk.kind", "large_context", "--flow.end", "40")
    experiment = prepare(parse_config(with_flags(SOFTMAX_PAIR, flags)))
    return experiment, train(experiment)


@pytest.mark.slow
def test_the_flow_of_a_pair_is_an_ordinary_run(flow_of_a_pair):
    _, run = flow_of_a_pair
    midway = int(np.searchsorted(run.times, 20.0))  # later on the slopes fall again
    model = run.at(midway)
    assert isinstance(model.circuits, Diagonal) and model.dim == 5
    omega, mu = np.asarray(model.circuits.omega), np.asarray(model.circuits.mu)[:, 0]
    # An odd pair stays an odd pair: both heads see the same numbers with other signs.
    assert omega[0] > 0.1 and mu[0] > 0.1
    np.testing.assert_allclose([omega[0], mu[0]], [-omega[1], -mu[1]], rtol=1e-9)
    # The approximate loss of arXiv 2503.12734 at d = 5, L = 40, σ² = 0.1, head by head.
    expected = 1.1
    for w, m in zip(omega, mu):
        expected -= 2 * m * w
        for v, n in zip(omega, mu):
            expected += m * n * (w * v + 1.1 / 40 * np.exp(5 * w * v))
    assert run.losses[midway] == pytest.approx(expected, rel=1e-9)
    assert run.losses[midway] < 0.5 * run.losses[0]


def test_structured_attention_on_isotropic_tasks_has_the_exact_risk_by_default():
    data = SOFTMAX_PAIR
    del data["risk"]
    experiment = prepare(parse_config(data))
    assert experiment.risk.kind == "exact" and experiment.monitor is experiment.risk


def test_theory_of_linear_attention_is_not_drawn_over_others():
    for task, model in (
        (WHITE, {"kind": "structured", "heads": 2, "activation": "linear"}),
        (WHITE, {"kind": "factored", "heads": 2, "activation": "linear"}),
    ):
        experiment = prepare(config(task, model))
        assert overlay(experiment) is None
        assert experiment.monitor.kind == "exact"


@pytest.mark.slow
def test_the_flow_of_an_opposite_pair_lies_on_its_prediction(flow_of_a_pair):
    experiment, run = flow_of_a_pair
    predicted = overlay(experiment)
    # Two solvers with tolerances of 1e-9 and 1e-10.
    np.testing.assert_allclose(predicted.curve(run.times), run.losses, rtol=1e-7)
    drawn = predicted.for_plot(run.times)
    assert len(drawn.times) == len(drawn.loss) > 2 * len(run) and drawn.times[-1] > 40
    summary = summarise(experiment.config, run, None, predicted)
    (end,) = summary.comparisons
    assert end.name == "predicted end" and abs(end.difference) < 1e-7
    assert "from the initial weights alone: predicted end 0." in summary.theory
    # The approximate loss has no best pair; the exact one has, and it is where the run ends.
    data = with_flags(SOFTMAX_PAIR, ("--flow.end", "40"))
    exact = overlay(prepare(parse_config(data)))
    assert exact.references == (("best opposite pair", pair_optimum(isotropic(5, 40, 0.1)).loss),)
    assert exact.at(1e6) == pytest.approx(exact.references[0][1], rel=1e-6)


def test_known_losses_are_those_of_the_task_in_its_own_units():
    model = {"kind": "structured", "heads": 3}
    steps = {"flow": STEPS, "risk": {"kind": "sampled"}}
    # Labels four times as large, noise included: losses sixteen times as large.
    plain, scaled = (
        dict(overlay(prepare(config({**WHITE, **change}, model, **steps))).references)
        for change in (
            {"noise": 0.2},
            {"eigenvalues": [4.0, 4.0], "prior_variance": 2.0, "noise": 3.2},
        )
    )
    assert list(plain) == [
        *("best single head", "best debiased step", "best opposite pair"),
        *("lower bound, any heads", "Bayes"),
    ]
    assert sorted(plain.values(), reverse=True) == list(plain.values())
    for name, loss in plain.items():
        assert scaled[name] == pytest.approx(16 * loss, rel=1e-12)
    quiet = {"noise": 0.2, "noisy_query": False}
    silent = dict(overlay(prepare(config({**WHITE, **quiet}, model, **steps))).references)
    assert silent["Bayes"] == pytest.approx(plain["Bayes"] - 0.2, rel=1e-12)


@pytest.mark.slow
def test_several_tasks_have_the_floors_that_their_heads_allow():
    known = {}
    for heads in (2, 3):
        settings = config({**TWO, "noise": 0.1}, {"kind": "multi_structured", "heads": heads})
        known[heads] = overlay(prepare(settings)).references
    task = MultiTaskRegression([[0, 1], [1, 2]], context=6, noise=0.1)
    ((name, floor),) = known[3]
    assert name == "each task its own debiased step (from 3 heads on)"
    assert floor == pytest.approx(task_floors(task).sum() + 0.2, rel=1e-12)
    assert [loss > floor for _, loss in known[2]] == [True, False]
    # One ω a head: no coordinate can be left out, so the floors do not hold.
    plain = {"kind": "multi_structured", "heads": 3, "per_coordinate": False}
    assert overlay(prepare(config(TWO, plain))) is None


@pytest.mark.slow
def test_what_is_reported_of_a_sampled_run_is_measured_on_other_sequences():
    model = {"kind": "stack", "heads": 1}
    task = {"kind": "decision_tree", "inputs": 2, "context": 5}
    experiment = prepare(config(task, model, risk={"kind": "sampled", "batch": 8}))
    assert experiment.risk.stochastic and not experiment.monitor.stochastic
    measure = jax.jit(lambda model: experiment.monitor(model))
    zero = jax.tree.map(jnp.zeros_like, experiment.model)
    # Labels have variance 1: so many squares of them have a standard error of √(2/count).
    error = (2 / experiment.monitor.count) ** 0.5
    assert experiment.monitor.count == 32_768
    assert float(measure(zero)) == pytest.approx(1.0, abs=4 * error)
    assert experiment.monitor.standard_error(zero) == pytest.approx(error, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("task, model", [
    (WHITE, {"kind": "merged", "heads": 2, "activation": "softmax", "scale": 0.5}),
    ({**WHITE, "noise": 0.1, "context": [5, 8]}, {"kind": "factored", "heads": 2}),
    (TWO, {"kind": "multi_merged", "heads": 2, "scale": 0.5}),
], ids=["averaged", "drawn", "several labels"])  # fmt: skip
def test_a_test_set_gives_the_same_losses_in_pieces(task, model):
    settings = config(task, model, risk={"kind": "sampled", "batch": 8})
    experiment = prepare(settings)
    whole = experiment.tests._replace(size=HeldOutSize(1000, 1, 1))
    losses = lambda size: np.asarray(
        eqx.filter_jit(lambda risk, model: risk.losses(model))(
            whole._replace(size=size).draw(jr.key(1)), experiment.model
        )
    )
    at_once = losses(whole.size)
    # In single precision, and the last of seven parts begins within the sixth.
    np.testing.assert_allclose(losses(HeldOutSize(1000, 1, 7)), at_once, rtol=1e-4, atol=1e-4)
    # In blocks others are drawn, as many and of the same law.
    blocks = losses(HeldOutSize(1000, 10, 1))
    assert blocks.shape == at_once.shape and np.all(np.diff(np.sort(blocks)) > 0)
    error = np.hypot(blocks.std(), at_once.std()) / 1000**0.5
    assert abs(blocks.mean() - at_once.mean()) < 4 * error


@pytest.mark.slow
def test_test_sets_are_cut_where_they_are_large():
    def size(dim, context, heads):
        task = {"kind": "quadratic", "inputs": dim, "context": context}
        model = {"kind": "merged", "heads": heads, "activation": "softmax"}
        data = config(task, model, risk={"kind": "sampled", "batch": 8})
        return HeldOutSize.of(data, 32_768)

    assert size(5, 31, 2) == (32_768, 1, 1)
    wide = size(4, 100, 200)
    assert wide.blocks == 1 < wide.parts and wide.at_once * wide.parts >= wide.count
    long = size(32, 2000, 2)
    assert long.parts == 1 < long.blocks and long.count == long.at_once * long.blocks >= 4096


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["factored", "multi_merged"])
def test_comparing_with_linear_attention_leaves_the_mean_and_takes_the_noise(kind):
    task = {**TWO, "noise": 0.1} if kind.startswith("multi") else {**WHITE, "noise": 0.1}
    settings = config(task, {"kind": kind, "heads": 2, "scale": 0.1})
    experiment = prepare(settings)
    held_out, model = experiment.monitor, experiment.model
    assert held_out.count == 16_384 and len(held_out.known) == (6 if "multi" in kind else 3)
    measure = eqx.filter_jit(
        lambda held_out, model: (held_out.batch.losses(model), held_out(model))
    )
    plain, loss = (np.asarray(part, float) for part in measure(held_out, model))
    error = held_out.standard_error(model)
    assert error < 0.5 * plain.std() / 128
    # Independent sequences, and nothing but their plain mean.
    fresh = sampled_risk(experiment.task, model, integrate="none", batch=8192)
    other = fresh.estimate(model, jr.key(5), 32_768)
    assert abs(float(other.value) - loss) < 4 * np.hypot(error, float(other.standard_error))
    assert round_to_error(0.24338914, 0.00060058) == "0.2434 ± 0.0006"
    assert round_to_error(1.1270, 0.0123) == "1.127 ± 0.012"
