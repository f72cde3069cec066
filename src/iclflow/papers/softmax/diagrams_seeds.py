"""Seeds × heads: how often random starts find the pattern of positive and negative heads."""

import numpy as np

from ... import theory
from ...analysis import wilson
from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import COLOURS, THEORY, canvas
from ...tasks import isotropic
from .. import Swept, diagram
from .runs_heads import CANCELS, STAYS

# How a run ends, with the colour of each end.
_ENDS = ("pattern", "one sign", "under way")


@diagram(
    "softmax",
    "Seeds × heads: how often the pattern emerges",
    """H softmax heads with one number ω and one number μ each, d = 5, σ² = 0.1, trained on the
    large-context loss from Gaussian weights of size 0.01. (a) The share of seeds that end with
    positive and negative heads whose outputs cancel to 5 %, with 95 % intervals (Wilson).
    Dashed: what is left when the starts whose heads all grow with one sign are lost; theory has
    this for L ≫ Hd, and as a lower bound for shorter contexts, where the zero-sum term turns
    heads round in time. (b) The last losses at the shortest context: theory (dashed) has two
    ends, one debiased gradient step, and one head for all.""",
    smoke={
        "seeds": 32,
        "base": {"flow": {"steps": 8000}},
        "axes": {"model.heads": [2, 3], "task.context": [40]},
    },
    paper_tier={
        "seeds": 2048,
        "axes": {"model.heads": [2, 3, 4, 5, 6, 7, 8], "task.context": [40, 200, 1000]},
    },
)
def seeds(swept: Swept) -> Drawing:
    """The share of seeds that end in the pattern, and the losses of all seeds."""
    columns = ("model.heads", "task.context", "positive_heads", "negative_heads", "zero_sum")
    rows = swept.rows(*columns, "final_loss")
    heads, contexts = (sorted({row[i] for row in rows}) for i in (0, 1))
    ends = np.asarray([_end(*row[2:5]) for row in rows])
    at = np.asarray([row[:2] for row in rows])
    losses = np.asarray([row[5] for row in rows])
    figure, panels = canvas("double", 2.9, 1, 2)
    a, b = panels
    shares = np.empty((len(contexts), len(heads), 3))
    for i, (context, marker) in enumerate(zip(contexts, "os^")):
        for j, count in enumerate(heads):
            inside = ends[(at[:, 0] == count) & (at[:, 1] == context)]
            hits = int(np.sum(inside == "pattern"))
            shares[i, j] = hits / len(inside), *wilson(hits, len(inside))
        middle, low, high = shares[i].T
        a.errorbar(
            # Beside each other, so that error bars do not overlap.
            np.asarray(heads) + 0.08 * (i - (len(contexts) - 1) / 2),
            middle, [middle - low, high - middle], fmt=marker, mfc="white", ms=4.5, capsize=2.5,
            lw=1.2, color=COLOURS[i], label=f"L = {context}",
        )  # fmt: skip
    expected = np.asarray([1 - theory.one_sign_share(count) for count in heads])
    plot_theory(a, heads, expected, "$1-2^{1-H}$, theory for L ≫ Hd")
    a.set(xlabel="heads H", ylabel="share of seeds with the pattern", xticks=heads, ylim=(0, 1.05))
    a.legend(loc="lower right")
    levels = _draw_losses(b, swept, at, ends, losses, contexts[0])
    data = {"heads": np.asarray(heads), "context": np.asarray(contexts), "share": shares}
    data |= {"theory_share": expected, "final_loss": losses, "heads_and_context": at}
    data |= {"end": ends, "theory_loss": np.asarray(levels)}
    return Drawing(
        figure, data, {}, _findings(shares, expected, heads, contexts, ends, len(swept.sweep.seeds))
    )


def _end(positive: int, negative: int, zero_sum: float) -> str:
    """How a run ends: with both signs that cancel, with one sign, or neither yet."""
    if positive and negative and zero_sum < CANCELS:
        return _ENDS[0]
    if not (positive and negative) and zero_sum > STAYS:
        return _ENDS[1]
    return _ENDS[2]


def _draw_losses(panel, swept: Swept, at, ends, losses, context: int) -> tuple[float, float]:
    """The last losses for one context by how runs end, and where theory has them."""
    task = swept.config.task
    dim, noise = task.dim, float(getattr(task, "noise"))
    task = isotropic(dim, context, noise)
    pair = theory.large_context_pair(task, 0.0)
    alone = theory.large_context_one_head(task).loss
    inside = at[:, 1] == context
    for end, colour, shift in zip(_ENDS, (COLOURS[0], COLOURS[1], "0.4"), (-0.15, 0.15, 0.0)):
        chosen = inside & (ends == end)
        if not chosen.any():
            continue
        # Points of one end side by side, in a band beside those of the other.
        spread = shift + 0.2 * (np.arange(chosen.sum()) % 15 - 7) / 15
        plot_circles(
            panel, at[chosen, 0] + spread, losses[chosen], colour, f"{end}", ms=2.2, mew=0.5
        )
    for i, level in enumerate((pair, alone)):
        panel.axhline(level, **THEORY, label=None if i else "theory")
    heads = np.unique(at[:, 0])
    panel.set(xlabel="heads H", ylabel=f"last loss, L = {context}", xticks=heads)
    panel.set(
        xlim=(heads[0] - 0.5, heads[-1] + 0.5),
        ylim=(pair - 0.25 * (alone - pair), alone + 0.45 * (alone - pair)),
    )
    for level, words in ((pair, "debiased step"), (alone, "one head")):
        panel.annotate(words, (1.0, level), (-2, -3), xycoords=("axes fraction", "data"),
                       textcoords="offset points", ha="right", va="top", color="0.3")  # fmt: skip
    panel.legend(loc="upper center", ncols=3, columnspacing=0.9, handletextpad=0.3)
    return pair, alone


def _findings(shares, expected, heads, contexts, ends, count: int) -> str:
    """What was measured, as the end of the caption."""
    words = [f"Measured, of {count} seeds each:"]
    for context, row in zip(contexts, shares):
        listed = ", ".join(f"{100 * share:.0f} %" for share in row[:, 0])
        inside = (row[:, 1] <= expected) & (expected <= row[:, 2])
        words.append(
            f"for L = {context} {listed} end in the pattern with {heads[0]} to {heads[-1]} heads "
            f"(theory lies inside {int(inside.sum())} of {len(heads)} intervals);"
        )
    under_way = int(np.sum(ends == _ENDS[2]))
    words.append(f"{under_way} of {len(ends)} runs are at neither end yet.")
    return " ".join(words)
