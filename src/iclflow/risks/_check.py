"""Checks of tasks and models before anything is computed."""

import contextlib
from typing import TypeGuard

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array

from ..models import AbstractModel, Attention, attention_length
from ..runtime.precision import check_made_in_float64
from ..tasks import AbstractTask, Sequences

# A user's coefficients are compared with predictions on so many sequences. The largest difference
# allowed, relative to the predictions: rounding is far below it, mistakes are far above.
_SEQUENCES = 4
_TOLERANCE = 1e-4


def check_task_and_model(task: AbstractTask, model: AbstractModel) -> None:
    """Refuses anything but a task and a model, in this order, with sizes that fit."""
    if isinstance(task, AbstractModel) and isinstance(model, AbstractTask):
        raise TypeError("`task` and `model` are swapped: the task comes first.")
    for name, value, kind in (("task", task, AbstractTask), ("model", model, AbstractModel)):
        if not isinstance(value, kind):
            raise TypeError(f"`{name}` is of type {type(value).__name__}: must be a {name}.")
    # Here for every kind of risk: float32 weights are refused before anything is computed.
    check_made_in_float64(task=task, model=model)
    dim = _inputs(model)
    if dim is not None and dim != task.dim:
        raise ValueError(f"The model has D = {dim} and the task D = {task.dim}: must be equal.")
    if model.labels != task.labels:
        raise ValueError(
            f"The model predicts {_count_labels(model.labels)} and the task has "
            f"{_count_labels(task.labels)}: must be equal."
        )


def is_softmax_over_context(model: AbstractModel | None) -> TypeGuard[Attention]:
    """Whether attention is softmax over the context alone, without the query's own token."""
    if not isinstance(model, Attention):
        return False
    return model.activation == "softmax" and not model.self_attention


def is_blind_softmax(model: AbstractModel) -> TypeGuard[Attention]:
    """Whether attention is softmax over the context alone, and does not depend on the labels."""
    return is_softmax_over_context(model) and model.blind


def _count_labels(labels: int) -> str:
    return "1 label" if labels == 1 else f"{labels} labels"


def check_own_model(task: AbstractTask, model: AbstractModel) -> None:
    """Refuses a model from outside this library whose `coefficients()` are not those of its
    `predict()`: an exact risk reads the first alone."""
    if type(model).__module__.split(".")[0] == __name__.split(".")[0]:
        return
    gap = None
    # Traced and stacked models cannot be checked here; a model that cannot predict fails later.
    with contextlib.suppress(Exception):
        sequences = task.sample(jr.key(0), _SEQUENCES)
        predicted, stated = model.predict(sequences)[..., 0], _from_coefficients(model, sequences)
        gap = float(jnp.max(jnp.abs(predicted - stated)) / jnp.max(jnp.abs(predicted)))
    if gap is not None and gap > _TOLERANCE:
        raise ValueError(
            f"`coefficients()` of {type(model).__name__} does not match its `predict()`: they "
            f"differ by {gap:.2g} of the prediction. A {model.form} model must have "
            f"{_FORMULAS[model.form]}, with sums over the context divided as `divides_by` says."
        )


_FORMULAS = {"bilinear": "ŷ = βᵀAx_q", "cubic": "ŷ = Σ θ_abc G_ab x_q,c"}


def _inputs(model: AbstractModel) -> int | None:
    """The input dimension of a model, if its shapes say it."""
    circuit = model.coefficients if model.form != "general" else getattr(model, "kq", None)
    # Stacked models have other shapes: their risk finds out when it is called.
    with contextlib.suppress(Exception):
        return None if circuit is None else int(eqx.filter_eval_shape(circuit).shape[-1])
    return None


def _from_coefficients(model: AbstractModel, sequences: Sequences) -> Array:
    """The predictions by the coefficients of a model, from the definition of its form."""
    share = 1 / attention_length(sequences.length, model.divides_by)
    if model.form == "bilinear":
        beta = jnp.einsum("...nd,...n->...d", sequences.x, share[..., None] * sequences.y[..., 0])
        return jnp.einsum("...d,de,...e->...", beta, model.coefficients(), sequences.x_query)
    tokens = jnp.concatenate([sequences.x, sequences.y], -1)
    query = jnp.concatenate([sequences.x_query, jnp.zeros_like(sequences.x_query[..., :1])], -1)
    gram = jnp.einsum("...na,...nb->...ab", tokens, tokens)
    gram = share[..., None, None] * (gram + query[..., :, None] * query[..., None, :])
    return jnp.einsum("abc,...ab,...c->...", model.coefficients(), gram, sequences.x_query)
