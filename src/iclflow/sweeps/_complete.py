"""`icl.sweep`: computes the missing batches of a sweep into one table."""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..config import Config, InputError, named, read_toml
from ..runtime import Progress, show_progress
from ..store import RESULTS, SWEEP, check_input, sweep_tables
from ..trajectory import Trajectory
from ._batches import Batch, batches_of
from ._compute import check_ends
from ._engine import Engine, Job, LocalEngine
from ._file import Sweep, parse_sweep
from ._folder import SweepFolder, sweep_text
from ._ray import RayEngine
from ._table import Table
from ._trajectories import load_trajectory

ENGINES: dict[str, Callable[[], Engine]] = {"local": LocalEngine, "ray": RayEngine}


class CompletedSweep(NamedTuple):
    """A complete sweep in its folder; `written` says whether this call completed it."""

    folder: Path
    manifest: dict[str, Any]
    written: bool

    def table(self) -> Table:
        """Its results."""
        return Table([self.folder / RESULTS])


@dataclasses.dataclass(frozen=True)
class SweepResults:
    """The results of a complete sweep in its folder, for figures."""

    sweep: Sweep
    folder: Path

    @property
    def config(self) -> Config:
        """The config of the first run: it has all that the runs have in common."""
        return self.sweep.config(0)

    def rows(self, *columns: str) -> list[tuple]:
        """These columns, or SQL over them, for each run, in the order of the runs."""
        tables, _ = sweep_tables(self.folder)
        return Table(tables).ask(f"SELECT {', '.join(columns)} FROM results ORDER BY run")[1]

    def column(self, name: str) -> np.ndarray:
        """One column of numbers, in the order of the runs; NaN where there is none."""
        return np.asarray([np.nan if row[0] is None else row[0] for row in self.rows(name)])

    def trajectory(self, run: int) -> Trajectory:
        """One run of a sweep that keeps trajectories."""
        return load_trajectory(self.folder, run)


def sweep(
    spec: Sweep | Mapping[str, Any] | Path | str,
    engine: Engine | str = "local",
    *,
    out: Path | str | None = None,
    fresh: bool = False,
    checkpoint_every: float = 10.0,
    progress: Progress | bool | None = None,
    waiting: Callable[[], None] | None = None,
) -> Table:
    """Runs every combination of swept settings and seeds, and returns a table with one row per run.
    Raises an `InputError` if the sweep cannot be run.

    A sweep that is complete in `out` is returned at once, and one that was stopped or killed
    resumes, with the same bits.

    **Arguments:**

    - `spec`: a sweep, its plain data, or the path of its TOML file.
    - `engine`: where to compute: "local" (all devices of this machine), "ray", or an engine such
      as `RayEngine("auto")`.
    - `out`: the folder for the table; None keeps it in memory.
    - `fresh`: compute it even if it is complete.
    - `checkpoint_every`: seconds between two checkpoints of a batch.
    - `progress`: whether to show a bar (default: on a terminal), or a function that is called with
      what is being done, the share that is done, and some numbers as text.
    - `waiting`: called if another process computes this sweep, before waiting for it.

    Rows do not depend on the number of cores if NumPy uses one thread, as in the command: call
    `iclflow.runtime.use_one_thread()` before NumPy is loaded.

    **Example:**

    ```pycon
    >>> spec = {"seeds": 2, "base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "heads": 2, "scale": 0.1}},
    ...     "axes": {"task.noise": [0.0, 0.1]}, "measure": {"names": ["plateaus", "floor"]}}
    >>> table = icl.sweep(spec, progress=False)
    >>> query = "SELECT task.noise, count(*) AS runs FROM results GROUP BY ALL ORDER BY 1"
    >>> names, rows = table.ask(query)
    >>> rows
    [(0.0, 2), (0.1, 2)]
    ```
    """
    if isinstance(engine, str):
        if engine not in ENGINES:
            raise InputError(f"`engine` = {engine!r}: must be one of {', '.join(ENGINES)}.")
        engine = ENGINES[engine]()
    if isinstance(spec, Path | str):
        source, spec = spec, parse_sweep(named(read_toml(spec), spec))
        if out is not None:
            check_input(source, Path(out), {SWEEP: sweep_text(spec)})
    elif not isinstance(spec, Sweep):
        spec = parse_sweep(spec)
    options = {"fresh": fresh, "checkpoint_every": checkpoint_every, "waiting": waiting}
    with show_progress(spec.name, progress) as tell:
        if out is not None:
            return complete(spec, Path(out), engine, tell, **options).table()
        if spec.trajectories:
            raise InputError("`measure.trajectories` = true needs `out`, a folder to keep them in.")
        with tempfile.TemporaryDirectory() as folder:
            try:
                return complete(spec, Path(folder) / "sweep", engine, tell, **options).table()
            except KeyboardInterrupt:
                raise KeyboardInterrupt from None  # in memory nothing is kept


