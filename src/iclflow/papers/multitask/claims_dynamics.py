"""Claims of arXiv 2402.19442 on how decomposable weights move: in their singular values, in three
phases."""

import equinox as eqx
import jax
import numpy as np

from ...analysis import allocation, decomposition, learning_phases
from ...risks import risk
from ...theory import multitask
from .. import Checks, Given, Inconclusive, Lab, claim, claim_on_run, on_run, study
from .._needs import accurate_flow
from .checks_values import OWNED, check_distinct, task_of, values_of
from .needs import FLOW, free, large_context, spectral
from .runs import (
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
    rotate_weights,
    rotated_task,
    small_task,
)

# Of the drop of the loss, at the ends of warm-up and emergence; half-way; and nearly all of it.
_FRACTIONS = (0.05, 0.5, 0.95, 0.999)


def _note(lab: Lab, **more) -> None:
    omega, mu = paper_values()
    lab.note(
        sizes=SIZES, context=CONTEXT, noise=0.0, heads=3, width=WIDTH, omega=omega, mu=mu, end=END,
        weights="full K, Q, V and O in random frames", **more,
    )  # fmt: skip


@on_run(
    spectral,
    large_context,
    accurate_flow,
    free,
    tolerance_reason="""The forbidden gradients are sums that cancel; what is left is rounding,
    which grows near the limit of the flow, a saddle: 1e-8.""",
)
def decomposable_on_run(given: Given, lab: Lab) -> Checks:
    """The largest part of the weights that no decomposable model has, along the run."""
    found = decomposition(given.run, task_of(given)).preservation
    assert found is not None
    yield lab.close("largest defect", 0.0, float(found.largest.max()), 1e-8, wrong=1e-3)


@claim(
    "multitask/decomposable",
    """Decomposable weights stay decomposable in gradient flow: key-query never reads labels and
    stays a multiple of the identity on each block, output-value never reads inputs and stays
    diagonal, and so do the factors in their frames.""",
    source="Lemma 1 and Figure 2",
    tolerance_reason="""On data that are closed under the symmetries of the task, and on the
    large-context risk, the forbidden gradients are sums that cancel. What is left is rounding,
    1e-13 of the weights; near the limit of the flow, a saddle, it grows to 1e-11 by t = 60. As many
    data as drawn do not cancel: there the defects must be seen.""",
    figures=("multitask/architecture",),
    on_run=decomposable_on_run,
)
def decomposable(lab: Lab) -> Checks:
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
    yield lab.close(
        "largest defect on closed data", 0.0, closed.preservation.largest, 1e-11, wrong=1e-9
    )
    measured = limit.preservation.largest
    yield lab.close("largest defect on the large-context risk", 0.0, measured, 1e-10, wrong=1e-9)
    yield lab.at_least("the largest change of an ω meanwhile, at least", 1.0, moved, wrong=9.0)
    yield lab.at_least("largest defect on data as drawn, at least", 0.03, drawn.largest, wrong=0.9)


def _own_flow(lab: Lab) -> Given:
    _note(lab)
    return Given(
        study("multitask/phases", model={"weights": "matrices"}),
        paper_task(),
        full_flow(lab),
        own=True,
    )


@claim_on_run(
    "multitask/spectral-flow",
    """Gradient flow of all factors K, Q, V and O is the flow of a few numbers, their singular
    values ω and μ on each task.""",
    source="Section 4, spectral dynamics",
    on=_own_flow,
    tolerance_reason="""Both sides solve an ODE to 1e-9 a step; singular values that fall by eleven
    decades keep a relative error of 1e-7.""",
    needs=FLOW,
    tolerance_on_any_run="""Both sides solve an ODE to 1e-8 a step or better; 1e-5 of the largest ω
    and μ and 1e-5 of the loss leave room for a drop that comes late by 1e-6 of its time.""",
    figures=("multitask/phases",),
)
def spectral_dynamics(given: Given, lab: Lab) -> Checks:
    """ω and μ of all heads and tasks, and the loss, over the whole run, from those at t = 0."""
    run, start = given.run, values_of(given)
    first = paper_values() if given.own else (start.omega[0], start.mu[0])
    flow = multitask.spectral_flow(start.blocks, run.times, *first, start.width)
    pairs = {"ω(t)": (flow.omega, start.omega), "μ(t)": (flow.mu, start.mu)}
    if given.own:
        pairs |= {"loss": (flow.loss, run.losses)}
        for name, (predicted, found) in pairs.items():
            yield lab.relative(name, predicted, found, 1e-6)
        return
    for name, (predicted, found) in pairs.items():
        yield lab.close(name, predicted, found, 1e-5 * float(np.max(np.abs(predicted))))
    yield lab.relative("loss", flow.loss + start.noise, run.losses, 1e-5)


