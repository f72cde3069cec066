"""What a sweep costs beside its runs: rows, the table, tasks of Ray."""

import contextlib
import importlib.util
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from iclflow.sweeps import FinishedBatch, SweepFolder, batches_of, parse_sweep

from ._machine import peak_memory
from ._row import Row
from ._small_sweeps import Flow, computed, flow_sweep, workers

TABLE = "around the runs"


def table_costs(few: int, many: int) -> tuple[dict[str, float], list[Row]]:
    """What rows cost, from sweeps of `few` and of `many` flows that end at once: seconds of the
    driver a `row`, of the `join` a row, and `row_bytes`."""
    found, peaks = [], []
    for count in (few, many):
        data = flow_sweep(Flow(2, 1, end=1e-3, points=2), count, min(256, few))
        found.append(_row_costs(data))
        peaks.append(peak_memory())
    costs = found[-1]
    costs["row_bytes"] = (costs["bytes"] - found[0]["bytes"]) / (many - few)
    size = costs["bytes"] / 2**20
    return costs, [
        Row(TABLE, "a row, by the driver", 1e6 * costs["row"], "µs",
            note="settings read, batches cut, parts written"),
        Row(TABLE, "a row, when parts are joined", 1e6 * costs["join"], "µs",
            note=f"{many} rows; {size / (costs['join'] * many):.2g} MiB of table a second"),
        Row(TABLE, "a row of the table", costs["row_bytes"], "bytes",
            note=f"from tables of {few} and {many} rows"),
        Row(TABLE, "a run without steps", 1e3 * costs["run"], "ms",
            note="all of it, on one worker; most is Python"),
        Row(TABLE, f"memory of {many} runs beyond that of {few}", (peaks[1] - peaks[0]) / 2**20,
            "MiB", note="of the peak of this process"),
    ]  # fmt: skip


def _row_costs(data: dict[str, Any]) -> dict[str, float]:
    clock, count = time.perf_counter, data["seeds"]
    with tempfile.TemporaryDirectory() as folder:
        begin = clock()
        sweep = parse_sweep(data)
        batches_of(sweep)
        read = clock() - begin
        with SweepFolder.lock(Path(folder) / "sweep", sweep) as kept:
            begin = clock()
            finished: list[FinishedBatch] = list(computed(sweep, kept.parts))
            all_there = clock()
            parts = {done.batch.number: kept.keep(done) for done in finished}
            written = clock()
            kept.complete([parts[number] for number in sorted(parts)], {})
            joined = clock()
            size = (kept.path / "results.parquet").stat().st_size
    return {
        "row": (read + written - all_there) / count,
        "join": (joined - written) / count,
        "run": (all_there - begin) * workers() / count,
        "bytes": float(size),
    }


def task_cost(tasks: int, rows: int) -> tuple[float | None, Row]:
    """Seconds that the driver spends on a task of Ray that answers with the rows of a batch."""
    name = "a task of Ray"
    if importlib.util.find_spec("ray") is None:
        return None, Row(TABLE, name, None, note="This row needs Ray: install `iclflow[ray]`.")
    import ray

    from iclflow.sweeps import connect_to_ray

    row = {"run": 0, "seed": 0, "hash": "0" * 64, "result": "finished", "last_time": 1.0}
    row |= {"initial_loss": 1.0, "final_loss": 0.5, "not_measured": None}
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        # Ray's processes are programs of their own: what is forked is replaced at once.
        warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
        stack.enter_context(connect_to_ray(None))
        answer = ray.remote(num_cpus=1)(lambda number: [row | {"run": number}] * rows)
        ray.get(answer.remote(0))  # starts a process
        begin = time.perf_counter()
        waiting = [answer.remote(number) for number in range(tasks)]
        for reference in waiting:
            ray.get(reference)
        seconds = (time.perf_counter() - begin) / tasks
    note = f"handed out and answered with {rows} rows, {tasks} of them, on this machine"
    return seconds, Row(TABLE, name, 1e3 * seconds, "ms", note=note)
