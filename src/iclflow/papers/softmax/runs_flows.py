"""Flows of structured heads on the large-context and on the exact loss, from small weights."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.optimize

from ...flows import Ensemble, SaveAtTimes, gradient_flow, gradient_flow_ensemble
from ...models import Attention, Diagonal
from ...risks import exact_softmax_risk, risk
from ...tasks import LinearRegression, isotropic
from ...trajectory import Trajectory
from .. import Lab, once
from .runs import CONTEXT, DIM, NOISE, SIGNS, paper_task, structured_heads

# Where the authors start the pair, and the moments at which its stages are looked at.
SMALL = 1e-3
STAGES = (5.5, 7.5, 12.0, 30.0, 100.0, 1000.0, 1e4, 1e5)
# Random starts: the standard deviation of ω and μ.
SPREAD = 0.1
# Until then every start has settled on its signs.
SETTLED = 60.0


@once
def stages_run(lab: Lab) -> Trajectory:
    """The pair from ±0.001 by the flow of the large-context loss, dense around its peak."""
    times = np.unique([*np.linspace(0.1, 12, 239), *STAGES])
    model = structured_heads(SMALL * SIGNS, SMALL * SIGNS)
    loss = risk(paper_task(), model, "large_context")
    save = SaveAtTimes(times)
    return gradient_flow(model, loss, end=STAGES[-1], save=save, progress=False)


def quiet_task() -> LinearRegression:
    """The paper's task with nearly no noise, as in the authors' plot of four heads."""
    return isotropic(DIM, CONTEXT, 0.01)


@once
def four_heads(lab: Lab) -> Ensemble:
    """Four heads from random weights by the flow of the large-context loss, nearly without noise,
    up to the time of the authors' plot."""
    models = random_heads(lab.scaled(16, 64, 256), 4, 31)
    start = structured_heads(np.zeros(4), np.zeros(4))
    loss = risk(quiet_task(), start, "large_context")
    # The drift along the manifold is slow and stiff.
    options = {"end": 1e4, "save": SaveAtTimes((1e4,)), "rtol": 1e-5, "solver": "implicit"}
    return gradient_flow_ensemble(models, loss, progress=False, **options)


@once
def small_heads(lab: Lab, heads: int) -> Ensemble:
    """Structured heads from random weights by the flow of the exact loss, until their signs are
    settled."""
    seeds = lab.scaled(16, 256, 1024)
    models = random_heads(seeds, heads, 32)
    # A table for slopes up to the largest attention on the way: exact to six digits.
    exact = exact_softmax_risk(paper_task(), digits=6).tabulate(1.5)
    options = {"end": SETTLED, "save": SaveAtTimes((SETTLED,)), "rtol": 1e-6}
    return gradient_flow_ensemble(models, exact, progress=False, **options)


def random_heads(seeds: int, heads: int, key: int) -> Attention:
    """Heads with normal ω and μ, stacked."""
    omega, mu = SPREAD * jr.normal(jr.key(key), (2, seeds, heads))
    return jax.vmap(lambda w, m: Attention(Diagonal(w, m, DIM)))(omega, mu)


class Minimum(NamedTuple):
    """Where searches end: weights and losses of all starts."""

    weights: np.ndarray
    losses: np.ndarray


@once
def one_head_search(lab: Lab) -> Minimum:
    """Minima of the large-context loss of one head from 64 random starts."""
    task, model = paper_task(), structured_heads([0.1], [0.1])
    loss = risk(task, model, "large_context")

    def both(weights: jax.Array):
        heads = Attention(Diagonal(weights[:1], weights[1:], DIM))
        return loss(heads)

    slope = jax.jit(jax.value_and_grad(both))
    rng = np.random.default_rng(0)
    found = []
    for start in np.abs(rng.normal(size=(64, 2))) * (0.5, 1.0) + 0.05:
        end = scipy.optimize.minimize(
            lambda w: tuple(np.asarray(x, float) for x in slope(jnp.asarray(w))),
            start, jac=True, method="BFGS", options={"gtol": 1e-10},
        )  # fmt: skip
        found.append((*end.x, end.fun))
    values = np.asarray(found)
    return Minimum(values[:, :2], values[:, 2])


def pair_infimum(lab: Lab) -> np.ndarray:
    """The large-context loss of pairs of falling ω with the best μ, by the risk of the library:
    quadratic in μ, so that three values give its minimum."""
    model = structured_heads(SIGNS, SIGNS)
    loss = risk(paper_task(), model, "large_context")
    found = []
    for omega in (0.2, 0.1, 0.02, 1e-3):
        at = lambda mu: float(loss(structured_heads(omega * SIGNS, mu * SIGNS)))
        size = 1 / omega
        zero, plus, minus = at(0.0), at(size), at(-size)
        square, line = (plus + minus - 2 * zero) / 2, (plus - minus) / 2
        found.append(zero - line**2 / (4 * square))
    return np.asarray(found)


def best_values(omega: np.ndarray) -> np.ndarray:
    """The μ of smallest large-context loss at given ω, from slopes of the risk of the library."""
    count = len(omega)
    loss = risk(paper_task(), structured_heads(omega, np.zeros(count)), "large_context")
    value = lambda mu: loss(Attention(Diagonal(jnp.asarray(omega), mu, DIM)))
    slope = lambda mu: np.asarray(jax.grad(value)(jnp.asarray(mu)))
    zero = slope(np.zeros(count))
    square = np.stack([slope(row) - zero for row in np.eye(count)])
    return np.linalg.solve(square, -zero)


# What the four heads are trained on.
FOUR = {"dim": DIM, "context": 40, "noise": 0.01, "heads": 4, "start": f"N(0, {SPREAD**2:g})"}
PAIR = {"dim": DIM, "context": 40, "noise": NOISE, "start": SMALL, "risk": "large-context"}
