"""Separate attention from the authors' initial weights, and what each head does on a plateau."""

from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ... import analysis, theory
from ...errors import BeyondLimit
from ...flows import Ensemble, gradient_flow_ensemble, init_many
from ...models import Attention, Separate
from ...risks import risk
from ...tasks import LinearRegression
from .. import Lab, once
from .runs import CONTEXT, four_components

# The authors do not divide attention by N: weights of theirs times N^⅓ are weights of ours.
UNITS = CONTEXT ** (1 / 3)
# Initial size i of the authors' run with D = 4, and its heads.
AUTHORS_SIZE, AUTHORS_HEADS = 0.01, 5
# How long that run is: 10 001 steps of 0.02; time = 2 · rate · N^⅔ · steps.
AUTHORS_END = 3948.0
# Sizes of initial weights, towards the limit of small ones.
SMALL_SCALES = (0.03, 0.01, 1e-3, 1e-4)


def draw_authors_weights(
    key: PRNGKeyArray, dim: int, heads: int, rank: int, size: float
) -> Attention[Separate]:
    """v ~ N(0, i²), entries of K and Q ~ N(0, i²/(R(D + 1))), in our units: the initialisation of
    the authors' code when the paper appeared."""
    keys, entry = jr.split(key, 3), size * UNITS / (rank * (dim + 1)) ** 0.5
    v = size * UNITS * jr.normal(keys[0], (heads,))
    K, Q = (entry * jr.normal(each, (heads, dim, rank)) for each in keys[1:])
    return Attention(Separate.of(v, K, Q))


@once
def authors_ensemble(lab: Lab, seeds: int) -> Ensemble:
    """Exact flows from the authors' initial weights, D = 4."""
    draw = jax.vmap(lambda key: draw_authors_weights(key, 4, AUTHORS_HEADS, 1, AUTHORS_SIZE))
    models = draw(jr.split(jr.key(50), seeds))
    return gradient_flow_ensemble(models, risk(four_components(), models), solver="implicit")


@once
def small_ensemble(lab: Lab, scale: float, seeds: int) -> Ensemble:
    """Exact flows of four heads from weights N(0, s²)."""
    keys = jr.split(jr.key(51), seeds)
    models = init_many(Attention.separate, keys, dim=4, heads=4, scale=scale)
    return gradient_flow_ensemble(models, risk(four_components(), models), solver="implicit")


@once
def plateau_durations(lab: Lab, scale: float, seeds: int) -> np.ndarray:
    """How long plateaus 0 … 3 of each run from weights N(0, s²) last, and when its last drop is."""
    levels = theory.plateau_losses(four_components())
    runs = small_ensemble(lab, scale, seeds)
    times = np.array([analysis.drop_times(run, levels=levels) for run in runs])
    return np.concatenate([np.diff(times, axis=1, prepend=0.0), times[:, -1:]], axis=1)


class Durations(NamedTuple):
    """Times between half-drops m and m + 1 of each run, predicted from the weights at t = 0 and
    measured on the loss curve."""

    predicted: np.ndarray
    measured: np.ndarray


@once
def authors_durations(lab: Lab, seeds: int) -> Durations:
    """Durations of the plateaus 0 … 3 of the authors' runs, one row per seed."""
    levels = theory.plateau_losses(four_components())
    runs = authors_ensemble(lab, seeds)
    measured = [analysis.drop_times(run, levels=levels) for run in runs]
    predicted = [_predict_drops(run.at(0)) for run in runs]
    return Durations(*(np.diff(each, axis=1, prepend=0.0) for each in (predicted, measured)))


def _predict_drops(model: Attention) -> np.ndarray:
    """Drop times from initial weights; NaN if these are too large for the limit of small ones."""
    try:
        return theory.staircase(four_components(), model).drop_times
    except BeyondLimit:
        return np.full(4, np.nan)


class PlateauHeads(NamedTuple):
    """The heads in the middle of plateau m of each run: the sizes of the m largest v, how far their
    keys and queries are from eigenvectors, and the largest v among the others over the smallest."""

    values: np.ndarray
    misalignment: np.ndarray
    idle: np.ndarray


def heads_on_plateau(ensemble: Ensemble, m: int) -> PlateauHeads:
    """What the heads are in the middle of plateau m, between half-drops m and m + 1."""
    levels = theory.plateau_losses(four_components())
    values, misaligned, idle = [], [], []
    for run in ensemble:
        times = analysis.drop_times(run, levels=levels)
        model = run.final if m == 4 else run.model_at((times[m - 1] + times[m]) / 2)
        v = np.abs(np.asarray(model.circuits.v))
        order = np.argsort(-v)
        large = order[:m]
        keys, queries = (np.asarray(w)[large, :, 0] for w in (model.circuits.K, model.circuits.Q))
        component = np.argmax(np.abs(keys), axis=1)
        cosines = [
            np.abs(each[np.arange(m), component]) / np.linalg.norm(each, axis=1)
            for each in (keys, queries)
        ]
        values.append(v[large][np.argsort(component)])
        misaligned.append(1 - np.min(cosines))
        idle.append(v[order[m]] / v[large].min() if m < len(v) else 0.0)
    return PlateauHeads(np.array(values), np.array(misaligned), np.array(idle))


@once
def lone_head_times(lab: Lab, eigenvalue: float, heads: int) -> np.ndarray:
    """When each of many random heads has learned the one component of a task by half."""
    task = LinearRegression([eigenvalue], CONTEXT)
    # The same initial weights for every eigenvalue.
    keys = jr.split(jr.key(52), heads)
    models = init_many(Attention.separate, keys, dim=1, heads=1, scale=1e-3)
    runs = gradient_flow_ensemble(models, risk(task, models), solver="implicit")
    lab.hash_runs(runs)
    levels = theory.plateau_losses(task)
    return np.array([analysis.drop_times(run, levels=levels)[0] for run in runs])


class Growth(NamedTuple):
    """The head that grows at a drop, from the moment at which its v has a given size.

    - `times`, `grown`: v(t)/a^⅓ from that moment on; `size`: a^⅓.
    - `left`: the time from there to half of the drop; `left_idle`: that of an idle head with the
      weights of that moment, by theory.
    """

    times: np.ndarray
    grown: np.ndarray
    head: int
    size: float
    left: float
    left_idle: float


def growth_after(run: Any, drop: int, start: float) -> Growth:
    """The growth of the head that learns a component, from where its v is `start`."""
    modes = theory.modes(four_components())
    size = float(np.cbrt(modes.strengths[drop]))
    circuits = run.models.circuits
    v, K, Q = (np.asarray(w) for w in (circuits.v, circuits.K, circuits.Q))
    head = int(np.argmax(np.abs(v[-1] * K[-1, :, drop, 0])))
    value = np.abs(v[:, head])
    first = int(np.argmax(value >= start))
    drive = np.where(np.arange(4) < drop, 0.0, modes.growth_rates)
    one = slice(head, head + 1)
    idle = theory.blow_up_times(v[first, one], K[first, one, :, 0], Q[first, one, :, 0], drive)
    offset = theory.drop_offset() / (modes.growth_rates[drop] * size)
    half = analysis.drop_times(run, levels=theory.plateau_losses(four_components()))[drop]
    left = half - run.times[first]
    grown = value[first:] / size
    return Growth(run.times[first:], grown, head, size, float(left), float(idle[0] + offset))
