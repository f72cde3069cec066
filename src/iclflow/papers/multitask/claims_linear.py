"""Claims of arXiv 2402.19442 on how softmax heads relate to linear attention."""

import jax.random as jr
import numpy as np

from ...analysis import Sampled
from ...models import Attention
from ...risks import IntegratedRisk
from ...tasks import MultiTaskRegression
from ...theory import multitask
from .. import Checks, Lab, claim
from .runs import UNEQUAL, UNEQUAL_SIZES, unequal_task
from .runs_search import closed_form, free_heads


@claim(
    "multitask/linear-attention",
    """H linear heads share a budget of min(H, I) where softmax heads have H − 1: H + 1 small
    softmax heads around their mean do what H linear heads do, at the price of one sample.""",
    source="a summary of the paper ('connections to linear attention'); derived in "
    "docs/theory/multitask.md",
    tolerance_reason="""Losses are drawn over inputs alone: four standard errors, 0.5 % of the loss;
    small heads of size 0.03 leave 1e-3 of it. In the closed form heads of size 0.01 leave 1e-4.
    Finite blocks add γ²/L to the bracket, 1 to 2 % of the loss.""",
)
def linear_attention(lab: Lab) -> Checks:
    """Linear heads and their softmax twins on unequal tasks: drawn, and in the closed form."""
    task, counts = unequal_task(), (1, 2, 3)
    blocks = multitask.Blocks.of(task)
    contexts = lab.scaled(4000, 4000, 80_000)
    lab.note(sizes=UNEQUAL_SIZES, context=UNEQUAL["context"], heads=counts, contexts=contexts)
    fewer = blocks.with_length(blocks.length - 1)
    kept = 1 - 1 / blocks.length
    linear = {count: multitask.linear_heads(blocks, count) for count in counts}
    exact = [multitask.linear_loss(blocks, *linear[c], finite=True).sum() for c in counts]
    # Softmax centres the inputs: a rotation that drops one sample, and shrinks the step.
    shrunk = {count: (omega, kept * mu) for count, (omega, mu) in linear.items()}
    centred = [multitask.linear_loss(fewer, *shrunk[c], finite=True).sum() for c in counts]
    draw = lambda heads, kind: _draw_loss(task, _pad_heads(heads, task, kind), contexts)
    drawn = lab.compute(lambda: [draw(linear[count], "linear") for count in counts])
    twins = lab.compute(
        lambda: [draw(multitask.as_softmax(*linear[count], 0.03), "softmax") for count in counts]
    )
    smaller = [multitask.as_softmax(*linear[count], 0.01) for count in counts]
    closed = [float(closed_form(task)(_pad_heads(heads, task, "softmax"))) for heads in smaller]
    bounds = [multitask.linear_bound(blocks, count).loss for count in counts]
    yield lab.sampled("loss of linear heads", np.array(exact), *np.array(drawn).T)
    yield lab.sampled("loss of softmax heads", np.array(centred), *np.array(twins).T)
    name = "closed form of H + 1 softmax heads, against the bound of H linear ones"
    yield lab.relative(name, np.array(bounds), np.array(closed), 1e-3)


def _pad_heads(heads, task: MultiTaskRegression, kind: str) -> Attention:
    """A model of four heads, the last ones idle: one program serves all numbers of heads."""
    omega, mu = (np.pad(each, ((0, 4 - len(each)), (0, 0))) for each in heads)
    return free_heads(omega, mu, task.coordinates, activation=kind)


def _draw_loss(task: MultiTaskRegression, model: Attention, count: int) -> Sampled:
    found = IntegratedRisk(task, 2000).estimate(model, jr.key(4), count)
    return Sampled(float(found.value), float(found.standard_error))
