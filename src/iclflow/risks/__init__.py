"""Risks: the expected loss of a model on a task."""

from ._base import AbstractCoefficientRisk as AbstractCoefficientRisk
from ._base import AbstractRisk as AbstractRisk
