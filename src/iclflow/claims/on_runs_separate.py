"""Claims of arXiv 2501.16265 on a run of separate keys and queries that somebody made."""

import numpy as np

from .. import analysis, theory
from ._base import Check, Inconclusive
from ._lab import Lab
from ._linear_run_limits import (
    allowed_at_end,
    allowed_drift,
    dense,
    moved,
    normaliser_of,
    told_apart,
)
from ._on_runs import Given, on_run
from ._run_needs import (
    alignable,
    few_heads,
    gradient_flow,
    learnable,
    linear_attention,
    population,
    rank_one,
    round_prior,
    same_orders,
    scheme,
    small,
)
from ._staircase_facts import Steps, predicted_steps, relaxation_rate

_SEPARATE = (linear_attention("separate"), gradient_flow)
# Heads along single components would be bound to them, and learn them in any order.
_GENERIC = (*_SEPARATE, scheme("gaussian", "balanced", "paper"))
# A drop is gone, and a plateau is left, so many durations of a drop beside it.
_CLEAR = 10.0
# Runs that stop within this share of the way down have A to 0.7 %, its root, in prediction.
_CLOSE = 5e-5


@on_run(
    "linear/plateau-losses",
    *_GENERIC,
    population,
    learnable,
    same_orders,
    small(0.1),
    alignable,
    tolerance_reason="On a rest of r durations of the next drop the head that grows next has "
    "moved the loss by (2/r)³ of that drop half-way, 0.8 % at r = 10, and less at the slowest "
    "moment: rests from 10 on count, and must be within 1 % of the smaller step beside them. What "
    "heads have of other components must have decayed by a factor of e² meanwhile: it costs its "
    "square.",
)
def plateau_losses(given: Given, lab: Lab) -> list[Check]:
    """The levels of plateaus found without help from theory, each beside the nearest predicted."""
    levels, resting = _rests(given, relaxed=2.0)
    if not any(number for number, _ in resting):
        raise Inconclusive("the loss has rested at its start alone, where every run begins")
    bent = np.asarray(lab.predict(levels))
    steps = -np.diff(levels)
    errors = []
    for number, rest in resting:
        step = steps[max(number - 1, 0) : number + 1].min()
        errors.append(float(np.min(np.abs(rest.level - bent)) / step))
    name = f"distance of {len(errors)} rests from predicted levels, over the step beside them"
    return [Check(name, np.zeros(len(errors)), errors, 0.01)]


@on_run(
    "linear/ordered-drops",
    *_GENERIC,
    rank_one,
    population,
    learnable,
    round_prior,
    small(0.1),
    tolerance_reason="A count and an order. They are told where the predicted drops are five of "
    "their durations apart or more, heads have at most half of another component when they have "
    "learned their own, and no step is below 2 % of the way down: analysis sees none below 1 %.",
)
def ordered_drops(given: Given, lab: Lab) -> list[Check]:
    """The number of drops, and the order in which components cross half their final strength."""
    found, run = predicted_steps(given.task, given.run.at(0)), given.run
    _distinct(found, rest=5.0, misalignment=0.5)
    steps = -np.diff(found.staircase.levels)
    if steps.min() < 0.02 * steps.sum():
        raise Inconclusive("a step is below 2 % of the way down, too low to be seen as a drop")
    dense(given, steps)
    times, widths = found.staircase.drop_times, found.staircase.widths
    count = len(times)
    if run.result.name != "converged":
        if np.any(np.abs(times - given.end) < _CLEAR * widths):
            raise Inconclusive(f"the run ends at {given.end:.4g}, in the middle of a drop")
        count = int(np.sum(times < given.end))
        if count == 0:
            raise Inconclusive(
                f"the first drop is predicted at {times[0]:.4g}, after the run's end"
            )
    order = tuple(range(count))
    wrong = tuple(range(1, count + 1))
    return [
        Check("drops", lab.predict(count, wrong=count + 1), analysis.drop_count(run),
              comparison="equal"),
        Check("order of the components, by eigenvalue", lab.predict(order, wrong=wrong),
              analysis.learning_order(run, given.task), comparison="equal"),
    ]  # fmt: skip


@on_run(
    "linear/cascade",
    *_GENERIC,
    rank_one,
    population,
    learnable,
    same_orders,
    small(0.01),
    tolerance_reason="The cascade is the limit of small weights. At 0.01 of the learned size its "
    "error reaches 1.6 % where drops are 20 of their durations apart and heads have at most a "
    "fifth of another component when they have learned their own; 2 % is allowed there.",
)
def cascade(given: Given, lab: Lab) -> list[Check]:
    """Half-drop times from the weights at t = 0, of all drops that the run is long enough for."""
    found = predicted_steps(given.task, given.run.at(0))
    _distinct(found, rest=20.0, misalignment=0.2)
    times = found.staircase.drop_times
    due = (times <= 0.95 * given.end) | (given.run.result.name == "converged")
    if not due.any():
        raise Inconclusive(f"the first drop is predicted at {times[0]:.4g}, after the run's end")
    dense(given, -np.diff(found.staircase.levels))
    measured = analysis.drop_times(given.run, levels=found.staircase.levels)
    return [Check("drop times", lab.predict(times[due]), measured[due], 0.02, "relative")]


