"""The experiments of the claims on arXiv 2503.12734, each computed once and shared."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from ...analysis import Patterns, patterns
from ...config import Config
from ...experiment import build_task, save_points
from ...flows import Ensemble, Rule, SaveEvenly, descend, descend_ensemble, init_many, sgd
from ...models import AbstractModel, Attention, Diagonal, Merged
from ...risks import IntegratedRisk, sampled_risk
from ...tasks import LinearRegression, isotropic
from ...trajectory import Trajectory
from .. import Lab, once, task_settings

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


def seed_sizes(lab: Lab) -> tuple[int, int, int]:
    """Seeds, steps and batch of the ensembles of merged heads."""
    sizes = {"smoke": (16, 1500, 8), "default": (64, 1500, 8), "paper": (1024, 20_000, 32)}
    return sizes[lab.tier]


def seed_settings(lab: Lab, heads: Any) -> dict[str, Any]:
    """The settings of the ensembles of merged heads, as claims and figures record them."""
    sizes = dict(zip(("seeds", "steps", "batch"), seed_sizes(lab)))
    weights = "merged, attention blind to labels"
    described = {"heads": heads, "weights": weights, "optimiser": "Adam, annealed from 1e-2"}
    return SETTING | sizes | described


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
    models = init_many(init, jr.split(jr.key(3), seeds))
    keys, rule = jr.split(jr.key(4), seeds), cosine_adam(1e-2, steps)
    save = SaveEvenly(21)
    return descend_ensemble(models, data, rule, steps, keys=keys, save=save, progress=False)


@once
def final_patterns(lab: Lab, heads: int) -> list[Patterns]:
    """The patterns of every member of `blind_ensemble` at its end."""
    return [patterns(run.final) for run in blind_ensemble(lab, heads)]
