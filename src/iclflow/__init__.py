"""A lab for how attention learns to learn in context."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import analysis as analysis
    from . import claims as claims
    from . import config as config
    from . import diagrams as diagrams
    from . import engines as engines
    from . import estimators as estimators
    from . import experiment as experiment
    from . import flows as flows
    from . import models as models
    from . import risks as risks
    from . import sweep as sweep
    from . import tasks as tasks
    from . import theory as theory
    from .analysis import allocation as allocation
    from .analysis import decomposition as decomposition
    from .analysis import drop_times as drop_times
    from .analysis import learning_phases as learning_phases
    from .analysis import patterns as patterns
    from .analysis import plateaus as plateaus
    from .analysis import softmax_regimes as softmax_regimes
    from .analysis import which_algorithm as which_algorithm
    from .checkpoints import load_model as load_model
    from .checkpoints import save_model as save_model
    from .flows import Checkpoint as Checkpoint
    from .flows import Drops as Drops
    from .flows import Ensemble as Ensemble
    from .flows import Explicit as Explicit
    from .flows import FlowOptions as FlowOptions
    from .flows import Linear as Linear
    from .flows import LogSpaced as LogSpaced
    from .flows import adam as adam
    from .flows import adam_rule as adam_rule
    from .flows import descend as descend
    from .flows import descend_ensemble as descend_ensemble
    from .flows import gradient_descent as gradient_descent
    from .flows import gradient_flow as gradient_flow
    from .flows import gradient_flow_ensemble as gradient_flow_ensemble
    from .flows import init_many as init_many
    from .flows import landscape as landscape
    from .flows import sgd as sgd
    from .flows import sgd_rule as sgd_rule
    from .models import AbstractModel as AbstractModel
    from .models import AttentionStack as AttentionStack
    from .models import BalancedSpectral as BalancedSpectral
    from .models import BlindFactored as BlindFactored
    from .models import ConvolutionalLinear as ConvolutionalLinear
    from .models import FactoredAttention as FactoredAttention
    from .models import FullMergedKQ as FullMergedKQ
    from .models import FullSeparateKQ as FullSeparateKQ
    from .models import MergedKQ as MergedKQ
    from .models import MultiFactored as MultiFactored
    from .models import MultiMergedKQ as MultiMergedKQ
    from .models import MultiStructured as MultiStructured
    from .models import SeparateKQ as SeparateKQ
    from .models import SpectralAttention as SpectralAttention
    from .models import StructuredAttention as StructuredAttention
    from .models import TwoLayerLinear as TwoLayerLinear
    from .precision import enable_float64 as enable_float64
    from .risks import AbstractRisk as AbstractRisk
    from .risks import ExactMultiRisk as ExactMultiRisk
    from .risks import ExactSoftmaxRisk as ExactSoftmaxRisk
    from .risks import FirstOrderRisk as FirstOrderRisk
    from .risks import IntegratedRisk as IntegratedRisk
    from .risks import LargeContextRisk as LargeContextRisk
    from .risks import MinibatchRisk as MinibatchRisk
    from .risks import QuerySampledRisk as QuerySampledRisk
    from .risks import SampledRisk as SampledRisk
    from .risks import SpectralRisk as SpectralRisk
    from .risks import TabulatedSoftmaxRisk as TabulatedSoftmaxRisk
    from .risks import available_kinds as available_kinds
    from .risks import risk as risk
    from .tasks import AbstractTask as AbstractTask
    from .tasks import DecisionTree as DecisionTree
    from .tasks import HermiteRegression as HermiteRegression
    from .tasks import LinearRegression as LinearRegression
    from .tasks import Mixture as Mixture
    from .tasks import MultiSequences as MultiSequences
    from .tasks import MultiTaskRegression as MultiTaskRegression
    from .tasks import QuadraticRegression as QuadraticRegression
    from .tasks import RandomLabels as RandomLabels
    from .tasks import Sequences as Sequences
    from .tasks import SparseRegression as SparseRegression
    from .tasks import TwoLayerReLU as TwoLayerReLU
    from .tasks import in_context_in_weight as in_context_in_weight
    from .tasks import isotropic as isotropic
    from .trajectory import Result as Result
    from .trajectory import Trajectory as Trajectory

# Where each public name lives. It is loaded when it is first used, so that `iclflow --help` does
# not wait for JAX.
_HOMES = {
    "analysis": (
        "allocation",
        "decomposition",
        "drop_times",
        "learning_phases",
        "patterns",
        "plateaus",
        "softmax_regimes",
        "which_algorithm",
    ),
    "checkpoints": (
        "load_model",
        "save_model",
    ),
    "flows": (
        "Checkpoint",
        "Drops",
        "Ensemble",
        "Explicit",
        "FlowOptions",
        "Linear",
        "LogSpaced",
        "adam",
        "adam_rule",
        "descend",
        "descend_ensemble",
        "gradient_descent",
        "gradient_flow",
        "gradient_flow_ensemble",
        "init_many",
        "landscape",
        "sgd",
        "sgd_rule",
    ),
    "models": (
        "AbstractModel",
        "AttentionStack",
        "BalancedSpectral",
        "BlindFactored",
        "ConvolutionalLinear",
        "FactoredAttention",
        "FullMergedKQ",
        "FullSeparateKQ",
        "MergedKQ",
        "MultiFactored",
        "MultiMergedKQ",
        "MultiStructured",
        "SeparateKQ",
        "SpectralAttention",
        "StructuredAttention",
        "TwoLayerLinear",
    ),
    "precision": ("enable_float64",),
    "risks": (
        "AbstractRisk",
        "ExactMultiRisk",
        "ExactSoftmaxRisk",
        "FirstOrderRisk",
        "IntegratedRisk",
        "LargeContextRisk",
        "MinibatchRisk",
        "QuerySampledRisk",
        "SampledRisk",
        "SpectralRisk",
        "TabulatedSoftmaxRisk",
        "available_kinds",
        "risk",
    ),
    "tasks": (
        "AbstractTask",
        "DecisionTree",
        "HermiteRegression",
        "LinearRegression",
        "Mixture",
        "MultiSequences",
        "MultiTaskRegression",
        "QuadraticRegression",
        "RandomLabels",
        "Sequences",
        "SparseRegression",
        "TwoLayerReLU",
        "in_context_in_weight",
        "isotropic",
    ),
    "trajectory": (
        "Result",
        "Trajectory",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = (
    *("analysis", "claims", "config", "diagrams", "engines", "estimators", "experiment", "flows"),
    *("models", "risks", "sweep", "tasks", "theory"),
)

__all__ = [*_MODULES, *_HOME_OF, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str):
    if name == "__version__":
        return _version()
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'iclflow' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("iclflow")
    except PackageNotFoundError:  # a source tree on the path, not installed
        return "unknown"


def __dir__() -> list[str]:
    return sorted(__all__)
