"""The results of a complete sweep, for figures."""

import dataclasses
from pathlib import Path

import numpy as np

from ..config import Config
from ..trajectory import Trajectory
from ._file import Sweep
from ._folder import sweep_tables
from ._table import Table
from ._trajectories import load_trajectory


@dataclasses.dataclass(frozen=True)
class SweepResults:
    """A sweep and its folder, complete."""

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
