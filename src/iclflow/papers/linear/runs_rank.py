"""Heads of rank R from the authors' initial weights: eight components, nine heads."""

from typing import NamedTuple

import jax
import jax.random as jr
import numpy as np

from ... import analysis, theory
from ...flows import SaveAtDrops, gradient_flow_ensemble
from ...risks import risk
from ...trajectory import Trajectory
from .. import Lab, once
from .runs import eight_components
from .runs_heads import draw_authors_weights

# The authors' runs with D = 8: heads, initial size i in their units, and how long they train in
# ours (20 001 steps of 0.02; time = 2 · rate · N^⅔ · steps).
RANK_HEADS, RANK_SIZE, RANK_END = 9, 0.005, 7895.0
# The ranks of Figure 4 and of Figure 12.
FIGURE_RANKS, OTHER_RANKS = (1, 2, 4, 8), (3, 5, 6, 7)
# A plateau is long if it lasts at least so many times as long as the drop after it, and visible if
# that drop is at least this share of all.
LONG, VISIBLE = 10.0, 0.03
# A conspicuous plateau lasts at least so many times as long as one that is not, both in units of
# the time scale 1/λ² of the component that is learned next.
CONSPICUOUS = 5.0
# Durations to 1e-4 are enough for medians over seeds; half of the last drop is 0.8 % of the way.
_RTOL, _LEFT = 1e-6, 1e-3
# Dense enough to follow a weight through a plateau between two drops of one head.
_SAVE = SaveAtDrops(loss=2e-3, clock=4e-3)
# Seeds whose loss curves are kept for figures.
_CURVES = 4
# Value weights below this share of the smallest learned one belong to heads that are still idle.
_IDLE = 0.3
# The part of a new component in A, relative to its final one, up to which it grows freely.
_FREE = 0.02


class Sample(NamedTuple):
    """One run: value weights of all heads, the head that holds each component at the end, and the
    part of the component in that head, over its final value."""

    times: np.ndarray
    losses: np.ndarray
    values: np.ndarray
    parts: np.ndarray
    holders: np.ndarray


class RankRuns(NamedTuple):
    """What is measured on the runs of one rank, one row per seed, one column per plateau m = 0 … 7;
    NaN where it cannot be measured.

    - `durations`: between half-drop m and half-drop m + 1.
    - `widths`: how long drop m + 1 takes from a quarter to three quarters of its height.
    - `rests`: what is left of the plateau at its middle; `predicted_rests`: by theory, for idle
      heads with the weights of that moment. (The plateau m = 0 is taken from the start.)
    - `in_large_head`: whether the head in which component m + 1 appears was large before.
    - `growth`: the rate, per unit of ∫v dt, at which component m + 1 grows in unused ranks of that
      head.
    - `curves`: times and losses of the first few seeds; `sample`: the first seed in which every
      plateau at which R divides m stands out.
    """

    durations: np.ndarray
    widths: np.ndarray
    rests: np.ndarray
    predicted_rests: np.ndarray
    in_large_head: np.ndarray
    growth: np.ndarray
    curves: list[tuple[np.ndarray, np.ndarray]]
    sample: Sample


def seeds_of(lab: Lab) -> int:
    """How many seeds of each rank are run."""
    return lab.scaled(2, 16, 64)


@once
def rank_runs(lab: Lab, rank: int, seeds: int, size: float = RANK_SIZE) -> RankRuns:
    """Exact flows from the authors' initial weights, until the last drop is over."""
    task = eight_components()
    draw = jax.vmap(lambda key: draw_authors_weights(key, 8, RANK_HEADS, rank, size))
    models = draw(jr.split(jr.key(60), seeds))
    # Explicit: a factorised matrix of hundreds of weights costs more than thousands of steps.
    runs = gradient_flow_ensemble(
        models,
        risk(task, models),
        solver="explicit",
        rtol=_RTOL,
        tolerance=_LEFT,
        save=_SAVE,
    )
    lab.hash_runs(runs)
    found = [_measure(run, rank) for run in runs]
    durations, widths, rests, predicted, in_large, growth = map(np.array, zip(*found))
    curves = [(runs[i].times, runs[i].losses) for i in range(min(seeds, _CURVES))]
    sample = _sample(runs[find_typical(durations, rank)])
    return RankRuns(durations, widths, rests, predicted, in_large, growth, curves, sample)


