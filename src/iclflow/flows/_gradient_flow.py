"""Gradient flow by an adaptive solver: τ dW/dt = −½ ∂L/∂W with τ = 1."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..models import AbstractModel
from ..risks import AbstractRisk
from ..trajectory import Trajectory
from ._driver import drive
from ._ensemble import Ensemble, Members
from ._flow_runs import FlowRuns
from ._layout import Layout
from ._options import check_model_and_risk, flow_options
from ._progress import Monitor


def gradient_flow(model: AbstractModel, risk: AbstractRisk, **options: Any) -> Trajectory:
    """Integrates the gradient flow of `risk` from the weights of `model`.

    **Arguments:**

    - `options`: the fields of `FlowOptions`: `end`, `gradient_tolerance`, `save`, `solver`,
      `rtol`, `atol`, `tolerance`, `max_steps`, `progress`, `callback`, `checkpoint`; of an
      ensemble also `at_once`.
    """
    check_model_and_risk(model, risk)
    layout = Layout.of(model)
    return _integrate("gradient flow", layout, risk, None, layout.vectors(model), options)[0]


def gradient_flow_ensemble(
    models: AbstractModel | Sequence[AbstractModel],
    risks: AbstractRisk | Sequence[AbstractRisk],
    **options: Any,
) -> Ensemble:
    """Gradient flows of many models of one shape as one program.

    **Arguments:**

    - `models`: a sequence of models, or one whose arrays have a leading axis (see `init_many`).
    - `risks`: one risk that all share, or a sequence with one per model (swept tasks).
    - `options`: the fields of `FlowOptions`.
    """
    members = Members.of(models, risks)
    layout = Layout.of(members.first)
    vectors, title = layout.vectors(members.models), f"{members.count} gradient flows"
    return _integrate(title, layout, members.risk, members.swept_risk, vectors, options)


def _integrate(
    title: str,
    layout: Layout,
    risk: AbstractRisk,
    swept: bool | None,
    vectors: np.ndarray,
    given: dict[str, Any],
) -> Ensemble:
    options = flow_options(**given)
    runs = FlowRuns(layout, risk, swept, vectors, options)
    return drive(runs, Monitor(title, options.progress, options.callback), options.checkpoint)
