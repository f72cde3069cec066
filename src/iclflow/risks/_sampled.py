"""Risks on fresh sequences, or on fresh contexts with all labels averaged over."""

from typing import ClassVar, get_args

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractModel, Attention
from ..tasks import (
    AbstractRegression,
    AbstractTask,
    LinearRegression,
    Sequences,
    check_choice,
    check_count,
)
from ._base import AbstractRisk
from ._batch import AbstractBatchRisk, as_dtype
from ._draws import Inputs, LabelledInputs, LabelMoments, Precision, check_draws, draw_dtype
from ._lane_batches import ContextBatchRisk, LaneBatchRisk, SequenceBatchRisk
from .fused import AbstractFusedRisk, EngineName, WhiteLaw


class SampledRisk(AbstractFusedRisk):
    """The mean squared error on `batch` sequences that are drawn afresh at every call, summed over
    labels.

    With `posterior_target` the label y_q is replaced by its posterior mean given the context and
    its posterior variance is added: the same expectation and the same expected gradient, with
    the part of the noise that no model can predict integrated out.

    With `precision="float32"` sequences and predictions are computed in single precision, in about
    half the time: rounding is far below the noise of a batch. Weights and their updates keep their
    precision. Gradients of softmax attention on linear regression then come from a fused pass,
    which stores no sequence (`FusedBatchRisk`). `engine` names what computes it on a GPU: `"auto"`
    and `"triton"` compile one kernel per step with Triton, `"mosaic_gpu"` compiles the same with
    Mosaic GPU, and `"triton_steps"` takes whole steps of training in one kernel. The last two have
    not been measured on a card yet: until then they are used only where they are named. (Without a
    GPU an interpreter runs `"triton_steps"`, slowly, and the others change nothing.)

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> model = icl.Attention.factored(jr.key(0), dim=5, heads=2)
    >>> mean = icl.SampledRisk(task, posterior_target=True).estimate(model, jr.key(0), count=2000)
    >>> bool(mean.standard_error < 0.1)
    True
    ```
    """

    labels_drawn: ClassVar[bool] = True

    task: AbstractTask
    law: LabelledInputs | None
    white: WhiteLaw | None
    batch: int = eqx.field(static=True)
    posterior_target: bool = eqx.field(static=True)
    precision: Precision = eqx.field(static=True)
    engine: EngineName = eqx.field(static=True)

    def __init__(
        self,
        task: AbstractTask,
        batch: int = 256,
        posterior_target: bool = False,
        precision: Precision = "float64",
        engine: EngineName = "auto",
    ):
        self.batch = check_draws(task, batch, precision)
        check_choice("engine", engine, get_args(EngineName))
        self.task = task
        # Linear regression is drawn in lanes, which is faster; other tasks draw by `sample`.
        self.law = LabelledInputs.of(task) if isinstance(task, LinearRegression) else None
        self.white = None
        fused = precision == "float32" and not posterior_target
        if fused and isinstance(task, AbstractRegression):
            self.white = WhiteLaw.of(task)
        self.posterior_target = bool(posterior_target)
        self.precision = precision
        self.engine = engine

    def draw(self, key: PRNGKeyArray, count: int) -> AbstractBatchRisk:
        dtype = draw_dtype(self.precision)
        if self.law is not None:
            lanes, label = self.law.draw(key, count, dtype)
            return LaneBatchRisk(lanes, label, self.law if self.posterior_target else None)
        task = as_dtype(self.task, dtype)
        return SequenceBatchRisk.of(task, task.sample(key, count), self.posterior_target)


class MinibatchRisk(AbstractRisk):
    """The mean squared error on `batch` sequences picked at random from a fixed set: what
    stochastic gradient descent on a data set sees.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=3, context=20)
    >>> model = icl.Attention.merged(jr.key(0), dim=3, heads=2)
    >>> risk = icl.MinibatchRisk(task.sample(jr.key(1), 1000), batch=64)
    >>> risk(model, jr.key(2)).shape
    ()
    ```
    """

    kind: ClassVar[str] = "minibatch"
    stochastic: ClassVar[bool] = True

    sequences: Sequences
    batch: int = eqx.field(static=True, default=64)

    def __check_init__(self):
        check_count("batch", self.batch, self.sequences.count)

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        if key is None:
            raise ValueError("A minibatch is picked at random: pass a random `key`.")
        # Without replacement, as epochs on a data set do.
        picked = jr.choice(key, self.sequences.count, (self.batch,), replace=False)
        chosen = self.sequences[picked]
        return jnp.mean(chosen.squared_error(model.predict(chosen)))


def labels_can_be_integrated(task: AbstractTask, model: AbstractModel) -> bool:
    """Whether `IntegratedRisk` exists for this task and this model."""
    known = isinstance(task, AbstractRegression)
    return known and isinstance(model, Attention) and model.blind


class IntegratedRisk(AbstractFusedRisk):
    """The mean over `batch` fresh contexts of the loss averaged over task vectors, label noise
    and query noise in closed form.

    It has the same expectation and the same expected gradient as `SampledRisk`, and much less
    noise. It exists for attention whose weights do not depend on the labels (`blind`), on linear
    regression with one label or several. `precision`, `engine`: as in `SampledRisk`.

    **Example:**

    ```pycon
    >>> task = icl.isotropic(dim=5, context=40, noise=0.1)
    >>> model = icl.Attention.factored(jr.key(0), dim=5, heads=2, blind=True)
    >>> kinds = icl.IntegratedRisk(task), icl.SampledRisk(task)
    >>> errors = [kind.estimate(model, jr.key(0), count=1000).standard_error for kind in kinds]
    >>> bool(errors[0] < errors[1])
    True
    ```
    """

    labels_drawn: ClassVar[bool] = False

    task: AbstractRegression
    inputs: Inputs
    labels: LabelMoments
    white: WhiteLaw | None
    batch: int = eqx.field(static=True)
    precision: Precision = eqx.field(static=True)
    engine: EngineName = eqx.field(static=True)

    def __init__(
        self,
        task: AbstractRegression,
        batch: int = 256,
        precision: Precision = "float64",
        engine: EngineName = "auto",
    ):
        self.batch = check_draws(task, batch, precision)
        check_choice("engine", engine, get_args(EngineName))
        self.task = task
        self.inputs = Inputs.of(task)
        self.labels = LabelMoments.of(task)
        # The fused pass computes in float32 alone.
        self.white = WhiteLaw.of(task) if precision == "float32" else None
        self.precision = precision
        self.engine = engine

    def draw(self, key: PRNGKeyArray, count: int) -> ContextBatchRisk:
        dtype = draw_dtype(self.precision)
        lanes, _ = self.inputs.draw(key, count, dtype)
        return ContextBatchRisk(lanes, as_dtype(self.labels, dtype))
