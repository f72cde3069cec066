"""Claims of arXiv 2501.16265 on single heads: how fast they learn, and their weights."""

import numpy as np

from ... import analysis, theory
from .. import Check, Checks, Inconclusive, Lab, claim
from .runs import FOUR, four_components
from .runs_heads import (
    AUTHORS_HEADS,
    AUTHORS_SIZE,
    SMALL_SCALES,
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
    tolerance_reason="""The law is the limit of small weights: the drop itself takes a share of the
    time of the order of the initial weights, 1e-3, more for the quickest heads. Heads start from
    the same random weights for every λ, so that ratios have no sampling error: 1 %.""",
)
def learning_time(lab: Lab) -> Checks:
    """Half-drop times of random heads on tasks with one component, over λ = 0.1 … 1.6."""
    eigenvalues, heads = (0.1, 0.4, 1.6), lab.scaled(100, 200, 4000)
    lab.note(eigenvalues=eigenvalues, context=31, heads=heads, scale=1e-3)
    scaled = [value**2 * lone_head_times(lab, value, heads) for value in eigenvalues]
    quantiles = np.quantile(scaled, (0.1, 0.25, 0.5, 0.75, 0.9), axis=1)
    for i, value in enumerate(eigenvalues[1:], 1):
        ratio = quantiles[:, i] / quantiles[:, 0]
        name = f"quantiles of Tλ² at λ = {value}, relative to those at λ = {eigenvalues[0]}"
        yield lab.relative(name, np.ones(5), ratio, 0.01)


@claim(
    "linear/later-plateaus",
    "From small weights, later plateaus last longer: in the median over seeds each does.",
    source="Section 4.3, of what Figure 3a shows from small weights: later plateaus last longer",
    tolerance_reason="""An order of medians over seeds in the authors' setting. The source speaks of
    what is seen, not of medians: they were chosen after the shares of seeds had been measured,
    which are among the settings with their intervals. By shares the first step fails as well.""",
    corrected_by="linear/plateau-durations",
    figures=("linear/staircase",),
)
def later_plateaus(lab: Lab) -> Checks:
    """Medians of durations, and the share of seeds in which each is longer than the one before."""
    seeds = lab.scaled(16, 32, 1024)
    durations = authors_durations(lab, seeds).measured
    longer = np.diff(durations, axis=1) > 0
    hits = [*longer.sum(axis=0).tolist(), int(longer.all(axis=1).sum())]
    names = ("1 after 0", "2 after 1", "3 after 2", "all three")
    shares = {name: (each, *analysis.wilson(each, seeds)) for name, each in zip(names, hits)}
    lab.note(**FOUR, **_AUTHORS, seeds=seeds, seeds_in_which_longer_and_interval=shares)
    rises = np.diff(np.median(durations, axis=0)) > 0
    name = "whether plateaus 1, 2, 3 last longer than those before, medians"
    yield lab.equal(name, [True] * 3, rises.tolist())


@claim(
    "linear/plateau-durations",
    """From small weights, the initial weights alone give the duration of each plateau, and in the
    median over seeds plateaus last longer from plateau 1 on.""",
    source="Section 4.3; durations derived in docs/theory/linear.md",
    tolerance_reason="""Predictions are the limit of small weights. At the authors' weights, 0.03 in
    our units, durations of single seeds are off by a few per cent, and by more where two heads
    nearly tie; errors of both signs leave 1 % in the median over seeds.""",
    figures=("linear/staircase",),
)
def median_durations(lab: Lab) -> Checks:
    """Medians of durations, predicted from the weights at t = 0 and measured."""
    seeds = lab.scaled(16, 32, 1024)
    lab.note(**FOUR, **_AUTHORS, seeds=seeds)
    found = authors_durations(lab, seeds)
    # A few seeds start with a head that is too large for the limit of small weights.
    known = np.isfinite(found.predicted).all(axis=1)
    if known.mean() < 0.9:
        raise Inconclusive(f"theory applies to {known.mean():.0%} of the seeds")
    ratio = np.median(found.measured[known] / found.predicted[known], axis=0)
    lab.note(medians=np.round(np.median(found.measured, axis=0), 1).tolist())
    yield lab.relative("durations over predicted ones, medians", np.ones(4), ratio, 0.01)
    rises = np.diff(np.median(found.measured, axis=0))[1:] > 0
    yield lab.equal("plateaus 2 and 3 last longer than those before", [True, True], rises)


