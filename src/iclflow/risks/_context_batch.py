"""The loss on contexts that have been drawn, averaged over their labels by hand.

Where the attention weights do not depend on the labels, a prediction is linear in them. With
attention weights p_h over tokens, m_h = Σₙ p_hn xₙ, output-value circuits (u_h; v_h) and
r = Σ_h v_h m_h − x_q, the mean over w ~ N(w₀, Γ) and all noise is
rᵀΓr + (w₀·r + Σ_h u_h·m_h)² + σ² Σₙ (Σ_h v_h p_hn)² + σ²,
exactly: derived in docs/theory/softmax.md.
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..models import AbstractModel, Attention, name_of
from ._batch import AbstractBatchRisk, as_dtype
from ._labels import LabelMoments
from ._lanes import Lanes, attention, over_tokens


class ContextBatchRisk(AbstractBatchRisk):
    """The loss on contexts in lanes, averaged over all labels."""

    kind: ClassVar[str] = "sampled"

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
        # Only inputs are read from the query's own token.
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
    """A model whose attention weights do not depend on the labels."""
    if isinstance(model, Attention) and model.blind:
        return model
    raise TypeError(
        f"The attention weights of {name_of(model)} depend on the labels, which then cannot "
        "be integrated out: use SampledRisk."
    )
