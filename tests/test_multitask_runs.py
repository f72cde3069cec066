"""Runs of attention with several labels from a config: kinds of risk, starts, theory over them."""

import json

import equinox as eqx
import jax.random as jr
import numpy as np
import pytest

from iclflow.analysis import which_algorithm
from iclflow.cli import main
from iclflow.config import InputError, parse_config, to_toml
from iclflow.config._checks import risk_kinds
from iclflow.estimators import KernelRegression
from iclflow.experiment import build_task, overlay, prepare, summarise, train
from iclflow.experiment._build_model import build_model
from iclflow.models import Attention, BalancedSpectral, Factored, Spectral
from iclflow.risks import available_kinds
from iclflow.tasks import MultiTaskRegression

WHITE = {"kind": "linear_regression", "eigenvalues": [1.0, 1.0], "context": 5}
BLOCKS = {"kind": "multi_task", "coordinates": [[0, 1], [2]], "context": 5}
TURN = [[0.6, -0.8], [0.8, 0.6]]
TASKS = [
    WHITE,
    WHITE | {"eigenvalues": [1.0, 2.0]},
    WHITE | {"prior_mean": [0.0, 1.0]},
    {
        "kind": "in_context_in_weight",
        "eigenvalues": [1.0, 1.0],
        "fixed_weight": [1.0, 0.0],
        "fraction": 0.5,
    },
    {"kind": "quadratic", "inputs": 2},
    BLOCKS,
    BLOCKS | {"coordinates": [[0, 1], [1]]},
    BLOCKS | {"output_rotation": TURN},
]
MODELS = [
    {"kind": "structured"},
    {"kind": "structured", "per_coordinate": True},
    {"kind": "structured", "self_attention": True},
    {"kind": "structured", "activation": "linear"},
    {"kind": "factored"},
    {"kind": "merged"},
    {"kind": "merged", "activation": "softmax"},
    {"kind": "merged", "activation": "softmax", "self_attention": False},
    {"kind": "separate", "activation": "softmax", "self_attention": False, "form": "full"},
    {"kind": "multi_merged"},
    {"kind": "multi_factored"},
    {"kind": "multi_structured"},
    {"kind": "multi_structured", "activation": "linear"},
    {"kind": "multi_blind"},
    {"kind": "multi_blind", "self_attention": True},
    *({"kind": "multi_spectral", "weights": w} for w in ("balanced", "factors", "matrices")),
    {"kind": "multi_spectral", "weights": "tokens"},
    {"kind": "multi_spectral", "activation": "linear"},
]


def test_configs_know_which_kinds_of_risk_exist_without_building_anything():
    training = {
        "risk": {"kind": "sampled"},
        "flow": {"kind": "adam", "learning_rate": 0.1, "steps": 2},
    }
    compared = 0
    for task in TASKS:
        for model in MODELS:
            try:
                config = parse_config({"task": task, "model": model | {"heads": 2}, **training})
            except InputError as error:
                assert "does not fit" in str(error) or "multi_spectral" in str(model)
                continue
            # Kinds depend on no weight: none is drawn.
            start = eqx.filter_eval_shape(lambda key, c=config: build_model(c, key)[0], jr.key(0))
            built = available_kinds(build_task(config), start)
            assert risk_kinds(config.task, config.model) == built, (task, model)
            compared += 1
    assert compared == 70


def config(weights: str = "balanced", **settings):
    model = {"kind": "multi_spectral", "heads": 2, "weights": weights, "width": 4}
    task = BLOCKS | {"context": 40, "signal": 1.0} | settings.pop("task", {})
    data = {
        "task": task,
        "model": model | settings.pop("model", {}),
        "risk": {"kind": "large_context"},
        "flow": {"kind": "gradient_flow", "end": 3.0},
    }
    return parse_config(data | settings)


@pytest.mark.slow
def test_the_same_start_is_behind_all_weights_of_decomposable_attention():
    kinds = {
        "balanced": BalancedSpectral,
        "factors": Spectral,
        "matrices": Factored,
        "tokens": Factored,
    }
    sampled = {
        "risk": {"kind": "sampled"},
        "flow": {"kind": "sgd", "learning_rate": 0.1, "steps": 3},
    }
    starts, drawn = {}, build_task(config()).sample(jr.key(1), 3)
    # As a whole: one by one, each operation would be compiled.
    predict = eqx.filter_jit(lambda model, drawn: model.predict(drawn))
    for weights, kind in kinds.items():
        experiment = prepare(config(weights, **(sampled if weights == "tokens" else {})))
        assert type(experiment.model.circuits) is kind
        starts[weights] = np.asarray(predict(experiment.model, drawn))
    for found in starts.values():
        np.testing.assert_allclose(found, starts["balanced"], rtol=1e-12)


