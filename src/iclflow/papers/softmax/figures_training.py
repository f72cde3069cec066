"""Figures of the notebooks of arXiv 2503.12734 on trained free heads: patterns along training,
other lengths, two tasks."""

from typing import Any

import numpy as np

from ... import theory
from ...circuits import circuits
from ...drawing import Drawing
from ...drawing.heads import draw_circuit
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import COLOURS, WIDTHS, canvas, colour_bar, fixed_canvas, legend_above
from .. import Lab, figure
from .runs import DIM, SETTING
from .runs_heads import final_heads, heads_at, two_task_heads
from .runs_notebook import EST_LENGTHS, TESTED, length_losses, length_theory, printed_heads
from .runs_seeds import (
    AUTHORS_STEPS,
    TWO_TASKS,
    authors_two_tasks,
    free_ensemble,
    free_two_tasks,
    one_task_training,
    shown_heads,
    two_task_training,
)

# Inches: a cell of a heat map.
_CELL = 0.12


def _shown_steps(lab: Lab, heads: int) -> list[int]:
    """The authors' steps, as shares of the run of the tier."""
    saved = np.asarray(one_task_training(lab, heads).saved)
    wanted = np.asarray(AUTHORS_STEPS) / AUTHORS_STEPS[-1] * saved[-1]
    return [int(saved[np.argmin(np.abs(saved - max(step, 1)))]) for step in wanted]


@figure(
    "softmax/attnmtrx-dynamic",
    "Softmax attention: key-query matrices along training (KQ sequence)",
    """The key-query circuits of two free heads of one seed that ends in the pattern, at the steps
    of the notebook (as shares of the run, where it is shorter): from random matrices a multiple of
    the identity emerges in each, positive in one and negative in the other, and stays. Rows: heads;
    each column has its own colour range, given below with the median |ω| over all such seeds.""",
)
def attnmtrx_dynamic(lab: Lab) -> Drawing:
    """Heat maps of two heads at six steps."""
    runs, good = free_ensemble(lab, 2), final_heads(lab, 2).both_signs
    first = int(np.flatnonzero(good)[0]) if good.any() else 0
    steps = _shown_steps(lab, 2)
    run = runs[first]
    drawn, place = fixed_canvas(WIDTHS["double"], 2.55)
    side, tall = DIM * _CELL * 1.25, (DIM + 1) * _CELL * 1.25
    data: dict[str, np.ndarray] = {"steps": np.asarray(steps)}
    for column, step in enumerate(steps):
        at = int(np.flatnonzero(run.times == step)[0])
        matrices = np.asarray(run.at(at).kq())
        limit = float(np.abs(matrices).max())
        width = float(np.median(heads_at(runs, step)[good].width)) if good.any() else 0.0
        for h in range(2):
            panel = place(0.55 + column * (side + 0.3), 1.3 - h * (tall + 0.1), side, tall)
            draw_circuit(panel, matrices[h], limit)
            panel.set(xticks=[], yticks=[])
            if h == 0:
                panel.set_title(f"step {step:,}".replace(",", " "), fontsize=8)
            if column == 0:
                panel.set_ylabel(f"head {h + 1}")
            if h == 1:
                panel.set_xlabel(f"±{limit:.2f}\n|ω| {width:.3f}", fontsize=8)
        data[f"kq_{step}"] = matrices
    config = SETTING | one_task_training(lab, 2).settings(2) | {"shown_seed": first}
    return Drawing(drawn, data, config)


@figure(
    "softmax/metrics-pattern",
    "Softmax attention: the patterns along training (Metrics_pattern)",
    """Free heads along training: (a) the share of the key-query circuits off the diagonal and (b)
    of the output-value circuits beside the label, means over active heads, and (c) |Σμ| / Σ|μ|.
    Medians (lines) and 10 to 90 % (bands) of the seeds that end in the pattern; numbers of heads in
    colours.""",
)
def metrics_pattern(lab: Lab) -> Drawing:
    """Measures of the patterns against steps, over seeds."""
    drawn, panels = canvas("double", 2.7, 1, 3, sharex=True)
    data: dict[str, np.ndarray] = {}
    counts = shown_heads(lab, 2, 4, 8) if lab.tier != "paper" else (2, 3, 4)
    for i, heads in enumerate(counts):
        runs, good = free_ensemble(lab, heads), final_heads(lab, heads).both_signs
        steps = np.asarray(one_task_training(lab, heads).saved)
        found = [heads_at(runs, int(step))[good] for step in steps]
        measures = (
            [1 - each.mean_of_active(each.diagonal) for each in found],
            [1 - each.mean_of_active(each.label) for each in found],
            [each.zero_sum for each in found],
        )
        for panel, values, name in zip(panels, measures, ("diagonal", "label", "sum")):
            low, middle, high = np.quantile(np.asarray(values), (0.1, 0.5, 0.9), axis=1)
            panel.fill_between(steps, low, high, color=COLOURS[i], alpha=0.2, lw=0)
            panel.plot(steps, middle, color=COLOURS[i], label=f"H = {heads}")
            data[f"{name}_{heads}"] = middle
        data[f"steps_{heads}"] = steps
    for panel, name in zip(panels, ("off the diagonal", "beside the label", "|Σμ| / Σ|μ|")):
        panel.set(xscale="log", yscale="log", xlabel="step", title=name)
    panels[0].set_ylabel("share")
    legend_above(drawn, panels[0])
    config = SETTING | one_task_training(lab, 2).settings(counts)
    return Drawing(drawn, data, config)


