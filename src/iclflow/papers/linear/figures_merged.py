"""Figures of arXiv 2501.16265 on attention with a merged key-query matrix."""

import jax
import numpy as np

from ... import analysis, theory
from ...drawing import Drawing
from ...drawing.marks import plot_circles, plot_theory, remark
from ...drawing.style import COLOURS, canvas, levels
from ...models import Merged, TwoLayerLinear
from ...trajectory import Trajectory
from .. import Lab, figure, study
from .runs import (
    FOUR,
    WEIGHTS,
    four_components,
    merged_model,
    merged_run,
    merged_seeds,
    network_flow,
    white_config,
    white_settings,
    white_task,
)
from .runs_data import data_settings, network_runs

SCALE = 1e-3
DROP_SCALES = (1e-2, 1e-3, 1e-4)


@figure(
    "linear/merged",
    "Merged key-query: one plateau, one drop",
    """(a) Loss of merged linear attention (eight heads, weights of 0.001) under exact
    gradient flow, its two-layer linear network on the same flow (circles), and the
    reduced equation for A started from the growing part of the initial weights (dashed),
    with the half-drop time that the initial weights predict. (b) Gradient descent on 500
    sequences, every block of the attention matrices trainable: attention and its network
    agree to rounding if the data are closed under y → −y, and part once the other blocks
    move on generic data.""",
    number=1,
)
def merged(lab: Lab) -> Drawing:
    """The loss of merged attention, of its network, and of theory."""
    task, run = four_components(), merged_run(lab, SCALE)
    start = theory.growing_start(task, *_weights(run))
    half = theory.drop_time(task, *_weights(run))
    end = min(float(run.times[-1]), 4 * half)
    shown = run.between(0.0, end)
    network = TwoLayerLinear.from_attention(merged_model(SCALE))
    network = network_flow(lab, network, np.linspace(0.0, end, 26)[1:])
    times = np.linspace(0.0, end, 400)
    predicted = theory.reduced_flow(task, times, start.matrix, start.imbalance).loss
    figure, (left, right) = canvas("double", 2.7, 1, 2)
    left.plot(shown.times, shown.losses, label="attention")
    plot_circles(left, network.times, network.losses, COLOURS[1], "linear network")
    plot_theory(left, times, predicted, "theory")
    levels(left, theory.plateau_losses(task)[[0, -1]])
    left.axvline(half, color="black", lw=0.8, ls=":")
    remark(left, "predicted\nhalf-drop", (half, 0.96), (6, 0), va="top")
    left.set(xlabel="time (τ)", ylabel="loss", ylim=(0, 1.12), xlim=(0, end))
    left.legend(loc="upper right", bbox_to_anchor=(1.0, 0.8))

    gaps = {}
    for i, mirrored in enumerate((False, True)):
        attention, net = network_runs(lab, mirrored)
        name = "closed under y → −y" if mirrored else "generic data"
        gaps[name] = np.abs(attention.losses - net.losses)
        # Losses that agree exactly would be at −∞: draw them at the rounding of a loss of one.
        right.semilogy(
            attention.times, np.maximum(gaps[name], 1e-17), color=COLOURS[3 - i], label=name
        )
    right.set(xlabel="gradient-descent step", ylabel="|loss of attention − network|")
    right.set_ylim(1e-18, 1)
    right.legend(loc="center right", bbox_to_anchor=(1.0, 0.55))
    descent = data_settings(study("linear/merged-data"))
    return Drawing(
        figure,
        {
            "time": shown.times,
            "loss": shown.losses,
            "network_time": network.times,
            "network_loss": network.losses,
            "theory_time": times,
            "theory_loss": predicted,
            "predicted_half_drop": np.array(half),
            "step": attention.times,
            "gap_generic": gaps["generic data"],
            "gap_mirrored": gaps["closed under y → −y"],
        },
        {**FOUR, "heads": 8, "scale": SCALE, "seed": 0, "descent": descent},
    )


def _weights(run: Trajectory) -> tuple[jax.Array, jax.Array]:
    """v and U at the start of a run."""
    assert isinstance(run.models.circuits, Merged)
    return run.models.circuits.v[0], run.models.circuits.U[0]


