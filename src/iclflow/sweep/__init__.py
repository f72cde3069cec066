"""Sweeps: many runs of one config with swept settings, in one table."""

# Loading these fills the registry of measurements.
from . import _curve_measurements as _curve_measurements
from . import _model_measurements as _model_measurements
from ._batches import Batch as Batch
from ._batches import batches_at_once as batches_at_once
from ._batches import batches_of as batches_of
from ._compute import Finished as Finished
from ._compute import Stopped as Stopped
from ._compute import check_ends as check_ends
from ._compute import compute_batch as compute_batch
from ._emergence import Share as Share
from ._emergence import emergence as emergence
from ._file import Sweep as Sweep
from ._file import parse_sweep as parse_sweep
from ._folder import SweepFolder as SweepFolder
from ._folder import sweep_tables as sweep_tables
from ._folder import sweep_text as sweep_text
from ._measurements import MEASUREMENTS as MEASUREMENTS
from ._measurements import Measurement as Measurement
from ._measurements import plain as plain
from ._members import Workshop as Workshop
from ._plot import Plot as Plot
from ._table import Table as Table
from ._trajectories import load_trajectory as load_trajectory
