"""Figures of arXiv 2501.16265 on what a model computes in context, and on softmax."""

import numpy as np

from ... import analysis, theory
from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import COLOURS, LEVEL, canvas, curve_until, legend_above, shades
from ...estimators import PopulationPCR, SubspaceLeastSquares
from .. import Lab, figure
from .figures_staircase import hold_last
from .runs import FOUR, four_components, separate_run, white_settings, white_task
from .runs_data import (
    END,
    FRACTIONS,
    FRESH,
    OTHER_CONTEXTS,
    SEQUENCES,
    block_sizes,
    descent_settings,
    in_weight_runs,
    losses_at_length,
    prediction_distances,
    softmax_run,
    softmax_study,
    test_losses,
)

SCALE = 1e-3


@figure(
    "linear/pcr",
    "What the model computes on each plateau",
    """(a) Root mean square distance between the predictions of a model in training and
    those of principal component regression with m population components and fixed, shrunk
    inverse variances: on plateau m it vanishes for that m. (b) The risk on each plateau
    is that of this algorithm (dashed), and larger than that of least squares in the same
    subspace (dotted). (c) Distance of the plateau's predictions from both, on fresh
    sequences.""",
)
def pcr(lab: Lab) -> Drawing:
    """How far a run is from principal component regression, and how well that does."""
    task = four_components()
    run = separate_run(lab, SCALE)
    time, _ = curve_until(run, 2 * run.times[-1])
    distances = hold_last(_distances(run.coefficients()), time)
    found = analysis.plateaus(run)
    measured = np.array([plateau.level for plateau in found])
    count = np.arange(5)
    shrunk = np.array([theory.plateau_risk(task, m) for m in range(5)])
    squares = np.array([theory.subspace_least_squares_risk(task, m) for m in range(5)])
    estimators = (PopulationPCR, SubspaceLeastSquares)
    gaps = np.array(
        [prediction_distances(lab, [e(task, m) for m in range(1, 5)]) for e in estimators]
    )
    figure, (a, b, c) = canvas("double", 2.8, 1, 3, width_ratios=[1.3, 1, 1])
    for m, colour in zip(count, shades(5)):
        a.semilogx(time[1:], distances[1:, m], color=colour, label=f"m = {m}")
    a.set(xlim=(0.2 * found[0].end, time[-1]), ylim=(-0.03, 1.1))
    a.set(xlabel="time (τ)", ylabel="distance from PCR with $m$")
    legend_above(figure, a)
    plot_circles(b, np.arange(len(measured)), measured, label="attention")
    plot_theory(b, count, shrunk, "PCR")
    b.plot(count, squares, ":", color=COLOURS[1], lw=1.5, label="least squares")
    b.set(xlabel="plateau $m$", ylabel="risk", ylim=(-0.04, 1.25), xticks=count)
    b.legend(loc="upper right", handlelength=1.6, borderaxespad=0)
    c.semilogy(count[1:], gaps[0], "o", mfc="none", label="from PCR")
    c.plot(count[1:], gaps[1], "s", mfc="none", color=COLOURS[1], label="from least squares")
    c.set(xlabel="plateau $m$", ylabel="relative distance in prediction", xticks=count[1:])
    c.set(xlim=(0.6, 4.4), ylim=(None, 300))
    c.legend(loc="upper right", borderaxespad=0)
    data = {
        "time": time,
        "distance": distances,
        "risk": measured,
        "theory_risk": shrunk,
        "theory_least_squares_risk": squares,
        "distance_from_pcr": gaps[0],
        "distance_from_least_squares": gaps[1],
    }
    config = {**FOUR, "heads": 4, "rank": 1, "scale": SCALE, "seed": 0, "sequences": SEQUENCES}
    return Drawing(figure, data, config)


def _distances(matrices: np.ndarray) -> np.ndarray:
    """√E(ŷ − ŷ_m)² of each matrix from PCR with m = 0 … D components, exactly."""
    task = four_components()
    second, inputs = theory.correlation_second_moment(task), np.asarray(task.covariance)
    gaps = matrices[:, None] - np.stack([theory.plateau_matrix(task, m) for m in range(5)])
    squares = np.einsum("tmde,df,tmfg,ge->tm", gaps, second, gaps, inputs, optimize=True)
    return np.sqrt(np.maximum(squares, 0))


@figure(
    "linear/context",
    "Another context length in the test",
    """Loss of a model trained at N = 31 on sequences of other lengths, by Monte Carlo
    with standard errors (points) and by theory (lines). Divided by the length, attention
    improves towards a floor (dotted), because its weights stay shrunk for the length of
    training; not divided, it diverges.""",
)
def context(lab: Lab) -> Drawing:
    """The trained model at context lengths that it was not trained on."""
    task, final = four_components(), separate_run(lab).final
    matrix = np.asarray(final.coefficients())
    lengths = np.geomspace(4, 250, 200)
    figure, (panel,) = canvas("single", 2.8)
    data: dict[str, np.ndarray] = {"context": np.array(OTHER_CONTEXTS), "theory_context": lengths}
    for normalised, name, colour in ((True, "divided by N′", 0), (False, "not divided", 1)):
        predicted = theory.loss_at_other_context(task, matrix, lengths, normalised)
        losses = [losses_at_length(lab, final, length, normalised) for length in OTHER_CONTEXTS]
        means = np.array([each.mean() for each in losses])
        errors = np.array([each.std(ddof=1) / np.sqrt(each.size) for each in losses])
        panel.plot(lengths, predicted, color=COLOURS[colour], lw=2, alpha=0.35)
        plot_theory(panel, lengths, predicted)
        panel.errorbar(
            OTHER_CONTEXTS, means, errors, fmt="o", capsize=2.5, color=COLOURS[colour], label=name
        )
        key = "divided" if normalised else "not_divided"
        data |= {key: means, f"{key}_error": errors, f"theory_{key}": predicted}
    floor = theory.infinite_context_floor(task, matrix)
    panel.axhline(floor, label="floor, N′ → ∞", **LEVEL)
    panel.axvline(task.contexts[0], color="0.6", lw=0.8, ls="-.", label="N in training")
    plot_theory(panel, [], [], "theory")
    panel.set(xscale="log", yscale="log", xlabel="context length in the test N′", ylabel="loss")
    legend_above(figure, panel, columns=2)
    data["theory_floor"] = np.array(floor)
    config = {**FOUR, "tested_at": list(OTHER_CONTEXTS), "heads": 4, "rank": 1, "scale": 1e-2}
    config |= {"seed": 0, "sequences": FRESH}
    return Drawing(figure, data, config)


