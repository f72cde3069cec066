"""Runs that are stopped and taken up again: the same to the bit as if nothing had happened."""

import dataclasses
import errno
import inspect
import os
import shutil
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import deterministic_separate, four_components
from iclflow.flows import (
    Checkpoint,
    CheckpointError,
    SaveEvenly,
    adam,
    adam_rule,
    descend_ensemble,
    gradient_descent,
    gradient_flow,
    gradient_flow_ensemble,
    sgd_rule,
)
from iclflow.flows._checkpoint import _read, owner_of
from iclflow.flows._records import Records
from iclflow.models import Attention, Merged, Separate, Spectral
from iclflow.risks import exact_multi_risk, risk, spectral_risk
from iclflow.tasks import LinearRegression, MultiTaskRegression
from iclflow.trajectory import Result

TASK = four_components()
SEPARATE = deterministic_separate()


def drawn(seed: int, scale: float, *shapes: tuple[int, ...]) -> list[jax.Array]:
    """Random weights from NumPy: nothing is compiled for them."""
    rng = np.random.default_rng(seed)
    return [jnp.asarray(scale * rng.normal(size=shape)) for shape in shapes]


SOFTMAX = Attention(Merged.of(*drawn(1, 0.1, (2,), (2, 4, 4))), activation="softmax")
MANY = [Attention(Separate.of(*drawn(seed, 1e-2, (4,), (4, 4, 1), (4, 4, 1)))) for seed in range(3)]
EXACT = risk(TASK, SEPARATE)
SAMPLED = risk(TASK, SOFTMAX, "sampled", batch=4)
QUIET = {"progress": False}

RUNS = {
    "flow": lambda **o: gradient_flow(SEPARATE, EXACT, end=5000.0, **QUIET, **o),
    "implicit flow": lambda **o: gradient_flow(
        SEPARATE, EXACT, end=5000.0, solver="implicit", save=SaveEvenly(9), **QUIET, **o
    ),
    "descent": lambda **o: gradient_descent(SEPARATE, EXACT, 0.05, 5000, **QUIET, **o),
    "Adam on random sequences": lambda **o: adam(
        SOFTMAX, SAMPLED, 1e-3, 3000, key=jr.key(5), save=SaveEvenly(3001), **QUIET, **o
    ),
    "ensemble of flows": lambda **o: gradient_flow_ensemble(MANY, EXACT, end=5000.0, **QUIET, **o),
    "ensemble of descents": lambda **o: descend_ensemble(
        MANY, EXACT, adam_rule(1e-3), 3000, save=SaveEvenly(3001), **QUIET, **o
    ),
}


def same(one, other) -> bool:
    """Whether two runs agree to the bit in all that they hold but the seconds they took."""
    arrays = zip(
        jax.tree.leaves((one.times, one.losses, one.models)),
        jax.tree.leaves((other.times, other.losses, other.models)),
    )
    steps = [run.statistics.get("steps") for run in (one, other)]
    equal = all(np.array_equal(a, b) for a, b in arrays)
    return equal and one.result is other.result and steps[0] == steps[1]


