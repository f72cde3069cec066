"""Figures of arXiv 2402.19442 on training: three phases, and what describes emergence."""

from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from ...analysis import Phases, Preservation, decomposition, learning_phases
from ...drawing import Axes, Drawing
from ...drawing.heads import draw_circuit
from ...drawing.marks import plot_circles, plot_theory, remark
from ...drawing.style import COLOURS, LEVEL, THEORY, WIDTHS, canvas, legend_above, levels
from ...theory import multitask
from .. import Lab, figure
from .runs import (
    CONTEXT,
    END,
    OTHER,
    OWN,
    READ,
    SIZES,
    WIDTH,
    full_flow,
    paper_limits,
    paper_task,
    paper_values,
)

SETTING = {
    "sizes": SIZES, "context": CONTEXT, "noise": 0.0, "signal": 1.0, "width": WIDTH,
    "own_omega": OWN, "other_omega": OTHER, "mu": READ, "time": "dW/dt = -(1/2) dL/dW",
}  # fmt: skip
# The paper's Figure 3 starts at its t = 4, which is our 8.
_LATE, _LATE_MU = 8.0, 1.0
# When a head alone with its task takes over from the full flow.
_HANDOVER = 10.0


def blocks() -> multitask.Blocks:
    """The numbers of the paper's task."""
    return multitask.Blocks.of(paper_task())


def _singular_values(lab: Lab) -> Preservation:
    """ω and μ along the flow of full factors."""
    found = decomposition(full_flow(lab), paper_task()).preservation
    assert found is not None
    return found


@figure(
    "multitask/phases",
    "Several tasks: three phases of training",
    """Three heads on three equal tasks (d = 30, L = 100, no noise), head i slightly ahead on
    task i: gradient flow of full factors K, Q, V and O in random frames (lines), and the flow
    of their singular values (dashed, theory). (a to c) Attention ω and (d to f) weights on
    labels μ of all heads on each task; the two heads that lose a task coincide, one drawn
    wider. (g) The loss, with its phases from a detector: emergence is from 5 % to 95 % of the
    way to one head per task. (h) ω at the end: what is left beside the diagonal falls as 1/t.
    Times are twice those of the paper, whose flow follows −∂L/∂W. The limit is not the
    smallest loss of three heads: the lower bound is 39 % below it.""",
    number=1,
)
def phases(lab: Lab) -> Drawing:
    """All ω and μ, the loss with its three phases, and the attention of all heads at the end."""
    run, found, at = full_flow(lab), _singular_values(lab), blocks()
    limit, bound = paper_limits()
    edges = learning_phases(run, floor=limit)
    fine = np.linspace(0.0, END, 481)  # among these are the saved times
    flow = multitask.spectral_flow(at, fine, *paper_values(), WIDTH)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTHS["double"], 6.2), layout="constrained")
    # Separate subfigures, so that names beside the heat map do not shift the panels above.
    halves: Any = figure.subfigures(2, 1, height_ratios=(1.75, 1))
    upper, lower = halves
    panels = upper.subplots(2, 3).ravel()
    below, side = lower.subplots(1, 2, width_ratios=(2.2, 1))
    for letter, panel in zip("abcdefgh", (*panels, below, side)):
        panel.set_title(letter, loc="left", fontweight="bold")
    limits = [each[0, 0] for each in multitask.limit_heads(at)]
    rows = zip("ωμ", (found.omega, found.mu), (flow.omega, flow.mu), limits)
    for row, (name, values, predicted, last) in enumerate(rows):
        for i, panel in enumerate(panels[3 * row : 3 * row + 3]):
            for h in range(3):
                # Heads that coincide are both visible: the later one is narrower.
                wide = 2.0 if h == i else (3.6 if h == (i == 0) else 2.0)
                panel.plot(found.times, values[:, h, i], color=COLOURS[h], lw=wide)
            # The own head and one other: the others coincide.
            plot_theory(panel, fine, predicted[:, [i, (i + 1) % 3], i])
            levels(panel, [last])
            top = 1.08 * float(values.max())
            panel.set(xlim=(0, 40), ylim=(-0.04 * top, top))
            panel.set_title(f"{name} on task {i + 1}")
            panel.set_xticks([0, 10, 20, 30, 40], [] if row == 0 else None)
        for panel in panels[3 * row + 1 : 3 * row + 3]:
            panel.set_yticklabels([])
        panels[3 * row].set_ylabel(name)
    for panel in panels[3:]:
        panel.set_xlabel("time")
    _draw_loss(below, run.times, run.losses, edges)
    plot_theory(below, fine, flow.loss)
    levels(below, [limit, bound])
    for level, name, above in ((limit, "one head per task", 1), (bound, "lower bound, H = 3", 0)):
        side_of_line = {"ha": "right", "va": "bottom" if above else "top"}
        remark(below, f"{name}: {level:.2f}", (39.5, level), (0, 2 * above - 1), **side_of_line)
    _draw_ends(side, found.omega[-1])
    lines = [panel.get_lines() for panel in panels[:3]]
    upper.legend(
        [lines[0][0], lines[1][1], lines[2][2], lines[0][3], lines[0][-1]],
        ["head 1", "head 2", "head 3", "flow of singular values (theory)", "limit (theory)"],
        loc="outside upper center",  # pyright: ignore[reportArgumentType]
        ncols=5,
    )
    data = {
        "time": found.times, "omega": found.omega, "mu": found.mu, "loss": run.losses,
        "theory_time": fine, "theory_omega": flow.omega, "theory_mu": flow.mu,
        "theory_loss": flow.loss, "limit": np.asarray(limit), "lower_bound": np.asarray(bound),
        "limit_omega": np.asarray(limits[0]), "limit_mu": np.asarray(limits[1]),
        "phase_times": np.asarray([edges.emergence, edges.half, edges.convergence]),
        "theory_phase_times": multitask.phase_times(at, *paper_values(), WIDTH),
        "final_omega": found.omega[-1],
    }  # fmt: skip
    config = {"heads": 3, "end": END, "weights": "full K, Q, V and O in random frames", "seed": 3}
    return Drawing(figure, data, SETTING | config)


