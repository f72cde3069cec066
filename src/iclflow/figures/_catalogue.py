"""The list of all figures."""

from ._base import Figure
from ._linear_catalogue import LINEAR
from ._multitask_catalogue import MULTITASK
from ._softmax_catalogue import SOFTMAX

FIGURES: dict[str, Figure] = {figure.name: figure for figure in (*LINEAR, *SOFTMAX, *MULTITASK)}
