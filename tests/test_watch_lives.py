"""Trainings that are watched: killed and taken up again, and what looking at them costs."""

import json
import random
import signal
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import iclflow as icl

# A training that saves its state now and then, and is watched at steps that do not fall on these.
PROGRAM = """
import json, os, sys, time, warnings
import numpy as np
import iclflow as icl
warnings.simplefilter("ignore")
folder, state = sys.argv[1], sys.argv[1] + ".state"
task = icl.LinearRegression(eigenvalues=[1.0, 0.5], context=6, noise=0.1)
step, size = json.load(open(state)) if os.path.exists(state) else (0, 0.0)

def predict(x, y, query):
    if 100 <= step < 140:
        raise RuntimeError(f"out of luck at {step // 20}")
    return size * np.einsum("bnd,bn,bd->b", x, y, query) / x.shape[1]

watch = icl.watch(task, predict, every=3, count=50, out=folder)
print("begun", flush=True)
while step <= 400:
    watch(step)
    size += 0.01 * (0.7 - size)
    step += 1
    if step % 35 == 0:
        with open(state + ".new", "w") as file:
            json.dump([step, size], file)
        os.replace(state + ".new", state)
    time.sleep(0.004)
"""


def record(folder: Path) -> tuple[list[dict], str]:
    """Looks without their times, and problems."""
    lines = (folder / "looks.jsonl").read_text().splitlines()
    looks = [json.loads(line) | {"seconds": None} for line in lines]
    return looks, (folder / "problems.jsonl").read_text()


def start(folder: Path) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.slow
def test_a_training_that_is_killed_and_taken_up_has_the_record_of_an_undisturbed_one(tmp_path):
    with start(tmp_path / "whole") as whole:
        assert whole.wait(120) == 0
    rng, kills = random.Random(0), 0
    while True:
        process = start(tmp_path / "killed")
        try:
            process.wait(rng.uniform(0.1, 1.0) if kills < 4 else 120)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        code = process.wait(120)
        if process.stdout is not None:
            process.stdout.close()
        if code == 0:
            break
    assert kills >= 2, "it ended before it could be killed"
    looks, problems = record(tmp_path / "whole")
    assert record(tmp_path / "killed") == (looks, problems)
    every = [step for step in range(0, 401, 3) if not 100 <= step < 140]
    assert [look["step"] for look in looks] == every
    assert problems.count("\n") == 13 and "out of luck at 5" in problems


def test_problems_are_those_of_an_undisturbed_training_too(tmp_path):
    """In one process: a training goes back to a step before its problems."""
    task = icl.LinearRegression(eigenvalues=[1.0, 0.5], context=6, noise=0.1)

    def run(folder: Path, *parts: range) -> str:
        for steps in parts:
            with icl.watch(task, lambda x, y, q: None, every=1, count=50, out=folder) as watch:
                for step in steps:
                    good = lambda x, y, q: np.zeros(len(x))
                    watch._predict = good if step % 3 else (lambda x, y, q: None)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        watch(step)
                problems = watch.problems
        text = (folder / "problems.jsonl").read_text()
        assert problems == {step: words for step, words in map(json.loads, text.splitlines())}
        return text

    cut = run(tmp_path / "cut", range(0, 8), range(3, 10))
    assert cut == run(tmp_path / "whole", range(0, 10))
    assert [json.loads(line)[0] for line in cut.splitlines()] == [0, 3, 6, 9]


# What it costs ----------------------------------------------------------------------------------


def burn(seconds: float) -> None:
    """Computes for so long, on one core, as a step of a training does."""
    weights, end = np.ones((96, 96)), time.process_time() + seconds
    while time.process_time() < end:
        weights = weights @ weights / 96


def times_of_looks(seconds: float, **schedule) -> tuple[list[float], float]:
    """The seconds that each look takes in a training of about so many, and those of all of it. A
    step takes 10 ms, and the predictions of a look 60 ms."""
    task = icl.LinearRegression(eigenvalues=[1.0, 1.0], context=6, noise=0.1)

    def predict(x, y, query):
        burn(0.06)
        return 0.5 * np.einsum("bnd,bn,bd->b", x, y, query) / x.shape[1]

    watch = icl.watch(task, predict, lengths=[6], **schedule)
    begun, looks = time.perf_counter(), []
    for step in range(int(seconds / 0.01) + 1):
        burn(0.01)
        before = time.perf_counter()
        if watch(step) is not None:
            looks.append(time.perf_counter() - before)
    return looks, time.perf_counter() - begun


@pytest.mark.timed
def test_a_budget_of_time_is_kept():
    looks, whole = times_of_looks(15, budget=0.05)
    print(f"{len(looks)} looks took {100 * sum(looks) / whole:.2f} % of {whole:.1f} s")
    assert len(looks) >= 3
    # A look is due if one as long as those before fits; how long the last then takes is not known.
    assert sum(looks[:-1]) + min(looks[-1], max(looks[:-1])) < 0.05 * whole


@pytest.mark.timed
def test_fifty_log_spaced_looks_take_little_of_a_training_of_two_minutes():
    """An eighth of it: the first look compiles, and is one of fifty there. The median stands for
    the others: a pause of the machine in one of six looks would count eight times."""
    looks, whole = times_of_looks(15, looks=7, steps=1500)
    print(f"{len(looks)} looks of {[round(1000 * look) for look in looks]} ms in {whole:.1f} s")
    assert len(looks) == 7
    assert looks[0] + 49 * statistics.median(looks[1:]) < 0.03 * 8 * whole
