"""Tasks from the settings of a config."""

from collections.abc import Callable

import numpy as np

from ..tasks import (
    AbstractTask,
    DecisionTree,
    HermiteRegression,
    LinearRegression,
    MultiTaskRegression,
    QuadraticRegression,
    SparseRegression,
    TwoLayerReLU,
    in_context_in_weight,
)


def _linear(*, prior_variance: float | None, **settings) -> LinearRegression:
    if prior_variance is not None:
        dim = len(settings["eigenvalues"] or settings["covariance"])
        settings["prior_covariance"] = prior_variance * np.eye(dim)
    return LinearRegression(**settings)


def _mixture(*, fraction: float, fixed_weight, **settings) -> AbstractTask:
    return in_context_in_weight(_linear(**settings), fraction, fixed_weight)


def _multi(*, coordinates, inputs: int | None, **settings) -> MultiTaskRegression:
    return MultiTaskRegression(coordinates, inputs, **settings)


def _function(task_class: Callable[..., AbstractTask]) -> Callable[..., AbstractTask]:
    return lambda *, inputs, **settings: task_class(inputs, **settings)


TASKS: dict[str, Callable[..., AbstractTask]] = {
    "linear_regression": _linear,
    "in_context_in_weight": _mixture,
    "multi_task": _multi,
    "quadratic": _function(QuadraticRegression),
    "sparse": _function(SparseRegression),
    "two_layer_relu": _function(TwoLayerReLU),
    "decision_tree": _function(DecisionTree),
    "hermite": _function(HermiteRegression),
}
