"""What a diagram is: a sweep, and a figure that is drawn from its table."""

import dataclasses
import importlib
import importlib.resources
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..config import Config
from ..figures import Drawing
from ..sweep import Sweep, Table, load_trajectory, parse_sweep, sweep_tables
from ..trajectory import Trajectory

TIERS = ("smoke", "default", "paper")


@dataclasses.dataclass(frozen=True)
class Swept:
    """A sweep that has been computed, as diagrams see it.

    **Fields:**

    - `folder`: of the sweep, complete.
    """

    sweep: Sweep
    folder: Path

    @property
    def config(self) -> Config:
        """The config of the first run: what all runs have in common is in it."""
        return self.sweep.config(0)

    def rows(self, *columns: str) -> list[tuple]:
        """These columns, or SQL over them, for each run, in the order of the runs."""
        tables, _ = sweep_tables(self.folder)
        return Table(tables).ask(f"SELECT {', '.join(columns)} FROM results ORDER BY run")[1]

    def column(self, name: str) -> np.ndarray:
        """One column of numbers, in the order of the runs; NaN where there is none."""
        return np.asarray([np.nan if row[0] is None else row[0] for row in self.rows(name)])

    def trajectory(self, run: int) -> Trajectory:
        """One run, of a sweep that keeps them."""
        return load_trajectory(self.folder, run)


@dataclasses.dataclass(frozen=True)
class Diagram:
    """A ready sweep with its figure.

    **Fields:**

    - `name`: `sweeps/topic`.
    - `caption`: what is to be seen in the figure; what was measured is added when it is drawn.
    - `paper`: the arXiv number of the paper that the sweep is about.
    - `file`: the sweep of the default tier, a TOML file of this folder.
    - `tiers`: what the other tiers change in it.
    - `module`, `function`: of this folder, which draws. It is imported when it does: a list of
      diagrams loads no plotting library.
    """

    name: str
    title: str
    caption: str
    paper: str
    file: str
    tiers: Mapping[str, Mapping[str, Any]]
    module: str
    function: str

    def text(self) -> str:
        """The TOML file, as `iclflow sweep` takes it."""
        return (importlib.resources.files(__name__.rpartition(".")[0]) / self.file).read_text(
            encoding="utf-8"
        )

    def sweep(self, tier: str = "default") -> Sweep:
        """The sweep of a tier: the file, and what the tier changes in it."""
        if tier not in TIERS:
            raise ValueError(f'`tier` = {tier!r}: must be "smoke", "default" or "paper".')
        return parse_sweep(_changed(tomllib.loads(self.text()), self.tiers.get(tier, {})))

    def draw(self, swept: Swept, tier: str = "default") -> Drawing:
        """The figure of a sweep that has been computed."""
        from ..figures._style import style

        module = importlib.import_module(f".{self.module}", __package__)
        function: Callable[[Swept], Drawing] = getattr(module, self.function)
        with style():
            drawing = function(swept)
        about = {"figure": self.name, "tier": tier, "sweep": swept.sweep.data}
        caption = f"{self.caption} {drawing.caption}".strip()
        return dataclasses.replace(drawing, config=about | drawing.config, caption=caption)


def _changed(data: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep as plain data with other seeds, and some of its axes and settings replaced."""
    base = {
        name: {**section, **over.get("base", {}).get(name, {})}
        for name, section in data["base"].items()
    }
    return {**data, **over, "base": base, "axes": {**data["axes"], **over.get("axes", {})}}
