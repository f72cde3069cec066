"""The benchmark measures what it says, and says what it cannot measure."""

import io
import json
import sys
from functools import cache

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console

from iclflow import bench
from iclflow.bench import Bar, Row, _large, _softmax_speed, _staircase, linear, softmax
from iclflow.bench._finite_data import (
    EVERY_POSITION,
    LEARNING_RATE,
    Problem,
    engine_losses,
    finite_data_rows,
)
from iclflow.bench._large import fitted_power
from iclflow.bench._loops import EveryPosition, QueryPosition, time_loop
from iclflow.bench._row import Timing, measure
from iclflow.bench._softmax_loop import EagerLoop
from iclflow.bench._softmax_noise import noise_rows
from iclflow.bench._softmax_speed import PEER, Contestant, speed_rows
from iclflow.bench._table import print_table
from iclflow.models import FactoredAttention
from iclflow.tasks import isotropic
from iclflow.trajectory import Trajectory


@pytest.fixture(scope="module")
def quick_rows() -> list[Row]:
    """A quick run in which each flow is computed once, and steps of large inputs not at all."""
    asked, flow = [], cache(_staircase._flow)

    def flow_once(scale: float) -> Trajectory:
        asked.append(scale)
        return flow(scale)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_staircase, "_flow", flow_once)
        patch.setattr(_large, "_step_cost", lambda dim, dense, _: Timing((dim ** (2.0 + dense),)))
        rows = linear.run(quick=True)
    assert set(asked) == {1e-2, 1e-3}
    return rows


def text_of(rows: list[Row]) -> str:
    stream = io.StringIO()
    machine = {"processor": "abacus", "cores": 2, "python": "3", "jax": "1", "torch": "2"}
    print_table(rows, machine, Console(file=stream, width=130))
    return stream.getvalue()


def test_a_quick_run_measures_every_group(quick_rows):
    assert {row.group for row in quick_rows} == {
        "training on a finite data set",
        "the four-plateau run",
        "small initial weights",
        "the cascade",
        "3 initialisations of linear attention together: D = 4, N = 31",
        "large inputs, merged attention",
    }
    assert len({(row.group, row.name) for row in quick_rows}) == len(quick_rows)
    for row in quick_rows:
        # A fitted power over tiny sizes may have either sign; what was timed took time.
        timed = row.unit != ""
        assert row.value is None or (np.isfinite(row.value) and (not timed or row.value > 0)), row
        if row.spread is not None:
            assert row.spread[0] <= row.value <= row.spread[1], row


def test_a_quick_run_judges_nothing_and_agrees_with_theory(quick_rows):
    assert all(row.met is None for row in quick_rows)
    found = {(row.group, row.name): row.value for row in quick_rows}
    # What does not depend on the machine holds at quick sizes too: the levels to the bar of the
    # full run, the drop times to the known error of the cascade at weights of 1e-3, 8.4e-4.
    assert found["the four-plateau run", "plateau losses: largest relative error"] < 1e-4
    assert found["the cascade", "drop times: largest relative error"] < 1e-3
    group = "large inputs, merged attention"
    for power, words in ((2, "diagonal covariance"), (3, "full covariance matrix")):
        assert found[group, f"a step at D = 8, {words}"] == pytest.approx(1e3 * 8**power)
        assert found[group, f"growth of a step, {words}: power of D"] == pytest.approx(power)


@pytest.mark.parametrize("dense", [False, True])
def test_steps_of_large_inputs_are_timed_chunk_by_chunk(dense):
    timing = _large._step_cost(4, dense, seconds=0.0)
    assert len(timing.seconds) == 4 and min(timing.seconds) > 0


def test_results_are_json_and_name_the_machine(monkeypatch, capsys):
    monkeypatch.setattr(linear, "run", lambda progress, quick: [Row("group", "name", 1.0, "s")])
    results = bench.main("linear", quiet=True, quick=True)
    assert capsys.readouterr().out == ""
    again = json.loads(json.dumps(results))
    assert again["suite"] == "linear" and again["machine"]["cores"] >= 1
    assert again["rows"][0] | {"load": 0.0} == {
        "group": "group", "name": "name", "value": 1.0, "unit": "s", "spread": None, "repeats": 1,
        "bar": None, "note": "", "load": 0.0, "met": None,
    }  # fmt: skip


