"""What free heads have become in training: their circuits and roles over many seeds, and losses."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.interpolate
from jaxtyping import Bool, Float

from ... import theory
from ...analysis import (
    diagonal_shares,
    head_roles,
    label_shares,
    superposition,
    wilson,
    zero_sum,
)
from ...circuits import Circuits, stacked_circuits
from ...flows import Ensemble
from ...models import AbstractModel, Attention, Diagonal
from ...trajectory import Trajectory
from .. import Given, Lab, once
from .runs import SIGNS, paper_task, structured_heads
from .runs_seeds import (
    authors_two_tasks,
    free_ensemble,
    free_toeplitz,
    free_two_tasks,
    one_task_training,
    training_config,
)

# The pattern: output-value entries cancel to the first share; a trap: not even to the second.
CANCELS, STAYS = 0.05, 0.5


class Heads(NamedTuple):
    """The heads of many seeds on one label, each array (seeds, heads)."""

    omega: Float[np.ndarray, "S H"]
    mu: Float[np.ndarray, "S H"]
    diagonal: Float[np.ndarray, "S H"]
    unevenness: Float[np.ndarray, "S H"]
    label: Float[np.ndarray, "S H"]
    roles: np.ndarray

    @staticmethod
    def of(models: AbstractModel) -> "Heads":
        """Measures a stack of models."""
        found = stacked_circuits(models)
        omega, mu = found.omega[..., 0], found.mu[..., 0]
        roles = np.asarray([head_roles(w, m) for w, m in zip(omega, mu)], dtype=object)
        return Heads(
            omega, mu, diagonal_shares(found), _unevenness(found), label_shares(found), roles
        )

    def __getitem__(self, chosen: Any) -> "Heads":  # pyright: ignore[reportIncompatibleMethodOverride]
        """The same of some seeds."""
        return Heads(*(np.asarray(field)[chosen] for field in tuple.__iter__(self)))

    @property
    def active(self) -> Bool[np.ndarray, "S H"]:
        """Heads that are not dummies: at least 10 % of what the strongest adds to the step."""
        return self.roles != "dummy"

    @property
    def dummies(self) -> np.ndarray:
        """The number of dummies of each seed."""
        return np.sum(~self.active, 1)

    @property
    def zero_sum(self) -> Float[np.ndarray, " S"]:
        """|Σμ| / Σ|μ|."""
        return zero_sum(self.mu)

    @property
    def both_signs(self) -> Bool[np.ndarray, " S"]:
        """Seeds with a positive and a negative head, none that opposes them, and μ that cancel to
        5 %: the pattern."""
        has = lambda role: np.any(self.roles == role, 1)
        return has("positive") & has("negative") & ~has("opposing") & (self.zero_sum < CANCELS)

    @property
    def one_sign(self) -> Bool[np.ndarray, " S"]:
        """Seeds whose active heads have one sign and μ that do not cancel."""
        kinds = np.asarray([len(set(row) - {"dummy"}) == 1 for row in self.roles])
        return kinds & (self.zero_sum > STAYS)

    def mean_of_active(self, values: np.ndarray) -> Float[np.ndarray, " S"]:
        """The mean over active heads."""
        return np.sum(np.where(self.active, values, 0.0), 1) / np.sum(self.active, 1)

    def group_sums(self) -> Float[np.ndarray, "S 2"]:
        """Σμ over the active heads with ω > 0, and over those with ω < 0."""
        groups = (self.active & (np.sign(self.omega) == sign) for sign in (1, -1))
        return np.stack([np.sum(np.where(group, self.mu, 0.0), 1) for group in groups], 1)

    @property
    def width(self) -> Float[np.ndarray, " S"]:
        """|ω| of the active heads, each counted by |μω|."""
        weights = np.where(self.active, np.abs(self.mu * self.omega), 0.0)
        return np.sum(weights * np.abs(self.omega), 1) / np.sum(weights, 1)

    @property
    def spread(self) -> Float[np.ndarray, " S"]:
        """(largest − smallest |ω|) / mean |ω| over active heads."""
        sizes = np.where(self.active, np.abs(self.omega), np.nan)
        return (np.nanmax(sizes, 1) - np.nanmin(sizes, 1)) / np.nanmean(sizes, 1)


def _unevenness(found: Circuits) -> np.ndarray:
    """Variance over squared mean of the diagonal of each head."""
    return found.diagonals.var(-1) / found.diagonals.mean(-1) ** 2


@once
def trained_run(lab: Lab, heads: int) -> Trajectory:
    """The first seed of `free_ensemble` that ends in the pattern: what figures show."""
    found = final_heads(lab, heads)
    good = np.flatnonzero(found.both_signs) if heads > 1 else [0]
    return free_ensemble(lab, heads)[int(good[0]) if len(good) else 0]


def trained_given(lab: Lab, heads: int) -> Given:
    """All seeds of `free_ensemble` as a claim's own runs."""
    runs = free_ensemble(lab, heads)
    given = Given(training_config(lab, heads), paper_task(), trained_run(lab, heads), own=True)
    return dataclasses.replace(given, seeds=runs.runs)


