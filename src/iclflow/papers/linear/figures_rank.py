"""Figures of arXiv 2501.16265 on keys and queries of rank R, from the authors' initial weights."""

import numpy as np

from ... import theory
from ...drawing import Drawing
from ...drawing.marks import plot_theory
from ...drawing.style import COLOURS, LEVEL, canvas, legend_above
from .. import Lab, figure
from .runs import EIGHT, eight_components
from .runs_rank import (
    FIGURE_RANKS,
    OTHER_RANKS,
    RANK_END,
    RANK_HEADS,
    RANK_SIZE,
    Sample,
    rank_runs,
    scale_durations,
    seeds_of,
)

# Levels at which a new head must start.
NEW_HEAD = LEVEL | {"color": COLOURS[1], "lw": 1.0}
# The share of its final value at which a component is still small.
_ANCHOR = 0.01
_SETTINGS = {**EIGHT, "heads": RANK_HEADS, "initial_size": RANK_SIZE, "initialisation": "authors"}


def _draw_ranks(lab: Lab, ranks: tuple[int, ...], seeds: int) -> Drawing:
    """Loss curves above, durations of all plateaus below."""
    plateaus = theory.plateau_losses(eight_components())
    figure, panels = canvas("double", 4.4, 2, 4, sharey="row")
    data: dict[str, np.ndarray] = {"theory_levels": plateaus}
    for r, upper, lower in zip(ranks, panels[:4], panels[4:]):
        found = rank_runs(lab, r, seeds)
        for m, level in enumerate(plateaus):
            upper.axhline(level, **NEW_HEAD if m % r == 0 and m < 8 else LEVEL)
        for i, (time, loss) in enumerate(found.curves):
            # A run that has converged stays where it is.
            time, loss = np.append(time, 10 * RANK_END), np.append(loss, loss[-1])
            until = np.searchsorted(time, RANK_END) + 1
            upper.plot(time[:until], loss[:until], color=COLOURS[0], lw=1.0, alpha=0.8)
            data |= {f"time_{r}_{i}": time[:until], f"loss_{r}_{i}": loss[:until]}
        upper.set(title=f"R = {r}", xlabel="time (τ)", xlim=(0, RANK_END), ylim=(0.15, 1.05))
        upper.set_xticks([0, 4000])
        scaled = scale_durations(found.durations)
        data[f"durations_{r}"] = found.durations
        _plot_durations(lower, scaled, np.arange(8) % r == 0)
        lower.set(xlabel="components learned m", xticks=range(0, 8, 2))
    panels[0].set_ylabel("loss")
    panels[4].set_ylabel(r"duration of plateau m × $\lambda_{m+1}^2$")
    _legend(figure, panels[0])
    return Drawing(figure, data, {**_SETTINGS, "ranks": list(ranks), "seeds": seeds})


def _plot_durations(panel, scaled: np.ndarray, new: np.ndarray) -> None:
    medians, m = np.median(scaled, axis=0), np.arange(8)
    panel.vlines(m, scaled.min(axis=0), scaled.max(axis=0), color=COLOURS[0], lw=1.0, alpha=0.6)
    panel.semilogy(m[new], medians[new], "o", color=COLOURS[0])
    panel.plot(m[~new], medians[~new], "o", color=COLOURS[0], mfc="white")


def _legend(figure, panel) -> None:
    panel.plot([], [], color=COLOURS[0], lw=1.0, label="loss")
    panel.plot([], [], label="level, new head", **NEW_HEAD)
    panel.plot([], [], label="level, inside a head", **LEVEL)
    panel.plot([], [], "o", color=COLOURS[0], label="new head")
    panel.plot([], [], "o", color=COLOURS[0], mfc="white", label="inside a head")
    legend_above(figure, panel)


@figure(
    "linear/rank",
    "Rank R: which plateaus last",
    """D = 8, nine heads of rank R = 1, 2, 4 and 8, exact flow from the initial weights of the
    authors' code as it was when the paper appeared. (a–d) Loss of a few seeds, as long as the
    authors train; dotted, all predicted levels, in colour those at which R divides m and a new head
    must start. (e–h) Time from half-drop m to half-drop m + 1, in units of 1/λ² of component m + 1:
    median over four (64 at the paper tier) seeds and the range of all of them. Plateaus that wait
    for a new head are filled, those inside a head open.""",
    number=4,
)
def rank(lab: Lab) -> Drawing:
    """Loss curves and the durations of their plateaus, for the ranks of Figure 4."""
    return _draw_ranks(lab, FIGURE_RANKS, lab.scaled(2, 4, 64))


