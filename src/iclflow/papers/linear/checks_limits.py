"""Tolerances and refusals that the checks of runs of linear attention share."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ... import theory
from ...risks import risk
from .. import Checks, Given, Inconclusive, Lab

# A larger tolerance, as a share of the limit, would not notice a limit that is a few per cent off.
_LOOSEST = 0.01
# Steps below this share of the way down are not looked for. Between two points of a run the loss
# may move by less than this share of the smallest other step: else a level may be passed unseen.
_SEEN, _JUMP = 0.05, 0.8
# A solver errs by its relative tolerance in each step, in the worst case always to the same side.
_STEPS = 1000
# A quantity must have moved by so many tolerances: less cannot tell a prediction from a wrong one.
_MOVED = 100


DRIFT_REASON = (
    "The solver's relative tolerance a step, times 1000 steps that all err to the same side, of "
    "the largest weight squared."
)


def normaliser_of(given: Given):
    return given.config.model.normaliser


def _largest_square(models: Sequence[Any]) -> float:
    """The largest sum of squares of one kind of weights in these models."""
    leaves = (leaf for model in models for leaf in jax.tree.leaves(model))
    return max(float(np.sum(np.square(leaf))) for leaf in leaves)


def check_conserved(
    given: Given, lab: Lab, conserved: Callable[[Any], dict[str, np.ndarray]]
) -> Checks:
    """Checks that quantities are the same at the start and at the end of a run.

    **Arguments:**

    - `conserved`: computes them from a model, by name.
    """
    ends = [given.run.at(i) for i in (0, -1)]
    size = _largest_square(ends)
    allowed = given.tolerance(1e-6, lambda: _allowed_drift(given, size))
    before, after = map(conserved, ends)
    for name, value in before.items():
        # Conserved quantities are differences of squares and may be zero.
        yield lab.close(name, value, after[name], allowed, scale=size)


def _allowed_drift(given: Given, size: float) -> float:
    """The tolerance of conserved quantities, if the weights have moved by much more."""
    allowed = _STEPS * getattr(given.config.flow, "rtol") * size
    before, after = (given.run.at(i) for i in (0, -1))
    change = max(
        abs(float(np.sum(np.square(x)) - np.sum(np.square(y))))
        for x, y in zip(jax.tree.leaves(before), jax.tree.leaves(after))
    )
    if change < _MOVED * allowed:
        raise Inconclusive("the weights have hardly moved: anything would be conserved")
    return allowed


def loss_at_zero(given: Given) -> float:
    """The loss of predicting zero."""
    return float(theory.loss_of_matrix(given.task, np.zeros((given.task.dim,) * 2)))


def allowed_at_end(
    given: Given, last: float, most_left: Callable[[], float] = lambda: np.inf
) -> float:
    """How far above its limit a run that counts as converged may be.

    **Arguments:**

    - `last`: the limit.
    - `most_left`: a bound on the distance, from the last weights, for a run that was stopped.
    """
    run = given.run
    # The same way down as the solver uses: huge weights start far above predicting zero.
    way = min(float(run.losses[0]), loss_at_zero(given)) - last
    tolerance = getattr(given.config.flow, "tolerance")
    allowed = 2 * tolerance * way
    if allowed > _LOOSEST * last:
        raise Inconclusive(
            f"`flow.tolerance` = {tolerance:g} lets the run stop by more than 1 % above its limit"
        )
    if run.result.name != "converged" and not most_left() <= allowed:
        raise Inconclusive(f"the run is not converged: {run.result.name} at {given.end:.4g}")
    # For rounding, in runs that start at their limit.
    return max(allowed, 1e-12 * last)


def require_moved_loss(given: Given, allowed: float) -> float:
    """The tolerance, if the loss has moved by much more. A curve that has not left its start fits
    any prediction; one from a start that is 3 % off differs by 3 % of the way or more."""
    way = float(np.max(np.abs(given.run.losses - given.run.losses[0])))
    if way < _MOVED * allowed:
        raise Inconclusive(f"the loss has moved by {way:.2g}, too little to tell curves apart")
    return allowed


def require_dense(given: Given, steps: np.ndarray) -> None:
    """Refuses a run that keeps too few points to show its drops.

    **Arguments:**

    - `steps`: of the loss, from each level to the next.
    """
    seen = steps[steps >= _SEEN * steps.sum()]
    jump = float(np.max(np.abs(np.diff(given.run.losses)), initial=0.0))
    if seen.size and jump > _JUMP * seen.min():
        raise Inconclusive(
            f"the run keeps too few points: between two of them the loss moves by {jump:.2g}, and "
            f"a step is {seen.min():.2g}"
        )


def least_curvature(given: Given) -> float:
    """κ: the loss is at least κ‖A − A*‖² above that of the best A."""
    spread = theory.correlation_second_moment(given.task, normaliser_of(given))
    inputs = np.asarray(given.task.covariance)
    return float(np.linalg.eigvalsh(spread)[0] * np.linalg.eigvalsh(inputs)[0])


def most_left(given: Given, curvature: float) -> float:
    """A bound on the loss of the last weights above that of the best A, from their gradient.

    With L − L* = tr(ΔᵀSΔΛ) the slope G = 2SΔΛ in A has |G|² ≥ 4κ(L − L*), and that in the weights
    has at least μ|G|²: of merged heads it holds v_h G, of separate ones v_h G Q_h and v_h Gᵀ K_h.
    """
    model = given.run.final
    if given.config.model.kind == "merged":
        stretch = float(np.sum(np.square(model.circuits.v)))
    else:
        sides = (
            np.einsum("h,hdr->dhr", model.circuits.v, np.asarray(w))
            for w in (model.circuits.K, model.circuits.Q)
        )
        least = lambda side: np.linalg.svd(side.reshape(len(side), -1))[1][: len(side)].min()
        stretch = max(float(least(side)) for side in sides) ** 2
    slopes = jax.tree.leaves(risk(given.task, model).gradient(model))
    slope = sum(float(np.sum(np.square(each))) for each in slopes)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.divide(slope, 4 * curvature * stretch))
