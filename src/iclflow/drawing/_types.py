"""Types of matplotlib for annotations: to load the library takes seconds."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis as Axis
    from matplotlib.figure import Figure as Figure
else:
    Axes = Axis = Figure = Any
