"""The experiments of the claims on arXiv 2503.12734, each computed once and shared."""

from functools import partial
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ...analysis import Patterns, patterns
from ...flows import Ensemble, SaveEvenly, descend, descend_ensemble, init_many
from ...models import AbstractModel, Attention, Diagonal, Merged
from ...risks import IntegratedRisk, SampledRisk
from ...tasks import AbstractTask, Estimate, LinearRegression, isotropic
from ...trajectory import Trajectory
from .. import Lab, once

DIM, CONTEXT, NOISE = 5, 40, 0.1
HEADS = (1, 2, 4, 8)
BATCH = 256


def paper_task(context: int = CONTEXT) -> LinearRegression:
    """The paper's task: d = 5, L = 40, σ² = 0.1, β ~ N(0, I/d)."""
    return isotropic(DIM, context, NOISE)


def training_steps(lab: Lab) -> int:
    """The paper trains for 500 000 steps; the patterns are there after a few thousand if the
    learning rate is taken down at the end."""
    return lab.scaled(1500, 2500, 500_000)


def annealed_adam(lab: Lab, rate: float = 1e-2) -> optax.GradientTransformation:
    """Adam whose learning rate goes to zero along a cosine."""
    # The paper's own length needs its own rate: 1e-3, constant there, annealed here too.
    rate = 1e-3 if lab.tier == "paper" else rate
    return cosine_adam(rate, training_steps(lab))


@once
def trained_run(lab: Lab, heads: int) -> Trajectory:
    """All of Q, K, V and O trained by Adam on fresh sequences, from the usual random weights."""
    model = Attention.factored(jr.key(1), DIM, heads)
    return descend(
        model,
        SampledRisk(paper_task(), BATCH, precision="float32"),
        annealed_adam(lab),
        training_steps(lab),
        key=jr.key(2),
        save=SaveEvenly(101),
        progress=False,
    )


def note_training(lab: Lab, heads: Any) -> None:
    """Records the settings of `trained_run`."""
    lab.note(
        dim=DIM, context=CONTEXT, noise=NOISE, heads=heads, batch=BATCH, optimiser="Adam, annealed",
        steps=training_steps(lab), steps_in_paper=500_000, weights="Q, K, V, O of width d + 1",
    )  # fmt: skip


@once
def trained_ensemble(lab: Lab, seeds: int, steps: int, batch: int) -> Ensemble:
    """Many random initialisations of two heads, trained at once."""
    models = init_many(partial(Attention.factored, dim=DIM, heads=2), jr.split(jr.key(3), seeds))
    return descend_ensemble(
        models,
        SampledRisk(paper_task(), batch, precision="float32"),
        cosine_adam(1e-2, steps),
        steps,
        keys=jr.split(jr.key(4), seeds),
        save=SaveEvenly(3),
        progress=False,
    )


@once
def blind_ensemble(lab: Lab, heads: int, seeds: int, steps: int, batch: int) -> Ensemble:
    """Many random initialisations of merged heads whose attention does not see labels.

    They start with the circuits of the usual random Q, K, V and O. Labels are integrated out, so
    that a small batch is enough.
    """

    def init(key) -> Attention:
        start = Attention.factored(key, DIM, heads)
        return Attention(
            Merged.of(start.ov()[:, 0, -1], start.kq()[:, :DIM]),
            activation="softmax",
            self_attention=False,
        )

    return descend_ensemble(
        init_many(init, jr.split(jr.key(3), seeds)),
        IntegratedRisk(paper_task(), batch, precision="float32"),
        cosine_adam(1e-2, steps),
        steps,
        keys=jr.split(jr.key(4), seeds),
        save=SaveEvenly(21),
        progress=False,
    )


def loss_beside(
    model: AbstractModel,
    reference: AbstractModel,
    reference_loss: float,
    task: AbstractTask,
    count: int,
    key=None,
) -> Estimate:
    """The loss of `model` from its difference to a model whose loss is known exactly.

    On the same sequences the two make nearly the same errors, so that the difference has far less
    noise than either loss.
    """
    key = jr.key(5) if key is None else key
    batch = min(count, 20_000)
    parts = [
        np.asarray(_differences(model, reference, task, jr.fold_in(key, i), batch))
        for i in range(-(-count // batch))
    ]
    found = np.concatenate(parts)
    error = found.std(ddof=1) / np.sqrt(found.size)
    return Estimate(jnp.asarray(reference_loss + found.mean()), jnp.asarray(error))


@eqx.filter_jit
def _differences(model, reference, task, key, batch: int):
    sequences = task.sample(key, batch)
    loss = lambda model: sequences.squared_error(model.predict(sequences))
    return loss(model) - loss(reference)


def pair(omega: float, mu: float, dim: int = DIM) -> Attention:
    """Two heads (ω, μ) and (−ω, −μ)."""
    return Attention(Diagonal(jnp.asarray([omega, -omega]), jnp.asarray([mu, -mu]), dim))


def structured_heads(omega, mu, dim: int = DIM) -> Attention:
    """Heads with these numbers."""
    return Attention(Diagonal(jnp.asarray(omega, float), jnp.asarray(mu, float), dim))


_SCHEDULES: dict[tuple[float, int], optax.GradientTransformation] = {}


def cosine_adam(rate: float, steps: int) -> optax.GradientTransformation:
    """Adam whose learning rate goes from `rate` to zero along a cosine."""
    # A transformation is compiled in by identity: equal ones must be the same object.
    if (rate, steps) not in _SCHEDULES:
        _SCHEDULES[rate, steps] = optax.adam(optax.cosine_decay_schedule(rate, steps))
    return _SCHEDULES[rate, steps]


def blind_sizes(lab: Lab) -> tuple[int, int, int]:
    """Seeds, steps and batch of the ensemble of merged heads."""
    sizes = {"smoke": (16, 1500, 8), "default": (64, 1500, 8), "paper": (1024, 20_000, 32)}
    return sizes[lab.tier]


def final_patterns(runs: Ensemble) -> list[Patterns]:
    """The patterns of every member at its end."""
    return [patterns(run.final) for run in runs]
