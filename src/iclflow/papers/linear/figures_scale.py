"""Figures of arXiv 2501.16265 on the scale of the initial weights, from rich to lazy."""

import numpy as np

from ... import theory
from ...drawing import Drawing
from ...drawing.marks import plot_theory
from ...drawing.style import THEORY, canvas, curve_until, levels, power_of_ten, shades
from ...models import Merged
from ...tasks import LinearRegression
from ...trajectory import Trajectory
from .. import Lab, figure
from .figures_staircase import dense_times
from .runs import FOUR, four_components, merged_run, separate_run, white_settings, white_task
from .runs_scale import (
    LAZY_RATIOS,
    MERGED_SCALES,
    RICH_TO_LAZY,
    SEPARATE_SCALES,
    lazy_runs,
    merged_sharpness,
    plateau_fractions,
    rich_to_lazy_runs,
)

# Weights from which theory, which is exact for small ones, is drawn.
SMALL = 0.01


@figure(
    "linear/scale",
    "What the scale of the initial weights does",
    """(a, b) Loss of separate and of merged attention from initial weights of several
    sizes, over logarithmic time; dotted, the predicted plateaus; dashed, the curve that is
    predicted from the initial weights, for s ≤ 0.01 alone, because it is the limit of small
    ones. Large weights blur the staircase into one smooth decay. (c) Separate: the share of
    the run that is spent off plateaus is proportional to s where s is small. (d) Merged:
    tenfold smaller weights only delay the drop, by ln 10 / g.""",
    number=6,
)
def scale(lab: Lab) -> Drawing:
    """Loss curves for several scales, and what the scale does to plateaus and drops."""
    task = four_components()
    plateaus = theory.plateau_losses(task)
    separate = {s: separate_run(lab, s) for s in SEPARATE_SCALES}
    merged = {s: merged_run(lab, s) for s in MERGED_SCALES}
    figure, (a, b, c, d) = canvas("double", 4.8, 2, 2)
    data: dict[str, np.ndarray] = {}
    for panel, runs, name in ((a, separate, "separate"), (b, merged, "merged")):
        end = 1.5 * max(run.times[-1] for run in runs.values())
        for (s, run), colour in zip(runs.items(), shades(len(runs))):
            time, loss = curve_until(run, end)
            panel.semilogx(time[1:], loss[1:], color=colour, lw=2.2, label=f"{s:g}")
            data |= {f"{name}_{s:g}_time": time, f"{name}_{s:g}_loss": loss}
            if s <= SMALL:  # theory is the limit of small weights
                theory_time, theory_loss = _predict_loss(task, run, end)
                panel.plot(theory_time[1:], theory_loss[1:], **THEORY | {"lw": 0.9})
                data[f"theory_{name}_{s:g}_time"] = theory_time
                data[f"theory_{name}_{s:g}_loss"] = theory_loss
        panel.set(xlim=(1, end), ylim=(0, 1.1), xlabel="time (τ)", ylabel="loss")
        panel.set_title(f"{name} keys and queries" if name == "separate" else "merged key-query")
        plot_theory(panel, [], [], "theory")
        panel.legend(
            loc="center left", bbox_to_anchor=(1.0, 0.5), title="scale s", handlelength=1.6
        )
    levels(a, plateaus)
    levels(b, plateaus[[0, -1]])

    off = 1 - plateau_fractions(lab, lab.scaled(3, 6, 30))
    scales = np.array(SEPARATE_SCALES)
    c.loglog(scales, off, "o", mfc="none", label="median over seeds")
    guide = off[-1] * scales / scales[-1]
    plot_theory(c, scales[guide <= 1], guide[guide <= 1], "proportional to s")
    c.set(xlabel="scale s", ylabel="share of time off plateaus")
    c.legend(loc="lower right")
    sharpness, half = merged_sharpness(lab, lab.scaled(2, 5, 20))
    scales = np.array(MERGED_SCALES)
    delay = half[-1] + np.log(scales[-1] / scales) / theory.growth_rate(task)
    d.semilogx(scales, half, "o", mfc="none", label="mean over seeds")
    plot_theory(d, scales, delay, "slope 1/g")
    d.set(xlabel="scale s", ylabel="half-drop time (τ)")
    d.legend(loc="upper right")
    data |= {
        "separate_scale": np.array(SEPARATE_SCALES),
        "share_off_plateaus": off,
        "merged_scale": scales,
        "half_drop_time": half,
        "theory_half_drop_time": delay,
        "sharpness": sharpness,
    }
    config = {
        **FOUR,
        "separate": {
            "heads": 4,
            "heads_in_c": 5,
            "seeds_in_c": lab.scaled(3, 6, 30),
            "scales": list(SEPARATE_SCALES),
        },
        "merged": {"heads": 8, "seeds_in_d": lab.scaled(2, 5, 20), "scales": list(MERGED_SCALES)},
    }
    return Drawing(figure, data, config)


