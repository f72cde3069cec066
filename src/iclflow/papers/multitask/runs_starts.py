"""Random starts on several tasks, many at once, and where they end (arXiv 2402.19442)."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from ...flows import SaveAtTimes, gradient_flow_ensemble, init_many, stack
from ...models import AbstractModel, Attention, BalancedSpectral
from ...risks import risk
from ...tasks import MultiTaskRegression
from .. import Lab, once
from .runs import OTHER, OWN, READ, paper_task, unequal_task

# Every ω and μ of a start is U(1 − spread, 1) times its size.
SPREAD = 0.2
# When the flows end: on equal tasks the loss is then within 0.05 % of its limit in the mean; on
# unequal ones the algebraic approach to the limit is over.
END, UNEQUAL_END = 200.0, 1e4


class Ends(NamedTuple):
    """Starts and ends of the M members of an ensemble."""

    omega_start: Float[np.ndarray, "M H I"]
    mu_start: Float[np.ndarray, "M H I"]
    omega: Float[np.ndarray, "M H I"]
    mu: Float[np.ndarray, "M H I"]
    losses: Float[np.ndarray, " M"]

    @property
    def owners(self) -> np.ndarray:
        """(M, I): the head with the largest part ω_hi μ_hi of the prediction of each task."""
        return np.argmax(self.omega * self.mu, 1)

    @property
    def working(self) -> np.ndarray:
        """(M,): how many heads own a task."""
        return count_distinct(self.owners)

    def part(self, which: Any) -> "Ends":
        """Some of the members."""
        return Ends(*(each[which] for each in self))


class Mixed(NamedTuple):
    """Ends of random starts with different numbers of heads, and of one start that is not random.

    **Fields:**

    - `heads`: the number of heads of each random start.
    - `special`: the start that is not random.
    """

    ends: Ends
    heads: np.ndarray
    special: Ends

    def with_heads(self, count: int) -> Ends:
        """The random starts with this many heads."""
        return self.ends.part(self.heads == count)


def count_distinct(heads: np.ndarray) -> np.ndarray:
    """How many different heads each row names."""
    return np.asarray([len(set(row)) for row in heads.tolist()])


def random_counts(lab: Lab) -> tuple[int, int]:
    """The numbers of random starts on the paper's task with three heads and with two."""
    return lab.scaled(96, 1024, 4096), lab.scaled(32, 128, 1024)


@once
def random_ends(lab: Lab) -> Mixed:
    """Random starts on the paper's task; the special one is the first with its heads reversed."""
    heads, task = np.repeat([3, 2], random_counts(lab)), paper_task()
    models = _random_starts(17, heads, 3, task)
    reverse = jax.tree.map(lambda leaf: leaf[0, ::-1], models)
    return _flow_mixed(lab, models, reverse, heads, task, END, "explicit")


def unequal_counts(lab: Lab) -> tuple[int, int]:
    """The numbers of random starts on unequal tasks with three heads and with two."""
    return lab.scaled(8, 64, 1024), lab.scaled(8, 32, 512)


@once
def unequal_ends(lab: Lab) -> Mixed:
    """Random starts on unequal tasks with three heads, two and one; the special one has four heads,
    of which head i is ahead on task i."""
    heads, task = np.repeat([3, 2, 1], (*unequal_counts(lab), 1)), unequal_task()
    models = _random_starts(7, heads, 4, task)
    ahead = balanced_heads(2 * np.where(np.eye(4, 3) > 0, OWN, OTHER), task)
    return _flow_mixed(lab, models, ahead, heads, task, UNEQUAL_END, "implicit")


def balanced_heads(omega: np.ndarray, task: MultiTaskRegression) -> Attention[BalancedSpectral]:
    """Balanced heads with these ω, and the usual μ in every head that attends to something."""
    mu = READ * np.broadcast_to(np.any(omega > 0, 1, keepdims=True), omega.shape)
    return Attention(BalancedSpectral.of(omega, mu, task.coordinates))


def flow_to_end(
    lab: Lab, models: AbstractModel, task: MultiTaskRegression, end: float, solver: str
) -> Ends:
    """Gradient flow of an ensemble of balanced heads on the large-context risk."""
    first = jax.tree.map(lambda leaf: leaf[0], models)
    runs = gradient_flow_ensemble(
        models, risk(task, first, "large_context"), end=end, save=SaveAtTimes((0.0, end)),
        rtol=1e-6, solver=solver, progress=False,
    )  # fmt: skip
    lab.hash_runs(runs)
    values = eqx.filter_vmap(lambda model: (model.circuits.omega(), model.circuits.mu()))
    last = stack([run.final for run in runs])
    return Ends(*map(np.asarray, (*values(models), *values(last), runs.final_losses)))


def _random_starts(
    seed: int, heads: np.ndarray, most: int, task: MultiTaskRegression
) -> AbstractModel:
    """Random positive starts with `heads` heads each, padded to `most` with heads that are zero and
    stay so: one program serves them all."""
    sizes = np.asarray([len(block) for block in task.coordinates])

    def start(key, heads) -> Attention[BalancedSpectral]:
        each = 1 - SPREAD * jr.uniform(key, (2, most, len(sizes)))
        omega, mu = jnp.where(jnp.arange(most)[:, None] < heads, each, 0.0)
        attend = jnp.sqrt(2 * task.dim**0.5 * sizes * OWN * omega)
        read = jnp.sqrt(2 * READ * mu)
        sets, dim = task.coordinates, task.dim
        return Attention(
            BalancedSpectral(attend=attend, read=read, coordinates=sets, dim=dim, width=dim)
        )

    return init_many(start, jr.split(jr.key(seed), len(heads)), heads)


def _flow_mixed(lab, models, special, heads, *flow) -> Mixed:
    """Flows the random starts and the special one in one ensemble; `flow` as in `flow_to_end`."""
    models = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), models, special)
    found = flow_to_end(lab, models, *flow)
    return Mixed(found.part(slice(-1)), heads, found.part(slice(-1, None)))
