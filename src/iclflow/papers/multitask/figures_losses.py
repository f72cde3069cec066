"""Figures of arXiv 2402.19442 on losses at the end, of attention and of estimators."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from ... import theory
from ...drawing import Axes, Drawing
from ...drawing.style import COLOURS, canvas, legend_above, log_ticks, shades
from ...theory import multitask
from .. import Lab, figure

TASKS, LENGTH = 10, 100
RATIOS = (0.05, 8.0)
PENALTIES = (0.05, 5.0)
_HEADS = (1, 2, 3, 6, 11)
_CIRCLES = {"ls": "none", "marker": "o", "ms": 4.5, "mfc": "none"}


class Convention(NamedTuple):
    """What λ = σ² = 1 and a penalty may mean.

    - `a_task`: whether λd, the variance of the signal of a label, is 1, or λ, of a coefficient.
    - `counted`: of penalties, as for `multitask.ridge`.
    """

    name: str
    title: str
    a_task: bool
    counted: Literal["once", "per sample"]

    def blocks(self, size: float, tasks: int = 1) -> multitask.Blocks:
        """Equal tasks with noise 1 at L = 100."""
        ones = np.ones(tasks)
        signal = ones / size if self.a_task else ones
        return multitask.Blocks(size * ones, signal, ones, float(LENGTH))


A_TASK = Convention("a_task", "λd̄ = σ² = 1, penalty × L", True, "per sample")
A_COORDINATE = Convention("a_coordinate", "λ = σ² = 1, penalty once", False, "once")


def _shares(losses: np.ndarray, blocks: multitask.Blocks) -> float:
    """The loss as a share of the signal."""
    return float(np.sum(losses) / np.sum(blocks.power))


def _sizes(lab: Lab) -> np.ndarray:
    """Sizes of blocks at which there are markers."""
    sizes = np.round(LENGTH * np.geomspace(*RATIOS, lab.scaled(6, 17, 33))).astype(int)
    return np.union1d(sizes, LENGTH)  # where double descent has its peak


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
    ratios, sizes = np.geomspace(*RATIOS, lab.scaled(60, 120, 120)), _sizes(lab)
    figure, panels = canvas("double", 3.1, 1, 2, sharey=True)
    data = {"ratio": ratios, "size": sizes}
    for panel, by in zip(panels, (A_TASK, A_COORDINATE)):
        for heads, colour in zip(_HEADS, shades(len(_HEADS))):
            bound = lambda at, heads=heads: multitask.lower_bound(at, heads).losses
            curve = _along(ratios * LENGTH, by, TASKS, bound)
            panel.plot(ratios, curve, color=colour, lw=1.6, label=f"bound, H = {heads}")
            data[f"bound_{heads}_{by.name}"] = curve
            found = _along(sizes, by, TASKS, lambda at, heads=heads: _attain_bound(at, heads))
            panel.plot(sizes / LENGTH, found, color=colour, **_CIRCLES)
            data[f"attained_{heads}_{by.name}"] = found
        curve = _along(ratios * LENGTH, by, 1, multitask.bayes_limit)
        panel.plot(ratios, curve, color="0.25", lw=1.6, ls="-.", label="Bayes (MMSE)")
        found = _along(sizes, by, 1, multitask.bayes)
        panel.plot(sizes / LENGTH, found, color="0.25", **_CIRCLES)
        data |= {f"bayes_limit_{by.name}": curve, f"bayes_{by.name}": found}
        panel.plot([], [], color="0.4", label="heads that attain it; Bayes at L = 100", **_CIRCLES)
        _name_axes(panel, by.title.split(",")[0])
    panels[0].set_ylabel("loss / signal")
    panels[0].set_ylim(0, 1.03)
    legend_above(figure, panels[0], columns=4)
    return Drawing(figure, data, _settings(heads=_HEADS))


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
    one head a task (the limit of gradient flow, GF-ICL), and the best single head for all
    (OptS-ICL). Lines are limits for large d and L, circles exact at L = 100; heads have the
    weights of theory. (a) With the signal of a task and the noise 1 and a penalty that counts
    for each of the L samples, the sentences of the paper hold: ridge 0.05 has a peak of double
    descent near d̄ = L, attention has none and stays within 12 % of ridge 5 for d̄ > L, and
    for small d̄/L one head a task has a fraction of the loss of the single head: 0.29 at d̄ =
    L/20, and a tenth in the limit. (b) With the signal of a coordinate 1 and a penalty that
    counts once, the paper's other possible meaning, both ridges are next to Bayes and
    attention is far above all. Circles above the line of one head a task show what large
    blocks neglect.""",
    number=5,
)
def losses(lab: Lab) -> Drawing:
    """Ridge, Bayes, one head a task and one head for all, under two conventions."""
    ratios, sizes = np.geomspace(*RATIOS, lab.scaled(80, 240, 240)), _sizes(lab)
    figure, panels = canvas("double", 3.3, 1, 2, sharey=True)
    data = {"ratio": ratios, "size": sizes}
    for panel, by in zip(panels, (A_TASK, A_COORDINATE)):
        for name, colour, line, marker in _estimators(by):
            curve, found = line(ratios * LENGTH), marker(sizes)
            dashes = "-." if name.startswith("Bayes") else "-"
            panel.plot(ratios, curve, color=colour, lw=1.6, ls=dashes, label=name)
            panel.plot(sizes / LENGTH, found, color=colour, **_CIRCLES)
            key = name.split(",")[0].replace(" ", "_")
            data |= {f"{key}_{by.name}": curve, f"{key}_finite_{by.name}": found}
        panel.plot([], [], color="0.4", lw=1.6, label="lines: large d and L")
        panel.plot([], [], color="0.4", label="circles: exact at L = 100", **_CIRCLES)
        _name_axes(panel, by.title)
    panels[0].set(ylabel="loss / signal", ylim=(0, 2.1))
    legend_above(figure, panels[0], columns=4)
    return Drawing(figure, data, _settings(penalties=PENALTIES, exact="quadrature"))


