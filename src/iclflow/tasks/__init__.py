"""Tasks: distributions over in-context regression sequences."""

from ._base import AbstractTask as AbstractTask
from ._base import Estimate as Estimate
from ._base import Sequences as Sequences
from ._base import estimate_mean as estimate_mean
from ._check import is_whole as is_whole
from ._linear_regression import LinearRegression as LinearRegression
from ._mixture import Mixture as Mixture
from ._mixture import in_context_in_weight as in_context_in_weight
from ._random_labels import RandomLabels as RandomLabels
