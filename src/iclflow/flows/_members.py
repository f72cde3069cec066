"""The models and risks of some runs, and a function of one run applied to all of them."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..errors import InputError
from ..models import AbstractModel, axes_of_weights, name_of
from ..risks import AbstractRisk
from ..runtime.precision import check_made_in_float64
from ._ensemble import stack
from ._layout import Layout


@dataclasses.dataclass(frozen=True)
class Members:
    """What runs start from: a single run, or the members of an ensemble.

    **Fields:**

    - `models`: one model, or the models of an ensemble, stacked.
    - `risk`: one risk, or those of an ensemble, stacked.
    - `swept`: None for a single run, else whether each member has its own risk; see
      `over_members`.
    - `count`: the number of runs.
    """

    models: AbstractModel
    risk: AbstractRisk
    swept: bool | None
    count: int

    @property
    def layout(self) -> Layout:
        """The layout that all models share."""
        if self.swept is None:
            return Layout.of(self.models)
        return Layout.of(jax.tree.map(lambda x: x[0] if eqx.is_array(x) else x, self.models))

    @staticmethod
    def single(model: AbstractModel, risk: AbstractRisk) -> "Members":
        """One model on one risk."""
        if isinstance(model, AbstractRisk) and isinstance(risk, AbstractModel):
            raise TypeError("`model` and `risk` are swapped: the model comes first.")
        for name, value, kind in (("model", model, AbstractModel), ("risk", risk, AbstractRisk)):
            if not isinstance(value, kind):
                raise TypeError(f"`{name}` is of type {type(value).__name__}: must be a {name}.")
        check_made_in_float64(model=model)
        return Members(model, risk, None, 1)

    @staticmethod
    def of(
        models: AbstractModel | Sequence[AbstractModel],
        risks: AbstractRisk | Sequence[AbstractRisk],
    ) -> "Members":
        """The members of an ensemble.

        **Arguments:**

        - `models`: a sequence of models of one shape, or one stacked model.
        - `risks`: one risk that all share, or a sequence with one per model.
        """
        if isinstance(models, AbstractRisk) or isinstance(risks, AbstractModel):
            raise TypeError("`models` and `risks` are swapped: the models come first.")
        if isinstance(models, Sequence):
            if not models:
                raise InputError("models", problem="is empty", allowed="give at least one model")
            stacked = stack(models)
        else:
            stacked = _check_stacked(models)
        check_made_in_float64(models=stacked)
        count = jax.tree.leaves(eqx.filter(stacked, eqx.is_array))[0].shape[0]
        if isinstance(risks, AbstractRisk):
            return Members(stacked, risks, False, count)
        if len(risks) != count:
            raise ValueError(f"There are {count} models and {len(risks)} risks: give one each.")
        return Members(stacked, stack(risks), True, count)


def _check_stacked(models: Any) -> AbstractModel:
    """Refuses anything but a model whose weights have one axis more than those of one model."""
    allowed = "must be a sequence of models, or one whose arrays have a leading axis over them."
    if not isinstance(models, AbstractModel):
        raise TypeError(f"`models` is of type {type(models).__name__}: {allowed}")
    for name, shape, axes in axes_of_weights(models):
        if len(shape) - 1 not in axes:
            raise ValueError(
                f"`models` is one {name_of(models)} with `{name}` of shape {shape}: {allowed}"
            )
    return models


def over_members(function: Callable, swept: bool | None, risk: Any, *rest: Any) -> Any:
    """`function(risk, …)` along the leading axis of the other arguments.

    **Arguments:**

    - `swept`: None for a single run (the axis of length 1 is removed and added again, because a
      vmapped program is slower); False for an ensemble that shares its risk; True for one with a
      risk per member. `risk` may be a tuple of risks.
    """
    if swept is None:
        first = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, rest)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], function(risk, *first))
    axes = (eqx.if_array(0) if swept else None,) + (eqx.if_array(0),) * len(rest)
    return eqx.filter_vmap(function, in_axes=axes)(risk, *rest)
