"""Risks: the expected loss of a model on a task."""

from ._base import AbstractCoefficientRisk as AbstractCoefficientRisk
from ._base import AbstractRisk as AbstractRisk
from ._bilinear import BilinearRisk as BilinearRisk
from ._bilinear import exact_bilinear_risk as exact_bilinear_risk
from ._choose import KINDS as KINDS
from ._choose import available_kinds as available_kinds
from ._choose import risk as risk
from ._dataset import StoredSequencesRisk as StoredSequencesRisk
from ._dataset import dataset_risk as dataset_risk
from ._quadratic import FeatureLayout as FeatureLayout
from ._quadratic import QuadraticRisk as QuadraticRisk
from ._sampled import MinibatchRisk as MinibatchRisk
from ._sampled import SampledRisk as SampledRisk
from ._token_moments import exact_quadratic_risk as exact_quadratic_risk
