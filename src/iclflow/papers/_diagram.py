"""Diagrams: a sweep, and a figure that is drawn from its table."""

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ..config import Config
from ..drawing import Drawing
from ..studies import PAPERS, TIERS
from ._registry import Registry, join_lines


@runtime_checkable
class Swept(Protocol):
    """The part of `iclflow.sweeps.SweepResults` that a diagram uses.

    **Example:**

    ```pycon
    >>> import inspect
    >>> [name for name in dir(icl.papers.Swept) if not name.startswith("_")]
    ['column', 'config', 'rows', 'sweep', 'trajectory']
    ```
    """

    @property
    def sweep(self) -> Any:
        """The sweep: its `seeds`, its `data`, the `config` of each run."""
        ...

    @property
    def config(self) -> Config:
        """The config of the first run, for the settings that all runs share."""
        ...

    def rows(self, *columns: str) -> list[tuple]:
        """These columns, or SQL over them, for each run, in the order of the runs."""
        ...

    def column(self, name: str) -> np.ndarray:
        """One column of numbers, in the order of the runs; NaN where there is none."""
        ...

    def trajectory(self, run: int) -> Any:
        """One run, of a sweep that keeps them."""
        ...


@dataclasses.dataclass(frozen=True)
class Diagram:
    """A ready sweep with its figure.

    **Fields:**

    - `name`: `sweeps/topic`.
    - `caption`: what the figure shows; its measurements are added when it is drawn.
    - `paper`: the arXiv number of the paper that the sweep is about.
    - `file`: the sweep of the default tier.
    - `tiers`: the changes to that sweep in other tiers.
    - `function`: draws the figure.

    **Example:**

    ```pycon
    >>> diagram = next(iter(icl.papers.DIAGRAMS.values()))
    >>> sorted(diagram.tiers)
    ['paper', 'smoke']
    ```
    """

    name: str
    title: str
    caption: str
    paper: str
    file: Path
    tiers: Mapping[str, Mapping[str, Any]]
    function: Callable[[Swept], Drawing]

    def text(self) -> str:
        """The TOML file, as `iclflow sweep` takes it."""
        return self.file.read_text(encoding="utf-8")

    def data(self, tier: str = "default") -> dict[str, Any]:
        """The sweep of a tier as plain data: the file with the changes of the tier."""
        if tier not in TIERS:
            raise ValueError(f'`tier` = {tier!r}: must be "smoke", "default" or "paper".')
        return _override(tomllib.loads(self.text()), self.tiers.get(tier, {}))

    def draw(self, swept: Swept, tier: str = "default") -> Drawing:
        """The figure of a sweep that has been computed."""
        from ..drawing.style import style

        with style():
            drawing = self.function(swept)
        about = {"figure": self.name, "tier": tier, "sweep": swept.sweep.data}
        caption = f"{self.caption} {drawing.caption}".strip()
        return dataclasses.replace(drawing, config=about | drawing.config, caption=caption)


DIAGRAMS: Registry[Diagram] = Registry("diagrams")
"""The diagrams by name.

**Example:**

```pycon
>>> sorted(icl.papers.DIAGRAMS)[0].split("/")[0]
'sweeps'
```
"""


def diagram(
    paper: str, title: str, caption: str, *, smoke: Mapping[str, Any], paper_tier: Mapping[str, Any]
) -> Callable[[Callable[[Swept], Drawing]], Callable[[Swept], Drawing]]:
    """Registers the function that draws a diagram; its sweep is the file of the same name.

    **Arguments:**

    - `smoke`, `paper_tier`: changes to the file in these tiers.
    """

    def register(function: Callable[[Swept], Drawing]) -> Callable[[Swept], Drawing]:
        topic = getattr(function, "__name__")
        file = Path(__file__).parent / paper / "sweeps" / f"{topic}.toml"
        tiers = {"smoke": smoke, "paper": paper_tier}
        words, where = join_lines(caption), f"arXiv {PAPERS[paper]}"
        name = f"sweeps/{topic}"
        DIAGRAMS.add(name, Diagram(name, title, words, where, file, tiers, function))
        return function

    return register


def values(first: float, last: float, count: int, log: bool = False) -> dict[str, Any]:
    """An axis of a sweep, as in its file."""
    return {"from": first, "to": last, "count": count} | ({"log": True} if log else {})


def _override(data: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """A sweep as plain data with other seeds, and some of its axes and settings replaced."""
    base = {
        name: {**section, **over.get("base", {}).get(name, {})}
        for name, section in data["base"].items()
    }
    return {**data, **over, "base": base, "axes": {**data["axes"], **over.get("axes", {})}}
