"""Estimators: the in-context algorithms that a model is compared with."""

from ._base import AbstractEstimator as AbstractEstimator
from ._base import Bayes as Bayes
from ._base import masked_context as masked_context
from ._discrete import DiscreteMMSE as DiscreteMMSE
from ._gradient import DebiasedGradientStep as DebiasedGradientStep
from ._gradient import DebiasedPreconditionedStep as DebiasedPreconditionedStep
from ._gradient import GradientStep as GradientStep
from ._gradient import PreconditionedStep as PreconditionedStep
from ._gradient import Zero as Zero
from ._gradient import centred_correlation as centred_correlation
from ._gradient import correlation as correlation
from ._label_linear import LabelLinear as LabelLinear
from ._label_linear import best_ridge as best_ridge
from ._least_squares import EmpiricalPCR as EmpiricalPCR
from ._least_squares import KernelRegression as KernelRegression
from ._least_squares import LeastSquares as LeastSquares
from ._least_squares import Ridge as Ridge
from ._population import PopulationPCR as PopulationPCR
from ._population import SubspaceLeastSquares as SubspaceLeastSquares
from ._population import eigenvectors as eigenvectors
from ._population import principal_components as principal_components
