"""Claims on few tasks: the staircase on unseen ones, when to stop, and how many are enough."""

import numpy as np

from ...analysis import drop_count
from ...theory import Setting, diversity
from .. import Checks, Lab, claim, study
from .runs_tasks import (
    DIM,
    FOUR,
    MANY,
    NOISE,
    RANDOM,
    SETTINGS,
    START,
    VALUES,
    aligned_run,
    aligned_task,
    fewer_heads,
    orthogonal_runs,
    orthogonal_tasks,
    random_runs,
    seen,
    wave_tasks,
)
from .runs_threshold import COUNTS, LENGTHS, SIZE, many_tasks


@claim(
    "diversity/test-levels",
    """K ≤ D tasks have K steps, whether or not they commute with the inputs: m heads of rank
    one end on level m, with a known loss on unseen tasks too, and more heads than tasks on the
    last.""",
    source="beyond the papers; derived in docs/theory/diversity.md",
    tolerance_reason="""Runs go on until what is left of the slowest direction is below 1e-6; the
    losses on unseen tasks are off by first order in it. What a head to spare has outside the tasks
    has no drive, and decays as a power of time: 6e-5 is left.""",
    figures=("diversity/transience",),
)
def test_levels(lab: Lab) -> Checks:
    """Losses at the end of flows with one, two and three heads on two tasks; drops of a run."""
    task, found = wave_tasks(), fewer_heads(lab)
    lab.note(**FOUR, tasks=2, heads=(1, 2, 3))
    level = np.array([1, 2, 2])
    trained = diversity.levels_on_test(seen(task), seen(task))
    unseen = diversity.levels_on_test(seen(task), task.fresh)
    last = np.array([[each.idg[-1], each.icl[-1]] for each in found])
    yield lab.close("loss on the two tasks", trained[level], last[:, 0], 1e-6)
    yield lab.close("loss on unseen tasks", unseen[level][:2], last[:2, 1], 1e-6)
    yield lab.close("loss on unseen tasks, a head to spare", unseen[2], last[2, 1], 1e-3)
    config = study("diversity/few-tasks")
    yield lab.equal("drops with three tasks in D = 4", 3, drop_count(lab.run(config)))


@claim(
    "diversity/best-stop",
    """The loss on unseen tasks is smallest inside a drop of the training loss, at a time known in
    closed form for orthogonal tasks and for one aligned head.""",
    source="beyond the papers; derived in docs/theory/diversity.md",
    tolerance_reason="""The solver is asked for 1e-10 a step. The best time is the vertex of a
    parabola through points 0.05 apart: off by 1e-4 of it.""",
    figures=("diversity/transience",),
)
def best_stop(lab: Lab) -> Checks:
    """Exact flows against their closed forms: the whole curve, the best time and the best loss."""
    lab.note(dim=DIM, noise=NOISE, settings=SETTINGS, values=VALUES, start=START)
    times, losses, ends = [], [], []
    for (context, count), (found, start) in zip(SETTINGS, orthogonal_runs(lab)):
        task = orthogonal_tasks(context, count)
        law = seen(task), task.fresh
        curve = diversity.equal_tasks_curve(*law, found.times, start)
        yield lab.close(f"ICL loss over time, N = {context}, K = {count}", curve, found.icl, 1e-9)
        stop = diversity.equal_tasks_stop(*law, start)
        times.append((stop.time, found.best.time))
        losses.append((stop.loss, found.best.loss))
        ends.append(found.icl[-1] > found.icl[0])
    head, task = aligned_run(lab), aligned_task()
    stop = diversity.aligned_stop(seen(task), task.fresh, START)
    times.append((stop.time, head.best.time))
    losses.append((stop.loss, head.best.loss))
    (stops, best), (low, lowest) = np.transpose(times), np.transpose(losses)
    yield lab.relative("best times, the last of an aligned head", stops, best, 1e-3)
    yield lab.close("losses then", low, lowest, 1e-5)
    worse = [n + 1 < (1 + NOISE) * (DIM - 2 * k) for n, k in SETTINGS]
    yield lab.equal("whether it ends worse than it began", worse, [bool(x) for x in ends])


@claim(
    "diversity/transience",
    """Transience needs short contexts and few tasks: merged attention in D = 20 passes the best
    loss on unseen tasks with N = 10 and K = 5 or 10, and falls to the end with more tasks or longer
    contexts.""",
    source="beyond the papers; derived in docs/theory/diversity.md",
    tolerance_reason="""A rise of a thousandth of the loss counts; those that there are are twenty
    times as large, and the others a hundred times smaller.""",
    figures=("diversity/transience",),
)
def transience(lab: Lab) -> Checks:
    """By how much the loss on unseen tasks rises after its best point."""
    lab.note(dim=MANY, noise=0.1, settings=RANDOM)
    rises = [bool(found.overshoot > 1e-3 * found.icl[0]) for found in random_runs(lab)]
    yield lab.equal("whether it rises, at each N and K", [True, True, False, False], rises)


@claim(
    "diversity/threshold",
    """What unseen tasks cost a trained layer falls as D/K for K random unit tasks: a power law
    without a threshold, which falls as N⁻² for long contexts.""",
    source="beyond arXiv 2306.15063 and 2405.11751; derived in docs/theory/diversity.md",
    tolerance_reason="""The next order in D/K is 0.7 % at K = 4000 and N = 200; sets of tasks leave
    less than half of that.""",
    figures=("diversity/task-gap",),
)
def threshold(lab: Lab) -> Checks:
    """The gap of exact optima, averaged over many sets of tasks."""
    found = many_tasks(lab)
    lab.note(dim=SIZE, tasks=COUNTS, contexts=LENGTHS, noise=0.1)
    expected = [[2 * diversity.few_tasks_excess(Setting(SIZE, n, 0.1), k) for n in LENGTHS]
                for k in COUNTS]  # fmt: skip
    yield lab.relative("ICL − IDG at each K and N", np.array(expected), found, 0.015)
