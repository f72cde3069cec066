"""Minima of the exact risk, and staircases at long contexts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from ... import analysis
from ...flows import gradient_flow
from ...models import Attention, Merged
from ...risks import AbstractRisk, risk
from ...tasks import LinearRegression
from ...trajectory import Trajectory
from .. import Lab, once, study
from .runs import FOUR, WEIGHTS

# Context lengths of the limits, and the initial weights there: the longer the context, the less is
# left to learn, and the smaller idle heads must be.
CONTEXTS = {31: 1e-3, 100: 1e-3, 1000: 1e-3, 10_000: 1e-5}
# The share of the way down at which runs that are compared by their weights stop.
CONVERGED = 1e-11
# Sequences of the sampled fit, and how many at once.
FITTED = 200_000
_BLOCKS = 20


def four_at(context: int | tuple[int, ...]) -> LinearRegression:
    """The paper's four components at another context length, or at several."""
    return LinearRegression(FOUR["eigenvalues"], context)


def minimise_risk(task: LinearRegression) -> np.ndarray:
    """The A that minimises the exact risk: one Newton step, because the risk is quadratic in A."""
    zero = jnp.zeros((task.dim, task.dim))
    step = _newton_step(risk(task, _attend(zero)), zero)
    return np.asarray(_attend(step).coefficients())


def _attend(matrix: jax.Array) -> Attention[Merged]:
    return Attention(Merged.of(jnp.ones(1), matrix[None]))


# One program for all tasks: operation by operation it would be a hundred small ones.
@eqx.filter_jit
def _newton_step(exact: AbstractRisk, zero: jax.Array) -> jax.Array:
    loss = lambda entries: exact(_attend(entries.reshape(zero.shape)))
    start = zero.reshape(-1)
    step = jnp.linalg.solve(jax.hessian(loss)(start), -jax.grad(loss)(start))
    return step.reshape(zero.shape)


def fit_by_least_squares(
    task: LinearRegression, key: PRNGKeyArray
) -> tuple[np.ndarray, np.ndarray]:
    """The fit of y_q on z = vec(βx_qᵀ) over sampled sequences, with standard errors that hold
    although the noise depends on z (the sandwich formula)."""
    features, labels = [], []
    for part in jr.split(key, _BLOCKS):
        sequences = task.sample(part, FITTED // _BLOCKS)
        x, y = np.asarray(sequences.x), np.asarray(sequences.y).reshape(len(sequences.x), -1)
        beta = np.einsum("pn,pnd->pd", y, x) / x.shape[1]
        query = np.asarray(sequences.x_query)
        features.append(np.einsum("pi,pj->pij", beta, query).reshape(len(x), -1))
        labels.append(np.asarray(sequences.y_query).reshape(-1))
    z, target = np.concatenate(features), np.concatenate(labels)
    inverse = np.linalg.inv(z.T @ z)
    fit = inverse @ (z.T @ target)
    left = z * (target - z @ fit)[:, None]
    error = np.sqrt(np.diag(inverse @ (left.T @ left) @ inverse))
    return fit.reshape(task.dim, task.dim), error.reshape(task.dim, task.dim)


def converged_run(lab: Lab, kind: str) -> Trajectory:
    """The merged or the separate run of the paper's task, to the end."""
    name = {"merged": "linear/merged", "separate": "linear/staircase"}[kind]
    config = study(name, seed=0, model={"scale": 1e-3}, flow={"tolerance": CONVERGED})
    return lab.run(config, WEIGHTS)


class LongStaircase(NamedTuple):
    """Levels of the plateaus m = 0 … D of a run, and the exact risks of the models in the middle
    of those after the first."""

    levels: np.ndarray
    risks: np.ndarray


@once
def long_staircase(lab: Lab, context: int) -> LongStaircase:
    """The plateaus of a staircase at another context length, found without theory."""
    config = study(
        "linear/staircase",
        seed=0,
        task={"context": context},
        model={"scale": CONTEXTS[context]},
        flow={"kind": "gradient_flow", "solver": "implicit", "tolerance": 1e-9},
    )
    run = lab.run(config, WEIGHTS)
    exact = risk(four_at(context), run.final)
    found = analysis.plateaus(run)
    models = [run.model_at((p.start + p.end) / 2) for p in found[1:-1]] + [run.final]
    return LongStaircase(
        np.array([p.level for p in found]), np.array([float(exact(model)) for model in models])
    )


@once
def prefix_run(lab: Lab) -> tuple[Trajectory, LinearRegression]:
    """Merged attention trained on all prefixes of 31 tokens, divided by the number of tokens."""
    task = four_at(tuple(range(1, 32)))
    model = Attention.merged(jr.key(0), dim=4, heads=8, scale=1e-3, normaliser="tokens")
    return gradient_flow(model, risk(task, model), tolerance=CONVERGED), task
