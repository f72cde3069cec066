"""The losses of many models at once: a map of the landscape."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..errors import InputError
from ..models import AbstractModel
from ..risks import AbstractRisk, ExactSoftmaxRisk
from ._members import Members
from ._progress import Monitor, Status

# From this many models on, a table of integrals takes less time than it saves.
_TABLE_FROM = 256
# Models per call if their cost is unknown, and with a table: a few hundred numbers per model.
_AT_ONCE, _AT_ONCE_BY_TABLE = 256, 4096
# The smallest reach of a table: for models that hardly attend it would shrink to a point.
_LEAST_REACH = 0.05
# A few models may attend far more than nearly all (this quantile) do. They stay out of the table:
# it would take minutes for their sake, and each of them alone takes seconds.
_FAR, _NEARLY_ALL, _FEW = 4.0, 0.95, 64
# The share of the progress bar that belongs to the table.
_TABLE_SHARE = 0.9


class Landscape(NamedTuple):
    """Losses, in the order in which the models were given.

    **Fields:**

    - `gradients`: the gradient of each model, shaped like the stacked models, or None.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> models = [icl.Attention.merged(jr.key(i), dim=2, heads=1) for i in range(3)]
    >>> found = icl.landscape(models, icl.risk(task, models[0]), gradients=True)
    >>> found.losses.shape, found.gradients.circuits.value.shape
    ((3,), (3, 1, 1, 1))
    ```
    """

    losses: Float[np.ndarray, " n"]
    gradients: Any


def landscape(
    models: AbstractModel | Sequence[AbstractModel],
    risk: AbstractRisk,
    *,
    gradients: bool = False,
    at_once: int | None = None,
    progress: bool | None = None,
) -> Landscape:
    """The loss of every model, and optionally its gradient.

    The exact risk of softmax attention is quadratic in μ with integrals that depend on ω alone.
    From a few hundred models on, these integrals are tabulated first (see
    `ExactSoftmaxRisk.tabulate`). A few models whose ω lie far beyond the others are computed one
    by one, without the table.

    **Arguments:**

    - `models`: a sequence of models of one shape, or one whose arrays have a leading axis.
    - `risk`: any risk without randomness.
    - `gradients`: whether to compute the gradients, too.
    - `at_once`: how many models to hold in memory together; by default 256, or 4096 with a table.
    - `progress`: whether to show a bar after two seconds; by default if standard error is a
      terminal.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> pair = lambda w: icl.Attention(icl.Diagonal([w, -w], [3.45, -3.45], dim=5))
    >>> pairs = [pair(w) for w in (0.05, 0.13, 0.3)]
    >>> icl.landscape(pairs, icl.risk(task, pairs[0])).losses.round(3)
    array([0.559, 0.243, 1.732])
    ```
    """
    if isinstance(models, AbstractRisk):
        raise TypeError("`models` and `risk` are swapped: the models come first.")
    if not isinstance(risk, AbstractRisk):
        raise TypeError(f"`risk` is a {type(risk).__name__}: must be one risk, for all models.")
    members = Members.of(models, risk)
    if risk.stochastic:
        raise InputError(
            "risk", problem="draws sequences", allowed="a landscape needs one without randomness"
        )
    if at_once is not None and not (isinstance(at_once, int) and at_once > 0):
        raise InputError("at_once", at_once, "must be a whole number from 1 up")
    weights, rest = eqx.partition(members.models, eqx.is_inexact_array)
    # In NumPy: slicing JAX arrays would compile a program for every chunk size.
    weights = jax.tree.map(np.asarray, weights)
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(weights)):
        raise InputError(
            "models", problem="hold NaN or infinity", allowed="every weight must be finite"
        )
    monitor = Monitor(f"losses of {members.count} models", progress)
    order, parts, begun = np.arange(members.count), [], 0.0
    try:
        batches = [_Batch(risk, order, at_once or _AT_ONCE)]
        if isinstance(risk, ExactSoftmaxRisk) and members.count >= _TABLE_FROM:
            together = at_once or _AT_ONCE_BY_TABLE
            batches, begun = _split_by_table(risk, members, together, monitor), _TABLE_SHARE
            order = np.concatenate([batch.places for batch in batches])
        done = 0
        for batch in batches:
            for places, fresh in batch.chunks():
                # Integer arrays are not weights, but have the leading axis, too.
                take = lambda x: x[places] if eqx.is_array(x) else x
                own, other = jax.tree.map(take, (weights, rest))
                found = jax.device_get(_evaluate(batch.risk, own, other, gradients))
                parts.append(jax.tree.map(lambda x: x[-fresh:], found))
                done += fresh
                share = begun + (1 - begun) * done / members.count
                words = f"{done} of {members.count}"
                monitor.update(Status(done, float(parts[-1][0][-1]), done, share, words=words))
    finally:
        monitor.close()
    back = np.argsort(order)
    losses, slopes = jax.tree.map(lambda *chunks: np.concatenate(chunks)[back], *parts)
    return Landscape(losses, slopes)


class _Batch(NamedTuple):
    """Models that are computed in the same way: their places among all, and how many per call."""

    risk: AbstractRisk
    places: np.ndarray
    at_once: int

    def chunks(self) -> Iterator[tuple[np.ndarray, int]]:
        """The places of each call, and how many of them, at the end, are new."""
        count = len(self.places)
        size = min(count, self.at_once)
        for start in range(0, count, size):
            # Chunks of one size are compiled once: the last one overlaps the one before.
            end = min(start + size, count)
            yield self.places[end - size : end], end - start


def _split_by_table(
    risk: ExactSoftmaxRisk, members: Members, at_once: int, monitor: Monitor
) -> list[_Batch]:
    """Nearly all models with a table, and those that are too far for it with the risk itself."""
    omega = eqx.filter_vmap(lambda model: risk.task.heads(model)[0])(members.models)
    steepest = np.max(np.abs(omega), 1) / float(risk.task.input_variance)
    common = max(float(np.quantile(steepest, _NEARLY_ALL)), _LEAST_REACH)
    far = steepest > _FAR * common
    # Many far models are worth a wide table.
    if np.sum(far) >= _FEW:
        far[:] = False
    report = lambda share: monitor.update(
        Status(share, 0.0, 0, _TABLE_SHARE * share, words="table of integrals")
    )
    table = risk.tabulate(max(float(np.max(steepest[~far])), _LEAST_REACH), report)
    batches = [_Batch(table, np.flatnonzero(~far), at_once)]
    return batches + [_Batch(risk, np.flatnonzero(far), 1)] * bool(np.any(far))


@eqx.filter_jit
def _evaluate(risk: AbstractRisk, weights: Any, rest: Any, gradients: bool) -> tuple[Any, Any]:
    def one(weights: Any, rest: Any):
        model = eqx.combine(weights, rest)
        return risk.value_and_gradient(model) if gradients else (risk(model), None)

    return eqx.filter_vmap(one)(weights, rest)