@figure(
    "linear/softmax",
    "Softmax attention: one drop, several drops",
    """Training loss of softmax attention on a fixed set of sequences, (a) with merged
    key-query, (b) with separate keys and queries of rank one. Thick bars are the plateaus
    that are found on the curves without theory: softmax attention learns like linear
    attention, in one drop and in several.""",
    number=5,
)
def softmax(lab: Lab) -> Drawing:
    """Loss of the softmax twins, with the plateaus that are found on the curves."""
    figure, panels = canvas("double", 2.6, 1, 2)
    data: dict[str, np.ndarray] = {}
    for panel, is_merged in zip(panels, (True, False)):
        run = softmax_run(lab, is_merged)
        name = "merged" if is_merged else "separate"
        panel.plot(run.times, run.losses, label="softmax attention")
        for i, plateau in enumerate(analysis.plateaus(run)):
            look = {"color": COLOURS[4], "lw": 7, "zorder": 1}
            label = None if i else "plateaus found"
            panel.hlines(plateau.level, plateau.start, plateau.end, label=label, **look)
            data[f"{name}_plateau_{i}"] = np.array([plateau.start, plateau.end, plateau.level])
        panel.set_title("merged key-query" if is_merged else "separate keys and queries")
        panel.set(xlabel="gradient-descent step", ylabel="training loss", ylim=(0, None))
        data |= {f"{name}_step": run.times, f"{name}_loss": run.losses}
    legend_above(figure, panels[0])
    config = {
        **FOUR,
        "heads": 8,
        "sequences": getattr(softmax_study(True).risk, "sequences"),
        "merged": descent_settings(softmax_study(True)),
        "separate": descent_settings(softmax_study(False)),
    }
    return Drawing(figure, data, config)


@figure(
    "linear/in-weight",
    "From in-weight to in-context learning",
    """Merged attention with all blocks, trained on a share p of sequences with a random
    task vector and 1 − p with one fixed vector. (a) Training loss. (b) Losses at the end,
    against exact steady states (dashed). The more random tasks, the better the in-context
    test; where context labels are random (in-weight test) the model trusts them all the
    same, and from p = 0.2 on does no better than predicting zero, a loss of 1. (c) Only
    at p = 1 do the blocks u and h, which store the fixed vector, stay where they started,
    at zero up to rounding.""",
)
def in_weight(lab: Lab) -> Drawing:
    """Training on a mixture of random tasks and one fixed task."""
    task, runs = white_task(0.25), in_weight_runs(lab)
    in_context, in_weight = test_losses(runs)
    measured = {"train": runs.final_losses, "in-context test": in_context}
    measured["in-weight test"] = in_weight
    fine = np.linspace(0.02, 1, 50)
    losses = theory.in_weight_losses(task, fine.tolist())
    predicted = dict(zip(measured, (losses.train, losses.in_context, losses.in_weight)))
    figure, (a, b, c) = canvas("double", 2.8, 1, 3)
    for run, p, colour in zip(runs, FRACTIONS, shades(len(FRACTIONS))):
        a.semilogx(run.times[1:], run.losses[1:], color=colour, lw=1.6, label=f"p = {p:g}")
    a.set(xlabel="time (τ)", ylabel="training loss", ylim=(0, 1.05))
    a.legend(loc="upper right", handlelength=1.2)
    for i, (name, values) in enumerate(measured.items()):
        b.plot(FRACTIONS, values, "os^"[i], mfc="none", color=COLOURS[i], label=name)
        plot_theory(b, fine, predicted[name])
    plot_theory(b, [], [], "theory")
    b.set(xlabel="share of random tasks p", ylabel="loss at the end", yscale="log")
    b.set(ylim=(None, 12), xticks=(0, 0.5, 1))
    b.legend(loc="upper right", borderaxespad=0)
    blocks = block_sizes(runs)
    for i, (name, sizes) in enumerate(blocks.items()):
        # Blocks that never move would be at −∞: draw them at the bottom.
        c.semilogy(
            FRACTIONS, np.maximum(sizes, 1e-20), "os^D"[i], color=COLOURS[i], mfc="none",
            label=f"block {name}",
        )  # fmt: skip
    c.set(xlabel="share of random tasks p", ylabel="largest weight in the block")
    c.legend(loc="center left")
    data = {"fraction": np.array(FRACTIONS), "theory_fraction": fine, "time": runs[0].times}
    data["loss"] = np.stack([run.losses for run in runs])
    for name in measured:
        key = name.replace(" ", "_").replace("-", "_")
        data |= {key: measured[name], f"theory_{key}": predicted[name]}
    data |= {f"block_{name}": sizes for name, sizes in blocks.items()}
    config = {**white_settings(0.25), "heads": 8, "scale": 1e-2, "end": END}
    config["fractions"] = list(FRACTIONS)
    return Drawing(figure, data, config)
