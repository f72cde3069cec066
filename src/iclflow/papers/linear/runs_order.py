"""The order in which components are learned, over seeds and on a task that turns it around."""

import numpy as np

from ... import analysis
from ...tasks import LinearRegression
from ...trajectory import Trajectory
from .. import Lab, once, study, task_settings
from .runs import WEIGHTS, four_components, separate_ensemble

ORDER_SCALES = (1.0, 0.5, 0.3, 0.1, 0.03, 0.01)
# The settings of a study in which λ²m and λm are in opposite order, for claims and figures to note.
REVERSED = task_settings("linear/order-by-growth") | {"heads": 3, "scale": 1e-4}


@once
def learning_orders(lab: Lab, scale: float, seeds: int) -> list[tuple[int, ...]]:
    """The order in which each seed learns the components."""
    task, runs = four_components(), separate_ensemble(lab, scale, seeds, heads=5)
    return [analysis.learning_order(run, task) for run in runs]


def share_in_order(lab: Lab, scale: float, seeds: int, order=(0, 1, 2, 3)) -> float:
    """The share of seeds that learn the components in this order."""
    return float(np.mean([found == order for found in learning_orders(lab, scale, seeds)]))


def order_shares(lab: Lab, seeds: int) -> list[float]:
    """The share of seeds in order at each of the scales."""
    return [share_in_order(lab, scale, seeds) for scale in ORDER_SCALES]


def reversed_task() -> LinearRegression:
    """Λ and E[ww] for which λ²m and λm are in opposite order."""
    return LinearRegression(**task_settings("linear/order-by-growth"))


def reversed_run(lab: Lab) -> Trajectory:
    """A run on a task whose growth order and gain order disagree."""
    return lab.run(study("linear/order-by-growth"), WEIGHTS)