@figure(
    "linear/rank-others",
    "Ranks that do not divide the number of components",
    """As linear/rank, for heads of rank R = 3, 5, 6 and 7: (a–d) loss of a few seeds; dotted, all
    predicted levels, in colour those at which R divides m and a new head must start. (e–h) Time
    from half-drop m to half-drop m + 1, in units of 1/λ² of component m + 1: median and range of
    four (64 at the paper tier) seeds. Plateaus that wait for a new head are filled, those inside a
    head open.""",
    number=12,
)
def rank_others(lab: Lab) -> Drawing:
    """Loss curves and the durations of their plateaus, for the ranks of Figure 12."""
    return _draw_ranks(lab, OTHER_RANKS, lab.scaled(2, 4, 64))


@figure(
    "linear/rank-mechanism",
    "Inside a head of rank R: why some plateaus are brief",
    """The first seed with the typical pattern among those of Figure 4, heads of rank 2 (left) and 4
    (right). (a, b) Loss and predicted levels, in colour those at which a new head must start.
    (c, d) Value weights of all heads: one grows on each conspicuous plateau, and a little more with
    each further component that it learns. (e, f) The part of each component in the head that holds
    it at the end, over its final value: on a brief plateau it grows exponentially, a straight line
    here, at the rate 2vλ² (dashed) that the large v sets.""",
    number=11,
)
def rank_mechanism(lab: Lab) -> Drawing:
    """Loss, value weights and components of one run of rank 2 and one of rank 4."""
    modes = theory.modes(eight_components())
    plateaus = theory.plateau_losses(eight_components())
    figure, panels = canvas("double", 5.6, 3, 2, sharex="col", sharey="row")
    data: dict[str, np.ndarray] = {"theory_levels": plateaus}
    for r, (loss, values, parts) in zip(FIGURE_RANKS[1:3], panels.reshape(3, 2).T):
        sample = rank_runs(lab, r, seeds_of(lab)).sample
        for m, level in enumerate(plateaus):
            loss.axhline(level, **NEW_HEAD if m % r == 0 and m < 8 else LEVEL)
        loss.plot(sample.times, sample.losses, color=COLOURS[0], lw=1.4)
        loss.set(title=f"R = {r}", ylim=(0.15, 1.05))
        # Colours are those of heads; heads that stay idle are grey.
        order = list(dict.fromkeys(sample.holders.tolist()))
        colours = {head: COLOURS[i] for i, head in enumerate(order)}
        for head in range(RANK_HEADS):
            look = {"color": colours.get(head, "0.6"), "lw": 1.4 if head in colours else 0.8}
            values.plot(sample.times, np.abs(sample.values[:, head]), **look)
        for m in range(8):
            head = sample.holders[m]
            parts.semilogy(sample.times, sample.parts[:, m], color=colours[head], lw=1.2)
            if m % r:
                line = _grow_freely(sample, m, modes.growth_rates[m])
                plot_theory(parts, *line)
                data |= {f"theory_time_{r}_{m}": line[0], f"theory_part_{r}_{m}": line[1]}
        parts.set(xlabel="time (τ)", ylim=(1e-6, 2))
        names = ("times", "losses", "values", "parts", "holders")
        data |= {f"{name}_{r}": getattr(sample, name) for name in names}
    panels[0].set_ylabel("loss")
    panels[2].set_ylabel("value weights |v|")
    panels[4].set_ylabel("share of each component")
    return Drawing(figure, data, {**_SETTINGS, "ranks": list(FIGURE_RANKS[1:3])})


def _grow_freely(sample: Sample, m: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """The part of a component that grows at the rate 2vλ² from 1e-5 to 1/2, through the moment at
    which it has 1 % of its final value."""
    times, value = sample.times, np.abs(sample.values[:, sample.holders[m]])
    way = np.insert(np.cumsum(np.diff(times) * (value[1:] + value[:-1]) / 2), 0, 0.0)
    anchor = int(np.flatnonzero(sample.parts[:, m] < _ANCHOR)[-1])
    # Far from the anchor the exponential would overflow.
    power = np.clip(2 * rate * (way - way[anchor]), -30, 30)
    curve = sample.parts[anchor, m] * np.exp(power)
    # While the component before is not learned, v is still small.
    shown = (curve > 1e-5) & (curve < 0.5) & (sample.parts[:, m - 1] > 0.5)
    return times[shown], curve[shown]
