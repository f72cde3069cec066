"""Claims on the best steps of stacks and loops, with noise and without, and on longer loops."""

import jax.numpy as jnp
import numpy as np
import scipy.optimize

from ...models import ScalarStack
from ...risks import risk
from ...theory import depth
from .. import Checks, Lab, claim
from .runs_levels import CONTEXT, DIM, Landscape, white_task


@claim(
    "depth/no-bad-minima",
    """Without noise every descent from random positive steps ends at the optimum: 1/γ_l are the
    Gauss nodes of the spectrum of S, and the least risk is a rational number.""",
    source="derived in docs/theory/depth.md, sections 3 and 6",
    tolerance_reason="A descent stops at a slope of 1e-10; levels are exact to rounding.",
    figures=("depth/losses",),
)
def no_bad_minima(lab: Lab) -> Checks:
    """Descents on the exact risk from random starts, one to four layers."""
    task, starts = white_task(), lab.scaled(4, 10, 50)
    lab.note(dim=DIM, context=CONTEXT, starts=starts)
    for layers in (1, 2, 3, 4):
        landscape, rng = Landscape(task, layers), np.random.default_rng(layers)
        ends = [landscape.lowest(rng.uniform(0, 2, layers)) for _ in range(starts)]
        best = float(depth.rational_optimum(task, layers))
        yield lab.relative(f"levels, L = {layers}", np.full(starts, best),
                           np.array([level for _, level in ends]), 1e-9)  # fmt: skip
        nodes = depth.optimal_stack(task, layers).steps
        yield lab.relative(f"steps, L = {layers}", np.tile(nodes, (starts, 1)),
                           np.array([steps for steps, _ in ends]), 1e-6)  # fmt: skip


@claim(
    "depth/noise-makes-the-loop-right",
    "From a finite noise on, the best stack of two layers is a loop: equal steps become a minimum.",
    source="derived in docs/theory/depth.md, section 5",
    tolerance_reason="""The threshold is bracketed to 1e-6; the curvature that vanishes there is
    exact to about 1e-7, and its slope in the noise is of order one tenth.""",
    figures=("depth/losses",),
)
def noise_makes_the_loop_right(lab: Lab) -> Checks:
    """The noise at which the curvature between two layers vanishes at the best loop."""
    lab.note(dim=DIM, context=CONTEXT, layers=2)

    def between(noise: float) -> float:
        task = white_task(noise)
        step, _ = Landscape(task, 2, tied=True).lowest(np.array([0.5]))
        return float(np.linalg.eigvalsh(Landscape(task, 2).curvature(np.repeat(step, 2)))[0])

    edge = scipy.optimize.brentq(between, 0.5, 1.2, xtol=1e-6)
    expected = depth.loop_noise_threshold(DIM, CONTEXT, 2)
    yield lab.relative("noise σ² from which the loop is best", expected, edge, 1e-5)
    for noise in (0.9 * expected, 1.1 * expected):
        steps, _ = Landscape(white_task(noise), 2).lowest(np.array([0.3, 1.0]))
        split = bool(steps[1] - steps[0] > 1e-2)
        yield lab.equal(f"steps differ at σ² = {noise:.2f}", bool(noise < expected), split)


@claim(
    "depth/noise-keeps-bayes-away",
    """With noise more layers do not lead to the Bayes risk: many equal steps do what gradient flow
    stopped in time does, which is worse.""",
    source="derived in docs/theory/depth.md, section 3",
    tolerance_reason="""Sixteen steps are 0.5 % above the flow that they approach like 1/L; 1 % is
    less than half of what the flow is above Bayes.""",
    figures=("depth/losses",),
)
def noise_keeps_bayes_away(lab: Lab) -> Checks:
    """The best of two, four, sixteen layers at σ² = 1, and what gradient flow and Bayes reach."""
    task = white_task(1.0)
    lab.note(dim=DIM, context=CONTEXT, noise=1.0)
    levels = {}
    for layers in (2, 4, 16):
        _, levels[layers] = Landscape(task, layers, tied=True).lowest(np.array([0.5]))
        expected = depth.tied_loop(task, layers).risk
        yield lab.relative(f"best loop, L = {layers}", expected, levels[layers], 1e-8)
    _, flow = depth.stopped_flow(task)
    yield lab.relative("sixteen layers and stopped flow", flow, levels[16], 1e-2)
    # Stopped flow is 2.8 % above Bayes, and no number of equal steps goes below it.
    yield lab.at_least("sixteen layers over Bayes", 1.02, levels[16] / depth.stack_bayes(task))


@claim(
    "depth/longer-loops-diverge",
    """A loop that was trained for L layers gains from a few more at test time, and diverges with
    many: contexts with large eigenvalues blow up.""",
    source="derived in docs/theory/depth.md, section 5",
    tolerance_reason="""Both are exact; the rule that theory averages with is cut at eigenvalues
    that matter to 1e-9 at ten layers.""",
    figures=("depth/more-loops",),
)
def longer_loops_diverge(lab: Lab) -> Checks:
    """The exact risk of the best loop of two layers, run for up to ten."""
    task, loops = white_task(), [1, 2, 3, 4, 6, 8, 10]
    lab.note(dim=DIM, context=CONTEXT, trained=2, loops=loops)
    step, _ = Landscape(task, 2, tied=True).lowest(np.array([0.3]))
    loop = ScalarStack(jnp.asarray(step), DIM, 2)
    longer = [loop.with_depth(count) for count in loops]
    found = np.array([float(risk(task, model, "exact")(model)) for model in longer])
    expected = depth.more_loops(task, depth.tied_loop(task, 2).step, loops)
    yield lab.relative("risks", expected, found, 1e-6)
    yield lab.equal("best number of loops", 4, loops[int(np.argmin(found))])
    yield lab.equal("ten loops are worse than predicting zero", True, bool(found[-1] > 1))
