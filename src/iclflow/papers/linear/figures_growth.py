"""Figures 3b and 3c of arXiv 2501.16265: how value weights grow, and the heads on each plateau."""

import numpy as np

from ... import analysis, theory
from ...drawing import Drawing
from ...drawing.marks import plot_theory
from ...drawing.style import COLOURS, LEVEL, canvas, legend_above
from .. import Lab, figure
from .runs import FOUR, four_components
from .runs_heads import (
    AUTHORS_END,
    AUTHORS_HEADS,
    AUTHORS_SIZE,
    authors_ensemble,
    growth_after,
    small_ensemble,
)

_AUTHORS = {"heads": AUTHORS_HEADS, "initial_size": AUTHORS_SIZE, "initialisation": "authors"}
_SMALL = 1e-4
# Drops are drawn on one clock, in units of their own duration, over this range.
_CLOCK = (-8.0, 4.0)


@figure(
    "linear/staircase-3b",
    "Value weights grow one after the other",
    """(a) Value weights of the five heads of one run from the initial weights of the authors' code
    as it was when the paper appeared, as long as the authors train; dashed, Eq. 21 started where a
    head has 10 % of its final size (dotted). (b) The head that grows at each drop of all seeds from
    weights of 10⁻⁴, in units of its final size and of the duration of its own drop: Eq. 21 is one
    curve (dashed), shifted in time to meet each head at 10 %. (c) The same started where v is ten
    times the initial weights: by how much less time than the head Eq. 21 takes from there to half
    of the drop, because it takes the head for aligned. Circles: seeds; bars: medians.""",
    number="3b",
)
def value_weights(lab: Lab) -> Drawing:
    """Value weights of a run, of many drops on one clock, and how early Eq. 21 is."""
    modes, run = theory.modes(four_components()), authors_ensemble(lab, lab.scaled(16, 32, 1024))[0]
    sizes = np.cbrt(modes.strengths)
    values = np.abs(np.asarray(run.models.circuits.v))
    figure, (a, b, c) = canvas("double", 2.8, 1, 3)
    learners = [growth_after(run, d, 0.1 * sizes[d]).head for d in range(4)]
    for head in range(AUTHORS_HEADS):
        colour = COLOURS[learners.index(head)] if head in learners else "0.6"
        a.plot(run.times, values[:, head], color=colour)
    data: dict[str, np.ndarray] = {"time": run.times, "value": values}
    for d in range(4):
        a.axhline(sizes[d], **LEVEL)
        found = growth_after(run, d, 0.1 * sizes[d])
        start = float(found.grown[0] * found.size)
        curve = theory.aligned_value(
            found.times - found.times[0], start, modes.growth_rates[d], modes.strengths[d]
        )
        plot_theory(a, found.times, curve, None if d else "Eq. 21")
        data |= {f"theory_time_{d + 1}": found.times, f"theory_value_{d + 1}": curve}
    a.set(xlabel="time (τ)", ylabel="value weights |v|", xlim=(0, AUTHORS_END))
    seeds = lab.scaled(8, 16, 64)
    early = np.array([_plot_drops(b, lab, seeds, d, data) for d in range(4)])
    clock = np.linspace(*_CLOCK, 200)
    plot_theory(b, clock, theory.drop_profile(clock))
    b.set(xlabel="time / duration of the drop", ylabel="v / final value", xlim=_CLOCK)
    for d in range(4):
        spread = d + 1 + np.linspace(-0.2, 0.2, seeds)
        c.plot(spread, 100 * early[d], "o", mfc="none", color=COLOURS[d], ms=3.5)
        c.plot([d + 0.7, d + 1.3], [100 * np.median(early[d])] * 2, color="black", lw=1.2)
    c.set(xlabel="drop", ylabel="Eq. 21 is early by (%)", xticks=range(1, 5), ylim=(0, None))
    legend_above(figure, a, b)
    data |= {"theory_clock": clock, "theory_profile": theory.drop_profile(clock), "early": early}
    config = {**FOUR, **_AUTHORS, "scale": _SMALL, "seeds": seeds}
    return Drawing(figure, data, config)


