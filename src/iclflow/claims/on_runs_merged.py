"""Claims of arXiv 2501.16265 on a run of merged attention that somebody made, and on any end."""

import numpy as np

from .. import analysis, theory
from ._base import Check, Inconclusive
from ._lab import Lab
from ._linear_run_limits import (
    allowed_at_end,
    allowed_drift,
    least_curvature,
    loss_at_zero,
    most_left,
    moved,
    normaliser_of,
    told_apart,
)
from ._on_runs import Given, on_run
from ._run_needs import (
    enough_heads,
    gradient_flow,
    large,
    learnable,
    linear_attention,
    not_large,
    population,
    round_prior,
    scheme,
    small,
    white,
)

_MERGED = (linear_attention("merged"), gradient_flow)
# From this ratio of the first kernel to what is learned on, a run is lazy.
_LAZY = 4.0


@on_run(
    "linear/merged-conservation",
    *_MERGED,
    tolerance_reason="The solver's relative tolerance a step, times 1000 steps that all err to the "
    "same side, of the largest weight squared.",
)
def merged_conservation(given: Given, lab: Lab) -> list[Check]:
    """The conserved matrix at the start and at the end of the run, as far as it is."""
    models = given.run.models
    before, after = (theory.merged_conserved(models.v[i], models.U[i]) for i in (0, -1))
    size = max(float(np.sum(np.square(w[i]))) for w in (models.v, models.U) for i in (0, -1))
    wrong = before + 0.03 * size
    allowed = told_apart(given, allowed_drift(given) * size)
    return [Check("conserved matrix", lab.predict(before, wrong), after, allowed)]


@on_run(
    "linear/single-drop",
    *_MERGED,
    population,
    learnable,
    small(0.05),
    tolerance_reason="A count of drops of the loss curve.",
)
def single_drop(given: Given, lab: Lab) -> list[Check]:
    """Quick drops of the loss curve, found without any help from theory."""
    _past_the_drop(given)
    drops = analysis.drop_count(given.run)
    return [Check("drops", lab.predict(1, wrong=2), drops, comparison="equal")]


@on_run(
    "linear/merged-drop-time",
    *_MERGED,
    population,
    learnable,
    small(0.01),
    tolerance_reason="The formula is the limit of small weights, and its error falls in proportion "
    "to them: up to 0.3 % of the drop time at 0.01 of the learned size, over tasks with two to six "
    "components; 1 % leaves room for three times that.",
)
def merged_drop_time(given: Given, lab: Lab) -> list[Check]:
    """The half-drop time from the weights at t = 0."""
    predicted = _past_the_drop(given)
    levels = [loss_at_zero(given), theory.optimal_loss(given.task, normaliser_of(given))]
    measured = analysis.drop_times(given.run, levels=levels)[0]
    return [Check("half-drop time", lab.predict(predicted), measured, 0.01, "relative")]


@on_run(
    "linear/merged-reduced-flow",
    *_MERGED,
    population,
    learnable,
    not_large,
    scheme("balanced", "identity"),
    tolerance_reason="Two solvers at relative tolerances of 1e-8 and better on two equations; "
    "errors grow by the factor e over the drop. 1e-6 of the loss at the start.",
)
def merged_reduced_flow(given: Given, lab: Lab) -> list[Check]:
    """The whole loss curve from one matrix equation."""
    first, run = given.run.at(0), given.run
    start = theory.reduced_start(first.v, first.U)
    predicted = theory.reduced_flow(
        given.task,
        run.times,
        start.matrix * lab.predict(1.0),
        start.imbalance,
        normaliser_of(given),
    )
    allowed = moved(given, 1e-6 * float(run.losses[0]))
    return [Check("loss at all saved times", predicted.loss, run.losses, allowed)]


