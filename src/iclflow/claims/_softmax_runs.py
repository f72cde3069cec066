"""The experiments of the claims on arXiv 2503.12734, each computed once and shared."""

from functools import partial

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax

from ..flows import Ensemble, Linear, descend, descend_ensemble, init_many
from ..models import AbstractModel, FactoredAttention, MergedKQ, StructuredAttention
from ..risks import IntegratedRisk, SampledRisk
from ..tasks import AbstractTask, Estimate, LinearRegression, isotropic
from ..trajectory import Trajectory
from ._lab import Lab

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
    return annealed(rate, training_steps(lab))


def trained(lab: Lab, heads: int) -> Trajectory:
    """All of Q, K, V and O trained by Adam on fresh sequences, from the usual random weights."""

    def compute() -> Trajectory:
        model = FactoredAttention.init(jr.key(1), DIM, heads)
        return descend(
            model,
            SampledRisk(paper_task(), BATCH, precision="float32"),
            annealed_adam(lab),
            training_steps(lab),
            key=jr.key(2),
            save=Linear(101),
            progress=False,
        )

    return lab.once(f"softmax trained {heads}", compute)


def trained_ensemble(lab: Lab, seeds: int, steps: int, batch: int) -> Ensemble:
    """Many random initialisations of two heads, trained at once."""

    def compute() -> Ensemble:
        models = init_many(
            partial(FactoredAttention.init, dim=DIM, heads=2), jr.split(jr.key(3), seeds)
        )
        return descend_ensemble(
            models,
            SampledRisk(paper_task(), batch, precision="float32"),
            annealed(1e-2, steps),
            steps,
            keys=jr.split(jr.key(4), seeds),
            save=Linear(3),
            progress=False,
        )

    return lab.once(f"softmax ensemble {seeds} {steps} {batch}", compute)


def blind_ensemble(lab: Lab, heads: int, seeds: int, steps: int, batch: int) -> Ensemble:
    """Many random initialisations of merged heads whose attention does not see labels.

    They start with the circuits of the usual random Q, K, V and O. Labels are integrated out, so
    that a small batch is enough.
    """

    def init(key) -> MergedKQ:
        start = FactoredAttention.init(key, DIM, heads)
        return MergedKQ(
            v=start.ov()[:, -1],
            U=start.kq()[:, :DIM],
            activation="softmax",
            self_attention=False,
        )

    def compute() -> Ensemble:
        return descend_ensemble(
            init_many(init, jr.split(jr.key(3), seeds)),
            IntegratedRisk(paper_task(), batch, precision="float32"),
            annealed(1e-2, steps),
            steps,
            keys=jr.split(jr.key(4), seeds),
            save=Linear(21),
            progress=False,
        )

    return lab.once(f"softmax blind ensemble {heads} {seeds} {steps} {batch}", compute)


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
    target = sequences.y_query
    return (model.predict(sequences) - target) ** 2 - (reference.predict(sequences) - target) ** 2


def pair(omega: float, mu: float, dim: int = DIM) -> StructuredAttention:
    """Two heads (ω, μ) and (−ω, −μ)."""
    return StructuredAttention(
        omega=jnp.asarray([omega, -omega]), mu=jnp.asarray([mu, -mu]), dim=dim
    )


def structured(omega, mu, dim: int = DIM) -> StructuredAttention:
    """Heads with these numbers."""
    return StructuredAttention(omega=jnp.asarray(omega, float), mu=jnp.asarray(mu, float), dim=dim)


_SCHEDULES: dict[tuple[float, int], optax.GradientTransformation] = {}


def annealed(rate: float, steps: int) -> optax.GradientTransformation:
    """Adam whose learning rate goes from `rate` to zero along a cosine."""
    # A transformation is compiled in by identity: equal ones must be the same object.
    if (rate, steps) not in _SCHEDULES:
        _SCHEDULES[rate, steps] = optax.adam(optax.cosine_decay_schedule(rate, steps))
    return _SCHEDULES[rate, steps]