def _predict_loss(
    task: LinearRegression, run: Trajectory, end: float
) -> tuple[np.ndarray, np.ndarray]:
    """Times and the loss that theory computes from the initial weights, which must be small."""
    model = run.at(0)
    if isinstance(model.circuits, Merged):
        times = np.append(0.0, np.geomspace(1, end, 300))
        start = theory.growing_start(task, model.circuits.v, model.circuits.U)
        return times, theory.reduced_flow(task, times, start.matrix, start.imbalance).loss
    cascade = theory.staircase(task, model)
    times = dense_times(cascade, end)
    return times, cascade.loss(times)


@figure(
    "linear/lazy",
    "Very large weights: the frozen kernel",
    """Merged attention with paired heads, so that A = 0 at the start. (a) The larger the
    weights, the closer the loss is to the sum of exponentials that a kernel frozen at its
    initial value gives (dashed). (b) The largest deviation falls as the inverse square of
    Hs²/‖A*‖.""",
)
def lazy(lab: Lab) -> Drawing:
    """Large weights against the frozen kernel."""
    runs = lazy_runs(lab)
    floor = theory.optimal_loss(four_components())
    figure, (left, right) = canvas("double", 2.7, 1, 2)
    data: dict[str, np.ndarray] = {"ratio": np.array(LAZY_RATIOS)}
    deviations = []
    for i, ((run, frozen), colour) in enumerate(zip(runs, shades(len(runs)))):
        ratio = LAZY_RATIOS[i]
        left.semilogy(
            run.times / run.times[-1], run.losses - floor, color=colour, label=f"{ratio:g}", lw=2.5
        )
        plot_theory(left, run.times / run.times[-1], frozen - floor)
        deviations.append(np.max(np.abs(run.losses - frozen)) / (run.losses[0] - run.losses[-1]))
        right.loglog(ratio, deviations[-1], "o", color=colour)
        data |= {
            f"time_{ratio:g}": run.times,
            f"loss_{ratio:g}": run.losses,
            f"theory_loss_{ratio:g}": frozen,
        }
    plot_theory(left, [], [], "frozen kernel")
    left.set(xlabel="time, as a share of the run", ylabel="loss above the minimum")
    left.legend(loc="lower left", title="Hs²/‖A*‖")
    ratios = np.array(LAZY_RATIOS)
    guide = deviations[-1] * (ratios[-1] / ratios) ** 2
    plot_theory(right, ratios, guide, "∝ (Hs²/‖A*‖)⁻²")
    right.set(xlabel="Hs²/‖A*‖", ylabel="largest relative deviation")
    right.set_xticks(ratios, [f"{ratio:g}" for ratio in ratios])
    right.minorticks_off()  # three ratios need no ticks between them
    right.legend(loc="upper right")
    data["deviation"] = np.array(deviations)
    config = {**FOUR, "heads": 16, "paired": True, "ratios": list(LAZY_RATIOS)}
    return Drawing(figure, data, config)


@figure(
    "linear/rich-to-lazy",
    "From sigmoid to exponential in one formula",
    """White inputs, value and key-query weights of unequal size. (a) Strength of A and
    (b) loss for four imbalances δ = ν² − ω², relative to the cross-over at 2‖A*‖; the
    exact solution lies dashed on each. Small imbalance gives a plateau and a sigmoid,
    large imbalance an exponential from the first moment.""",
)
def rich_to_lazy(lab: Lab) -> Drawing:
    """White inputs: one exact family of curves from sigmoid to exponential."""
    task = white_task(0.25)
    critical = theory.crossover_imbalance(task)
    figure, (left, right) = canvas("double", 2.7, 1, 2)
    data: dict[str, np.ndarray] = {"start": np.array(RICH_TO_LAZY)}
    for i, (nu, omega, run) in enumerate(rich_to_lazy_runs(lab)):
        exact = theory.white_interpolation(task, run.times, nu, omega)
        strength = np.trace(run.coefficients(), axis1=1, axis2=2) / 4
        colour = shades(len(RICH_TO_LAZY))[i]
        label = power_of_ten(abs(nu**2 - omega**2) / critical)
        for panel, simulated, predicted in (
            (left, strength, exact.strength),
            (right, run.losses, exact.loss),
        ):
            panel.plot(run.times, simulated, color=colour, lw=2.8, label=label)
            plot_theory(panel, run.times, predicted)
        data |= {
            f"time_{i}": run.times,
            f"strength_{i}": strength,
            f"theory_strength_{i}": exact.strength,
            f"loss_{i}": run.losses,
            f"theory_loss_{i}": exact.loss,
        }
    plot_theory(right, [], [], "exact solution")
    left.set(xlabel="time (τ)", ylabel="strength σ")
    right.set(xlabel="time (τ)", ylabel="loss", ylim=(0, None))
    right.legend(title="imbalance |δ|/2‖A*‖", loc="upper right")
    starts = [list(start) for start in RICH_TO_LAZY]
    config = {**white_settings(0.25), "heads": 2, "rho": [0.6, 0.8], "starts": starts}
    return Drawing(figure, data, config)
