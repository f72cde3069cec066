"""Claims of arXiv 2402.19442 on how decomposable weights move: in singular values and phases."""

import equinox as eqx
import jax
import numpy as np

from ...analysis import Phases, allocation, decomposition, learning_phases
from ...risks import risk
from ...theory import multitask
from .. import Checks, Given, Inconclusive, Lab, claim, claim_on_run, study
from .._needs import accurate_flow
from .checks_values import OWNED, Values, check_distinct, task_of, values_of
from .needs import FLOW, free, large_context, spectral
from .runs import (
    CONTEXT,
    DATA,
    END,
    FULL_WEIGHTS,
    SIZES,
    WIDTH,
    data_flow,
    full_flow,
    note_paper,
    paper_task,
    paper_values,
    rotate_weights,
    rotated_task,
    small_task,
)

# Shares of the drop of the loss: the ends of warm-up and emergence with half-way between, and
# nearly all of it.
_FRACTIONS = (0.05, 0.5, 0.95, 0.999)


def _note(lab: Lab, **more) -> None:
    note_paper(lab, end=END, weights=FULL_WEIGHTS, **more)


def _own_flow(lab: Lab) -> Given:
    config = study("multitask/phases", model={"weights": "matrices"})
    return Given(config, paper_task(), full_flow(lab), own=True)


def _own_flow_beside_data(lab: Lab) -> Given:
    task = small_task()
    lab.note(
        sizes=tuple(map(len, task.coordinates)), context=task.contexts[0], noise=DATA.task.noise[0],
        heads=2, sequences=DATA.risk.sequences, rate=DATA.flow.learning_rate,
        steps=DATA.flow.steps, weights="full K, Q, V and O on whole tokens",
        in_the_limit={"sizes": SIZES, "context": CONTEXT, "heads": 3, "end": END},
    )  # fmt: skip
    return _own_flow(lab)


@claim_on_run(
    "multitask/decomposable",
    """Decomposable weights stay decomposable in gradient flow: key-query never reads labels and
    stays a multiple of the identity on each block, output-value never reads inputs and stays
    diagonal, and so do the factors in their frames.""",
    source="Lemma 1 and Figure 2",
    on=_own_flow_beside_data,
    tolerance_reason="""On data that are closed under the symmetries of the task, and on the
    large-context risk, the forbidden gradients are sums that cancel. What is left is rounding,
    1e-13 of the weights; near the limit of the flow, a saddle, it grows to 1e-11 by t = 60. As many
    data as drawn do not cancel: there the defects must be seen.""",
    needs=(spectral, large_context, accurate_flow, free),
    tolerance_on_any_run="""The forbidden gradients are sums that cancel; what is left is rounding,
    which grows near the limit of the flow, a saddle: 1e-8.""",
    figures=("multitask/architecture",),
)
def decomposable(given: Given, lab: Lab) -> Checks:
    """The largest part of the weights that no decomposable model has, along the run; in the claim's
    own test also on two data sets."""
    limit = decomposition(given.run, task_of(given)).preservation
    assert limit is not None
    if not given.own:
        yield lab.close("largest defect", 0.0, float(limit.largest.max()), 1e-8, scale=1.0)
        return
    closed, drawn = (decomposition(data_flow(lab, each), small_task()) for each in (True, False))
    assert closed.preservation is not None
    moved = np.max(np.abs(closed.omega - closed.preservation.omega[0]))
    measured = closed.preservation.largest
    yield lab.close("largest defect on closed data", 0.0, measured, 1e-11, scale=1.0)
    name = "largest defect on the large-context risk"
    yield lab.close(name, 0.0, limit.largest, 1e-10, scale=1.0)
    yield lab.at_least("largest change of an ω meanwhile", 1.0, float(moved))
    name = "least of the largest defects on data as drawn"
    yield lab.at_least(name, 0.03, float(np.min(drawn.largest)))


def _own_paper_flow(lab: Lab) -> Given:
    _note(lab)
    return _own_flow(lab)


@claim_on_run(
    "multitask/spectral-flow",
    """Gradient flow of all factors K, Q, V and O is the flow of a few numbers, their singular
    values ω and μ on each task.""",
    source="abstract: 'a set of ordinary differential equations in the spectral domain'",
    on=_own_paper_flow,
    tolerance_reason="""Both sides solve an ODE to 1e-9 a step; singular values that fall by eleven
    decades keep a relative error of 1e-7.""",
    needs=FLOW,
    tolerance_on_any_run="""Both sides solve an ODE to 1e-8 a step or better; 1e-5 of the largest ω
    and μ and 1e-5 of the loss leave room for a drop that comes late by 1e-6 of its time.""",
    figures=("multitask/phases",),
)
def spectral_dynamics(given: Given, lab: Lab) -> Checks:
    """ω and μ of all heads and tasks, and the loss, over the whole run, from those at t = 0."""
    run, values = given.run, values_of(given)
    flow = multitask.spectral_flow(values.blocks, run.times, *values.start)
    pairs = (("ω(t)", flow.omega, values.omega), ("μ(t)", flow.mu, values.mu))
    for name, predicted, found in pairs:
        if given.own:
            yield lab.relative(name, predicted, found, 1e-6)
        else:
            # Other runs may have weights that fall to rounding: the largest sets the scale.
            yield lab.close(name, predicted, found, 1e-5 * float(np.max(np.abs(predicted))))
    allowed = given.tolerance(1e-6, lambda: 1e-5)
    yield lab.relative("loss", flow.loss + values.noise, run.losses, allowed)


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
    """Losses and gradients at points of a run, in plain and in rotated coordinates."""
    moments = (0.0, 6.0, 11.0, 13.0, 30.0)
    _note(lab, rotated="inputs and outputs, at random", times=moments)
    run, plain, hidden = full_flow(lab), paper_task(), rotated_task()
    models = [run.model_at(time) for time in moments]
    both = eqx.filter_jit(lambda risk, model: risk.value_and_gradient(model))
    evaluate = lambda task, model: both(risk(task, model, "large_context"), model)
    values = [decomposition(model, plain) for model in models]
    losses = [multitask.loss(plain, at.omega, at.mu).sum() for at in values]
    found = [evaluate(hidden, rotate_weights(model, hidden)) for model in models]
    # Gradients rotate like weights, and are compared with the largest entry.
    flat = lambda gradient: np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])
    moved = np.stack([flat(rotate_weights(evaluate(plain, m)[1], hidden)) for m in models])
    size = np.abs(moved).max(1, keepdims=True)
    last = decomposition(rotate_weights(models[-1], hidden), hidden)
    flow = multitask.spectral_flow(hidden, moments, *paper_values(), WIDTH)
    yield lab.close("losses", np.array(losses), [value for value, _ in found], 1e-10)
    measured = np.stack([flat(gradient) for _, gradient in found]) / size
    yield lab.close("gradients, against plain coordinates", moved / size, measured, 1e-10)
    yield lab.close("ω at t = 30", flow.omega[-1], last.omega, 1e-6)
    yield lab.close("μ at t = 30", flow.mu[-1], last.mu, 1e-6)


