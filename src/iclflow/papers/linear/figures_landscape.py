"""Figures of arXiv 2501.16265 on stationary points, and on the order in which they are visited."""

import jax.numpy as jnp
import numpy as np

from ... import analysis, theory
from ...drawing import Drawing
from ...drawing.marks import plot_circles, remark
from ...drawing.style import (
    COLOURS,
    LEVEL,
    THEORY,
    canvas,
    curve_until,
    legend_above,
    level_names,
    levels,
)
from ...flows import SaveEvenly, gradient_flow
from ...models import Attention, Merged
from ...risks import risk
from ...tasks import LinearRegression
from ...trajectory import Trajectory
from .. import Lab, figure
from .figures_staircase import hold_last, strengths
from .runs import (
    FOUR,
    ORDER_SCALES,
    REVERSED,
    four_components,
    merged_model,
    merged_restarts,
    merged_run,
    reversed_run,
    reversed_task,
    separate_restarts,
    share_in_order,
)


@figure(
    "linear/landscape-separate",
    "Separate keys and queries: all 16 stationary points",
    """(a) Loss of every stationary function for D = 4, one for each subset of components,
    named beside it; in each circle the number of negative Hessian eigenvalues. Grey lines
    join subsets that differ in one component. The path of training (orange) visits the
    five that have none: four saddles, which are left algebraically instead of
    exponentially, and the minimum. (b) A root finder on the gradient, started at random,
    ends at these losses (dotted) and at no other; restarts that do not converge, because the
    gradient is small but not zero where they are caught, are counted and left out.""",
)
def landscape_separate(lab: Lab) -> Drawing:
    """All stationary points by number of components and loss, with their Hessian index."""
    points = theory.stationary_points(four_components(), 4)
    found = separate_restarts(lab)
    figure, (panel, counted) = canvas("double", 3.3, 1, 2, sharey=True, width_ratios=[2.6, 1])
    where = {point.components: (_place(point, points), point.loss) for point in points}
    for small, (x, loss) in where.items():
        for large, (x_next, loss_next) in where.items():
            if len(large) == len(small) + 1 and set(small) < set(large):
                panel.plot([x, x_next], [loss, loss_next], color="0.88", lw=0.6, zorder=0)
    ordered = [where[tuple(range(m))] for m in range(5)]
    panel.plot(*zip(*ordered), color=COLOURS[1], lw=2, zorder=1, label="path of training")
    for point in points:
        x, loss = where[point.components]
        visited = point.components == tuple(range(len(point.components)))
        colour = COLOURS[1] if visited else "0.35"
        panel.plot(x, loss, "o", ms=11, mfc="white", mec=colour, zorder=3)
        panel.annotate(f"{point.index}", (x, loss), ha="center", va="center", zorder=4)
        name = "".join(str(d + 1) for d in point.components)
        # Beside the circle, on the side where no other point is.
        side, shift = ("right", -8) if x < len(point.components) else ("left", 8)
        look = {"ha": side, "va": "center", "color": "0.25"}
        remark(panel, f"{{{name}}}" if name else "∅", (x, loss), (shift, 4 * visited), **look)
    losses = found.distinct_losses()
    # Restarts agree to rounding only: each is counted at the nearest distinct loss.
    nearest = np.argmin(np.abs(found.losses[:, None] - losses), axis=1)
    counts = np.bincount(nearest, minlength=len(losses))
    counted.barh(losses, counts, height=0.016, color=COLOURS[0], zorder=2)
    levels(counted, [point.loss for point in points])
    panel.set(xlabel="components learned", ylabel="loss", xlim=(-0.3, 4.6), ylim=(0.06, 1.06))
    panel.set_xticks(range(5))
    panel.legend(loc="upper right")
    counted.set_xlabel(f"restarts ending there\n({found.words})")
    data = {
        "components": np.array(
            [[j in point.components for j in range(4)] for point in points], dtype=bool
        ),
        "loss": np.array([point.loss for point in points]),
        "hessian_index": np.array([point.index for point in points]),
        "losses_found": found.losses,
    }
    return Drawing(figure, data, {**FOUR, "heads": 4, "rank": 1, "restarts": found.words})


def _place(point, points) -> float:
    """The number of components, moved aside where another point has nearly the same loss."""
    size = len(point.components)
    crowd = [p for p in points if len(p.components) == size and abs(p.loss - point.loss) < 0.05]
    if len(crowd) == 1:
        return size
    return size - 0.15 + 0.3 * crowd.index(point) / (len(crowd) - 1)


