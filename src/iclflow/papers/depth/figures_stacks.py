"""Figures of stacks and loops at finite size: losses, stationary points, longer loops."""

import jax.numpy as jnp
import numpy as np

from ...drawing import Drawing
from ...drawing.marks import plot_bars, plot_circles, plot_theory
from ...drawing.style import canvas, legend_above, level_names, log_ticks, shades
from ...models import ScalarStack
from ...risks import risk
from ...theory import depth
from .. import Lab, figure, once
from .runs_levels import CONTEXT, DIM, Landscape, found_points, white_task

_DEPTHS = (1, 2, 3, 4, 6, 8)
_NOISES = (0.0, 0.1, 1.0)


@once
def best_losses(lab: Lab, noise: float, tied: bool) -> np.ndarray:
    """The least exact risk at each depth, from descents."""
    task, rng = white_task(noise), np.random.default_rng(0)
    found = []
    for layers in _DEPTHS:
        landscape = Landscape(task, layers, tied)
        starts = rng.uniform(0.2, 1.5, (1 if tied else 3, landscape.count))
        found.append(min(landscape.lowest(start)[1] for start in starts))
    return np.array(found)


@figure(
    "depth/losses",
    "What depth brings: loops, stacks, and Bayes",
    """The least loss of L layers on white inputs (d = 5, N = 20; that of predicting zero is 1),
    without noise (a), at σ² = .1 (b) and at σ² = 1 (c). Circles: descents on the exact risk. Lines:
    Gauss nodes for untied layers, the best equal steps for loops. With noise layers merge, and no
    depth reaches Bayes (grey): many layers do what gradient flow does that is stopped in time
    (dots).""",
)
def losses(lab: Lab) -> Drawing:
    """Measured and predicted losses over depth, for three noises."""
    drawn, panels = canvas("double", 3.0, 1, 3)
    colours = dict(zip((True, False), shades(2)))
    data: dict[str, np.ndarray] = {"layers": np.array(_DEPTHS)}
    for panel, noise in zip(panels, _NOISES):
        task = white_task(noise)
        for tied, name in ((True, "loop"), (False, "untied")):
            theory = depth.tied_loop if tied else depth.best_steps
            predicted = [theory(task, layers).risk for layers in _DEPTHS]
            measured = best_losses(lab, noise, tied)
            # Thinner on top: with noise the two are the same.
            panel.plot(_DEPTHS, predicted, color=colours[tied], lw=2.6 if tied else 1.2,
                       label=f"{name}, theory")  # fmt: skip
            plot_circles(panel, _DEPTHS, measured, colours[tied], f"{name}, exact risk")
            data[f"{name}_{noise:g}"] = measured
            data[f"{name}_theory_{noise:g}"] = np.array(predicted)
        if noise:
            bayes, (_, flow) = depth.stack_bayes(task), depth.stopped_flow(task)
            panel.axhline(bayes, color="0.5", lw=1, label="Bayes")
            panel.axhline(flow, color="0.5", lw=1, ls=":", label="stopped flow")
            data[f"bayes_{noise:g}"] = np.array([bayes, flow])
        panel.set(yscale="log", xlabel="layers L", title=f"σ² = {noise:g}", xticks=_DEPTHS)
    panels[0].set(ylabel="least loss")
    log_ticks(panels[1].yaxis, (0.05, 0.1, 0.2))
    log_ticks(panels[2].yaxis, (0.25, 0.3, 0.35))
    legend_above(drawn, *panels, columns=3)
    return Drawing(drawn, data, {"dim": DIM, "context": CONTEXT, "noises": list(_NOISES)})


