"""The benchmark measures what it says, and says what it cannot measure."""

import io
import json
import sys
from functools import cache
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from rich.console import Console

import benchmarks as bench
import iclflow
from benchmarks import (
    Bar,
    Row,
    _fused,
    _large,
    _peak,
    _softmax_runs,
    _softmax_speed,
    _stack,
    _staircase,
    linear,
    softmax,
)
from benchmarks import __main__ as program
from benchmarks._finite_data import (
    EVERY_POSITION,
    LEARNING_RATE,
    Problem,
    engine_losses,
    finite_data_rows,
)
from benchmarks._jax_loop import PlainScan, Weights
from benchmarks._jax_loop import loss as plain_loss
from benchmarks._large import fitted_power
from benchmarks._loops import EveryPosition, QueryPosition, time_loop
from benchmarks._operations import Operations, count_operations
from benchmarks._race import Contestant, race
from benchmarks._row import Timing, measure
from benchmarks._softmax_loop import TorchLoop
from benchmarks._softmax_noise import noise_rows
from benchmarks._softmax_speed import EAGER, speed_rows, wide_rows
from benchmarks._table import print_table
from iclflow.models import Attention
from iclflow.risks.fused._philox import philox
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
    machine = dict(processor="abacus", cores=2, device="beads", python="3", jax="1", numba="0",
                   torch="2")  # fmt: skip
    print_table(rows, machine, Console(file=stream, width=130))
    return stream.getvalue()