@claim_on_run(
    "multitask/three-phases",
    """The loss goes through three phases: a warm-up in which it hardly moves, an emergence in which
    it falls fast and each head selects its task, a convergence to the limit.""",
    source="Figure 1 and Theorem 1; the edges at 5 % and 95 % of the drop are ours",
    on=_own_paper_flow,
    tolerance_reason="""Times are read between points of a curve that are 0.25 apart: 0.1 %. The
    reference numbers, which other code computed, were read off a coarser curve: 0.3 %. The shares
    of ω are those of the nearest saved point, up to 0.13 away from the moment.""",
    needs=FLOW,
    tolerance_on_any_run="Times are read between saved points by a monotone cubic: 1 % of them.",
    figures=("multitask/phases",),
)
def three_phases(given: Given, lab: Lab) -> Checks:
    """When the phases end, for starts with a different head ahead on each task; in the claim's own
    run also how fast the loss falls in each phase, and how the heads divide the tasks."""
    values = values_of(given)
    check_distinct(values)
    # Few runs of others last until nearly all of the drop is done.
    fractions = _FRACTIONS if given.own else _FRACTIONS[:3]
    times = multitask.phase_times(values.blocks, *values.start, fractions)
    due = times <= 0.95 * given.end
    if not due.any():
        raise Inconclusive(f"warm-up is predicted to end at {times[0]:.4g}, after the run's end")
    floor = multitask.gradient_flow_limit(values.blocks).loss + values.noise
    phases = learning_phases(given.run, floor=floor)
    measured = np.array([phases.emergence, phases.half, phases.convergence, phases.done])
    shown = "5 %, 50 %, 95 % and 99.9 %" if given.own else "5 %, 50 % and 95 %"
    name, allowed = f"times of {shown} of the drop", given.tolerance(2e-3, lambda: 0.01)
    yield lab.relative(name, times[due], measured[: len(times)][due], allowed)
    if given.own:
        yield from _phases_of_figure_one(given, lab, values, times, phases, measured)


def _phases_of_figure_one(
    given: Given, lab: Lab, values: Values, times: np.ndarray, phases: Phases, measured: np.ndarray
) -> Checks:
    """Speeds, the order of the phases, and when each head selects its task."""
    run, moments = given.run, np.array([0.0, times[0], times[2], given.end])
    lab.note(fractions=_FRACTIONS)
    # The reference follows L where our flow follows L/2: its times are half of ours.
    reference = 2 * np.array([4.344, 5.783, 6.999, 26.33])
    yield lab.relative("regression: the same, by other code", reference, measured, 5e-3)
    speeds = lambda at: np.diff([0.0, 0.05, 0.95, 0.999]) / np.diff([0.0, *np.delete(at, 1)])
    yield lab.relative("drop a unit of time in each phase", speeds(times), speeds(measured), 5e-3)
    name = "phases at 10 %, 90 % and 110 % of the way to convergence"
    order = ["warm-up", "emergence", "convergence"]
    found = [phases.at(part * times[2]) for part in (0.1, 0.9, 1.1)]
    yield lab.equal(name, order, found, wrong=[order[0], order[0], order[1]])
    history = allocation(run, task_of(given), threshold=OWNED).history
    assert history is not None
    flow = lambda at: multitask.spectral_flow(values.blocks, at, *values.start)
    own = lambda weights: np.einsum("tii->ti", weights) / weights.sum(1)
    near = np.abs(run.times[:, None] - moments).argmin(0)
    name = "share of ω that is on the own head, between phases"
    yield lab.close(name, own(flow(moments).omega), own(history.attention[near]), 0.01)
    expected = flow(run.times)
    output = own(expected.omega * expected.mu)
    chosen = [float(np.interp(OWNED, share, run.times)) for share in output.T]
    name = "when 90 % of the output for a task are its head's"
    yield lab.relative(name, chosen, history.chosen, 1e-3)
    found = [phases.at(time) for time in history.chosen]
    yield lab.equal("the phase of that moment", ["emergence"] * 3, found, wrong=["warm-up"] * 3)
