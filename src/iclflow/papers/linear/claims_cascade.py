"""Claims of arXiv 2501.16265 on how a head grows, and when each drop comes."""

import numpy as np

from ... import analysis, theory
from ...trajectory import Trajectory
from .. import Check, Checks, Given, Inconclusive, Lab, claim_on_run, study
from .._needs import population, scheme
from .checks_limits import normaliser_of, require_dense, require_moved_loss
from .checks_steps import Steps, check_distinct, predicted_steps
from .needs import GENERIC, SEPARATE, learnable, rank_one, round_prior, same_orders, small
from .runs import ALIGNED_STARTS, FOUR, aligned_run, cascade_seeds, four_components

# A drop that is predicted within 5 % of the end of a run may be over only after it.
_END = 0.95


def _own_aligned(lab: Lab) -> Given:
    lab.note(**FOUR, heads=4, starts=ALIGNED_STARTS, aligned=True)
    config = study("linear/aligned", flow={"end": 4500.0})
    return Given(config, four_components(), aligned_run(lab), own=True)


@claim_on_run(
    "linear/scalar-ode",
    """On every plateau the growing head obeys the scalar equation τ dv/dt = λ²v² − λ³(1 + (1 + tr
    Λ/λ)/N) v⁵, with a closed form for t(v).""",
    source="Eq. 21; Eq. 71 (as cited in Section 4.3)",
    tier="smoke",
    on=_own_aligned,
    tolerance_reason="""Aligned heads decouple exactly; what is left is the solver's tolerance of
    1e-9 a step, which shifts each drop by about 1e-8 of its time.""",
    needs=(*SEPARATE, rank_one, population, learnable, round_prior, scheme("identity")),
    tolerance_on_any_run="""Aligned heads decouple exactly; what is left is the solver's tolerance,
    which shifts each drop by 1e-8 of its time, or of 1/s durations of a drop, and the loss by that
    of its way down.""",
    figures=("linear/scalar-ode",),
)
def scalar_ode(given: Given, lab: Lab) -> Checks:
    """One aligned head per component: the loss, and in the claim's own run each drop, is on the
    closed-form curve."""
    task, run, first = given.task, given.run, given.run.at(0)
    eigenvalues = np.diag(np.asarray(task.covariance))
    if len(first.circuits.v) != task.dim or np.any(eigenvalues[1:] > eigenvalues[:-1]):
        raise Inconclusive(
            "it is computed for one head per component, eigenvalues from the largest down"
        )
    starts, normaliser = np.asarray(first.circuits.v), normaliser_of(given)
    predicted = theory.aligned_loss(task, starts * lab.predict(1.0), run.times, normaliser)
    share = 1e-8 * max(100.0, 1 / float(np.min(starts)))
    allowed = given.tolerance(1e-6, lambda: require_moved_loss(given, share * float(run.losses[0])))
    yield Check("loss of decoupled heads", predicted, run.losses, allowed)
    if given.own:
        yield from _growth_times(given, lab)


def _growth_times(given: Given, lab: Lab) -> Checks:
    """When each head has grown to v, from just after its start to just before its end."""
    run, modes = given.run, theory.modes(given.task)
    for d, start in enumerate(np.asarray(run.at(0).circuits.v)):
        v = np.asarray(run.models.circuits.v[:, d])
        growing = (v > 1.05 * start) & (v < 0.99 * np.cbrt(modes.strengths[d]))
        predicted = theory.aligned_time(
            v[growing], float(start), modes.growth_rates[d] * lab.predict(1.0), modes.strengths[d]
        )
        yield Check(f"t(v) of component {d + 1}", predicted, run.times[growing], 1e-6, "relative")


def _own_seeds(lab: Lab) -> Given:
    seeds = lab.scaled(1, 4, 16)
    lab.note(**FOUR, heads=4, scale=1e-4, seeds=seeds)
    return cascade_seeds(lab, seeds)


@claim_on_run(
    "linear/cascade",
    "All drop times of a four-component staircase follow from the initial weights alone.",
    source="beyond the paper; derived in docs/theory/linear.md",
    on=_own_seeds,
    tolerance_reason="""The cascade is the limit of small weights; 1e-3 at weights of 1e-4 is the
    bar, and near-ties of two heads are the worst case.""",
    needs=(*GENERIC, rank_one, population, learnable, same_orders, small(0.01)),
    tolerance_on_any_run="""The cascade is the limit of small weights. At 0.01 of the learned size
    its error reaches 1.6 % where drops are 20 of their durations apart and heads have at most a
    fifth of another component when they have learned their own; 2 % is allowed there.""",
    figures=("linear/cascade",),
)
def cascade(given: Given, lab: Lab) -> Checks:
    """Half-drop times from the weights at t = 0, of all drops that a run is long enough for."""

    def both_times(run: Trajectory) -> tuple[np.ndarray, np.ndarray]:
        found = predicted_steps(given.task, run.at(0))
        times, levels = found.staircase.drop_times, found.staircase.levels
        due = np.full(len(times), True) if given.own else _due_drops(given, found)
        return times[due], analysis.drop_times(run, levels=levels)[due]

    times = np.asarray(given.each(both_times))
    allowed = given.tolerance(1e-3, 0.02)
    yield lab.relative("drop times", times[..., 0, :], times[..., 1, :], allowed)


def _due_drops(given: Given, found: Steps) -> np.ndarray:
    """Which drops a run is long enough for, if its steps are distinct and it shows them."""
    check_distinct(found, rest=20.0, misalignment=0.2)
    times = found.staircase.drop_times
    due = (times <= _END * given.end) | (given.run.result.name == "converged")
    if not due.any():
        raise Inconclusive(f"the first drop is predicted at {times[0]:.4g}, after the run's end")
    require_dense(given, -np.diff(found.staircase.levels))
    return due
