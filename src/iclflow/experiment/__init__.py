"""Experiments: from a config to a run."""

from ._build import Experiment as Experiment
from ._build import Keys as Keys
from ._build import build_task as build_task
from ._build import keys_of as keys_of
from ._build import naming as naming
from ._build import prepare as prepare
from ._build_model import build_model as build_model
from ._figure import loss_figure as loss_figure
from ._inspect import inspect as inspect
from ._inspect import task_to_inspect as task_to_inspect
from ._inspect_layers import inspect_checkpoints as inspect_checkpoints
from ._inspect_layers import inspect_file as inspect_file
from ._overlay import overlay as overlay
from ._prediction import Overlay as Overlay
from ._run import Run as Run
from ._run import run as run
from ._summary import Summary as Summary
from ._summary import summarise as summarise
from ._train import as_run as as_run
from ._train import save_points as save_points
from ._train import train as train