@claim(
    "multitask/rotations",
    """A rotation of inputs and outputs, which hides the blocks and the labels, changes nothing: in
    turned coordinates weights have the same loss, move the same way, and have the same singular
    values.""",
    source="the setting with unknown orthogonal matrices; rotations are beyond the summary",
    tolerance_reason="""Losses and gradients: rounding of sums of some thousand terms, 1e-12 of the
    largest. Losses are predicted by theory from the singular values in plain coordinates. Gradients
    are compared with those of the same risk in plain coordinates, turned: a symmetry. Singular
    values: as for `multitask/spectral-flow`.""",
)
def rotations(lab: Lab) -> Checks:
    """Losses and gradients at points of a run, and at the same points in turned coordinates."""
    moments = (0.0, 6.0, 11.0, 13.0, 30.0)
    _note(lab, rotated="inputs and outputs, at random", times=moments)
    run, plain, hidden = full_flow(lab), paper_task(), rotated_task()
    models = [run.model_at(time) for time in moments]
    both = eqx.filter_jit(lambda risk, model: risk.value_and_gradient(model))
    straight = [both(risk(plain, model, "large_context"), model)[1] for model in models]
    values = [decomposition(model, plain) for model in models]
    losses = [multitask.loss(plain, at.omega, at.mu).sum() for at in values]
    found = [
        both(risk(hidden, m, "large_context"), m)
        for m in (rotate_weights(m, hidden) for m in models)
    ]
    # Gradients turn like weights, and are compared with the largest entry.
    flat = lambda gradient: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
    moved = np.stack([flat(rotate_weights(gradient, hidden)) for gradient in straight])
    size = np.abs(moved).max(1, keepdims=True)
    last = decomposition(rotate_weights(models[-1], hidden), hidden)
    flow = multitask.spectral_flow(hidden, moments, *paper_values(), WIDTH)
    yield lab.close("losses", np.array(losses), [value for value, _ in found], 1e-10)
    measured = np.stack([flat(gradient) for _, gradient in found]) / size
    yield lab.close("gradients, against plain coordinates", moved / size, measured, 1e-10)
    yield lab.close("ω at t = 30", flow.omega[-1], last.omega, 1e-6)
    yield lab.close("μ at t = 30", flow.mu[-1], last.mu, 1e-6)


@on_run(
    *FLOW, tolerance_reason="Times are read between saved points by a monotone cubic: 1 % of them."
)
def three_phases_on_run(given: Given, lab: Lab) -> Checks:
    """When 5 %, 50 % and 95 % of the drop are done, for starts with another head ahead on each."""
    start = values_of(given)
    check_distinct(start)
    times = multitask.phase_times(start.blocks, start.omega[0], start.mu[0], start.width)
    due = times <= 0.95 * given.end
    if not due.any():
        raise Inconclusive(f"warm-up is predicted to end at {times[0]:.4g}, after the run's end")
    floor = multitask.gradient_flow_limit(start.blocks).loss + start.noise
    found = learning_phases(given.run, floor=floor)
    measured = np.array([found.emergence, found.half, found.convergence])
    name = "times of 5 %, 50 % and 95 % of the drop"
    yield lab.relative(name, times[due], measured[due], 0.01)


@claim(
    "multitask/three-phases",
    """The loss goes through three phases: a warm-up in which it hardly moves, an emergence in which
    it falls fast and each head selects its task, a convergence to the limit.""",
    source="Figure 1 and Theorem 1; the edges at 5 % and 95 % of the drop are ours",
    tolerance_reason="""Times are read between points of a curve that are 0.25 apart: 0.1 %. The
    reference numbers, which other code computed, were read off a coarser curve: 0.3 %. The shares
    of ω are those of the nearest saved point, up to 0.13 away from the moment.""",
    figures=("multitask/phases",),
    on_run=three_phases_on_run,
)
def three_phases(lab: Lab) -> Checks:
    """When the phases end, how fast the loss falls in each, and how heads divide the tasks."""
    _note(lab, fractions=_FRACTIONS)
    run, task = full_flow(lab), paper_task()
    start = paper_values()
    floor = multitask.gradient_flow_limit(task).loss
    phases = learning_phases(run, floor=floor)
    times = multitask.phase_times(task, *start, WIDTH, _FRACTIONS)
    measured = np.array([phases.emergence, phases.half, phases.convergence, phases.done])
    speeds = lambda at: np.diff([0.0, 0.05, 0.95, 0.999]) / np.diff([0.0, *np.delete(at, 1)])
    moments = np.array([0.0, times[0], times[2], END])
    expected = multitask.spectral_flow(task, run.times, *start, WIDTH)
    history = allocation(run, task, threshold=OWNED).history
    assert history is not None
    near = np.abs(run.times[:, None] - moments).argmin(0)
    own = lambda values: np.einsum("tii->ti", values) / values.sum(1)
    attention = own(multitask.spectral_flow(task, moments, *start, WIDTH).omega)
    output = own(expected.omega * expected.mu)
    chosen = [float(np.interp(OWNED, share, run.times)) for share in output.T]
    # The reference has the flow of L where ours is of L/2: its times are half of ours.
    reference = 2 * np.array([4.344, 5.783, 6.999, 26.33])
    order = ["warm-up", "emergence", "convergence"]
    yield lab.relative("times of 5 %, 50 %, 95 % and 99.9 % of the drop", times, measured, 2e-3)
    yield lab.relative("the same, from the reference", reference, measured, 5e-3)
    yield lab.relative("drop a unit of time in each phase", speeds(times), speeds(measured), 5e-3)
    name = "phases at 10 %, 90 % and 110 % of the way to convergence"
    found = [phases.at(part * times[2]) for part in (0.1, 0.9, 1.1)]
    yield lab.equal(name, order, found, wrong=order[::-1])
    found = own(history.attention[near])
    yield lab.close("share of ω that is on the own head, between phases", attention, found, 0.01)
    yield lab.relative(
        "when 90 % of the output for a task are its head's", chosen, history.chosen, 1e-3
    )
    found = [phases.at(time) for time in history.chosen]
    yield lab.equal("the phase of that moment", ["emergence"] * 3, found, wrong=["warm-up"] * 3)