def _plot_drops(panel, lab: Lab, seeds: int, d: int, data: dict[str, np.ndarray]) -> np.ndarray:
    """Draws drop d of all seeds on its clock; the share of the time by which Eq. 21 is early."""
    modes = theory.modes(four_components())
    rate, strength = modes.growth_rates[d], modes.strengths[d]
    size, early = float(np.cbrt(strength)), []
    for i, run in enumerate(small_ensemble(lab, _SMALL, seeds)):
        found = growth_after(run, d, 0.1 * size)
        shift = theory.drop_clock(found.grown[0]) - rate * size * found.times[0]
        value = np.abs(np.asarray(run.models.circuits.v))[:, found.head] / size
        clock = rate * size * run.times + shift
        shown = (clock > _CLOCK[0]) & (clock < _CLOCK[1])
        label = None if i else f"drop {d + 1}"
        panel.plot(clock[shown], value[shown], "o", color=COLOURS[d], ms=2, label=label)
        data |= {f"clock_{d + 1}_{i}": clock[shown], f"grown_{d + 1}_{i}": value[shown]}
        found = growth_after(run, d, 10 * _SMALL)
        start = float(found.grown[0] * found.size)
        early.append(1 - theory.aligned_drop_time(start, rate, strength) / found.left)
    return np.array(early)


@figure(
    "linear/staircase-3c",
    "The heads on each plateau",
    """Value, key and query weights of each head in the middle of plateaus m = 0 … 4, in the
    eigenbasis, for one run from weights of 10⁻⁴: rows are heads, in the order in which they learn.
    On plateau m exactly m heads are large, each with k and q along one eigenvector and of the size
    of v; signs are such that v k qᵀ is positive. Below, the largest distance from Eq. 20 of any
    weight of a learned head.""",
    number="3c",
)
def heads_on_plateaus(lab: Lab) -> Drawing:
    """Heat maps of all weights in the middle of each plateau."""
    task = four_components()
    run = small_ensemble(lab, _SMALL, lab.scaled(8, 16, 64))[0]
    times = np.insert(analysis.drop_times(run, levels=theory.plateau_losses(task)), 0, 0.0)
    middles = [*((times[:-1] + times[1:]) / 2), run.times[-1]]
    final = run.final.circuits
    order = np.argsort(np.argmax(np.abs(np.asarray(final.K)[..., 0]), axis=1))
    sizes = np.cbrt(theory.modes(task).strengths)
    figure, panels = canvas("double", 2.5, 1, 5, sharey=True)
    data: dict[str, np.ndarray] = {"time": np.array(middles)}
    images = []
    for m, (panel, middle) in enumerate(zip(panels, middles)):
        c = run.model_at(middle).circuits
        v, k, q = np.asarray(c.v)[order], *(np.asarray(w)[order, :, 0] for w in (c.K, c.Q))
        weights = np.concatenate([v[:, None], k, q], axis=1)
        images.append(panel.imshow(weights, cmap="RdBu_r", vmin=-2, vmax=2, aspect="auto"))
        for edge in (0.5, 4.5):
            panel.axvline(edge, color="0.4", lw=0.7)
        predicted = np.diag(sizes)[:m]
        off = max(
            (np.abs(np.abs(weights[:m, 0]) - sizes[:m]).max(initial=0.0)),
            (np.abs(np.abs(k[:m]) - predicted).max(initial=0.0)),
            (np.abs(np.abs(q[:m]) - predicted).max(initial=0.0)),
        )
        data |= {f"weights_{m}": weights, f"distance_{m}": np.array(off)}
        words = f"off by {off:.1g}" if m else "all near zero"
        panel.set(title=f"m = {m}", xlabel=words, xticks=[0, 2.5, 6.5], yticks=range(4))
        panel.set_xticklabels(["v", "k", "q"])
        panel.set_yticklabels([str(head) for head in range(1, 5)])
        panel.tick_params(length=0)
    panels[0].set_ylabel("head")
    figure.colorbar(images[0], ax=panels.tolist(), label="weight", shrink=0.9)
    return Drawing(figure, data, {**FOUR, "heads": 4, "scale": _SMALL, "seed": 0})
