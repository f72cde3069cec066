"""What a panel is: a diagram of numbers of heads and components over time, or of the moment."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from ..circuits import Circuits
from ..models import AbstractModel

# What the series of a panel are: one per head, per head and task, per component, per direction of
# the inputs (a component where these differ), one for all heads; two sums over heads; or one per
# level of a curve that is drawn over them, and not over time.
Axis = Literal["heads", "tasks", "components", "directions", "all", "sums", "levels"]
# Readers cannot distinguish more curves than this; a curve of as many points is smooth.
LARGEST_SERIES = 32


class Snapshots(NamedTuple):
    """Some saved points of a run (T of them), ready to be measured.

    **Fields:**

    - `circuits`: of the heads, in the basis of the components where the task has some.
    - `models`: the weights, with a leading axis.
    - `start`: the initial model of the run.
    - `best`: the best strength of each component, where the task has components.
    """

    circuits: Circuits
    models: AbstractModel
    start: AbstractModel
    best: Float[np.ndarray, " D"] | None


class Levels(NamedTuple):
    """What a curve is drawn over that belongs to one moment.

    **Fields:**

    - `title`: of the horizontal axis.
    - `x`: where the series of the panel are on it.
    - `mass`: how much of something is at these places, the largest 1, drawn behind the curve.
    - `behind`: what that is, in a word.
    """

    title: str
    x: tuple[float, ...]
    mass: tuple[float, ...]
    behind: str


class Panel(NamedTuple):
    """One diagram over time, or of the moment.

    **Fields:**

    - `y`: the title of its vertical axis.
    - `measure`: gives (T, series), or (T, H, I) for the axis of heads and tasks.
    - `series`: the names of its curves, which depend on the experiment.
    - `over`: of a diagram of the moment, what it is drawn over; the series are its points.
    """

    id: str
    title: str
    words: str
    y: str
    axis: Axis
    measure: Callable[[Snapshots], np.ndarray]
    log: bool = False
    series: tuple[str, ...] = ()
    over: Levels | None = None

    def describe(self) -> dict[str, Any]:
        """The panel as the page gets it."""
        keys = ("id", "title", "words", "y", "series", "log")
        over = None if self.over is None else self.over._asdict()
        return {**{key: getattr(self, key) for key in keys}, "over": over}

    def curves(self, points: Snapshots) -> np.ndarray:
        """The curves at some points, (T, series)."""
        values = np.asarray(self.measure(points), np.float64)
        if self.axis == "tasks":
            values = np.swapaxes(values, 1, 2).reshape(len(values), -1)
        if self.log:  # a logarithmic axis has no place for zero
            values = np.where(values > 0, values, np.nan)
        return values[:, : len(self.series)]
