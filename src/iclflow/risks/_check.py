"""Natural mistakes, told in one sentence before anything is computed."""

import contextlib

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from ..models import AbstractModel, attention_length
from ..precision import check_made_in_float64
from ..tasks import AbstractTask

# Sequences on which the coefficients of a model of one's own are compared with its predictions, and
# the largest deviation, as a share of the predictions: rounding is far below, mistakes far above.
_SEQUENCES = 4
_TOLERANCE = 1e-4


def check_task_and_model(task: AbstractTask, model: AbstractModel) -> None:
    """Refuses what is no task or no model, one in the other's place, and sizes that do not fit."""
    if isinstance(task, AbstractModel) and isinstance(model, AbstractTask):
        raise TypeError("`task` and `model` are swapped: the task comes first.")
    for name, value, kind in (("task", task, AbstractTask), ("model", model, AbstractModel)):
        if not isinstance(value, kind):
            raise TypeError(f"`{name}` is of type {type(value).__name__}: must be a {name}.")
    check_made_in_float64(task=task, model=model)
    dim = _inputs(model)
    if dim is not None and dim != task.dim:
        raise ValueError(f"The model has D = {dim} and the task D = {task.dim}: must be equal.")
    if model.labels != task.labels:
        raise ValueError(
            f"The model predicts {_counted(model.labels)} and the task has "
            f"{_counted(task.labels)}: must be equal."
        )


def _counted(labels: int | None) -> str:
    """As two shapes of one label differ: on an axis of its own, or without."""
    if labels is None:
        return "one label (without an axis of labels)"
    return f"{labels} label{'' if labels == 1 else 's'} (on an axis of labels)"


def check_own_model(task: AbstractTask, model: AbstractModel) -> None:
    """Refuses a model from outside this library whose `coefficients()` are not those of its
    `predict()`: an exact risk reads the first alone."""
    if type(model).__module__.split(".")[0] == __name__.split(".")[0]:
        return
    gap = None
    # A model that is traced or stacked cannot be checked here; one that cannot predict fails later.
    with contextlib.suppress(Exception):
        sequences = task.sample(jr.key(0), _SEQUENCES)
        predicted, stated = model.predict(sequences), _from_coefficients(model, sequences)
        gap = float(jnp.max(jnp.abs(predicted - stated)) / jnp.max(jnp.abs(predicted)))
    if gap is not None and gap > _TOLERANCE:
        raise ValueError(
            f"`coefficients()` of {type(model).__name__} does not give what its `predict()` gives: "
            f"they differ by {gap:.2g} of the prediction. A {model.form} model must have "
            f"{_FORMULAS[model.form]}, with sums over the context divided as `divides_by` says."
        )


_FORMULAS = {"bilinear": "ŷ = βᵀAx_q", "cubic": "ŷ = Σ θ_abc G_ab x_q,c"}


def _inputs(model: AbstractModel) -> int | None:
    """The dimension of the inputs that a model reads, where it can be told without computing."""
    circuit = model.coefficients if model.form != "general" else getattr(model, "kq", None)
    # Stacked models have other shapes: their risk finds out when it is called.
    with contextlib.suppress(Exception):
        return None if circuit is None else int(eqx.filter_eval_shape(circuit).shape[-1])
    return None


def _from_coefficients(model: AbstractModel, sequences) -> Array:
    """What the coefficients of a model say that it predicts."""
    share = 1 / attention_length(sequences.length, model.divides_by)
    if model.form == "bilinear":
        beta = share[..., None] * jnp.einsum("...nd,...n->...d", sequences.x, sequences.y)
        return jnp.einsum("...d,de,...e->...", beta, model.coefficients(), sequences.x_query)
    tokens = jnp.concatenate([sequences.x, sequences.y[..., None]], -1)
    query = jnp.concatenate([sequences.x_query, jnp.zeros_like(sequences.x_query[..., :1])], -1)
    gram = jnp.einsum("...na,...nb->...ab", tokens, tokens)
    gram = share[..., None, None] * (gram + query[..., :, None] * query[..., None, :])
    return jnp.einsum("abc,...ab,...c->...", model.coefficients(), gram, sequences.x_query)