@figure(
    "linear/landscape-merged",
    "Merged key-query: one saddle and one minimum",
    """(a) Loss over the strengths of value and key-query weights, A = νω A*/‖A*‖: dark is
    low. The saddle sits at the origin, the minima fill the two white hyperbolas, and the
    path of training from small weights (orange) goes from one to the other. (b) Hessian
    eigenvalues at the saddle, of which exactly H = 3 are negative (left of the dotted
    line), and at a minimum. (c) A root finder on the gradient, started at random, ends at
    one of these two losses (dotted) and at no other.""",
)
def landscape_merged(lab: Lab) -> Drawing:
    """The loss over value and key-query strength, Hessians, and what restarts find."""
    task, heads = four_components(), 3
    saddles, minima = theory.merged_stationary_sets(task, heads)
    exact = risk(task, merged_model(1.0, heads))
    found = merged_restarts(lab)
    figure, (a, b, c) = canvas("double", 2.7, 1, 3, width_ratios=[1.5, 1, 1])
    optimum = theory.optimal_matrix(task)
    size = np.linalg.norm(optimum)
    grid = np.linspace(-5, 5, 121)
    products = np.outer(grid, grid) / size
    # On this plane A is a multiple of A*, and the loss a parabola in it.
    loss = minima.loss + (saddles.loss - minima.loss) * (1 - products) ** 2
    shown = a.contourf(grid, grid, loss.T, np.linspace(0, 3, 13), cmap="cividis", extend="max")
    figure.colorbar(shown, ax=a, label="loss", ticks=range(4), shrink=0.85)
    branch = np.linspace(size / 5, 5, 60)
    for sign in (1, -1):
        a.plot(sign * branch, sign * size / branch, color="white", lw=2)
    run = merged_run(lab)
    assert isinstance(run.models.circuits, Merged)
    sizes = np.linalg.norm(run.models.circuits.v, axis=1)
    along = np.einsum("tde,de->t", run.coefficients(), optimum) / size / sizes
    a.plot(sizes, along, color=COLOURS[1], lw=2)
    a.annotate("training", (1.9, 1.3), color="white", va="top")
    a.plot(0, 0, "o", color="white", mec="black")
    a.annotate("saddle", (0.4, -0.3), color="white", va="top")
    a.annotate("minima", (1.75, 4.7), color="white", va="top", ha="right")
    a.set(xlabel="value strength ν", ylabel="key-query strength ω", aspect="equal")
    a.set(xticks=range(-4, 5, 2), yticks=range(-4, 5, 2))
    spectra = []
    for name, weights, colour, marker in (
        ("saddle", (np.zeros(heads), np.zeros((heads, 4, 4))), COLOURS[0], "o"),
        ("minimum", theory.merged_minimum_point(task, np.ones(heads)), COLOURS[2], "s"),
    ):
        model = Attention(Merged.of(jnp.asarray(weights[0]), jnp.asarray(weights[1])))
        spectra.append(analysis.hessian_spectrum(exact, model).eigenvalues)
        b.plot(
            np.arange(1, len(spectra[-1]) + 1), spectra[-1], marker, ms=3, color=colour, label=name
        )
    b.axhline(0, **LEVEL)
    b.axvline(heads + 0.5, **LEVEL)
    b.set(xlabel="eigenvalue, sorted", ylabel="Hessian eigenvalue")
    b.legend(loc="upper left")
    levels(c, [saddles.loss, minima.loss])
    plot_circles(c, np.arange(1, len(found.losses) + 1), found.losses)
    c.set(xlabel=f"restart, sorted\n({found.words})", ylabel="loss where a restart ends")
    c.set_ylim(0, 1.08)
    data = {
        "strength": grid,
        "loss_on_plane": loss,
        "run_value_strength": sizes,
        "run_key_query_strength": along,
        "hessian_at_saddle": spectra[0],
        "hessian_at_minimum": spectra[1],
        "losses_found": found.losses,
        "theory_losses": np.array([saddles.loss, minima.loss]),
    }
    path = {"heads": 8, "scale": 1e-3, "seed": 0}
    config = {**FOUR, "heads": heads, "restarts": found.words, "training": path}
    return Drawing(figure, data, config)


