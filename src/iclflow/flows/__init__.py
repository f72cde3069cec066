"""Flows: how weights move."""

from ._checkpoint import Checkpoint as Checkpoint
from ._checkpoint import CheckpointError as CheckpointError
from ._checkpoint import label_in as label_in
from ._checkpoint import verified_label as verified_label
from ._descent import adam as adam
from ._descent import descend as descend
from ._descent import descend_ensemble as descend_ensemble
from ._descent import gradient_descent as gradient_descent
from ._descent import sgd as sgd
from ._ensemble import Ensemble as Ensemble
from ._ensemble import init_many as init_many
from ._ensemble import stack as stack
from ._gradient_flow import gradient_flow as gradient_flow
from ._gradient_flow import gradient_flow_ensemble as gradient_flow_ensemble
from ._landscape import Landscape as Landscape
from ._landscape import landscape as landscape
from ._layout import Layout as Layout
from ._options import FlowOptions as FlowOptions
from ._progress import Status as Status
from ._rules import Rule as Rule
from ._rules import adam_rule as adam_rule
from ._rules import sgd_rule as sgd_rule
from ._save import SaveAtDrops as SaveAtDrops
from ._save import SaveAtTimes as SaveAtTimes
from ._save import SaveEvenly as SaveEvenly
from ._save import SaveLogSpaced as SaveLogSpaced
