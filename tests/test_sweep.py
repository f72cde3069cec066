"""Sweeps: expanded and checked first, computed in batches, taken up to the bit, asked in SQL."""

import copy
import errno
import json
import os
import re
import resource
import shutil
import signal
import sys
import threading
import time
import tomllib
from functools import partial
from pathlib import Path

import duckdb
import jax
import numpy as np
import pytest

from helpers import harmed
from iclflow.analysis import which_algorithm
from iclflow.cli import main
from iclflow.config import InputError, Limit, parse_config, read_toml, to_toml
from iclflow.errors import shorten
from iclflow.experiment import prepare, train
from iclflow.experiment._build_model import build_model
from iclflow.files import LOCK, MARKER
from iclflow.flows import Status
from iclflow.flows._stepper import Stepper
from iclflow.papers import study
from iclflow.store import list_sweeps, sweep_tables
from iclflow.sweeps import (
    MEASUREMENTS,
    ExperimentCache,
    Job,
    LocalEngine,
    Plot,
    Stopped,
    SweepFolder,
    Table,
    _batches,
    _compute,
    batches_of,
    compute_batch,
    emergence,
    load_trajectory,
    parse_sweep,
)
from iclflow.sweeps._axes import parse_axes
from iclflow.sweeps._batches import BUDGET
from iclflow.sweeps._measurements import FinishedRun, measure
from iclflow.sweeps._members import first_models, step_keys

EXAMPLES = Path(__file__).parent.parent / "examples"
DESCENT = {"kind": "gradient_descent", "learning_rate": 0.05, "steps": 60}
BASE = {
    "task": {"kind": "linear_regression", "eigenvalues": [0.8, 0.5], "context": 20},
    "model": {"kind": "separate", "heads": 2, "scale": 0.1},
    "flow": DESCENT,
    "save": {"kind": "linear", "count": 11},
}
SCALES = {"model.scale": [0.3, 0.1]}


def data(axes=SCALES, seeds=3, **rest):
    """A small sweep; nearly all have batches of one size, and so one program."""
    return {"name": "small", "seeds": seeds, "batch": 2, "base": BASE, "axes": axes} | rest


