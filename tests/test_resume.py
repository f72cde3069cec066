"""Runs that are stopped and taken up again: the same to the bit as if nothing had happened."""

import jax
import jax.random as jr
import numpy as np
import pytest

from helpers import deterministic_separate, four_components
from iclflow.flows import (
    Checkpoint,
    Linear,
    adam,
    adam_rule,
    descend_ensemble,
    gradient_descent,
    gradient_flow,
    gradient_flow_ensemble,
    init_many,
)
from iclflow.models import MergedKQ, SeparateKQ
from iclflow.risks import risk

TASK = four_components()
SEPARATE = deterministic_separate()
SOFTMAX = MergedKQ.init(jr.key(1), 4, 2, 0.1, activation="softmax")
MANY = init_many(lambda key: SeparateKQ.init(key, 4, 4, 1, 1e-2), jr.split(jr.key(3), 3))
EXACT = risk(TASK, SEPARATE)
SAMPLED = risk(TASK, SOFTMAX, "sampled", batch=4)
QUIET = {"progress": False}

RUNS = {
    "flow": lambda **o: gradient_flow(SEPARATE, EXACT, end=5000.0, **QUIET, **o),
    "flow that turns implicit": lambda **o: gradient_flow(
        SEPARATE, EXACT, end=5000.0, solver="implicit", save=Linear(9), **QUIET, **o
    ),
    "descent": lambda **o: gradient_descent(SEPARATE, EXACT, 0.05, 5000, **QUIET, **o),
    "Adam on random sequences": lambda **o: adam(
        SOFTMAX, SAMPLED, 1e-3, 3000, key=jr.key(5), save=Linear(3001), **QUIET, **o
    ),
    "ensemble of flows": lambda **o: gradient_flow_ensemble(MANY, EXACT, end=5000.0, **QUIET, **o),
    "ensemble of descents": lambda **o: descend_ensemble(
        MANY, EXACT, adam_rule(1e-3), 3000, save=Linear(3001), **QUIET, **o
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
    assert tried[0] == 3 * 512  # two chunks were done


def test_the_checkpoint_of_another_run_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    stopped(RUNS["flow"], path, 0)
    with pytest.raises(ValueError, match="belongs to another run"):
        gradient_flow(SEPARATE, EXACT, end=4000.0, checkpoint=Checkpoint(path), **QUIET)


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
    with pytest.raises(ValueError, match="damaged.*remove it|Remove it"):
        RUNS["flow"](checkpoint=Checkpoint(path))


def test_nothing_is_written_more_often_than_asked(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    RUNS["flow"](checkpoint=Checkpoint(path, every=1000.0))
    assert not path.exists()
    with pytest.raises(ValueError, match="`every` = -1: must not be negative"):
        Checkpoint(path, every=-1)
