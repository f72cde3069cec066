"""Update rules: how a gradient becomes a step."""

from functools import lru_cache
from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from ..errors import InputError
from ..runtime.precision import as_float
from ..tasks import is_real


def rule_of(optimiser: Any) -> "Rule":
    """The rule for an optimiser: itself, or the steps of an optax optimiser."""
    if isinstance(optimiser, Rule):
        return optimiser
    if not isinstance(optimiser, optax.GradientTransformation):
        raise TypeError(
            f"`optimiser` = {optimiser!r}: must be `adam_rule(learning_rate)`, "
            "`sgd_rule(learning_rate)` or an optax optimiser, such as `optax.lion(1e-3)`."
        )
    # An optax optimiser contains its learning rate.
    return Rule(optimiser, jnp.ones(()))


class Rule(eqx.Module):
    """How a gradient becomes a step: an optax transformation, then a factor.

    The factor is an array, so that another learning rate does not mean another compilation.

    **Example:**

    ```pycon
    >>> import optax
    >>> icl.adam_rule(1e-3).factor, icl.flows.Rule(optax.scale_by_sign(), jnp.array(-1e-3)).name
    (Array(-0.001, dtype=float64), '')
    ```
    """

    transform: optax.GradientTransformation = eqx.field(static=True)
    factor: Array
    # Identifies the transformation when a run is resumed: functions cannot be compared.
    name: str = eqx.field(static=True, default="")

    def move(
        self, factor: Array, gradient: Array, memory: Any, weights: Array
    ) -> tuple[Array, Any]:
        """Weights and memory after one step, with this factor."""
        updates, memory = self.transform.update(gradient, memory, weights)
        return weights + factor * cast(Array, updates), memory


def sgd_rule(learning_rate: float, momentum: float = 0.0) -> Rule:
    """The rule of gradient descent, with momentum.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1, scale=0.1)
    >>> rule = icl.sgd_rule(learning_rate=0.01, momentum=0.9)
    >>> icl.descend(model, icl.risk(task, model), rule, 500).losses[-1].round(2)
    np.float64(0.34)
    ```
    """
    _check_decays(momentum=momentum)
    return Rule(_trace(momentum), _downhill(learning_rate), f"sgd {momentum!r}")


def adam_rule(learning_rate: float, b1: float = 0.9, b2: float = 0.999) -> Rule:
    """The rule of Adam.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=2, context=10)
    >>> model = icl.Attention.merged(jr.key(0), dim=2, heads=1, scale=0.1)
    >>> rule = icl.adam_rule(learning_rate=0.01, b2=0.99)
    >>> icl.descend(model, icl.risk(task, model), rule, 500).losses[-1].round(2)
    np.float64(0.34)
    ```
    """
    _check_decays(b1=b1, b2=b2)
    return Rule(_scale_by_adam(b1, b2), _downhill(learning_rate), f"adam {b1!r} {b2!r}")


def _check_decays(**decays: float) -> None:
    for name, value in decays.items():
        if not 0 <= value < 1:
            raise InputError(name, value, "must be at least 0 and below 1")


# Cached, because a transformation is compiled in by identity: equal ones must be one object.
@lru_cache
def _trace(momentum: float) -> optax.GradientTransformation:
    return optax.trace(momentum) if momentum else optax.identity()


_scale_by_adam = lru_cache(optax.scale_by_adam)


def _downhill(learning_rate: float) -> Array:
    if not (is_real(learning_rate) and np.isfinite(learning_rate) and learning_rate > 0):
        raise InputError("learning_rate", learning_rate, "must be a number, finite and positive")
    return as_float(np.asarray(-learning_rate))
