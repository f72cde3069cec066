"""Claims on the loop: a saddle that untied layers leave, and on all stationary points."""

import numpy as np

from ...theory import depth
from .. import Checks, Lab, claim
from .runs_levels import CONTEXT, DIM, Landscape, escapes, found_points, white_task


@claim(
    "depth/loop-is-a-saddle",
    """The best loop of L layers is a stationary point of the untied stack of index L − 1: without
    noise all differences between layers grow at the rate κ = E[s²(1 − γs)^{2L−2}], and a common
    deviation decays at (2L − 1)κ.""",
    source="derived in docs/theory/depth.md, section 5",
    tolerance_reason="""The loop is found to about 1e-8, and its curvatures are then exact to about
    1e-7; the exact risk differs from the spectral rule of theory by rounding.""",
    figures=("depth/escape",),
)
def loop_is_a_saddle(lab: Lab) -> Checks:
    """Curvatures of the exact risk of untied layers at the loop that a descent finds."""
    task = white_task()
    lab.note(dim=DIM, context=CONTEXT, layers=[2, 3, 4])
    for layers in (2, 3, 4):
        tied = Landscape(task, layers, tied=True)
        step, level = tied.lowest(np.array([0.3]))
        found = np.linalg.eigvalsh(Landscape(task, layers).curvature(np.repeat(step, layers))) / 2
        loop = depth.tied_loop(task, layers)
        rates = np.append(np.full(layers - 1, -loop.rate), loop.stable_rate)
        yield lab.relative(f"half curvatures, L = {layers}", rates, found, 1e-6)
        yield lab.relative(f"level of the loop, L = {layers}", loop.risk, level, 1e-9)
        yield lab.equal(f"index, L = {layers}", layers - 1, int(np.sum(found < 0)))


@claim(
    "depth/untied-is-the-loop",
    "Untied layers that begin small and nearly equal learn what a loop learns.",
    source="arXiv 2510.01098, Section 5.1, which is about exactly equal layers",
    tolerance_reason="The solver runs at a relative tolerance of 1e-12 a step.",
    figures=("depth/escape",),
    corrected_by="depth/escape-time",
    overread=True,
)
def untied_is_the_loop(lab: Lab) -> Checks:
    """The end of exact flows that begin almost tied, against the level of the loop."""
    found = escapes(lab)
    lab.note(dim=DIM, context=CONTEXT, spreads=found.spreads.tolist())
    level = depth.tied_loop(white_task(), 2).risk
    yield lab.relative("loss at the end", np.full(len(found.spreads), level), found.losses[:, -1],
                       1e-3)  # fmt: skip


@claim(
    "depth/escape-time",
    """Untied layers that differ by δ at the start rest at the loop for a time (ln(1/δ) + K)/κ, and
    then fall to their own optimum.""",
    source="derived in docs/theory/depth.md, section 5",
    tolerance_reason="""Theory is exact to first order in δ: 0.2 % are left at δ = 1e-2, and the
    grid of times leaves 1e-5.""",
    figures=("depth/escape",),
)
def escape_time(lab: Lab) -> Checks:
    """When exact flows are half-way from the loop to the end, for δ over ten powers of ten."""
    found, task = escapes(lab), white_task()
    lab.note(dim=DIM, context=CONTEXT, spreads=found.spreads.tolist())
    theory = [depth.loop_escape(task, [spread, -spread]) for spread in found.spreads]
    # Numbers γ flow D times as fast as the matrices Γ = γI of theory.
    times = np.array([each.time for each in theory]) / DIM
    measured = found.time_below(float(np.mean(theory[0].levels)))
    yield lab.relative("times half-way, over δ", times, measured, 5e-3)
    rate = np.diff(measured) / np.diff(np.log(1 / found.spreads))
    expected = 1 / depth.tied_loop(task, 2).rate
    yield lab.relative("time for each factor e in δ", np.full(len(rate), expected), rate, 3e-3)
    best = depth.optimal_stack(task, 2).risk
    yield lab.relative("loss at the end", np.full(len(measured), best), found.losses[:, -1], 1e-3)


@claim(
    "depth/atlas",
    """Without noise the steps of L layers have one stationary function for each ordered way to
    share L steps among layers, 2^{L−1} of them; only that of L different steps is a minimum, and
    one of k different steps has the index L − k.""",
    source="derived in docs/theory/depth.md, section 6",
    tolerance_reason="""Roots are found to a slope of 1e-10, so that levels are exact to rounding.
    Counts and indices are exact.""",
    figures=("depth/atlas",),
)
def atlas(lab: Lab) -> Checks:
    """Roots of the slope of the exact risk from random starts."""
    lab.note(dim=DIM, context=CONTEXT, layers=[2, 3])
    for layers in (2, 3):
        found, known = found_points(lab, layers), depth.stack_atlas(white_task(), layers)
        known = sorted(known, key=lambda point: point.risk)
        yield lab.equal(f"points, L = {layers}", depth.number_of_stack_points(layers), found.points)
        yield lab.equal(f"functions, L = {layers}", depth.number_of_stack_functions(layers),
                        len(found.risks))  # fmt: skip
        yield lab.equal(f"indices by level, L = {layers}", [point.index for point in known],
                        found.indices.tolist())  # fmt: skip
        yield lab.relative(f"levels, L = {layers}", np.array([point.risk for point in known]),
                           found.risks, 1e-7)  # fmt: skip
