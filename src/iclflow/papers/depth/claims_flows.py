"""Claims on gradient flow from zero, arXiv 2510.01098, Results 1, 4, 5 and 6."""

import numpy as np

from ...theory import depth
from .. import Checks, Lab, claim
from .runs_flows import (
    DEEP,
    LONG,
    PRIOR,
    VALUES,
    deep_direction,
    direction_flow,
    large_flow,
    long_task,
    matrix_flow,
    rotated_flow,
    shifted_losses,
    trained_at_length,
)
from .runs_levels import white_task

# From the first rise to the end.
TIMES = (0.2, 0.5, 1.0, 3.0)
# Large enough for the limit of large d and N = αd.
DIM, RATIOS, NOISE = 400, (0.5, 2.0), 0.3
# By how much inputs are turned against those of training.
ANGLES = (0.2, 0.5, 1.0, 1.5)


@claim(
    "depth/isotropic-flow",
    """From zero, with white inputs, the matrix Γ of a loop stays a multiple of the identity, and
    its step flows by an average over the limiting spectrum of S.""",
    source="arXiv 2510.01098, Result 1",
    tolerance_reason="""Solvers run at 1e-10 a step. The limit is approached as 1/d: 0.3 % at
    d = 400.""",
)
def isotropic_flow(lab: Lab) -> Checks:
    """The flow of matrices at d = 3, and of the step at d = 400, for contexts shorter and longer
    than d, both with noise."""
    lab.note(dims=[3, DIM], ratios=RATIOS, noise=NOISE, layers=2, times=TIMES)
    # At d = 3 matrices flow d times slower than numbers.
    small, slow = white_task(NOISE, 3, 6), tuple(3 * time for time in TIMES)
    found = matrix_flow(lab, 3, 6, NOISE, slow)
    known = depth.stack_flow(small, [0.0, 0.0], slow, tied=True)[:, 0]
    yield lab.relative("steps at d = 3", known, found.steps, 1e-7)
    yield lab.close("off the identity", 0.0, found.beside, 1e-10, scale=float(known[-1]))
    for ratio in RATIOS:
        limit = depth.Spectrum.proportional(1 / ratio, NOISE / ratio)
        known = depth.stack_flow(limit, [0.0, 0.0], TIMES, tied=True)[:, 0]
        steps = large_flow(lab, DIM, int(ratio * DIM), NOISE, TIMES)
        yield lab.relative(f"steps at N = {ratio:g} d", known, steps, 5e-3)


@claim(
    "depth/direction-loss-printed",
    """At infinite context a direction that flows as γ̇ = ωλ²(1 − λγ/L)^{2L−1} has, in deep loops,
    the loss ωλ/(1 + 4ωλ³t).""",
    source="arXiv 2510.01098, Result 4: the flow in the text, and the loss printed with it",
    tolerance_reason="Loops of 10000 layers are 1e-4 from the limit.",
    corrected_by="depth/direction-loss",
)
def direction_loss_printed(lab: Lab) -> Checks:
    """The flow in the text, solved for ω = λ = 1."""
    times = (0.3, 1.0, 3.0)
    lab.note(layers=DEEP, times=times)
    printed = 1 / (1 + 4 * np.array(times))
    yield lab.relative("losses", printed, deep_direction(lab, times), 1e-3)


@claim(
    "depth/direction-loss",
    """At infinite context a direction that flows as γ̇ = ωλ²(1 − λγ/L)^{2L−1} has, in deep loops,
    the loss ωλ/(1 + 2ωλ³t); with 4 it is that of −∂L/∂γ, which is twice as fast. Loops of L layers
    have ωλ[1 + (2L − 2)Lωλ³t]^{−L/(L−1)} in the time of their own Γ.""",
    source="derived in docs/theory/depth.md, section 9; corrects arXiv 2510.01098, Result 4",
    tolerance_reason="""Loops of 10000 layers are 1e-4 from the limit. Exact flows run at 1e-10 a
    step, at contexts that are infinite but for 1e-9.""",
)
def direction_loss(lab: Lab) -> Checks:
    """The flow in the text solved for ω = λ = 1, and exact flows of loops of one and two layers on
    two directions."""
    times = (0.3, 1.0, 3.0)
    lab.note(layers=[1, 2, DEEP], times=times, context=LONG, eigenvalues=VALUES, prior=PRIOR)
    known = 1 / (1 + 2 * np.array(times))
    yield lab.relative("losses of a deep loop", known, deep_direction(lab, times), 1e-3)
    for layers in (1, 2):
        known = depth.infinite_context_loss(long_task(), layers, times, tied=True)
        found = direction_flow(lab, layers, times)
        yield lab.relative(f"losses of loops, L = {layers}", known, found, 1e-6)


@claim(
    "depth/shifted-covariance",
    """Loops trained at infinite context on inputs of one covariance Λ have on others, Λ′, the loss
    tr Λ′ΠΩ′Πᵀ with Π = (1 − Λ⁻¹Λ′)^L: they have learned Λ⁻¹. Turning the inputs raises it at every
    depth.""",
    source="arXiv 2510.01098, Result 5",
    tolerance_reason="""Training has ended to 1e-9 in Γ, and contexts are infinite but for 1e-9;
    where little is left of a loss, that is 1e-6 of it.""",
)
def shifted_covariance(lab: Lab) -> Checks:
    """The exact loss of one and two layers, trained by exact flow, on inputs that are turned."""
    lab.note(eigenvalues=VALUES, prior=PRIOR, context=LONG, angles=ANGLES, layers=[1, 2])
    inverse = np.linalg.inv(np.asarray(long_task().covariance))
    yield lab.close("Γ of training", inverse, trained_at_length(lab), 1e-6, scale=inverse.max())
    for layers in (1, 2):
        tasks = [long_task(angle) for angle in ANGLES]
        known = np.array([depth.shifted_loss(long_task(), task, layers) for task in tasks])
        found = shifted_losses(lab, layers, ANGLES)
        yield lab.relative(f"losses, L = {layers}", known, found, 1e-5)
        yield lab.equal(
            f"rises with the angle, L = {layers}", True, bool(np.all(np.diff(found) > 0))
        )


@claim(
    "depth/rotated-flow",
    """With covariances rotated in every context, at infinite context, Γ of a loop stays a multiple
    of the identity from zero, and flows as γ̇ ∝ tr Λ²Ω(1 − γΛ)^{2L−1}.""",
    source="arXiv 2510.01098, Result 6",
    tolerance_reason="Angles are averaged exactly, and solvers run at 1e-10 a step.",
)
def rotated_flow_is_isotropic(lab: Lab) -> Checks:
    """The flow of the matrix of three layers on all rotations of a plane, and its loss."""
    times = (0.3, 1.0, 3.0, 10.0)
    lab.note(eigenvalues=VALUES, prior=PRIOR, layers=3, times=times)
    found = rotated_flow(lab, 3, times)
    weights = np.array(VALUES) * np.array(PRIOR)
    power = float(weights.sum())
    measure = depth.Spectrum(np.array(VALUES), weights / power, power=power, speed=power / 2)
    known = depth.stack_flow(measure, [0.0] * 3, times, tied=True)[:, 0]
    yield lab.relative("steps", known, found.steps, 1e-7)
    yield lab.close("off the identity", 0.0, found.beside, 1e-10, scale=float(known[-1]))
