"""Sweeps: many runs of one config with swept settings, in one table."""

# Loading this fills the registry of measurements.
from . import _named_measurements as _named_measurements
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
from ._folder import sweep_tables as sweep_tables
from ._folder import sweep_text as sweep_text
from ._measurements import MEASUREMENTS as MEASUREMENTS
from ._measurements import Measurement as Measurement
from ._members import ExperimentCache as ExperimentCache
from ._plot import Cell as Cell
from ._plot import Plot as Plot
from ._plot import phase_cells as phase_cells
from ._ray import RayEngine as RayEngine
from ._ray import connect_to_ray as connect_to_ray
from ._table import Table as Table
from ._table import encode_part as encode_part
from ._trajectories import load_trajectory as load_trajectory
