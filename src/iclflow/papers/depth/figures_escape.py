"""Figure of the escape of untied layers from the loop."""

import numpy as np

from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory
from ...drawing.style import canvas, level_names, levels, shades
from ...theory import depth
from .. import Lab, figure
from .runs_levels import CONTEXT, DIM, escapes, white_task


@figure(
    "depth/escape",
    "Untied layers leave the loop",
    """Exact flows of two layers from γ = ±δ on white inputs without noise (d = 5, N = 20). (a) The
    loss rests at the level of the loop, for a time that grows as ln(1/δ)/κ; circles: the predicted
    times half-way. (b) The two steps from δ = 10⁻⁶, and the same flow in theory (dashed). (c) Their
    difference grows at the rate κ of the saddle (dashed).""",
)
def escape(lab: Lab) -> Drawing:
    """Losses for all δ; steps and their difference for one."""
    found, task, shown = escapes(lab), white_task(), 2
    theory = [depth.loop_escape(task, [spread, -spread]) for spread in found.spreads]
    times = np.array([each.time for each in theory]) / DIM
    middle = float(np.mean(theory[0].levels))
    drawn, (left, centre, right) = canvas("double", 2.6, 1, 3)
    for spread, row, colour in zip(found.spreads, found.losses, shades(len(found.spreads))):
        left.plot(found.times, row, color=colour, label=f"δ = $10^{{{np.log10(spread):.0f}}}$")
    plot_circles(left, times, np.full(len(times), middle), "black")
    levels(left, theory[0].levels)
    level_names(left, theory[0].levels, ("loop", "best"))
    left.set(xlabel="time t", ylabel="loss", ylim=(0.06, 0.13))
    left.legend(fontsize=6, loc="upper right", ncols=2)
    spread, steps = found.spreads[shown], found.steps[shown]
    inside = found.times <= 80
    now = found.times[inside]
    # Matrices Γ = γI, which theory is about, flow D times as slowly as numbers.
    known = depth.stack_flow(task, [spread, -spread], DIM * now)
    for layer, colour in enumerate(shades(2)):
        centre.plot(now, steps[inside, layer], color=colour, label=f"γ, layer {layer + 1}")
        plot_theory(centre, now, known[:, layer], None if layer else "theory")
    centre.set(xlabel="time t", ylabel="step γ", title="δ = $10^{-6}$")
    centre.legend()
    difference = np.abs(steps[:, 0] - steps[:, 1])[inside]
    right.plot(now, difference, color=shades(2)[0], label="exact flow")
    rate = depth.tied_loop(task, 2).rate
    begin = int(np.argmin(np.abs(now - 15)))
    line = difference[begin] * np.exp(rate * (now - now[begin]))
    plot_theory(right, now[now < 60], line[now < 60], "∝ exp κt")
    right.set(yscale="log", xlabel="time t", ylabel="|γ₁ − γ₂|", ylim=(1e-8, 3))
    right.legend()
    data = {
        "times": found.times,
        "losses": found.losses,
        "half_times": times,
        "rate": np.array(rate),
    }
    data |= {"spreads": found.spreads, "steps": steps, "theory_steps": known, "shown_times": now}
    return Drawing(drawn, data, {"dim": DIM, "context": CONTEXT, "layers": 2})
