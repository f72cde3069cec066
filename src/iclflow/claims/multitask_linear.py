"""Claims of arXiv 2402.19442 on how softmax heads relate to linear attention."""

import jax.random as jr
import numpy as np

from ..models import SpectralAttention
from ..risks import IntegratedRisk
from ..tasks import MultiTaskRegression
from ..theory import multitask
from ._base import Check
from ._lab import Lab
from ._multitask_runs import UNEQUAL_CONTEXT, UNEQUAL_SIZES, unequal_task
from ._multitask_settings import closed_form, free_heads
from ._registry import claim
from ._softmax_sampling import Sampled


@claim(
    "multitask/linear-attention",
    "H linear heads share a budget of min(H, I) where softmax heads have H − 1: H + 1 small "
    "softmax heads around their mean do what H linear heads do, at the price of one sample.",
    source="'connections to linear attention'; derived in docs/theory/multitask.md",
    tolerance_reason="Losses are drawn over inputs alone: four standard errors, 0.5 % of the loss; "
    "small heads of size 0.03 leave 1e-3 of it. In the closed form heads of size 0.01 leave 1e-4. "
    "Finite blocks add γ²/L to the bracket, 1 to 2 % of the loss.",
)
def linear_attention(lab: Lab) -> list[Check]:
    """Linear heads and their softmax twins on unequal tasks: drawn, and in the closed form."""
    task, counts = unequal_task(), (1, 2, 3)
    blocks = multitask.blocks_of(task)
    contexts = lab.scaled(4000, 4000, 80_000)
    lab.note(sizes=UNEQUAL_SIZES, context=UNEQUAL_CONTEXT, heads=counts, contexts=contexts)
    fewer = blocks._replace(length=blocks.length - 1)
    kept = 1 - 1 / blocks.length
    linear = {count: multitask.linear_heads(blocks, count) for count in counts}
    exact = [multitask.linear_loss(*linear[c], blocks, finite=True).sum() for c in counts]
    # Centring inputs is a rotation that drops one sample, and shrinks the step.
    shrunk = {count: (omega, kept * mu) for count, (omega, mu) in linear.items()}
    centred = [multitask.linear_loss(*shrunk[c], fewer, finite=True).sum() for c in counts]
    draw = lambda heads, kind: _drawn_loss(task, _padded(heads, task, kind), contexts)
    drawn = lab.once(
        "multitask linear heads", lambda: [draw(linear[count], "linear") for count in counts]
    )
    twins = lab.once(
        "multitask softmax twins",
        lambda: [draw(multitask.as_softmax(*linear[count], 0.03), "softmax") for count in counts],
    )
    smaller = [multitask.as_softmax(*linear[count], 0.01) for count in counts]
    closed = [float(closed_form(task)(_padded(heads, task, "softmax"))) for heads in smaller]
    bounds = [multitask.linear_bound(blocks, count).loss for count in counts]
    return [
        Check.sampled("loss of linear heads", lab.predict(np.array(exact)), *np.array(drawn).T),
        Check.sampled("loss of softmax heads", lab.predict(np.array(centred)), *np.array(twins).T),
        Check("closed form of H + 1 softmax heads, against the bound of H linear ones",
              lab.predict(np.array(bounds)), np.array(closed), 1e-3, "relative"),
    ]  # fmt: skip


def _padded(heads, task: MultiTaskRegression, kind: str) -> SpectralAttention:
    """A model of four heads, the last ones idle: one program serves them all."""
    omega, mu = (np.pad(each, ((0, 4 - len(each)), (0, 0))) for each in heads)
    return free_heads(omega, mu, task.coordinates, activation=kind)


def _drawn_loss(task: MultiTaskRegression, model: SpectralAttention, count: int) -> Sampled:
    found = IntegratedRisk(task, 2000).estimate(model, jr.key(4), count)
    return Sampled(float(found.value), float(found.standard_error))
