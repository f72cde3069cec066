"""Figures of arXiv 2402.19442 on where training ends: a saddle, and starts that share heads."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from ...analysis import wilson
from ...drawing import Drawing
from ...drawing.loss import set_log_time
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import COLOURS, LEVEL, canvas, legend_above, level_names, levels, shades
from ...flows import init_many
from ...models import Attention, BalancedSpectral
from ...theory import multitask
from .. import Lab, figure, once
from .figures_phases import SETTING, blocks
from .runs import (
    IMBALANCES,
    OWN,
    READ,
    WIDTH,
    balanced_flow,
    full_flow,
    imbalanced_flows,
    imbalanced_theory,
    paper_limits,
    paper_task,
    paper_values,
)
from .runs_starts import END, SPREAD, Ends, flow_to_end, random_ends

# The time from which on the law of the saddle replaces the balanced flow, and the size of negative
# weights that counts as escaped.
_FROM, _GONE = 20.0, 0.1
_NAMES = {0.0: "0", 1e-6: "10⁻⁶", 1e-3: "10⁻³", 0.1: "0.1"}
_OUTCOMES = ("one task a head", "two share a head", "all on one head")


@figure(
    "multitask/saddle",
    "Several tasks: the limit of gradient flow is a saddle",
    """(a) Loss from the start of Figure 1 with output weights O larger than V by a relative
    imbalance δ: gradient flow of the factors (lines, circles at single late times) and of
    singular values (dashed, theory). In balance the loss rests at one head per task for ever;
    the smallest imbalance lets weights on labels of other tasks become negative, and leads on
    to the lower bound. (b) When those weights reach −0.1 (squares), and when the slope at the
    saddle says so, from the balanced flow at t = 20 (dashed; triangles in a): 9.3 units of
    time for each decade of δ. The prediction is 2 to 3 % early. The paper has balanced starts
    alone.""",
)
def saddle(lab: Lab) -> Drawing:
    """The loss of starts in balance and out of it, and when weights leave the saddle."""
    found = dict(zip(IMBALANCES, imbalanced_flows(lab)))
    drawn = tuple(_NAMES)
    limit, bound = paper_limits()
    fine = np.append(0.0, np.geomspace(2.0, 1000.0, 400))
    figure, (a, b) = canvas("double", 3.0, 1, 2, width_ratios=(1.5, 1))
    data: dict[str, np.ndarray] = {"theory_time": fine, "imbalance": np.asarray(drawn)}
    for delta, colour in zip(drawn, shades(len(drawn))):
        flow = imbalanced_theory(fine, delta)
        times, losses = _join_losses(lab, found.get(delta))
        dense = times < 100  # points are few beyond
        a.plot(times[dense], losses[dense], color=colour, label=f"δ = {_NAMES[delta]}")
        plot_circles(a, times[~dense], losses[~dense], colour, zorder=6)
        plot_theory(a, fine[1:], flow.loss[1:])
        data |= {f"theory_loss_{delta:g}": flow.loss}
        data |= {f"time_{delta:g}": times, f"loss_{delta:g}": losses}
        if 0 < delta < 0.01:
            a.plot(_law(delta), 3.3, "^", ms=6, color=colour)
    a.plot([], [], "^", ms=6, color="0.5", label="predicted escape")
    plot_theory(a, [], [], "theory")
    levels(a, [limit, bound])
    level_names(a, [limit, bound], [f"one head\na task {limit:.2f}", f"bound {bound:.2f}"])
    set_log_time(a)
    a.set(xlim=(3, 1000), ylim=(3, 32), yscale="log", xlabel="time", ylabel="loss")
    a.set_yticks([4, 6, 10, 20, 30], ["4", "6", "10", "20", "30"])
    a.minorticks_off()
    _draw_escapes(b, found, data)
    legend_above(figure, a, b, columns=4)
    settings = {"heads": 3, "gone_at": -_GONE, "law_from": _FROM, "weights": "four factors"}
    return Drawing(figure, data, SETTING | settings)


def _join_losses(lab: Lab, run) -> tuple[np.ndarray, np.ndarray]:
    """Times and losses of a run; in balance those of full factors, then of the longer flow."""
    if run is not None:
        return np.asarray(run.times), np.asarray(run.losses)
    early, late = full_flow(lab), balanced_flow(lab)
    later = late.times > early.times[-1]
    return np.append(early.times, late.times[later]), np.append(early.losses, late.losses[later])


def _law(delta: float) -> float:
    """When weights on labels of other tasks leave the saddle, by the slope there."""
    at, (omega, mu) = blocks(), paper_values()
    start = multitask.spectral_flow(at, [0.0, _FROM], omega, mu, WIDTH).mu[-1, 0, 1]
    imbalance = float(multitask.relative_imbalance(READ, delta))
    return float(_FROM + multitask.escape_time(at, float(start), _GONE, imbalance)[0])


def _draw_escapes(panel, found: dict, data: dict[str, np.ndarray]) -> None:
    """When weights on labels of other tasks have left the saddle, against the imbalance."""
    deltas = np.asarray([delta for delta in sorted(found) if delta < 0.01])
    left = []
    for delta in deltas:
        run = found[float(delta)]
        other = np.asarray(eqx.filter_vmap(lambda model: model.circuits.mu())(run.models))[:, 0, 1]
        first = int(np.argmax(other < -_GONE))
        pair = slice(first - 1, first + 1)
        left.append(np.interp(_GONE, -other[pair], run.times[pair]))
    fine = np.geomspace(1e-8, 1e-2, 25)
    panel.plot(deltas, left, "s", color="0.3", mfc="none", label="measured escape")
    by_law = np.asarray([_law(delta) for delta in fine])
    plot_theory(panel, fine, by_law)
    panel.set(xscale="log", xlabel="relative imbalance δ", ylabel="time of escape")
    panel.set(ylim=(20, 90), xlim=(1e-8, 1e-2))
    data |= {"escape_imbalance": deltas, "escape_time": np.asarray(left)}
    data |= {"law_imbalance": fine, "law_time": by_law}


@figure(
    "multitask/outcomes",
    "Several tasks: not every start ends with one task a head",
    """Random positive balanced starts on the tasks of Figure 1, every ω and μ up to 20 %
    smaller than the largest. (a) Losses at the end for three heads, by how many heads have a
    task, and predicted levels (dotted). (b) How far losses are above these levels: what ω on
    other tasks costs still, which falls as 1/t². (c) Shares of the outcomes with 95 %
    intervals, by the number of heads (below: how many starts). The paper has one head ahead on
    each task; of random starts with three heads half end so.""",
)
def outcomes(lab: Lab) -> Drawing:
    """Losses at the end of random starts, by how many heads have a task."""
    at = blocks()
    few = random_ends(lab)
    ends = {2: few.with_heads(2), 3: few.with_heads(3), 6: _six_heads(lab)}
    owners = ([0, 1, 2], [0, 0, 1], [0, 0, 0])
    expected = np.asarray([multitask.divided_limit(at, row).loss for row in owners])
    figure, (a, b, c) = canvas("double", 2.9, 1, 3)
    data = {"predicted_losses": expected}
    colours = COLOURS[3:6]
    for heads, found in ends.items():
        data |= {f"loss_H{heads}": found.losses, f"outcome_H{heads}": 3 - found.working}
    kinds, losses = data["outcome_H3"], data["loss_H3"]
    edges, tails = np.arange(6.05, 14.1, 0.25), np.linspace(-14, -1, 40)
    for k, (name, colour) in enumerate(zip(_OUTCOMES, colours)):
        of = losses[kinds == k]
        a.hist(of, edges, color=colour, label=name)
        beyond = np.log10(np.maximum(of / expected[k] - 1, 1e-14))
        b.hist(beyond, tails, color=colour)
    for value in expected:
        a.axvline(value, **LEVEL)
    a.plot([], [], label="predicted loss", **LEVEL)
    a.set(yscale="log", ylim=(0.7, 1500), xlabel="loss at t = 200", ylabel="starts, H = 3")
    a.set_xticks(expected, [f"{value:.2f}" for value in expected])
    b.set(yscale="log", xlabel="loss / predicted − 1", ylabel="starts, H = 3")
    b.set_xticks([-12, -9, -6, -3], [f"$10^{{{n}}}$" for n in (-12, -9, -6, -3)])
    for place, heads in enumerate(ends):
        kinds = data[f"outcome_H{heads}"]
        hits = np.bincount(kinds, minlength=3)
        share = hits / len(kinds)
        low, high = np.asarray([wilson(n, len(kinds)) for n in hits.tolist()]).T
        x = place + 0.27 * (np.arange(3) - 1)
        c.bar(x, share, 0.25, color=colours)
        c.errorbar(x, share, (share - low, high - share), fmt="none", ecolor="black", lw=1)
        data[f"share_H{heads}"] = np.stack([share, low, high], 1)
    c.set_xticks(range(len(ends)), [f"H = {h}\n({len(data[f'loss_H{h}'])})" for h in ends])
    c.set(ylabel="share of starts", ylim=(0, 1))
    legend_above(figure, a)
    settings = {"spread": SPREAD, "starts": [len(data[f"loss_H{h}"]) for h in ends], "end": END}
    settings |= {"heads": list(ends), "weights": "balanced singular values", "seeds": [17, 6]}
    return Drawing(figure, data, SETTING | settings)


@once
def _six_heads(lab: Lab) -> Ends:
    """Ends of random starts like those of the claims, with six heads."""
    task = paper_task()

    def start(key) -> Attention[BalancedSpectral]:
        first, second = jr.split(key)
        model = Attention.balanced(first, task.coordinates, 6, OWN, READ, SPREAD, width=WIDTH)
        uneven = jnp.sqrt(1 - SPREAD * jr.uniform(second, model.circuits.read.shape))
        return eqx.tree_at(lambda each: each.circuits.read, model, model.circuits.read * uneven)

    models = init_many(start, jr.split(jr.key(6), lab.scaled(16, 256, 1024)))
    return flow_to_end(lab, models, task, END, "auto")
