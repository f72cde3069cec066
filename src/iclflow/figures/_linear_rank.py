"""The figure of arXiv 2501.16265 on keys and queries of rank R."""

import numpy as np

from .. import theory
from ..claims import Lab
from ..claims._linear_runs import EIGHT, eight_components, rank_run
from ..claims.linear_rank import RANKS, SCALES, plateau_durations
from ._base import Drawing
from ._style import COLOURS, LEVEL, THEORY, canvas, held, legend_above

# The claim on slopes inside a head runs the largest rank from smaller weights still.
SMALLEST = 1e-4
# Levels at which a new head must start.
NEW_HEAD = LEVEL | {"color": COLOURS[1], "lw": 1.0}


def rank(lab: Lab) -> Drawing:
    """Loss curves and the durations of their plateaus, for four ranks."""
    task = eight_components()
    plateaus = theory.plateau_losses(task)
    figure, panels = canvas("double", 4.6, 2, 4, sharey="row")
    data: dict[str, np.ndarray] = {"theory_levels": plateaus}
    for r, upper, lower in zip(RANKS, panels[:4], panels[4:]):
        run = rank_run(lab, r, SCALES[0])
        time, loss = held(run, 2 * run.times[-1])
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
    last.plot(np.arange(1, 8), predicted, **THEORY)
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
    panel.plot([], [], label="predicted", **THEORY)
    panel.plot([], [], label="level, new head", **NEW_HEAD)
    panel.plot([], [], label="level, inside a head", **LEVEL)
    legend_above(figure, panel, columns=4)