def complete(
    sweep: Sweep,
    path: Path,
    engine: Engine,
    progress: Progress,
    *,
    fresh: bool = False,
    checkpoint_every: float = 10.0,
    waiting: Callable[[], None] | None = None,
) -> CompletedSweep:
    """Computes the missing batches of a sweep in its folder. Arguments as in `icl.sweep`.

    The text of a `KeyboardInterrupt` says what was kept.

    **Example:**

    ```pycon
    >>> import pathlib, tempfile
    >>> spec = {"base": {
    ...     "task": {"kind": "linear_regression", "eigenvalues": [0.6, 0.4], "context": 31},
    ...     "model": {"kind": "separate", "heads": 2}, "flow": {"end": 10.0}}}
    >>> sweep = icl.sweeps.parse_sweep(spec)
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "sweep"
    >>> report = lambda doing, share, words: None
    >>> done = icl.sweeps.complete(sweep, folder, icl.sweeps.LocalEngine(), report)
    >>> done.written, (folder / "results.parquet").exists()
    (True, True)
    >>> results = icl.sweeps.SweepResults(sweep, folder)
    >>> len(results.column("final_loss"))
    1
    ```
    """
    begin, batches = time.perf_counter(), batches_of(sweep)
    check_ends(sweep, batches)

    def wait() -> None:
        progress(f"{sweep.name}: waiting for another process that computes this sweep", None, "")
        if waiting is not None:
            waiting()

    manifest = None if fresh else SweepFolder.find_complete(path, sweep)
    if manifest is not None:
        return CompletedSweep(path, manifest, written=False)
    with SweepFolder.lock(path, sweep, wait, fresh) as folder:
        manifest = folder.manifest
        if manifest is not None:  # another process completed it while this one waited
            folder.tidy()
            return CompletedSweep(path, manifest, written=False)
        parts = _compute_missing(sweep, batches, folder, engine, checkpoint_every, progress)
        progress(f"{sweep.name}: joining the results", None, "")
        statistics = {"seconds": time.perf_counter() - begin, **engine.facts()}
        manifest = folder.complete([parts[number] for number in sorted(parts)], statistics)
        return CompletedSweep(path, manifest, written=True)


def _compute_missing(
    sweep: Sweep,
    batches: Sequence[Batch],
    folder: SweepFolder,
    engine: Engine,
    every: float,
    progress: Progress,
) -> dict[int, Path]:
    """The parts of all batches, by number; those that are not in the folder are computed."""
    parts = folder.done()
    left = [batch for batch in batches if batch.number not in parts]
    shares = {number: 1.0 for number in parts}

    def update(number: int, share: float) -> None:
        shares[number] = share
        done = sum(len(batch.runs) * shares.get(batch.number, 0.0) for batch in batches)
        started = len(shares.keys() - parts.keys())
        state = f"{len(parts)} of {len(batches)} batches, {started} started"
        progress(sweep.name, done / len(sweep), state)

    finished = engine.compute(Job(sweep, left, folder.parts, every, update))
    try:
        with contextlib.closing(finished):
            for each in finished:
                parts[each.batch.number] = folder.keep(each)
                update(each.batch.number, 1.0)
    except KeyboardInterrupt:
        # Read again: Ctrl-C may have come after a part was written and before it was noted.
        parts = folder.done()
        kept = sum(len(batch.runs) for batch in batches if batch.number in parts)
        # Any engine resumes with the same rows; a cluster is asked for by its own options.
        where = "" if isinstance(engine, LocalEngine) else " (on this machine alone)"
        raise KeyboardInterrupt(
            f"{kept} of {len(sweep)} runs are in {folder.path}; `iclflow sweep "
            f"{folder.path / SWEEP} --out {folder.path}` resumes{where}"
        ) from None
    return parts
