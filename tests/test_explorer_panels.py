"""The panels of the explorer: they exist for every kind of experiment, and measure what analysis
measures."""

import time

import jax
import numpy as np
import pytest

from iclflow.analysis import alignment, allocation, applied_polynomial, patterns, roles
from iclflow.config import parse_config
from iclflow.experiment import Experiment, build_model, build_task, keys_of
from iclflow.explorer._panels import LARGEST_SERIES, build_panels
from iclflow.risks import risk
from iclflow.tasks import LinearRegression, MultiTaskRegression
from iclflow.trajectory import Trajectory

REGRESSION = {"kind": "linear_regression", "eigenvalues": [0.2, 0.5, 0.3], "context": 8}
WHITE = {"kind": "linear_regression", "eigenvalues": [1.0, 1.0, 1.0], "context": 8, "noise": 0.1}
TURNED = {
    "kind": "linear_regression",
    "covariance": [[0.5, 0.1, 0.0], [0.1, 0.4, 0.1], [0.0, 0.1, 0.3]],
    "context": [4, 8],
}
MIXTURE = {**REGRESSION, "kind": "in_context_in_weight", "fraction": 0.5}
TASKS = {"kind": "multi_task", "coordinates": [[0, 1], [2, 3]], "context": 8, "noise": [0.1, 0.2]}
ROTATED = {**TASKS, "output_rotation": [[0.6, 0.8], [-0.8, 0.6]]}
OVERLAP = {**TASKS, "coordinates": [[0, 1], [1, 2]]}
SPECTRAL = {"kind": "multi_spectral", "heads": 2}
FUNCTIONS = ("quadratic", "sparse", "two_layer_relu", "decision_tree", "hermite")
SETTINGS = [
    *[(task, {"kind": "merged"}) for task in (REGRESSION, WHITE, TURNED, MIXTURE)],
    *[(task, {"kind": "separate", "rank": 2}) for task in (REGRESSION, TURNED, MIXTURE)],
    (REGRESSION, {"kind": "merged", "form": "full", "scheme": "default"}),
    (REGRESSION, {"kind": "separate", "form": "full", "normaliser": "none"}),
    (TURNED, {"kind": "two_layer"}),
    (TURNED, {"kind": "convolutional", "rank": 2}),
    *[
        (REGRESSION, {"kind": kind, "activation": "softmax", "form": form})
        for kind in ("merged", "separate")
        for form in ("reduced", "full")
    ],
    (WHITE, {"kind": "structured"}),
    (REGRESSION, {"kind": "structured", "per_coordinate": True, "self_attention": True}),
    (REGRESSION, {"kind": "structured", "activation": "linear", "heads": 1}),
    (TURNED, {"kind": "factored", "width": 2}),
    (REGRESSION, {"kind": "factored", "activation": "linear"}),
    (WHITE, {"kind": "stack", "depth": 2}),
    (MIXTURE, {"kind": "stack", "depth": 3, "tied": True, "causal": True}),
    (WHITE, {"kind": "linear_stack", "heads": 1, "weights": "scalar", "depth": 3}),
    (REGRESSION, {"kind": "linear_stack", "heads": 1, "tied": True, "moving": True}),
    (REGRESSION, {"kind": "linear_stack", "weights": "separate"}),
    *[
        (task, {"kind": f"multi_{kind}"})
        for task in (TASKS, ROTATED, OVERLAP)
        for kind in ("merged", "factored", "structured", "blind")
    ],
    (TASKS, {"kind": "multi_merged", "activation": "linear", "heads": 1}),
    *[(TASKS, {**SPECTRAL, "weights": word}) for word in ("balanced", "factors", "tokens")],
    (ROTATED, {**SPECTRAL, "weights": "matrices"}),
    *[({"kind": kind, "inputs": 3, "context": 8}, {"kind": "factored"}) for kind in FUNCTIONS],
    ({"kind": "quadratic", "inputs": 3, "context": 8}, {"kind": "merged"}),
]


