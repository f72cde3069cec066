"""Claims of arXiv 2402.19442 on how decomposable weights move: in their singular values, in three
phases."""

import equinox as eqx
import jax
import numpy as np

from ..analysis import allocation, decomposition, learning_phases
from ..risks import risk
from ..theory import multitask
from ._base import Check
from ._lab import Lab
from ._multitask_runs import (
    CONTEXT,
    DATA_COUNT,
    DATA_RATE,
    DATA_STEPS,
    END,
    SIZES,
    SMALL_CONTEXT,
    SMALL_NOISE,
    SMALL_SIZES,
    WIDTH,
    data_flow,
    full_flow,
    paper_task,
    paper_values,
    rotated_task,
    small_task,
    turned,
)
from ._registry import claim

# Of the drop of the loss, at the ends of warm-up and emergence; half-way; and nearly all of it.
_FRACTIONS = (0.05, 0.5, 0.95, 0.999)
# The share of the output for a task with which a head has selected it.
_OWNED = 0.9


def _note(lab: Lab, **more) -> None:
    omega, mu = paper_values()
    lab.note(
        sizes=SIZES, context=CONTEXT, noise=0.0, heads=3, width=WIDTH, omega=omega, mu=mu, end=END,
        weights="full K, Q, V and O in random frames", **more,
    )  # fmt: skip


@claim(
    "multitask/decomposable",
    "Decomposable weights stay decomposable in gradient flow: key-query never reads labels and "
    "stays a multiple of the identity on each block, output-value never reads inputs and stays "
    "diagonal, and so do the factors in their frames.",
    source="Lemma 1 and Figure 2",
    tolerance_reason="On data that are closed under the symmetries of the task, and on the "
    "large-context risk, the forbidden gradients are sums that cancel. What is left is rounding, "
    "1e-13 of the weights; near the limit of the flow, a saddle, it grows to 1e-11 by t = 60. As "
    "many data as drawn do not cancel: there the defects must be seen.",
    figures=("multitask/architecture",),
)
def decomposable(lab: Lab) -> list[Check]:
    """The largest forbidden part along runs with full tokens, on data and in the limit."""
    closed = decomposition(data_flow(lab, closed=True), small_task())
    drawn = decomposition(data_flow(lab, closed=False), small_task())
    limit = decomposition(full_flow(lab), paper_task())
    lab.note(
        sizes=SMALL_SIZES, context=SMALL_CONTEXT, noise=SMALL_NOISE, heads=2, sequences=DATA_COUNT,
        rate=DATA_RATE, steps=DATA_STEPS, weights="full K, Q, V and O on whole tokens",
        in_the_limit={"sizes": SIZES, "context": CONTEXT, "heads": 3, "end": END},
    )  # fmt: skip
    assert closed.preservation and limit.preservation
    moved = np.max(np.abs(closed.omega - closed.preservation.omega[0]))
    return [
        Check("largest defect on closed data", lab.predict(0.0, wrong=1e-9),
              closed.preservation.largest, 1e-11),
        Check("largest defect on the large-context risk", lab.predict(0.0, wrong=1e-9),
              limit.preservation.largest, 1e-10),
        Check("the largest change of an ω meanwhile, at least", lab.predict(1.0, wrong=9.0), moved,
              comparison="at least"),
        Check("largest defect on data as drawn, at least", lab.predict(0.03, wrong=0.9),
              drawn.largest, comparison="at least"),
    ]  # fmt: skip


@claim(
    "multitask/spectral-flow",
    "Gradient flow of all factors K, Q, V and O is the flow of a few numbers, their singular "
    "values ω and μ on each task.",
    source="Section 4, spectral dynamics",
    tolerance_reason="Both sides solve an ODE to 1e-9 a step; singular values that fall by eleven "
    "decades keep a relative error of 1e-7.",
    figures=("multitask/phases",),
)
def spectral_dynamics(lab: Lab) -> list[Check]:
    """ω and μ of all heads and tasks at 241 moments."""
    _note(lab)
    run, task = full_flow(lab), paper_task()
    found = decomposition(run, task).preservation
    assert found is not None
    blocks = multitask.blocks_of(task)
    expected = multitask.spectral_flow(found.times, *paper_values(), blocks, WIDTH)
    return [
        Check("ω(t)", lab.predict(expected.omega), found.omega, 1e-6, "relative"),
        Check("μ(t)", lab.predict(expected.mu), found.mu, 1e-6, "relative"),
        Check("loss", lab.predict(expected.loss), run.losses, 1e-6, "relative"),
    ]


