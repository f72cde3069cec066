"""Drawing: the one look of all figures, and how they are saved."""

from ._drawing import SUFFIXES as SUFFIXES
from ._drawing import Drawing as Drawing
from ._drawing import save_drawing as save_drawing
from ._drawing import save_figure as save_figure
from ._types import Axes as Axes
from ._types import Axis as Axis
from ._types import Figure as Figure