def experiment_of(task: dict, model: dict) -> Experiment:
    """What a config describes, without a test set: to draw it takes longest, and nobody looks."""
    sampled = {"kind": "sampled", "batch": 4}
    flow = {"kind": "adam", "steps": 5, "learning_rate": 0.1}
    sections = {"task": task, "model": {"heads": 2, **model}, "risk": sampled, "flow": flow}
    config = parse_config(sections)
    keys, built = keys_of(config.seed), build_task(config)
    weights, attention = build_model(config, keys.weights)
    fresh = risk(built, weights, "sampled", key=keys.data, batch=4)
    return Experiment(config, built, weights, attention, fresh, fresh, keys.steps)


def path(experiment, count: int = 20) -> Trajectory:
    """Points on a way from the first weights to ten times as large ones that have moved apart."""
    rng = np.random.default_rng(0)

    def along(leaf):
        start = np.asarray(leaf)
        far = 10 * start + 0.3 * rng.normal(size=start.shape)
        shares = np.linspace(0, 1, count).reshape(-1, *[1] * start.ndim)
        return (1 - shares) * start + shares * far

    models = jax.tree.map(along, experiment.model)
    return Trajectory(np.arange(count, dtype=float), np.linspace(1, 0, count), models)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("task, model", SETTINGS)
def test_roles_are_those_that_are_told_of_a_model_by_itself(task, model):
    experiment = experiment_of(task, model)
    run = path(experiment, count=2)
    shown = build_panels(experiment).measure(run, matrices=False).roles
    found = roles(run.at(1), experiment.task)
    if shown is not None and found is not None:  # networks have no heads of their own
        assert tuple(shown[1]) == found
    else:
        assert model["kind"] in ("stack", "linear_stack", "two_layer", "convolutional")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("task, model", SETTINGS)
def test_every_kind_of_experiment_has_panels_that_can_be_measured_piece_by_piece(task, model):
    experiment = experiment_of(task, model)
    panels, run = build_panels(experiment), path(experiment)
    whole, late = panels.measure(run), panels.measure(run[13:])
    assert len(panels.lines) >= 2 and len({panel.id for panel in panels.lines}) == len(panels.lines)
    for panel in panels.lines:
        values = whole.lines[panel.id]
        assert values.shape == (len(run), len(panel.series)) and np.isfinite(values[1:]).all()
        np.testing.assert_allclose(late.lines[panel.id], values[13:], rtol=1e-9, atol=1e-12)
    for matrix in panels.matrices:
        found = whole.matrices[matrix.name]
        assert found.dtype == np.float32
        assert found.shape == (20, len(panels.heads), len(matrix.rows), len(matrix.columns))
        np.testing.assert_allclose(late.matrices[matrix.name], found[13:], rtol=1e-5, atol=1e-6)
    assert (whole.roles is None) == (model["kind"] in ("stack", "linear_stack"))
    if whole.roles is not None and late.roles is not None:
        assert whole.roles.shape == (20, len(panels.heads))
        assert (late.roles == whole.roles[13:]).all()


