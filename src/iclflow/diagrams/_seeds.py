"""Seeds × heads: how often random starts find the pattern of positive and negative heads."""

import numpy as np

from .. import theory
from ..analysis import wilson
from ..figures import Drawing
from ..figures._style import COLOURS, THEORY, canvas
from ._base import Swept

# The output-value entries of a pattern cancel to 5 %, as in the claims; those of one head do not.
_CANCELS, _STAYS = 0.05, 0.5
# How a run ends, with the colour of each end.
_ENDS = ("pattern", "one sign", "under way")


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
            np.asarray(heads) + 0.08 * (i - (len(contexts) - 1) / 2),
            middle, [middle - low, high - middle], fmt=marker, mfc="white", ms=4.5, capsize=2.5,
            lw=1.2, color=COLOURS[i], label=f"L = {context}",
        )  # fmt: skip
    expected = np.asarray([1 - theory.one_sign_share(count) for count in heads])
    a.plot(heads, expected, label="$1-2^{1-H}$, theory for L ≫ Hd", **THEORY)
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
    if positive and negative and zero_sum < _CANCELS:
        return _ENDS[0]
    if not (positive and negative) and zero_sum > _STAYS:
        return _ENDS[1]
    return _ENDS[2]


def _draw_losses(panel, swept: Swept, at, ends, losses, context: int) -> tuple[float, float]:
    """The last losses for one context by how runs end, and where theory has them."""
    task = swept.config.task
    dim, noise = task.dim, float(getattr(task, "noise"))
    pair = theory.large_context_pair(0.0, dim, context, noise)
    alone = theory.large_context_one_head(dim, context, noise).loss
    inside = at[:, 1] == context
    for end, colour, shift in zip(_ENDS, (COLOURS[0], COLOURS[1], "0.4"), (-0.15, 0.15, 0.0)):
        chosen = inside & (ends == end)
        if not chosen.any():
            continue
        spread = shift + 0.2 * (np.arange(chosen.sum()) % 15 - 7) / 15
        panel.plot(at[chosen, 0] + spread, losses[chosen], "o", ms=2.2, mew=0.5, mfc="none",
                   color=colour, label=f"{end}")  # fmt: skip
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
