"""Jobs of a worker: runs and sweeps on disk."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..config import InputError, parse_config, read_toml
from ..files import to_plain
from ..papers import VERDICTS
from ..store import SWEEP, sweep_tables
from ..sweeps import (
    MEASUREMENTS,
    Sweep,
    Table,
    load_trajectory,
    parse_sweep,
    phase_cells,
)
from ..trajectory import Trajectory
from ._channel import WorkerChannel
from ._job_run import report_whole_run

# Columns of a table that are neither swept settings nor measurements.
_OTHERS = ("run", "seed", "hash", "result", "not_measured")
# The types of columns that can be drawn, as DuckDB names them.
_NUMBERS = ("DOUBLE", "BIGINT", "BOOLEAN", "INTEGER")
_PLAIN = {
    "final_loss": "loss at the end",
    "initial_loss": "loss at the start",
    "last_time": "last moment",
}


def report_stored_run(
    channel: WorkerChannel, config: dict[str, Any], folder: str, number: int | None = None
) -> dict[str, Any]:
    """Reports a run on disk; with a number, one of a sweep that kept its trajectories."""
    run = Trajectory.load(folder) if number is None else load_trajectory(folder, number)
    return report_whole_run(channel, parse_config(config, stored=True), run)


def describe_sweep(channel: WorkerChannel, folder: str) -> dict[str, Any]:
    """The swept settings of a sweep, and what was measured."""
    sweep, table = _open(folder)
    swept = [{"name": name, "values": _to_json(_list_values(sweep, name))} for name in sweep.axes]
    if len(sweep.seeds) > 1:
        swept.append({"name": "seed", "values": list(sweep.seeds)})
    measures = [
        {"name": name, "words": name.replace("_", " "), "help": _describe_column(name, kind)}
        for name, kind in table.columns.items()
        if name not in sweep.axes and name not in _OTHERS and _is_drawable(table, name, kind)
    ]
    names = [axis["name"] for axis in swept]
    chosen = [measure["name"] for measure in measures if measure["name"] not in _PLAIN]
    defaults = {
        "x": names[0] if names else "seed",
        "y": names[1] if len(names) > 1 else None,
        "value": (chosen or ["final_loss"])[0],
    }
    return {
        "name": sweep.name,
        "swept": swept,
        "measures": measures,
        "runs": len(sweep),
        "defaults": defaults,
        "trajectories": sweep.trajectories,
    }


def draw_diagram(
    channel: WorkerChannel, folder: str, x: str, y: str | None, value: str
) -> dict[str, Any]:
    """One measurement over two swept settings, as `iclflow plot` computes it."""
    sweep, table = _open(folder)
    allowed = [*sweep.axes, "seed"]
    for name, given in {"x": x, "y": y}.items():
        if given is not None and given not in allowed:
            raise InputError(f"`{name}` = {given!r}: must be one of {', '.join(allowed)}.")
    kind = table.columns.get(value)
    if kind is None or value in _OTHERS or not _is_drawable(table, value, kind):
        raise InputError(f"`value` = {value!r} is not a measurement of this sweep.")
    notes: list[str] = []
    shown = f"\"{value}\" = 'holds'" if kind == "VARCHAR" else f'"{value}"'
    found, statistic = phase_cells(table, x, y, shown, notes.append)
    cells = {(_key(a), _key(b)): cell for (a, b), cell in found.items()}
    xs, ys = _list_values(sweep, x), [None] if y is None else _list_values(sweep, y)
    grid = [[cells.get((_key(a), _key(b))) for a in xs] for b in ys]
    most = max((cell.runs for cell in found.values()), default=0)
    others = [name for name in allowed if name not in (x, y)]
    words = "one run per cell"
    if most > 1:
        over = f" ({', '.join(others)})" if others else ""
        words = f"{'share of' if statistic == 'share' else 'median over'} {most} runs{over}"
    return {
        "x": {"name": x, "values": _to_json(xs)},
        "y": {"name": y, "values": _to_json(ys)},
        "z": [[to_plain(cell and cell.middle) for cell in line] for line in grid],
        "spread": [[to_plain(cell and cell.high - cell.low) for cell in line] for line in grid],
        "count": [[cell and cell.runs for cell in line] for line in grid],
        "words": ". ".join([words, *(note.rstrip(".") for note in notes)]),
    }


def find_cell(channel: WorkerChannel, folder: str, cell: dict[str, Any]) -> dict[str, Any]:
    """The first run of a sweep with these settings: its number, its config, and whether it was
    kept."""
    sweep, _ = _open(folder)
    wanted = {name: _key(value) for name, value in cell.items()}
    unknown = [name for name in wanted if name not in (*sweep.axes, "seed")]
    if unknown:
        raise InputError(f"`{unknown[0]}` is not swept: must be one of {', '.join(sweep.axes)}.")
    for number in range(len(sweep)):
        seed = sweep.seeds[number % len(sweep.seeds)]
        settings = {"seed": seed, **sweep.settings(number)}
        if all(_key(_to_json([settings[name]])[0]) == value for name, value in wanted.items()):
            kept = sweep.trajectories and _is_kept(folder, number)
            return {"number": number, "config": sweep.config(number).given(), "kept": kept}
    raise InputError("No run of this sweep has these settings.")


def _is_kept(folder: str, number: int) -> bool:
    try:
        load_trajectory(folder, number)
    except InputError:  # its batch is not done
        return False
    return True


def _open(folder: str) -> tuple[Sweep, Table]:
    files, _ = sweep_tables(Path(folder))
    return parse_sweep(read_toml(Path(folder) / SWEEP), stored=True), Table(files)


def _list_values(sweep: Sweep, name: str) -> list[Any]:
    """The values of a swept setting, each once, in the order of the sweep."""
    if name == "seed" and "seed" not in sweep.axes:
        return list(sweep.seeds)
    found: dict[str, Any] = {}
    for point in sweep.points:
        found.setdefault(_key(point.settings[name]), point.settings[name])
    return list(found.values())


def _to_json(values: Iterable[Any]) -> list[Any]:
    """Values of settings for JSON: numbers and texts as they are, anything else as text."""
    return [
        value if isinstance(value, str | int | float | bool | None) else json.dumps(value)
        for value in values
    ]


def _key(value: Any) -> str:
    """A key for a value that is the same in the file, in the table and on the page."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int | float):
        return f"{float(value):.12g}"  # Parquet and JSON may differ in the last digits
    if isinstance(value, str):
        return value
    return json.dumps(value if not hasattr(value, "tolist") else value.tolist())


def _is_drawable(table: Table, name: str, kind: str) -> bool:
    """Whether a column holds numbers, or verdicts, whose share can be drawn."""
    if kind in _NUMBERS:
        return True
    if kind != "VARCHAR":
        return False
    _, rows = table.ask(f'SELECT DISTINCT "{name}" FROM results LIMIT 8')
    return {row[0] for row in rows} <= {*VERDICTS, None}


def _describe_column(name: str, kind: str) -> str:
    if name in _PLAIN:
        return _PLAIN[name]
    for measurement in MEASUREMENTS.values():
        if name in measurement.columns:
            return measurement.words
    return f"share of runs in which {name} holds" if kind == "VARCHAR" else name


JOBS = {
    "stored": report_stored_run,
    "sweep": describe_sweep,
    "diagram": draw_diagram,
    "cell": find_cell,
}
