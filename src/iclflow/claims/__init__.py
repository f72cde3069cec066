"""Claims: every sentence of the papers that can be tested, and its test."""

# The order of import is the order of the report.
# isort: off
from . import linear_network as linear_network
from . import linear_merged as linear_merged
from . import linear_separate as linear_separate
from . import linear_order as linear_order
from . import linear_cascade as linear_cascade
from . import linear_algorithm as linear_algorithm
from . import linear_rank as linear_rank
from . import linear_scale as linear_scale
from . import linear_softmax as linear_softmax
from . import linear_in_weight as linear_in_weight
from . import softmax_trained as softmax_trained
from . import softmax_seeds as softmax_seeds
from . import softmax_one_head as softmax_one_head
from . import softmax_exact as softmax_exact
from . import softmax_quadrature as softmax_quadrature
from . import softmax_more_heads as softmax_more_heads
from . import softmax_dynamics as softmax_dynamics
from . import softmax_estimators as softmax_estimators
from . import softmax_table as softmax_table
from . import softmax_context as softmax_context
from . import softmax_tasks as softmax_tasks
from . import multitask_dynamics as multitask_dynamics
from . import multitask_allocation as multitask_allocation
from . import multitask_saddle as multitask_saddle
from . import multitask_sampled as multitask_sampled
from . import multitask_optimality as multitask_optimality
from . import multitask_separation as multitask_separation
from . import multitask_finite_length as multitask_finite_length
from . import multitask_attention as multitask_attention
from . import multitask_estimators as multitask_estimators
from . import multitask_linear as multitask_linear
from . import multitask_transfer as multitask_transfer

# What claims say about runs that somebody made, once all claims are there.
from . import on_runs_merged as on_runs_merged
from . import on_runs_separate as on_runs_separate
from . import on_runs_softmax as on_runs_softmax
from . import on_runs_softmax_pair as on_runs_softmax_pair
from . import on_runs_multitask as on_runs_multitask

# isort: on
from ._base import TIERS as TIERS
from ._base import Check as Check
from ._base import Claim as Claim
from ._base import Inconclusive as Inconclusive
from ._base import Outcome as Outcome
from ._base import run_claim as run_claim
from ._lab import Lab as Lab
from ._on_runs import Given as Given
from ._on_runs import RunCheck as RunCheck
from ._on_runs import all_run_checks as all_run_checks
from ._on_runs import check_run as check_run
from ._on_runs import find_run_check as find_run_check
from ._on_runs import on_run as on_run
from ._on_runs import run_checks as run_checks
from ._on_runs import strain as strain
from ._registry import all_claims as all_claims
from ._registry import claim as claim
from ._registry import select_claims as select_claims