@figure(
    "linear/order",
    "In which order components are learned",
    """The share of seeds that learn all four components in the order of their
    eigenvalues, against the size of the initial weights, with binomial standard errors
    (Wilson). At large weights a head that starts ahead can overtake.""",
)
def order(lab: Lab) -> Drawing:
    """The share of seeds that learn components in the order of the eigenvalues."""
    seeds = lab.scaled(10, 40, 200)
    shares = np.array([share_in_order(lab, scale, seeds) for scale in ORDER_SCALES])
    low, high = _binomial_interval(shares, seeds)
    figure, (panel,) = canvas("single", 2.5)
    panel.axhline(1, label="limit of small weights", **THEORY)
    bars = {"fmt": "o", "elinewidth": 1.2, "capsize": 3, "label": f"share of {seeds} seeds"}
    panel.errorbar(ORDER_SCALES, shares, [shares - low, high - shares], **bars)
    panel.set(xscale="log", xlabel="scale of the initial weights s", ylim=(0, 1.08))
    panel.set_ylabel("share in order of eigenvalue")
    legend_above(figure, panel)
    data = {"scale": np.array(ORDER_SCALES), "share": shares, "low": low, "high": high}
    config = {**FOUR, "heads": 5, "rank": 1, "scales": list(ORDER_SCALES), "seeds": seeds}
    return Drawing(figure, data, config)


def _binomial_interval(shares: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval of one standard error for observed shares; never outside 0 … 1."""
    centre = (shares + 0.5 / count) / (1 + 1 / count)
    half = np.sqrt(shares * (1 - shares) / count + 0.25 / count**2) / (1 + 1 / count)
    return np.minimum(centre - half, shares), np.maximum(centre + half, shares)


@figure(
    "linear/order-by-growth",
    "When the fastest component is not the best",
    """Two components with λ²m in one order and λm in the other. (a) The loss rests at the
    levels of all four predicted saddles; (b) magnified, the first two drops. (c, d) The
    component that grows faster is learned first, but that saddle has a negative Hessian
    eigenvalue: its head turns to the component that gains more, and a second head learns
    the first again.""",
)
def order_by_growth(lab: Lab) -> Drawing:
    """A task on which growth and gain disagree: the first head turns, the second relearns."""
    run, task = reversed_run(lab), reversed_task()
    visits = theory.learning_order(task).visits
    losses = [visit.loss for visit in visits]
    drops = analysis.drop_times(run, levels=losses)
    # The first two drops are magnified, with some of the plateaus beside them.
    margin, end = 0.6 * (drops[1] - drops[0]), 1.15 * drops[-1]
    start, turn = _again(lab, run, task, drops[0] - margin, drops[1] + margin)
    time, loss = curve_until(run, end)
    whole = time, loss, hold_last(strengths(run, task), time)
    part = start + turn.times, turn.losses, strengths(turn, task)
    modes = theory.modes(task)
    values = np.diag(modes.right.T @ task.covariance @ modes.right)
    weights = np.diag(modes.right.T @ task.weight_second_moment @ modes.right)
    figure, panels = canvas("double", 4.0, 2, 2, sharex="col", sharey="row")
    for (upper, lower), (time, loss, share) in zip(panels.reshape(2, 2).T, (whole, part)):
        upper.plot(time, loss)
        levels(upper, losses)
        for j, name in enumerate(_NAMES):
            label = f"{name}: λ = {values[j]:g}, m = {weights[j]:g}"
            lower.plot(time, share[:, j], color=COLOURS[j + 1], label=label)
        lower.set_xlabel("time (τ)")
    panels[0].set(xlim=(0, end), ylabel="loss")
    panels[1].set_xlim(drops[0] - margin, drops[1] + margin)
    panels[2].set_ylabel("share learned, $a_d/a_d^*$")
    level_names(panels[1], losses, [_visit_name(visit) for visit in visits])
    legend_above(figure, panels[2])
    data = {"theory_levels": np.array(losses), "drop_times": drops}
    for prefix, columns in (("", whole), ("turn_", part)):
        data |= dict(zip((f"{prefix}time", f"{prefix}loss", f"{prefix}share_learned"), columns))
    return Drawing(figure, data, {**REVERSED, "rank": 1, "seed": 0})


def _again(lab: Lab, run: Trajectory, task: LinearRegression, first: float, last: float):
    """A stretch of a run from its last saved point before `first`, with more points."""
    index = int(np.searchsorted(run.times, first)) - 1
    start = float(run.times[index])

    def compute():
        model = run.at(index)
        return gradient_flow(model, risk(task, model), end=last - start, save=SaveEvenly(1001))

    return start, lab.compute(compute)


# Of the two components the first has the larger gain λm, the second the larger growth rate λ²m.
_NAMES = ("gains more", "grows faster")


def _visit_name(visit) -> str:
    if len(visit.components) != 1:
        return "both learned" if visit.components else "nothing learned"
    return f"“{_NAMES[visit.components[0]]}” learned,\nHessian index {visit.index}"