@on_run(
    "linear/pcr",
    *_GENERIC,
    population,
    learnable,
    round_prior,
    small(0.1),
    alignable,
    tolerance_reason="In the middle of a rest of r durations of the next drop idle heads have "
    "(2/r)³ of a component, below 1 % from r = 10 on; what heads have of other components has "
    "decayed by e⁵ or more on the rests that count. 1.5 % in prediction covers both.",
)
def pcr(given: Given, lab: Lab) -> list[Check]:
    """A in the middle of each rest, in the norm in which it makes predictions."""
    _, resting = _rests(given, relaxed=10.0)
    task, normaliser = given.task, normaliser_of(given)
    spread = theory.correlation_second_moment(task, normaliser)
    inputs, strength = np.asarray(task.covariance), float(lab.predict(1.0))
    size = lambda matrix: float(np.sqrt(np.sum(matrix * (spread @ matrix @ inputs))))
    distances = []
    for number, rest in resting:
        if number == 0:
            continue
        at_end = rest.final and given.run.result.name == "converged"
        moment = given.end if at_end else (rest.start + rest.end) / 2
        found = np.asarray(given.run.model_at(moment).coefficients())
        predicted = strength * theory.plateau_matrix(task, number, normaliser)
        distances.append(size(found - predicted) / size(predicted))
    if not distances:
        raise Inconclusive("no rest after the first drop is long enough for heads to be aligned")
    name = f"distance in prediction from PCR on {len(distances)} rests"
    return [Check(name, np.zeros(len(distances)), distances, 0.015)]


@on_run(
    "linear/fewer-heads",
    *_GENERIC,
    few_heads,
    population,
    learnable,
    same_orders,
    small(0.1),
    tolerance_reason="The run stops within `flow.tolerance` of the way down to the smallest loss "
    "that its rank allows; twice that is allowed.",
)
def fewer_heads(given: Given, lab: Lab) -> list[Check]:
    """The loss at the end."""
    model = given.config.model
    last = theory.final_loss(given.task, model.heads, model.widest_rank, normaliser_of(given))
    return [
        Check("final loss", lab.predict(last), given.run.losses[-1], allowed_at_end(given, last))
    ]


@on_run(
    "linear/separate-conservation",
    *_SEPARATE,
    tolerance_reason="The solver's relative tolerance a step, times 1000 steps that all err to the "
    "same side, of the largest weight squared.",
)
def separate_conservation(given: Given, lab: Lab) -> list[Check]:
    """What every head conserves, at the start and at the end of the run as far as it is."""
    ends = [given.run.at(i) for i in (0, -1)]
    size = max(float(np.sum(np.square(w))) for m in ends for w in (m.v, m.K, m.Q))
    before, after = (theory.separate_conserved(m.v, m.K, m.Q) for m in ends)
    allowed = told_apart(given, allowed_drift(given) * size)
    return [
        Check(name, lab.predict(b, wrong=b + 0.03 * size), a, allowed)
        for name, b, a in zip(("KᵀK − QᵀQ", "v² − ‖K‖²"), before, after)
    ]


@on_run(
    "linear/scalar-ode",
    *_SEPARATE,
    rank_one,
    population,
    learnable,
    round_prior,
    scheme("identity"),
    tolerance_reason="Aligned heads decouple exactly; what is left is the solver's tolerance, "
    "which shifts each drop by 1e-8 of its time, or of 1/s durations of a drop, and the loss by "
    "that of its way down.",
)
def scalar_ode(given: Given, lab: Lab) -> list[Check]:
    """The loss of heads that start along one component each, in closed form."""
    first, run = given.run.at(0), given.run
    eigenvalues = np.diag(np.asarray(given.task.covariance))
    if len(first.v) != given.task.dim or np.any(np.diff(eigenvalues) > 0):
        raise Inconclusive(
            "it is computed for one head a component, eigenvalues from the largest down"
        )
    starts = np.asarray(first.v)
    predicted = theory.aligned_loss(
        given.task, starts * lab.predict(1.0), run.times, normaliser_of(given)
    )
    allowed = 1e-8 * max(100.0, 1 / float(np.min(starts))) * float(run.losses[0])
    return [Check("loss at all saved times", predicted, run.losses, moved(given, allowed))]


def _distinct(found: Steps, rest: float, misalignment: float) -> None:
    """Refuses to decide where theory itself says that steps are not apart."""
    if found.rests.min() < rest:
        raise Inconclusive(
            f"two drops are predicted {found.rests.min():.2g} of their durations apart: the claim "
            f"is for steps that are {rest:g} apart or more"
        )
    if found.misalignment > misalignment:
        raise Inconclusive(
            f"a head has {found.misalignment:.2g} of another component when it learns its own: the "
            f"claim is for smaller first weights, which leave at most {misalignment:g}"
        )


def _rests(given: Given, relaxed: float):
    """The predicted levels, and the plateaus of the run that are long enough to be compared, each
    with the number of the level that is nearest."""
    task, normaliser = given.task, normaliser_of(given)
    modes, model = theory.modes(task, normaliser), given.config.model
    room = min(modes.count, model.heads * model.widest_rank)
    levels = theory.plateau_losses(task, room, normaliser)
    widths = 1 / (modes.growth_rates * np.cbrt(modes.strengths))
    close = getattr(given.config.flow, "tolerance") <= _CLOSE
    dense(given, -np.diff(levels))
    found = []
    for rest in analysis.plateaus(given.run):
        number = int(np.argmin(np.abs(rest.level - levels)))
        done = rest.final and given.run.result.name == "converged" and close
        if done and number == room:
            found.append((number, rest))
            continue
        if rest.final or number == room or rest.duration < _CLEAR * widths[number]:
            continue
        if rest.duration * relaxation_rate(task, number, normaliser) < relaxed:
            continue
        found.append((number, rest))
    if not found:
        raise Inconclusive("the loss has not rested for as long as ten drops anywhere")
    return levels, found
