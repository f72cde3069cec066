"""Whether a model recalls the tasks of its training or solves unseen ones: how far its predictions
are from those of the two Bayes predictors, over training."""

import dataclasses
from collections.abc import Mapping

import jax.random as jr
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..errors import InputError
from ..estimators import DiscreteMMSE, best_ridge
from ..tasks import FiniteTasks, is_whole
from ..trajectory import Trajectory
from ._fitted_estimators import predict


@dataclasses.dataclass(frozen=True)
class RecallDistances:
    """Δ = E(ŷ − ŷ')²/D between a model and each of two predictors, on two distributions
    (arXiv 2306.15063).

    dMMSE recalls the K tasks, and ridge regression is best for unseen isotropic ones. On the tasks
    of the training `dmmse_idg` is (L − L_dMMSE)/D, and on unseen Gaussian ones `ridge_icl` is
    (L − L_ridge)/D, with risks L.

    **Fields:**

    - `times`: of the points of the run.
    - `dmmse_idg`, `ridge_idg`: on fresh sequences of the training tasks.
    - `dmmse_icl`, `ridge_icl`: on unseen tasks.
    - `standard_errors`: of each, by its name.
    """

    times: Float[np.ndarray, " T"]
    dmmse_idg: Float[np.ndarray, " T"]
    ridge_idg: Float[np.ndarray, " T"]
    dmmse_icl: Float[np.ndarray, " T"]
    ridge_icl: Float[np.ndarray, " T"]
    standard_errors: Mapping[str, Float[np.ndarray, " T"]]


def recall_distances(
    run: Trajectory, task: FiniteTasks, key: PRNGKeyArray | None = None, count: int = 2000
) -> RecallDistances:
    """How far a run is from recalling its tasks, and from solving unseen ones, at every saved
    point; for any model.

    **Example:**

    ```pycon
    >>> task = icl.FiniteTasks.draw(jr.key(0), 2, icl.isotropic(3, context=12, noise=0.2))
    >>> model = icl.Attention.merged(jr.key(1), dim=3, heads=3)
    >>> run = icl.gradient_flow(model, icl.risk(task, model))
    >>> found = icl.analysis.recall_distances(run, task)
    >>> bool(found.dmmse_idg[-1] < found.dmmse_idg[0])  # nearer to recalling its two tasks
    True
    ```

    **Arguments:**

    - `task`: that of the training, with label noise. Ridge regression has the best penalty for
      `task.fresh`.
    - `key`: draws the sequences; by default `jax.random.key(0)`.
    - `count`: how many of each distribution.
    """
    if not isinstance(task, FiniteTasks):
        raise TypeError(f"`task` is a {type(task).__name__}: must be FiniteTasks.")
    if not is_whole(count) or count < 2:
        raise InputError("count", count, "a standard error needs at least 2 sequences")
    key_idg, key_icl = jr.split(jr.key(0) if key is None else key)
    drawn = {"idg": task.sample(key_idg, count), "icl": task.fresh.sample(key_icl, count)}
    rivals = {
        "dmmse": DiscreteMMSE(task.vectors, task.fresh.noise),
        "ridge": best_ridge(task.fresh),
    }
    names, squares = [], []
    for test, sequences in drawn.items():
        own = np.asarray(run.map(lambda model: predict(model, sequences)[..., 0]))
        for rival, estimator in rivals.items():
            names.append(f"{rival}_{test}")
            squares.append((own - np.asarray(estimator.predict(sequences))[:, 0]) ** 2 / task.dim)
    means = {name: square.mean(1) for name, square in zip(names, squares)}
    errors = {name: square.std(1, ddof=1) / count**0.5 for name, square in zip(names, squares)}
    return RecallDistances(np.asarray(run.times), **means, standard_errors=errors)
