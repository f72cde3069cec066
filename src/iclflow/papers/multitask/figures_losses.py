"""Figures of arXiv 2402.19442 on losses at the end, of attention and of estimators."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from ... import theory
from ...drawing import Drawing
from ...drawing.style import COLOURS, canvas, legend_above, log_ticks, shades
from ...theory import multitask
from .. import Lab, figure
from .runs_search import unit_blocks

TASKS, LENGTH = 10, 100
RATIOS = (0.05, 8.0)
PENALTIES = (0.05, 5.0)
_HEADS = (1, 2, 3, 6, 11)
_CIRCLES: dict[str, Any] = {"ls": "none", "marker": "o", "ms": 4.5, "mfc": "none"}

Losses = Callable[[multitask.Blocks], np.ndarray]


class Convention(NamedTuple):
    """A reading of λ = σ² = 1 and of penalties, which the paper leaves open.

    - `a_task`: whether the variance 1 is that of a label's signal, λd, or of a coefficient, λ.
    - `counted`: how penalties count, as in `multitask.ridge`.
    """

    name: str
    title: str
    a_task: bool
    counted: Literal["once", "per sample"]

    def blocks(self, size: float, tasks: int = 1) -> multitask.Blocks:
        """Equal tasks with noise 1 at L = 100."""
        if self.a_task:
            return unit_blocks(size, LENGTH, tasks, noise=1.0)
        ones = np.ones(tasks)
        return multitask.Blocks(size * ones, ones, ones, float(LENGTH))


A_TASK = Convention("a_task", "λd̄ = σ² = 1, penalty × L", True, "per sample")
A_COORDINATE = Convention("a_coordinate", "λ = σ² = 1, penalty once", False, "once")


class Curve(NamedTuple):
    """One predictor in a panel: a line for large d and L, and circles at L = 100.

    - `keys`: the names of both in the data.
    - `tasks`: the numbers of equal tasks that both are computed for.
    """

    label: str
    colour: Any
    limit: Losses
    finite: Losses
    keys: tuple[str, str]
    tasks: tuple[int, int] = (1, 1)
    dashes: str = "-"


def _draw_panels(
    lab: Lab, height: float, points: int, curves: Callable[[Convention], Iterator[Curve]]
):
    """Both conventions side by side: the figure, its panels and its data."""
    sizes = np.round(LENGTH * np.geomspace(*RATIOS, lab.scaled(6, 17, 33))).astype(int)
    sizes = np.union1d(sizes, LENGTH)  # where double descent has its peak
    ratios = np.geomspace(*RATIOS, points)
    figure, panels = canvas("double", height, 1, 2, sharey=True)
    data = {"ratio": ratios, "size": sizes}
    for panel, by in zip(panels, (A_TASK, A_COORDINATE)):
        for curve in curves(by):
            line = _along(ratios * LENGTH, by, curve.tasks[0], curve.limit)
            circles = _along(sizes, by, curve.tasks[1], curve.finite)
            look = {"color": curve.colour, "lw": 1.6, "ls": curve.dashes}
            panel.plot(ratios, line, label=curve.label, **look)
            panel.plot(sizes / LENGTH, circles, color=curve.colour, **_CIRCLES)
            for key, values in zip(curve.keys, (line, circles)):
                data[f"{key}_{by.name}"] = values
        panel.set(xscale="log", xlabel="d̄ / L")
        log_ticks(panel.xaxis, (0.05, 0.1, 0.2, 0.5, 1, 2, 5))
    panels[0].set_ylabel("loss / signal")
    return figure, panels, data


def _along(sizes: np.ndarray, by: Convention, tasks: int, losses: Losses) -> np.ndarray:
    """Losses over block sizes, as shares of the signal."""
    blocks = [by.blocks(float(size), tasks) for size in sizes]
    return np.asarray([float(np.sum(losses(at)) / np.sum(at.power)) for at in blocks])


@figure(
    "multitask/bound-and-bayes",
    "Several tasks: the bound for H heads and Bayes",
    """Loss of ten tasks as a share of the signal against d̄/L, where d̄ is the size of a
    block: what H equiangular heads cannot go below (lines), small heads that come within 0.02
    % of it (circles), and the smallest loss of any predictor (line: large d and L; circles:
    exact at L = 100). From H = 11, one more than tasks, the bound falls no further. The
    caption of the paper says λ = σ² = 1, which may mean that (a) the signal of a task, λd̄, or
    (b) that of a coordinate has the variance of the noise. With (a) Bayes and many heads come
    together for large d̄/L; with (b), drawn for L = 100, they are far apart for small ones,
    since noise is small there.""",
    number=4,
)
def bound_and_bayes(lab: Lab) -> Drawing:
    """The bound for several numbers of heads and the smallest loss of any predictor."""
    figure, panels, data = _draw_panels(lab, 3.1, lab.scaled(60, 120, 120), _bounds)
    for panel, by in zip(panels, (A_TASK, A_COORDINATE)):
        panel.plot([], [], color="0.4", label="heads that attain it; Bayes at L = 100", **_CIRCLES)
        panel.set_title(by.title.split(",")[0])
    panels[0].set_ylim(0, 1.03)
    legend_above(figure, panels[0], columns=4)
    return Drawing(figure, data, _settings(heads=_HEADS))


def _bounds(by: Convention) -> Iterator[Curve]:
    for heads, colour in zip(_HEADS, shades(len(_HEADS))):
        yield Curve(
            f"bound, H = {heads}", colour,
            lambda at, heads=heads: multitask.lower_bound(at, heads).losses,
            lambda at, heads=heads: _attain_bound(at, heads),
            (f"bound_{heads}", f"attained_{heads}"), (TASKS, TASKS),
        )  # fmt: skip
    yield _bayes("Bayes (MMSE)", ("bayes_limit", "bayes"))


def _bayes(label: str, keys: tuple[str, str]) -> Curve:
    return Curve(label, "0.25", multitask.bayes_limit, multitask.bayes, keys, dashes="-.")


def _attain_bound(blocks: multitask.Blocks, heads: int) -> np.ndarray:
    """The losses of equiangular heads that are small, or of the best head, with the best μ."""
    if heads == 1:
        omega = np.sqrt(np.e * multitask.single_head(blocks).shares / blocks.sizes)[None]
    else:
        omega = multitask.approach(blocks, heads)
    return multitask.loss(blocks, omega, multitask.best_mu(blocks, omega))


@figure(
    "multitask/losses",
    "Several tasks: attention among estimators",
    """Loss of ten tasks as a share of the signal: ridge regression with two penalties, Bayes,
    one head per task (the limit of gradient flow, GF-ICL), and the best single head for all
    (OptS-ICL). Lines are limits for large d and L, circles exact at L = 100; heads have the
    weights of theory. (a) With the signal of a task and the noise 1 and a penalty that counts
    for each of the L samples, the sentences of the paper hold: ridge 0.05 has a peak of double
    descent near d̄ = L, attention has none and stays within 12 % of ridge 5 for d̄ > L, and
    for small d̄/L one head per task has a fraction of the loss of the single head: 0.29 at d̄ =
    L/20, and a tenth in the limit. (b) With the signal of a coordinate 1 and a penalty that
    counts once, the paper's other possible meaning, both ridges are next to Bayes and
    attention is far above all. Circles above the line of one head per task show what large
    blocks neglect.""",
    number=5,
)
def losses(lab: Lab) -> Drawing:
    """Ridge, Bayes, one head per task and one head for all, under two conventions."""
    figure, panels, data = _draw_panels(lab, 3.3, lab.scaled(80, 240, 240), _estimators)
    for panel, by in zip(panels, (A_TASK, A_COORDINATE)):
        panel.plot([], [], color="0.4", lw=1.6, label="lines: large d and L")
        panel.plot([], [], color="0.4", label="circles: exact at L = 100", **_CIRCLES)
        panel.set_title(by.title)
    panels[0].set_ylim(0, 2.1)
    legend_above(figure, panels[0], columns=4)
    return Drawing(figure, data, _settings(penalties=PENALTIES, exact="quadrature"))


def _estimators(by: Convention) -> Iterator[Curve]:
    for penalty, colour in zip(PENALTIES, COLOURS[1:]):
        key = f"ridge_{penalty:g}"
        yield Curve(
            f"ridge {penalty:g}", colour,
            lambda at, p=penalty: multitask.ridge_limit(at, p, by.counted),
            lambda at, p=penalty: multitask.ridge(at, p, by.counted),
            (key, f"{key}_finite"),
        )  # fmt: skip
    yield _bayes("Bayes, MMSE", ("Bayes", "Bayes_finite"))
    heads = (
        # The names are keys of the data file of the figure, which stay as they are.
        ("one head a task", "GF-ICL", COLOURS[0], multitask.gradient_flow_limit, 1),
        ("one head for 10 tasks", "OptS-ICL", COLOURS[3], multitask.single_head, TASKS),
    )
    for name, short, colour, solution, shared in heads:
        key = name.replace(" ", "_")
        yield Curve(
            f"{name}, {short}", colour, lambda at, s=solution: s(at).losses,
            lambda at, n=shared: _exact_head(at, n), (key, f"{key}_finite"), (TASKS, 1),
        )  # fmt: skip


def _exact_head(blocks: multitask.Blocks, shared: int) -> np.ndarray:
    """The exact loss per task of a head with the weights of theory for `shared` tasks.

    Tasks that are equal are, for their head, one on all their coordinates, with as many times the
    signal and the noise. The exact risk is that of a signal of variance 1.
    """
    dim = int(shared * blocks.sizes[0])
    relative = float(blocks.noise[0] / blocks.power[0])
    part = 1 / (1 + shared * np.e / blocks.samples[0])
    risk = theory.kernel_regression_risk(
        theory.Setting(dim, blocks.length, relative), dim**-0.5, float(part * dim**0.5)
    )
    return blocks.power * (risk - relative)


def _settings(**more) -> dict:
    return {
        "tasks": TASKS, "context": LENGTH, "noise": 1.0, "ratios": RATIOS,
        "signal": "a: 1 per task; b: 1 per coordinate", "penalty": "a: times L; b: once", **more,
    }  # fmt: skip
