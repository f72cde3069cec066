"""Gradient descent, SGD and Adam on any risk: training in steps."""

from collections.abc import Callable, Sequence
from typing import Any

import optax
from jaxtyping import Array, Key, PRNGKeyArray

from ..errors import InputError
from ..models import AbstractModel
from ..risks import AbstractRisk
from ..tasks import check_key
from ..trajectory import Trajectory
from ._checkpoint import Checkpoint
from ._descent_runs import LONGEST_STRETCH, DescentRuns
from ._driver import drive
from ._ensemble import Ensemble, Members
from ._layout import Layout
from ._options import check_model_and_risk
from ._progress import Monitor, Status
from ._rules import Rule, adam_rule, sgd_rule
from ._save import SaveAtDrops, SavePoints


def gradient_descent(
    model: AbstractModel, risk: AbstractRisk, learning_rate: float, steps: int, **options: Any
) -> Trajectory:
    """W ← W − η ∂L/∂W. `steps` steps of this are the Euler scheme of gradient flow with time
    step 2η. Options: as in `descend`."""
    return descend(model, risk, sgd_rule(learning_rate), steps, **options)


def sgd(
    model: AbstractModel,
    risk: AbstractRisk,
    learning_rate: float,
    steps: int,
    momentum: float = 0.0,
    **options: Any,
) -> Trajectory:
    """Stochastic gradient descent on a sampled risk. Options: as in `descend`."""
    return descend(model, risk, sgd_rule(learning_rate, momentum), steps, **options)


def adam(
    model: AbstractModel,
    risk: AbstractRisk,
    learning_rate: float,
    steps: int,
    b1: float = 0.9,
    b2: float = 0.999,
    **options: Any,
) -> Trajectory:
    """Adam on any risk. Options: as in `descend`."""
    return descend(model, risk, adam_rule(learning_rate, b1, b2), steps, **options)


def descend(
    model: AbstractModel,
    risk: AbstractRisk,
    optimiser: Rule | optax.GradientTransformation,
    steps: int,
    *,
    key: PRNGKeyArray | None = None,
    monitor: AbstractRisk | None = None,
    save: SavePoints = SaveAtDrops(),
    progress: bool | None = None,
    callback: Callable[[Status], bool | None] | None = None,
    checkpoint: Checkpoint | None = None,
    stretch: int = LONGEST_STRETCH,
) -> Trajectory:
    """`steps` updates of any optimiser.

    **Arguments:**

    - `optimiser`: `sgd_rule(…)`, `adam_rule(…)`, or any optax optimiser.
    - `key`: of the random stream; needed for a stochastic risk.
    - `monitor`: the risk whose values are recorded, if not `risk` itself: a run on sampled
      sequences can report its exact loss.
    - `save`: which steps to keep: `SaveAtDrops`, `SaveEvenly`, `SaveLogSpaced` or `SaveAtTimes`.
    - `progress`, `callback`, `checkpoint`: as in `gradient_flow`. (An optimiser of your own is
      taken to be the same when a run is resumed.)
    - `stretch`: the most steps from one call of `callback` to the next; fewer make a run that can
      be watched and stopped sooner, and is a little slower.
    """
    check_model_and_risk(model, risk)
    if stretch < 1:
        raise InputError("stretch", stretch, "must be at least 1")
    if key is not None:
        check_key(key)
        key = key[None]
    layout = Layout.of(model)
    runs = DescentRuns(
        layout,
        risk,
        layout.vectors(model),
        optimiser,
        steps,
        keys=key,
        monitor=monitor,
        save=save,
        checkpoint=checkpoint,
        stretch=int(stretch),
    )
    return drive(runs, Monitor("training", progress, callback), checkpoint)[0]


def descend_ensemble(
    models: AbstractModel | Sequence[AbstractModel],
    risks: AbstractRisk | Sequence[AbstractRisk],
    optimiser: Rule | optax.GradientTransformation,
    steps: int,
    *,
    keys: Key[Array, " members"] | None = None,
    save: SavePoints = SaveAtDrops(),
    progress: bool | None = None,
    callback: Callable[[Status], bool | None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Ensemble:
    """Many models of one shape trained as one program.

    **Arguments:**

    - `models`, `risks`: as in `gradient_flow_ensemble`.
    - `keys`: one random key per member, for stochastic risks.
    """
    members = Members.of(models, risks)
    layout = Layout.of(members.first)
    runs = DescentRuns(
        layout,
        members.risk,
        layout.vectors(members.models),
        optimiser,
        steps,
        swept=members.swept_risk,
        keys=keys,
        save=save,
        checkpoint=checkpoint,
    )
    return drive(runs, Monitor(f"training {members.count} models", progress, callback), checkpoint)