def stopped(run, path, after: int):
    """A run that is cancelled after some chunks."""
    count = iter(range(after))
    return run(
        checkpoint=Checkpoint(path, every=0.0), callback=lambda _: next(count, None) is not None
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_was_stopped_twice_ends_with_the_same_bits(name, tmp_path):
    run, path = RUNS[name], tmp_path / "checkpoint.safetensors"
    whole = run()
    for after in (1, 0):
        stopped(run, path, after)
        assert path.exists()
    resumed = run(checkpoint=Checkpoint(path))
    pairs = zip(whole, resumed) if name.startswith("ensemble") else [(whole, resumed)]
    assert all(same(*pair) for pair in pairs)


def test_what_was_computed_before_the_stop_is_not_computed_again(tmp_path):
    run, path = RUNS["flow"], tmp_path / "checkpoint.safetensors"
    stopped(run, path, 1)
    tried = []
    run(checkpoint=Checkpoint(path), callback=lambda status: tried.append(status.steps))
    first = []
    run(callback=lambda status: first.append(status.steps))
    assert tried == first[2:]  # two chunks were done


def test_a_run_that_is_taken_up_at_its_end_is_there_at_once(tmp_path):
    # One chunk that is full, and one that is not; the checkpoint is of the last.
    for steps, count in ((40, 41), (3000, 2001)):
        path = tmp_path / f"{steps}.safetensors"
        run = lambda **o: gradient_descent(
            SEPARATE, EXACT, 0.05, steps, save=SaveEvenly(count), **QUIET, **o
        )
        whole = run()
        stopped(run, path, 100)
        again = run(checkpoint=Checkpoint(path, every=0.0))
        assert same(whole, again)


def test_a_flow_is_taken_up_after_its_solver_was_changed(tmp_path, monkeypatch):
    monkeypatch.setattr("iclflow.flows._flow_runs._EXPLICIT_TRIES", 600)
    run, path = RUNS["flow"], tmp_path / "checkpoint.safetensors"
    whole = run()
    assert whole.statistics["solver"] == "explicit then implicit"
    stopped(run, path, 2)
    assert same(whole, run(checkpoint=Checkpoint(path)))


def test_seconds_count_what_came_before_the_stop(tmp_path):
    run, path = RUNS["flow"], tmp_path / "checkpoint.safetensors"
    stopped(run, path, 1)
    # What the run had taken when it was written down: writing takes a while itself.
    before = _read(path)[1]["state"]["seconds"]
    assert run(checkpoint=Checkpoint(path)).statistics["seconds"] > before > 0


def test_ctrl_c_keeps_where_a_run_stands(tmp_path):
    def pressed(_):
        raise KeyboardInterrupt

    for name in ("flow", "descent"):
        run, path = RUNS[name], tmp_path / f"{name}.safetensors"
        whole = run()
        run(checkpoint=Checkpoint(path, every=1000.0), callback=pressed)
        assert path.exists()
        assert same(whole, run(checkpoint=Checkpoint(path)))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("options", [{}, {"end": 3000.0, "save": SaveEvenly(50)}])
@pytest.mark.slow
def test_lanes_that_were_filled_again_are_taken_up_to_the_bit(options, tmp_path, monkeypatch):
    # More runs than lanes, of very different lengths, some of which the implicit solver ends.
    monkeypatch.setattr("iclflow.flows._flow_runs._EXPLICIT_TRIES", 300)
    tasks = [LinearRegression([0.4, value], 31) for value in (0.1, 0.15, 0.2, 0.25, 0.3)]
    scales = (1e-3, 1.0, 0.3, 1e-4, 0.2)
    shapes = (2,), (2, 2, 1), (2, 2, 1)
    models = [Attention(Separate.of(*drawn(i, scale, *shapes))) for i, scale in enumerate(scales)]
    risks = [risk(task, model) for task, model in zip(tasks, models)]
    run = lambda **more: gradient_flow_ensemble(models, risks, at_once=2, **options, **more)
    whole, path, rounds = run(), tmp_path / "checkpoint.safetensors", 0
    assert {run.statistics["solver"] for run in whole} == {"explicit", "explicit then implicit"}
    resumed = stopped(run, path, 2)
    while Result.cancelled in resumed.results:
        resumed, rounds = stopped(run, path, 2), rounds + 1
    assert 1 < rounds < 50
    assert all(same(*pair) for pair in zip(whole, resumed))
    for one, alone, exact in zip(whole, models, risks):
        single = gradient_flow(alone, exact, **options)
        assert one.result is single.result
        # Without an end it is over within 1e-6 of the way down, which is some times the last loss.
        assert one.losses[-1] == pytest.approx(single.losses[-1], rel=1e-7 if options else 5e-6)


def interrupted_at(line: int, function, run):
    """What `run` gives if Ctrl-C is pressed at one line of `function`; None if it never comes
    there, or if the interrupt is passed on."""
    place, pressed = function.__code__, False

    def trace(frame, event, _):
        nonlocal pressed
        if frame.f_code is not place:
            return None
        if event == "line" and frame.f_lineno == line and not pressed:
            pressed = True
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return run() if not pressed else None
    except KeyboardInterrupt:
        return None
    finally:
        sys.settrace(before)


def test_ctrl_c_at_any_line_never_makes_a_run_seem_finished():
    model = deterministic_separate()
    exact = risk(four_components(), model)
    function = inspect.unwrap(Records.add)
    code = function.__code__
    lines = sorted({line for *_, line in code.co_lines() if line})[1:]
    ended = 0
    for descent in (False, True):
        run = lambda: gradient_flow(model, exact, end=1.0)
        if descent:
            run = lambda: gradient_descent(model, exact, 0.1, 20)
        for line in lines:
            found = interrupted_at(line, function, run)
            if found is not None:
                ended += 1
                assert found.result is Result.cancelled, line
    assert ended > 20


BLOCKS = MultiTaskRegression([[0, 1], [2, 3]], context=9)
SPECTRAL = Attention(Spectral.of([[0.1, 0.2]], [[0.3, 0.4]], BLOCKS.coordinates))


def test_fingerprints_see_classes_static_fields_and_blocks():
    closed, exact = spectral_risk(BLOCKS, SPECTRAL), exact_multi_risk(BLOCKS, SPECTRAL)
    other = MultiTaskRegression([[0, 1, 2], [3]], context=9, signal=np.asarray(BLOCKS.signal))
    wide = Attention(Spectral.of([[0.1, 0.2]], [[0.3, 0.4]], [[0, 1, 2], [3]]))
    wider = dataclasses.replace(SPECTRAL.circuits, width=9)
    parts = [
        (closed, SPECTRAL),
        (exact, SPECTRAL),
        (exact_multi_risk(BLOCKS, SPECTRAL, digits=5), SPECTRAL),
        (spectral_risk(other, wide), SPECTRAL),
        (closed, eqx.tree_at(lambda m: m.circuits, SPECTRAL, wider)),
        (closed, Attention(SPECTRAL.circuits, activation="linear")),
        *((closed, rule) for rule in (adam_rule(0.1), adam_rule(0.1, b1=0.5))),
        *((closed, rule) for rule in (sgd_rule(0.1), sgd_rule(0.1, 0.9))),
    ]
    prints = [owner_of(part) for part in parts]
    assert len(set(prints)) == len(prints)
    assert prints == [owner_of(part) for part in parts]


@pytest.mark.parametrize("other", ["end", "optimiser"])
def test_the_checkpoint_of_another_run_is_refused(other, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    if other == "end":
        stopped(RUNS["flow"], path, 0)
        run = lambda: gradient_flow(SEPARATE, EXACT, end=4e3, checkpoint=Checkpoint(path), **QUIET)
    else:
        first = lambda **o: adam(SEPARATE, EXACT, 1e-3, 3000, save=SaveEvenly(3001), **QUIET, **o)
        stopped(first, path, 0)
        run = lambda: adam(
            SEPARATE, EXACT, 1e-3, 3000, b1=0.5, save=SaveEvenly(3001), checkpoint=Checkpoint(path),
            **QUIET,
        )  # fmt: skip
    with pytest.raises(CheckpointError, match="belongs to another run"):
        run()


def test_a_checkpoint_serves_one_run(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors")
    checkpoint.load("one")
    with pytest.raises(CheckpointError, match="serves another run"):
        checkpoint.load("two")


def test_a_disk_that_is_full_stops_no_run(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("iclflow.flows._checkpoint.write_atomic", full)
    with pytest.warns(UserWarning, match="No space left on device.: the run goes on"):
        run = RUNS["flow"](checkpoint=Checkpoint(tmp_path / "c", every=0.0))
    assert run.result.ok


def test_a_folder_that_was_removed_is_not_made_again_for_a_checkpoint(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()

    def removes(status):
        if folder.exists():
            shutil.rmtree(folder)

    checkpoint = Checkpoint(folder / "checkpoint.safetensors", every=0.0, make_folder=False)
    run = RUNS["flow"](checkpoint=checkpoint, callback=removes)
    assert run.result.ok and not folder.exists()


@pytest.mark.parametrize("harm", ["flipped", "truncated"])
def test_a_damaged_checkpoint_is_refused_with_a_remedy(harm, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    stopped(RUNS["flow"], path, 0)
    content = bytearray(path.read_bytes())
    if harm == "flipped":
        content[-20] ^= 1
    else:
        content = content[:-20]
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="damaged: remove it"):
        RUNS["flow"](checkpoint=Checkpoint(path))


def test_nothing_is_written_more_often_than_asked(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    RUNS["flow"](checkpoint=Checkpoint(path, every=1000.0))
    assert not path.exists()
    with pytest.raises(ValueError, match="`every` = -1: must not be negative"):
        Checkpoint(path, every=-1)
