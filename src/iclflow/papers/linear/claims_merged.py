"""Claims of arXiv 2501.16265 on attention with a merged key-query matrix."""

import jax.numpy as jnp
import numpy as np

from ... import analysis, theory
from ...models import Attention, Merged
from ...risks import risk
from ...trajectory import Trajectory
from .. import Check, Checks, Given, Inconclusive, Lab, claim, claim_on_run, study
from .._needs import population, scheme
from .checks_limits import (
    DRIFT_REASON,
    check_conserved,
    loss_at_zero,
    normaliser_of,
    require_moved_loss,
)
from .needs import MERGED, learnable, not_large, round_prior, small, white
from .runs import (
    FOUR,
    WEIGHTS,
    four_components,
    merged_config,
    merged_model,
    merged_restarts,
    merged_seeds,
    white_config,
    white_seeds,
    white_settings,
    white_task,
)


@claim(
    "linear/merged-two-stationary-sets",
    """The loss of merged attention has exactly two sets of stationary points: a saddle of index H
    at the loss of predicting zero, and the global minimum.""",
    source="Section 3.2",
    tolerance_reason="""Newton's method stops at a gradient below 1e-10; the loss is then exact to
    the square of that over the curvature. Counts and indices are exact.""",
    figures=("linear/landscape-merged",),
)
def merged_two_stationary_sets(lab: Lab) -> Checks:
    """Random restarts of a root finder on the gradient, and Hessians at what they find."""
    task, heads = four_components(), 3
    saddles, minima = theory.merged_stationary_sets(task, heads)
    exact = risk(task, merged_model(1.0, heads))
    found = merged_restarts(lab)
    require_converged(found)
    lab.note(**FOUR, heads=heads, restarts=found.words)
    losses = lab.predict(np.array([minima.loss, saddles.loss]))
    distance = np.min(np.abs(found.losses[:, None] - losses), axis=1)
    # Restarts rarely end at weights that are exactly zero: Hessians are taken at predicted points.
    at_zero = Attention(Merged.of(jnp.zeros(heads), jnp.zeros((heads, 4, 4))))
    v, U = theory.merged_minimum_point(task, np.ones(heads))
    at_minimum = Attention(Merged.of(jnp.asarray(v), jnp.asarray(U)))
    name = "distance of the losses found from the two predicted"
    yield Check(name, 0.0, distance.max(), 1e-9, scale=saddles.loss)
    yield Check("losses reached", np.sort(losses), np.sort(found.distinct_losses()), 1e-9)
    yield lab.equal(
        "Hessian index at the saddle, at the minimum",
        (saddles.hessian_index, minima.hessian_index),
        tuple(analysis.hessian_spectrum(exact, m).index for m in (at_zero, at_minimum)),
    )
    measured = analysis.hessian_spectrum(exact, at_minimum).nullity
    yield lab.equal("Hessian nullity at the minimum", minima.hessian_nullity, measured)


def require_converged(restarts: analysis.StationaryPoints) -> None:
    """Refuses restarts of which more than one in ten did not end at a stationary point: those say
    nothing, and what they missed is not known."""
    if len(restarts.losses) < 0.9 * restarts.started:
        raise Inconclusive(f"too few restarts converged: {restarts.words}")


@claim_on_run(
    "linear/white-sigmoid",
    "For white inputs the predictor is σ(t) βᵀx_q with σ(t) a rescaled sigmoid in closed form.",
    source="Eq. 10",
    tier="smoke",
    on=lambda lab: Given.study(lab, white_config(), WEIGHTS, strength_at_start=1e-4),
    tolerance_reason="""The solver runs at a relative tolerance of 1e-9 a step, and errors grow by
    at most the width of the sigmoid; 1e-7 of the final σ leaves room for that.""",
    needs=(*MERGED, population, learnable, scheme("identity"), white, round_prior),
    tolerance_on_any_run="""A closed form against a solver at a relative tolerance of 1e-8 a step or
    better; errors grow by at most the width of the sigmoid. 1e-6 of the final σ and of the loss at
    the start.""",
    figures=("linear/white",),
)
def white_sigmoid(given: Given, lab: Lab) -> Checks:
    """σ(t) from the weights of a run, and the loss, over the whole time course."""
    task, run, normaliser = given.task, given.run, normaliser_of(given)
    first, dim = run.at(0), given.task.dim
    found = theory.white_initial_strength(task, first.circuits.v, first.circuits.U, normaliser)
    start = float(lab.predict(found))
    sigma = theory.white_strength(task, run.times, start, normaliser)
    loss = theory.white_loss(task, run.times, start, normaliser)
    matrices = run.coefficients()
    measured = np.trace(matrices, axis1=1, axis2=2) / dim
    best = float(np.trace(theory.optimal_matrix(task, normaliser))) / dim
    near = given.tolerance(1e-7, lambda: 1e-6 * best)
    allowed = given.tolerance(1e-7, lambda: require_moved_loss(given, 1e-6 * float(run.losses[0])))
    yield Check(f"σ(t) at {len(run)} times", sigma, measured, near)
    yield Check(f"loss at {len(run)} times", loss, run.losses, allowed)
    if given.own:
        off = np.abs(matrices - measured[:, None, None] * np.eye(dim)).max()
        yield lab.close("A(t) − σ(t) I", 0.0, off, 1e-9, scale=best)


