"""Runs and sweeps on disk: folders that are complete or can resume, lists, and clean-up."""

import importlib
from typing import TYPE_CHECKING

from ._catalogue import STATUSES as STATUSES
from ._catalogue import StoredRun as StoredRun
from ._catalogue import filter_runs as filter_runs
from ._catalogue import find_run as find_run
from ._catalogue import has_own_config as has_own_config
from ._catalogue import list_runs as list_runs
from ._manifest import find_damage as find_damage
from ._manifest import provenance as provenance
from ._manifest import read_manifest as read_manifest
from ._names import CHECKPOINT as CHECKPOINT
from ._names import CONFIG as CONFIG
from ._names import MANIFEST as MANIFEST
from ._names import PARTS as PARTS
from ._names import RESULTS as RESULTS
from ._names import SWEEP as SWEEP
from ._names import SWEEP_HEADER as SWEEP_HEADER
from ._names import TRAJECTORIES as TRAJECTORIES
from ._result_folder import check_folder as check_folder
from ._result_folder import check_free as check_free
from ._result_folder import check_input as check_input
from ._result_folder import config_text as config_text
from ._result_folder import is_empty as is_empty
from ._result_folder import refuse_others as refuse_others
from ._result_folder import result_folder as result_folder
from ._sweeps import StoredSweep as StoredSweep
from ._sweeps import find_part_damage as find_part_damage
from ._sweeps import find_sweep_damage as find_sweep_damage
from ._sweeps import holds_own_sweep as holds_own_sweep
from ._sweeps import list_sweeps as list_sweeps
from ._sweeps import own_checkpoints as own_checkpoints
from ._sweeps import own_parts as own_parts
from ._sweeps import own_trajectories as own_trajectories
from ._sweeps import part_name as part_name
from ._sweeps import parts_in as parts_in
from ._sweeps import sweep_tables as sweep_tables
from ._sweeps import trajectories_in as trajectories_in
from ._tidy import plan_removal as plan_removal
from ._tidy import remove as remove

if TYPE_CHECKING:
    from ._run_folder import RunFolder as RunFolder


def __getattr__(name: str):
    # Loaded on demand: a list of runs does not need JAX.
    if name == "RunFolder":
        return importlib.import_module("._run_folder", __name__).RunFolder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
