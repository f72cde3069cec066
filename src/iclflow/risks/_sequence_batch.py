"""The squared errors of a model on sequences that have been drawn."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, Attention
from ..tasks import AbstractTask, Sequences, check_prediction
from ._batch import AbstractBatchRisk, as_dtype
from ._labels import LabelledInputs
from ._lanes import Lanes, attention, over_tokens, some_lanes


class LaneBatchRisk(AbstractBatchRisk):
    """Squared errors on sequences in lanes, for attention in one pass over the tokens.

    **Fields:**

    - `lanes`: tokens (x; y).
    - `label`: the labels of each query.
    - `law`: if given, the label is replaced by its posterior mean. (It is computed here and not
      where the tokens are drawn: there XLA would make them again for every product.)
    """

    kind: ClassVar[str] = "sampled"

    lanes: Lanes
    label: Float[Array, "I P"]
    law: LabelledInputs | None

    def part(self, start: Array, count: int) -> "LaneBatchRisk":
        label = some_lanes(self.label, start, count)
        return LaneBatchRisk(self.lanes.part(start, count), label, self.law)

    def evaluate(self, model: AbstractModel) -> Float[Array, " count"]:
        model = as_dtype(model, self.label.dtype)
        if isinstance(model, Attention):
            weights, tokens = attention(model, model.kq(), self.lanes)
            prediction = jnp.einsum("hia,hap->ip", model.ov(), over_tokens(weights, tokens))
        else:
            prediction = model.predict(self.lanes.sequences(self.label)).T
        check_prediction(prediction, self.label)
        target, variance = self.label, 0.0
        if self.law is not None:
            target, variance = self.law.posterior(self.lanes)
        return jnp.sum((target - prediction) ** 2 + variance, 0)


class SequenceBatchRisk(AbstractBatchRisk):
    """Squared errors on sequences of any kind, summed over labels.

    **Fields:**

    - `sequences`: with what is to be predicted as `y_query`.
    - `variance`: what is added to each squared error.
    """

    kind: ClassVar[str] = "sampled"

    sequences: Sequences
    variance: Float[Array, " P"] | Float[Array, ""]

    @staticmethod
    def of(task: AbstractTask, sequences: Sequences, posterior: bool):
        if not posterior:
            return SequenceBatchRisk(sequences, jnp.zeros((), sequences.x.dtype))
        target, variance = task.bayes_predict(sequences), task.bayes_variance(sequences)
        sequences = eqx.tree_at(lambda s: s.y_query, sequences, target)
        return SequenceBatchRisk(sequences, jnp.sum(variance, -1))

    def part(self, start: Array, count: int) -> "SequenceBatchRisk":
        some = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, start, count) if leaf.ndim else leaf
        return jax.tree.map(some, self)

    def evaluate(self, model: AbstractModel) -> Float[Array, " count"]:
        prediction = as_dtype(model, self.sequences.x.dtype).predict(self.sequences)
        return self.sequences.squared_error(prediction) + self.variance
