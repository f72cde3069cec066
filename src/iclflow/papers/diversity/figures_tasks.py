"""Figures on few tasks over training: transience, and how near to recalling them a model is."""

import numpy as np

from ...analysis import recall_distances, test_losses
from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import COLOURS, canvas, shades
from ...experiment import build_task
from ...tasks import FiniteTasks
from ...theory import diversity
from .. import Lab, figure, study
from .runs_tasks import (
    DIM,
    MANY,
    NOISE,
    RANDOM,
    SETTINGS,
    orthogonal_runs,
    orthogonal_tasks,
    random_runs,
    seen,
)


@figure(
    "diversity/transience",
    "Transience: the best loss on unseen tasks is inside a drop",
    """Exact flows of merged attention. (a) Two orthogonal tasks, D = 8, N = 3: losses on the tasks
    of training (IDG) and on unseen ones (ICL) with their closed form (dashed); the circle is the
    best time to stop, by theory. (b) ICL loss for random tasks in D = 20: it rises after its best
    point (circles) with short contexts and few tasks alone. (c) The same on 36 sequences of four
    tasks, D = 6: the loss on the data falls to zero.""",
)
def transience(lab: Lab) -> Drawing:
    """Losses over time on the population and on data."""
    drawn, (a, b, c) = canvas("double", 2.6, 1, 3)
    data = _plot_orthogonal(a, lab) | _plot_random(b, lab) | _plot_data(c, lab)
    context, count = SETTINGS[0]
    settings = {"dim": DIM, "noise": NOISE, "context": context, "tasks": count, "random_dim": MANY}
    return Drawing(drawn, data, settings | {"random_settings": RANDOM})


def _plot_orthogonal(panel, lab: Lab) -> dict[str, np.ndarray]:
    """Both losses with theory, and when to stop."""
    found, start = orthogonal_runs(lab)[0]
    task = orthogonal_tasks(*SETTINGS[0])
    stop = diversity.equal_tasks_stop(seen(task), task.fresh, start)
    data = {"time": found.times, "stop": np.array([stop.time, stop.loss])}
    tests = (("IDG", found.idg, seen(task), None), ("ICL", found.icl, task.fresh, "theory"))
    for (name, losses, test, label), colour in zip(tests, COLOURS):
        curve = diversity.equal_tasks_curve(seen(task), test, found.times, start)
        panel.plot(found.times, losses, color=colour, label=name)
        plot_theory(panel, found.times, curve, label)
        data |= {name.lower(): losses, f"theory_{name.lower()}": curve}
    plot_circles(panel, stop.time, stop.loss, "black")
    panel.set(xlabel="time (τ)", ylabel="loss", xlim=(0, 12))
    panel.legend()
    return data


def _plot_random(panel, lab: Lab) -> dict[str, np.ndarray]:
    """The loss on unseen tasks for several lengths and numbers of tasks."""
    data: dict[str, np.ndarray] = {}
    for (n, k), losses, colour in zip(RANDOM, random_runs(lab), shades(4)):
        panel.plot(losses.times, losses.icl, color=colour, label=f"N = {n}, K = {k}")
        if losses.overshoot > 1e-3:
            plot_circles(panel, losses.best.time, losses.best.loss, colour)
        data |= {f"random_time_{n}_{k}": losses.times, f"random_icl_{n}_{k}": losses.icl}
    panel.set(xlabel="time (τ)", ylabel="ICL loss", xlim=(0, 100), ylim=(None, 1.28))
    panel.legend(fontsize=7, loc="upper right")
    return data


def _plot_data(panel, lab: Lab) -> dict[str, np.ndarray]:
    """The three losses of a run on a finite data set."""
    config = study("diversity/few-sequences")
    losses = test_losses(lab.run(config), build_task(config))
    lines = {"on the data": losses.train, "IDG": losses.idg, "ICL": losses.icl}
    for (name, values), colour in zip(lines.items(), ("0.4", *COLOURS)):
        panel.plot(losses.times, values, color=colour, label=name)
    plot_circles(panel, losses.best.time, losses.best.loss, COLOURS[1])
    panel.set(xscale="log", yscale="log", xlabel="time (τ)", ylabel="loss", xlim=(1, None))
    panel.set(ylim=(0.01, None))
    panel.legend(fontsize=7)
    found = {"time": losses.times, "train": losses.train, "idg": losses.idg, "icl": losses.icl}
    return {f"data_{name}": values for name, values in found.items()}


@figure(
    "diversity/recall",
    "Distances to the two Bayes predictors over training",
    """Mean squared distance, over D, of a linear attention layer to dMMSE, which recalls the tasks
    of training, and to ridge regression, on the tasks of training (IDG) and on unseen ones (ICL),
    for K = 3 (a) and K = 200 tasks (b) in D = 4. One layer does not recall its tasks: even with
    three of them it stays nearer to ridge on their own sequences. On unseen ones it leaves
    dMMSE.""",
)
def recall(lab: Lab) -> Drawing:
    """The four distances of arXiv 2306.15063 on two runs."""
    drawn, panels = canvas("double", 2.7, 1, 2, sharey=True)
    data: dict[str, np.ndarray] = {}
    names = {
        "dmmse_idg": ("dMMSE, IDG", COLOURS[0], "-"),
        "ridge_idg": ("ridge, IDG", COLOURS[1], "-"),
        "dmmse_icl": ("dMMSE, ICL", COLOURS[0], ":"),
        "ridge_icl": ("ridge, ICL", COLOURS[1], ":"),
    }
    for panel, name in zip(panels, ("few-tasks", "many-tasks")):
        config = study(f"diversity/{name}")
        task, run = build_task(config), lab.run(config)[::3]
        assert isinstance(task, FiniteTasks)
        found = recall_distances(run, task, count=1000)
        for field, (label, colour, dash) in names.items():
            panel.plot(run.times, getattr(found, field), dash, color=colour, label=label)
            data[f"{name}_{field}"] = getattr(found, field)
        data[f"{name}_time"] = run.times
        panel.set(xlabel="time (τ)", yscale="log", title=f"K = {task.count}")
    panels[0].set_ylabel("distance Δ")
    panels[1].legend(ncols=2, fontsize=7)
    return Drawing(drawn, data, {"studies": ["few-tasks", "many-tasks"], "sequences": 1000})
