"""Losses of many models at once: a map of the landscape that training moves in."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ..errors import InputError
from ..models import AbstractModel
from ..risks import AbstractRisk, ExactSoftmaxRisk
from ._ensemble import Members
from ._progress import Monitor, Status

# From so many models on a table of integrals pays for itself.
_TABLE_FROM = 256
# Models in one call, where nothing is known of what they take.
_AT_ONCE = 256
# The same with a table, which leaves a few hundred numbers per model.
_AT_ONCE_BY_TABLE = 4096
# The table of models that hardly attend would be one of a point.
_LEAST_REACH = 0.05
# A few models that attend so many times more than nearly all (this share) stay out of the table:
# it would take minutes on their account, and any of them alone takes seconds.
_FAR, _NEARLY_ALL, _FEW = 4.0, 0.95, 64
# How much of the time that a map takes goes into its table.
_TABLE_SHARE = 0.9


class Landscape(NamedTuple):
    """Losses, in the order in which the models were given.

    **Fields:**

    - `gradients`: of each model, shaped like the models, with a leading axis; None if not asked
      for.
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
    """The loss of every model, and its gradient if asked.

    The exact risk of softmax attention is quadratic in μ with integrals that depend on ω alone:
    from a few hundred models on, all of these are made in one table first (see
    `ExactSoftmaxRisk.tabulate`), whatever the number of models. A few models whose ω lie far
    beyond those of the others are computed one by one, without the table.

    **Arguments:**

    - `models`: a sequence of models of one shape, or one whose arrays have a leading axis.
    - `risk`: any risk without randomness.
    - `at_once`: how many models to hold in memory together; by default 256, or 4096 with a table.
    - `progress`: whether to show a bar after two seconds; by default if standard error is a
      terminal.
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
                part = jax.tree.map(lambda x: x[places], weights)
                found = jax.device_get(_evaluate(batch.risk, part, _part(rest, places), gradients))
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
    """Models that share a way to be computed, by their places among all, and how many at once."""

    risk: AbstractRisk
    places: np.ndarray
    at_once: int

    def chunks(self) -> Iterator[tuple[np.ndarray, int]]:
        """The places of one call after the other; the last so many are new."""
        count = len(self.places)
        size = min(count, self.at_once)
        for start in range(0, count, size):
            # Chunks of one size mean one compilation: the last begins earlier.
            end = min(start + size, count)
            yield self.places[end - size : end], end - start


def _split_by_table(
    risk: ExactSoftmaxRisk, members: Members, at_once: int, monitor: Monitor
) -> list[_Batch]:
    """Nearly all models by a table, and those too far for it by the risk itself."""
    omega = eqx.filter_vmap(lambda model: risk.task.heads(model)[0])(members.models)
    steepest = np.max(np.abs(omega), 1) / float(risk.task.input_variance)
    common = max(float(np.quantile(steepest, _NEARLY_ALL)), _LEAST_REACH)
    far = steepest > _FAR * common
    # Many far models are worth a wide table after all.
    if np.sum(far) >= _FEW:
        far[:] = False
    report = lambda share: monitor.update(
        Status(share, 0.0, 0, _TABLE_SHARE * share, words="table of integrals")
    )
    table = risk.tabulate(max(float(np.max(steepest[~far])), _LEAST_REACH), report)
    batches = [_Batch(table, np.flatnonzero(~far), at_once)]
    return batches + [_Batch(risk, np.flatnonzero(far), 1)] * bool(np.any(far))


def _part(rest: Any, places: np.ndarray):
    """What of the models is no weight: whole numbers and the like may have the leading axis too."""
    return jax.tree.map(lambda x: x[places] if eqx.is_array(x) else x, rest)


@eqx.filter_jit
def _evaluate(risk: AbstractRisk, weights: Any, rest: Any, gradients: bool) -> tuple[Any, Any]:
    def one(weights: Any, rest: Any):
        model = eqx.combine(weights, rest)
        return risk.value_and_gradient(model) if gradients else (risk(model), None)

    return eqx.filter_vmap(one)(weights, rest)