@once
def final_heads(lab: Lab, heads: int) -> Heads:
    """The heads of every seed of `free_ensemble` at the end."""
    return Heads.of(free_ensemble(lab, heads).finals)


def pattern_heads(lab: Lab, heads: int) -> Heads:
    """The same of the seeds that end in the pattern; of a single head, of all."""
    found = final_heads(lab, heads)
    return found if heads == 1 else found[found.both_signs]


def heads_at(runs: Ensemble, step: int) -> Heads:
    """The heads of every seed at a recorded step."""
    return Heads.of(models_at(runs, step))


def models_at(runs: Ensemble, step: int) -> AbstractModel:
    """The models of every seed at a recorded step, stacked."""
    count = int(runs.offsets[1])
    times = runs.times.reshape(len(runs), count)[0]
    (place,) = np.flatnonzero(times == step)
    return runs.layout.models(runs.weights.reshape(len(runs), count, -1)[:, place])


@once
def attention_along(lab: Lab, heads: int) -> tuple[np.ndarray, np.ndarray]:
    """|ω| and Σμ of a sign at the recorded steps, medians over the seeds that end in the
    pattern."""
    runs, good = free_ensemble(lab, heads), final_heads(lab, heads).both_signs
    found = [heads_at(runs, step)[good] for step in one_task_training(lab, heads).saved]
    omega = [np.median(each.width) for each in found]
    return np.asarray(omega), np.asarray([np.median(np.abs(f.group_sums())) for f in found])


def share_of(hits: np.ndarray) -> dict[str, Any]:
    """A share of seeds for a note: how many, of how many, and the 95 % interval by Wilson."""
    count, total = int(np.sum(hits)), int(np.size(hits))
    if total == 0:
        return {"seeds": "none"}
    low, high = wilson(count, total)
    return {"seeds": f"{count} of {total}", "interval": [round(low, 4), round(high, 4)]}


@once
def _best_mu(lab: Lab) -> Callable[[np.ndarray], np.ndarray]:
    """The best μ of an opposite pair by theory as a function of its ω, between nodes by a spline
    in logarithms, which leaves 1e-5."""
    nodes = np.geomspace(0.04, 0.8, 25)
    found = [theory.head_integrals(paper_task(), w * SIGNS) for w in nodes]
    mu = [theory.optimal_mu_from(paper_task(), each)[0] for each in found]
    spline = scipy.interpolate.CubicSpline(np.log(nodes), np.log(mu))
    return lambda omega: np.exp(spline(np.log(omega)))


def best_mu(lab: Lab, omega: np.ndarray) -> np.ndarray:
    """The best μ of opposite pairs with these ω, by theory."""
    return _best_mu(lab)(omega)


@once
def toeplitz_heads(lab: Lab) -> tuple[np.ndarray, np.ndarray]:
    """Of every seed of `free_toeplitz`: whether it ends as a pair, and Σ μ_h W_h."""
    models = free_toeplitz(lab).finals
    return Heads.of(models).both_signs, stacked_circuits(models).together[:, 0]


