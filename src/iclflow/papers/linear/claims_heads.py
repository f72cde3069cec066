"""Claims of arXiv 2501.16265 on single heads: how fast they learn, and their weights."""

import numpy as np

from ... import theory
from .. import Check, Checks, Lab, claim
from .runs import FOUR, four_components
from .runs_heads import (
    AUTHORS_HEADS,
    AUTHORS_SIZE,
    authors_durations,
    growth_after,
    heads_on_plateau,
    lone_head_times,
    small_ensemble,
)

_AUTHORS = {"heads": AUTHORS_HEADS, "initial_size": AUTHORS_SIZE, "initialisation": "authors"}


@claim(
    "linear/learning-time",
    "The time that a head takes to learn component m from small weights scales as λ_m⁻².",
    source="Section 4.3; Appendix E.6 (as cited there)",
    tolerance_reason="""Medians of random heads: four standard errors of the slope, from the spread
    of log T. The weights of 1e-3 add corrections of that order.""",
)
def learning_time(lab: Lab) -> Checks:
    """Half-drop times of random heads on tasks with one component, over λ = 0.1 … 1.6."""
    eigenvalues, heads = (0.1, 0.4, 1.6), lab.scaled(200, 1000, 4000)
    lab.note(eigenvalues=eigenvalues, context=31, heads=heads, scale=1e-3)
    logs = [np.log(lone_head_times(lab, value, heads)) for value in eigenvalues]
    # The standard error of a median, from the central half of the values (normal there).
    error = [1.2533 * np.subtract(*np.percentile(x, (75, 25))) / 1.349 / heads**0.5 for x in logs]
    medians, places = [np.median(x) for x in logs], np.log(eigenvalues)
    slope = (medians[-1] - medians[0]) / (places[-1] - places[0])
    slope_error = np.hypot(error[0], error[-1]) / (places[-1] - places[0])
    yield lab.sampled("slope of log T in log λ", -2.0, slope, slope_error)
    middle = medians[1] - (medians[0] + medians[2]) / 2
    bend = np.hypot(error[1], np.hypot(error[0], error[2]) / 2)
    yield Check("curvature of log T", 0.0, middle / bend, 4.0)


def _median_error(values: np.ndarray) -> np.ndarray:
    """The standard error of medians along the first axis, from 200 resamples."""
    noise = np.random.default_rng(0)
    picks = noise.integers(0, len(values), (200, len(values)))
    return np.median(values[picks], axis=1).std(axis=0)


@claim(
    "linear/later-plateaus",
    "From small weights, later plateaus last longer.",
    source="Section 4.3; Figure 3a",
    tolerance_reason="""Medians over seeds in the authors' setting: a difference counts from four
    standard errors on.""",
    corrected_by="linear/plateau-durations",
    figures=("linear/staircase",),
)
def later_plateaus(lab: Lab) -> Checks:
    """Medians of the durations of plateaus 0 … 3."""
    seeds = lab.scaled(16, 64, 256)
    lab.note(**FOUR, **_AUTHORS, seeds=seeds)
    logs = np.log(authors_durations(lab, seeds).measured)
    steps = np.diff(logs, axis=1)
    rise, error = np.median(steps, axis=0), _median_error(steps)
    for m in range(3):
        name = f"growth of ln duration from plateau {m} to {m + 1}, in standard errors"
        yield lab.at_least(name, -4.0, rise[m] / error[m], wrong=1e9)


@claim(
    "linear/plateau-durations",
    """From small weights, plateaus last longer from plateau 1 on, and each as long as the initial
    weights say; plateau 0, on which no component has been learned, lasts longer than plateau 1.""",
    source="Section 4.3 corrected; durations derived in docs/theory/linear.md",
    tolerance_reason="""Predictions are the limit of small weights. At the authors' weights, 0.03 in
    our units, a duration is off by a few per cent in median and more where two heads nearly tie:
    10 % of each median.""",
    figures=("linear/staircase",),
)
def plateau_durations_authors(lab: Lab) -> Checks:
    """Medians of durations, predicted from the weights at t = 0 and measured."""
    seeds = lab.scaled(16, 64, 256)
    lab.note(**FOUR, **_AUTHORS, seeds=seeds)
    found = authors_durations(lab, seeds)
    predicted, measured = (np.median(each, axis=0) for each in found)
    yield lab.relative("median durations", predicted, measured, 0.1, wrong=predicted[::-1])
    steps = np.median(np.diff(np.log(found.measured), axis=1), axis=0) > 0
    yield lab.equal("median duration grows from plateau to plateau", [False, True, True], steps)


