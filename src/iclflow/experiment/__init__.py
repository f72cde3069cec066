"""Experiments: from a config to a run, and its folder."""

from ._build import Experiment as Experiment
from ._build import build_task as build_task
from ._build import prepare as prepare
from ._figure import loss_figure as loss_figure
from ._overlay import overlay as overlay
from ._prediction import Overlay as Overlay
from ._summary import Summary as Summary
from ._summary import summarise as summarise
from ._train import train as train
