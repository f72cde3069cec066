"""Figures: every figure of the papers, drawn from the same runs as the claims."""

from ._base import SUFFIXES as SUFFIXES
from ._base import Drawing as Drawing
from ._base import Figure as Figure
from ._base import save_drawing as save_drawing
from ._base import save_figure as save_figure
from ._catalogue import FIGURES as FIGURES