@claim(
    "linear/plateau-weights",
    """On plateau m, m heads have k = q = v e_i up to signs, with
    v = λ^−⅓[1 + (1 + tr Λ/λ)/N]^−⅓, and the others are near zero.""",
    source="Eq. 20; Figure 3c",
    tolerance_reason="""Idle heads and misalignment fall with the initial weights s: medians over
    seeds are below 1 % at s = 1e-4.""",
    figures=("linear/staircase",),
)
def plateau_weights(lab: Lab) -> Checks:
    """Medians over seeds in the middle of each plateau, at two sizes of initial weights."""
    scales, seeds = (1e-2, 1e-4), lab.scaled(8, 32, 64)
    lab.note(**FOUR, heads=4, scales=scales, seeds=seeds)
    task = four_components()
    sizes = np.cbrt(np.diag(theory.optimal_matrix(task)))
    for m in range(1, 5):
        large, small = (heads_on_plateau(small_ensemble(lab, s, seeds), m) for s in scales)
        values = np.median(small.values, axis=0)
        yield lab.relative(f"v on plateau {m}", sizes[:m], values, 0.01)
        rest = {"misalignment": (large.misalignment, small.misalignment)}
        if m < 4:
            rest["largest idle v"] = (large.idle, small.idle)
        for name, (at_large, at_small) in rest.items():
            yield lab.at_most(f"{name} on plateau {m}", 0.01, np.median(at_small), wrong=-1.0)
            ratio = np.median(at_small) / np.median(at_large)
            yield lab.at_most(f"{name} on plateau {m} falls with s", 1.0, ratio, wrong=-1.0)


@claim(
    "linear/equal-norms",
    "Small initial weights keep the norms of v, k and q of each head equal throughout training.",
    source="Section 4.3; Appendix E.8 (as cited there)",
    tolerance_reason="""v² − ‖k‖² and ‖k‖² − ‖q‖² are conserved and of the order s² at the start:
    for a head of size v the norms differ by at most (D + 2)s²·5/v.""",
)
def equal_norms(lab: Lab) -> Checks:
    """Norms of learned heads at the end, over seeds, at two sizes of initial weights."""
    scales, seeds = (1e-2, 1e-4), lab.scaled(8, 32, 64)
    lab.note(**FOUR, heads=4, scales=scales, seeds=seeds)
    for scale in scales:
        spread = []
        for run in small_ensemble(lab, scale, seeds):
            c = run.final.circuits
            v = np.abs(np.asarray(c.v))
            sizes = np.stack(
                [v, *(np.linalg.norm(np.asarray(w)[..., 0], axis=1) for w in (c.K, c.Q))]
            )
            spread.append(np.ptp(sizes, axis=0)[v > 0.5].max())
        yield lab.at_most(
            f"largest difference at s = {scale}", 30 * scale**2, max(spread), wrong=-1.0
        )


@claim(
    "linear/scalar-ode-in-training",
    """From small random weights the value weight that grows at each drop follows
    τ dv/dt = λ²v² − λ³[1 + (1 + tr Λ/λ)/N]v⁵.""",
    source="Eq. 21; Figure 3b",
    tolerance_reason="""Started where the head has 10 % of its size, the equation is off by what the
    head has of other components and by the drift of the heads already learned: 2 % of its final
    size in median over seeds at s = 1e-4.""",
    figures=("linear/scalar-ode",),
)
def scalar_ode_in_training(lab: Lab) -> Checks:
    """The largest error of v(t)/a^⅓ after the start, for each drop of each seed."""
    seeds = lab.scaled(8, 32, 32)
    lab.note(**FOUR, heads=4, scale=1e-4, seeds=seeds, started_at=0.1)
    modes = theory.modes(four_components())
    for drop in range(4):
        errors = []
        rate, strength = modes.growth_rates[drop], modes.strengths[drop]
        for run in small_ensemble(lab, 1e-4, seeds):
            times, grown, size = growth_after(run, drop, 0.1)
            start = float(grown[0] * size)
            curve = theory.aligned_value(
                times - times[0], start, rate * float(lab.predict(1.0, wrong=1.1)), strength
            )
            errors.append(np.max(np.abs(curve / size - grown)))
        yield Check(f"drop {drop + 1}: error of v/a^⅓, median", 0.0, np.median(errors), 0.02)