@claim(
    "linear/plateau-weights",
    """On plateau m, m heads have k = q = v e_i up to signs, with
    v = λ^−⅓[1 + (1 + tr Λ/λ)/N]^−⅓, and the others are near zero.""",
    source="Eq. 20; Figure 3c",
    tolerance_reason="""Idle heads and misalignment fall with the initial weights s: medians over
    seeds are below 1 % at s = 1e-4.""",
    figures=("linear/staircase-3c",),
)
def plateau_weights(lab: Lab) -> Checks:
    """Medians over seeds in the middle of each plateau, at four sizes of initial weights."""
    seeds = lab.scaled(8, 16, 64)
    lab.note(**FOUR, heads=4, scales=SMALL_SCALES, seeds=seeds)
    sizes = np.cbrt(np.diag(theory.optimal_matrix(four_components())))
    for m in range(1, 5):
        found = [heads_on_plateau(small_ensemble(lab, s, seeds), m) for s in SMALL_SCALES]
        values = np.median(found[-1].values, axis=0)
        yield lab.relative(f"v on plateau {m}", sizes[:m], values, 0.01)
        rest = {
            "misalignment": [np.median(each.misalignment) for each in found],
            "error of v": [np.median(np.abs(each.values / sizes[:m] - 1).max(1)) for each in found],
        }
        if m < 4:
            rest["largest idle v"] = [np.median(each.idle) for each in found]
        for name, medians in rest.items():
            yield lab.close(f"{name} on plateau {m}", 0.0, medians[-1], 0.01, scale=1.0)
            if m < 4:  # on the last plateau they fall with time, whatever the start
                falls = (np.diff(medians) < 0).tolist()
                yield lab.equal(f"{name} on plateau {m} falls with s", [True] * 3, falls)


@claim(
    "linear/equal-norms",
    "Small initial weights keep the norms of v, k and q of each head equal throughout training.",
    source="Section 4.3; Appendix E.8 (as cited there)",
    tolerance_reason="""v² − ‖k‖² and ‖k‖² − ‖q‖² are conserved and of the order s² at the start:
    for a head of size v the norms differ by at most (D + 2)s²·5/v.""",
)
def equal_norms(lab: Lab) -> Checks:
    """Norms of learned heads at the end, over seeds, at two sizes of initial weights."""
    scales, seeds = (1e-2, 1e-4), lab.scaled(8, 16, 64)
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
        # Learned weights are of order one.
        name = f"largest difference at s = {scale}"
        yield lab.close(name, 0.0, max(spread), 30 * scale**2, scale=1.0)


@claim(
    "linear/scalar-ode-in-training",
    """From small random weights the value weight that grows at each drop follows
    τ dv/dt = λ²v² − λ³[1 + (1 + tr Λ/λ)/N]v⁵, once its head is aligned; before that the head moves
    as an idle head of any direction, in the median over seeds later than the equation says.""",
    source="Eq. 21; Figure 3b; idle heads derived in docs/theory/linear.md",
    tolerance_reason="""Started where the head has 10 % of its size, the equation is off by what the
    head has of other components and by the drift of the heads already learned: 1 % of its final
    size in median over seeds at s = 1e-4. Started at v = 10 s it takes the head for aligned, and
    is early: its median over measured is at most one, up to the 1 % by which |v| and |k| of a head
    of that size may differ. How early depends on the draw, and is among the settings: no theory
    bounds it (2.5 % and 5 % stood here; other seeds and other eigenvalues did not keep them). An
    idle head of the same weights takes that time to 1e-4, in the limit of small weights; a median
    too, since heads that have begun on another component move otherwise.""",
    figures=("linear/staircase-3b",),
)
def scalar_ode_in_training(lab: Lab) -> Checks:
    """The error of v(t)/a^⅓ and the time to the half-drop, for each drop of each seed."""
    seeds, scale = lab.scaled(8, 16, 64), 1e-4
    lab.note(**FOUR, heads=4, scale=scale, seeds=seeds, started_at=("0.1 a^⅓", "10 s"))
    modes, bend = theory.modes(four_components()), float(lab.predict(1.0))
    early = {}
    for drop in range(4):
        errors, ratios, by_equation = [], [], []
        rate, strength = modes.growth_rates[drop], modes.strengths[drop]
        for run in small_ensemble(lab, scale, seeds):
            found = growth_after(run, drop, 0.1 * np.cbrt(strength))
            start = float(found.grown[0] * found.size)
            times = found.times - found.times[0]
            curve = theory.aligned_value(times, start, rate * bend, strength)
            errors.append(np.max(np.abs(curve / found.size - found.grown)))
            found = growth_after(run, drop, 10 * scale)
            ratios.append(found.left / found.left_idle)
            start = float(found.grown[0] * found.size)
            by_equation.append(theory.aligned_drop_time(start, rate, strength) / found.left)
        name = f"drop {drop + 1}: error of v/a^⅓ from 10 % on, median"
        yield Check(name, 0.0, np.median(errors), 0.01, scale=1.0)
        name = f"drop {drop + 1}: time from v = 10 s to half of it, over that of an idle head"
        yield lab.relative(name, 1.0, np.median(ratios), 1e-4)
        name = f"drop {drop + 1}: time of Eq. 21 from v = 10 s to half of it, over measured, median"
        yield lab.at_most(name, 1.0, float(np.median(by_equation)), 0.01)
        early[f"drop {drop + 1}"] = np.quantile(by_equation, (0.1, 0.5, 0.9)).round(4).tolist()
    lab.note(time_of_the_equation_over_measured_at_10_50_and_90_percent_of_seeds=early)
