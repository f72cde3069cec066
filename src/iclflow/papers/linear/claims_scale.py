"""Claims of arXiv 2501.16265 on the scale of the initial weights."""

import numpy as np

from ... import analysis, theory
from .. import Check, Checks, Given, Inconclusive, Lab, claim, on_run
from .._needs import population
from .checks_limits import normaliser_of
from .needs import MERGED, large, learnable, not_large
from .runs import FOUR, four_components, merged_seeds, white_settings, white_task
from .runs_heads import SMALL_SCALES, plateau_durations
from .runs_scale import (
    LAZY_RATIOS,
    MERGED_SCALES,
    RICH_TO_LAZY,
    lazy_runs,
    merged_sharpness,
    rich_to_lazy_runs,
)


@claim(
    "linear/scale-shortens-plateaus",
    """Larger initial weights shorten every plateau; from small ones each plateau lasts, and the
    whole run takes, a time in proportion to 1/s.""",
    source="summary: Figure 6; the law beyond the paper",
    tolerance_reason="""Medians over seeds, each seed compared with itself. At s = 1e-3 the drops
    themselves, and what heads have of other components, change durations by a few 1e-3.""",
    figures=("linear/scale",),
)
def scale_shortens_plateaus(lab: Lab) -> Checks:
    """Durations of plateaus 0 … 3 and of the whole run, at six sizes of the same weights."""
    seeds = lab.scaled(8, 16, 64)
    scales = (0.3, 0.1, *SMALL_SCALES)
    lab.note(**FOUR, heads=4, scales=scales, seeds=seeds)
    durations = [plateau_durations(lab, scale, seeds) for scale in scales]
    medians = np.median(durations, axis=1)
    longer = (np.diff(medians, axis=0) > 0).T.tolist()
    for m, each in enumerate(longer):
        name = f"plateau {m}" if m < 4 else "whole run"
        yield lab.equal(f"{name} is longer at each step down in s", [True] * len(each), each)
    ratio = np.median(durations[-1] / durations[-2], axis=0)
    name = "durations and whole run at s = 1e-4, over those at 1e-3"
    yield lab.relative(name, np.full(5, scales[-2] / scales[-1]), ratio, 0.005)


@claim(
    "linear/scale-delays-drop",
    """For merged attention the scale only delays the drop, by ln(1/s)/g, and leaves its shape:
    t₁₀/t₉₀ tends to one.""",
    source="Section 3.3; the constant shape beyond the paper",
    tolerance_reason="""The slope is a difference of two drop times of the same seeds, exact up to
    corrections of order s = 1e-3.""",
    figures=("linear/scale",),
)
def scale_delays_drop(lab: Lab) -> Checks:
    """Half-drop times and sharpness against initialisation scale."""
    seeds = lab.scaled(2, 5, 20)
    lab.note(**FOUR, heads=8, scales=MERGED_SCALES, seeds=seeds)
    sharpness, half = merged_sharpness(lab, seeds)
    slope = (half[-1] - half[-2]) / np.log(MERGED_SCALES[-2] / MERGED_SCALES[-1])
    yield lab.close("delay for an e-fold", 1 / theory.growth_rate(four_components()), slope, 1e-3)
    rises = np.diff(sharpness)
    yield lab.equal("t₁₀/t₉₀ rises as s falls", [True] * len(rises), (rises > 0).tolist())


@claim(
    "linear/time-to-leave",
    """From small weights merged attention leaves zero after about (τ/‖Λ²‖) ln(1/w_init), w_init
    being the initial norm of a layer: the ratio of the two tends to one as 1/ln(1/w_init).""",
    source="Section 3.3; Appendix D.6.1 (as cited there)",
    tolerance_reason="""An e-fold of smaller weights delays the drop by 1/‖Λ²‖, up to corrections of
    the order of the weights, 1e-4 and below: 1e-3. What is left of the ratio is O(1)/ln(1/w_init),
    a number that the initial weights give to the same accuracy.""",
    figures=("linear/scale",),
)
def time_to_leave(lab: Lab) -> Checks:
    """Half-drop times of every seed from weights of 1e-2 … 1e-8."""
    scales, seeds = (1e-2, 1e-4, 1e-6, 1e-8), lab.scaled(4, 16, 64)
    lab.note(**FOUR, heads=8, scales=scales, seeds=seeds)
    task = four_components()
    rate, levels = theory.growth_rate(task), [1.0, theory.optimal_loss(task)]
    times, logs, predicted = [], [], []
    for scale in scales:
        runs = merged_seeds(lab, scale, seeds).runs
        times.append([analysis.drop_times(run, levels=levels)[0] for run in runs])
        first = [run.at(0).circuits for run in runs]
        logs.append([-np.log(np.linalg.norm(each.v)) for each in first])
        predicted.append([float(theory.drop_time(task, each.v, each.U)) for each in first])
    slopes = np.diff(times, axis=0)[1:] / np.diff(logs, axis=0)[1:]
    name = "delay for an e-fold, from 1e-4 down, every seed"
    yield lab.relative(name, np.full(slopes.shape, 1 / rate), slopes, 1e-3)
    ratios, limit = (
        rate * np.asarray(each)[1:] / np.asarray(logs)[1:] for each in (times, predicted)
    )
    lab.note(ratio_at_each_scale=np.round(np.median(ratios, axis=1), 4).tolist())
    name = "time × ‖Λ²‖ / ln(1/w_init) from 1e-4 down, every seed"
    yield lab.relative(name, limit, ratios, 1e-3)


