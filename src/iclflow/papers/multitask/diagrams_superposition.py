"""Heads × tasks: how often heads end with several tasks at once."""

import dataclasses
from typing import cast

import numpy as np

from ...analysis import wilson
from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.panels import cells
from ...drawing.style import COLOURS, THEORY, canvas
from ...experiment import build_task
from ...tasks import MultiTaskRegression
from ...theory import multitask
from .. import Swept, diagram


@dataclasses.dataclass(frozen=True)
class _Start:
    """One run: its settings, its outcome, and the predictions of theory from its start."""

    heads: int
    tasks: int
    shared: bool
    working: int
    loss: float
    theory_loss: float
    theory_shared: bool


# Three tasks on ten coordinates each.
_TASKS = [list(range(10 * i, 10 * i + 10)) for i in range(3)]


@diagram(
    "multitask",
    "Heads × tasks: superposition",
    """Decomposable softmax heads on equal tasks of ten coordinates, L = 100, trained on the
    large-context loss from random positive starts. (a) How many tasks a head has that has any,
    in the mean over starts; it cannot be less than I/H. (b) The share of starts after which a
    head works for two tasks or more, with 95 % intervals (Wilson). Dashed: the share in which
    theory has one head ahead on two tasks at the start. The rule neglects how heads hold each
    other back, so that it is an upper bound where there are heads enough; with fewer heads than
    tasks sharing is certain. (c) The last loss of every start against the loss that theory
    gives for the division of the tasks that was found (dashed: equal).""",
    smoke={"seeds": 24, "axes": {"model.heads": [3], "task.coordinates": [_TASKS]}},
    paper_tier={"seeds": 1024, "axes": {"model.heads": [1, 2, 3, 4, 5, 6, 8]}},
)
def superposition(swept: Swept) -> Drawing:
    """Tasks per working head, shares of starts with superposition, and losses."""
    starts = _starts(swept)
    heads = sorted({start.heads for start in starts})
    tasks = sorted({start.tasks for start in starts})
    shape = (len(tasks), len(heads))
    load, rule, share = np.empty(shape), np.empty(shape), np.empty((*shape, 3))
    for i, count in enumerate(tasks):
        for j, size in enumerate(heads):
            inside = [s for s in starts if (s.heads, s.tasks) == (size, count)]
            load[i, j] = np.mean([s.tasks / s.working for s in inside])
            rule[i, j] = np.mean([s.theory_shared for s in inside])
            hits = sum(s.shared for s in inside)
            share[i, j] = hits / len(inside), *wilson(hits, len(inside))
    figure, (a, b, c) = canvas("double", 2.8, 1, 3)
    texts = [[f"{value:.2f}" for value in row] for row in load]
    cells(a, load, heads, tasks, texts, (1, max(tasks)))
    a.set(xlabel="heads H", ylabel="tasks I")
    a.set_title("tasks of a working head")
    for i, (count, marker) in enumerate(zip(tasks, "os^Dv")):
        middle, low, high = share[i].T
        error = np.maximum([middle - low, high - middle], 0)
        b.errorbar(heads, middle, error, fmt=marker, ms=4.5, mfc="white", capsize=2.5, lw=1.2,
                   color=COLOURS[i], label=f"{count}")  # fmt: skip
        b.plot(heads, rule[i], marker="x", ms=4, **THEORY | {"color": COLOURS[i]})
    b.plot([], [], marker="x", ms=4, label="rule", **THEORY)
    b.set(xlabel="heads H", ylabel="share of starts", xticks=heads, ylim=(-0.03, 1.55))
    b.set_yticks([0, 0.25, 0.5, 0.75, 1])
    b.set_title("a head has two tasks")
    b.legend(title="tasks I", loc="upper right", ncols=2, handlelength=1.5)
    predicted, measured = np.asarray([(s.theory_loss, s.loss) for s in starts]).T
    for i, count in enumerate(tasks):
        own = np.asarray([s.tasks == count for s in starts])
        plot_circles(c, predicted[own], measured[own], COLOURS[i], ms=3.5, mew=0.8)
    ends = np.asarray([0.0, predicted.max() * 1.1])
    plot_theory(c, ends, ends)
    c.set(xlabel="loss by theory", ylabel="last loss")
    c.set_title("loss of a division")
    data = {"heads": np.asarray(heads), "tasks": np.asarray(tasks), "tasks_of_a_working_head": load}
    data |= {"share": share, "theory_share": rule, "loss": measured, "theory_loss": predicted}
    return Drawing(figure, data, {}, _findings(data, len(swept.sweep.seeds)))


def _starts(swept: Swept) -> list[_Start]:
    found, built = [], {}
    columns = ("run", "model.heads", "owners", "superposed_heads", "final_loss")
    for run, heads, owners, shared, loss in swept.rows(*columns):
        tasks = len(owners)
        # The runs differ in their tasks by the number of these alone.
        if tasks not in built:
            task = build_task(swept.sweep.config(run))
            built[tasks] = multitask.Blocks.of(cast(MultiTaskRegression, task))
        start = swept.trajectory(run).at(0).circuits
        omega, mu = np.asarray(start.omega()), np.asarray(start.mu())
        early = multitask.head_starts(built[tasks], omega, mu, start.width)
        ahead = set(np.argmax(early, axis=0).tolist())
        predicted = multitask.divided_limit(built[tasks], owners).loss
        found.append(
            _Start(heads, tasks, shared > 0, len(set(owners)), loss, predicted, len(ahead) < tasks)
        )
    return found


def _findings(data: dict[str, np.ndarray], count: int) -> str:
    """The measured numbers, as the end of the caption."""
    ratio = data["loss"] / data["theory_loss"]
    above = int(np.sum(data["share"][..., 0] > data["theory_share"] + 1e-12))
    near = 100 * np.mean(np.abs(ratio - 1) < 0.01)
    return (
        f"Measured, of {count} starts each: the share with superposition lies above the rule in "
        f"{above} of {data['theory_share'].size} cells; the losses are {np.min(ratio):.4f} to "
        f"{np.max(ratio):.4f} of theory's, {near:.1f} % of them within 1 %."
    )