@figure(
    "linear/white",
    "White inputs: the closed form of σ(t)",
    """Merged attention on white inputs from balanced weights with σ₀ = 10⁻⁴. (a) The
    strength σ(t) of A = σI, (b) the loss: simulation in colour, closed form dashed. (c)
    What is left between them.""",
)
def white(lab: Lab) -> Drawing:
    """σ(t) and the loss for white inputs, with the closed form on top."""
    run, task = lab.run(white_config(), WEIGHTS), white_task()
    strength = np.trace(run.coefficients(), axis1=1, axis2=2) / 4
    closed = theory.white_strength(task, run.times, 1e-4)
    loss = theory.white_loss(task, run.times, 1e-4)
    figure, (a, b, c) = canvas("double", 2.2, 1, 3)
    for panel, simulated, exact, colour, name in (
        (a, strength, closed, COLOURS[0], "strength σ"),
        (b, run.losses, loss, COLOURS[1], "loss"),
    ):
        panel.plot(run.times, simulated, color=colour, lw=3, label="simulation")
        plot_theory(panel, run.times, exact, "closed form")
        panel.set(xlabel="time (τ)", ylabel=name)
        panel.legend(loc="lower right" if panel is a else "upper right")
        errors = np.maximum(np.abs(simulated - exact), 1e-17)
        c.semilogy(run.times, errors, color=colour, lw=1.2, label=name)
    c.set(xlabel="time (τ)", ylabel="|simulation − closed form|", ylim=(1e-18, 1e-8))
    c.legend(loc="upper right")
    data = {
        "time": run.times,
        "strength": strength,
        "theory_strength": closed,
        "loss": run.losses,
        "theory_loss": loss,
    }
    config = {**white_settings(), "heads": 8, "strength_at_start": 1e-4, "seed": 0}
    return Drawing(figure, data, config)


@figure(
    "linear/merged-drop-times",
    "When the single drop comes",
    """(a) Half-drop time of many seeds and three scales against the time computed from
    the initial weights; bars give the mean and standard deviation that theory expects
    over Gaussian weights. (b) The relative error of each seed falls about in proportion
    to the weights.""",
)
def merged_drop_times(lab: Lab) -> Drawing:
    """Half-drop times against the prediction from the initial weights."""
    seeds, task = lab.scaled(4, 16, 64), four_components()
    ends = theory.plateau_losses(task)[[0, -1]]
    predicted, measured = np.array(
        [
            [
                (theory.drop_time(task, *_weights(run)), analysis.drop_times(run, levels=ends)[0])
                for run in merged_seeds(lab, scale, seeds).runs
            ]
            for scale in DROP_SCALES
        ]
    ).transpose(2, 0, 1)
    errors = np.abs(measured / predicted - 1)
    expected = [theory.gaussian_drop_time(task, 8, scale) for scale in DROP_SCALES]
    figure, (left, right) = canvas("double", 2.7, 1, 2)
    reach = np.array([predicted.min() - 4, predicted.max() + 4])
    plot_theory(left, reach, reach, "prediction")
    bars = {"capsize": 2.5, "lw": 1.2}
    for i, scale in enumerate(DROP_SCALES):
        label = f"s = {scale:g}"
        plot_circles(left, predicted[i], measured[i], COLOURS[i], label)
        spread = expected[i].mean, expected[i].standard_deviation
        left.errorbar(reach[1], *spread, color=COLOURS[i], marker="_", **bars)
        plot_circles(right, np.full(seeds, scale), errors[i], COLOURS[i])
    right.set(xscale="log", yscale="log")
    left.set(xlabel="predicted half-drop time (τ)", ylabel="measured half-drop time (τ)")
    guide = np.array(DROP_SCALES)
    plot_theory(right, guide, np.median(errors[0]) * guide / guide[0], "proportional to s")
    right.set(xlabel="scale of the initial weights s", ylabel="relative error of the prediction")
    right.legend(loc="upper left")
    left.errorbar([], [], [], color="0.4", label="mean ± s.d.", **bars)
    left.legend(loc="upper left")
    data = {
        "scale": guide,
        "predicted": predicted,
        "measured": measured,
        "expected_mean": np.array([e.mean for e in expected]),
        "expected_deviation": np.array([e.standard_deviation for e in expected]),
    }
    config = {**FOUR, "heads": 8, "scales": list(DROP_SCALES), "seeds": seeds}
    return Drawing(figure, data, config)