# A run is lazy from this ratio of the initial kernel to the learned weights on.
_LAZY = 4.0


@on_run(
    *MERGED,
    population,
    learnable,
    not_large,
    large(_LAZY),
    tolerance_reason="""The deviation falls as κ⁻², κ = Σv²/‖A(0) − A*‖ at the start: it is below
    0.07/κ² of the way down for random heads, and below 0.26/κ² for heads in opposite pairs. 0.3/κ²
    is allowed, and κ must be 4 or more.""",
)
def lazy_limit_on_run(given: Given, lab: Lab) -> Checks:
    """The loss against a sum of exponentials with the rates of the initial kernel."""
    first, run, normaliser = given.run.at(0), given.run, normaliser_of(given)
    best = theory.optimal_matrix(given.task, normaliser)
    way = np.linalg.norm(np.einsum("h,hde->de", first.circuits.v, first.circuits.U) - best)
    stiff = float(np.sum(np.square(first.circuits.v)) / way)
    if stiff < _LAZY:
        raise Inconclusive(
            "it is for very large initial weights: Σv²/‖A(0) − A*‖ = "
            f"{stiff:.3g} is below {_LAZY:g}"
        )
    floor = theory.optimal_loss(given.task, normaliser)
    frozen = theory.frozen_kernel_loss(
        given.task, first.circuits.v, first.circuits.U, run.times, normaliser
    )
    excess = (frozen - floor) * lab.predict(1.0)
    name = "excess loss at all saved times, of that at the start"
    measured = (run.losses - floor) / (run.losses[0] - floor)
    yield Check(name, excess / (run.losses[0] - floor), measured, 0.3 / stiff**2)


@claim(
    "linear/lazy-limit",
    """Very large initial weights make learning lazy: the loss decays as a sum of exponentials with
    the rates of a frozen kernel.""",
    source="summary: Figure 6; rates beyond the paper",
    tolerance_reason="""The deviation falls as (Hs²/‖A*‖)⁻²: at ratio 16 it is below 0.26/16² = 1e-3
    of the way down, as on any run. From 4 to 16 it falls 16-fold, so that the power is 2; terms of
    higher order are 1/16 of the first at ratio 4, and change the power by 0.05 at most.""",
    figures=("linear/lazy",),
    on_run=lazy_limit_on_run,
)
def lazy_limit(lab: Lab) -> Checks:
    """Simulated curves against the frozen kernel."""
    lab.note(**FOUR, heads=16, ratios=LAZY_RATIOS, paired=True)
    deviations = []
    for run, predicted in lazy_runs(lab):
        bent = 1 + (predicted - 1) * lab.predict(1.0)
        deviations.append(np.max(np.abs(run.losses - bent)) / (run.losses[0] - run.losses[-1]))
    fall = np.log(deviations[1] / deviations[2]) / np.log(4)
    yield Check("largest deviation at ratio 16", 0.0, deviations[2], 1e-3, scale=1.0)
    yield lab.close("power of the fall from ratio 4 to 16", 2.0, fall, 0.05)


@claim(
    "linear/rich-to-lazy",
    """Between the sigmoid of small balanced weights and the exponential of large unbalanced ones
    lies one exact family of curves.""",
    source="summary: Figure 6; exact solution beyond the paper",
    tolerance_reason="An exact solution against a solver at 1e-9 a step.",
    figures=("linear/rich-to-lazy",),
)
def rich_to_lazy(lab: Lab) -> Checks:
    """Simulated loss against the closed form at four degrees of imbalance."""
    task = white_task(0.25)
    lab.note(**white_settings(0.25), heads=2, starts=RICH_TO_LAZY)
    for nu, omega, run in rich_to_lazy_runs(lab):
        exact = theory.white_interpolation(task, run.times, nu * lab.predict(1.0), omega)
        yield Check(f"loss from ν = {nu:g}, ω = {omega:g}", exact.loss, run.losses, 1e-6)
