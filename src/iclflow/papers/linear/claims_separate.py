"""Claims of arXiv 2501.16265 on attention with separate keys and queries: what it can rest at."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from ... import analysis, theory
from ...models import Attention, Separate
from ...risks import risk
from .. import Check, Checks, Given, Inconclusive, Lab, claim, claim_on_run
from .._needs import population
from .checks_limits import DRIFT_REASON, allowed_at_end, check_conserved, normaliser_of
from .checks_steps import find_rests
from .claims_merged import require_converged
from .needs import GENERIC, SEPARATE, alignable, few_heads, learnable, same_orders, small
from .runs import (
    FOUR,
    HEAD_SHAPES,
    WEIGHTS,
    few_heads_seeds,
    four_components,
    separate_model,
    separate_restarts,
    staircase_config,
)


@claim(
    "linear/stationary-points",
    """The loss of separate attention has 2^D stationary functions, one for every subset of
    eigenvectors, and no others.""",
    source="Section 4.2",
    tolerance_reason="""The gradient vanishes to rounding at the predicted weights; the root finder
    stops at a gradient of 1e-10, and A is then off by that over the smallest curvature.""",
    figures=("linear/landscape-separate",),
)
def separate_stationary_points(lab: Lab) -> Checks:
    """All subsets enumerated, and random restarts that must land on one of them."""
    task, heads = four_components(), 4
    points = theory.stationary_points(task, heads)
    template = separate_model(1.0)
    exact = risk(task, template)
    restarts = separate_restarts(lab)
    require_converged(restarts)
    lab.note(**FOUR, heads=heads, rank=1, restarts=restarts.words)
    bend = lab.predict(1.0)  # of the values: the gradient vanishes at the right ones alone
    gradients = [_gradient_size(exact, _model(point, bend)) for point in points if point.components]
    predicted = np.array([point.loss for point in points])
    matrices = lab.predict(np.array([point.matrix for point in points]))
    found = np.array([m.coefficients() for m in restarts.distinct_functions()])
    distance = np.abs(found[:, None] - matrices).max((2, 3)).min(1)
    # Zero, the first point, is always stationary. The others differ by far more than 1e-6.
    at_rest = [p.matrix for p, size in zip(points[1:], gradients) if size < 1e-12]
    distinct = 1 + len({tuple(np.round(matrix, 6).ravel()) for matrix in at_rest})
    yield Check("functions at which the gradient vanishes", 2**4, distinct, comparison="equal")
    # Slopes of the loss in weights of order one.
    yield Check("largest gradient at a predicted point", 0.0, max(gradients), 1e-12, scale=1.0)
    yield lab.close("loss at the predicted weights", predicted, _losses(exact, points), 1e-12)
    name = "distance of a restart's A from the nearest predicted"
    yield Check(name, 0.0, distance.max(), 1e-6, scale=1.0)


@claim(
    "linear/hessian-index",
    """The Hessian index of every saddle counts inversions: pairs of a learned and an unlearned
    component of which the unlearned is the larger.""",
    source="beyond the paper; derived in docs/theory/linear.md",
    tolerance_reason="Integers: they agree or they do not.",
    figures=("linear/landscape-separate",),
)
def hessian_index(lab: Lab) -> Checks:
    """Negative eigenvalues of the Hessian by automatic differentiation at all 16 saddles."""
    task = four_components()
    points = theory.stationary_points(task, 4)
    exact = risk(task, separate_model(1.0))
    lab.note(**FOUR, heads=4, rank=1)
    measured = [analysis.hessian_spectrum(exact, _model(point)).index for point in points]
    indices = [point.index for point in points]
    ordered = [m for m, point in zip(measured, points) if _is_ordered(point)]
    yield lab.equal("index of each of the 16 points", indices, measured)
    yield lab.equal("index of the saddles that training visits", [0] * 5, ordered)


def _own_staircase(lab: Lab) -> Given:
    lab.note(**FOUR, heads=4, scale=1e-3)
    config = staircase_config(1e-3)
    return Given(config, four_components(), lab.run(config, WEIGHTS), own=True)


@claim_on_run(
    "linear/plateau-losses",
    "On the way the loss rests at tr Λ − Σ_{d≤m} λ_d (1 + (1 + tr Λ/λ_d)/N)⁻¹, m = 0, …, D.",
    source="Eq. 19; Figure 3",
    tier="smoke",
    on=_own_staircase,
    tolerance_reason="""A plateau is left by a head that grows as a power of time, so its mean loss
    is off by the order of the initial weights cubed; 1e-4 is 0.05 % of the smallest step.""",
    needs=(*GENERIC, population, learnable, same_orders, small(0.1), alignable),
    tolerance_on_any_run="""On a rest of r durations of the next drop the head that grows next has
    moved the loss by (2/r)³ of that drop half-way, 0.8 % at r = 10, and less at the slowest moment:
    rests from 10 on count, and must be within 1 % of the smaller step beside them. What heads have
    of other components must have decayed by a factor of e² meanwhile: it costs its square.""",
    figures=("linear/staircase",),
)
def plateau_losses(given: Given, lab: Lab) -> Checks:
    """The levels of plateaus found without help from theory: all of them in the claim's own run,
    in any other each long one beside the nearest predicted."""
    if given.own:
        measured = [plateau.level for plateau in analysis.plateaus(given.run)]
        yield lab.close("levels", theory.plateau_losses(given.task), measured, 1e-4)
        return
    levels, resting = find_rests(given, relaxed=2.0)
    if not any(number for number, _ in resting):
        raise Inconclusive("the loss has rested at its start alone, where every run begins")
    bent = np.asarray(lab.predict(levels))
    steps = -np.diff(levels)
    errors = []
    for number, rest in resting:
        step = steps[max(number - 1, 0) : number + 1].min()
        errors.append(float(np.min(np.abs(rest.level - bent)) / step))
    name = f"distance of {len(errors)} rests from predicted levels, over the step beside them"
    yield Check(name, np.zeros(len(errors)), errors, 0.01, scale=1.0)


def _own_few_heads(lab: Lab) -> Iterator[Given]:
    seeds = lab.scaled(2, 6, 20)
    lab.note(**FOUR, shapes=HEAD_SHAPES, seeds=seeds, scale=0.01)
    for heads, rank in HEAD_SHAPES:
        yield few_heads_seeds(lab, heads, rank, seeds)


@claim_on_run(
    "linear/fewer-heads",
    "With fewer heads than components learning stops at the plateau of the first HR components.",
    source="Section 4; beyond the paper for rank R",
    on=_own_few_heads,
    tolerance_reason="""Runs stop within 1e-6 of the way down to the smallest loss that their rank
    allows; 2e-6 covers that.""",
    needs=(*GENERIC, few_heads, population, learnable, same_orders, small(0.1)),
    tolerance_on_any_run="""The run stops within `flow.tolerance` of the way down to the smallest
    loss that its rank allows; twice that is allowed.""",
    figures=("linear/heads",),
)
def fewer_heads(given: Given, lab: Lab) -> Checks:
    """The loss at the end, for several numbers of heads and ranks."""
    heads, rank = given.config.model.heads, given.config.model.widest_rank
    last = theory.final_loss(given.task, heads, rank, normaliser_of(given))
    measured = np.asarray(given.each(lambda run: run.losses[-1]))
    allowed = given.tolerance(2e-6, lambda: allowed_at_end(given, last))
    name = f"H = {heads}, R = {rank}" if given.own else "final loss"
    yield lab.close(name, np.full(measured.shape, last), measured, allowed)


@claim_on_run(
    "linear/separate-conservation",
    "Gradient flow of separate attention conserves KᵀK − QᵀQ and v² − ‖K‖² in every head.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tier="smoke",
    on=lambda lab: Given.study(lab, staircase_config(), WEIGHTS),
    tolerance_reason="""The solver's relative tolerance is 1e-9 a step; over a few thousand steps
    the drift stays below 1e-6 of weights of order one.""",
    needs=SEPARATE,
    tolerance_on_any_run=DRIFT_REASON,
)
def separate_conservation(given: Given, lab: Lab) -> Checks:
    """What every head conserves, at the start and at the end of the run."""

    def conserved(model: Attention[Separate]) -> dict[str, np.ndarray]:
        weights = model.circuits.v, model.circuits.K, model.circuits.Q
        return dict(zip(("KᵀK − QᵀQ", "v² − ‖K‖²"), theory.separate_conserved(*weights)))

    return check_conserved(given, lab, conserved)


def _model(point, bend: float = 1.0) -> Attention:
    return Attention(
        Separate.of(jnp.asarray(point.v * bend), jnp.asarray(point.K), jnp.asarray(point.Q))
    )


def _losses(exact, points) -> np.ndarray:
    return np.array([float(exact(_model(point))) for point in points])


def _gradient_size(exact, model) -> float:
    weights = exact.gradient(model).circuits
    return max(float(jnp.max(jnp.abs(each))) for each in (weights.v, weights.K, weights.Q))


def _is_ordered(point) -> bool:
    return point.components == tuple(range(len(point.components)))
