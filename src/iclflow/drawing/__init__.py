"""Drawing: the style of all figures, plots of single runs, and how figures are saved."""

from ._drawing import SUFFIXES as SUFFIXES
from ._drawing import Axes as Axes
from ._drawing import Axis as Axis
from ._drawing import Drawing as Drawing
from ._drawing import Figure as Figure
from ._drawing import save_drawing as save_drawing
from ._drawing import save_figure as save_figure