@claim(
    "linear/white-random-starts",
    """For white inputs and small random weights A = σ(t) I, σ(t) the closed form of Eq. 10 shifted
    in time by ln(w²_init/Σp²)/2√D, p_h being the growing part of head h.""",
    source="Eq. 10; Appendix D.5 (as cited there); shift derived in docs/theory/linear.md",
    tolerance_reason="""The closed form is the limit of small weights. What does not grow is of the
    order of s² in A, and of s when it is multiplied by a grown part: 1e-3 at s = 1e-4.""",
    figures=("linear/white",),
)
def white_random_starts(lab: Lab) -> Checks:
    """σ(t), what is left of A beside it, and the shift, for random starts of three sizes."""
    scales, seeds = (1e-3, 1e-4, 1e-6), lab.scaled(4, 16, 64)
    lab.note(**white_settings(), heads=8, scales=scales, seeds=seeds)
    task, bend = white_task(), float(lab.predict(1.0))
    best = float(np.trace(theory.optimal_matrix(task))) / 4
    off, errors, shifts, predicted = ([[] for _ in scales] for _ in range(4))
    for i, scale in enumerate(scales):
        for run in white_seeds(lab, scale, seeds):
            first, matrices = run.at(0).circuits, run.coefficients()
            sigma = np.trace(matrices, axis1=1, axis2=2) / 4
            off[i].append(np.abs(matrices - sigma[:, None, None] * np.eye(4)).max() / best)
            start = theory.white_initial_strength(task, first.v, first.U)
            closed = theory.white_strength(task, run.times, start * bend)
            errors[i].append(np.abs(closed - sigma).max() / best)
            # Eq. 10 itself has w_init² = Σv² in the place of Σp²: compared half-way.
            squares = float(np.sum(np.square(first.v)))
            half = np.interp(best / 2, sigma, run.times)
            by_paper = np.interp(
                best / 2, theory.white_strength(task, run.times, squares / 2), run.times
            )
            shifts[i].append(half - by_paper)
            predicted[i].append(np.log(squares / (2 * start)) / 4)
    for i, scale in enumerate(scales[1:], 1):
        yield lab.close(f"A − σI at s = {scale:g}", 0.0, max(off[i]), 1e-3, scale=1.0)
        yield Check(f"error of σ(t) at s = {scale:g}", 0.0, max(errors[i]), 1e-3, scale=1.0)
    medians = [float(np.median(each)) for each in off]
    falls = [small < large for large, small in zip(medians, medians[1:])]
    yield lab.equal("A − σI falls with s, medians", [True] * 2, falls)
    # A share of the time √D/2 in which σ grows by a factor of e.
    yield lab.close("shift at s = 1e-6, every seed", predicted[-1], shifts[-1], 2e-3, scale=0.25)


def _drop_time(given: Given, run: Trajectory) -> float:
    """The predicted drop time of merged attention, if the run goes on for as long again."""
    v, U = run.models.circuits.v[0], run.models.circuits.U[0]
    time = theory.drop_time(given.task, v, U, normaliser=normaliser_of(given))
    end = float(run.times[-1])
    if run.result.name != "converged" and end < 2 * time:
        raise Inconclusive(f"the drop is predicted at {time:.4g}, and the run ends at {end:.4g}")
    return time


def _small_seeds(lab: Lab) -> Given:
    seeds = lab.scaled(4, 16, 64)
    lab.note(**FOUR, heads=8, scale=1e-4, seeds=seeds)
    return merged_seeds(lab, 1e-4, seeds)


