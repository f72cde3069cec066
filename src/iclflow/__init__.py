"""A lab for how attention learns to learn in context."""

from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version

from . import analysis as analysis
from . import estimators as estimators
from . import flows as flows
from . import models as models
from . import risks as risks
from . import tasks as tasks
from . import theory as theory
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

try:
    __version__ = _version("iclflow")
except _PackageNotFoundError:  # a source tree on the path, not installed
    __version__ = "unknown"