@pytest.mark.slow
def test_a_quick_run_measures_every_group(quick_rows):
    assert {row.group for row in quick_rows} == {
        "training on a finite data set",
        "the four-plateau run",
        "small initial weights",
        "the cascade",
        "two layers, to the end of training",
        "exact flows of stacks, compiled",
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


@pytest.mark.slow
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


def test_the_loop_on_tokens_of_a_stack_has_its_exact_risk():
    pytest.importorskip("torch")
    task, model = _stack._task(), _stack._model()
    still = eqx.tree_at(lambda m: m.gamma, model, jnp.array([1.2, 0.5]))
    loop = _stack.TokenLoop(task, still)
    loop._optimiser.param_groups[0]["lr"] = 0.0
    losses = np.array([loop.step() for _ in range(200)])
    error = losses.std(ddof=1) / len(losses) ** 0.5
    assert abs(losses.mean() - float(iclflow.risk(task, still)(still))) < 4 * error
    assert np.array_equal(loop.steps, still.gamma)


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
    words = "abacus, 2 cores; computing on beads; Python 3, JAX 1, Numba 0, PyTorch 2"
    assert words in shown
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


@pytest.mark.slow
def test_integrating_labels_out_removes_most_of_the_noise(noise):
    found = {row.name: row for row in noise}
    # Known ratios at the pair: 10.3 for the loss and the key-query gradient, 27 for the whole
    # gradient, 22 for the loss of a sampler over queries; here from few batches.
    assert [round(row.value) > 6 for row in noise] == [True] * 4
    whole = found["variance of the gradient, all weights: plain ÷ integrated"].value
    assert whole > found["variance of the gradient, same weights: plain ÷ integrated"].value
    assert [row.bar for row in noise[:2]] == [Bar(9, at_least=True)] * 2


def test_a_race_takes_turns_and_keeps_the_first_call_apart():
    calls = []

    class Peer:
        name, first = "peer", Timing((7.0,))

        def timed(self, seconds: float) -> Timing:
            calls.append("peer")
            return Timing((2.0, 3.0))

    ours = [Contestant(name, lambda name=name: calls.append(name), 10) for name in ("one", "two")]
    found = race(ours, [Peer()], rounds=2, seconds=1.0)
    assert calls == ["one", "two", *["one", "two", "peer"] * 2]
    assert found["peer"].step.seconds == (2.0, 3.0, 2.0, 3.0) and found["peer"].first.median == 7
    assert len(found["one"].step.seconds) == 2
    step, first = found["peer"].rows("g")
    assert (step.value, step.unit, first.value, first.unit) == (2.5e6, "µs", 7.0, "s")


STANDS_STILL = SimpleNamespace(name=EAGER, first=Timing((1.0,)), timed=lambda _: Timing((1.0,)))


@pytest.fixture
def brief(monkeypatch):
    """Contestants that do nothing, so that rows can be counted at once."""
    monkeypatch.setattr(_softmax_speed, "TorchLoop", lambda *_: STANDS_STILL)
    for name, steps in (("plain", 20), ("integrated", 10), ("ensemble", 5), ("bare", 5)):
        make = lambda *_, name=name, steps=steps: Contestant(name, lambda: None, steps)
        monkeypatch.setattr(_softmax_speed, f"_{name}", make)
    scan = lambda _, members=1: Contestant(f"scan of {members}", lambda: None, 7)
    monkeypatch.setattr(_softmax_speed, "scan", scan)


@pytest.mark.slow
def test_rows_of_softmax_are_times_and_their_ratios(noise, brief, monkeypatch):
    pytest.importorskip("torch")
    rows = {row.name: row for row in speed_rows(softmax.QUICK, noise[1])}
    assert all(row.met is None and row.value > 0 for row in rows.values())
    value = lambda name: rows[name].value
    assert value(f"{EAGER} ÷ plain") == pytest.approx(value(EAGER) / value("plain"))
    equal = f"{EAGER} ÷ integrated, at equal variance of the gradient"
    assert value(equal) == pytest.approx(value(f"{EAGER} ÷ integrated") * noise[1].value)
    assert value("scan of 1 ÷ plain") == pytest.approx(value("scan of 1") / value("plain"))
    assert value("scan of 2 ÷ ensemble") == pytest.approx(value("scan of 2") / value("ensemble"))
    share = 100 * value("bare") / value("ensemble")
    assert value("bare ÷ the whole step") == pytest.approx(share)
    wide = wide_rows(softmax.QUICK)
    assert [row.name for row in wide if "÷" in row.name] == [f"{EAGER} ÷ ensemble"] * 2
    monkeypatch.setitem(sys.modules, "torch", None)
    without = speed_rows(softmax.QUICK, noise[1])
    assert without[0].name == EAGER and without[0].value is None and "PyTorch" in without[0].note
    assert not any("÷" in row.name and EAGER in row.name for row in without)


def test_a_peer_that_cannot_be_compiled_is_a_row_that_says_why(monkeypatch):
    pytest.importorskip("torch")

    def loop(*options):
        if options[-1]:
            raise RuntimeError("no compiler here\nand much more")
        return STANDS_STILL

    monkeypatch.setattr(_softmax_speed, "TorchLoop", loop)
    peers, missing = _softmax_speed.find_peers(_softmax_speed.ONE, True)
    assert peers == [STANDS_STILL] and len(missing) == 1
    assert missing[0].note == "PyTorch could not compile it: no compiler here"


@pytest.mark.slow
def test_contestants_train_as_many_steps_as_they_are_timed_for(monkeypatch):
    trained = []

    def adam(model, risk, _, steps, **__):
        trained.append((risk, model, steps))

    def descend_ensemble(models, risk, _, steps, *, keys, **__):
        first = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[0]), models)
        trained.append((risk, first, steps * len(keys)))

    monkeypatch.setattr(_softmax_runs, "adam", adam)
    monkeypatch.setattr(_softmax_runs, "descend_ensemble", descend_ensemble)
    contestants = [
        _softmax_speed._plain(20),
        _softmax_speed._integrated(20),
        _softmax_speed._ensemble(softmax.QUICK),
    ]
    for contestant in contestants:
        contestant.run()
    assert [steps for *_, steps in trained] == [c.steps for c in contestants] == [20] * 3
    for risk, model, _ in trained:
        loss, gradient = jax.eval_shape(risk.value_and_gradient, model, jr.key(0))
        assert loss.shape == () and jax.tree.structure(gradient) == jax.tree.structure(model)
        assert risk.precision == "float32" and risk.batch == 256
    for members in (None, 2):
        scan = _softmax_speed.scan(3, members)
        scan.run()
        assert scan.steps == 3 * (members or 1)


@pytest.mark.slow
def test_the_plain_scan_learns():
    model = Attention.factored(jr.key(0), 2, 2)
    scan = PlainScan(model, batch=64, context=10, noise=0.1, learning_rate=1e-2)

    @jax.jit
    def before_and_after(start):
        drawn = scan._drawn(jr.key(5))
        return plain_loss(start, drawn), plain_loss(scan._train(start, jr.key(1), 400), drawn)

    before, after = map(float, before_and_after(scan._weights))
    assert after < 0.8 * before


def test_growth_is_fitted_on_sizes_along_each_axis(monkeypatch):
    cost = lambda size: size.dim**2 * size.heads * size.context * size.models**0.5 * size.batch
    monkeypatch.setattr(_fused, "_step", lambda size, quick: Timing((1e-9 * cost(size),)))
    found = {row.name: row for row in _fused.growth_rows()}
    powers = {"dim": 2, "heads": 1, "context": 1, "models": 0.5, "batch": 1}
    assert {name: round(row.value, 6) for name, row in found.items()} == powers
    assert "predicted 0.9" in found["dim"].note


