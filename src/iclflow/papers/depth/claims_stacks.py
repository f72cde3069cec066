"""Claims on the experiments of arXiv 2306.00297: what stacks learn at its public settings."""

import numpy as np

from ...tasks import LinearRegression
from ...theory import depth
from .. import Checks, Lab, claim
from .runs_levels import CONTEXT, DIM, white_task
from .runs_stacks import (
    BASELINE_RATE,
    CONTEXTS,
    RATE,
    STEPS,
    losses_at_lengths,
    public_task,
    rotated_loss,
    sampled_baseline,
    sampled_loss,
    trained_stack,
    value_block_ends,
)


@claim(
    "depth/best-steps-are-learned",
    """With value blocks B = 0 stacks trained on drawn contexts reach the exact optimum: matrices
    close to multiples of the identity, which are the Gauss nodes' steps in some order.""",
    source="arXiv 2306.00297, code: rotation demonstration-Adam-p0",
    tolerance_reason="""The loss is flat at its minimum: matrices that are 1 % off cost 10⁻⁴ of it,
    and four standard errors of those of three layers or more are as much. The paper tier has one to
    four layers from three seeds each.""",
    figures=("depth/losses",),
)
def best_steps_are_learned(lab: Lab) -> Checks:
    """The loss and the mean steps of trained stacks."""
    layers = range(lab.scaled(2, 2, 1), lab.scaled(2, 2, 4) + 1)
    seeds = range(lab.scaled(1, 1, 3))
    lab.note(dim=DIM, context=CONTEXT, layers=list(layers), seeds=len(seeds), rate=RATE)
    lab.note(steps=lab.scaled(*STEPS), contexts=lab.scaled(*CONTEXTS))
    for count in layers:
        ends = [trained_stack(lab, count, seed) for seed in seeds]
        best = depth.optimal_stack(public_task(), count)
        loss = depth.published_losses(public_task(), count).optimum
        losses = np.array([end.loss for end in ends])
        lab.note(**{f"excess, L = {count}": (losses - loss).tolist()})
        yield lab.close(f"losses, L = {count}", np.full(len(ends), loss), losses, 2e-4)
        steps = np.array([end.steps for end in ends])
        yield lab.relative(f"steps, L = {count}", np.tile(best.steps, (len(ends), 1)), steps, 0.02)
        beside = max(end.beside for end in ends)
        yield lab.close(f"off the identity, L = {count}", 0.0, beside, 0.05, scale=1.0)


@claim(
    "depth/losses-at-lengths",
    """With value blocks B = 0 the least losses of three layers on contexts of N = 2, 4, …, 20 pairs
    are 3.2535, 2.0402, 1.2955, .8503, .5794, .4089, .2979, .2229, .1708, .1336.""",
    source="""arXiv 2306.00297, code: variable_N_exp, which trains B as well and prints no such
    numbers; derived in docs/theory/depth.md, section 3""",
    tolerance_reason="Two exact computations: a descent stops at a slope of 1e-10.",
)
def losses_at_all_lengths(lab: Lab) -> Checks:
    """Descents on the exact risk at every length, shorter and longer than d = 5."""
    contexts = tuple(range(2, CONTEXT + 1, 2))
    lab.note(dim=DIM, contexts=contexts, layers=3)
    tasks = [LinearRegression(np.ones(DIM), context) for context in contexts]
    known = np.array([depth.published_losses(task, 3).optimum for task in tasks])
    yield lab.relative("losses", known, losses_at_lengths(lab, 3, contexts), 1e-9)


