"""Diagrams: ready sweeps, each with a figure that is drawn from its table."""

from ._base import Diagram as Diagram
from ._base import Swept as Swept
from ._catalogue import DIAGRAMS as DIAGRAMS
