"""The one function that picks the best risk that exists for a task and a model."""

from typing import Any, Literal

import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..errors import InputError
from ..limits import RiskFacts, RiskKind, best_kind, find_kinds
from ..models import AbstractModel, name_of
from ..tasks import (
    AbstractRegression,
    AbstractTask,
    LinearRegression,
    Mixture,
    RandomLabels,
    Sequences,
    check_key,
    is_whole,
)
from ._base import AbstractRisk
from ._bilinear import exact_bilinear_risk
from ._check import check_own_model, check_task_and_model, is_blind_softmax
from ._choose_sampled import Integrate, sampled_risk
from ._dataset import dataset_risk
from ._disjoint import Disjoint, spectral_circuits
from ._draws import Precision
from ._first_order import first_order_risk
from ._isotropic import Isotropic, scalar_softmax
from ._large_context import large_context_risk
from ._multi_exact import exact_multi_risk
from ._quadratic import FeatureLayout
from ._sampled import MinibatchRisk
from ._softmax_exact import exact_softmax_risk
from ._spectral import spectral_risk
from ._token_moments import exact_quadratic_risk

Kind = Literal["best"] | RiskKind

_OPTIONS: dict[str, tuple[str, ...]] = {
    "exact": ("digits",),
    "dataset": ("sequences", "chunk"),
    "minibatch": ("sequences", "batch"),
    "sampled": ("batch", "integrate", "precision"),
}


def available_kinds(task: AbstractTask, model: AbstractModel) -> tuple[str, ...]:
    """The kinds of risk that exist for this task and this model, best first."""
    check_task_and_model(task, model)
    facts = RiskFacts(
        form=model.form,
        dim=FeatureLayout.of(model).dim if model.form == "cubic" else task.dim,
        moments=isinstance(task, LinearRegression | Mixture | RandomLabels),
        regression=isinstance(task, AbstractRegression),
        blind=is_blind_softmax(model),
        scalar=scalar_softmax(model) is not None and Isotropic.of(task) is not None,
        blocks=Disjoint.of(task, model) is not None,
    )
    return find_kinds(facts)


def risk(
    task: AbstractTask,
    model: AbstractModel,
    kind: Kind = "best",
    *,
    sequences: Sequences | int | None = None,
    key: PRNGKeyArray | None = None,
    batch: int | None = None,
    integrate: Integrate | None = None,
    precision: Precision | None = None,
    chunk: int | None = None,
    digits: int | None = None,
) -> AbstractRisk:
    """The risk of models like `model` on `task`.

    **Arguments:**

    - `kind`: `"exact"` (no randomness at all), `"large_context"` and `"first_order"` (its
      approximations for long contexts), `"dataset"` (a fixed set of sequences), `"minibatch"`
      (random picks from a fixed set) or `"sampled"` (fresh sequences at every call). `"best"` is
      exact where that exists, else sampled: the others are choices that only the user can make.
    - `sequences`: for `"dataset"` and `"minibatch"`: the sequences, or how many to draw.
    - `key`: the random key that draws a data set; by default `jax.random.key(0)`.
    - `batch`: for `"sampled"` and `"minibatch"`; by default 256, or 64 queries.
    - `integrate`, `precision`: for `"sampled"`; see `sampled_risk`.
    - `chunk`: for `"dataset"`: how many sequences to hold in memory at a time.
    - `digits`: for `"exact"` with softmax; see `ExactSoftmaxRisk`.

    An option that the kind does not have is refused; `"best"` takes those of both its kinds.
    """
    existing = available_kinds(task, model)
    given = {"sequences": sequences, "batch": batch, "integrate": integrate,
             "precision": precision, "chunk": chunk, "digits": digits}  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    _check_options(kind, given)
    if kind == "best":
        kind = best_kind(existing)
    if kind not in existing:
        name = f"{name_of(model)} ({getattr(model, 'activation', 'own')} attention)"
        raise InputError(
            "kind",
            kind,
            f"choose one of {', '.join(existing)}",
            f"does not exist for {name} on {type(task).__name__}",
        )
    # Both read a model through its coefficients alone.
    if kind in ("exact", "dataset") and model.form != "general":
        check_own_model(task, model)
    if kind == "sampled":
        return sampled_risk(task, model, **_options_of(given, kind))
    if kind == "large_context":
        return spectral_risk(task, model) or large_context_risk(task)
    if kind == "first_order":
        return first_order_risk(task)
    if kind == "exact" and scalar_softmax(model) is not None:
        return exact_softmax_risk(task, **_options_of(given, kind))
    if kind == "exact" and spectral_circuits(model) is not None:
        return exact_multi_risk(task, model, **_options_of(given, kind))
    if kind == "exact":
        chosen = exact_bilinear_risk(task, model) if model.form == "bilinear" else None
        return exact_quadratic_risk(task, model) if chosen is None else chosen
    if sequences is None:
        raise InputError("kind", kind, "a batch of them, or how many", "needs `sequences`")
    if isinstance(sequences, Sequences):
        data = sequences
    else:
        if not is_whole(sequences) or sequences < 1:
            raise InputError(
                "sequences", sequences, "must be sequences of a task, or how many to draw"
            )
        if key is not None:
            check_key(key)
        data = task.sample(jr.key(0) if key is None else key, int(sequences))
    if kind == "minibatch":
        return MinibatchRisk(data, 256 if batch is None else batch)
    return dataset_risk(data, model, chunk)


def _options_of(given: dict[str, Any], kind: str) -> dict[str, Any]:
    """The options that a kind has."""
    return {name: given[name] for name in _OPTIONS[kind] if name in given}


def _check_options(kind: str, given: dict[str, Any]) -> None:
    """Refuses options that a kind does not have: they would be ignored."""
    own = _OPTIONS["exact"] + _OPTIONS["sampled"] if kind == "best" else _OPTIONS.get(kind, ())
    for name, value in given.items():
        if name not in own:
            allowed = f"allowed are {', '.join(own)}" if own else "it has none"
            raise InputError(name, value, allowed, f"is no option of `kind` = {kind!r}")
