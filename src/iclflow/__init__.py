"""A lab for how attention learns to learn in context."""

import importlib
from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import analysis as analysis
    from . import estimators as estimators
    from . import flows as flows
    from . import models as models
    from . import risks as risks
    from . import tasks as tasks
    from . import theory as theory
    from .analysis import drop_times as drop_times
    from .analysis import plateaus as plateaus
    from .analysis import which_algorithm as which_algorithm
    from .flows import Drops as Drops
    from .flows import Ensemble as Ensemble
    from .flows import Explicit as Explicit
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
    from .flows import sgd as sgd
    from .flows import sgd_rule as sgd_rule
    from .models import AbstractModel as AbstractModel
    from .models import ConvolutionalLinear as ConvolutionalLinear
    from .models import FullMergedKQ as FullMergedKQ
    from .models import FullSeparateKQ as FullSeparateKQ
    from .models import MergedKQ as MergedKQ
    from .models import SeparateKQ as SeparateKQ
    from .models import TwoLayerLinear as TwoLayerLinear
    from .precision import enable_float64 as enable_float64
    from .risks import AbstractRisk as AbstractRisk
    from .risks import MinibatchRisk as MinibatchRisk
    from .risks import SampledRisk as SampledRisk
    from .risks import available_kinds as available_kinds
    from .risks import risk as risk
    from .tasks import AbstractTask as AbstractTask
    from .tasks import LinearRegression as LinearRegression
    from .tasks import Mixture as Mixture
    from .tasks import RandomLabels as RandomLabels
    from .tasks import Sequences as Sequences
    from .tasks import in_context_in_weight as in_context_in_weight
    from .trajectory import Result as Result
    from .trajectory import Trajectory as Trajectory

# Where each public name lives. It is loaded when it is first used, so that `iclflow --help` does
# not wait for JAX.
_HOMES = {
    "analysis": (
        "drop_times",
        "plateaus",
        "which_algorithm",
    ),
    "flows": (
        "Drops",
        "Ensemble",
        "Explicit",
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
        "sgd",
        "sgd_rule",
    ),
    "models": (
        "AbstractModel",
        "ConvolutionalLinear",
        "FullMergedKQ",
        "FullSeparateKQ",
        "MergedKQ",
        "SeparateKQ",
        "TwoLayerLinear",
    ),
    "precision": ("enable_float64",),
    "risks": (
        "AbstractRisk",
        "MinibatchRisk",
        "SampledRisk",
        "available_kinds",
        "risk",
    ),
    "tasks": (
        "AbstractTask",
        "LinearRegression",
        "Mixture",
        "RandomLabels",
        "Sequences",
        "in_context_in_weight",
    ),
    "trajectory": (
        "Result",
        "Trajectory",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = ("analysis", "estimators", "flows", "models", "risks", "tasks", "theory")

__all__ = [*_MODULES, *_HOME_OF, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]

try:
    __version__ = _version("iclflow")
except _PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "unknown"


def __getattr__(name: str):
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOME_OF:
        raise AttributeError(f"module 'iclflow' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
