"""Claims of arXiv 2501.16265 on attention with separate keys and queries of rank one."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from .. import analysis, theory
from ..flows import Linear, gradient_descent, gradient_flow, gradient_flow_ensemble, init_many
from ..models import ConvolutionalLinear, FullSeparateKQ, SeparateKQ
from ..risks import dataset_risk, risk
from ..tasks import LinearRegression
from ._base import Check
from ._lab import Lab
from ._linear_runs import four_components, separate_ensemble, separate_model, separate_run
from ._registry import claim
from .linear_merged import with_mirror_images


@claim(
    "linear/separate-network",
    "Separate linear attention and the sum of three-layer convolutional linear networks have the "
    "same loss trajectory, as long as the other blocks of the attention matrices are zero.",
    source="Section 4; Figure 3",
    tier="smoke",
    tolerance_reason="The same function of the same weights, computed by a strided convolution; "
    "only rounding separates them.",
    figures=("linear/staircase",),
)
def separate_network(lab: Lab) -> list[Check]:
    """Full attention of rank 2, all blocks trainable, against convolutions, on one data set."""
    task, model = four_components(), separate_model(0.1, heads=3, rank=2)
    drawn = with_mirror_images(task.sample(jr.key(3), 250))
    attention, network = FullSeparateKQ.embed(model), ConvolutionalLinear.from_attention(model)
    steps = {"learning_rate": 0.2, "steps": 1500}
    lab.note(task="four components", sequences=500, heads=3, rank=2, scale=0.1, **steps)
    simulated = gradient_descent(
        attention, dataset_risk(drawn, attention), **steps, save=Linear(101)
    )
    if lab.falsify:  # one of the networks three per cent too strong
        network = ConvolutionalLinear(
            network.kernel, network.row, network.scalar.at[0].multiply(1.03)
        )
    predicted = gradient_descent(network, dataset_risk(drawn, network), **steps, save=Linear(101))
    return [Check("loss at 101 steps", predicted.losses, simulated.losses, 1e-12)]


@claim(
    "linear/stationary-points",
    "The loss of separate attention has 2^D stationary functions, one for every subset of "
    "eigenvectors, and no others.",
    source="Section 4.2",
    tolerance_reason="The gradient vanishes to rounding at the predicted weights; the root finder "
    "stops at a gradient of 1e-9, and the losses it finds are then exact to about its square.",
    figures=("linear/landscape-separate",),
)
def separate_stationary_points(lab: Lab) -> list[Check]:
    """All subsets enumerated, and random restarts that must land on one of them."""
    task, heads = four_components(), 4
    points = theory.stationary_points(task, heads)
    template = separate_model(1.0)
    exact = risk(task, template)
    restarts = lab.scaled(20, 100, 600)
    lab.note(task="four components", heads=heads, rank=1, restarts=restarts)
    bend = lab.predict(1.0)
    gradients = [_gradient_size(exact, _model(point, bend)) for point in points if point.components]
    predicted = np.array([point.loss for point in points])
    found = lab.once(
        f"separate restarts {restarts}",
        lambda: analysis.find_stationary_points(exact, template, restarts, jr.key(4)),
    )
    distance = np.min(np.abs(found.losses[:, None] - lab.predict(predicted)), axis=1)
    return [
        Check(
            "number of points", lab.predict(2**4, wrong=2**4 - 1), len(points), comparison="equal"
        ),
        Check("largest gradient at a predicted point", 0.0, max(gradients), 1e-12),
        Check(
            "loss at the predicted weights", lab.predict(predicted), _losses(exact, points), 1e-12
        ),
        Check("distance of a restart's loss from the nearest predicted", 0.0, distance.max(), 1e-8),
    ]


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
    lab.note(task="four components", heads=4, rank=1)
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
    lab.note(task="four components", heads=4, scale=1e-3)
    measured = [plateau.level for plateau in analysis.plateaus(run)]
    return [Check("levels", lab.predict(theory.plateau_losses(task)), measured, 1e-4)]


@claim(
    "linear/ordered-drops",
    "From small weights there are exactly D drops, and components are learned in the order of "
    "their eigenvalues.",
    source="Section 4.3; Figure 3",
    tolerance_reason="A share of seeds: all of them at 0.01 and below. At larger weights heads "
    "that start ahead overtake, as the figure shows.",
    figures=("linear/order",),
)
def ordered_drops(lab: Lab) -> list[Check]:
    """The order in which components cross half their final strength, seed by seed."""
    seeds = lab.scaled(10, 40, 200)
    lab.note(task="four components", heads=5, seeds=seeds, scales=ORDER_SCALES)
    shares = order_shares(lab, seeds)
    drops = [
        len(analysis.plateaus(run)) - 1 for run in separate_ensemble(lab, 0.01, seeds, heads=5)
    ]
    order = lab.predict((0, 1, 2, 3), wrong=(1, 0, 2, 3))
    small = [share_in_order(lab, scale, seeds, order) for scale in (0.03, 0.01)]
    return [
        Check("share of seeds in order at 0.03 and 0.01", 1.0, min(small), comparison="at least"),
        Check(
            "share at 0.3 below share at 0.01",
            lab.predict(shares[-1], wrong=-1.0),
            shares[0],
            comparison="at most",
        ),
        Check(
            "median number of drops at 0.01",
            lab.predict(4.0, wrong=5.0),
            float(np.median(drops)),
            comparison="equal",
        ),
    ]


ORDER_SCALES = (0.3, 0.1, 0.03, 0.01)


def share_in_order(lab: Lab, scale: float, seeds: int, order=(0, 1, 2, 3)) -> float:
    """The share of seeds that learn the components in this order."""
    task, runs = four_components(), separate_ensemble(lab, scale, seeds, heads=5)
    return float(np.mean([tuple(analysis.learning_order(run, task)) == order for run in runs]))


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
    stated = [[], [0], [0, 1]]
    return [
        Check(
            "eigenvectors learned on each plateau",
            lab.predict(stated, wrong=[[], [1], [0, 1]]),
            _reversed_visits(lab),
            comparison="equal",
        )
    ]


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
    order = theory.learning_order(_reversed_task())
    predicted = np.array([visit.loss for visit in order.visits])
    levels = [plateau.level for plateau in analysis.plateaus(reversed_run(lab))]
    index = [visit.index for visit in order.visits[1:3]]
    return [
        Check("levels visited", lab.predict(predicted), levels, 1e-3),
        Check(
            "index of the first and of the second saddle",
            lab.predict((1, 0), wrong=(0, 1)),
            tuple(index),
            comparison="equal",
        ),
    ]


def _reversed_task() -> LinearRegression:
    return LinearRegression([1.0, 0.2], 31, prior_covariance=np.diag([0.1, 1.0]))


def reversed_run(lab: Lab):
    """A run on a task whose growth order and gain order disagree."""

    def compute():
        model = SeparateKQ.init(jr.key(0), 2, 3, 1, 1e-4)
        return gradient_flow(model, risk(_reversed_task(), model))

    lab.note(covariance=[1.0, 0.2], prior_covariance=[0.1, 1.0], heads=3, scale=1e-4)
    return lab.once("reversed order", compute)


def _reversed_visits(lab: Lab) -> list[list[int]]:
    """The eigenvectors learned on the plateaus of the reversed run."""
    run, task = reversed_run(lab), _reversed_task()
    middles = [run.model_at((p.start + p.end) / 2) for p in analysis.plateaus(run)]
    return [list(analysis.learned_components(m.coefficients(), task)) for m in middles]


@claim(
    "linear/scalar-ode",
    "On every plateau the growing head obeys the scalar equation "
    "τ dv/dt = λ²v² − λ³(1 + (1 + tr Λ/λ)/N) v⁵, with a closed form for t(v).",
    source="Section 4.3, scalar equation",
    tier="smoke",
    tolerance_reason="Aligned heads decouple exactly; what is left is the solver's tolerance of "
    "1e-9 a step, which shifts each drop by about 1e-8 of its time.",
    figures=("linear/scalar-ode",),
)
def scalar_ode(lab: Lab) -> list[Check]:
    """One aligned head a component: four drops, each on the closed-form curve."""
    task, run, starts = four_components(), aligned_run(lab), ALIGNED_STARTS
    modes = theory.modes(task)
    lab.note(task="four components", heads=4, starts=starts, aligned=True)
    checks = [
        Check(
            "loss of decoupled heads",
            theory.aligned_loss(task, np.array(starts) * lab.predict(1.0), run.times),
            run.losses,
            1e-6,
        )
    ]
    for d, start in enumerate(starts):
        v = np.asarray(run.models.v[:, d])
        growing = (v > 1.05 * start) & (v < 0.99 * np.cbrt(modes.strengths[d]))
        predicted = theory.aligned_time(
            v[growing], start, modes.growth_rates[d] * lab.predict(1.0), modes.strengths[d]
        )
        checks.append(
            Check(f"t(v) of component {d + 1}", predicted, run.times[growing], 1e-6, "relative")
        )
    return checks


ALIGNED_STARTS = (0.01, 0.02, 0.015, 0.03)


def aligned_run(lab: Lab):
    """Four heads, each exactly aligned with one component."""

    def compute():
        v = jnp.asarray(ALIGNED_STARTS)
        weights = (jnp.eye(4) * v)[:, :, None]
        model = SeparateKQ(v=v, K=weights, Q=weights)
        return gradient_flow(model, risk(four_components(), model), end=4500.0)

    return lab.once("aligned heads", compute)


@claim(
    "linear/cascade",
    "All drop times of a four-component staircase follow from the initial weights alone.",
    source="beyond the paper; derived in docs/theory/linear.md",
    tolerance_reason="The cascade is the limit of small weights; 1e-3 at weights of 1e-4 is the "
    "bar, and near-ties of two heads are the worst case.",
    figures=("linear/cascade",),
)
def cascade(lab: Lab) -> list[Check]:
    """Half-drop times of the exact flow from random weights of size 1e-4."""
    seeds = lab.scaled(1, 4, 16)
    predicted, measured = cascade_times(lab, seeds)
    lab.note(task="four components", heads=4, scale=1e-4, seeds=seeds)
    return [Check("drop times", lab.predict(predicted), measured, 1e-3, "relative")]


def cascade_times(lab: Lab, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Predicted and measured drop times, a row a seed."""

    def compute():
        task = four_components()
        models = init_many(SeparateKQ.init, jr.split(jr.key(8), seeds), dim=4, heads=4, scale=1e-4)
        runs = gradient_flow_ensemble(models, risk(task, models), solver="implicit")
        levels = theory.plateau_losses(task)
        predicted = [theory.staircase(task, run.at(0)).drop_times for run in runs]
        measured = [analysis.drop_times(run, levels=levels) for run in runs]
        return np.array(predicted), np.array(measured)

    return lab.once(f"cascade {seeds}", compute)


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
    lab.note(task="four components", shapes=HEAD_SHAPES, seeds=seeds, scale=0.01, end=HEAD_END)
    predicted = np.array([theory.final_loss(task, h, r) for h, r in HEAD_SHAPES])
    measured = np.array([head_losses(lab, h, r, seeds) for h, r in HEAD_SHAPES])
    wrong = np.array([theory.final_loss(task, h + 1, r) for h, r in HEAD_SHAPES])
    predicted = lab.predict(predicted, wrong=wrong)
    return [
        Check(f"H = {h}, R = {r}", np.full(seeds, p), m, 2e-6)
        for (h, r), p, m in zip(HEAD_SHAPES, predicted, measured)
    ]


HEAD_SHAPES = ((1, 1), (2, 1), (3, 1), (1, 2), (1, 3))
HEAD_END = 1e6


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
    lab.note(task="four components", heads=4, scale=1e-2)
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