@claim_on_run(
    "linear/single-drop",
    "From small weights, merged attention stays on one plateau and then drops once.",
    source="Section 3.3; Figure 1",
    on=_small_seeds,
    tolerance_reason="A count of plateaus; every seed must agree.",
    needs=(*MERGED, population, learnable, small(0.05)),
    tolerance_on_any_run="A count of drops of the loss curve.",
    figures=("linear/merged",),
)
def single_drop(given: Given, lab: Lab) -> Checks:
    """Plateaus, or quick drops, of the loss curve, found without any help from theory."""
    if given.own:
        before_end = [len(analysis.plateaus(run)) - 1 for run in given.runs]
        name = "plateaus before the final one, every seed"
        yield lab.equal(name, [1] * len(before_end), before_end)
    else:
        # A run of others may begin where its loss already falls: its plateaus say less.
        _drop_time(given, given.run)
        yield lab.equal("drops", 1, analysis.drop_count(given.run))


@claim_on_run(
    "linear/merged-drop-time",
    """The time of the single drop follows from the initial weights alone: it is (ln 1/Σp² + K)/2g
    with g = ‖ΛMΛ‖ and a constant K of the task.""",
    source="beyond the paper; derived in docs/theory/linear.md",
    tolerance_reason="""The formula is the limit of small weights; its error falls in proportion to
    the weights: 2e-5 of the drop time was measured at 1e-4 and is allowed five times over.""",
    on=_small_seeds,
    needs=(*MERGED, population, learnable, small(0.01)),
    tolerance_on_any_run="""The formula is the limit of small weights, and its error falls in
    proportion to them: up to 0.3 % of the drop time at 0.01 of the learned size, over tasks with
    two to six components; 1 % leaves room for three times that.""",
    figures=("linear/merged-drop-times",),
)
def merged_drop_time(given: Given, lab: Lab) -> Checks:
    """Half-drop times from the weights at t = 0, against the formula."""
    levels = [loss_at_zero(given), theory.optimal_loss(given.task, normaliser_of(given))]
    predicted = given.each(lambda run: _drop_time(given, run))
    measured = given.each(lambda run: analysis.drop_times(run, levels=levels)[0])
    name = "half-drop times" if given.own else "half-drop time"
    yield lab.relative(name, predicted, measured, given.tolerance(1e-4, 0.01))


@claim_on_run(
    "linear/merged-reduced-flow",
    """For a general covariance, the whole loss curve of balanced merged attention follows from a
    reduced equation for A alone.""",
    source="beyond the paper; derived in docs/theory/linear.md",
    on=lambda lab: Given.study(lab, study("linear/balanced"), weights=6),
    tolerance_reason="""Two solvers at relative tolerances of 1e-9 and 1e-11 on different equations;
    errors grow by the factor e over the drop.""",
    needs=(*MERGED, population, learnable, not_large, scheme("balanced", "identity")),
    tolerance_on_any_run="""Two solvers at relative tolerances of 1e-8 and better on two equations;
    errors grow by the factor e over the drop. 1e-6 of the loss at the start.""",
)
def merged_reduced_flow(given: Given, lab: Lab) -> Checks:
    """The whole loss curve against one matrix equation."""
    run, first = given.run, given.run.at(0)
    start = theory.reduced_start(first.circuits.v, first.circuits.U)
    bent, normaliser = start.matrix * lab.predict(1.0), normaliser_of(given)
    predicted = theory.reduced_flow(given.task, run.times, bent, start.imbalance, normaliser)
    allowed = given.tolerance(1e-6, lambda: require_moved_loss(given, 1e-6 * float(run.losses[0])))
    yield Check(f"loss at {len(run)} times", predicted.loss, run.losses, allowed)


@claim_on_run(
    "linear/merged-conservation",
    "Gradient flow of merged attention conserves the whole matrix v_i v_j − ⟨U_i, U_j⟩.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tier="smoke",
    on=lambda lab: Given.study(lab, merged_config(), WEIGHTS),
    tolerance_reason="""The solver's relative tolerance is 1e-9 a step; over about 500 steps the
    drift stays below 1e-7 of the largest weight squared, which is about 10.""",
    needs=MERGED,
    tolerance_on_any_run=DRIFT_REASON,
)
def merged_conservation(given: Given, lab: Lab) -> Checks:
    """The conserved matrix at the start and at the end of the run."""

    def conserved(model: Attention[Merged]) -> dict[str, np.ndarray]:
        return {"conserved matrix": theory.merged_conserved(model.circuits.v, model.circuits.U)}

    return check_conserved(given, lab, conserved)
