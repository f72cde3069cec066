"""Separate attention from the authors' initial weights, and what each head does on a plateau."""

from typing import NamedTuple

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
        directions = np.asarray(model.circuits.K)[large, :, 0]
        component = np.argmax(np.abs(directions), axis=1)
        cosine = np.abs(directions).max(1) / np.linalg.norm(directions, axis=1)
        values.append(v[large][np.argsort(component)])
        misaligned.append(np.max(1 - cosine))
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
    levels = theory.plateau_losses(task)
    return np.array([analysis.drop_times(run, levels=levels)[0] for run in runs])


def growth_after(run, drop: int, start: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Times, v(t)/a^⅓ and a^⅓ of the head that grows at a drop, from where it has the share
    `start` of its final size."""
    modes = theory.modes(four_components())
    size = float(np.cbrt(modes.strengths[drop]))
    keys = np.asarray(run.models.circuits.K)[..., 0]
    v = np.asarray(run.models.circuits.v)
    strength = np.abs(v * keys[:, :, drop])
    head = int(np.argmax(strength[-1]))
    grown = np.abs(v[:, head]) / size
    after = grown >= start
    first = int(np.argmax(after))
    return run.times[first:], grown[first:], size
