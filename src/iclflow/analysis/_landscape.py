"""Losses of many models at once: a map of the landscape that training moves in."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..flows import Status
from ..flows._ensemble import Members
from ..flows._progress import Monitor
from ..risks import AbstractRisk, ExactSoftmaxRisk

# From so many models on a table of integrals pays for itself.
_TABLE_FROM = 256
# Models in one call, where nothing is known of what they take.
_AT_ONCE = 256
# The table of models that hardly attend would be one of a point.
_LEAST_REACH = 0.05


class Landscape(NamedTuple):
    """Losses, in the order in which the models were given.

    **Fields:**

    - `gradients`: of each model, shaped like the models, with a leading axis; None if not asked
      for.
    """

    losses: Float[np.ndarray, " n"]
    gradients: Any


def landscape(
    models,
    risk,
    *,
    gradients: bool = False,
    at_once: int | None = None,
    progress: bool | None = None,
) -> Landscape:
    """The loss of every model, and its gradient if asked.

    The exact risk of softmax attention is quadratic in μ with integrals that depend on ω alone:
    from a few hundred models on, all of these are made in one table first (see
    `ExactSoftmaxRisk.tabulated`), whatever the number of models.

    **Arguments:**

    - `models`: a sequence of models of one shape, or one whose arrays have a leading axis.
    - `risk`: any risk without randomness.
    - `at_once`: how many models to hold in memory together; by default 256, or 4096 with a table.
    - `progress`: whether to show a bar after two seconds; by default if standard error is a
      terminal.
    """
    members = Members.of(models, risk)
    if not isinstance(risk, AbstractRisk):
        raise TypeError(f"`risk` is a {type(risk).__name__}: must be one risk, for all models.")
    if risk.stochastic:
        raise ValueError("`risk` draws sequences: a landscape needs one without randomness.")
    if at_once is not None and at_once < 1:
        raise ValueError(f"`at_once` = {at_once}: must be a whole number from 1 up.")
    weights, rest = eqx.partition(members.models, eqx.is_inexact_array)
    weights = jax.tree.map(np.asarray, weights)
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(weights)):
        raise ValueError("`models` hold NaN or infinity: every weight must be finite.")
    monitor = Monitor(f"losses of {members.count} models", progress)
    try:
        if isinstance(risk, ExactSoftmaxRisk) and members.count >= _TABLE_FROM:
            risk = _tabulated(risk, members, monitor)
            at_once = at_once or 4096
        size = min(members.count, at_once or _AT_ONCE)
        parts = []
        for start in range(0, members.count, size):
            # Chunks of one size mean one compilation: the last begins earlier.
            first = min(start, members.count - size)
            part = jax.tree.map(lambda x: x[first : first + size], weights)
            found = jax.device_get(_evaluate(risk, part, _part(rest, first, size), gradients))
            parts.append(jax.tree.map(lambda x: x[start - first :], found))
            done = min(start + size, members.count)
            loss = float(parts[-1][0][-1])
            words = f"{done} of {members.count}"
            monitor.update(Status(done, loss, done, done / members.count, words=words))
    finally:
        monitor.close()
    losses, slopes = jax.tree.map(lambda *chunks: np.concatenate(chunks), *parts)
    return Landscape(losses, slopes)


def _tabulated(risk: ExactSoftmaxRisk, members: Members, monitor: Monitor) -> AbstractRisk:
    omega = eqx.filter_vmap(lambda model: risk.task.heads(model)[0])(members.models)
    largest = float(jnp.max(jnp.abs(omega)) / risk.task.input_variance)
    say = lambda share: monitor.update(Status(share, 0.0, 0, share, words="table of integrals"))
    return risk.tabulated(max(largest, _LEAST_REACH), say)


def _part(rest, first: int, size: int):
    """What of the models is no weight: whole numbers and the like may have the leading axis too."""
    return jax.tree.map(lambda x: x[first : first + size] if eqx.is_array(x) else x, rest)


@eqx.filter_jit
def _evaluate(risk: AbstractRisk, weights, rest, gradients: bool) -> tuple[Any, Any]:
    def one(weights, rest):
        model = eqx.combine(weights, rest)
        return risk.value_and_gradient(model) if gradients else (risk(model), None)

    return eqx.filter_vmap(one)(weights, rest)
