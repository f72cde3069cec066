"""The one function that picks the best risk that exists for a task and a model."""

from typing import Literal

import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..models import AbstractModel, MultiStructured
from ..tasks import (
    AbstractSequences,
    AbstractTask,
    LinearRegression,
    Mixture,
    MultiTaskRegression,
    RandomLabels,
)
from ._base import AbstractRisk
from ._bilinear import exact_bilinear_risk
from ._check import check_own_model, check_task_and_model
from ._choose_sampled import Integrate, sampled_risk
from ._dataset import dataset_risk
from ._draws import Precision
from ._first_order import first_order_risk
from ._isotropic import Isotropic, is_scalar_softmax
from ._large_context import is_structured_softmax, large_context_risk
from ._quadratic import MAX_FEATURES, FeatureLayout
from ._sampled import MinibatchRisk
from ._softmax_exact import exact_softmax_risk
from ._token_moments import exact_quadratic_risk

Kind = Literal["best", "exact", "large_context", "first_order", "dataset", "minibatch", "sampled"]
KINDS = ("exact", "large_context", "first_order", "dataset", "minibatch", "sampled")


def available_kinds(task: AbstractTask, model: AbstractModel) -> tuple[str, ...]:
    """The kinds of risk that exist for this task and this model, best first."""
    check_task_and_model(task, model)
    known = isinstance(task, LinearRegression | Mixture | RandomLabels)
    fits = model.form == "bilinear" or (
        model.form == "cubic" and FeatureLayout.of(model).size <= MAX_FEATURES
    )
    scalar = is_scalar_softmax(model) and Isotropic.of(task) is not None
    labels = MultiTaskRegression if isinstance(model, MultiStructured) else LinearRegression
    missing = {
        "exact": not (known and fits or scalar),
        "large_context": not (is_structured_softmax(model) and isinstance(task, labels)),
        "first_order": not scalar,
    }
    return tuple(kind for kind in KINDS if not missing.get(kind))


def risk(
    task: AbstractTask,
    model: AbstractModel,
    kind: Kind = "best",
    *,
    sequences: AbstractSequences | int | None = None,
    key: PRNGKeyArray | None = None,
    batch: int = 256,
    integrate: Integrate = "auto",
    precision: Precision = "float64",
    chunk: int | None = None,
    digits: int = 10,
) -> AbstractRisk:
    """The risk of models like `model` on `task`.

    **Arguments:**

    - `kind`: `"exact"` (no randomness at all), `"large_context"` and `"first_order"` (its
      approximations for long contexts), `"dataset"` (a fixed set of sequences), `"minibatch"`
      (random picks from a fixed set) or `"sampled"` (fresh sequences at every call). `"best"` is
      exact where that exists, else sampled: the others are choices that only the user can make.
    - `sequences`: for `"dataset"` and `"minibatch"`: the sequences, or how many to draw.
    - `key`: the random key that draws the data set; by default `jax.random.key(0)`.
    - `batch`: for `"sampled"` and `"minibatch"`.
    - `integrate`, `precision`: for `"sampled"`; see `sampled_risk`.
    - `chunk`: for `"dataset"`: how many sequences to hold in memory at a time.
    - `digits`: for `"exact"` with softmax; see `ExactSoftmaxRisk`.
    """
    existing = available_kinds(task, model)
    if kind == "best":
        kind = "exact" if "exact" in existing else "sampled"
    if kind not in existing:
        name = f"{type(model).__name__} ({getattr(model, 'activation', 'own')} attention)"
        raise ValueError(
            f"`kind` = {kind!r} does not exist for {name} on {type(task).__name__}: "
            f"choose one of {', '.join(existing)}."
        )
    if kind in ("exact", "dataset") and model.form != "general":
        check_own_model(task, model)
    if kind == "sampled":
        return sampled_risk(task, model, batch, integrate, precision)
    if kind == "large_context":
        return large_context_risk(task)
    if kind == "first_order":
        return first_order_risk(task)
    if kind == "exact" and is_scalar_softmax(model):
        return exact_softmax_risk(task, digits)
    if kind == "exact":
        chosen = exact_bilinear_risk(task, model) if model.form == "bilinear" else None
        return exact_quadratic_risk(task, model) if chosen is None else chosen
    if sequences is None:
        raise ValueError(f"`kind` = {kind!r} needs `sequences`: a batch of them, or how many.")
    if isinstance(sequences, int):
        if sequences < 1:
            raise ValueError(f"`sequences` = {sequences}: must be at least 1.")
        data: AbstractSequences = task.sample(jr.key(0) if key is None else key, sequences)
    else:
        data = sequences
    if kind == "minibatch":
        return MinibatchRisk(data, batch)
    return dataset_risk(data, model, chunk)