def test_a_table_shows_value_spread_bar_and_note():
    shown = text_of(
        [
            Row("g", "quick enough", 1.5, "s", (1.0, 2.0), 3, Bar(2.0), "so it was"),
            Row("g", "too slow", 120_000.0, "×", (9e4, 2e5), 3, Bar(200_000, at_least=True)),
            Row("g", "small", 3.2e-5),
        ]
    )
    assert "abacus, 2 cores; Python 3, JAX 1, PyTorch 2" in shown
    lines = {line.split("  ")[1].strip(): line for line in shown.splitlines() if "  " in line}
    assert "1.5 s" in lines["quick enough"] and "1 – 2" in lines["quick enough"]
    assert "≤ 2 met" in lines["quick enough"] and "so it was" in shown
    assert "120 000 ×" in lines["too slow"] and "≥ 200 000 MISSED" in lines["too slow"]
    assert "3.2e-05" in lines["small"]
    assert "1 of 2 bars are met." in shown


@pytest.mark.parametrize(
    "value, bar, met",
    [
        (2.0, Bar(2.0), True),
        (2.1, Bar(2.0), False),
        (2.0, Bar(2.0, at_least=True), True),
        (1.9, Bar(2.0, at_least=True), False),
        (1.9, None, None),
        (None, Bar(2.0), None),
    ],
)
def test_bars_judge_from_the_right_side(value, bar, met):
    assert Row("g", "n", value, bar=bar).met is met


def test_ratios_are_of_medians_with_their_extremes():
    row = Timing((10.0, 12.0, 30.0)).ratio_row("g", "n", Timing((1.0, 2.0, 5.0)))
    assert (row.value, row.spread, row.unit) == (6.0, (2.0, 30.0), "×")


def test_times_are_shown_in_the_unit_asked_for():
    row = Timing((0.001, 0.003, 0.002)).row("g", "n", "ms")
    assert (row.value, row.spread, row.repeats) == (2.0, (1.0, 3.0), 3)
    assert len(measure(lambda: None, 4).seconds) == 4


def test_the_power_of_a_power_law_is_found():
    sizes = (32, 64, 128, 256)
    assert fitted_power(sizes, [3e-6 * size**2.5 for size in sizes]) == pytest.approx(2.5)


