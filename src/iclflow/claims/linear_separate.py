"""Claims of arXiv 2501.16265 on attention with separate keys and queries: what it can rest at."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import analysis, theory
from ..flows import gradient_flow_ensemble, init_many
from ..models import SeparateKQ
from ..risks import risk
from ._base import Check
from ._lab import Lab
from ._linear_runs import FOUR, four_components, separate_model, separate_run
from ._registry import claim
from .linear_merged import enough_converged


@claim(
    "linear/stationary-points",
    "The loss of separate attention has 2^D stationary functions, one for every subset of "
    "eigenvectors, and no others.",
    source="Section 4.2",
    tolerance_reason="The gradient vanishes to rounding at the predicted weights; the root finder "
    "stops at a gradient of 1e-10, and A is then off by that over the smallest curvature. A few "
    "restarts, at most one in ten, are caught where the gradient is small but not zero.",
    figures=("linear/landscape-separate",),
)
def separate_stationary_points(lab: Lab) -> list[Check]:
    """All subsets enumerated, and random restarts that must land on one of them."""
    task, heads = four_components(), 4
    points = theory.stationary_points(task, heads)
    template = separate_model(1.0)
    exact = risk(task, template)
    restarts = separate_restarts(lab)
    lab.note(**FOUR, heads=heads, rank=1, restarts=restarts.words)
    bend = lab.predict(1.0)
    gradients = [_gradient_size(exact, _model(point, bend)) for point in points if point.components]
    predicted = np.array([point.loss for point in points])
    matrices = lab.predict(np.array([point.matrix for point in points]))
    found = np.array([m.coefficients() for m in restarts.distinct_functions()])
    distance = np.abs(found[:, None] - matrices).max((2, 3)).min(1)
    at_rest = [p.matrix for p, size in zip(points[1:], gradients) if size < 1e-12]
    distinct = 1 + len({tuple(np.round(matrix, 6).ravel()) for matrix in at_rest})
    return [
        Check("functions at which the gradient vanishes", 2**4, distinct, comparison="equal"),
        Check("largest gradient at a predicted point", 0.0, max(gradients), 1e-12),
        Check(
            "loss at the predicted weights", lab.predict(predicted), _losses(exact, points), 1e-12
        ),
        Check("distance of a restart's A from the nearest predicted", 0.0, distance.max(), 1e-6),
        enough_converged(lab, restarts),
    ]


def separate_restarts(lab: Lab) -> analysis.StationaryPoints:
    """Stationary points found from random weights, with no help from theory."""
    count, template = lab.scaled(20, 100, 600), separate_model(1.0)
    return lab.once(
        f"separate restarts {count}",
        lambda: analysis.find_stationary_points(
            risk(four_components(), template), template, count, jr.key(4)
        ),
    )


@claim(
    "linear/hessian-index",
    "The Hessian index of every saddle counts inversions: pairs of a learned and an unlearned "
    "component of which the unlearned is the larger.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tolerance_reason="Integers: they agree or they do not.",
    figures=("linear/landscape-separate",),
)
def hessian_index(lab: Lab) -> list[Check]:
    """Negative eigenvalues of the Hessian by automatic differentiation at all 16 saddles."""
    task = four_components()
    points = theory.stationary_points(task, 4)
    exact = risk(task, separate_model(1.0))
    lab.note(**FOUR, heads=4, rank=1)
    measured = [analysis.hessian_spectrum(exact, _model(point)).index for point in points]
    indices = [point.index for point in points]
    ordered = [m for m, point in zip(measured, points) if _is_ordered(point)]
    return [
        Check(
            "index of each of the 16 points",
            lab.predict(indices, wrong=[i + (i > 0) for i in indices]),
            measured,
            comparison="equal",
        ),
        Check(
            "index of the saddles that training visits",
            lab.predict([0] * 5, wrong=[1] * 5),
            ordered,
            comparison="equal",
        ),
    ]


@claim(
    "linear/plateau-losses",
    "On the way the loss rests at tr Λ − Σ_{d≤m} λ_d (1 + (1 + tr Λ/λ_d)/N)⁻¹, m = 0, …, D.",
    source="Eq. 19; Figure 3",
    tier="smoke",
    tolerance_reason="A plateau is left by a head that grows as a power of time, so its mean loss "
    "is off by the order of the initial weights cubed; 1e-4 is 0.05 % of the smallest step.",
    figures=("linear/staircase",),
)
def plateau_losses(lab: Lab) -> list[Check]:
    """Plateaus found on the curve without any help from theory."""
    task, run = four_components(), separate_run(lab, 1e-3)
    lab.note(**FOUR, heads=4, scale=1e-3)
    measured = [plateau.level for plateau in analysis.plateaus(run)]
    return [Check("levels", lab.predict(theory.plateau_losses(task)), measured, 1e-4)]


@claim(
    "linear/fewer-heads",
    "With fewer heads than components learning stops at the plateau of the first HR components.",
    source="Section 4; beyond the paper for rank R",
    tolerance_reason="Runs stop within 1e-6 of the way down to the smallest loss that their rank "
    "allows; 2e-6 covers that.",
    figures=("linear/heads",),
)
def fewer_heads(lab: Lab) -> list[Check]:
    """Final losses for several numbers of heads and ranks."""
    seeds = lab.scaled(2, 6, 20)
    task = four_components()
    lab.note(**FOUR, shapes=HEAD_SHAPES, seeds=seeds, scale=0.01)
    predicted = lab.predict(np.array([theory.final_loss(task, h, r) for h, r in HEAD_SHAPES]))
    measured = np.array([head_losses(lab, h, r, seeds) for h, r in HEAD_SHAPES])
    return [
        Check(f"H = {h}, R = {r}", np.full(seeds, p), m, 2e-6)
        for (h, r), p, m in zip(HEAD_SHAPES, predicted, measured)
    ]


HEAD_SHAPES = ((1, 1), (2, 1), (3, 1), (1, 2), (1, 3))


def head_losses(lab: Lab, heads: int, rank: int, seeds: int) -> np.ndarray:
    """Where runs from small weights are after a long time."""

    def compute():
        models = init_many(
            SeparateKQ.init, jr.split(jr.key(9), seeds), dim=4, heads=heads, rank=rank, scale=0.01
        )
        return gradient_flow_ensemble(models, risk(four_components(), models)).final_losses

    return lab.once(f"heads {heads} {rank} {seeds}", compute)


@claim(
    "linear/separate-conservation",
    "Gradient flow of separate attention conserves KᵀK − QᵀQ and v² − ‖K‖² in every head.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tier="smoke",
    tolerance_reason="The solver's relative tolerance is 1e-9 a step; over a few thousand steps "
    "the drift stays below 1e-6 of weights of order one.",
)
def separate_conservation(lab: Lab) -> list[Check]:
    """The conserved quantities at the start and at the end of a run."""
    run = separate_run(lab)
    lab.note(**FOUR, heads=4, scale=1e-2)
    first, last = (run.at(0), run.at(-1))
    before, after = (theory.separate_conserved(m.v, m.K, m.Q) for m in (first, last))
    return [
        Check("KᵀK − QᵀQ", lab.predict(before[0], wrong=before[0] + 0.03), after[0], 1e-6),
        Check("v² − ‖K‖²", lab.predict(before[1], wrong=before[1] + 0.03), after[1], 1e-6),
    ]


def _model(point, bend: float = 1.0) -> SeparateKQ:
    return SeparateKQ(v=jnp.asarray(point.v * bend), K=jnp.asarray(point.K), Q=jnp.asarray(point.Q))


def _losses(exact, points) -> np.ndarray:
    return np.array([float(exact(_model(point))) for point in points])


def _gradient_size(exact, model) -> float:
    gradient = exact.gradient(model)
    return float(max(jnp.max(jnp.abs(g)) for g in (gradient.v, gradient.K, gradient.Q)))


def _is_ordered(point) -> bool:
    return point.components == tuple(range(len(point.components)))
