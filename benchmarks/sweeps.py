"""The benchmark of sweeps: `make bench ARGS=sweeps`."""

import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from iclflow.experiment import prepare, train
from iclflow.sweeps import Sweep, parse_sweep

from ._machine import peak_memory
from ._row import Bar, Row, Timing, measure
from ._small_sweeps import written
from ._suite import report

GROUP = "ten thousand gradient flows"
_SCALES, _RATIOS = 10, 10


def many_flows(seeds: int) -> dict[str, Any]:
    """Separate attention with D = 4: the size of the first weights, the ratio of neighbouring
    eigenvalues, and the seed. With 100 seeds it is `examples/sweeps/ten_thousand.toml`."""
    ratios = np.linspace(0.5, 0.95, _RATIOS)
    spectra = [[round(float(ratio**i), 6) for i in range(4)] for ratio in ratios]
    return {
        "name": "ten-thousand",
        "seeds": seeds,
        "base": {
            "task": {"kind": "linear_regression", "eigenvalues": spectra[0], "context": 31},
            "model": {"kind": "separate", "heads": 4},
            "flow": {"end": 200.0},
            "save": {"kind": "linear", "count": 100},
        },
        "axes": {
            "model.scale": {"from": 1e-3, "to": 1, "count": _SCALES, "log": True},
            "task.eigenvalues": spectra,
        },
    }


def run(progress: Callable[[str], None] | None = None, quick: bool = False) -> list[Row]:
    """Measures everything, each number beside its peer, and returns one row a number.

    **Arguments:**

    - `progress`: called with what comes next.
    - `quick`: few runs and no bars, in seconds; the default takes about a minute.
    """
    say = progress or (lambda title: None)
    sweep = parse_sweep(many_flows(2 if quick else 100))
    some = parse_sweep(many_flows(1 if quick else 10))
    alone, group = 5 if quick else 300, GROUP if not quick else f"{len(sweep)} gradient flows"
    say("the single run")
    _single(sweep, 0)  # what compiles is not compared: it is the same for one run and for all
    chosen = np.linspace(0, len(sweep) - 1, alone).astype(int)
    loop = Timing(tuple(measure(lambda i=i: _single(sweep, i), 1).median for i in chosen.tolist()))
    mean = sum(loop.seconds) / alone
    say("the sweep")
    first = _swept(some)
    before = peak_memory()
    times = [_swept(sweep) for _ in range(1 if quick else 3)]
    grown = peak_memory() - before
    swept = Timing(tuple(times))
    device = jax.local_devices()[0].device_kind
    return [
        Row(
            group, "single run, in a loop", 1e3 * mean, "ms", repeats=alone,
            spread=(1e3 * loop.spread[0], 1e3 * loop.spread[1]),
            note=f"mean over {alone} runs spread evenly over the sweep, built and trained",
        ),
        swept.row(group, "the whole sweep", note=f"{len(sweep)} runs on {device}, table written"),
        swept.times(1 / len(sweep)).row(group, "a run of the sweep", "ms"),
        Row(
            group, "loop over sweep", mean * len(sweep) / swept.median, "×", repeats=len(times),
            bar=None if quick else Bar(20.0, at_least=True),
        ),
        Row(
            group, "a tenth of the sweep, first call", first, "s",
            note=f"{len(some)} runs, with compilation",
        ),
        Row(
            group, "memory that the whole sweep takes beyond a tenth of it", grown / 2**20, "MiB",
            bar=None if quick else Bar(512.0), note="of the peak of this process",
        ),
    ]  # fmt: skip


def _single(sweep: Sweep, number: int) -> None:
    train(prepare(sweep.config(number)))


def _swept(sweep: Sweep) -> float:
    """Seconds of a sweep on all devices of this machine, from its settings to its table."""
    begin = time.perf_counter()
    with written(sweep):
        return time.perf_counter() - begin


def main(quiet: bool = False, quick: bool = False) -> dict[str, Any]:
    """Runs the benchmark, prints it as a table unless `quiet`, and returns it ready for JSON."""
    return report("sweeps", run, quiet, quick)