@claim(
    "depth/value-blocks-trap",
    """With trained value blocks B two layers have several minima, and flows from small weights end
    in the bad ones.""",
    source="derived in docs/theory/depth.md, section 11; arXiv 2306.00297 trains B",
    tolerance_reason="Flows have converged to 1e-8 in the risk; minima are exact to rounding.",
)
def value_blocks_trap(lab: Lab) -> Checks:
    """Ends of exact flows against the minima that theory finds."""
    lab.note(dim=DIM, context=CONTEXT, layers=2, scale=1e-2)
    known = np.array([m.risk for m in depth.value_block_minima(public_task(), 2, starts=20)])
    ends = value_block_ends(lab)
    levels = lab.predict(known[1:])
    distance = np.min(np.abs(ends[:, None] / levels - 1), axis=1)
    yield lab.equal("minima", 3, len(known))
    # Levels take part in the prediction already: here zero stays zero.
    yield lab.close("distance of ends from the two bad levels", 0.0, float(distance.max()), 1e-6,
                    scale=1.0)  # fmt: skip
    yield lab.at_least("best end, over the best minimum", 1.4, float(ends.min() / known[0]))


@claim(
    "depth/mask-the-query",
    """Where the query is a key too it counts as one more pair (x_q, 0): that changes nothing for
    one layer, and more than doubles the least loss of two.""",
    source="derived in docs/theory/depth.md, section 0",
    tolerance_reason="""Four standard errors over drawn sequences; the two predictions of one layer
    are the same to rounding.""",
)
def mask_the_query(lab: Lab) -> Checks:
    """The masked optimum on drawn sequences, its query masked and attended."""
    count = lab.scaled(40_000, 40_000, 1_000_000)
    lab.note(dim=DIM, context=CONTEXT, sequences=count)
    task = public_task()
    for layers in (1, 2):
        steps = depth.optimal_stack(task, layers).steps
        masked = sampled_loss(steps, False, count)
        loss = depth.published_losses(task, layers).optimum
        yield lab.sampled(f"masked, L = {layers}", loss, masked.mean, masked.error)
        attended = sampled_loss(steps, True, count)
        if layers == 1:
            yield lab.relative("attended, L = 1", masked.mean, attended.mean, 1e-9)
        else:
            yield lab.at_least("attended over masked, L = 2", 2.0, attended.mean / masked.mean)


@claim(
    "depth/baseline-drops-a-pair",
    """The released baseline of preconditioned gradient descent uses 19 of the 20 pairs, so that its
    loss for one step is 6/5 and not that of all pairs.""",
    source="arXiv 2306.00297, code: `Z[0:N-1]` where N is the number of pairs",
    tolerance_reason="Four standard errors over drawn contexts.",
)
def baseline_drops_a_pair(lab: Lab) -> Checks:
    """Steps on 19 pairs of drawn contexts against theory, and on 20."""
    count = lab.scaled(100_000, 100_000, 1_000_000)
    lab.note(dim=DIM, context=CONTEXT, rate=BASELINE_RATE, sequences=count)
    for layers in (1, 2):
        expected = depth.released_baseline(public_task(), layers, BASELINE_RATE)
        found = sampled_baseline(layers, CONTEXT - 1, count)
        yield lab.sampled(f"19 pairs, L = {layers}", expected, found.mean, found.error)
    whole = DIM * depth.stack_risk(white_task(), [BASELINE_RATE * CONTEXT])
    every = sampled_baseline(1, CONTEXT, count)
    yield lab.sampled("20 pairs, L = 1", whole, every.mean, every.error)


@claim(
    "depth/rotated-tasks-are-white",
    """Tasks x ~ N(0, Λ), w ~ N(0, Λ⁻¹) have at γ_lΛ⁻¹ with the white steps the loss of white ones,
    which is stationary among diagonal matrices.""",
    source="arXiv 2306.00297, code: rotation demonstration",
    tolerance_reason="Two exact risks, by spectra and by words: rounding.",
)
def rotated_tasks_are_white(lab: Lab) -> Checks:
    """The exact loss of γ_lΛ⁻¹ on the public spectrum, and that it is stationary there."""
    lab.note(dim=DIM, context=CONTEXT, layers=2)
    best = depth.optimal_stack(white_task(), 2)
    loss, slope = rotated_loss(best.steps)
    yield lab.relative("loss at the white steps", DIM * best.risk, loss, 1e-9)
    yield lab.close("slope there", 0.0, slope, 1e-7, scale=1.0)
