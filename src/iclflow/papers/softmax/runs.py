"""The experiments of the claims on arXiv 2503.12734, each computed once and shared."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from ...analysis import Patterns, patterns
from ...config import Config
from ...experiment import build_model, build_task, save_points
from ...flows import Ensemble, Rule, SaveEvenly, descend, descend_ensemble, init_many, sgd
from ...models import AbstractModel, Attention, Diagonal, Merged
from ...risks import AbstractRisk, IntegratedRisk, SampledRisk, sampled_risk
from ...tasks import Estimate, LinearRegression, estimate_mean, isotropic
from ...trajectory import Trajectory
from .. import Given, Lab, once, study, task_settings

_TASK = task_settings("softmax/paper")
DIM, CONTEXT, NOISE = len(_TASK["eigenvalues"]), _TASK["context"], _TASK["noise"]
# The paper's task as claims and figures record it.
SETTING = {"dim": DIM, "context": CONTEXT, "noise": NOISE}
HEADS = (1, 2, 4, 8)
# The signs of the two heads of a pair.
SIGNS = np.array([1.0, -1.0])


def paper_task(context: int = CONTEXT) -> LinearRegression:
    """The paper's task: d = 5, L = 40, σ² = 0.1, β ~ N(0, I/d)."""
    return isotropic(DIM, context, NOISE)


def structured_heads(omega: Any, mu: Any, dim: int = DIM) -> Attention:
    """Heads with one ω and one μ each."""
    return Attention(Diagonal(jnp.asarray(omega, float), jnp.asarray(mu, float), dim))


def train_on(
    config: Config, model: AbstractModel, key: int, factors: jax.Array | None = None
) -> Trajectory:
    """Trains `model` as a study says, on sequences drawn with the key of this number.

    The learning rate of Adam goes to zero along a cosine, which configs cannot express. `factors`
    multiply the update of each weight.
    """
    risk_options = {name: value for name, value in config.risk if name != "kind"}
    data = sampled_risk(build_task(config), model, **risk_options)
    options: Any = {"key": jr.key(key), "save": save_points(config), "progress": False}
    flow: Any = config.flow
    if flow.kind == "sgd":
        return sgd(model, data, flow.learning_rate, flow.steps, **options)
    rule = cosine_adam(flow.learning_rate, flow.steps)
    rule = rule if factors is None else Rule(rule, factors)
    return descend(model, data, rule, flow.steps, **options)


_SCHEDULES: dict[tuple[float, int], optax.GradientTransformation] = {}


def cosine_adam(rate: float, steps: int) -> optax.GradientTransformation:
    """Adam whose learning rate goes from `rate` to zero along a cosine."""
    # A transformation is compiled in by identity: equal ones must be the same object.
    if (rate, steps) not in _SCHEDULES:
        _SCHEDULES[rate, steps] = optax.adam(optax.cosine_decay_schedule(rate, steps))
    return _SCHEDULES[rate, steps]


def training_config(lab: Lab, heads: int = 2) -> Config:
    """The study that `trained_run` trains on, at the size of the tier."""
    # The paper trains 500 000 steps at 1e-3. With a rate that goes to zero at the end, a few
    # thousand steps at ten times that rate show the same patterns.
    steps, rate = lab.scaled(1500, 2500, 500_000), 1e-3 if lab.tier == "paper" else 1e-2
    flow = {"steps": steps, "learning_rate": rate}
    return study("softmax/trained", model={"heads": heads}, flow=flow)


@once
def trained_run(lab: Lab, heads: int) -> Trajectory:
    """All of Q, K, V and O trained by Adam on fresh sequences, from default random weights."""
    config = training_config(lab, heads)
    model, _ = build_model(config, jr.key(1))
    return train_on(config, model, 2)


def trained_given(lab: Lab, heads: int) -> Given:
    """The trained run as a claim's own."""
    return Given(training_config(lab, heads), paper_task(), trained_run(lab, heads), own=True)