@pytest.fixture(autouse=True)
def away_from_home(tmp_path, monkeypatch):
    """Works in an empty folder, and leaves the user's compile cache and devices alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("iclflow.runtime._start.enable_compile_cache", lambda: None)


@pytest.fixture
def no_computing(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("Something was computed.")

    monkeypatch.setattr("iclflow.sweeps._engine.compute_batch", refuse)


def command(*words, capsys) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def written(content, name="small.toml") -> Path:
    path = Path(name)
    path.write_text(to_toml(content))
    return path


def computed(content, folder="out") -> tuple[list[str], list[tuple]]:
    assert main(["sweep", str(written(content)), "--out", folder]) == 0
    return Table(sweep_tables(Path(folder))[0]).ask("SELECT * FROM results")


# Axes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given, values",
    [
        ([1, 2.5], (1, 2.5)),
        ({"from": 0, "to": 1, "count": 5}, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ({"from": 1, "to": 6, "count": 6}, (1, 2, 3, 4, 5, 6)),
        ({"from": 1, "to": 8, "count": 4, "log": True}, (1, 2, 4, 8)),
        ({"from": 1e-3, "to": 1.0, "count": 4, "log": True}, (1e-3, 1e-2, 1e-1, 1.0)),
    ],
)
def test_axes_are_lists_and_ranges(given, values):
    (axis,) = parse_axes({"a.b": given})
    assert axis.setting == "a.b" and axis.values == pytest.approx(values, rel=1e-15)
    assert [type(value) for value in axis.values] == [type(value) for value in values]


def test_axes_are_crossed_zipped_ones_advance_together_and_seeds_are_fastest():
    axes = {"model": {"heads": [2, 3], "rank": [1, 2]}, "model.scale": [0.1, 0.2]}
    sweep = parse_sweep(data(axes, [7, 5], zip=[["model.heads", "model.rank"]]))
    found = [tuple(sweep.settings(i).values()) + (sweep.config(i).seed,) for i in range(len(sweep))]
    wanted = [(2, 1), (3, 2)]
    assert found == [(h, r, s, seed) for h, r in wanted for s in (0.1, 0.2) for seed in (7, 5)]
    config = sweep.config(7)
    assert (config.model.heads, config.model.scale, config.seed) == (3, 0.2, 5)
    assert config == parse_config(config.given())


def test_a_sweep_survives_being_written_and_read(tmp_path):
    sweep = parse_sweep(data({"model.heads": {"from": 1, "to": 3, "count": 3}} | SCALES))
    path = written(sweep.data)
    again = parse_sweep(read_toml(path))
    assert again == sweep and again.hash == sweep.hash
    assert parse_sweep(data(seeds=4)).hash != parse_sweep(data(seeds=3)).hash
    assert parse_sweep(data(name="other")).hash == parse_sweep(data()).hash


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"axes": {"model.scale": []}}, "`axes.model.scale` = []: must be a list of values"),
        ({"axes": {"model.scale": [0.1, 0.1]}}, "`axes.model.scale` holds 0.1 twice"),
        ({"axes": {"model.heads": [2, 0]}}, "`model.heads` = 0: must be at least 1 (in [axes], at"),
        ({"axes": {"model.depth": [2]}}, "`model.depth` is not a setting of [model]"),
        ({"axes": {"model.rank": [1, 3]}}, "`model.rank` = 3: must not exceed the input dimension"),
        ({"axes": {"seed": [1]}}, "`axes.seed` cannot be an axis"),
        ({"axes": {"a.b": {"from": 1, "to": 2}}}, "`axes.a.b.count` is missing"),
        ({"axes": {"a.b": {"from": 0, "to": 2, "count": 3, "log": True}}}, "must be positive"),
        ({"axes": {"a.b": {"from": 1, "to": 2, "count": 1}}}, "`axes.a.b.count` = 1: must be"),
        ({"axes": {"a.b": {"from": 1, "to": 2, "count": 3, "step": 1}}}, "`axes.a.b.step`"),
        ({"axes": {"a.b": {"from": "x", "to": 2, "count": 3}}}, "`axes.a.b.from` = 'x'"),
        ({"zip": [["model.scale"]]}, "must name at least two axes"),
        ({"zip": [["model.scale", "model.heads"]]}, "'model.heads', which is no axis"),
        ({"seeds": 0}, "`seeds` = 0: must be a number from 1"),
        ({"seeds": [1, 1]}, "`seeds` holds 1 twice"),
        ({"seeds": [-1]}, "`seeds` holds -1"),
        ({"batch": 0}, "`batch` = 0: must be a whole number"),
        ({"speed": 1}, "`speed` is not a key of a sweep"),
        ({"base": BASE | {"seed": 1}}, "`base.seed` = 1: give `seeds`"),
        ({"measure": {"names": ["plateau"]}}, "did you mean 'plateaus'?"),
        ({"measure": {"names": ["floor", "floor"]}}, "holds 'floor' twice"),
        ({"measure": {"names": ["allocation"]}}, "'allocation', which needs several tasks"),
        ({"measure": {"claims": []}}, "`measure.claims` is not a setting of [measure]"),
        (
            {"base": BASE | {"flow": {}, "model": {"kind": "separate", "heads": 2, "form": "full"},
                             "save": {"kind": "drops"}}},
            "`flow.end` is missing: the smallest loss",
        ),
        ({"seeds": 10**7}, "make 20000000 runs: must be at most"),
        (
            {"axes": {"task.covariance": [[[1.0, 2.0], [2.0, 1.0]]]},
             "base": BASE | {"task": {"kind": "linear_regression"}}},
            "must be positive definite",
        ),
        ({"base": BASE | {"flow": DESCENT | {"kind": "sgd"}, "risk": {"kind": "sampled"},
                          "save": {"kind": "drops"}}}, '`save.kind` = "drops" keeps every step'),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_in_one_sentence_and_leaves_nothing(
    changes, sentence, no_computing, capsys
):
    code, out, error = command("sweep", written(data() | changes), capsys=capsys)
    assert code == 2 and out == "" and sentence in error
    assert error.count("\n") == 1 and error.rstrip().endswith((".", "?"))
    assert [path.name for path in Path().iterdir()] == ["small.toml"]


JUNK = (
    *(-1, 0, 2, 10**30, 0.5, -2.5, 1e300, float("nan"), float("inf"), True, "", "x", "ε\x7f", None),
    *([], [0], [1.0, -1.0], ["x"], [[]], [[1.0]], [None], [{}], [float("nan")], {}, {"from": 1}),
    *({"from": 1, "to": 3, "count": 3}, {"from": "a", "to": 3, "count": 3}, {"kind": "adam"}),
    *({"from": 1, "to": float("inf"), "count": 3}, {"from": 1, "to": 1e300, "count": 3}),
)


def places(content: dict, above: tuple = ()):
    """The way to every key of nested sections."""
    for key, value in content.items():
        yield (*above, key)
        yield from places(value, (*above, key)) if isinstance(value, dict) else ()


@pytest.mark.slow
def test_fuzzed_sweeps_are_taken_or_refused_in_one_sentence():
    content = data({"model.scale": [0.3, 0.1], "task.noise": [0.1, 0.2], "model": {"heads": [1]}})
    content |= {"zip": [["model.scale", "task.noise"]], "measure": {"names": ["floor"]}}
    taken, refused = 0, 0
    for path in places(content):
        for junk in JUNK:
            changed = copy.deepcopy(content)
            inside = changed
            for step in path[:-1]:
                inside = inside[step]
            inside[path[-1]] = junk
            try:
                batches_of(parse_sweep(changed))
                taken += 1
            except InputError as error:
                refused += 1
                assert str(error).endswith((".", "?")) and "\n" not in str(error)
    assert taken > 20 and refused > 500


def test_zipped_axes_must_be_of_one_length():
    axes = {"model.heads": [2, 3, 4], "model.rank": [1, 2]}
    with pytest.raises(InputError, match="`axes.model.rank` has 2 values: must have as many"):
        parse_sweep(data(axes, zip=[["model.heads", "model.rank"]]))


def test_flags_go_over_the_base_but_not_over_an_axis(no_computing, capsys):
    file = written(data())
    code, _, error = command("sweep", file, "--model.scale", "2", capsys=capsys)
    assert code == 2 and "is an axis of this sweep" in error
    code, _, error = command("sweep", file, "--model.heads", "0", capsys=capsys)
    assert code == 2 and "`model.heads` = 0: must be at least 1" in error


@pytest.mark.parametrize("path", sorted((EXAMPLES / "sweeps").glob("*.toml")), ids=lambda p: p.stem)
def test_examples_are_valid(path):
    assert len(parse_sweep(read_toml(path))) > 1


def test_the_documentation_has_a_valid_sweep_and_every_measurement():
    page = (EXAMPLES.parent / "docs" / "sweeps.md").read_text()
    example, *_ = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(parse_sweep(tomllib.loads(example))) == 9 * 3 * 2 * 8
    rows = re.findall(r"^\| `(\w+)` \| (`.*`) \|$", page.split("## Measurements")[1], re.MULTILINE)
    documented = {name: re.findall(r"`(\w+)`", columns) for name, columns in rows}
    assert documented == {name: list(entry.columns) for name, entry in MEASUREMENTS.items()}


# Batches --------------------------------------------------------------------------------------


def test_batches_have_one_shape_and_one_size_and_hold_every_run_once():
    axes = {"model.heads": [2, 3], "model.scale": [0.5, 0.1, 0.9], "task.noise": [0.1, 0.2]}
    sweep = parse_sweep(data(axes, seeds=5, batch=8))
    batches = batches_of(sweep)
    assert sorted(run for batch in batches for run in batch.runs) == list(range(len(sweep)))
    assert [batch.number for batch in batches] == list(range(len(batches)))
    assert {batch.size for batch in batches} == {8}  # 30 runs of each shape: 8, 8, 8, 6
    for batch in batches:
        assert len({sweep.config(run).model.heads for run in batch.runs}) == 1
        scales = [sweep.config(run).model.scale for run in batch.runs]
        assert scales == sorted(scales, reverse=True)
        assert not batch.one_risk
    assert batches == batches_of(parse_sweep(data(axes, seeds=5, batch=8)))
    assert all(batch.one_risk for batch in batches_of(parse_sweep(data())))


def test_batches_are_cut_to_fit_memory_however_many_runs_there_are():
    wide = BASE | {"model": {"kind": "merged", "heads": 64}}
    wide |= {"task": BASE["task"] | {"eigenvalues": [1.0] * 32}, "save": {"kind": "drops"}}
    large = parse_sweep(data({"model.scale": [0.1]}, seeds=1000) | {"base": wide})
    sizes = {batch.size for batch in batches_of(large)}
    # Of each run up to 3000 points are kept, twice while they are joined: that alone bounds it.
    kept = 2 * 3000 * 8 * 64 * (1 + 32**2)
    assert max(sizes) == max(1, BUDGET // kept)


def test_a_batch_that_does_not_fit_is_refused_and_few_fit_at_a_time(monkeypatch):
    implicit = BASE | {"task": BASE["task"] | {"eigenvalues": [1.0] * 30}}
    implicit |= {
        "model": {"kind": "merged", "heads": 2},
        "flow": {"solver": "implicit", "end": 1.0},
    }
    sweep = parse_sweep(data({"model.scale": [0.1]}, seeds=256, batch=1024) | {"base": implicit})
    batches = batches_of(sweep)
    # A Jacobian has a row for each of 1802 weights; that of every run counts.
    needed = _batches.batch_memory(sweep.config(0), batches[0].size)
    assert 3 * 8 * 1802**2 * batches[0].size < needed <= _batches.CEILING

    def here(size):
        limit = Limit(size / 0.75, "that this container allows")
        monkeypatch.setattr(_batches, "memory_here", lambda now=True: limit)

    here(needed - 1)
    with pytest.raises(InputError, match=r"`batch` = 1024: \d+ runs as one program would need"):
        _batches.check_batch(sweep, batches[0])
    assert _batches.batches_at_once(sweep, batches) == 1
    here(2 * needed)
    _batches.check_batch(sweep, batches[0])
    assert _batches.batches_at_once(sweep, batches) == 2 < len(batches)


def test_ten_thousand_configs_are_expanded_in_moments():
    axes = {"model.scale": {"from": 1e-3, "to": 1, "count": 100, "log": True}}
    sweep = parse_sweep(data(axes, seeds=100, batch=256))
    assert len(sweep) == 10_000 and len(batches_of(sweep)) == 40


# Members --------------------------------------------------------------------------------------


# Of the studies that start alike, one: sizes, tasks and activations draw nothing.
STARTS = (
    *("linear/finite-data", "linear/merged", "linear/rank-two", "softmax/pair-exact"),
    *("softmax/paper", "multitask/phases", "softmax/two-tasks-adam"),
)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", STARTS)
def test_first_models_are_those_of_single_runs(name):
    config = study(name)
    configs = [config.model_copy(update={"seed": seed}) for seed in (0, 2**32 - 1)]
    together, last = first_models(configs), configs[-1]
    alone, _ = build_model(last, jax.random.split(jax.random.key(last.seed), 4)[0])
    for many, one in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        # A product may be rounded otherwise inside one program.
        np.testing.assert_allclose(np.asarray(many)[1], one, rtol=1e-12, atol=1e-15)


@pytest.mark.slow
def test_first_models_of_several_schemes_and_sizes_are_mixed_in_order():
    models = [
        {"kind": "separate", "heads": 2, "scale": scale, "scheme": scheme}
        for scale, scheme in ((0.1, "gaussian"), (0.2, "balanced"), (0.3, "gaussian"))
    ]
    configs = [parse_config(BASE | {"model": model, "seed": i}) for i, model in enumerate(models)]
    together = first_models(configs)
    for i, config in enumerate(configs):
        single = prepare(config)
        np.testing.assert_allclose(
            np.asarray(together.circuits.K)[i], single.model.circuits.K, rtol=1e-12
        )
        assert step_keys(configs)[i] == single.key


# Results --------------------------------------------------------------------------------------

FLOWS = {
    "descent": {},
    "adam": {
        "flow": {"kind": "adam", "learning_rate": 0.01, "steps": 40},
        "risk": {"kind": "sampled", "batch": 8},
    },
    "dataset": {"risk": {"kind": "dataset", "sequences": 50}},
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", FLOWS)
def test_rows_are_those_of_single_runs(name):
    content = data({"model.scale": [0.3, 0.1], "task.noise": [0.1, 0.2]}, 1)
    content |= {"base": BASE | FLOWS[name], "measure": {"trajectories": True}}
    rows_are_those_of_single_runs(content, computed(content), rounding=1e-10)
    with pytest.raises(InputError, match="no trajectory of run 4"):
        load_trajectory(Path("out"), 4)


def rows_are_those_of_single_runs(content, table, rounding: float) -> None:
    sweep, (names, rows) = parse_sweep(content), table
    assert names[:4] == ["run", "model.scale", "task.noise", "seed"] and len(rows) == len(sweep)
    for number in (0, 3):
        row, config = dict(zip(names, rows[number])), sweep.config(number)
        run = train(prepare(config))
        assert row["hash"] == config.hash and row["run"] == number
        assert (row["model.scale"], row["seed"]) == (config.model.scale, config.seed)
        assert (row["result"], row["last_time"]) == (run.result.name, run.times[-1])
        assert row["final_loss"] == pytest.approx(run.losses[-1], rel=rounding)
        kept = load_trajectory(Path("out"), number)
        np.testing.assert_allclose(kept.losses, run.losses, rtol=rounding)
        np.testing.assert_allclose(kept.final.circuits.K, run.final.circuits.K, atol=100 * rounding)


@pytest.mark.slow
def test_batches_of_one_shape_compile_once_and_rows_of_flows_are_those_of_single_runs(monkeypatch):
    traces, attempt = [], Stepper.attempt

    def counted(*arguments):
        traces.append(1)
        return attempt(*arguments)

    flow = BASE | {"flow": {"kind": "gradient_flow", "end": 20.0}}
    flow |= {"model": {"kind": "separate", "heads": 3}}
    axes = {"model.scale": [0.3, 0.1], "task.noise": [0.1, 0.2]}
    content = data(axes, 2, batch=3) | {"base": flow, "measure": {"trajectories": True}}
    with monkeypatch.context() as patch:
        patch.setattr(Stepper, "attempt", counted)
        table = computed(content)
    assert len(table[1]) == 8 and len(traces) == 1  # three batches: 3, 3, 2
    # Tolerance of the solver: an ensemble takes other steps.
    rows_are_those_of_single_runs(content, table, rounding=1e-6)


def test_a_config_that_diverges_is_a_row_and_no_crash():
    # With the second, losses reach 1e190, whose squares overflow; warnings are errors here.
    content = data({"flow.learning_rate": [0.05, 3.0, 1e6]}, 2)
    names, rows = computed(content | {"measure": {"names": ["plateaus"]}})
    results = [dict(zip(names, row)) for row in rows]
    assert [row["result"] for row in results] == ["finished"] * 2 + ["diverged"] * 4
    assert all(row["not_measured"] for row in results[4:]) and results[5]["plateaus"] is None
    assert json.loads(Path("out/manifest.json").read_text())["results"] == {
        "diverged": 4, "finished": 2
    }  # fmt: skip


@pytest.mark.slow
def test_settings_of_every_kind_are_columns():
    axes = {
        "task.eigenvalues": [[0.8, 0.5], [1, 0.5]],
        "model.scheme": ["gaussian", "balanced"],
        "task.noisy_query": [True, False],
        "task.noise": [0, 0.5],
    }
    names, rows = computed(data(axes, 1))
    assert names[1:5] == list(axes)
    assert rows[0][1:5] == ([0.8, 0.5], "gaussian", True, 0.0)
    assert rows[-1][1:5] == ([1.0, 0.5], "balanced", False, 0.5)


@pytest.mark.slow
def test_a_batch_holds_the_test_set_of_one_run_at_a_time(monkeypatch):
    measured = []

    class Watched(_compute._Run):
        def drop_test_set(self):
            assert "_monitor" in vars(self)
            assert not any("_monitor" in vars(run) for run in measured)
            super().drop_test_set()
            measured.append(self)

    monkeypatch.setattr(_compute, "_Run", Watched)
    content = data({"model.scale": [0.3, 0.1], "task.noise": [0.1, 0.2]}, 1)
    computed(content | {"base": BASE | FLOWS["adam"]})
    assert len(measured) == 4


# Stopping and going on ------------------------------------------------------------------------

LASTING = data({"model.scale": [0.3, 0.1]}, 3, measure={"trajectories": True}) | {
    "base": BASE | {"flow": {"kind": "adam", "learning_rate": 0.01, "steps": 100},
                    "risk": {"kind": "sampled", "batch": 8},
                    "save": {"kind": "linear", "count": 51}}
}  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name != "manifest.json"}


def test_a_sweep_that_was_stopped_goes_on_and_gives_the_same_bits(monkeypatch, capsys):
    monkeypatch.setattr("iclflow.flows._descent_runs._CHUNK", 5)
    computed(LASTING, "whole")
    heard = 0

    class Killed(Exception):
        pass

    def dies(sweep, batch, folder, every, workshop, callback):
        def dies_in_the_middle(status):
            nonlocal heard
            heard += 1
            if heard % 13 == 0:
                raise Killed
            return callback(status)

        return compute_batch(sweep, batch, folder, every, workshop, dies_in_the_middle)

    words = ("sweep", written(LASTING), "--out", "stopped", "--checkpoint-every", "0")
    with monkeypatch.context() as patch:
        patch.setattr("iclflow.sweeps._engine.compute_batch", dies)
        for _ in range(2):
            with pytest.raises(Killed):
                command(*words, capsys=capsys)
    assert list(Path("stopped/parts").glob("*.checkpoint.safetensors"))
    assert command(*words, capsys=capsys)[0] == 0
    assert contents(Path("stopped")) == contents(Path("whole"))


def test_an_interrupt_keeps_what_is_done(monkeypatch, capsys):
    keep = SweepFolder.keep

    def pressed(folder, finished):
        keep(folder, finished)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SweepFolder, "keep", pressed)
        code, _, error = command("sweep", written(data()), "--out", "out", capsys=capsys)
    again = "`iclflow sweep out/sweep.toml --out out` resumes"
    assert code == 130 and f"2 of 6 runs are in out; {again}" in error
    assert len(list(Path("out/parts").glob("*.parquet"))) == 1
    _, rows = computed(data())
    assert [row[0] for row in rows] == list(range(6))


def test_a_batch_that_is_told_to_stop_writes_where_it_stands(monkeypatch):
    monkeypatch.setattr("iclflow.flows._descent_runs._CHUNK", 5)
    sweep, stop = parse_sweep(data(measure={"trajectories": True})), threading.Event()
    batches = batches_of(sweep)[:1]
    (whole,) = LocalEngine().compute(Job(sweep, batches, Path("whole"), 1e9))
    assert list(Path("whole").iterdir()) == []  # nothing was due

    def stopped(status):
        stop.set()
        return False

    with pytest.raises(Stopped):
        compute_batch(sweep, batches[0], Path("parts"), 1e9, ExperimentCache(), stopped)
    assert stop.is_set() and len(list(Path("parts").iterdir())) == 1
    (again,) = LocalEngine().compute(Job(sweep, batches, Path("parts"), 1e9))
    assert again.rows == whole.rows and again.trajectories == whole.trajectories


def test_every_core_takes_a_batch_and_the_rows_stay_the_same(monkeypatch):
    sweep = parse_sweep(data())
    batches = batches_of(sweep)
    device = jax.local_devices()[0]
    compute = lambda: LocalEngine().compute(Job(sweep, batches, Path("parts"), 1e9))
    monkeypatch.setattr("iclflow.sweeps._engine._places", lambda: [device])
    alone = {each.batch.number: each.rows for each in compute()}
    both, meeting = set(), threading.Barrier(2, timeout=60)

    def met(sweep, batch, folder, every, workshop, callback):
        both.add(threading.current_thread().name)
        callback(Status(0.0, 0.0, 0, 0.0))  # as one that has compiled what it needs
        if batch.number < 2:
            meeting.wait()  # goes on only if both are under way at once
        return compute_batch(sweep, batch, folder, every, workshop, callback)

    monkeypatch.setattr("iclflow.sweeps._engine.compute_batch", met)
    monkeypatch.setattr("iclflow.sweeps._engine._places", lambda: [device] * 2)
    assert {each.batch.number: each.rows for each in compute()} == alone
    assert len(both) == 2


def test_one_batch_compiles_before_others_begin(monkeypatch):
    sweep, events = parse_sweep(data()), []

    def compiling(sweep, batch, folder, every, workshop, callback):
        events.append(f"{batch.number} begins")
        if batch.number == 0:
            time.sleep(0.2)
            events.append("0 has compiled")
        return compute_batch(sweep, batch, folder, every, workshop, callback)

    monkeypatch.setattr("iclflow.sweeps._engine.compute_batch", compiling)
    monkeypatch.setattr("iclflow.sweeps._engine._places", lambda: jax.local_devices()[:1] * 2)
    engine = LocalEngine()
    assert len(list(engine.compute(Job(sweep, batches_of(sweep), Path("parts"), 1e9)))) > 1
    assert events[:2] == ["0 begins", "0 has compiled"]


def test_a_sweep_that_is_there_is_found_at_once(no_computing, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr("iclflow.sweeps._engine.compute_batch", compute_batch)
        computed(data())
        capsys.readouterr()
    before = contents(Path("out"))
    assert set(before) == {"sweep.toml", "results.parquet"}
    code, out, _ = command("sweep", "small.toml", "--out", "out", "--json", capsys=capsys)
    answer = json.loads(out)
    assert code == 0 and not answer["written"] and answer["results"] == {"finished": 6}
    assert contents(Path("out")) == before
    # The resolved file in the folder is the same sweep.
    assert command("sweep", "out/sweep.toml", "--out", "out", capsys=capsys)[0] == 0
    other = written(data(seeds=2), "other.toml")
    code, _, error = command("sweep", other, "--out", "out", capsys=capsys)
    assert code == 2 and "holds another sweep" in error
    table = Path("out/results.parquet")
    table.write_bytes(before["results.parquet"][:-1] + b"x")
    for words in (("sweep", "small.toml", "--out", "out"), ("query", "out")):
        code, _, error = command(*words, capsys=capsys)
        assert code == 2 and "results.parquet` does not match its hash" in error
    monkeypatch.setattr("iclflow.sweeps._engine.compute_batch", compute_batch)
    fresh = ("sweep", "small.toml", "--out", "out", "--fresh")
    code, _, error = command(*fresh, capsys=capsys)
    assert code == 2 and "results.parquet` was not written by iclflow, or was changed" in error
    table.unlink()
    assert command(*fresh, capsys=capsys)[0] == 0
    assert contents(Path("out")) == before


def test_a_damaged_part_is_named_and_nothing_is_lost(monkeypatch, capsys):
    content = data()
    sweep = parse_sweep(content)
    with SweepFolder.lock(Path("out"), sweep) as folder:
        batch = batches_of(sweep)[0]
        workshop = ExperimentCache()
        part = folder.keep(
            compute_batch(sweep, batch, folder.parts, 1.0, workshop, lambda status: True)
        )
    code, out, error = command("query", "out", "SELECT run FROM results", "--csv", capsys=capsys)
    assert (code, out) == (0, "run\n0\n1\n") and "not complete" in error
    whole = part.read_bytes()
    part.write_bytes(whole[:-1] + b"x")
    code, _, error = command("sweep", written(content), "--out", "out", capsys=capsys)
    assert code == 2 and f"`{part}` does not match its hash" in error
    part.write_bytes(whole)
    assert command("sweep", "small.toml", "--out", "out", capsys=capsys)[0] == 0
    assert not Path("out/parts").exists()


def test_one_process_at_a_time(capsys):
    sweep, codes = parse_sweep(data()), []
    file = written(data())
    with SweepFolder.lock(Path("out"), sweep):
        second = threading.Thread(
            target=lambda: codes.append(main(["sweep", str(file), "--out", "out"]))
        )
        second.start()
        second.join(0.3)
        assert second.is_alive()
    second.join(60)
    assert codes == [0]


def test_harm_to_any_file_of_a_sweep_is_one_sentence_and_loses_nothing(capsys):
    content = data(seeds=1, measure={"trajectories": True})
    computed(content)
    before = {**contents(Path("out")), "manifest.json": b""}
    assert len(before) == 4
    words = ("sweep", "small.toml", "--out", "out")
    for name in before:
        for harm in harmed(Path("out") / name):
            now = contents(Path("out"))
            for again in (words, ("runs", "verify", "--root", "out")):
                code, _, error = command(*again, capsys=capsys)
                assert (code, error.count("\n")) == (2, 1) and "`out" in error, (name, harm, again)
            if name in ("manifest.json", "results.parquet"):
                assert command("query", "out", "SELECT 1", capsys=capsys)[0] == 2, (name, harm)
            assert contents(Path("out")) == now
    assert command(*words, capsys=capsys)[0] == 0
    assert command("runs", "verify", "--root", "out", capsys=capsys)[0] == 0


def begun(content, folder="out") -> None:
    """A sweep that died with its first batch done and its second one under way."""
    sweep = parse_sweep(content)
    with SweepFolder.lock(Path(folder), sweep) as place:
        first, second = batches_of(sweep)[:2]
        options = (place.parts, 0.0, ExperimentCache())
        place.keep(compute_batch(sweep, first, *options, lambda status: True))
        with pytest.raises(Stopped):
            compute_batch(sweep, second, *options, lambda status: False)


@pytest.mark.slow
def test_harm_to_any_file_of_a_sweep_under_way_is_one_sentence_and_loses_nothing(capsys):
    content = data(seeds=2, measure={"trajectories": True})
    computed(content, "whole")
    begun(content)
    before = contents(Path("out"))
    kinds = {re.sub(r"[0-9a-f-]{4,}", "N", name) for name in before}
    assert kinds == {
        *("sweep.toml", "parts/N.parquet", "parts/N.checkpoint.safetensors"),
        *("trajectories/N.safetensors", MARKER),
    }
    words = ("sweep", "small.toml", "--out", "out")
    for name in sorted(before.keys() - {"sweep.toml", MARKER}):
        for harm in harmed(Path("out") / name):
            code, _, error = command(*words, capsys=capsys)
            assert (code, error.count("\n")) == (2, 1) and f"`out/{name}`" in error, (name, harm)
            if "checkpoint" not in name:
                code, _, error = command("runs", "verify", "--root", "out", capsys=capsys)
                assert (code, error.count("\n")) == (2, 1) and f"`out/{name}`" in error
    assert contents(Path("out")) == before
    assert command(*words, capsys=capsys)[0] == 0
    assert contents(Path("out")) == contents(Path("whole"))


def test_a_sweep_found_again_under_another_name_stays_as_it_is(no_computing, monkeypatch, capsys):
    monkeypatch.setattr("iclflow.sweeps._engine.compute_batch", compute_batch)
    computed(data())
    before = contents(Path("out"))
    renamed = written(data(name="renamed"), "renamed.toml")
    for _ in range(2):
        assert command("sweep", renamed, "--out", "out", capsys=capsys)[0] == 0
    assert contents(Path("out")) == before


def test_a_full_disk_is_one_sentence_and_keeps_the_batches_that_are_done(monkeypatch, capsys):
    computed(data(), "whole")
    capsys.readouterr()
    real = os.fsync

    def full(handle):
        if Path(os.readlink(f"/proc/self/fd/{handle}")).name.startswith(".results.parquet"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    words = ("sweep", "small.toml", "--out", "out")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        code, out, error = command(*words, capsys=capsys)
    assert (code, out) == (2, "") and "No space left on device" in error and error.count("\n") == 1
    assert len(list(Path("out/parts").iterdir())) == 3
    monkeypatch.setattr("iclflow.sweeps._engine.compute_batch", None)
    assert command(*words, capsys=capsys)[0] == 0
    assert contents(Path("out")) == contents(Path("whole"))


def test_a_sweep_that_is_there_is_shown_from_a_disk_that_cannot_be_written(monkeypatch, capsys):
    computed(data(), "there")
    before = contents(Path("there"))
    monkeypatch.setattr("iclflow.sweeps._engine.compute_batch", None)

    def read_only(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("iclflow.store._result_folder.tempfile.TemporaryFile", read_only)
    code, out, _ = command("sweep", "small.toml", "--out", "there", capsys=capsys)
    assert code == 0 and "was already in there" in out and contents(Path("there")) == before
    code, out, error = command("sweep", "small.toml", "--out", "out", capsys=capsys)
    assert (code, out) == (2, "") and error.count("\n") == 1
    assert "`out` cannot be written to: Read-only file system" in error and not Path("out").exists()


@pytest.mark.slow
def test_tidying_a_sweep_removes_what_is_left_and_the_rest_on_request_alone(capsys):
    begun(data(), "sweeps/begun")
    computed(data(seeds=2), "sweeps/whole")
    # Somebody's own, with nothing of ours beside it.
    Path("sweeps/mine").mkdir()
    written(data(), "sweeps/mine/sweep.toml")
    whole, parts = contents(Path("sweeps/whole")), Path("sweeps/begun/parts")
    (checkpoint,), (part,) = parts.glob("0001-0.checkpoint.*"), parts.glob("0000-*.parquet")
    left = {
        parts / ".rows.json.iclflow-abcdefgh.part": b"left",
        Path("sweeps/begun", LOCK): b"",
        parts / "0000-0.checkpoint.safetensors": checkpoint.read_bytes(),
        Path("sweeps/whole/parts", part.name): part.read_bytes(),
    }
    # Somebody else's, though they are called nearly as ours are.
    mine = ("2024-results.parquet", "2a-x.parquet", "0000-0123456789abcdef.parquet", "0000.part")
    mine = [Path("sweeps/whole/parts", name) for name in mine] + [Path("sweeps/whole/.lock")]
    for path, content in left.items() | {path: b"mine" for path in mine}.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    begun_files = contents(Path("sweeps/begun")).keys() - {
        str(path.relative_to("sweeps/begun")) for path in list(left)[:3]
    }
    code, out, _ = command("runs", capsys=capsys)
    assert code == 0 and "mine" not in out
    assert re.search(r"sweeps/begun +unfinished +– +1", out)
    assert re.search(r"sweeps/whole +complete +4 +2", out)
    tidy = lambda *flags: json.loads(
        command("runs", "gc", "--yes", "--json", *flags, capsys=capsys)[1]
    )
    with SweepFolder.lock(Path("sweeps/busy"), parse_sweep(data(seeds=4))):
        removed = tidy("--stopped", "--root", "sweeps/busy")
        assert removed["busy"] == ["sweeps/busy"] and not removed["sweeps"]
    shutil.rmtree("sweeps/busy")
    removed = tidy()
    assert sorted(removed["files"]) == sorted(map(str, left)) and not removed["sweeps"]
    assert all(path.read_bytes() == b"mine" for path in mine)
    for path in mine:
        path.unlink()
    Path("sweeps/whole/parts").rmdir()
    assert contents(Path("sweeps/whole")) == whole
    assert contents(Path("sweeps/begun")).keys() == begun_files
    assert "Nothing to remove" in command("runs", "gc", capsys=capsys)[1]
    assert tidy("--stopped")["sweeps"] == ["sweeps/begun"]
    assert sorted(path.name for path in Path("sweeps").iterdir()) == ["mine", "whole"]


def test_a_sweep_that_an_older_version_left_unfinished_goes_on(capsys):
    content = data(seeds=2, measure={"trajectories": True})
    computed(content, "whole")
    begun(content)
    # That had no marker; it died after trajectories, and before the part that vouches for them.
    Path("out", MARKER).unlink()
    Path("out/.lock").touch()
    shutil.copy("whole/trajectories/0001.safetensors", "out/trajectories")
    (listed,) = list_sweeps(Path("out"))
    assert (listed.status, listed.batches) == ("unfinished", 1)
    assert command("sweep", "small.toml", "--out", "out", capsys=capsys)[0] == 0
    Path("out/.lock").unlink()
    assert contents(Path("out")) == contents(Path("whole"))


def test_a_sweep_whose_folder_is_removed_says_so_and_does_not_make_it_again(monkeypatch, capsys):
    def before(sweep, batch, folder, every, workshop, callback):
        shutil.rmtree("out", ignore_errors=True)
        return compute_batch(sweep, batch, folder, every, workshop, callback)

    def after(*arguments):
        found = compute_batch(*arguments)
        shutil.rmtree("out", ignore_errors=True)
        return found

    monkeypatch.setattr("iclflow.sweeps._engine._places", lambda: jax.local_devices()[:1])
    for removes in (before, after):
        monkeypatch.setattr("iclflow.sweeps._engine.compute_batch", removes)
        code, out, error = command("sweep", written(data()), "--out", "out", capsys=capsys)
        assert (code, out) == (2, "") and "`out` was removed, or emptied, while" in error
        assert error.count("\n") == 1 and not Path("out").exists()


def test_a_folder_with_something_else_is_refused(no_computing, capsys):
    Path("out").mkdir()
    Path("out/mine.txt").write_text("mine")
    code, _, error = command("sweep", written(data()), "--out", "out", capsys=capsys)
    assert code == 2 and "holds something that is not a sweep" in error
    code, _, error = command("sweep", "small.toml", "--out", "small.toml", capsys=capsys)
    assert code == 2 and "is a file" in error
    assert Path("out/mine.txt").read_text() == "mine"


# Measurements ---------------------------------------------------------------------------------


@pytest.fixture
def few_sequences(monkeypatch):
    """Measurements from few sequences: their columns do not depend on how many there are."""
    room = "iclflow.sweeps._named_measurements"
    for name, value in (("_BAYES_COUNT", 500), ("_FRESH_COUNT", 1000), ("_OF_TASKS", {})):
        monkeypatch.setattr(f"{room}.{name}", value)
    few = partial(which_algorithm, count=500)
    monkeypatch.setattr(f"{room}.which_algorithm", few)


@pytest.mark.slow
def test_every_measurement_gives_its_columns_or_a_reason(few_sequences):
    linear = prepare(parse_config(BASE | {"model": {"kind": "separate", "heads": 2, "scale": 0.5}}))
    tasks = {"kind": "multi_task", "coordinates": [[0], [1]], "context": 16}
    several = prepare(
        parse_config({
            "task": tasks,
            "model": {"kind": "multi_blind", "heads": 2, "scale": 0.5},
            "risk": {"kind": "large_context"},
            "flow": DESCENT,
        })
    )  # fmt: skip
    few = {"kind": "finite_tasks", "eigenvalues": [0.5, 0.5], "tasks": 2, "noise": 0.1}
    recalling = prepare(parse_config(BASE | {"task": few}))
    experiments = linear, several, recalling
    trained = {experiment.config.hash: train(experiment) for experiment in experiments}
    for name, entry in MEASUREMENTS.items():
        assert entry.words.endswith(".") and entry.columns
        fits = next(e for e in experiments if entry.refuses(e.config) is None)
        run = trained[fits.config.hash]
        measured = FinishedRun(fits.config, run.final, fits.task, lambda: run, fits.floor)
        found = measure([name], measured)
        assert set(found) == {*entry.columns, "not_measured"}
        assert found.pop("not_measured") is None and None not in found.values(), name
        json.dumps(found, allow_nan=False)
    part = trained[linear.config.hash][:2]
    short = FinishedRun(linear.config, part.final, linear.task, lambda: part, lambda: None)
    found = measure(["floor", "plateaus"], short)
    assert found["plateaus"] is None and found["floor"] is None
    assert "floor: The smallest loss" in found["not_measured"]
    assert "plateaus: The run has 2 points" in found["not_measured"]


def test_measurements_are_listed(capsys):
    code, out, _ = command("sweep", "--measurements", capsys=capsys)
    assert code == 0 and all(name in out for name in MEASUREMENTS)
    code, out, _ = command("sweep", "--measurements", "--json", capsys=capsys)
    assert [each["name"] for each in json.loads(out)] == list(MEASUREMENTS)


# Asking and drawing ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_sweep_files(tmp_path_factory):
    axes = {"model.scale": [0.1, 0.2, 0.4], "task.noise": [0.1, 0.2]}
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr("iclflow.runtime._start.enable_compile_cache", lambda: None)
        computed(data(axes, 3), "sweeps/small-0")
    return folder


@pytest.fixture
def small_sweep(small_sweep_files, away_from_home):
    """A sweep, computed once, and its file in the folder of the test."""
    shutil.copytree(small_sweep_files, Path(), dirs_exist_ok=True)
    return "sweeps/small-0"


def test_tables_are_asked_in_sql_and_never_changed(small_sweep, capsys):
    before = contents(Path(small_sweep))
    query = 'SELECT model.scale, count(*) AS runs FROM results WHERE "task.noise" = 0.2 GROUP BY '
    query += "ALL ORDER BY 1"
    code, out, _ = command("query", "small", query, "--json", capsys=capsys)
    assert code == 0
    assert json.loads(out) == [{"model.scale": s, "runs": 3} for s in (0.1, 0.2, 0.4)]
    code, out, _ = command("query", small_sweep, query, capsys=capsys)
    assert code == 0 and "model.scale" in out and "0.4" in out
    # The overview: all columns by name, and of the first runs those that a reader looks for.
    code, out, _ = command("query", small_sweep, capsys=capsys)
    columns, table = out.split("\n\n")
    head = table.splitlines()[0].split()
    assert code == 0 and "hash (varchar)" in columns and "final_loss (double)" in columns
    assert head[0] == "run" and "final_loss" in head and head[-1] == "initial_loss"
    assert not {"hash", "not_measured"} & set(head)
    for wrong in (
        *("DROP TABLE results", "COPY results TO 'x.csv'", "SELECT 1; SELECT 2", ""),
        *("SELECT nothing FROM results", "SELEC", "SELECT * FROM 'small.toml'", "PRAGMA version"),
    ):
        code, out, error = command("query", small_sweep, wrong, capsys=capsys)
        assert (code, out) == (2, "") and error.count("\n") == 1, wrong
    assert contents(Path(small_sweep)) == before and not Path("x.csv").exists()
    for name in ("other", "small.toml"):
        assert command("query", name, "SELECT 1", capsys=capsys)[0] == 2


ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r"


def test_sql_that_never_ends_is_ended_by_its_limits(small_sweep, capsys):
    code, out, error = command("query", small_sweep, ENDLESS, "--timeout", "0.2", capsys=capsys)
    assert (code, out) == (2, "")
    sentence = "takes longer than 0.2 s: ask for less, or raise the timeout."
    assert error == f"iclflow: `query` = {shorten(ENDLESS)} {sentence}\n"
    large = "SELECT list(range) FROM range(20000000)"
    code, out, error = command("query", small_sweep, large, "--memory", "0.05", capsys=capsys)
    assert (code, out) == (2, "")
    assert "is too large: it needs more than 0.05 GiB of memory; raise this limit." in error
    ratio = f"(SELECT max(n) FROM ({ENDLESS}) AS r(n))"
    words = ("plot", small_sweep, "--x", ratio, "--y", "final_loss", "--timeout", "0.2")
    code, _, error = command(*words, capsys=capsys)
    assert code == 2 and "`--x` = '(SELECT max(n)" in error and sentence in error
    for flag in ("--timeout", "--memory"):
        code, _, error = command("query", small_sweep, flag, "-1", capsys=capsys)
        assert code == 2 and f"`{flag}` = -1.0: must be a number from 0 up." in error
        assert command("query", small_sweep, "SELECT 1", flag, "0", capsys=capsys)[0] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is of Linux")
def test_rows_that_would_fill_the_memory_are_refused_and_the_limit_is_lifted(small_sweep, capsys):
    before = resource.getrlimit(resource.RLIMIT_AS)
    text = "SELECT repeat('a', 1000000000)"
    code, _, error = command("query", small_sweep, text, "--memory", "0.05", capsys=capsys)
    assert code == 2 and "is too large" in error
    assert resource.getrlimit(resource.RLIMIT_AS) == before


@pytest.mark.skipif(sys.platform == "win32", reason="signals are of Unix")
def test_ctrl_c_ends_sql_at_once(small_sweep, capsys):
    interrupt = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    code, out, error = command("query", small_sweep, ENDLESS, capsys=capsys)
    interrupt.join()
    assert (code, out, error) == (130, "", "iclflow: interrupted.\n")


@pytest.mark.slow
def test_curves_and_phase_diagrams_are_drawn(small_sweep, capsys):
    table = Table(sweep_tables(Path(small_sweep))[0])
    for plot, kind in (
        (Plot("model.scale", "final_loss", "task.noise", log=["x"]), "line"),
        (Plot("task.noise", "final_loss", facet="model.scale", where="seed < 2"), "line"),
        (Plot("task.noise", "model.scale", "final_loss", log=["hue"]), "heat"),
    ):
        assert plot.kind_of(table) == kind
        assert plot.draw(table, "png").startswith(b"\x89PNG")
    words = ("plot", small_sweep, "--x", "model.scale", "--y", "final_loss * 2")
    code, out, _ = command(*words, "--out", "a.pdf", capsys=capsys)
    assert code == 0 and Path("a.pdf").read_bytes().startswith(b"%PDF") and "a.pdf" in out
    for wrong, sentence in (
        (("--log", "z"), "must be some of x, y and hue"),
        (("--out", "a.gif"), "must end in .png, .pdf or .svg"),
        (("--hue", "nothing"), "cannot be answered"),
        (("--where", "seed > 9"), "nothing to draw"),
        (("--y", "result"), "must be a column of numbers"),
        (("--kind", "heat"), "`--hue` is missing"),
        (("--x", "seed", "--log", "x"), "must be positive"),
    ):
        code, _, error = command(*words, *wrong, capsys=capsys)
        assert code == 2 and sentence in error and error.count("\n") == 1


def test_runs_that_ended_alike_are_counted_with_intervals(tmp_path):
    ends = ["['positive', 'negative']", "['negative', 'positive']", "['positive', 'positive']"]
    rows = [f"(2, 'finished', {roles})" for roles in ends] + ["(2, 'diverged', NULL)"]
    path = tmp_path / "results.parquet"
    values = f'(VALUES {", ".join(rows)}) AS t("model.heads", result, roles)'
    duckdb.sql(f"COPY (SELECT * FROM {values}) TO '{path}' (FORMAT parquet)")
    first, *others = emergence(Table([path]))
    assert (first.value, first.runs, first.of) == ("1 negative, 1 positive", 2, 4)
    assert (first.low, first.high) == pytest.approx((0.1500, 0.8500), abs=1e-4)  # Wilson, by hand
    assert {share.value for share in others} == {"2 positive", "none: diverged"}
    assert first.setting == {"model.heads": 2}
