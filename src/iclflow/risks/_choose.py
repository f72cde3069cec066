"""Picks the best risk that exists for a task and a model; the only place that knows which exist."""

from typing import Any, Literal, get_args

import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..errors import InputError
from ..limits import RiskFacts, RiskKind, best_kind, find_kinds
from ..models import AbstractLinearStack, AbstractModel, name_of
from ..runtime.precision import check_made_in_float64
from ..tasks import (
    AbstractRegression,
    AbstractTask,
    FiniteTasks,
    LinearRegression,
    Mixture,
    RandomLabels,
    Sequences,
    check_choice,
    check_key,
    is_whole,
    same_moments,
)
from ._base import AbstractRisk
from ._batch import AbstractSampledRisk
from ._bilinear import exact_bilinear_risk
from ._check import check_own_model, check_task_and_model, is_blind_softmax, is_softmax_over_context
from ._dataset import dataset_risk
from ._draws import Precision
from ._head_task import Disjoint, Isotropic, scalar_softmax, spectral_circuits
from ._large_context import first_order_risk, large_context_risk, spectral_risk
from ._multi_exact import exact_multi_risk
from ._quadratic import FeatureLayout
from ._query_sampled import QuerySampledRisk, contexts_can_be_integrated
from ._sampled import IntegratedRisk, MinibatchRisk, SampledRisk, labels_can_be_integrated
from ._softmax_exact import exact_softmax_risk
from ._stack_exact import stack_risk
from ._stack_sampled import GramRisk, grams_are_enough
from ._stack_spectrum import white_stack_risk
from ._stack_task import stack_facts
from ._token_moments import exact_quadratic_risk
from .fused import EngineName

Integrate = Literal["auto", "labels", "posterior", "none", "context"]
# Default batch sizes: a query with all contexts averaged over replaces several sequences, and costs
# far more.
_QUERIES, _SEQUENCES = 64, 256


def sampled_risk(
    task: AbstractTask,
    model: AbstractModel,
    batch: int | None = None,
    integrate: Integrate = "auto",
    precision: Precision = "float64",
    engine: EngineName = "auto",
) -> AbstractSampledRisk:
    """The risk of models like `model` on fresh sequences, all with the same mean.

    **Arguments:**

    - `integrate`: what is averaged in closed form: `"none"`; `"posterior"`, the part of the query
      label that cannot be predicted; `"labels"`, all labels (if the attention weights do not depend
      on them; of stacks of linear attention queries too, see `GramRisk`); `"context"`, inputs and
      labels of the context (softmax attention whose weights do not depend on labels: few samples,
      each of them expensive). `"auto"` is `"labels"` where that exists, else
      `"posterior"` on linear regression with label noise, where it costs little, else `"none"`.
      With `precision="float32"` it is `"none"` there too, since a fused pass is many times faster.
    - `batch`: by default that of the risk: 256 sequences, or 64 queries for `"context"`.
    - `precision`, `engine`: as in `SampledRisk`; `"context"` is always in float64.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20, noise=0.1)
    >>> model = icl.Attention.factored(jr.key(0), dim=3, heads=2, blind=True)
    >>> type(icl.risks.sampled_risk(task, model)).__name__
    'IntegratedRisk'
    >>> type(icl.risks.sampled_risk(task, model, integrate="none")).__name__
    'SampledRisk'
    ```
    """
    check_made_in_float64(task=task, model=model)
    check_choice("integrate", integrate, get_args(Integrate))
    if integrate == "auto":
        integrate = least_noise(task, model)
        if integrate == "posterior" and precision == "float32" and is_softmax_over_context(model):
            integrate = "none"
    if batch is None:
        batch = _QUERIES if integrate == "context" else _SEQUENCES
    # Both exist for every task and every model.
    if integrate in ("posterior", "none"):
        return SampledRisk(task, batch, integrate == "posterior", precision, engine)
    if isinstance(task, AbstractRegression) and integrate == "labels":
        if grams_are_enough(task, model):
            return GramRisk(task.parts[0], batch, precision)
    # Averages over labels know the task vectors by their first two moments.
    known = same_moments(task)
    if isinstance(known, AbstractRegression):
        if integrate == "labels" and labels_can_be_integrated(known, model):
            return IntegratedRisk(known, batch, precision, engine)
        if integrate == "context" and contexts_can_be_integrated(known, model):
            return QuerySampledRisk(known, batch)
    raise InputError(
        "integrate",
        integrate,
        'choose "posterior" or "none"',
        f"does not exist for {name_of(model)} on {type(task).__name__}",
    )


def least_noise(task: AbstractTask, model: AbstractModel) -> Integrate:
    """As much averaging in closed form as exists at little cost.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20, noise=0.1)
    >>> icl.risks.least_noise(task, icl.Attention.merged(jr.key(0), dim=3, heads=2))
    'labels'
    ```
    """
    if labels_can_be_integrated(same_moments(task), model) or grams_are_enough(task, model):
        return "labels"
    noisy = isinstance(task, LinearRegression) and bool(task.noise > 0)
    return "posterior" if noisy else "none"


Kind = Literal["best"] | RiskKind

_OPTIONS: dict[str, tuple[str, ...]] = {
    "exact": ("digits",),
    "dataset": ("sequences", "chunk", "ridge"),
    "minibatch": ("sequences", "batch"),
    "sampled": ("batch", "integrate", "precision", "engine"),
}


