"""Several tasks on blocks of their own (arXiv 2402.19442). Derived in docs/theory/multitask.md."""

from ._blocks import Blocks as Blocks
from ._blocks import blocks_of as blocks_of
from ._loss import Slopes as Slopes
from ._loss import best_mu as best_mu
from ._loss import loss as loss
from ._loss import shares as shares
from ._loss import slopes as slopes
from ._solutions import Solution as Solution
from ._solutions import debiased_steps as debiased_steps
from ._solutions import gradient_flow_limit as gradient_flow_limit
from ._solutions import lower_bound as lower_bound
from ._solutions import single_head as single_head
from ._spectral_flow import SpectralFlow as SpectralFlow
from ._spectral_flow import phase_times as phase_times
from ._spectral_flow import spectral_flow as spectral_flow
