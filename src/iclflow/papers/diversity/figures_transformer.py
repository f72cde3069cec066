"""A figure on transformers that are trained on few and on many tasks."""

import numpy as np

from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import COLOURS, canvas, legend_above, log_ticks
from .. import Lab, figure
from .runs_transformer import one_layer, ridge_share, setting, threshold, trained


@figure(
    "diversity/transformer",
    "From recalling tasks to solving unseen ones: small transformers",
    """Causal transformers trained on K tasks. (a) Losses at the end on tasks of training (IDG) and
    on unseen ones (ICL): circles, one for each seed; dashed: dMMSE, which recalls its tasks;
    dash-dotted: ridge regression, which is best on unseen ones; solid: the exact optimum of one
    layer of linear attention on the same tasks. (b) Where the transformer is between dMMSE (0) and
    ridge regression (1) on unseen tasks; band: the threshold, 95 % interval over seeds. (c)
    Distances to both on unseen tasks over training, for the fewest (solid) and the most tasks
    (dotted), first seed. The default tier shows a smaller problem and a short training; that of
    arXiv 2306.15063 is approached at the paper tier.""",
)
def transformer(lab: Lab) -> Drawing:
    """Losses, the threshold and distances of trained transformers."""
    at, found = setting(lab), trained(lab)
    x, layer = np.array(at.tasks), one_layer(at, found)
    drawn, (a, b, c) = canvas("double", 2.8, 1, 3)
    data: dict[str, np.ndarray] = {"tasks": x, "step": found.times}
    rows = (
        ("IDG", found.idg, found.dmmse_idg_loss, layer.idg, COLOURS[0]),
        ("ICL", found.icl, found.dmmse_icl_loss, layer.icl, COLOURS[1]),
    )
    for name, losses, recalled, exact, colour in rows:
        a.plot(x, exact.mean(1), color=colour, lw=1.2, label=f"one layer, {name}")
        plot_theory(a, x, recalled.mean(1), f"dMMSE, {name}", color=colour)
        for i, each in enumerate(losses[..., -1].T):
            plot_circles(a, x, each, colour, None if i else f"transformer, {name}")
        data |= {name.lower(): losses, f"dmmse_loss_{name.lower()}": recalled}
        data[f"layer_{name.lower()}"] = exact
    a.axhline(found.ridge_icl_loss.mean(), color="black", lw=1, ls="-.", label="ridge, ICL")
    a.set(xscale="log", yscale="log", xlabel="tasks K", ylabel="loss")
    log_ticks(a.yaxis, (0.3, 1, 3, 10))
    share, passed = ridge_share(found), threshold(at, found)
    for each in share[..., -1].T:
        b.plot(x, each, "o-", color=COLOURS[2], mfc="none", lw=1)
    if np.isfinite(passed.low):
        b.axvspan(2**passed.low, 2**passed.high, color=COLOURS[2], alpha=0.15, lw=0)
    b.axhline(0.5, color="0.5", lw=0.8, ls=":")
    b.set(xscale="log", xlabel="tasks K", ylabel="share of the way to ridge", ylim=(0, 1))
    rivals = (("dMMSE", found.dmmse_icl, COLOURS[0]), ("ridge", found.ridge_icl, COLOURS[1]))
    for name, distance, colour in rivals:
        for k, dash in ((0, "-"), (-1, ":")):
            label = f"{name}, K = {x[k]}"
            c.plot(found.times[1:], distance[k, 0, 1:], dash, color=colour, label=label)
        data[f"distance_{name.lower()}"] = distance
    c.set(xscale="log", yscale="log", xlabel="step", ylabel="distance Δ, unseen tasks")
    for panel in (a, b):
        log_ticks(panel.xaxis, x[:: max(1, len(x) // 2)].tolist())
    c.legend(fontsize=6)
    legend_above(drawn, a, columns=4)
    data |= {"share": share, "ridge_loss": found.ridge_icl_loss, "log2_threshold": passed.each}
    return Drawing(drawn, data, at.about())