def test_theory_over_a_run_is_the_flow_of_its_singular_values():
    found = overlay(prepare(config("matrices")))
    assert found is not None and found.curve is not None
    assert "spectral flow" in found.source
    names = [name for name, _ in found.references]
    assert names == ["best single head", "one head a task", "lower bound, 2 heads"]
    curve = found.curve(np.array([0.0, 3.0]))
    # Noise of the query labels is part of the loss.
    noisy = overlay(prepare(config("matrices", task={"noise": 0.5})))
    assert noisy is not None and noisy.curve is not None
    assert curve[0] > curve[1] and noisy.curve(np.array([0.0]))[0] > curve[0] + 1.0


def test_theory_says_nothing_about_one_head_a_task_where_heads_are_too_few():
    found = overlay(prepare(config(model={"heads": 1})))
    assert found is not None
    assert [name for name, _ in found.references] == ["best single head", "lower bound, 1 head"]
    assert found.references[0][1] == found.references[1][1]


def test_the_summary_tells_phases_and_which_head_has_which_task():
    model = {"scheme": "distinct", "mu": 0.05}
    experiment = prepare(config(model=model, flow={"kind": "gradient_flow", "end": 60.0}))
    run = train(experiment)
    summary = summarise(experiment.config, run, None, None, experiment.task)
    told = summary.division
    assert told is not None and told.owners == (0, 1) and told.one_task_a_head
    assert 0 < told.emergence < told.convergence < 60
    assert told.heads.startswith("task 1: head 1 (") and "warm-up until" in told.phases
    assert summary.as_json()["tasks"]["owners"] == (0, 1)
    # Half-way through the drop nobody knows where it will end.
    early = run.between(0.0, (told.emergence + told.convergence) / 2)
    unsettled = summarise(experiment.config, early, None, None, experiment.task).division
    assert unsettled is not None and "not at rest" in unsettled.phases


@pytest.mark.slow
def test_one_head_a_task_is_kernel_regression_on_the_coordinates_of_its_task():
    # As long as the sequences of the tests around it: they share what is compiled.
    task = MultiTaskRegression([(0, 1), (2,)], context=40, noise=0.1)
    model = Attention(
        Spectral.of([[0.8, 0.0], [0.0, 1.1]], [[0.9, 0.0], [0.0, 0.7]], task.coordinates)
    )
    for label, (omega, mu) in enumerate(((0.8, 0.9), (1.1, 0.7))):
        found = which_algorithm(model, task, count=500, label=label).best
        assert found.name == "kernel regression" and found.distance < 1e-3
        assert isinstance(found.estimator, KernelRegression)
        assert float(found.estimator.omega) == pytest.approx(omega, rel=1e-3)
        assert float(found.estimator.factor) == pytest.approx(mu, rel=1e-3)


@pytest.mark.slow
def test_inspect_tells_which_head_has_which_label(tmp_path, capsys, sketched):
    data = BLOCKS | {"context": 40, "signal": 1.0}
    model = {"kind": "multi_spectral", "heads": 2, "scheme": "distinct", "width": 4}
    file = tmp_path / "two.toml"
    file.write_text(
        to_toml({"task": data, "model": model, "risk": {"kind": "large_context"},
                 "flow": {"kind": "gradient_flow", "end": 60.0}})
    )  # fmt: skip
    assert main(["run", str(file), "--out", str(tmp_path / "two")]) == 0
    assert "task 1: head 1 (100 %); task 2: head 2 (" in " ".join(capsys.readouterr().out.split())
    words = ["inspect", str(tmp_path / "two"), "--sequences", "500"]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "heads of width 4" in out and "heads of the labels: 1 head 1 (100 %), 2 head 2" in out
    assert "softmax of the heads: 1 exponential" in out and "kernel regression" in out
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["owners"] == [0, 1] and max(found["defects"].values()) < 1e-12


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"task": {"coordinates": [[0, 1], [1]]}}, "`task.coordinates` must not overlap"),
        ({"task": {"output_rotation": TURN}}, '`model.weights` = "balanced" on a rotated task'),
        ({"model": {"value_imbalance": 0.1}}, "`model.value_imbalance` = 0.1: must be 0"),
        (
            {"model": {"weights": "matrices", "width": 2}},
            "`model.width` = 2: must be at least 3",
        ),
        ({"model": {"spread": 1.0}}, "`model.spread` = 1.0"),
    ],
)
def test_decomposable_starts_that_cannot_be_are_refused_in_one_sentence(settings, said):
    with pytest.raises(InputError) as caught:
        config(**settings)
    assert said in str(caught.value) and "\n" not in str(caught.value)
