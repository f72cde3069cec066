"""Gradient flow by an adaptive solver: τ dW/dt = −½ ∂L/∂W with τ = 1."""

from collections.abc import Sequence
from typing import Any

from ..models import AbstractModel
from ..risks import AbstractRisk
from ..trajectory import Trajectory
from ._driver import drive
from ._ensemble import Ensemble
from ._flow_runs import FlowRuns
from ._members import Members
from ._options import flow_options
from ._progress import Monitor


def gradient_flow(model: AbstractModel, risk: AbstractRisk, **options: Any) -> Trajectory:
    """Integrates the gradient flow of `risk` from the weights of `model`.

    **Arguments:**

    - `options`: the fields of `FlowOptions`: `end`, `gradient_tolerance`, `save`, `solver`,
      `rtol`, `atol`, `tolerance`, `max_steps`, `progress`, `callback`, `checkpoint`; for an
      ensemble also `at_once`.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.6, 0.4], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=2, heads=2, scale=1e-2)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> run.result.name, run.losses[[0, -1]].round(3)
    ('converged', array([1.   , 0.088]))
    >>> icl.drop_times(run).shape
    (2,)
    ```
    """
    return _integrate("gradient flow", Members.single(model, risk), options)[0]


def gradient_flow_ensemble(
    models: AbstractModel | Sequence[AbstractModel],
    risks: AbstractRisk | Sequence[AbstractRisk],
    **options: Any,
) -> Ensemble:
    """Integrates the gradient flows of many models of one shape as one program.

    **Arguments:**

    - `models`: a sequence of models, or one whose arrays have a leading axis (see `init_many`).
    - `risks`: one risk that all share, or a sequence with one per model (swept tasks).
    - `options`: the fields of `FlowOptions`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> start = lambda key: icl.Attention.merged(key, dim=2, heads=1)
    >>> models = icl.init_many(start, jr.split(jr.key(0), 4))
    >>> runs = icl.gradient_flow_ensemble(models, icl.risk(task, start(jr.key(0))), end=50.0)
    >>> len(runs), bool(runs[0].times[-1] == 50.0)
    (4, True)
    ```
    """
    members = Members.of(models, risks)
    return _integrate(f"{members.count} gradient flows", members, options)


def _integrate(title: str, members: Members, given: dict[str, Any]) -> Ensemble:
    options = flow_options(**given)
    runs = FlowRuns(members, options)
    return drive(runs, Monitor(title, options.progress, options.callback), options.checkpoint)
