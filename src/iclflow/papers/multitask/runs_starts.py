"""Random starts on several tasks, many at once, and where they end (arXiv 2402.19442)."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from ...flows import SaveAtTimes, gradient_flow_ensemble, init_many, stack
from ...models import Attention, BalancedSpectral
from ...risks import risk
from ...tasks import MultiTaskRegression
from .. import Lab, once
from .runs import (
    OTHER,
    OWN,
    READ,
    SIZES,
    UNEQUAL_SIZES,
    UNEQUAL_WIDTH,
    WIDTH,
    blocks_of_sizes,
    paper_task,
    unequal_task,
)

# Every ω and μ of a start is U(1 − spread, 1) times its size.
SPREAD = 0.2


class Ends(NamedTuple):
    """Where the members of an ensemble start, and where they end (M of them)."""

    omega_start: Float[np.ndarray, "M H I"]
    mu_start: Float[np.ndarray, "M H I"]
    omega: Float[np.ndarray, "M H I"]
    mu: Float[np.ndarray, "M H I"]
    losses: Float[np.ndarray, " M"]

    @property
    def owners(self) -> np.ndarray:
        """(M, I): the head that says most of the prediction of each task, ω_hi μ_hi of it."""
        return np.argmax(self.omega * self.mu, 1)

    def part(self, which) -> "Ends":
        """Some of the members."""
        return Ends(*(each[which] for each in self))


class Mixed(NamedTuple):
    """Ends of random starts with different numbers of heads, and of one start of its own kind.

    **Fields:**

    - `heads`: how many heads each of the random starts has.
    - `special`: the last start, which is not random.
    """

    ends: Ends
    heads: np.ndarray
    special: Ends

    def with_heads(self, count: int) -> Ends:
        """Those with so many heads."""
        return self.ends.part(self.heads == count)


def random_counts(lab: Lab) -> tuple[int, int]:
    """How many random starts there are on the paper's task with three heads, and with two."""
    return lab.scaled(96, 1024, 4096), lab.scaled(32, 128, 1024)


@once
def random_ends(lab: Lab) -> Mixed:
    """Random starts with three heads and with two on the paper's task; at last the first of them
    with its heads in the opposite order."""
    heads = np.repeat([3, 2], random_counts(lab))
    sets = blocks_of_sizes(SIZES)
    start = lambda key, heads: _random_start(key, heads, sets, 3, WIDTH)
    models = init_many(start, jr.split(jr.key(5), len(heads)), heads)
    turned = jax.tree.map(lambda leaf: leaf[0, ::-1], models)
    return _flow_mixed(models, turned, heads, paper_task(), 200.0, "explicit")


def unequal_counts(lab: Lab) -> tuple[int, int]:
    """How many random starts there are on unequal tasks with three heads, and with two."""
    return lab.scaled(8, 64, 1024), lab.scaled(8, 32, 512)


@once
def unequal_ends(lab: Lab) -> Mixed:
    """Random starts on unequal tasks with three heads, with two and with one; at last one with four
    heads, of which head i is ahead on task i."""
    heads = np.repeat([3, 2, 1], (*unequal_counts(lab), 1))
    sets = blocks_of_sizes(UNEQUAL_SIZES)
    start = lambda key, heads: _random_start(key, heads, sets, 4, UNEQUAL_WIDTH)
    models = init_many(start, jr.split(jr.key(7), len(heads)), heads)
    omega = 2 * np.where(np.eye(4, 3) > 0, OWN, OTHER)
    circuits = BalancedSpectral.of(omega, np.full((4, 3), READ), sets, width=UNEQUAL_WIDTH)
    ahead = Attention(circuits)
    # Implicit steps get to where the algebraic approach is over.
    return _flow_mixed(models, ahead, heads, unequal_task(), 1e4, "implicit")


def _random_start(key, heads, sets, most: int, width: int) -> Attention[BalancedSpectral]:
    """A random positive start of `heads` heads, beside heads that are zero and stay so."""
    sizes = np.asarray([len(block) for block in sets])
    each = 1 - SPREAD * jr.uniform(key, (2, most, len(sizes)))
    omega, mu = jnp.where(jnp.arange(most)[:, None] < heads, each, 0.0)
    return Attention(
        BalancedSpectral(
            attend=jnp.sqrt(2 * width**0.5 * sizes * OWN * omega),
            read=jnp.sqrt(2 * READ * mu),
            coordinates=sets,
            dim=int(sizes.sum()),
            width=width,
        )
    )


def _flow_mixed(
    models, special, heads, task: MultiTaskRegression, end: float, solver: str
) -> Mixed:
    """The flow of an ensemble of balanced heads and of a special one, from start to end."""
    models = jax.tree.map(lambda many, one: jnp.concatenate([many, one[None]]), models, special)
    runs = gradient_flow_ensemble(
        models, risk(task, special, "large_context"), end=end, save=SaveAtTimes((0.0, end)),
        rtol=1e-6, solver=solver, progress=False,
    )  # fmt: skip
    values = eqx.filter_vmap(lambda model: (model.circuits.omega(), model.circuits.mu()))
    last = stack([run.final for run in runs])
    each = [np.asarray(value) for model in (models, last) for value in values(model)]
    found = Ends(each[0], each[1], each[2], each[3], runs.final_losses)
    return Mixed(found.part(slice(-1)), heads, found.part(slice(-1, None)))