def _estimators(by: Convention):
    """Name, colour, closed form and exact value of each estimator, over block sizes."""
    for penalty, colour in zip(PENALTIES, COLOURS[1:]):
        yield (
            f"ridge {penalty:g}",
            colour,
            lambda at, p=penalty: _along(
                at, by, 1, lambda each: multitask.ridge_limit(each, p, by.counted)
            ),
            lambda at, p=penalty: _along(
                at, by, 1, lambda each: multitask.ridge(each, p, by.counted)
            ),
        )
    yield (
        "Bayes, MMSE",
        "0.25",
        lambda at: _along(at, by, 1, multitask.bayes_limit),
        lambda at: _along(at, by, 1, multitask.bayes),
    )
    attention = (
        ("one head a task, GF-ICL", COLOURS[0], multitask.gradient_flow_limit, 1),
        ("one head for 10 tasks, OptS-ICL", COLOURS[3], multitask.single_head, TASKS),
    )
    for name, colour, solution, shared in attention:
        yield (
            name,
            colour,
            lambda at, s=solution: _along(at, by, TASKS, lambda each: s(each).losses),
            lambda at, n=shared: _along(at, by, 1, lambda each: _exact_head(each, n)),
        )


def _exact_head(blocks: multitask.Blocks, shared: int) -> np.ndarray:
    """The exact loss, a task, of a head with the weights of theory for `shared` tasks.

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


def _along(
    sizes: np.ndarray, by: Convention, tasks: int, losses: Callable[[multitask.Blocks], np.ndarray]
) -> np.ndarray:
    """Losses over block sizes, as shares of the signal."""
    found = [by.blocks(float(size), tasks) for size in sizes]
    return np.asarray([_shares(losses(each), each) for each in found])


def _name_axes(panel: Axes, title: str) -> None:
    panel.set(xscale="log", xlabel="d̄ / L", title=title)
    log_ticks(panel.xaxis, (0.05, 0.1, 0.2, 0.5, 1, 2, 5))


def _settings(**more) -> dict:
    return {
        "tasks": TASKS, "context": LENGTH, "noise": 1.0, "ratios": RATIOS,
        "signal": "a: 1 a task; b: 1 a coordinate", "penalty": "a: times L; b: once", **more,
    }  # fmt: skip
