"""Risks: the expected loss of a model on a task."""

from ._base import AbstractCoefficientRisk as AbstractCoefficientRisk
from ._base import AbstractRisk as AbstractRisk
from ._bilinear import BilinearRisk as BilinearRisk
from ._bilinear import exact_bilinear_risk as exact_bilinear_risk
from ._sampled import SampledRisk as SampledRisk
