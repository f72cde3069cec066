"""Small sweeps of one size each, timed through all that a sweep does."""

import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from iclflow.sweeps import (
    FinishedBatch,
    Job,
    LocalEngine,
    Sweep,
    SweepFolder,
    batches_of,
    parse_sweep,
)

from ._cost_model import adam_counts, flow_counts
from ._machine import machine
from ._row import Timing


class Flow(NamedTuple):
    """A size of gradient flow of separate attention."""

    dim: int
    heads: int
    end: float = 200.0
    points: int = 100
    context: int = 31

    @property
    def words(self) -> str:
        return f"D = {self.dim}, H = {self.heads}, to t = {self.end:g}, {self.points} points"

    def sweep(self, quick: bool = False) -> dict[str, Any]:
        """Seeds of this size: two batches a core, or one that fills a GPU."""
        card = jax.default_backend() != "cpu"
        batch = 2 if quick else 4096 if card else 128
        return flow_sweep(self, batch * workers() * (1 if quick or card else 2), batch)


class Adam(NamedTuple):
    """A size of Adam on fresh sequences, for softmax attention."""

    dim: int
    heads: int
    context: int
    batch: int
    steps: int
    points: int

    @property
    def words(self) -> str:
        return (
            f"D = {self.dim}, H = {self.heads}, L = {self.context}, batch {self.batch}, "
            f"{self.steps} steps, {self.points} points"
        )

    def sweep(self, quick: bool = False) -> dict[str, Any]:
        """Seeds of this size: one batch a worker."""
        many = 1 if quick else 2 if jax.default_backend() == "cpu" else 16
        model = {"kind": "merged", "activation": "softmax", "heads": self.heads, "scale": 0.01}
        base = {
            "task": _task(self.dim, self.context),
            "model": model,
            "risk": {"kind": "sampled", "batch": self.batch},
            "flow": {"kind": "adam", "learning_rate": 3e-3, "steps": self.steps},
            "save": {"kind": "linear", "count": self.points},
        }
        return {"name": "adam", "seeds": many * workers(), "batch": many, "base": base}


@dataclasses.dataclass(frozen=True)
class Measured:
    """A timed sweep of one size.

    **Fields:**

    - `timing`: seconds of the whole sweep, compiled, of each repeat.
    - `compiling`: seconds that its first call took beyond that.
    - `tries`, `points`, `stored`: of a run on average: tries of its solver, kept points, and bytes
      of its trajectory.
    """

    size: Flow | Adam
    runs: int
    timing: Timing
    compiling: float
    tries: float
    points: float
    stored: float

    @property
    def a_run(self) -> Timing:
        """Seconds of a run on one worker."""
        return self.timing.times(workers() / self.runs)

    @property
    def counts(self) -> dict[str, float]:
        """What a run of this size has how many of."""
        if isinstance(self.size, Flow):
            return flow_counts(self.size.dim, self.size.heads, self.tries, self.points)
        return adam_counts(*self.size)


def workers() -> int:
    """How many batches run at a time: one on each GPU, or on each core where there is none."""
    on_cores = jax.default_backend() == "cpu"
    return int(machine()["cores"]) if on_cores else jax.local_device_count()


def flow_sweep(size: Flow, seeds: int, batch: int) -> dict[str, Any]:
    """Gradient flows of one size that differ in their seed."""
    base = {
        "task": _task(size.dim, size.context),
        "model": {"kind": "separate", "heads": size.heads, "rank": 1, "scale": 0.1},
        "flow": {"end": size.end},
        "save": {"kind": "linear", "count": size.points},
    }
    return {"name": "flows", "seeds": seeds, "batch": batch, "base": base}


def _task(dim: int, context: int) -> dict[str, Any]:
    spectrum = [round(0.8**i, 6) for i in range(dim)]
    return {"kind": "linear_regression", "eigenvalues": spectrum, "context": context}


def measured(size: Flow | Adam, repeats: int, quick: bool = False) -> Measured:
    """Times the sweep of a size. Its first call compiles, and keeps trajectories, from which tries
    and bytes are counted."""
    sweep = size.sweep(quick)
    first, facts = _swept(sweep | {"measure": {"trajectories": True}})
    timing = Timing(tuple(_swept(sweep)[0] for _ in range(repeats)))
    return Measured(size, sweep["seeds"], timing, max(0.0, first - timing.median), *facts)


def _swept(data: dict[str, Any]) -> tuple[float, tuple[float, float, float]]:
    """Seconds of a sweep from its settings to its table; and tries, points and bytes a run."""
    begin = time.perf_counter()
    with written(parse_sweep(data)) as folder:
        seconds = time.perf_counter() - begin
        return seconds, _facts(sorted((folder / "trajectories").glob("*.safetensors")))


@contextlib.contextmanager
def written(sweep: Sweep) -> Iterator[Path]:
    """The folder of a sweep that is computed on all devices of this machine, its table written; it
    is removed in the end."""
    with tempfile.TemporaryDirectory() as folder:
        with SweepFolder.lock(Path(folder) / "sweep", sweep) as kept:
            parts = {done.batch.number: kept.keep(done) for done in computed(sweep, kept.parts)}
            kept.complete([parts[number] for number in sorted(parts)], {})
            yield kept.path


def computed(sweep: Sweep, folder: Path) -> Generator[FinishedBatch, None, None]:
    """The batches of a sweep, computed on all devices of this machine."""
    return LocalEngine().compute(Job(sweep, batches_of(sweep), folder, 10.0))


def _facts(files: Sequence[Path]) -> tuple[float, float, float]:
    from safetensors import safe_open

    tries, points = [], []
    for path in files:
        with safe_open(path, framework="numpy") as file:
            statistics = json.loads((file.metadata() or {})["iclflow"])["statistics"]
            points += file.get_tensor("counts").tolist()
        tries += [each.get("steps", 0) + each.get("rejected", 0) for each in statistics]
    if not points:  # none were asked for
        return 0.0, 0.0, 0.0
    stored = sum(path.stat().st_size for path in files) / len(points)
    return float(np.mean(tries)), float(np.mean(points)), stored
