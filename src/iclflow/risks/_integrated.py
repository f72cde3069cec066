"""Risk on fresh contexts, with everything about the labels averaged over by hand: what is left to
draw is inputs."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import PRNGKeyArray

from ..models import AbstractModel, Attention
from ..runtime.precision import check_made_in_float64
from ..tasks import AbstractRegression, AbstractTask
from ._batch import as_dtype, check_batch
from ._context_batch import ContextBatchRisk
from ._draws import Inputs, Precision, check_precision, draw_dtype
from ._labels import LabelMoments
from .fused import AbstractFusedRisk, WhiteLaw


def labels_can_be_integrated(task: AbstractTask, model: AbstractModel) -> bool:
    """Whether `IntegratedRisk` exists for this task and this model."""
    known = isinstance(task, AbstractRegression)
    return known and isinstance(model, Attention) and model.blind


class IntegratedRisk(AbstractFusedRisk):
    """The mean over `batch` fresh contexts of the loss averaged over task vectors, label noise
    and query noise.

    It has the same expectation and the same expected gradient as `SampledRisk`, and much less
    noise. It exists for attention whose weights do not see the labels (`blind`), on linear
    regression with one label or several. `precision`: as in `SampledRisk`.
    """

    labels_drawn: ClassVar[bool] = False

    task: AbstractRegression
    inputs: Inputs
    labels: LabelMoments
    white: WhiteLaw | None
    batch: int = eqx.field(static=True)
    precision: Precision = eqx.field(static=True)

    def __init__(
        self,
        task: AbstractRegression,
        batch: int = 256,
        precision: Precision = "float64",
    ):
        check_precision(precision)
        check_made_in_float64(task=task)
        self.task = task
        self.inputs = Inputs.of(task)
        self.labels = LabelMoments.of(task)
        # The fused pass computes in float32 alone.
        single = precision == "float32"
        self.white = WhiteLaw.of(task) if single else None
        self.batch = check_batch(batch)
        self.precision = precision

    def draw(self, key: PRNGKeyArray, count: int) -> ContextBatchRisk:
        dtype = draw_dtype(self.precision)
        lanes, _ = self.inputs.draw(key, count, dtype)
        return ContextBatchRisk(lanes, as_dtype(self.labels, dtype))
