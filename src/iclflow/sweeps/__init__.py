"""Sweeps: many runs of one config with swept settings, in one table."""

import importlib
from typing import TYPE_CHECKING

from ._table import Table as Table
from ._table import encode_part as encode_part

if TYPE_CHECKING:
    from ._batches import Batch as Batch
    from ._batches import batches_at_once as batches_at_once
    from ._batches import batches_of as batches_of
    from ._complete import CompletedSweep as CompletedSweep
    from ._complete import SweepResults as SweepResults
    from ._complete import complete as complete
    from ._complete import sweep as sweep
    from ._compute import FinishedBatch as FinishedBatch
    from ._compute import Stopped as Stopped
    from ._compute import check_ends as check_ends
    from ._compute import compute_batch as compute_batch
    from ._emergence import Share as Share
    from ._emergence import emergence as emergence
    from ._engine import BatchProgress as BatchProgress
    from ._engine import Engine as Engine
    from ._engine import Job as Job
    from ._engine import LocalEngine as LocalEngine
    from ._file import Sweep as Sweep
    from ._file import parse_sweep as parse_sweep
    from ._folder import SweepFolder as SweepFolder
    from ._folder import sweep_text as sweep_text
    from ._measurements import MEASUREMENTS as MEASUREMENTS
    from ._measurements import Measurement as Measurement
    from ._members import ExperimentCache as ExperimentCache
    from ._plot import Cell as Cell
    from ._plot import Plot as Plot
    from ._plot import phase_cells as phase_cells
    from ._ray import RayEngine as RayEngine
    from ._ray import connect_to_ray as connect_to_ray
    from ._trajectories import load_trajectory as load_trajectory

# Loaded on demand: whoever asks a table does not need JAX.
_HOMES = {
    **dict.fromkeys(("Batch", "batches_at_once", "batches_of"), "_batches"),
    **dict.fromkeys(("CompletedSweep", "SweepResults", "complete", "sweep"), "_complete"),
    **dict.fromkeys(("FinishedBatch", "Stopped", "check_ends", "compute_batch"), "_compute"),
    **dict.fromkeys(("Share", "emergence"), "_emergence"),
    **dict.fromkeys(("BatchProgress", "Engine", "Job", "LocalEngine"), "_engine"),
    **dict.fromkeys(("Sweep", "parse_sweep"), "_file"),
    **dict.fromkeys(("SweepFolder", "sweep_text"), "_folder"),
    **dict.fromkeys(("MEASUREMENTS",), "_named_measurements"),
    **dict.fromkeys(("Measurement",), "_measurements"),
    **dict.fromkeys(("ExperimentCache",), "_members"),
    **dict.fromkeys(("Cell", "Plot", "phase_cells"), "_plot"),
    **dict.fromkeys(("RayEngine", "connect_to_ray"), "_ray"),
    **dict.fromkeys(("load_trajectory",), "_trajectories"),
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