@figure(
    "softmax/head-num-comparison",
    "Softmax attention: trained heads at other lengths (Head_num_comparison)",
    """Free heads trained at L = 40 and tested at other lengths: medians over the seeds that end in
    the pattern (circles) and the exact loss of structured heads with their ω and μ (dashed,
    theory). Crosses: values that the first notebook prints, one trained model each, on 20 000
    sequences (one head: 100 000).""",
)
def head_num_comparison(lab: Lab) -> Drawing:
    """Losses of trained heads over the length."""
    drawn, (panel,) = canvas("single", 2.8, 1, 1)
    data: dict[str, np.ndarray] = {"length": np.asarray(TESTED)}
    counts = shown_heads(lab, 1, 2, 4, 8)
    fine = tuple(np.unique(np.geomspace(TESTED[0], TESTED[-1], 24).astype(int)).tolist())
    for i, heads in enumerate(counts):
        _, found = length_losses(lab, heads, TESTED)
        expected = length_theory(lab, heads, fine)
        # Losses of more than one head all but coincide: circles within circles.
        plot_circles(panel, TESTED, found, COLOURS[i], f"H = {heads}", ms=12 - 3 * i)
        plot_theory(panel, fine, expected)
        printed = printed_heads()[heads][0]
        panel.plot(EST_LENGTHS, printed, "x", color=COLOURS[i], ms=4)
        data |= {f"loss_{heads}": found, f"theory_{heads}": expected, f"printed_{heads}": printed}
    data |= {"theory_length": np.asarray(fine), "printed_length": np.asarray(EST_LENGTHS)}
    plot_theory(panel, [], [], "theory")
    panel.plot([], [], "x", color="black", ms=4, label="printed, H by colour")
    panel.set(xscale="log", xlabel="context length L", ylabel="loss", ylim=(0, None))
    panel.set_xticks(TESTED, [str(length) for length in TESTED])
    panel.minorticks_off()
    legend_above(drawn, panel)
    config = SETTING | one_task_training(lab, 2).settings(counts)
    return Drawing(drawn, data, config)


@figure(
    "softmax/split-heads",
    "Softmax attention: four heads on two tasks split up (multi-task matrices)",
    """Four free heads on two tasks that read coordinates 1 to 4 and 3 to 6, of the first seed that
    splits: key-query circuits, whose rows are the six inputs and the two labels of a token, whose
    columns the inputs of the query (upper row), and what each head reads from the two labels (lower
    row). Each task has one positive and one negative head on its own coordinates. The bars give the
    share of seeds that split up so, and of those in which a head works for both tasks; trained as
    short as below the paper tier fewer split up than in the authors' training.""",
)
def split_heads(lab: Lab) -> Drawing:
    """Heat maps of four heads on two tasks, and how many seeds split."""
    task, found = authors_two_tasks(), two_task_heads(lab, 4)
    runs = free_two_tasks(lab, 4)
    first = int(np.argmax(found.split))
    own = circuits(runs[first].final, task)
    order = np.lexsort((-own.omega.sum(1), np.abs(own.mu).argmax(1)))
    attention = own.attention[order]
    labels = own.values[order][:, :, task.dim :]
    drawn, place = fixed_canvas(WIDTHS["double"], 2.5)
    limits = float(np.abs(attention).max()), float(np.abs(labels).max())
    image: Any = None
    low: Any = None
    for h in range(4):
        left = 0.5 + h * 1.05
        upper = place(left, 1.0, 0.9, 0.9 * 8 / 6)
        lower = place(left + 0.25, 0.3, 0.4, 0.4)
        image = draw_circuit(upper, attention[h], limits[0])
        low = draw_circuit(lower, labels[h], limits[1])
        upper.set(xticks=[], yticks=[], title=f"head {h + 1}")
        lower.set(xticks=[0, 1], yticks=[0, 1])
        lower.set_xticklabels(["$y_1$", "$y_2$"])
        lower.set_yticklabels(["$ŷ_1$", "$ŷ_2$"] if h == 0 else ["", ""])
    colour_bar(drawn, image, place(4.75, 1.0, 0.09, 1.2), "key-query")
    colour_bar(drawn, low, place(4.75, 0.3, 0.09, 0.4), "out-value")
    bars = place(6.05, 0.4, 0.8, 1.8)
    shares = [float(found.split.mean()), float(np.mean(found.superposed > 0))]
    bars.bar([0, 1], shares, color=[COLOURS[0], COLOURS[1]], width=0.6)
    bars.set(xticks=[0, 1], ylim=(0, 1), ylabel="share of seeds")
    bars.set_xticklabels(["split", "shared"])
    data = {"kq": attention, "ov": labels, "split": found.split, "shared": found.superposed}
    floor = float(theory.task_floors(task).mean())
    config = TWO_TASKS | two_task_training(lab).settings(4) | {"shown_seed": first, "floor": floor}
    return Drawing(drawn, data, config)
