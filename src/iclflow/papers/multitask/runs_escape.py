"""Stochastic gradient descent on drawn labels, and when it leaves one head per task
(arXiv 2402.19442)."""

from typing import NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Float

from ...flows import SaveEvenly, descend_ensemble, sgd_rule, stack
from ...models import Attention, Spectral
from ...risks import SampledRisk
from ...tasks import MultiTaskRegression
from ...theory import multitask
from .. import Lab, once
from .runs import CONTEXT, FRAMES, OTHER, OWN, READ, SIZES, blocks_of_sizes

# The weight on labels of other tasks at which a head has left.
GONE = 0.1
# Saved points of a run, beside its start.
_POINTS = 200


class Setting(NamedTuple):
    """Equal tasks without noise and the start of heads on them; head i is ahead on task i.

    **Fields:**

    - `size`, `tasks`, `length`: d, I and L.
    - `own`, `other`, `read`: ω on the own task and on the others, and every μ.
    """

    size: int
    tasks: int
    length: int
    own: float
    other: float
    read: float
    heads: int = 3

    @property
    def width(self) -> int:
        return self.size * self.tasks

    @property
    def task(self) -> MultiTaskRegression:
        sets = blocks_of_sizes((self.size,) * self.tasks)
        return MultiTaskRegression(sets, context=self.length, signal=1.0, noise=0.0)

    @property
    def values(self) -> tuple[np.ndarray, np.ndarray]:
        """ω and μ at the start."""
        own = np.eye(self.heads, self.tasks) > 0
        return np.where(own, self.own, self.other), np.full(own.shape, self.read)

    def model(self) -> Attention:
        """Balanced full factors in random frames."""
        sets = blocks_of_sizes((self.size,) * self.tasks)
        return Attention(Spectral.of(*self.values, sets, width=self.width).factored(jr.key(FRAMES)))


# Figure 1 of the paper with our start; and tasks so small that a processor can train them, with
# larger leads, because their batches are small too.
FIGURE_ONE = Setting(SIZES[0], 3, CONTEXT, OWN, OTHER, READ)
SMALL = Setting(6, 3, 40, 0.02, 0.01, 0.2)
PAIR = SMALL._replace(tasks=2, heads=2)
ONE_LABEL = SMALL._replace(tasks=1, heads=2)

# Rates and batches of the runs: a decade of each at the paper tier, and one small pair.
_PAPER = ((0.02, 64), (0.02, 200), (0.02, 640), (0.002, 64), (0.0064, 64))
_SMALL = (0.02, 20)
# How long runs last: late heads need some 20 units of time more than the median.
ESCAPE_END = 60.0


class Escapes(NamedTuple):
    """R runs of stochastic gradient descent, with times of the flow.

    **Fields:**

    - `losses`: on fresh batches.
    - `read`: the output-value circuits U_h = O_hV_h of all heads.
    """

    rate: float
    batch: int
    times: Float[np.ndarray, " T"]
    losses: Float[np.ndarray, "R T"]
    read: Float[np.ndarray, "R T H I I"]

    @property
    def ratio(self) -> float:
        return self.rate / self.batch

    @property
    def mu(self) -> Float[np.ndarray, "R T H I"]:
        """The weights of heads on labels, the diagonals of the circuits."""
        return np.einsum("rthii->rthi", self.read)

    @property
    def others(self) -> Float[np.ndarray, "R T H"]:
        """The mean weight of each head on the labels of other tasks than its own."""
        mu = self.mu
        own = np.einsum("rthh->rth", mu)
        return (mu.sum(-1) - own) / (mu.shape[-1] - 1)

    def left(self, level: float = GONE) -> Float[np.ndarray, "R H"]:
        """When each head has reached −`level` on other labels; infinite if it has not."""
        others = self.others
        gone = others < -level
        after = np.argmax(gone, 1)
        before = np.maximum(after - 1, 0)
        late, early = (np.take_along_axis(others, at[:, None], 1)[:, 0] for at in (after, before))
        share = np.where(early > late, (early + level) / np.where(early > late, early - late, 1), 0)
        found = self.times[before] + share * (self.times[after] - self.times[before])
        return np.where(gone.any(1), found, np.inf)

    def turned(self, time: float) -> Float[np.ndarray, "R H"]:
        """Δ = U_ij − U_ji of each head on the labels i < j of the two other tasks, for I = 3."""
        at = int(np.argmin(np.abs(self.times - time)))
        pairs = [[i for i in range(3) if i != head] for head in range(3)]
        here = self.read[:, at]
        return np.stack([here[:, h, i, j] - here[:, h, j, i] for h, (i, j) in enumerate(pairs)], 1)

    def selected(self, time: float) -> np.ndarray:
        """Whether head i has the largest weight on label i at this time, for all i."""
        here = self.mu[:, int(np.argmin(np.abs(self.times - time)))]
        return np.all(np.argmax(here, 1) == np.arange(here.shape[-1]), 1)


def paper_tier(lab: Lab) -> bool:
    return lab.tier == "paper"


@once
def trained(
    lab: Lab, setting: Setting, rate: float, batch: int, runs: int, end: float, seed: int = 6
) -> Escapes:
    """Plain stochastic gradient descent on drawn sequences, one step being a time of 2η."""
    # On a processor stored batches need no kernel of their own, which would take longer to compile
    # than these small runs take.
    precision = "float32" if paper_tier(lab) else "float64"
    data = SampledRisk(setting.task, batch, precision=precision)
    steps = _POINTS * max(1, round(end / (2 * rate * _POINTS)))
    found = descend_ensemble(
        stack([setting.model()] * runs), data, sgd_rule(rate), steps,
        keys=jr.split(jr.key(seed), runs), save=SaveEvenly(_POINTS + 1), progress=False,
    )  # fmt: skip
    lab.hash_runs(found)
    circuits = [run.models.circuits for run in found]
    read = [jnp.einsum("thie,thej->thij", each.O, each.V) for each in circuits]
    times = 2 * rate * np.asarray(found[0].times)
    losses = np.stack([run.losses for run in found])
    return Escapes(rate, batch, times, losses, np.asarray(jnp.stack(read), float))


@once
def seed_of(lab: Lab, setting: Setting, end: float) -> multitask.NoiseSeed:
    """What batch noise does along the balanced flow, by theory."""
    return multitask.noise_seed(setting.task, *setting.values, setting.width, end)


def escape_setting(lab: Lab) -> Setting:
    """The tasks of Figure 1 where there is a GPU for them, else small ones."""
    return FIGURE_ONE if paper_tier(lab) else SMALL


def escape_runs(lab: Lab) -> list[Escapes]:
    """The runs at all rates and batches."""
    count = lab.scaled(2, 8, 96)
    pairs = _PAPER if paper_tier(lab) else (_SMALL,)
    return [trained(lab, escape_setting(lab), *pair, count, ESCAPE_END) for pair in pairs]
