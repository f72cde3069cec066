"""Gradient flow by an adaptive solver: τ dW/dt = −½ ∂L/∂W with τ = 1."""

from collections.abc import Callable, Sequence
from typing import Any

from ..models import AbstractModel
from ..risks import AbstractRisk
from ..trajectory import Trajectory
from ._checkpoint import Checkpoint
from ._driver import drive
from ._ensemble import Ensemble
from ._flow_runs import FlowRuns
from ._members import Members
from ._options import FlowOptions, flow_options
from ._progress import Monitor, Status
from ._save import SavePoints


def gradient_flow(
    model: AbstractModel,
    risk: AbstractRisk,
    *,
    end: float | None = FlowOptions.end,
    gradient_tolerance: float | None = FlowOptions.gradient_tolerance,
    save: SavePoints = FlowOptions.save,
    solver: str = FlowOptions.solver,
    rtol: float = FlowOptions.rtol,
    atol: float | None = FlowOptions.atol,
    tolerance: float = FlowOptions.tolerance,
    max_steps: int = FlowOptions.max_steps,
    progress: bool | None = FlowOptions.progress,
    callback: Callable[[Status], bool | None] | None = FlowOptions.callback,
    checkpoint: Checkpoint | None = FlowOptions.checkpoint,
    **unknown: Any,
) -> Trajectory:
    """Integrates the gradient flow of `risk` from the weights of `model`.

    **Arguments:**

    - `end`: the last time. By default the run ends when the loss is within `tolerance` (as a share
      of the whole way down) of the smallest loss that the weights can reach, if that is known;
      else it needs this or `gradient_tolerance`.
    - `gradient_tolerance`: the run also ends, as stationary, where ‖∂L/∂W‖ is no larger.
    - `save`: which points to keep: `SaveAtDrops`, `SaveEvenly`, `SaveLogSpaced` or `SaveAtTimes`.
    - `solver`: `"explicit"`, `"implicit"`, or `"auto"`.
    - `rtol`, `atol`: the tolerances of the solver; by default `atol` follows the initial weights.
    - `max_steps`: the largest number of attempted steps; the run ends there.
    - `progress`: whether to show a bar after two seconds (default: on a terminal).
    - `callback`: called with a `Status` between chunks; the run is cancelled when it returns False.
    - `checkpoint`: a `Checkpoint` that the run is written to between chunks, and resumed from.
    - `unknown`: refused with the option that it may have meant.

    `FlowOptions` says more on each.

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
    options = flow_options(
        end=end,
        gradient_tolerance=gradient_tolerance,
        save=save,
        solver=solver,
        rtol=rtol,
        atol=atol,
        tolerance=tolerance,
        max_steps=max_steps,
        progress=progress,
        callback=callback,
        checkpoint=checkpoint,
        **unknown,
    )
    return _integrate("gradient flow", Members.single(model, risk), options)[0]


def gradient_flow_ensemble(
    models: AbstractModel | Sequence[AbstractModel],
    risks: AbstractRisk | Sequence[AbstractRisk],
    *,
    end: float | None = FlowOptions.end,
    gradient_tolerance: float | None = FlowOptions.gradient_tolerance,
    save: SavePoints = FlowOptions.save,
    solver: str = FlowOptions.solver,
    rtol: float = FlowOptions.rtol,
    atol: float | None = FlowOptions.atol,
    tolerance: float = FlowOptions.tolerance,
    max_steps: int = FlowOptions.max_steps,
    at_once: int | None = FlowOptions.at_once,
    progress: bool | None = FlowOptions.progress,
    callback: Callable[[Status], bool | None] | None = FlowOptions.callback,
    checkpoint: Checkpoint | None = FlowOptions.checkpoint,
    **unknown: Any,
) -> Ensemble:
    """Integrates the gradient flows of many models of one shape as one program.

    **Arguments:**

    - `models`: a sequence of models, or one whose arrays have a leading axis (see `init_many`).
    - `risks`: one risk that all share, or a sequence with one per model (swept tasks).
    - `at_once`: how many runs advance side by side (default: 64, on a GPU 4096).
    - Others: as in `gradient_flow`.

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
    options = flow_options(
        end=end,
        gradient_tolerance=gradient_tolerance,
        save=save,
        solver=solver,
        rtol=rtol,
        atol=atol,
        tolerance=tolerance,
        max_steps=max_steps,
        at_once=at_once,
        progress=progress,
        callback=callback,
        checkpoint=checkpoint,
        **unknown,
    )
    return _integrate(f"{members.count} gradient flows", members, options)


def _integrate(title: str, members: Members, options: FlowOptions) -> Ensemble:
    runs = FlowRuns(members, options)
    return drive(runs, Monitor(title, options.progress, options.callback), options.checkpoint)