def test_operations_are_counted_in_loops_and_joined_where_one_instruction_does():
    lanes = jnp.arange(8, dtype=jnp.uint32)

    def program(lanes, a):
        x = lanes.astype(jnp.float32)
        x = jax.lax.fori_loop(0, 5, lambda _, x: x * a[0] + a[1], x)  # five products with a sum
        words = lanes ^ jnp.uint32(3) ^ jnp.uint32(5)  # one instruction
        return jnp.exp2(x) - 1.0, words + jnp.uint32(1)

    counted = count_operations(program, lanes, jnp.ones(2, jnp.float32))
    # One whole number more is that of the conversion to floats.
    assert counted == Operations(floats=7, integers=2, functions=1)
    zero = lambda lanes: lanes + jnp.zeros_like(lanes)
    assert count_operations(zero, lanes) == Operations()
    words = lambda lanes: philox((jnp.uint32(1), jnp.uint32(2)), lanes, jnp.uint32(0))
    # Ten rounds of two products and two exclusive ors of three words each.
    assert count_operations(words, lanes) == Operations(integers=40)
    endless = lambda lanes: jax.lax.while_loop(lambda x: x[0] < 9, lambda x: x + 1, lanes)
    with pytest.raises(ValueError, match="length is not known"):
        count_operations(endless, lanes)


def test_the_slowest_kind_of_operation_decides():
    card = _peak.Peak(together=128.0, integers=64.0, functions=16.0, polynomial=1, words="")
    assert card.seconds(Operations(128, 0, 0)) == 1
    assert card.seconds(Operations(0, 128, 0)) == 2
    assert card.seconds(Operations(0, 0, 64)) == 4
    processor = _peak.Peak(16.0, 16.0, float("inf"), 12, "")
    assert processor.seconds(Operations(8, 8, 4)) == 4
    assert _peak.streaming_rate() > 1e8


def test_the_softmax_peer_trains_the_same_model():
    pytest.importorskip("torch")
    task, model = isotropic(3, 6, 0.1), Attention.factored(jr.key(0), 3, 2, width=5)
    sequences = jax.jit(lambda key: task.sample(key, 8))(jr.key(1))
    theirs = TorchLoop(model, 8, 6, 0.1, 1e-3, "cpu").gradients(sequences)
    loss = lambda model: jnp.mean((sequences.y_query - model.predict(sequences)) ** 2)
    ours = jax.jit(jax.grad(loss))(model).circuits
    # Float32 against float64.
    for name in "QKV":
        expected = np.asarray(getattr(ours, name)).reshape(theirs[name].shape)
        assert theirs[name] == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert theirs["O"][-1] == pytest.approx(np.asarray(ours.O).reshape(-1), rel=1e-4, abs=1e-6)
    plain = jax.jit(jax.grad(plain_loss))(
        Weights(model.circuits.Q, model.circuits.K, model.circuits.V, model.circuits.O), sequences
    )
    for name in "QKVO":
        np.testing.assert_allclose(getattr(plain, name), getattr(ours, name), atol=1e-12)
    assert not np.any(theirs["O"][:-1])


# The program ----------------------------------------------------------------------------------


@pytest.fixture
def suite(monkeypatch):
    """Puts a function in the place of the suites."""
    monkeypatch.setattr("iclflow.runtime._start.enable_compile_cache", lambda: None)
    return lambda run: monkeypatch.setattr(program, "run", run)


def test_the_program_prints_what_it_measured_as_json(suite, capsys):
    suite(lambda name, quiet, quick: {"suite": name, "quiet": quiet, "quick": quick})
    assert program.main(["linear", "--quick", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"suite": "linear", "quiet": True, "quick": True}


def test_the_program_says_which_extra_is_missing(suite, capsys):
    def needs_torch(name, quiet, quick):
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    suite(needs_torch)
    with pytest.raises(SystemExit) as stop:
        program.main(["linear"])
    *_, last = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and "linear needs torch. To install it from a clone: pip " in last


def test_the_program_says_first_that_peers_are_missing(suite, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    def measured(name, quiet, quick):
        assert "pip install -c constraints.txt -e '.[bench]'" in capsys.readouterr().err
        return {}

    suite(measured)
    assert program.main(["linear", "--quick"]) == 0


def test_the_program_refuses_a_suite_that_there_is_none_of(capsys):
    with pytest.raises(SystemExit) as stop:
        program.main(["everything"])
    assert stop.value.code == 2 and "invalid choice: 'everything'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_phase_diagram_is_measured_and_its_bars_are_those_of_the_whole_size():
    from benchmarks import diversity

    rows = diversity.run(quick=True)
    assert all(row.value is None or row.value > 0 for row in rows) and len(rows) >= 3
    assert all(row.bar is None for row in rows)
    at = diversity.Setting()
    counts, sequences = at.axes()
    assert len(counts) == len(sequences) == 40 and 1600 not in sequences
    # Gradient descent to within 1 % of the end takes more than a step, and comes there.
    steps = diversity.steps_needed(diversity.Point(6, 6, 6, 72, 0.1))
    assert 20 <= steps < 100_000
