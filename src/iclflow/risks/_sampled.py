"""Risk on fresh sequences: the one kind that exists for every task and every model."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from ..models import AbstractAttention, AbstractModel
from ..tasks import AbstractSequences, AbstractTask, LinearRegression
from ._base import AbstractRisk
from ._batch import AbstractBatchRisk, AbstractSampledRisk, as_dtype, check_batch
from ._draws import Precision, check_precision, draw_dtype
from ._labels import LabelledInputs
from ._lanes import Lanes, attention, over_tokens


class SampledRisk(AbstractSampledRisk):
    """The mean squared error on `batch` sequences that are drawn anew at every call, summed over
    labels where there are several.

    With `posterior_target` the label y_q is replaced by its posterior mean given the context and
    its posterior variance is added: the same expectation and the same expected gradient, with
    the part of the noise that no model can predict integrated out.

    With `precision="float32"` sequences and predictions are computed in single precision, in about
    half the time: what is rounded away is far below the noise of a batch. Weights and their
    updates keep the precision that they have.
    """

    task: AbstractTask
    law: LabelledInputs | None
    batch: int = eqx.field(static=True)
    posterior_target: bool = eqx.field(static=True)
    precision: Precision = eqx.field(static=True)

    def __init__(
        self,
        task: AbstractTask,
        batch: int = 256,
        posterior_target: bool = False,
        precision: Precision = "float64",
    ):
        check_batch(batch)
        check_precision(precision)
        self.task = task
        self.law = LabelledInputs.of(task) if isinstance(task, LinearRegression) else None
        self.batch = batch
        self.posterior_target = bool(posterior_target)
        self.precision = precision

    def draw(self, key: PRNGKeyArray, count: int) -> AbstractBatchRisk:
        dtype = draw_dtype(self.precision)
        if self.law is not None:
            lanes, label = self.law.draw(key, count, dtype)
            return LaneBatchRisk(lanes, label, self.law if self.posterior_target else None)
        task = as_dtype(self.task, dtype)
        return SequenceBatchRisk.of(task, task.sample(key, count), self.posterior_target)


class LaneBatchRisk(AbstractBatchRisk):
    """Squared errors on sequences in lanes, for attention in one pass over the tokens.

    **Fields:**

    - `lanes`: tokens (x; y).
    - `label`: of each query.
    - `law`: if given, the label is replaced by its posterior mean. (It is computed here and not
      where the tokens are drawn: there XLA would make them anew for every product.)
    """

    kind: ClassVar[str] = "sampled"

    lanes: Lanes
    label: Float[Array, " P"]
    law: LabelledInputs | None

    def evaluate(self, model: AbstractModel) -> Float[Array, " count"]:
        model = as_dtype(model, self.label.dtype)
        if isinstance(model, AbstractAttention):
            weights, tokens = attention(model, model.kq(), self.lanes)
            prediction = jnp.einsum("ha,hap->p", model.ov(), over_tokens(weights, tokens))
        else:
            prediction = model.predict(self.lanes.sequences(self.label))
        if self.law is None:
            return (self.label - prediction) ** 2
        target, variance = self.law.posterior(self.lanes)
        return (target - prediction) ** 2 + variance


class SequenceBatchRisk(AbstractBatchRisk):
    """Squared errors on sequences of any kind, summed over labels where there are several.

    **Fields:**

    - `sequences`: with what is to be predicted as `y_query`.
    - `variance`: what is added to each squared error.
    """

    kind: ClassVar[str] = "sampled"

    sequences: AbstractSequences
    variance: Float[Array, " P"] | Float[Array, ""]

    @staticmethod
    def of(task: AbstractTask, sequences: AbstractSequences, posterior: bool):
        if not posterior:
            return SequenceBatchRisk(sequences, jnp.zeros((), sequences.x.dtype))
        target, variance = task.bayes_predict(sequences), task.bayes_variance(sequences)
        sequences = eqx.tree_at(lambda s: s.y_query, sequences, target)
        return SequenceBatchRisk(sequences, jnp.sum(variance.reshape(sequences.count, -1), 1))

    def evaluate(self, model: AbstractModel) -> Float[Array, " count"]:
        prediction = as_dtype(model, self.sequences.x.dtype).predict(self.sequences)
        return self.sequences.squared_error(prediction) + self.variance


class MinibatchRisk(AbstractRisk):
    """The mean squared error on `batch` sequences picked at random from a fixed set: what
    stochastic gradient descent on a data set sees."""

    kind: ClassVar[str] = "minibatch"
    stochastic: ClassVar[bool] = True

    sequences: AbstractSequences
    batch: int = eqx.field(static=True, default=64)

    def __check_init__(self):
        if not 1 <= self.batch <= self.sequences.count:
            raise ValueError(
                f"`batch` = {self.batch}: must lie between 1 and {self.sequences.count}, the "
                "number of sequences."
            )

    def __call__(self, model: AbstractModel, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        if key is None:
            raise ValueError("A minibatch is picked at random: pass a random `key`.")
        picked = jr.choice(key, self.sequences.count, (self.batch,), replace=False)
        chosen = self.sequences[picked]
        return jnp.mean(chosen.squared_error(model.predict(chosen)))
