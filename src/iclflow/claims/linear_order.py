"""Claims of arXiv 2501.16265 on the order in which components are learned."""

from collections.abc import Iterable, Sequence

import jax.random as jr
import numpy as np

from .. import analysis, theory
from ..flows import gradient_flow
from ..models import AbstractModel, SeparateKQ
from ..risks import risk
from ..tasks import LinearRegression
from ..trajectory import Trajectory
from ._base import Check
from ._lab import Lab
from ._linear_runs import FOUR, four_components, separate_ensemble
from ._registry import claim


@claim(
    "linear/ordered-drops",
    "From small weights there are exactly D drops, and components are learned in the order of "
    "their eigenvalues.",
    source="Section 4.3; Figure 3",
    tolerance_reason="A share of seeds: all of them at 0.03 and at 0.01. At larger weights heads "
    "that start ahead overtake, as the figure shows.",
    figures=("linear/order",),
)
def ordered_drops(lab: Lab) -> list[Check]:
    """The order in which components cross half their final strength, seed by seed."""
    seeds = lab.scaled(10, 40, 200)
    lab.note(**FOUR, heads=5, seeds=seeds, scales=ORDER_SCALES)
    shares = order_shares(lab, seeds)
    runs = separate_ensemble(lab, 0.01, seeds, heads=5)
    drops = [analysis.drop_count(run) for run in runs]
    order = lab.predict((0, 1, 2, 3), wrong=(1, 0, 2, 3))
    small = [share_in_order(lab, scale, seeds, order) for scale in (0.03, 0.01)]
    return [
        Check("share of seeds in order at 0.03 and 0.01", 1.0, min(small), comparison="at least"),
        Check(
            "share at 1 falls short of the share at 0.01 by a fifth",
            lab.predict(shares[-1] - 0.2, wrong=0.2),
            shares[0],
            comparison="at most",
        ),
        Check(
            "drops at 0.01, every seed",
            lab.predict([4] * seeds, wrong=[5] * seeds),
            drops,
            comparison="equal",
        ),
    ]


ORDER_SCALES = (1.0, 0.5, 0.3, 0.1, 0.03, 0.01)


def learning_orders(lab: Lab, scale: float, seeds: int) -> list[tuple[int, ...]]:
    """The order in which each seed learns the components."""
    task, runs = four_components(), separate_ensemble(lab, scale, seeds, heads=5)
    return lab.once(
        f"orders {scale} {seeds}", lambda: [analysis.learning_order(run, task) for run in runs]
    )


def share_in_order(lab: Lab, scale: float, seeds: int, order=(0, 1, 2, 3)) -> float:
    """The share of seeds that learn the components in this order."""
    return float(np.mean([found == order for found in learning_orders(lab, scale, seeds)]))


def order_shares(lab: Lab, seeds: int) -> list[float]:
    """The share of seeds in order at each of the scales."""
    return [share_in_order(lab, scale, seeds) for scale in ORDER_SCALES]


@claim(
    "linear/order-by-eigenvalue",
    "Components are always learned in the order of the eigenvalues of the input covariance.",
    source="Section 4.3",
    tolerance_reason="An order: it is the same or it is not.",
    misstated=True,
    corrected_by="linear/order-by-growth",
)
def order_by_eigenvalue(lab: Lab) -> list[Check]:
    """A task covariance that is not proportional to I turns the order around."""
    lab.note(**REVERSED)
    task, stated = reversed_task(), [(), (0,), (0, 1)]
    visited = [analysis.learned_components(m.coefficients(), task) for m in reversed_saddles(lab)]
    return [
        Check(
            "eigenvectors learned on each plateau, 1 with the largest eigenvalue",
            lab.predict(named(stated), wrong=named([(), (1,), (0, 1)])),
            named(visited),
            comparison="equal",
        )
    ]


def named(sets: Iterable[Sequence[int]]) -> list[str]:
    """Sets of components as figures name them: counted from 1, the empty one visible."""
    return ["{" + ", ".join(str(d + 1) for d in each) + "}" if each else "∅" for each in sets]


@claim(
    "linear/order-by-growth",
    "Heads grow in the order of λ²m, but the loss prefers that of λm: where the two disagree the "
    "first head learns the fast component, turns to the better one, and a second relearns the "
    "first.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tolerance_reason="The levels are those of exact saddles, left by small heads; their order is "
    "exact. 1e-3 is 1 % of the smallest step.",
    figures=("linear/order-by-growth",),
)
def order_by_growth(lab: Lab) -> list[Check]:
    """Λ = diag(1, .2) and E[ww] = diag(.1, 1): the saddles that a run visits."""
    order = theory.learning_order(reversed_task())
    predicted = np.array([visit.loss for visit in order.visits])
    levels = [plateau.level for plateau in analysis.plateaus(reversed_run(lab))]
    middles = reversed_saddles(lab)
    lab.note(**REVERSED)
    index = [visit.index for visit in order.visits[1:3]]
    # Idle heads add curvature of their own size, 1e-4; the strict direction has −0.02.
    exact = risk(reversed_task(), middles[0])
    found = [analysis.hessian_spectrum(exact, m, tolerance=1e-3).index for m in middles[1:3]]
    return [
        Check("levels visited", lab.predict(predicted), levels, 1e-3),
        Check(
            "index of the first and of the second saddle",
            lab.predict(index, wrong=[0, 1]),
            found,
            comparison="equal",
        ),
    ]


REVERSED = {
    "eigenvalues": [1.0, 0.2],
    "context": 31,
    "prior_covariance": [[0.1, 0.0], [0.0, 1.0]],
    "heads": 3,
    "scale": 1e-4,
}


def reversed_task() -> LinearRegression:
    """Λ and E[ww] for which λ²m and λm are in opposite order."""
    names = ("eigenvalues", "context", "prior_covariance")
    return LinearRegression(**{name: REVERSED[name] for name in names})


def reversed_run(lab: Lab) -> Trajectory:
    """A run on a task whose growth order and gain order disagree."""

    def compute():
        model = SeparateKQ.init(jr.key(0), 2, REVERSED["heads"], 1, REVERSED["scale"])
        return gradient_flow(model, risk(reversed_task(), model))

    return lab.once("reversed order", compute)


def reversed_saddles(lab: Lab) -> list[AbstractModel]:
    """The models in the middle of the plateaus of the reversed run."""
    run = reversed_run(lab)
    return [run.model_at((p.start + p.end) / 2) for p in analysis.plateaus(run)]