def _draw_loss(panel: Axes, times: np.ndarray, losses: np.ndarray, edges: Phases) -> None:
    """Draws the loss over the three phases, which are shades of grey."""
    ends = (0.0, edges.emergence, edges.convergence, 40.0)
    names = (f"warm-up\nto {ends[1]:.1f}", f"emergence\nto {ends[2]:.1f}", "convergence")
    for low, high, name, grey in zip(ends, ends[1:], names, ("0.97", "0.87", "0.97")):
        panel.axvspan(low, high, color=grey, lw=0, zorder=0)
        panel.annotate(name, ((low + high) / 2, 41.0), ha="center", va="top")
    panel.plot(times, losses, color="0.35")
    panel.set(xlim=(0, 40), ylim=(0, 42), xlabel="time", ylabel="loss")


def _draw_ends(panel: Axes, omega: np.ndarray) -> None:
    """Draws ω at the end as a heat map, one row per head."""
    draw_circuit(panel, omega, 0.4)
    for h, row in enumerate(omega):
        for i, value in enumerate(row):
            panel.annotate(f"{value:.3f}", (i, h), ha="center", va="center",
                           color="white" if value > 0.2 else "black")  # fmt: skip
    panel.set_xticks(range(3), [f"task {i + 1}" for i in range(3)])
    panel.set_yticks(range(3), [f"head {h + 1}" for h in range(3)])
    for h, label in enumerate(panel.get_yticklabels()):
        label.set_color(COLOURS[h])
    panel.tick_params(length=0)
    panel.set_title(f"ω at t = {END:g}")
    panel.set_xlabel(r"$1/\sqrt{10}$" + f" = {10**-0.5:.3f}")


