"""How far a staircase is from the limit of small weights.

Two things make the steps of rank-one heads indistinct: drops that follow each other closely, and
heads that are not yet aligned with one component when they grow. Both follow from the weights at
t = 0. They decide which tolerance a claim has on a run, or that it does not apply.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ... import analysis, theory
from ...models import Normaliser
from ...tasks import LinearRegression
from .. import Given, Inconclusive
from .checks_limits import normaliser_of, require_dense

# A plateau counts from so many durations of the next drop on: then the drops beside it are over.
CLEAR = 10.0
# Runs that stop within this share of the way down have A within its root, 0.7 %, in prediction.
_CLOSE = 5e-5


class Steps(NamedTuple):
    """The staircase that theory predicts, and how distinct its steps are.

    **Fields:**

    - `rests`: the predicted time before each drop, over the duration τ/(c a^⅓) of that drop.
    - `misalignment`: the most that a head has of an unlearned component when it has learned its
      own, relative to that.
    """

    staircase: theory.Staircase
    rests: Float[np.ndarray, " n"]
    misalignment: float


def predicted_steps(task: LinearRegression, first: Any) -> Steps:
    """The staircase from the initial weights of rank-one heads."""
    found = theory.staircase(task, first)
    if not len(found.drop_times):
        raise Inconclusive("no drop is predicted: no head can grow from these initial weights")
    rests = np.diff(found.drop_times, prepend=0.0) / found.widths
    return Steps(found, rests, _misalignment(task, first, found))


def _misalignment(task: LinearRegression, first, found: theory.Staircase) -> float:
    """While small, the parts of a head along the components d grow together as exp(c_d θ): when the
    one that wins has grown from g to its size a^⅓, part j has grown by (a^⅓/g)^(c_j/c)."""
    modes = theory.modes(task, first.normaliser)
    sizes, rates = np.cbrt(modes.strengths), modes.growth_rates
    keys, queries = (
        np.asarray(w)[..., 0] @ modes.left for w in (first.circuits.K, first.circuits.Q)
    )
    either = np.sqrt((keys**2 + queries**2) / 2)
    worst = 0.0
    for head, won in zip(found.heads, found.drop_order):
        sign = np.sign(float(first.circuits.v[head]))
        growing = abs(keys[head, won] + sign * queries[head, won]) / 2
        left = slice(won + 1, modes.count)
        grown = either[head, left] * (sizes[won] / growing) ** (rates[left] / rates[won])
        worst = max(worst, float(np.max(grown / sizes[won], initial=0.0)))
    return worst


def relaxation_rate(
    task: LinearRegression, learned: int, normaliser: Normaliser = "context"
) -> float:
    """The slowest rate, in 1/τ, at which rank-one heads that have learned the first components lose
    their parts along the others.

    Around a learned head (v = a^⅓, K = Q = a^⅓ e_i) its parts k, q along an unlearned e_j obey
    τ k̇ = s(−S_i (C_j/C_i) k + S_j q), τ q̇ = s(S_j k − S_i (λ_j/λ_i) q), s = a_i^⅓.
    """
    modes = theory.modes(task, normaliser)
    drive, size = modes.growth_rates, np.cbrt(modes.strengths)
    in_basis = lambda matrix: np.einsum("dj,de,ej->j", modes.left, np.asarray(matrix), modes.left)
    spread = in_basis(theory.correlation_second_moment(task, normaliser))
    inputs = in_basis(task.covariance)
    rates = []
    for i in range(learned):
        for j in range(learned, modes.count):
            pull = drive[i] * np.array([spread[j] / spread[i], inputs[j] / inputs[i]])
            slow = np.linalg.eigvalsh([[-pull[0], drive[j]], [drive[j], -pull[1]]])[-1]
            rates.append(-size[i] * slow)
    return float(min(rates, default=np.inf))


def check_distinct(found: Steps, rest: float, misalignment: float) -> None:
    """Refuses a run whose steps are too close to each other by theory itself."""
    if found.rests.min() < rest:
        raise Inconclusive(
            f"two drops are predicted {found.rests.min():.2g} of their durations apart: the claim "
            f"is for steps that are {rest:g} apart or more"
        )
    if found.misalignment > misalignment:
        raise Inconclusive(
            f"a head has {found.misalignment:.2g} of another component when it learns its own: the "
            f"claim is for smaller initial weights, which leave at most {misalignment:g}"
        )


def find_rests(
    given: Given, relaxed: float
) -> tuple[Float[np.ndarray, " n"], list[tuple[int, analysis.Plateau]]]:
    """The predicted levels, and the plateaus of the run that are long enough to be compared, each
    with the number of the nearest level.

    **Arguments:**

    - `relaxed`: by how many factors of e the parts of heads along other components must have
      decayed.
    """
    task, normaliser = given.task, normaliser_of(given)
    modes, model = theory.modes(task, normaliser), given.config.model
    room = min(modes.count, model.heads * model.widest_rank)
    levels = theory.plateau_losses(task, room, normaliser)
    widths = 1 / (modes.growth_rates * np.cbrt(modes.strengths))
    close = getattr(given.config.flow, "tolerance") <= _CLOSE
    require_dense(given, -np.diff(levels))
    found = []
    for rest in analysis.plateaus(given.run):
        number = int(np.argmin(np.abs(rest.level - levels)))
        done = rest.final and given.run.result.name == "converged" and close
        if done and number == room:
            found.append((number, rest))
            continue
        if rest.final or number == room or rest.duration < CLEAR * widths[number]:
            continue
        if rest.duration * relaxation_rate(task, number, normaliser) < relaxed:
            continue
        found.append((number, rest))
    if not found:
        raise Inconclusive("the loss has not rested for as long as ten drops anywhere")
    return levels, found
