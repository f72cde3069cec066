"""The figure of arXiv 2501.16265 on keys and queries of rank R."""

import numpy as np

from ... import theory
from ...drawing import Drawing
from ...drawing.marks import plot_theory
from ...drawing.style import COLOURS, LEVEL, canvas, curve_until, legend_above
from .. import Lab, figure
from .runs import EIGHT, RANKS, SCALES, eight_components, plateau_durations, rank_run

# The claim on slopes inside a head runs the largest rank from smaller weights still.
SMALLEST = 1e-4
# Levels at which a new head must start.
NEW_HEAD = LEVEL | {"color": COLOURS[1], "lw": 1.0}


@figure(
    "linear/rank",
    "Rank R: which plateaus last",
    """D = 8, nine heads of rank R, one seed. (a–d) Loss from weights of 0.01; dotted, all
    predicted levels, in colour those at which R divides m and a new head must start.
    (e–h) Time from half-drop m to half-drop m + 1. Tenfold smaller weights make plateaus
    that wait for a new head (filled) roughly ten times as long; those inside a head
    (open) grow only with ln(1/s), which theory predicts for R = 8 (dashed, from 10⁻³ to
    10⁻⁴). A small eigenvalue can make a plateau inside a head longer than one that waits
    for a new head.""",
    number=4,
)
def rank(lab: Lab) -> Drawing:
    """Loss curves and the durations of their plateaus, for four ranks."""
    task = eight_components()
    plateaus = theory.plateau_losses(task)
    figure, panels = canvas("double", 4.6, 2, 4, sharey="row")
    data: dict[str, np.ndarray] = {"theory_levels": plateaus}
    for r, upper, lower in zip(RANKS, panels[:4], panels[4:]):
        run = rank_run(lab, r, SCALES[0])
        time, loss = curve_until(run, 2 * run.times[-1])
        upper.semilogx(time[1:], loss[1:])
        upper.set(title=f"R = {r}", xlabel="time (τ)", xlim=(100, time[-1]), ylim=(0.15, 1.05))
        for m, level in enumerate(plateaus):
            new_head = m % r == 0 and m < 8
            upper.axhline(level, **NEW_HEAD if new_head else LEVEL)
        data |= {f"time_{r}": time, f"loss_{r}": loss}
        scales = (*SCALES, SMALLEST) if r == max(RANKS) else SCALES
        for i, scale in enumerate(scales):
            durations = plateau_durations(rank_run(lab, r, scale))
            data[f"durations_{r}_{scale:g}"] = durations
            marker, colour = "os^"[i], COLOURS[(0, 2, 3)[i]]
            starts = np.arange(8) % r == 0
            lower.semilogy(np.arange(8), durations, "-", color=colour, lw=0.7)
            lower.plot(np.flatnonzero(starts), durations[starts], marker, color=colour)
            lower.plot(
                np.flatnonzero(~starts), durations[~starts], marker, color=colour, mfc="white"
            )
        lower.set(xlabel="components learned m", xticks=range(0, 8, 2))
    last = panels[-1]
    slopes = np.array([theory.log_plateau_slope(task, 8, m) for m in range(1, 8)])
    predicted = data[f"durations_8_{SCALES[1]:g}"][1:] + np.log(SCALES[1] / SMALLEST) * slopes
    plot_theory(last, np.arange(1, 8), predicted)
    data["theory_durations_8"] = predicted
    panels[0].set_ylabel("loss")
    panels[4].set_ylabel("duration of plateau m (τ)")
    _legend(figure, panels[0])
    config = {**EIGHT, "heads": 9, "seed": 0}
    config |= {"scales": [*SCALES, SMALLEST], "scale_of_curves": SCALES[0]}
    return Drawing(figure, data, config)


def _legend(figure, panel) -> None:
    for i, scale in enumerate((*SCALES, SMALLEST)):
        label = f"s = {scale:g}"
        panel.plot([], [], "os^"[i] + "-", color=COLOURS[(0, 2, 3)[i]], lw=0.7, label=label)
    panel.plot([], [], "o", color="0.4", label="new head")
    panel.plot([], [], "o", color="0.4", mfc="white", label="inside a head")
    plot_theory(panel, [], [], "predicted")
    panel.plot([], [], label="level, new head", **NEW_HEAD)
    panel.plot([], [], label="level, inside a head", **LEVEL)
    legend_above(figure, panel, columns=4)