@figure(
    "depth/atlas",
    "All stationary points of three layers",
    """Three layers on white inputs without noise (d = 5, N = 20) have four stationary functions.
    (a) Their losses by index, from roots of the slope from random starts (circles) and from theory
    (lines); names say how many layers share a step, from small to large. (b) The polynomial p(s)
    that each leaves of a task, over the spectrum of S (grey).""",
)
def atlas(lab: Lab) -> Drawing:
    """Levels by index, and the polynomials of all four."""
    found, points = found_points(lab, 3), depth.stack_atlas(white_task(), 3)
    points = sorted(points, key=lambda point: point.risk)
    names = ["+".join(map(str, point.composition)) for point in points]
    drawn, (left, right) = canvas("double", 2.8, 1, 2)
    indices = np.array([point.index for point in points])
    risks = np.array([point.risk for point in points])
    plot_circles(left, found.indices, found.risks, shades(2)[0], "roots of the slope")
    plot_bars(left, indices, risks, 0.25, "theory")
    for name, point in zip(names, points):
        words = f"{name}  ({point.copies} point{'s' * (point.copies > 1)})"
        left.annotate(words, (point.index + 0.3, point.risk), va="center", fontsize=7)
    left.set(xlabel="index", ylabel="loss", xticks=(0, 1, 2), xlim=(-0.5, 3.2))
    left.legend(loc="upper left")
    s = np.linspace(0, 3.0, 300)
    rule = depth.Spectrum.of(white_task())
    edges = np.linspace(0, 3.0, 31)
    mass = np.histogram(rule.values, edges, weights=rule.weights)[0]
    behind = right.twinx()
    behind.stairs(mass / mass.max(), edges, fill=True, color="0.88")
    behind.set(ylim=(0, 2.2), yticks=[])
    right.set_zorder(behind.get_zorder() + 1)
    right.patch.set_visible(False)
    curves = [np.prod(1 - np.outer(point.steps, s), axis=0) for point in points]
    for name, curve, colour in zip(names, curves, shades(len(points))):
        right.plot(s, curve, color=colour, label=name)
    right.axhline(0, color="0.6", lw=0.6)
    right.set(xlabel="eigenvalue s of S", ylabel="p(s)", ylim=(-0.6, 1.0), xlim=(0, 3))
    right.legend(title="shared steps")
    data = {"index": indices, "risk": risks, "found_index": found.indices, "found": found.risks}
    data |= {"s": s, "p": np.array(curves), "spectrum": mass, "edges": edges}
    return Drawing(drawn, data, {"dim": DIM, "context": CONTEXT, "layers": 3, "names": names})


@figure(
    "depth/more-loops",
    "A loop that is run longer than it was trained",
    """The best loops of one to four layers on white inputs without noise (d = 5, N = 20), run for
    up to twelve layers at test time: theory (lines) and exact risks of longer loops (circles). The
    large circle is where each was trained. A few layers more help; many diverge, since some
    contexts have eigenvalues above 2/γ.""",
)
def more_loops(lab: Lab) -> Drawing:
    """The risk over the number of loops at test time."""
    task, loops = white_task(), list(range(1, 13))
    drawn, (panel,) = canvas("single", 2.7)
    data: dict[str, np.ndarray] = {"loops": np.array(loops)}
    for layers, colour in zip((1, 2, 3, 4), shades(4)):
        step, _ = Landscape(task, layers, tied=True).lowest(np.array([0.3]))
        loop = ScalarStack(jnp.asarray(step), DIM, layers)
        longer = [loop.with_depth(count) for count in loops]
        found = np.array([float(risk(task, each, "exact")(each)) for each in longer])
        predicted = depth.more_loops(task, depth.tied_loop(task, layers).step, loops)
        plot_theory(panel, loops, predicted, color=colour, ls="-", label=f"trained for {layers}")
        plot_circles(panel, loops, found, colour, ms=3)
        plot_circles(panel, [layers], [found[layers - 1]], colour, ms=8)
        data |= {f"found_{layers}": found, f"theory_{layers}": predicted}
    level_names(panel, [1.0], ["predicting\nzero"])
    panel.axhline(1.0, color="0.6", lw=0.7)
    panel.set(
        yscale="log", xlabel="loops at test time", ylabel="loss", xticks=(1, 2, 4, 6, 8, 10, 12)
    )
    panel.set(ylim=(8e-3, 30))
    panel.legend()
    return Drawing(drawn, data, {"dim": DIM, "context": CONTEXT})
