"""Claims of arXiv 2501.16265 on attention with a merged key-query matrix."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import analysis, theory
from ..flows import Linear, gradient_flow
from ..models import MergedKQ
from ..risks import risk
from ._base import Check
from ._lab import Lab
from ._linear_runs import (
    FOUR,
    four_components,
    merged_ensemble,
    merged_run,
    white_run,
    white_settings,
    white_task,
)
from ._registry import claim


@claim(
    "linear/merged-two-stationary-sets",
    "The loss of merged attention has exactly two sets of stationary points: a saddle of index H "
    "at the loss of predicting zero, and the global minimum.",
    source="Section 3.2",
    tolerance_reason="Newton's method stops at a gradient below 1e-10; the loss is then exact to "
    "the square of that over the curvature. Counts and indices are exact. A few restarts, at most "
    "one in ten, may be caught where the gradient is small but not zero.",
    figures=("linear/landscape-merged",),
)
def merged_two_stationary_sets(lab: Lab) -> list[Check]:
    """Random restarts of a root finder on the gradient, and Hessians at what they find."""
    task, heads = four_components(), 3
    saddles, minima = theory.merged_stationary_sets(task, heads)
    template = MergedKQ.init(jr.key(0), 4, heads, 1.0)
    exact = risk(task, template)
    found = merged_restarts(lab, heads)
    lab.note(**FOUR, heads=heads, restarts=found.words)
    losses = lab.predict(np.array([minima.loss, saddles.loss]))
    distance = np.min(np.abs(found.losses[:, None] - losses), axis=1)
    at_zero = MergedKQ(v=jnp.zeros(heads), U=jnp.zeros((heads, 4, 4)))
    v, U = theory.merged_minimum_point(task, np.ones(heads))
    at_minimum = MergedKQ(v=jnp.asarray(v), U=jnp.asarray(U))
    return [
        Check("distance of the losses found from the two predicted", 0.0, distance.max(), 1e-9),
        Check("losses reached", np.sort(losses), np.sort(found.distinct_losses()), 1e-9),
        Check(
            "Hessian index at the saddle, at the minimum",
            lab.predict((saddles.hessian_index, minima.hessian_index), wrong=(heads + 1, 1)),
            tuple(analysis.hessian_spectrum(exact, m).index for m in (at_zero, at_minimum)),
            comparison="equal",
        ),
        Check(
            "Hessian nullity at the minimum",
            lab.predict(minima.hessian_nullity, wrong=minima.hessian_nullity + 1),
            analysis.hessian_spectrum(exact, at_minimum).nullity,
            comparison="equal",
        ),
        enough_converged(lab, found),
    ]


def enough_converged(lab: Lab, restarts: analysis.StationaryPoints) -> Check:
    """That nearly all restarts ended at a stationary point: those that did not tell nothing."""
    share = len(restarts.losses) / restarts.started
    name = f"share of restarts that converged ({restarts.words})"
    return Check(name, lab.predict(0.9, wrong=1.01), share, comparison="at least")


def merged_restarts(lab: Lab, heads: int = 3) -> analysis.StationaryPoints:
    """Stationary points found from random weights, with no help from theory."""
    count, template = lab.scaled(20, 60, 400), MergedKQ.init(jr.key(0), 4, heads, 1.0)
    return lab.once(
        f"merged restarts {count} {heads}",
        lambda: analysis.find_stationary_points(
            risk(four_components(), template), template, count, jr.key(4)
        ),
    )


@claim(
    "linear/white-sigmoid",
    "For white inputs the predictor is σ(t) βᵀx_q with σ(t) a rescaled sigmoid in closed form.",
    source="Section 3.3, closed form of σ(t)",
    tier="smoke",
    tolerance_reason="The solver runs at a relative tolerance of 1e-9 a step, and errors grow by "
    "at most the width of the sigmoid; 1e-7 of the final σ leaves room for that.",
    figures=("linear/white",),
)
def white_sigmoid(lab: Lab) -> list[Check]:
    """σ(t) from the weights of a simulated run, over the whole time course."""
    run, task = white_run(lab), white_task()
    lab.note(**white_settings(), heads=8, strength_at_start=1e-4)
    matrices = run.coefficients()
    measured = np.trace(matrices, axis1=1, axis2=2) / 4
    start = lab.predict(1e-4)
    sigma = theory.white_strength(task, run.times, start)
    loss = theory.white_loss(task, run.times, start)
    off = np.abs(matrices - measured[:, None, None] * np.eye(4)).max()
    return [
        Check("σ(t) at 400 times", sigma, measured, 1e-7),
        Check("loss at 400 times", loss, run.losses, 1e-7),
        Check("A(t) − σ(t) I", lab.predict(0.0, wrong=1e-3), off, 1e-9),
    ]


@claim(
    "linear/single-drop",
    "From small weights, merged attention stays on one plateau and then drops once.",
    source="Section 3.3; Figure 1",
    tolerance_reason="A count of plateaus; every seed must agree.",
    figures=("linear/merged",),
)
def single_drop(lab: Lab) -> list[Check]:
    """Plateaus found on the loss curves, without any help from theory."""
    seeds = lab.scaled(4, 16, 64)
    runs = merged_ensemble(lab, 1e-4, seeds)
    lab.note(**FOUR, heads=8, scale=1e-4, seeds=seeds)
    before_end = [len(analysis.plateaus(run)) - 1 for run in runs]
    return [
        Check(
            "plateaus before the final one, every seed",
            lab.predict([1] * seeds, wrong=[2] * seeds),
            before_end,
            comparison="equal",
        )
    ]


@claim(
    "linear/merged-drop-time",
    "The time of the single drop follows from the initial weights alone: it is "
    "(ln 1/Σp² + K)/2g with g = ‖ΛMΛ‖ and a constant K of the task.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tolerance_reason="The formula is the limit of small weights; its error falls in proportion to "
    "the weights: 2e-5 of the drop time was measured at 1e-4 and is allowed five times over.",
    figures=("linear/merged-drop-times",),
)
def merged_drop_time(lab: Lab) -> list[Check]:
    """Half-drop times of many seeds against the formula."""
    seeds = lab.scaled(4, 16, 64)
    task, runs = four_components(), merged_ensemble(lab, 1e-4, seeds)
    lab.note(**FOUR, heads=8, scale=1e-4, seeds=seeds)
    levels = theory.plateau_losses(task)[[0, -1]]
    predicted = [theory.drop_time(task, run.models.v[0], run.models.U[0]) for run in runs]
    measured = [analysis.drop_times(run, levels=levels)[0] for run in runs]
    return [Check("half-drop times", lab.predict(predicted), measured, 1e-4, "relative")]


@claim(
    "linear/merged-reduced-flow",
    "For a general covariance, the whole loss curve of balanced merged attention follows from a "
    "reduced equation for A alone.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tolerance_reason="Two solvers at relative tolerances of 1e-9 and 1e-11 on different "
    "equations; errors grow by the factor e over the drop.",
)
def merged_reduced_flow(lab: Lab) -> list[Check]:
    """Five balanced heads against one matrix equation."""
    task = four_components(noise=0.1)
    model = MergedKQ.init(jr.key(6), 4, 5, 0.05, "balanced")
    lab.note(**FOUR, noise=0.1, heads=5, scale=0.05, scheme="balanced")
    run = gradient_flow(model, risk(task, model), end=60.0, save=Linear(121))
    start = theory.reduced_start(model.v, model.U)
    predicted = theory.reduced_flow(
        task, run.times, start.matrix * lab.predict(1.0), start.imbalance
    )
    return [Check("loss at 121 times", predicted.loss, run.losses, 1e-6)]


@claim(
    "linear/merged-conservation",
    "Gradient flow of merged attention conserves the whole matrix v_i v_j − ⟨U_i, U_j⟩.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tier="smoke",
    tolerance_reason="The solver's relative tolerance is 1e-9 a step; over about 500 steps the "
    "drift stays below 1e-7 of the largest weight squared, which is about 10.",
)
def merged_conservation(lab: Lab) -> list[Check]:
    """The matrix at the start and at the end of a run."""
    run = merged_run(lab)
    lab.note(**FOUR, heads=8, scale=1e-3)
    before, after = (theory.merged_conserved(run.models.v[i], run.models.U[i]) for i in (0, -1))
    wrong = before + 0.03 * np.sum(run.models.v[-1] ** 2)
    return [Check("conserved matrix", lab.predict(before, wrong=wrong), after, 1e-6)]
