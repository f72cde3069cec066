"""Populations of free heads, all of Q, K, V and O, from the usual random weights.

At the paper tier they are trained as the authors train: Adam at a constant rate of 1e-3, 256 fresh
sequences a step, 500 000 steps. Shorter tiers anneal a larger rate to zero.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np

from ...config import Config
from ...flows import Ensemble, SaveAtTimes, adam_rule, descend_ensemble, init_many
from ...models import Attention
from ...risks import SampledRisk
from ...tasks import AbstractRegression, LinearRegression, MultiTaskRegression
from .. import Lab, once, study
from .runs import CONTEXT, DIM, NOISE, SETTING, cosine_adam, paper_task

# The steps at which the authors show the circuits, as shares of their whole run.
AUTHORS_STEPS = (1, 1000, 2000, 10_000, 100_000, 500_000)
# Other moments of the same run, for curves.
_BETWEEN = (
    100, 200, 300, 500, 700, 1500, 3000, 5000, 20_000, 30_000, 50_000, 70_000, 150_000, 200_000,
    300_000, 400_000,
)  # fmt: skip
RHO = 0.5  # of the Toeplitz covariance ρ^|i−j|


class Training(NamedTuple):
    """How an ensemble of free heads is trained."""

    seeds: int
    steps: int
    batch: int
    rate: float
    annealed: bool

    @property
    def rule(self) -> Any:
        if self.annealed:
            return cosine_adam(self.rate, self.steps)
        return adam_rule(self.rate)

    @property
    def saved(self) -> tuple[int, ...]:
        """The recorded steps: those of the authors, and others between them."""
        full = np.asarray(sorted(AUTHORS_STEPS + _BETWEEN))
        scaled = np.unique(np.maximum(1, full * self.steps // AUTHORS_STEPS[-1]))
        return tuple(int(step) for step in scaled)

    def settings(self, heads: Any) -> dict[str, Any]:
        """As claims and figures record them."""
        schedule = "annealed to zero along a cosine" if self.annealed else "constant"
        own = {"seeds": self.seeds, "steps": self.steps, "batch": self.batch}
        return own | {
            "heads": heads, "weights": "Q, K, V, O of width d + I",
            "optimiser": f"Adam, rate {self.rate:g}, {schedule}",
            "authors": "Adam, rate 0.001, constant, 500 000 steps of 256 sequences",
        }  # fmt: skip


def shown_heads(lab: Lab, *counts: int) -> tuple[int, ...]:
    """Of these numbers of heads, those that the tier trains: three and eight at the paper tier
    alone."""
    return tuple(h for h in counts if lab.tier == "paper" or h in (1, 2, 4))


def more_heads(lab: Lab) -> tuple[int, ...]:
    """The numbers of heads above two that the tier trains."""
    return shown_heads(lab, 3, 4, 8)


def training(lab: Lab, seeds: int | None = None) -> Training:
    """The training of a tier: that of the authors at the paper tier, else a short one."""
    if lab.tier == "paper":
        return Training(seeds or 256, AUTHORS_STEPS[-1], 256, 1e-3, False)
    return Training(lab.scaled(4, 16, 0), lab.scaled(1500, 4000, 0), 64, 1e-2, True)


def one_task_training(lab: Lab, heads: int) -> Training:
    """The training of `free_ensemble`."""
    return training(lab, 64 if heads == 1 else 256)


def two_task_training(lab: Lab) -> Training:
    """The training of `free_two_tasks`."""
    return training(lab, 64)


def toeplitz_training(lab: Lab) -> Training:
    """The training of `free_toeplitz`."""
    return training(lab, 16)


@once
def free_ensemble(lab: Lab, heads: int) -> Ensemble:
    """Free heads on the paper's task."""
    return train_free(paper_task(), heads, one_task_training(lab, heads))


@once
def free_two_tasks(lab: Lab, heads: int) -> Ensemble:
    """Free heads on the authors' two tasks."""
    return train_free(authors_two_tasks(), heads, two_task_training(lab))


@once
def free_toeplitz(lab: Lab) -> Ensemble:
    """Two free heads on correlated inputs."""
    return train_free(toeplitz_task(), 2, toeplitz_training(lab))


@once
def free_at_rate(lab: Lab, rate: float, batch: int) -> Ensemble:
    """Two free heads on the paper's task at a rate and batch, eight seeds; at a lower rate for as
    many more steps, since |ω| comes to rest after a time in proportion to it."""
    how = training(lab, 8)
    steps = round(how.steps * how.rate / rate)
    return train_free(paper_task(), 2, how._replace(rate=rate, batch=batch, steps=steps))


def train_free(task: AbstractRegression, heads: int, how: Training) -> Ensemble:
    """Trains free heads from many random initial weights on fresh sequences."""
    init: Callable[..., Attention] = partial(
        Attention.factored, dim=task.dim, heads=heads, labels=task.labels
    )
    models = init_many(init, jr.split(jr.key(3), how.seeds))
    # Another stream for every number of heads: their seeds are independent.
    keys = jr.split(jr.fold_in(jr.key(4), heads), how.seeds)
    # Summed over labels instead of their mean: Adam does not see the factor.
    data = SampledRisk(task, how.batch, precision="float32")
    save = SaveAtTimes(how.saved)
    return descend_ensemble(models, data, how.rule, how.steps, keys=keys, save=save, progress=False)


def authors_two_tasks() -> MultiTaskRegression:
    """Two tasks as the authors' notebook draws them: β ~ N(0, I), noise in the context alone."""
    sets = ((0, 1, 2, 3), (2, 3, 4, 5))
    return MultiTaskRegression(sets, context=48, noise=0.4, signal=1.0, noisy_query=False)


def toeplitz_task() -> LinearRegression:
    """Inputs with the covariance ρ^|i−j|; β ~ N(0, I/d)."""
    places = np.arange(DIM)
    covariance = RHO ** np.abs(places[:, None] - places)
    prior = np.eye(DIM) / DIM
    return LinearRegression(
        covariance=covariance, context=CONTEXT, noise=NOISE, prior_covariance=prior
    )


def training_config(lab: Lab, heads: int = 2) -> Config:
    """The study that a member of `free_ensemble` trains on, but for the annealed rate of the short
    tiers, which configs cannot express."""
    how = one_task_training(lab, heads)
    flow = {"steps": how.steps, "learning_rate": how.rate}
    return study("softmax/trained", model={"heads": heads}, flow=flow, risk={"batch": how.batch})


def note_training(lab: Lab, heads: Any) -> None:
    """Records the settings of `free_ensemble`."""
    lab.note(**SETTING, **one_task_training(lab, int(np.max(heads))).settings(heads))


# Of the settings of one task, what belongs to all of its ensembles.
ONE_TASK = SETTING
TWO_TASKS = {
    "dim": 6, "coordinates": [[0, 1, 2, 3], [2, 3, 4, 5]], "context": 48, "noise": 0.4,
    "query_noise": 0.0, "prior_variance": 1.0,
}  # fmt: skip