@pytest.mark.parametrize("task", [REGRESSION, TURNED, MIXTURE])
@pytest.mark.parametrize("kind", ["separate", "merged", "convolutional"])
def test_strengths_and_shares_are_those_of_alignment(task, kind):
    experiment = experiment_of(task, {"kind": kind})
    panels, run = build_panels(experiment), path(experiment)
    measured, found = panels.measure(run).lines, alignment(run, experiment.task)
    np.testing.assert_allclose(
        measured["strengths"] * panels.gains, found.strengths, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(1 - measured["diagonal"][:, 0], found.off_diagonal, atol=1e-12)
    if kind == "separate":
        both = found.keys * found.queries
        np.testing.assert_allclose(measured["alignment"], both.max(-1), atol=1e-12)


def test_full_linear_attention_has_the_strengths_of_alignment():
    experiment = experiment_of(TURNED, {"kind": "merged", "form": "full", "scheme": "default"})
    panels, run = build_panels(experiment), path(experiment)
    strengths = panels.measure(run).lines["strengths"] * panels.gains
    np.testing.assert_allclose(strengths, alignment(run, experiment.task).strengths, atol=1e-12)


@pytest.mark.parametrize("task", [REGRESSION, TURNED, WHITE])
def test_softmax_panels_are_those_of_patterns(task):
    experiment = experiment_of(task, {"kind": "factored", "heads": 3})
    panels, run = build_panels(experiment), path(experiment)
    measured = panels.measure(run)
    for index in (3, 19):
        found = patterns(run.at(index), task=experiment.task)
        for name, field in (("omega", "omega"), ("mu", "mu"), ("diagonal", "diagonal_share")):
            wanted = [getattr(head, field) for head in found.heads]
            np.testing.assert_allclose(measured.lines[name][index], wanted, atol=1e-12)
        wanted = [head.last_entry_share for head in found.heads]
        np.testing.assert_allclose(measured.lines["last"][index], wanted, atol=1e-12)
        sums = (found.zero_sum, found.pair_balance)
        np.testing.assert_allclose(measured.lines["sums"][index], sums, atol=1e-12)
        last = tuple(head.name for head in found.heads)
    assert measured.roles is not None and tuple(measured.roles[-1]) == last


@pytest.mark.parametrize("task", [TASKS, ROTATED, OVERLAP])
def test_shares_of_tasks_are_those_of_allocation(task):
    experiment = experiment_of(task, {"kind": "multi_merged", "heads": 3})
    panels, run = build_panels(experiment), path(experiment)
    assert isinstance(experiment.task, MultiTaskRegression)
    found = allocation(run, experiment.task).history
    assert found is not None
    names = [panel for panel in panels.lines if panel.id == "share"][0].series
    assert names[:4] == ("head 1, task 1", "head 2, task 1", "head 3, task 1", "head 1, task 2")
    shares = panels.measure(run).lines["share"].reshape(20, 2, 3)
    np.testing.assert_allclose(np.swapaxes(shares, 1, 2), found.output, atol=1e-12)


def test_components_are_numbered_by_eigenvalue():
    experiment = experiment_of(REGRESSION, {"kind": "separate", "heads": 1})
    model = experiment.model
    # A head on the second axis, which has the largest eigenvalue.
    axis = np.array([0.0, 1.0, 0.0]).reshape(1, 1, 3, 1)
    weights = {"value": np.array([[[[2.0]]]]), "K": axis, "Q": axis}
    models = jax.tree.unflatten(jax.tree.structure(model), list(weights.values()))
    measured = build_panels(experiment).measure(Trajectory(np.zeros(1), np.ones(1), models))
    assert measured.roles is not None and measured.roles.tolist() == [["component 1"]]
    assert measured.lines["strengths"][0, 0] > 0 and not measured.lines["strengths"][0, 1:].any()
    assert measured.matrices["KQ"][0, 0, 0, 0] == 1 and measured.matrices["OV"][0, 0, 0, 3] == 2


def test_roles_of_softmax_heads_begin_idle_and_follow_the_signs():
    experiment = experiment_of(WHITE, {"kind": "structured", "heads": 3})
    signs, sizes = np.array([1.0, -1.0, 0.01]), np.array([1e-3, 0.8])
    weights = sizes[:, None] * signs
    models = jax.tree.unflatten(jax.tree.structure(experiment.model), [weights, weights[..., None]])
    measured = build_panels(experiment).measure(Trajectory(np.arange(2.0), np.ones(2), models))
    assert measured.roles is not None and measured.roles.tolist() == [
        ["idle"] * 3,
        ["positive", "negative", "dummy"],
    ]


def test_panels_say_how_many_series_were_left_out():
    tasks = {"kind": "multi_task", "coordinates": [[d] for d in range(6)], "context": 8}
    panels = build_panels(experiment_of(tasks, {"kind": "multi_structured", "heads": 6}))
    for panel in panels.lines:
        assert len(panel.series) == LARGEST_SERIES
        assert panel.words.endswith("The first 32 of 36 are drawn.")


def test_weights_that_ran_away_make_gaps_and_no_error():
    for task, model in (
        (REGRESSION, {"kind": "separate"}),
        (WHITE, {"kind": "factored"}),
        (TASKS, {"kind": "multi_merged"}),
    ):
        experiment = experiment_of(task, model)
        run = path(experiment, 3)
        models = jax.tree.map(lambda leaf: leaf * np.nan, run.models)
        measured = build_panels(experiment).measure(Trajectory(run.times, run.losses, models))
        assert all(values.shape[0] == 3 for values in measured.lines.values())


@pytest.mark.parametrize(
    "task, model",
    [
        (WHITE, {"weights": "scalar", "heads": 1, "depth": 3}),
        (TURNED, {"weights": "full", "heads": 1, "moving": True, "normaliser": "tokens"}),
        (REGRESSION, {"weights": "separate", "tied": True}),
    ],
)
def test_the_polynomial_of_a_stack_is_what_its_predictions_leave(task, model):
    experiment = experiment_of(task, {"kind": "linear_stack", "scale": 0.3, **model})
    panels, run = build_panels(experiment), path(experiment, 3)
    panel = {each.id: each for each in panels.lines}["polynomial"]
    assert panel.over is not None and isinstance(experiment.task, LinearRegression)
    levels = np.array(panel.over.x)
    values = panels.measure(run).lines["polynomial"]
    known = applied_polynomial(run.at(1), experiment.task, levels, frames=1)
    np.testing.assert_allclose(values[1], known.values[-1].mean(0), rtol=1e-9, atol=1e-9)
    assert values[:, 0] == pytest.approx(1.0)
    assert max(panel.over.mass) == 1.0 and panel.describe()["over"]["x"] == panel.over.x


def test_the_spectrum_behind_a_polynomial_is_that_of_drawn_contexts():
    task = {**WHITE, "context": [2, 8]}
    panels = build_panels(experiment_of(task, {"kind": "linear_stack", "heads": 1}))
    over = panels.lines[0].over
    assert over is not None
    rng, drawn = np.random.default_rng(0), []
    for length in (2, 8):
        x = rng.normal(size=(10_000, length, 3))
        drawn.append(np.linalg.eigvalsh(np.swapaxes(x, 1, 2) @ x / length).ravel())
    step = over.x[1]
    edges = np.append(np.array(over.x) - step / 2, over.x[-1] + step / 2)
    counts = np.histogram(np.concatenate(drawn), edges)[0]
    expected = np.array(over.mass) / sum(over.mass) * counts.sum()
    # The first bin has the zeros of short contexts. Eigenvalues repel each other: counts scatter
    # less than those of independent numbers.
    assert np.all(np.abs(counts - expected) < 4 * np.sqrt(expected) + 2)


def test_no_polynomial_is_drawn_of_other_models_and_of_attended_queries():
    for model in ({"kind": "merged"}, {"kind": "linear_stack", "heads": 1, "self_attention": True}):
        panels = build_panels(experiment_of(WHITE, model))
        assert all(panel.over is None for panel in panels.lines)
        assert all(panel.describe()["over"] is None for panel in panels.lines)


@pytest.mark.slow
def test_a_thousand_points_take_milliseconds():
    experiment = experiment_of(REGRESSION, {"kind": "separate", "heads": 4})
    panels, run = build_panels(experiment), path(experiment, 1000)
    panels.measure(run)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        panels.measure(run)
        seconds.append(time.perf_counter() - begin)
    # About 10 ms on a quiet core; a machine that is busy with other tests is far slower.
    assert min(seconds) < 0.25