def available_kinds(task: AbstractTask, model: AbstractModel) -> tuple[str, ...]:
    """The kinds of risk that exist for this task and this model, best first.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40)
    >>> icl.available_kinds(task, icl.Attention.merged(jr.key(0), dim=5, heads=2))
    ('exact', 'dataset', 'minibatch', 'sampled')
    >>> icl.available_kinds(task, icl.Attention.factored(jr.key(0), dim=5, heads=2))
    ('dataset', 'minibatch', 'sampled')
    ```
    """
    check_task_and_model(task, model)
    facts = RiskFacts(
        form=model.form,
        dim=FeatureLayout.of(model).dim if model.form == "cubic" else task.dim,
        moments=isinstance(task, LinearRegression | FiniteTasks | Mixture | RandomLabels),
        regression=isinstance(same_moments(task), AbstractRegression),
        blind=is_blind_softmax(model),
        scalar=scalar_softmax(model) is not None and Isotropic.of(task) is not None,
        blocks=Disjoint.of(task, model) is not None,
        stack=stack_facts(task, model),
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
    engine: EngineName | None = None,
    chunk: int | None = None,
    digits: int | None = None,
    ridge: float | None = None,
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
    - `integrate`, `precision`, `engine`: for `"sampled"`; see `sampled_risk`.
    - `chunk`: for `"dataset"`: how many sequences to hold in memory at a time.
    - `ridge`: for `"dataset"`; see `dataset_risk`.
    - `digits`: for `"exact"` with softmax; see `ExactSoftmaxRisk`.

    An option that the kind does not have is refused; `"best"` takes those of both its kinds.

    **Example:**

    ```pycon
    >>> task = icl.LinearRegression(eigenvalues=[0.4, 0.3, 0.2, 0.1], context=31)
    >>> model = icl.Attention.separate(jr.key(0), dim=4, heads=4, scale=1e-2)
    >>> exact = icl.risk(task, model)
    >>> exact.kind, exact(model).round(4), exact.floor(model).round(4)
    ('exact', Array(1., dtype=float64), Array(0.136, dtype=float64))
    >>> sampled = icl.risk(task, model, "sampled", batch=1000)
    >>> mean = sampled.estimate(model, jr.key(1), count=10_000)
    >>> bool(abs(mean.value - exact(model)) < 4 * mean.standard_error)
    True
    ```
    """
    existing = available_kinds(task, model)
    given = {"sequences": sequences, "batch": batch, "integrate": integrate,
             "precision": precision, "engine": engine, "chunk": chunk, "digits": digits,
             "ridge": ridge}  # fmt: skip
    given = {name: value for name, value in given.items() if value is not None}
    _check_options(kind, given)
    if kind == "best":
        kind = best_kind(existing)
    if kind not in existing:
        name = f"{name_of(model)} ({getattr(model, 'activation', 'own')} attention)"
        facts = stack_facts(task, model)
        if facts is not None and facts.regression:
            name = facts.words
        raise InputError(
            "kind",
            kind,
            f"choose one of {', '.join(existing)}",
            f"does not exist for {name} on {type(task).__name__}",
        )
    # Both read a model through its coefficients alone.
    if kind in ("exact", "dataset") and model.form != "general":
        check_own_model(task, model)
    # Of the other kind of "best" there may be options too.
    options = {name: given[name] for name in _OPTIONS.get(kind, ()) if name in given}
    if kind == "sampled":
        return sampled_risk(task, model, **options)
    if kind == "large_context":
        return spectral_risk(task, model) or large_context_risk(same_moments(task))
    if kind == "first_order":
        return first_order_risk(task)
    if kind == "exact":
        return _exact_risk(task, model, **options)
    data = _draw_data(task, kind, sequences, key)
    if kind == "minibatch":
        return MinibatchRisk(data, _SEQUENCES if batch is None else batch)
    return dataset_risk(data, model, chunk, 0.0 if ridge is None else ridge)


def _exact_risk(task: AbstractTask, model: AbstractModel, **options: int) -> AbstractRisk:
    """The cheapest exact risk; linear attention has no `options`."""
    if isinstance(model, AbstractLinearStack) and isinstance(task, LinearRegression):
        facts = stack_facts(task, model)
        white = facts is not None and facts.method == "spectrum"
        return white_stack_risk(task, model) if white else stack_risk(task, model)
    if scalar_softmax(model) is not None:
        return exact_softmax_risk(task, **options)
    if spectral_circuits(model) is not None:
        return exact_multi_risk(task, model, **options)
    chosen = exact_bilinear_risk(task, model) if model.form == "bilinear" else None
    return exact_quadratic_risk(task, model) if chosen is None else chosen


def _draw_data(
    task: AbstractTask, kind: str, sequences: Sequences | int | None, key: PRNGKeyArray | None
) -> Sequences:
    """The sequences of a data set, drawn unless they are given."""
    if isinstance(sequences, Sequences):
        return sequences
    if sequences is None:
        raise InputError("kind", kind, "give sequences, or how many to draw", "needs `sequences`")
    if not is_whole(sequences) or sequences < 1:
        raise InputError("sequences", sequences, "must be sequences of a task, or how many to draw")
    if key is not None:
        check_key(key)
    return task.sample(jr.key(0) if key is None else key, int(sequences))


def _check_options(kind: str, given: dict[str, Any]) -> None:
    """Refuses options that a kind does not have: they would be ignored."""
    own = _OPTIONS["exact"] + _OPTIONS["sampled"] if kind == "best" else _OPTIONS.get(kind, ())
    for name, value in given.items():
        if name not in own:
            allowed = f"allowed are {', '.join(own)}" if own else "it has none"
            raise InputError(name, value, allowed, f"is not an option of `kind` = {kind!r}")
