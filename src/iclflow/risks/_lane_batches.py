"""Losses of batches that have been drawn: on whole sequences, or averaged over labels."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, Attention, name_of
from ..tasks import AbstractTask, Sequences, check_prediction
from ._batch import AbstractBatchRisk, as_dtype
from ._draws import LabelledInputs, LabelMoments
from ._lanes import Lanes, attention, over_tokens, some_lanes


class ContextBatchRisk(AbstractBatchRisk):
    """The loss on contexts in lanes, averaged over all labels in closed form.

    Where the attention weights do not depend on the labels, a prediction is linear in them. With
    attention weights p_h over tokens, m_h = Σₙ p_hn xₙ, output-value circuits (u_h; v_h) and
    r = Σ_h v_h m_h − x_q, the mean over w ~ N(w₀, Γ) and all noise is exactly
    rᵀΓr + (w₀·r + Σ_h u_h·m_h)² + σ² Σₙ (Σ_h v_h p_hn)² + σ² (docs/theory/softmax.md).
    """

    lanes: Lanes
    labels: LabelMoments

    def part(self, start: Array, count: int) -> "ContextBatchRisk":
        return ContextBatchRisk(self.lanes.part(start, count), self.labels)

    def evaluate(self, model: AbstractModel) -> Float[Array, " count"]:
        lanes, labels, dim = self.lanes, self.labels, self.lanes.query.shape[0]
        model = require_blind(as_dtype(model, lanes.query.dtype))
        weights, tokens = attention(model, model.kq()[:, :dim], lanes)
        u, v = output_circuits(model, labels, dim)
        seen = weights[:, : lanes.tokens.shape[0]]  # the query's own token has no label
        m = over_tokens(seen, lanes.tokens)
        # From the query's own token only inputs are read.
        attended = over_tokens(weights, tokens) if model.self_attention else m
        own = jnp.eye(len(labels.noise), dtype=m.dtype)[..., None, None] * lanes.query
        r = jnp.einsum("hij,hdp->ijdp", v, m) - own
        offset = jnp.einsum("jd,ijdp->ip", labels.mean, r)
        offset = offset + jnp.einsum("hid,hdp->ip", u, attended)
        spread = jnp.einsum("jde,ijdp,ijep->p", labels.covariance, r, r)
        shares = jnp.einsum("hij,hnp->ijnp", v, seen)
        noise = jnp.einsum("j,ijnp->p", labels.noise, shares**2)
        return jnp.sum(offset**2, 0) + spread + noise + jnp.sum(labels.query_noise)


def output_circuits(
    model: Attention, labels: LabelMoments, dim: int
) -> tuple[Float[Array, "H I D"], Float[Array, "H I J"]]:
    """What each head reads from inputs and from labels, in coordinates where labels are
    independent of each other."""
    ov = model.ov()
    u, v = ov[..., :dim], ov[..., dim:]
    if labels.rotation is None:
        return u, v
    rotation = labels.rotation
    return jnp.einsum("ki,hkd->hid", rotation, u), jnp.einsum(
        "ki,hkl,lj->hij", rotation, v, rotation
    )


def require_blind(model: AbstractModel) -> Attention:
    """`model`, or an error if its attention weights depend on the labels."""
    if isinstance(model, Attention) and model.blind:
        return model
    raise TypeError(
        f"The attention weights of {name_of(model)} depend on the labels, which then cannot "
        "be integrated out: use SampledRisk."
    )


class LaneBatchRisk(AbstractBatchRisk):
    """Squared errors on sequences in lanes, for attention in one pass over the tokens.

    **Fields:**

    - `lanes`: tokens (x; y).
    - `label`: the labels of each query.
    - `law`: if given, the label is replaced by its posterior mean. (Computed here and not where
      the tokens are drawn: there XLA would draw them again for every product.)
    """

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

    - `sequences`: with the targets as `y_query`.
    - `variance`: added to each squared error.
    """

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