@figure(
    "multitask/approximate-dynamics",
    "Several tasks: approximate equations of emergence",
    """(a) μ and (b) ω of the head of a task, along the gradient flow of Figure 1, and by two
    approximations: the head alone with its task from (ω, μ) = (0.01, 1) at t = 8 (the paper's
    4), and the emergence equation, in which μ is always at its best. The first is late and the
    second has its peak early and too high; handed over from the flow at t = 10 the head alone
    (dashed) is 2 to 3 % early. (c) dω/dt against ω: slow, fast, slow, to rest at d^−½. The
    emergence equation is right to 14 % from ω = 0.11 on and too fast before: the other heads
    still hold part of each label, and μ does not follow at once. From our start the forms agree
    and the times do not; the start and the unit of time of the paper's Figure 1 are not known,
    so that this says nothing of its own comparison.""",
    number=3,
)
def approximate_dynamics(lab: Lab) -> Drawing:
    """The head of a task alone, beside all heads together."""
    found, at = _singular_values(lab), blocks()
    omega, mu = found.omega[:, 0, 0], found.mu[:, 0, 0]
    late = np.linspace(0.0, 30.0 - _LATE, 300)
    start = np.full(3, OWN)
    pair = multitask.own_head_flow(at, late, start, np.full(3, _LATE_MU), WIDTH)
    alone = multitask.emergence_flow(at, late, start, WIDTH)
    here = int(np.flatnonzero(found.times == _HANDOVER)[0])
    later = np.linspace(0.0, 30.0 - _HANDOVER, 300)
    handed = multitask.own_head_flow(
        at, later, np.full(3, omega[here]), np.full(3, mu[here]), WIDTH
    )
    curves = {
        "own head alone, from (0.01, 1)": (late + _LATE, pair, COLOURS[3], "-"),
        "emergence equation, from 0.01": (late + _LATE, alone, COLOURS[4], (0, (5, 1.2))),
        f"own head alone, from the flow at t = {_HANDOVER:g}":
            (later + _HANDOVER, handed, "black", THEORY["ls"]),
    }  # fmt: skip
    grid = np.linspace(0.0, 0.36, 400)[:, None]
    velocity = multitask.emergence_velocity(at, np.tile(grid, 3), WIDTH)[:, 0]
    # Speeds of theory's flow by differences on a fine grid; of the saved points by a spline.
    fine = np.linspace(0.0, 30.0, 1201)
    whole = multitask.spectral_flow(at, fine, *paper_values(), WIDTH).omega[:, 0, 0]
    whole_speed, speed = np.gradient(whole, fine), CubicSpline(found.times, omega)(found.times, 1)
    figure, (a, b, c) = canvas("double", 2.9, 1, 3)
    for panel, values, part in ((a, mu, "mu"), (b, omega, "omega")):
        panel.plot(found.times, values, color=COLOURS[0], label="gradient flow of all heads")
        for name, (times, flow, colour, dashes) in curves.items():
            panel.plot(times, getattr(flow, part)[:, 0], color=colour, ls=dashes, lw=1.3,
                       label=name, zorder=4)  # fmt: skip
        panel.set(xlim=(0, 30), xlabel="time", ylabel="μ" if part == "mu" else "ω")
    c.plot(whole, whole_speed, color=COLOURS[0])
    some = np.unique(np.searchsorted(omega[:80], np.linspace(OWN, omega[79], 24)))
    plot_circles(c, omega[some], speed[some], COLOURS[0], "saved points of the gradient flow")
    c.plot(grid[:, 0], velocity, color=COLOURS[4], ls=(0, (5, 1.2)), lw=1.3, zorder=4)
    c.axhline(0.0, color="0.6", lw=0.7)
    c.set(xlabel="ω", ylabel="dω/dt", xlim=(0, 0.36))
    limits = [each[0, 0] for each in multitask.limit_heads(at)]
    levels(a, [limits[1]])
    levels(b, [limits[0]], label="limit (theory)")
    c.axvline(limits[0], **LEVEL)
    remark(c, r"$d_i^{-1/2}$", (limits[0], velocity.max()), (-3, 0), ha="right", va="center")
    legend_above(figure, b, c, columns=2)
    data = {"time": found.times, "omega": omega, "mu": mu, "speed": speed}
    data |= {"own_time": late + _LATE, "own_omega": pair.omega[:, 0], "own_mu": pair.mu[:, 0]}
    data |= {"emergence_omega": alone.omega[:, 0], "emergence_mu": alone.mu[:, 0]}
    data |= {"handed_time": later + _HANDOVER, "handed_omega": handed.omega[:, 0]}
    data |= {"handed_mu": handed.mu[:, 0], "velocity_omega": grid[:, 0], "velocity": velocity}
    data |= {"limit_omega": np.asarray(limits[0]), "limit_mu": np.asarray(limits[1])}
    data |= {"theory_omega": whole, "theory_speed": whole_speed}
    settings = {"late_start": _LATE, "late_omega": OWN, "late_mu": _LATE_MU, "handover": _HANDOVER}
    return Drawing(figure, data, SETTING | settings)
