"""Figure of the scaling laws in time, depth, width and context."""

from typing import Any

import numpy as np

from ...drawing import Axes, Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import canvas, log_ticks, shades
from ...theory import depth
from .. import Lab, figure
from .runs_scaling import (
    WIDTHS,
    Curve,
    context_curve,
    flow_curve,
    loop_curve,
    untied_curve,
    width_curve,
)


def _draw_law(panel: Axes, curve: Curve, law: depth.ScalingLaw, colour: Any, name: str) -> None:
    """Measured losses, the law through their middle, and the printed law if it differs."""
    words = f"{name}: slope {law.exponent:.3f}, fit {curve.exponent:.3f}"
    plot_circles(panel, curve.x, curve.losses, colour, words)
    middle = np.exp(np.mean(np.log(curve.x))), np.exp(np.mean(np.log(curve.losses)))
    line = lambda slope: middle[1] * (curve.x / middle[0]) ** -slope
    panel.plot(curve.x, line(law.exponent), color=colour)
    if law.printed is not None and abs(law.printed - law.exponent) > 1e-9:
        words = f"printed: {law.printed:.3f}"
        plot_theory(panel, curve.x, line(law.printed), words, color="0.4")


@figure(
    "depth/scaling",
    "Scaling laws, fitted and printed",
    """Losses on spectra λ_k = k^−ν with weights k^−νβ−1 by plain numerics (circles), over the range
    of each fit; lines have the exponents that theory derives, dashed ones those that arXiv
    2510.01098 prints, where they differ. (a) Gradient flow of two layers at infinite context. (b)
    The best loops, and the best untied layers at (1.5, 1). (c) Random projections and (d)
    interpolated contexts: with 600 modes their end raises the slope where β is small.""",
)
def scaling(lab: Lab) -> Drawing:
    """Four resources, each with measured losses and slopes."""
    drawn, panels = canvas("double", 5.2, 2, 2)
    data: dict[str, np.ndarray] = {}

    def add(place: int, curve: Curve, law: depth.ScalingLaw, colour: Any, name: str) -> None:
        _draw_law(panels[place], curve, law, colour, name)
        data[f"x_{'abcd'[place]}_{name}"] = curve.x
        data[f"loss_{'abcd'[place]}_{name}"] = curve.losses

    colours = shades(3)
    for pair, colour in zip(((1.5, 1.0), (1.0, 1.0), (2.0, 0.5)), colours):
        add(0, flow_curve(lab, *pair, 2), depth.time_law(*pair), colour, _pair(pair))
    for pair, colour in zip(((1.5, 1.0), (2.0, 0.5)), colours):
        add(1, loop_curve(lab, *pair), depth.depth_law(*pair, True), colour, f"loop {_pair(pair)}")
    untied = depth.depth_law(1.5, 1.0, False)._replace(printed=None)
    add(1, untied_curve(lab, 1.5, 1.0), untied, colours[2], "untied (1.5, 1)")
    for place, run, law, pairs in (
        (2, width_curve, depth.width_law, ((1.5, 0.5), (1.5, 1.5))),
        (3, context_curve, depth.context_law, ((1.5, 1.0), (1.5, 3.0))),
    ):
        for pair, colour in zip(pairs, colours):
            add(place, run(lab, *pair), law(*pair), colour, _pair(pair))
    for panel, name in zip(panels, ("time t", "layers L", "width", "context N")):
        panel.set(xscale="log", yscale="log", xlabel=name, ylabel="loss")
        panel.legend(fontsize=6, loc="lower left")
    # Room for the words below the data.
    for panel, share in zip(panels, (1e-3, 1e-2, 0.3, 0.3)):
        panel.set(ylim=(share * panel.get_ylim()[0], None))
    log_ticks(panels[1].xaxis, (32, 128, 512, 4096))
    for place in (2, 3):
        log_ticks(panels[place].xaxis, WIDTHS)
    return Drawing(drawn, data, {"modes": [10**6, 600]})


def _pair(pair: tuple[float, float]) -> str:
    return f"({pair[0]:g}, {pair[1]:g})"