def test_without_torch_rows_say_what_is_missing_and_the_rest_is_measured(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    rows = finite_data_rows(linear.QUICK)
    missing = [row for row in rows if row.value is None]
    assert [row.name for row in missing][0] == EVERY_POSITION and len(missing) == 3
    assert {row.note for row in missing} == {"This row needs PyTorch: install `iclflow[bench]`."}
    assert sum(row.value is not None for row in rows) == 4
    assert "PyTorch: install `iclflow[bench]`" in text_of(rows)


def test_an_unknown_suite_is_refused():
    with pytest.raises(ValueError, match="`suite` = 'cubic': must be one of training, linear"):
        bench.main("cubic")


@pytest.mark.parametrize("loop", [EveryPosition, QueryPosition])
def test_the_engine_takes_the_same_steps_as_a_plain_loop(loop):
    pytest.importorskip("torch")
    problem, steps = Problem.make(count=20, scale=1e-2), 1000
    peer = loop(problem.sequences, problem.model, LEARNING_RATE, "float64")
    theirs = time_loop(peer, float("inf"), steps).losses
    ours = engine_losses(problem, steps)[:steps]
    assert ours[-1] < 0.2 * ours[0]  # the drop is inside
    # Rounding is 1e-16 a step, and the drop multiplies what has gathered by about 1e3.
    assert np.max(np.abs(theirs / ours - 1)) < 1e-8


# Softmax attention ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noise() -> list[Row]:
    return noise_rows(batches=200, queries=64, judged=True, repeats=2)


def test_integrating_labels_out_removes_most_of_the_noise(noise):
    found = {row.name: row for row in noise}
    # Known ratios at the pair: 10.3 for the loss and the key-query gradient, 27 for the whole
    # gradient, 22 for the loss of a sampler over queries; here from few batches.
    assert [round(row.value) > 6 for row in noise] == [True] * 4
    whole = found["variance of the gradient, all weights: plain ÷ integrated"].value
    assert whole > found["variance of the gradient, same weights: plain ÷ integrated"].value
    assert [row.bar for row in noise[:2]] == [Bar(9, at_least=True)] * 2


def test_a_quick_run_of_softmax_times_both_sides(noise, monkeypatch):
    pytest.importorskip("torch")
    calls = []
    for name, steps in (("plain", 20), ("integrated", 10), ("ensemble", 5)):
        run = lambda name=name: calls.append(name)
        made = lambda _, name=name, run=run, steps=steps: Contestant(f"as {name}", run, steps)
        monkeypatch.setattr(_softmax_speed, f"_{name}", made)
    rows = speed_rows(softmax.QUICK, noise[1])
    # Once to compile, then in turns.
    assert calls == ["plain", "integrated", "ensemble"] * (1 + softmax.QUICK.rounds)
    names = [row.name for row in rows]
    assert names[:2] == [PEER, "ours: as plain"] and len(set(names)) == len(names) == 8
    assert all(row.met is None and row.value > 0 for row in rows)
    plain, integrated, equal, _ = rows[4:]
    assert plain.value == pytest.approx(rows[0].value / rows[1].value)
    assert equal.value == pytest.approx(integrated.value * noise[1].value)
    monkeypatch.setitem(sys.modules, "torch", None)
    without = speed_rows(softmax.QUICK, noise[1])
    assert [row.name for row in without] == [*names[1:4], PEER]
    assert without[-1].value is None and "PyTorch" in without[-1].note


def test_contestants_train_as_many_steps_as_they_are_timed_for(monkeypatch):
    trained = []

    def adam(model, risk, _, steps, **__):
        trained.append((risk, model, steps))

    def descend_ensemble(models, risk, _, steps, *, keys, **__):
        trained.append((risk, jax.tree.map(lambda leaf: leaf[0], models), steps * len(keys)))

    monkeypatch.setattr(_softmax_speed, "adam", adam)
    monkeypatch.setattr(_softmax_speed, "descend_ensemble", descend_ensemble)
    contestants = [
        _softmax_speed._plain(20),
        _softmax_speed._integrated(20),
        _softmax_speed._ensemble(softmax.QUICK),
    ]
    for contestant in contestants:
        contestant.run()
    assert [steps for *_, steps in trained] == [c.steps for c in contestants] == [20, 20, 20]
    for risk, model, _ in trained:
        loss, gradient = jax.eval_shape(risk.value_and_gradient, model, jr.key(0))
        assert loss.shape == () and jax.tree.structure(gradient) == jax.tree.structure(model)
        assert risk.precision == "float32" and risk.batch == 256


def test_the_softmax_peer_trains_the_same_model():
    pytest.importorskip("torch")
    task, model = isotropic(3, 6, 0.1), FactoredAttention.init(jr.key(0), 3, 2, width=5)
    sequences = task.sample(jr.key(1), 8)
    theirs = EagerLoop(model, 8, 6, 0.1, 1e-3, "cpu").gradients(sequences)
    loss = lambda model: jnp.mean((sequences.y_query - model.predict(sequences)) ** 2)
    ours = jax.jit(jax.grad(loss))(model)
    # Float32 against float64.
    for name in "QKV":
        expected = np.asarray(getattr(ours, name)).reshape(theirs[name].shape)
        assert theirs[name] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert theirs["O"][-1] == pytest.approx(np.asarray(ours.O).reshape(-1), rel=1e-4, abs=1e-6)
    assert not np.any(theirs["O"][:-1])
