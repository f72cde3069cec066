"""Figures on training with few sequences: which interpolant, and which tasks to train on."""

import numpy as np

from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import COLOURS, canvas, shades
from ...theory import diversity
from .. import Lab, figure
from . import runs_alignment as aligned
from .runs_weights import (
    CONTEXT,
    CURVE,
    DIM,
    KINDS,
    SEQUENCES,
    TASKS,
    least_squares_losses,
    trained_ends,
)


@figure(
    "diversity/merged-separate",
    "Merged and separate attention on the same sequences",
    """Gradient flow on n sequences of four unit tasks, D = 4, N = 8, to its end. (a) The median
    loss on unseen tasks over data sets, with the second and third quarter (bands); crosses: least
    squares of least norm. Above n = D² (dotted) both kinds have one end. (b) The losses at n = 10,
    one circle for each data set: separate heads end at another interpolant, of lower rank.""",
)
def merged_separate(lab: Lab) -> Drawing:
    """Losses at the end of training for both kinds."""
    sets = lab.scaled(4, 16, 64)
    drawn, (a, b) = canvas("double", 2.7, 1, 2)
    data: dict[str, np.ndarray] = {"sequences": np.array(CURVE)}
    for kind, colour in zip(KINDS, COLOURS):
        losses = np.array([trained_ends(lab, kind, n, sets).icl for n in CURVE])
        low, middle, high = np.quantile(losses, (0.25, 0.5, 0.75), axis=1)
        a.fill_between(CURVE, low, high, color=colour, alpha=0.2, lw=0)
        a.plot(CURVE, middle, "o-", color=colour, label=kind)
        data[kind] = losses
    least = np.array([least_squares_losses(lab, n, sets) for n in CURVE])
    a.plot(CURVE, np.median(least, 1), "x", color="black", ms=5, label="least squares")
    a.axvline(DIM**2, color="0.5", ls=":", lw=0.8)
    a.set(xscale="log", yscale="log", xlabel="sequences n", ylabel="ICL loss", xticks=CURVE)
    a.set_xticklabels([str(n) for n in CURVE])
    a.tick_params(axis="x", which="minor", bottom=False)
    a.legend()
    merged, separate = (data[kind][CURVE.index(SEQUENCES)] for kind in KINDS)
    plot_circles(b, merged, separate, COLOURS[1])
    ends = np.array([min(merged.min(), separate.min()) / 1.2, max(merged.max(), separate.max())])
    plot_theory(b, ends, ends, "equal")
    b.set(xscale="log", yscale="log", xlabel="ICL loss, merged", ylabel="ICL loss, separate")
    b.legend()
    settings = {"dim": DIM, "context": CONTEXT, "tasks": TASKS, "data_sets": sets}
    return Drawing(drawn, data | {"least": least}, settings)


@figure(
    "diversity/alignment",
    "Which tasks to train on for a given test",
    """Tasks of the test have variances ∝ 1/j, those of training ∝ j^−p, D = 20, N = 40. (a) Trained
    on the population: exact losses (circles) and theory; matched tasks, p = 1, are best. (b) Least
    squares on n = D²/4 drawn sequences (circles, with standard errors), and the equivalent of
    theory at several n: steeper tasks are better there. (c) The loss of single test directions
    after training with p = 1 on the population, which rises where training showed little.""",
)
def alignment(lab: Lab) -> Drawing:
    """Test losses against the power of the training spectrum."""
    drawn, (a, b, c) = canvas("double", 2.6, 1, 3)
    fine, test = np.linspace(0, 2, 41), aligned.law(1.0)
    exact = [diversity.alignment(aligned.law(p), test).loss for p in fine]
    plot_theory(a, fine, exact)
    plot_circles(a, aligned.POWERS, aligned.population_losses(lab), COLOURS[0])
    a.set(xlabel="power p of training", ylabel="test loss", title="n = ∞")
    on_data = aligned.data_losses(lab)
    mean, error = on_data.mean(0), on_data.std(0, ddof=1) / len(on_data) ** 0.5
    curves = []
    for share, colour in zip((0.25, 1.5, 4.0), shades(3)):
        n = int(share * aligned.SIZE**2)
        risks = [diversity.data_risks(aligned.law(p), n, test=test) for p in fine]
        curves.append([float(each.test) for each in risks])
        b.plot(fine, curves[-1], color=colour, label=f"n = {share:g} D²")
    b.errorbar(aligned.POWERS, mean, error, fmt="o", mfc="none", color=shades(3)[0], lw=1)
    b.set(xlabel="power p of training", ylabel="test loss", ylim=(0.5, 1.8))
    b.legend(fontsize=7, loc="upper right")
    parts = diversity.alignment(test, test)
    c.plot(np.arange(1, aligned.SIZE + 1), parts.within, "o-", color=COLOURS[2])
    c.set(xlabel="direction j", ylabel="loss of a test along it", ylim=(0, None))
    data = {"powers": np.array(aligned.POWERS), "fine": fine, "theory": np.array(exact)}
    data |= {"population": aligned.population_losses(lab), "drawn": on_data}
    data |= {"equivalent": np.array(curves), "directions": parts.within}
    settings = {"dim": aligned.SIZE, "context": aligned.LENGTH, "noise": aligned.NOISE}
    return Drawing(drawn, data, settings | {"sequences": aligned.SEQUENCES})
