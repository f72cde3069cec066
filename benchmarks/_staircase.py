"""The four-plateau run: exact gradient flow of separate attention, and the cascade beside it."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax.random as jr
import numpy as np

from iclflow.analysis import drop_times, plateaus
from iclflow.flows import gradient_flow
from iclflow.models import Attention
from iclflow.risks import risk
from iclflow.tasks import LinearRegression
from iclflow.theory import staircase
from iclflow.trajectory import Trajectory

from ._row import Bar, Row, Timing, measure

GROUP = "the four-plateau run"
SMALL_GROUP = "small initial weights"
CASCADE_GROUP = "the cascade"
_CONFIG = """\
name = "staircase"
[task]
kind = "linear_regression"
eigenvalues = [0.4, 0.3, 0.2, 0.1]
context = 31
[model]
kind = "separate"
heads = 4
scale = 1e-2
"""


def staircase_rows(repeats: int, cold: bool, judged: bool) -> list[Row]:
    """Seconds of the run, and how well its plateaus lie where theory puts them.

    **Arguments:**

    - `cold`: also time the command in a fresh process that has to compile everything.
    """
    first = measure(lambda: _flow(1e-2), 1)
    warm = measure(lambda: _flow(1e-2), repeats)
    run, predicted = _flow(1e-2), staircase(_task(), _model(1e-2)).levels
    found = np.asarray([plateau.level for plateau in plateaus(run)])
    levels = Row(GROUP, "plateau losses: largest relative error", None, note="not all were found")
    if found.shape == predicted.shape:
        error = float(np.max(np.abs(found / predicted - 1)))
        note = f"{len(found)} plateaus"
        bar = Bar(1e-4) if judged else None
        levels = Row(GROUP, "plateau losses: largest relative error", error, bar=bar, note=note)
    note = "D = 4, N = 31, H = 4, eigenvalues .4 .3 .2 .1, weights of size 1e-2"
    rows = [
        warm.row(GROUP, "gradient_flow, compiled", bar=Bar(2.0) if judged else None, note=note),
        first.row(GROUP, "first call, with compilation"),
        levels,
    ]
    return [*rows, _cold_row(judged)] if cold else rows


def small_rows(scales: tuple[float, ...], judged: bool) -> list[Row]:
    """Default runs from small weights: which solver was chosen, and how long it takes."""
    rows = []
    for scale in scales:
        first, run = _timed_flow(scale)
        again, _ = _timed_flow(scale)
        note = f'solver "auto" chose {run.statistics["solver"]}; {run.statistics["steps"]} steps'
        name = f"weights of size {scale:g}"
        rows += [
            again.row(SMALL_GROUP, name, bar=Bar(10.0) if judged else None, note=note),
            first.row(SMALL_GROUP, f"{name}, first call"),
        ]
    return rows


def cascade_rows(scale: float, calls: int, judged: bool) -> list[Row]:
    """The time of one call, and its error against the exact flow."""
    task, model = _task(), _model(scale)
    predicted = staircase(task, model)
    timing = measure(lambda: staircase(task, model), calls)
    measured = drop_times(_flow(scale), levels=predicted.levels)
    error = float(np.max(np.abs(predicted.drop_times / measured - 1)))
    size = f"weights of size {scale:g}"
    return [
        timing.row(
            CASCADE_GROUP, "one call, compiled", "µs", bar=Bar(1000.0) if judged else None,
            note="all drop times and levels from the weights at t = 0",
        ),
        Row(
            CASCADE_GROUP, "drop times: largest relative error", error,
            bar=Bar(1e-3) if judged else None, note=f"against the exact flow, {size}",
        ),
    ]  # fmt: skip


def _cold_row(judged: bool) -> Row:
    """The command, from the shell's point of view, without any compiled program kept before."""
    name = "`iclflow run`, fresh process, nothing compiled before"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "staircase.toml"
        config.write_text(_CONFIG)
        command = [sys.executable, "-m", "iclflow", "run", str(config), "--out", f"{folder}/out"]
        environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
        start = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        timing = Timing((time.perf_counter() - start,))
    if done.returncode != 0:
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        return Row(GROUP, name, None, note=f"The command failed: {words[-1]}")
    bar = Bar(15.0) if judged else None
    return timing.row(GROUP, name, bar=bar, note="with its figure and its folder")


def _timed_flow(scale: float) -> tuple[Timing, Trajectory]:
    runs = []
    timing = measure(lambda: runs.append(_flow(scale)), 1)
    return timing, runs[0]


def _flow(scale: float) -> Trajectory:
    model = _model(scale)
    return gradient_flow(model, risk(_task(), model), progress=False)


def _task() -> LinearRegression:
    return LinearRegression([0.4, 0.3, 0.2, 0.1], context=31)


def _model(scale: float) -> Attention:
    return Attention.separate(jr.key(0), dim=4, heads=4, scale=scale)