@claim(
    "multitask/rotations",
    "A rotation of inputs and outputs, which hides the blocks and the labels, changes nothing: in "
    "turned coordinates weights have the same loss, move the same way, and have the same singular "
    "values.",
    source="the setting with unknown orthogonal matrices; rotations are beyond the summary",
    tolerance_reason="Losses and gradients: rounding of sums of some thousand terms, 1e-12 of the "
    "largest. Losses are predicted by theory from the singular values in plain coordinates. "
    "Gradients are compared with those of the same risk in plain coordinates, turned: a symmetry. "
    "Singular values: as for `multitask/spectral-flow`.",
)
def rotations(lab: Lab) -> list[Check]:
    """Losses and gradients at points of a run, and at the same points in turned coordinates."""
    moments = (0.0, 6.0, 11.0, 13.0, 30.0)
    _note(lab, rotated="inputs and outputs, at random", times=moments)
    run, plain, hidden = full_flow(lab), paper_task(), rotated_task()
    models = [run.model_at(time) for time in moments]
    both = eqx.filter_jit(lambda risk, model: risk.value_and_gradient(model))
    straight = [both(risk(plain, model, "large_context"), model)[1] for model in models]
    values = [decomposition(model, plain) for model in models]
    blocks = multitask.blocks_of(plain)
    losses = [multitask.loss(at.omega, at.mu, blocks).sum() for at in values]
    found = [both(risk(hidden, m, "large_context"), m) for m in (turned(m, hidden) for m in models)]
    # Gradients turn like weights, and are compared with the largest entry.
    flat = lambda gradient: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
    moved = np.stack([flat(turned(gradient, hidden)) for gradient in straight])
    size = np.abs(moved).max(1, keepdims=True)
    last = decomposition(turned(models[-1], hidden), hidden)
    flow = multitask.spectral_flow(moments, *paper_values(), multitask.blocks_of(hidden), WIDTH)
    return [
        Check("losses", lab.predict(np.array(losses)), [value for value, _ in found], 1e-10),
        Check("gradients, against plain coordinates", lab.predict(moved / size),
              np.stack([flat(gradient) for _, gradient in found]) / size, 1e-10),
        Check("ω at t = 30", lab.predict(flow.omega[-1]), last.omega, 1e-6),
        Check("μ at t = 30", lab.predict(flow.mu[-1]), last.mu, 1e-6),
    ]  # fmt: skip


@claim(
    "multitask/three-phases",
    "The loss goes through three phases: a warm-up in which it hardly moves, an emergence in which "
    "it falls fast and each head selects its task, a convergence to the limit.",
    source="Figure 1 and Theorem 1; the edges at 5 % and 95 % of the drop are ours",
    tolerance_reason="Times are read between points of a curve that are 0.25 apart: 0.1 %. The "
    "reference numbers, which other code computed, were read off a coarser curve: 0.3 %. The "
    "shares of ω are those of the nearest saved point, up to 0.13 away from the moment.",
    figures=("multitask/phases",),
)
def three_phases(lab: Lab) -> list[Check]:
    """When the phases end, how fast the loss falls in each, and how heads divide the tasks."""
    _note(lab, fractions=_FRACTIONS)
    run, task = full_flow(lab), paper_task()
    blocks, start = multitask.blocks_of(task), paper_values()
    floor = multitask.gradient_flow_limit(blocks).loss
    phases = learning_phases(run, floor=floor)
    times = multitask.phase_times(*start, blocks, WIDTH, _FRACTIONS)
    measured = np.array([phases.emergence, phases.half, phases.convergence, phases.done])
    speeds = lambda at: np.diff([0.0, 0.05, 0.95, 0.999]) / np.diff([0.0, *np.delete(at, 1)])
    moments = np.array([0.0, times[0], times[2], END])
    expected = multitask.spectral_flow(run.times, *start, blocks, WIDTH)
    history = allocation(run, task, threshold=_OWNED).history
    assert history is not None
    near = np.abs(run.times[:, None] - moments).argmin(0)
    own = lambda values: np.einsum("tii->ti", values) / values.sum(1)
    attention = own(multitask.spectral_flow(moments, *start, blocks, WIDTH).omega)
    output = own(expected.omega * expected.mu)
    chosen = [float(np.interp(_OWNED, share, run.times)) for share in output.T]
    # The reference has the flow of L where ours is of L/2: its times are half of ours.
    reference = 2 * np.array([4.344, 5.783, 6.999, 26.33])
    order = ["warm-up", "emergence", "convergence"]
    return [
        Check("times of 5 %, 50 %, 95 % and 99.9 % of the drop", lab.predict(times), measured, 2e-3,
              "relative"),
        Check("the same, from the reference", lab.predict(reference), measured, 5e-3, "relative"),
        Check("drop a unit of time in each phase", lab.predict(speeds(times)), speeds(measured),
              5e-3, "relative"),
        Check("phases at 10 %, 90 % and 110 % of the way to convergence",
              lab.predict(order, wrong=order[::-1]),
              [phases.at(part * times[2]) for part in (0.1, 0.9, 1.1)], comparison="equal"),
        Check("share of ω that is on the own head, between phases", lab.predict(attention),
              own(history.attention[near]), 0.01),
        Check("when 90 % of the output for a task are its head's", lab.predict(chosen),
              history.chosen, 1e-3, "relative"),
        Check("the phase of that moment", lab.predict(["emergence"] * 3, wrong=["warm-up"] * 3),
              [phases.at(time) for time in history.chosen], comparison="equal"),
    ]  # fmt: skip
