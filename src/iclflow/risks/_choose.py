"""The one function that picks the best risk that exists for a task and a model."""

from typing import Literal

import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..models import AbstractModel
from ..tasks import AbstractTask, LinearRegression, Mixture, RandomLabels, Sequences
from ._base import AbstractRisk
from ._bilinear import exact_bilinear_risk
from ._dataset import dataset_risk
from ._quadratic import MAX_FEATURES, FeatureLayout
from ._sampled import MinibatchRisk, SampledRisk
from ._token_moments import exact_quadratic_risk

Kind = Literal["best", "exact", "dataset", "minibatch", "sampled"]
KINDS = ("exact", "dataset", "minibatch", "sampled")


def available_kinds(task: AbstractTask, model: AbstractModel) -> tuple[str, ...]:
    """The kinds of risk that exist for this task and this model, best first."""
    known = isinstance(task, LinearRegression | Mixture | RandomLabels)
    fits = model.form == "bilinear" or (
        model.form == "cubic" and FeatureLayout.of(model).size <= MAX_FEATURES
    )
    return KINDS if known and fits else KINDS[1:]


def risk(
    task: AbstractTask,
    model: AbstractModel,
    kind: Kind = "best",
    *,
    sequences: Sequences | int | None = None,
    key: PRNGKeyArray | None = None,
    batch: int = 256,
    posterior_target: bool = False,
    chunk: int | None = None,
) -> AbstractRisk:
    """The risk of models like `model` on `task`.

    **Arguments:**

    - `kind`: `"exact"` (no randomness at all), `"dataset"` (a fixed set of sequences),
      `"minibatch"` (random picks from a fixed set) or `"sampled"` (fresh sequences at every
      call). `"best"` is exact where that exists, else sampled: a finite data set is a choice
      that only the user can make.
    - `sequences`: for `"dataset"` and `"minibatch"`: the sequences, or how many to draw.
    - `key`: the random key that draws the data set; by default `jax.random.key(0)`.
    - `batch`: for `"sampled"` and `"minibatch"`.
    - `posterior_target`: for `"sampled"`; see `SampledRisk`.
    - `chunk`: for `"dataset"`: how many sequences to hold in memory at a time.
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
    if kind == "sampled":
        return SampledRisk(task, batch, posterior_target)
    if kind == "exact":
        chosen = exact_bilinear_risk(task, model) if model.form == "bilinear" else None
        return exact_quadratic_risk(task, model) if chosen is None else chosen
    if sequences is None:
        raise ValueError(f"`kind` = {kind!r} needs `sequences`: a batch of them, or how many.")
    if isinstance(sequences, int):
        if sequences < 1:
            raise ValueError(f"`sequences` = {sequences}: must be at least 1.")
        sequences = task.sample(jr.key(0) if key is None else key, sequences)
    if kind == "minibatch":
        return MinibatchRisk(sequences, batch)
    return dataset_risk(sequences, model, chunk)
