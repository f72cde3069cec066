"""Which of the sampled risks: how much is integrated out by hand."""

from typing import Literal

from ..errors import InputError
from ..models import AbstractModel, name_of
from ..runtime.precision import check_made_in_float64
from ..tasks import AbstractRegression, AbstractTask, LinearRegression
from ._batch import AbstractSampledRisk
from ._check import is_softmax_over_context
from ._draws import Precision
from ._integrated import IntegratedRisk, labels_can_be_integrated
from ._query_sampled import QuerySampledRisk, contexts_can_be_integrated
from ._sampled import SampledRisk

Integrate = Literal["auto", "labels", "posterior", "none", "context"]
# Default sizes of a batch: a query with all contexts averaged over says as much as several
# sequences, and costs far more.
_QUERIES, _SEQUENCES = 64, 256
_MODES = ("auto", "labels", "posterior", "none", "context")


def sampled_risk(
    task: AbstractTask,
    model: AbstractModel,
    batch: int | None = None,
    integrate: Integrate = "auto",
    precision: Precision = "float64",
) -> AbstractSampledRisk:
    """The risk of models like `model` on fresh sequences, all with the same mean.

    **Arguments:**

    - `integrate`: what is averaged over by hand: `"none"`; `"posterior"`, what of the query label
      cannot be predicted; `"labels"`, all labels (where the attention weights do not depend on
      them); `"context"`, inputs and labels of the context (softmax attention of that kind: few
      samples, each of them expensive). `"auto"` is `"labels"` where that exists, else
      `"posterior"` on linear regression with label noise, where it costs little, else `"none"`.
      With `precision="float32"` it is `"none"` there too: a fused pass has that many times as fast.
    - `batch`: by default that of the risk: 256 sequences, or 64 queries for `"context"`.
    - `precision`: as in `SampledRisk`; `"context"` is always in float64.
    """
    check_made_in_float64(task=task, model=model)
    if integrate not in _MODES:
        raise InputError("integrate", integrate, f"must be one of {', '.join(_MODES)}")
    if integrate == "auto":
        integrate = least_noise(task, model)
        if integrate == "posterior" and precision == "float32" and is_softmax_over_context(model):
            integrate = "none"
    if batch is None:
        batch = _QUERIES if integrate == "context" else _SEQUENCES
    # Both exist for every task and every model.
    if integrate in ("posterior", "none"):
        return SampledRisk(task, batch, integrate == "posterior", precision)
    if isinstance(task, AbstractRegression):
        if integrate == "labels" and labels_can_be_integrated(task, model):
            return IntegratedRisk(task, batch, precision)
        if integrate == "context" and contexts_can_be_integrated(task, model):
            return QuerySampledRisk(task, batch)
    raise InputError(
        "integrate",
        integrate,
        'choose "posterior" or "none"',
        f"does not exist for {name_of(model)} on {type(task).__name__}",
    )


def least_noise(task: AbstractTask, model: AbstractModel) -> Integrate:
    """What can be averaged over by hand at little cost: as much as there is."""
    if labels_can_be_integrated(task, model):
        return "labels"
    noisy = isinstance(task, LinearRegression) and bool(task.noise > 0)
    return "posterior" if noisy else "none"
