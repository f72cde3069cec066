"""Figures of arXiv 2501.16265 on the staircase of attention with separate keys and queries."""

import numpy as np

from ... import analysis, theory
from ...drawing import Drawing
from ...drawing.loss import set_log_time
from ...drawing.marks import plot_bars, plot_circles, plot_theory, remark
from ...drawing.style import (
    COLOURS,
    LEVEL,
    THEORY,
    canvas,
    curve_until,
    legend_above,
    level_names,
    levels,
)
from ...models import ConvolutionalLinear, Separate
from ...tasks import LinearRegression
from ...trajectory import Trajectory
from .. import Lab, figure
from .runs import (
    ALIGNED_STARTS,
    FOUR,
    HEAD_SHAPES,
    aligned_run,
    cascade_seeds,
    few_heads_seeds,
    four_components,
    network_flow,
    separate_model,
    separate_run,
)

SCALE = 3e-3


def strengths(run: Trajectory, task: LinearRegression) -> np.ndarray:
    """The share of each component in A, one row per moment; 1 when it is learned."""
    modes = theory.modes(task)
    along = np.einsum("dj,tde,ej->tj", modes.left, run.coefficients(), modes.right)
    return along / modes.strengths


def hold_last(values: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Values of a run at the times of its `curve_until`, which may end after the run."""
    return np.concatenate([values, values[-1:]])[: len(time)]


@figure(
    "linear/staircase",
    "Separate keys and queries: a staircase",
    """Gradient flow of four rank-one heads from random weights of 0.003, over linear time
    up to the third drop (left) and logarithmic time (right). (a, b) The loss rests at the
    predicted levels, m of the four components learned, and drops at the times that the
    cascade computes from the initial weights; the predicted curve lies dashed on the
    simulated one, and the equivalent sum of convolutional networks (circles) has the same
    loss. (c, d) Each drop is one component of A that rises to its final value, in the
    order of the eigenvalues.""",
    number=3,
)
def staircase(lab: Lab) -> Drawing:
    """Loss and components of a rank-one run, over linear and logarithmic time."""
    task, run = four_components(), separate_run(lab, SCALE)
    cascade = theory.staircase(task, run.at(0))
    end = 2 * cascade.drop_times[-1]
    time, loss = curve_until(run, end)
    share = hold_last(strengths(run.between(0.0, end), task), time)
    theory_time = dense_times(cascade, end)
    theory_loss = cascade.loss(theory_time)
    network = ConvolutionalLinear.from_attention(separate_model(SCALE))
    network = network_flow(lab, network, np.geomspace(0.3 * cascade.drop_times[0], end, 40))
    figure, panels = canvas("double", 4.3, 2, 2, sharex="col", sharey="row")
    for upper, lower in panels.reshape(2, 2).T:
        upper.plot(time, loss, label="attention")
        circles = network.times, network.losses, COLOURS[1]
        plot_circles(upper, *circles, "convolutional networks")
        plot_theory(upper, theory_time, theory_loss, "predicted curve")
        levels(upper, cascade.levels)
        for d in range(4):
            lower.plot(time, share[:, d], color=COLOURS[d + 1], label=_component(task, d))
        for panel in (upper, lower):
            for i, drop in enumerate(cascade.drop_times):
                label = "predicted drops and levels" if panel is upper and not i else None
                panel.axvline(drop, label=label, **LEVEL)
        lower.set_xlabel("time (τ)")
    linear, log = panels[0], panels[1]
    linear.set_xlim(0, 1.3 * cascade.drop_times[2])
    set_log_time(log)
    log.set_xlim(0.2 * cascade.drop_times[0], end)
    level_names(log, cascade.levels, [f"m = {m}" for m in range(5)], gap=0.09)
    linear.set(ylabel="loss", ylim=(0, 1.08))
    panels[2].set_ylabel("share learned, $a_d/a_d^*$")
    panels[3].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.2)
    legend_above(figure, log)
    data = {
        "time": time,
        "loss": loss,
        "share_learned": share,
        "network_time": network.times,
        "network_loss": network.losses,
        "theory_time": theory_time,
        "theory_loss": theory_loss,
        "theory_levels": cascade.levels,
        "theory_drop_times": cascade.drop_times,
    }
    config = {**FOUR, "heads": 4, "rank": 1, "scale": SCALE, "seed": 0}
    return Drawing(figure, data, config)


def dense_times(cascade: theory.Staircase, end: float) -> np.ndarray:
    """Moments for a smooth curve: drops are far narrower than a run is long."""
    near = cascade.drop_times[:, None] + cascade.widths[:, None] * np.linspace(-30, 30, 200)
    # Sorted and inside the run: drops close to each other have overlapping neighbourhoods.
    times = np.concatenate([[0.0], np.geomspace(1, end, 400), near.ravel()])
    return np.unique(np.clip(times, 0, end))


def _component(task: LinearRegression, d: int) -> str:
    return f"λ = {np.linalg.eigvalsh(task.covariance)[::-1][d]:g}"


@figure(
    "linear/scalar-ode",
    "One aligned head for each component: the scalar equation",
    """Four heads, each started along one eigenvector. (a) Their value weights follow the
    closed form of the scalar equation (dashed); heads do not interact, so that drops come
    in the order of λ²v₀ and not of λ alone. (b) The loss is the sum of four such steps.
    (c) In units of the width of its own drop every head is on one universal curve.""",
)
def scalar_ode(lab: Lab) -> Drawing:
    """Heads that each start along one component, and the closed form of their growth."""
    task, run = four_components(), aligned_run(lab)
    assert isinstance(run.models.circuits, Separate)
    modes = theory.modes(task)
    sizes, values = np.cbrt(modes.strengths), np.asarray(run.models.circuits.v)
    heads = list(zip(ALIGNED_STARTS, modes.growth_rates, modes.strengths))
    closed = np.stack([theory.aligned_value(run.times, *head) for head in heads], axis=1)
    loss = theory.aligned_loss(task, np.array(ALIGNED_STARTS), run.times)
    clocks = theory.drop_clock(np.array(ALIGNED_STARTS) / sizes)
    clocks = clocks + modes.growth_rates * sizes * run.times[:, None]
    x = np.linspace(-10, 5, 200)
    figure, (a, b, c) = canvas("double", 2.6, 1, 3)
    for d in range(4):
        a.plot(run.times, values[:, d], color=COLOURS[d + 1], label=_component(task, d))
        # One marker in every unit of rescaled time, those of the four heads side by side.
        shown = np.unique(np.searchsorted(clocks[:, d], np.arange(x[0] + d / 4, x[-1])))
        points = clocks[shown, d], values[shown, d] / sizes[d]
        c.plot(*points, "osD^"[d], mfc="none", color=COLOURS[d + 1])
    plot_theory(a, run.times, closed)
    b.plot(run.times, run.losses, color=COLOURS[0], label="loss")
    plot_theory(b, run.times, loss, "closed form")
    order = np.argsort([theory.aligned_drop_time(*head) for head in heads])
    levels(b, [theory.subset_loss(task, order[:m].tolist()) for m in range(5)])
    plot_theory(c, x, theory.drop_profile(x))
    a.set(xlabel="time (τ)", ylabel="value weight $v_d$")
    b.set(xlabel="time (τ)", ylabel="loss", ylim=(0, 1.08))
    c.set(xlabel="rescaled time", ylabel="$v_d$ / final value", xlim=(x[0], x[-1]))
    legend_above(figure, a, b)
    data = {
        "time": run.times,
        "value": values,
        "theory_value": closed,
        "loss": run.losses,
        "theory_loss": loss,
        "rescaled_time": clocks,
        "rescaled_value": values / sizes,
        "theory_rescaled_time": x,
        "theory_rescaled_value": theory.drop_profile(x),
    }
    config = {**FOUR, "heads": 4, "rank": 1, "starts": list(ALIGNED_STARTS)}
    return Drawing(figure, data, config)


@figure(
    "linear/cascade",
    "Drop times from the initial weights alone",
    """(a) The four drop times of each seed (weights of 10⁻⁴), measured on the exact flow,
    against those that the cascade computes from the initial weights; no parameter is
    fitted. (b) Their relative error.""",
)
def cascade(lab: Lab) -> Drawing:
    """Drop times of the exact flow against those computed from the initial weights."""
    seeds = lab.scaled(1, 4, 16)
    runs = cascade_seeds(lab, seeds).runs
    stairs = [theory.staircase(four_components(), run.at(0)) for run in runs]
    predicted = np.array([each.drop_times for each in stairs])
    measured = np.array(
        [analysis.drop_times(run, levels=each.levels) for run, each in zip(runs, stairs)]
    )
    errors = np.abs(measured / predicted - 1)
    figure, (left, right) = canvas("double", 2.7, 1, 2)
    reach = np.array([predicted.min() / 1.5, predicted.max() * 1.5])
    left.loglog(reach, reach, label="prediction", **THEORY)
    for d in range(4):
        colour = COLOURS[d]
        plot_circles(left, predicted[:, d], measured[:, d], colour, f"drop {d + 1}")
        plot_circles(right, predicted[:, d], errors[:, d], colour)
    right.set(xscale="log", yscale="log")
    right.axhline(1e-3, color="0.45", lw=0.8, ls=":")
    at_the_edge = {"xycoords": ("axes fraction", "data"), "ha": "right"}
    remark(right, "tolerance of the claim", (1.0, 1e-3), (0, 3), **at_the_edge)
    right.set_ylim(min(1e-7, 0.5 * errors.min()), max(5e-3, 2 * errors.max()))
    left.set(xlabel="predicted drop time (τ)", ylabel="measured drop time (τ)")
    right.set(xlabel="predicted drop time (τ)", ylabel="relative error of the prediction")
    left.legend(loc="upper left")
    data = {"predicted": predicted, "measured": measured}
    config = {**FOUR, "heads": 4, "rank": 1, "scale": 1e-4, "seeds": seeds}
    return Drawing(figure, data, config)


@figure(
    "linear/heads",
    "Too few heads: where learning stops",
    """Final loss of each seed for H heads of rank R. Training stops at the plateau of the
    first HR components (dashed): three heads of rank one end where one head of rank three
    does.""",
)
def heads(lab: Lab) -> Drawing:
    """Where training ends with fewer ranks than components."""
    seeds, task = lab.scaled(2, 6, 20), four_components()
    predicted = np.array([theory.final_loss(task, h, r) for h, r in HEAD_SHAPES])
    measured = np.array(
        [few_heads_seeds(lab, h, r, seeds).each(lambda run: run.losses[-1]) for h, r in HEAD_SHAPES]
    )
    order = np.argsort([h * r for h, r in HEAD_SHAPES], kind="stable")
    figure, (panel,) = canvas("single", 2.6)
    plateaus = theory.plateau_losses(task)
    levels(panel, plateaus)
    level_names(panel, plateaus, [f"m = {m}" for m in range(5)], gap=0.08)
    spread = np.linspace(-0.18, 0.18, seeds)
    for x, i in enumerate(order):
        label = None if x else f"{seeds} seeds"
        plot_circles(panel, x + spread, measured[i], COLOURS[0], label)
    plot_bars(panel, range(len(order)), predicted[order], 0.32, "prediction")
    panel.set_xticks(
        range(len(order)), [f"H = {HEAD_SHAPES[i][0]}\nR = {HEAD_SHAPES[i][1]}" for i in order]
    )
    panel.set(ylabel="final loss", ylim=(0, 1.08))
    legend_above(figure, panel)
    data = {"heads_and_rank": np.array(HEAD_SHAPES), "predicted": predicted, "measured": measured}
    shapes = [list(shape) for shape in HEAD_SHAPES]
    config = {**FOUR, "heads_and_rank": shapes, "scale": 0.01, "seeds": seeds}
    return Drawing(figure, data, config)
