"""Training in steps: gradient descent, SGD, Adam and any optax optimiser, on any risk."""

from collections.abc import Callable, Sequence

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
from ._ensemble import Ensemble
from ._members import Members
from ._progress import Monitor, Status
from ._rules import Rule, adam_rule, sgd_rule
from ._save import SaveAtDrops, SavePoints


def gradient_descent(
    model: AbstractModel,
    risk: AbstractRisk,
    learning_rate: float,
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
    """Gradient descent, W ← W − η ∂L/∂W. Other arguments: as in `descend`.

    This is the Euler scheme of gradient flow with time step 2η.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1, scale=0.1)
    >>> risk = icl.risk(task, model)
    >>> steps = icl.gradient_descent(model, risk, learning_rate=0.005, steps=500)
    >>> flow = icl.gradient_flow(model, risk, end=5.0)
    >>> bool(abs(steps.losses[-1] - flow.losses[-1]) < 1e-2)
    True
    ```
    """
    return descend(model, risk, sgd_rule(learning_rate), steps,
                   key=key, monitor=monitor, save=save, progress=progress, callback=callback,
                   checkpoint=checkpoint, stretch=stretch)  # fmt: skip


def sgd(
    model: AbstractModel,
    risk: AbstractRisk,
    learning_rate: float,
    steps: int,
    momentum: float = 0.0,
    *,
    key: PRNGKeyArray | None = None,
    monitor: AbstractRisk | None = None,
    save: SavePoints = SaveAtDrops(),
    progress: bool | None = None,
    callback: Callable[[Status], bool | None] | None = None,
    checkpoint: Checkpoint | None = None,
    stretch: int = LONGEST_STRETCH,
) -> Trajectory:
    """Stochastic gradient descent on a sampled risk. Other arguments: as in `descend`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1, scale=0.1)
    >>> risk = icl.risk(task, model, "sampled", batch=64)
    >>> run = icl.sgd(model, risk, learning_rate=0.01, steps=200, key=jr.key(1))
    >>> run.clock, run.times[-1]
    ('step', np.float64(200.0))
    ```
    """
    return descend(model, risk, sgd_rule(learning_rate, momentum), steps,
                   key=key, monitor=monitor, save=save, progress=progress, callback=callback,
                   checkpoint=checkpoint, stretch=stretch)  # fmt: skip


def adam(
    model: AbstractModel,
    risk: AbstractRisk,
    learning_rate: float,
    steps: int,
    b1: float = 0.9,
    b2: float = 0.999,
    *,
    key: PRNGKeyArray | None = None,
    monitor: AbstractRisk | None = None,
    save: SavePoints = SaveAtDrops(),
    progress: bool | None = None,
    callback: Callable[[Status], bool | None] | None = None,
    checkpoint: Checkpoint | None = None,
    stretch: int = LONGEST_STRETCH,
) -> Trajectory:
    """Adam on any risk. Other arguments: as in `descend`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1, scale=0.1)
    >>> run = icl.adam(model, icl.risk(task, model), learning_rate=0.01, steps=500)
    >>> run.clock, run.losses[[0, -1]].round(3)
    ('step', array([1.124, 0.342]))
    ```
    """
    return descend(model, risk, adam_rule(learning_rate, b1, b2), steps,
                   key=key, monitor=monitor, save=save, progress=progress, callback=callback,
                   checkpoint=checkpoint, stretch=stretch)  # fmt: skip


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
    """Trains a model with any optimiser.

    **Arguments:**

    - `optimiser`: `sgd_rule(…)`, `adam_rule(…)`, or any optax optimiser.
    - `steps`: the number of updates.
    - `key`: of the random stream; needed for a stochastic risk.
    - `monitor`: the risk whose values are recorded, if not `risk` itself: a run on sampled
      sequences can report its exact loss.
    - `save`: which steps to keep: `SaveAtDrops`, `SaveEvenly`, `SaveLogSpaced` or `SaveAtTimes`.
    - `progress`, `callback`, `checkpoint`: as in `FlowOptions`. (An optax optimiser cannot be
      compared with that of a checkpoint: it is assumed to be the same.)
    - `stretch`: the most steps between two calls of `callback`. With fewer steps a run can be
      stopped sooner, and is a little slower.

    **Example:**

    ```pycon
    >>> import optax
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1, scale=0.1)
    >>> risk = icl.risk(task, model, "sampled", batch=64)
    >>> exact = icl.risk(task, model)
    >>> run = icl.descend(model, risk, optax.lion(1e-3), 500, key=jr.key(1), monitor=exact)
    >>> bool(run.losses[-1] < run.losses[0])
    True
    ```
    """
    members = Members.single(model, risk)
    if stretch < 1:
        raise InputError("stretch", stretch, "must be at least 1")
    if key is not None:
        check_key(key)
        key = key[None]
    runs = DescentRuns(
        members,
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
    """Trains many models of one shape as one program.

    **Arguments:**

    - `models`, `risks`: as in `gradient_flow_ensemble`.
    - `keys`: one random key per member, for stochastic risks.
    - Others: as in `descend`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> start = lambda key: icl.Attention.merged(key, dim=2, heads=1, scale=0.1)
    >>> models = icl.init_many(start, jr.split(jr.key(0), 3))
    >>> risk = icl.risk(task, start(jr.key(0)))
    >>> runs = icl.descend_ensemble(models, risk, icl.adam_rule(0.01), 500)
    >>> len(runs), [run.losses[-1].round(3).item() for run in runs]
    (3, [0.342, 0.342, 0.342])
    ```
    """
    members = Members.of(models, risks)
    runs = DescentRuns(members, optimiser, steps, keys=keys, save=save, checkpoint=checkpoint)
    return drive(runs, Monitor(f"training {members.count} models", progress, callback), checkpoint)