class TaskHeads(NamedTuple):
    """The heads of many seeds on two tasks.

    **Fields:**

    - `superposed`: how many heads of each seed give their second task more than a quarter of the
      first.
    - `split`: whether every active head has one task, and each task one positive and one negative
      head.
    - `zero_sums`: |Σμ| / Σ|μ| of each task.
    - `losses`: of each seed, the mean over both tasks.
    - `omega`, `mu`: (seeds, heads, tasks).
    """

    superposed: np.ndarray
    split: np.ndarray
    zero_sums: np.ndarray
    losses: np.ndarray
    omega: np.ndarray
    mu: np.ndarray

    @property
    def median_loss(self) -> float:
        return float(np.median(self.losses))

    @property
    def settled(self) -> np.ndarray:
        """Seeds within 5 % of the smallest loss of all."""
        return self.losses < 1.05 * self.losses.min()


@once
def two_task_heads(lab: Lab, heads: int) -> TaskHeads:
    """The heads of every seed of `free_two_tasks` at the end."""
    runs, task = free_two_tasks(lab, heads), authors_two_tasks()
    found = stacked_circuits(runs.finals, task)
    shared = [superposition(run.final, task) for run in runs]
    mu = np.moveaxis(found.mu, 1, 2)  # heads last
    owners = np.asarray([each.owners for each in shared])
    superposed = np.asarray([each.superposed for each in shared])
    signs = np.sign(np.take_along_axis(found.omega, np.maximum(owners, 0)[..., None], 2)[..., 0])
    pairs = [
        np.sum((owners == i) & (signs == sign), 1) == 1
        for i in range(task.labels) for sign in (1, -1)
    ]  # fmt: skip
    reference, floor = two_task_reference()
    count = lab.scaled(4000, 8000, 40_000)
    losses = losses_beside(runs.finals, reference, floor, task, count) / task.labels
    split = np.all(pairs, 0) & (superposed == 0)
    return TaskHeads(superposed, split, zero_sum(mu), losses, found.omega, found.mu)


@eqx.filter_jit
def _differences(models: AbstractModel, reference: AbstractModel, task: Any, key, count: int):
    sequences = task.sample(key, count)
    loss = lambda model: jnp.sum(sequences.squared_error(model.predict(sequences)))
    return (eqx.filter_vmap(loss)(models) - loss(reference)) / count


def losses_beside(
    models: AbstractModel, reference: AbstractModel, reference_loss: float, task: Any, count: int
) -> np.ndarray:
    """The loss of each model of a stack, from its difference to a model whose loss is known, on the
    same sequences: the two make nearly the same errors."""
    batch = min(count, 2000)  # bounds the memory
    keys = [jr.fold_in(jr.key(5), i) for i in range(-(-count // batch))]
    parts = [_differences(models, reference, task, key, batch) for key in keys]
    return reference_loss + np.mean(np.asarray(parts), 0)


def pair_reference(context: int) -> tuple[Attention, float]:
    """The best pair of L = 40, and its exact loss at another length, by theory."""
    best = theory.pair_optimum(paper_task())
    model = structured_heads(best.w * SIGNS, best.mu * SIGNS)
    return model, float(theory.pair_loss(paper_task(context), best.w, best.mu))


def two_task_reference() -> tuple[Attention, float]:
    """A nearly vanishing pair of heads for each task, and the sum of the floors, which they reach
    up to the square of their attention."""
    task, small = authors_two_tasks(), 0.01
    found = theory.shared_steps(task, 4)
    steps = np.max(found.steps @ found.profiles, 1)
    masks = np.asarray(task.masks)
    omega = small * np.concatenate([sign * masks for sign in SIGNS])
    mu = np.concatenate([sign * np.diag(steps) / (2 * small) for sign in SIGNS])
    model = Attention(Diagonal(jnp.asarray(omega), jnp.asarray(mu), task.dim))
    return model, float(theory.task_floors(task).sum())