def training_settings(lab: Lab) -> dict[str, Any]:
    """The settings of `trained_run`, as claims and figures record them."""
    config: Any = training_config(lab)
    sizes = {"batch": config.risk.batch, "steps": config.flow.steps}
    return SETTING | sizes | {"weights": "Q, K, V, O of width d + 1"}


def note_training(lab: Lab, heads: Any) -> None:
    """Records the settings of `trained_run`."""
    settings = {"heads": heads, "optimiser": "Adam, annealed", "steps_in_paper": 500_000}
    lab.note(**training_settings(lab), **settings)


def seed_sizes(lab: Lab, factored: bool = False) -> tuple[int, int, int]:
    """Seeds, steps and batch of the ensembles of random initial weights."""
    if factored:
        return 256, 50_000, 64
    sizes = {"smoke": (16, 1500, 8), "default": (64, 1500, 8), "paper": (1024, 20_000, 32)}
    return sizes[lab.tier]


def seed_settings(lab: Lab, heads: Any, factored: bool = False) -> dict[str, Any]:
    """The settings of the ensembles of random initial weights, as claims and figures record
    them."""
    sizes = dict(zip(("seeds", "steps", "batch"), seed_sizes(lab, factored)))
    weights = "Q, K, V, O of width d + 1" if factored else "merged, attention blind to labels"
    described = {"heads": heads, "weights": weights, "optimiser": "Adam, annealed from 1e-2"}
    return SETTING | sizes | described


@once
def trained_ensemble(lab: Lab) -> Ensemble:
    """Two heads with all of Q, K, V and O, from many random initial weights."""
    seeds, steps, batch = seed_sizes(lab, factored=True)
    data = SampledRisk(paper_task(), batch, precision="float32")
    return _train_seeds(partial(Attention.factored, dim=DIM, heads=2), data, seeds, steps, 3)


@once
def blind_ensemble(lab: Lab, heads: int) -> Ensemble:
    """Merged heads whose attention does not see labels, from many random initial weights.

    They start with the circuits of the usual random Q, K, V and O. Labels are integrated out, so
    that a small batch is enough.
    """

    def init(key: PRNGKeyArray) -> Attention:
        start = Attention.factored(key, DIM, heads)
        circuits = Merged.of(start.ov()[:, 0, -1], start.kq()[:, :DIM])
        return Attention(circuits, activation="softmax", self_attention=False)

    seeds, steps, batch = seed_sizes(lab)
    data = IntegratedRisk(paper_task(), batch, precision="float32")
    return _train_seeds(init, data, seeds, steps, 21)


def _train_seeds(
    init: Callable[..., Attention], data: AbstractRisk, seeds: int, steps: int, points: int
) -> Ensemble:
    models = init_many(init, jr.split(jr.key(3), seeds))
    keys = jr.split(jr.key(4), seeds)
    rule, save = cosine_adam(1e-2, steps), SaveEvenly(points)
    return descend_ensemble(models, data, rule, steps, keys=keys, save=save, progress=False)


def final_patterns(runs: Ensemble) -> list[Patterns]:
    """The patterns of every member at its end."""
    return [patterns(run.final) for run in runs]


def loss_beside(
    model: Attention, reference: Attention, reference_loss: float, count: int
) -> Estimate:
    """The loss of `model` on the paper's task, from its difference to a model whose loss is known
    exactly.

    On the same sequences the two make nearly the same errors, so that the difference has far less
    noise than either loss.
    """
    batch = min(count, 20_000)  # bounds the memory
    keys = [jr.fold_in(jr.key(5), i) for i in range(-(-count // batch))]
    parts = [_differences(model, reference, paper_task(), key, batch) for key in keys]
    difference = estimate_mean(jnp.concatenate(parts))
    return Estimate(reference_loss + difference.value, difference.standard_error)


@eqx.filter_jit
def _differences(model, reference, task, key, batch: int):
    sequences = task.sample(key, batch)
    loss = lambda model: sequences.squared_error(model.predict(sequences))
    return loss(model) - loss(reference)