@on_run(
    "linear/white-sigmoid",
    *_MERGED,
    population,
    learnable,
    scheme("identity"),
    white,
    round_prior,
    tolerance_reason="A closed form against a solver at a relative tolerance of 1e-8 a step or "
    "better; errors grow by at most the width of the sigmoid. 1e-6 of the final σ and of the loss "
    "at the start.",
)
def white_sigmoid(given: Given, lab: Lab) -> list[Check]:
    """σ(t) and the loss over the whole run."""
    first, run, normaliser = given.run.at(0), given.run, normaliser_of(given)
    start = lab.predict(theory.white_initial_strength(given.task, first.v, first.U, normaliser))
    sigma = theory.white_strength(given.task, run.times, float(start), normaliser)
    loss = theory.white_loss(given.task, run.times, float(start), normaliser)
    dim, allowed = given.task.dim, moved(given, 1e-6 * float(run.losses[0]))
    measured = np.trace(run.coefficients(), axis1=1, axis2=2) / dim
    best = float(np.trace(theory.optimal_matrix(given.task, normaliser))) / dim
    return [
        Check("σ(t) at all saved times", sigma, measured, 1e-6 * best),
        Check("loss at all saved times", loss, run.losses, allowed),
    ]


@on_run(
    "linear/lazy-limit",
    *_MERGED,
    population,
    learnable,
    not_large,
    large(4.0),
    tolerance_reason="The deviation falls as κ⁻², κ = Σv²/‖A(0) − A*‖ at the start: it is below "
    "0.07/κ² of the way down for random heads, and below 0.26/κ² for heads in opposite pairs. "
    "0.3/κ² is allowed, and κ must be 4 or more.",
)
def lazy_limit(given: Given, lab: Lab) -> list[Check]:
    """The loss against a sum of exponentials with the rates of the first kernel."""
    first, run, normaliser = given.run.at(0), given.run, normaliser_of(given)
    best = theory.optimal_matrix(given.task, normaliser)
    way = np.linalg.norm(np.einsum("h,hde->de", first.v, first.U) - best)
    stiff = float(np.sum(np.square(first.v)) / way)
    if stiff < _LAZY:
        raise Inconclusive(
            f"it is for very large first weights: Σv²/‖A(0) − A*‖ = {stiff:.3g} is below {_LAZY:g}"
        )
    floor = theory.optimal_loss(given.task, normaliser)
    frozen = theory.frozen_kernel_loss(given.task, first.v, first.U, run.times, normaliser)
    excess = (frozen - floor) * lab.predict(1.0)
    return [
        Check(
            "excess loss at all saved times, of that at the start",
            excess / (run.losses[0] - floor),
            (run.losses - floor) / (run.losses[0] - floor),
            0.3 / stiff**2,
        )
    ]


@on_run(
    "linear/noise-and-prior",
    linear_attention("merged", "separate"),
    gradient_flow,
    enough_heads,
    population,
    learnable,
    tolerance_reason="The run stops within `flow.tolerance` of the way down from predicting zero, "
    "or from its start if that is lower; twice that is allowed, if it is below 1 % of the limit. "
    "One that was stopped must be as near by its gradient: for E above the limit |∂L/∂W|² is at "
    "least 4κμE, κ being the least curvature of the loss in A, and μ the least stretch of A by "
    "weights. A is then within the square root of that over the smallest curvature, and is checked "
    "where this is below 1 % of its largest entry.",
)
def noise_and_prior(given: Given, lab: Lab) -> list[Check]:
    """The loss at the end, and A."""
    task, normaliser = given.task, normaliser_of(given)
    last = theory.optimal_loss(task, normaliser)
    curvature = least_curvature(given)
    allowed = allowed_at_end(given, last, lambda: most_left(given, curvature))
    checks = [Check("final loss", lab.predict(last), given.run.losses[-1], allowed)]
    matrix = theory.optimal_matrix(task, normaliser)
    near = float(np.sqrt(allowed / curvature))
    if near < 0.01 * np.max(np.abs(matrix)):
        found = np.asarray(given.run.final.coefficients())
        checks.append(Check("final A", lab.predict(matrix), found, near))
    return checks


def _past_the_drop(given: Given) -> float:
    """The predicted drop time of merged attention, if the run goes on for as long again."""
    first = given.run.at(0)
    time = theory.drop_time(given.task, first.v, first.U, normaliser=normaliser_of(given))
    if given.run.result.name != "converged" and given.end < 2 * time:
        raise Inconclusive(
            f"the drop is predicted at {time:.4g}, and the run ends at {given.end:.4g}"
        )
    return time