def _measure(run: Trajectory, rank: int) -> tuple[np.ndarray, ...]:
    """The fields of `RankRuns` for one run."""
    task = eight_components()
    levels, modes = theory.plateau_losses(task), theory.modes(task)
    early, half, late = (
        analysis.drop_times(run, levels=levels, fraction=part) for part in (0.25, 0.5, 0.75)
    )
    starts = np.insert(half, 0, 0.0)
    rests, predicted, in_large, growth = (np.full(8, np.nan) for _ in range(4))
    weights = run.models.circuits
    v, K, Q = (np.asarray(x) for x in (weights.v, weights.K, weights.Q))
    large = _IDLE * np.cbrt(modes.strengths[0])
    parts = v[:, :, None] * np.sum(K * Q, axis=3)
    for m in range(8):
        if m % rank == 0:
            place = np.searchsorted(run.times, (starts[m] + half[m]) / 2 if m else 0.0)
            rests[m] = half[m] - run.times[place]
            # The components learned so far drive idle heads no more.
            drive = np.where(np.arange(8) < m, 0.0, modes.growth_rates)
            times = theory.blow_up_times(v[place], *theory.as_rank_one(K[place], Q[place]), drive)
            width = 1 / (modes.growth_rates[m] * np.cbrt(modes.strengths[m]))
            predicted[m] = times[np.abs(v[place]) < large].min() + theory.drop_offset() * width
            continue
        before, after = np.searchsorted(run.times, (starts[m], half[m]))
        head = int(np.argmax(parts[min(after, len(v) - 1), :, m]))
        in_large[m] = abs(v[before, head]) > large
        learned = parts[min(after, len(v) - 1), head, :m] > modes.strengths[:m] / 2
        free = np.arange(len(v)) >= before
        free &= (parts[:, head, m] < _FREE * modes.strengths[m]) & (run.times < half[m])
        head_weights = v[free, head], K[free, head], Q[free, head]
        growth[m] = _growth(run.times[free], *head_weights, m, np.flatnonzero(learned))
    return np.diff(starts), late - early, rests, predicted, in_large, growth


def _growth(
    times: np.ndarray, v: np.ndarray, K: np.ndarray, Q: np.ndarray, m: int, learned: np.ndarray
) -> float:
    """d ln ‖k ± q‖ / d∫|v|dt of the weights along component m, the sign being that of v, in the
    ranks of the head that its learned components do not use: there they grow, elsewhere they
    relax."""
    if len(times) < 2:
        return np.nan
    grown = K[:, m] + np.sign(v)[:, None] * Q[:, m]
    sizes = []
    for i in (0, -1):
        used = np.linalg.qr(K[i, learned].T)[0]
        sizes.append(np.linalg.norm(grown[i] - used @ (used.T @ grown[i])))
    way = np.sum(np.diff(times) * (np.abs(v[1:]) + np.abs(v[:-1])) / 2)
    return float(np.log(sizes[1] / sizes[0]) / way)


def scale_durations(durations: np.ndarray) -> np.ndarray:
    """Durations in units of the time scale 1/λ² of the component that is learned next."""
    return durations * np.square(np.diag(np.asarray(eight_components().covariance)))


def stand_out(durations: np.ndarray, rank: int) -> np.ndarray:
    """In which seeds every plateau at which R divides m lasts five times as long as any other, in
    units of 1/λ²."""
    new, scaled = np.arange(8) % rank == 0, scale_durations(durations)
    longest = scaled[:, ~new].max(axis=1, initial=0.0)
    return scaled[:, new].min(axis=1) >= CONSPICUOUS * longest


def find_typical(durations: np.ndarray, rank: int) -> int:
    """The first seed in which the plateaus of new heads stand out; the first of all if none."""
    return int(np.argmax(stand_out(durations, rank)))


def _sample(run: Trajectory) -> Sample:
    modes = theory.modes(eight_components())
    weights = run.models.circuits
    v, K, Q = (np.asarray(x) for x in (weights.v, weights.K, weights.Q))
    parts = v[:, :, None] * np.sum(K * Q, axis=3) / modes.strengths
    holders = np.argmax(parts[-1], axis=0)
    return Sample(run.times, run.losses, v, parts[:, holders, np.arange(8)], holders)
