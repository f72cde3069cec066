"""Attention and the linear networks that it is equivalent to, trained side by side."""

import jax.numpy as jnp
import jax.random as jr

from ...flows import SaveEvenly, gradient_descent
from ...models import AbstractModel, TwoLayerLinear
from ...risks import dataset_risk
from ...tasks import Sequences
from ...trajectory import Trajectory
from .. import Lab, once
from .runs import four_components, merged_model

NETWORK_SETTING = {
    "sequences": 500, "heads": 8, "scale": 1e-2, "learning_rate": 0.05, "steps": 1500,
}  # fmt: skip


def with_mirror_images(sequences: Sequences) -> Sequences:
    """Every sequence, and the same with all its labels negated."""
    return Sequences(
        x=jnp.concatenate([sequences.x] * 2),
        y=jnp.concatenate([sequences.y, -sequences.y]),
        x_query=jnp.concatenate([sequences.x_query] * 2),
        y_query=jnp.concatenate([sequences.y_query, -sequences.y_query]),
        length=jnp.concatenate([sequences.length] * 2),
    )


@once
def network_runs(lab: Lab, mirrored: bool, first_weight: float = 1.0) -> tuple[Trajectory, ...]:
    """Full attention and its network, trained from the same weights on the same sequences.

    **Arguments:**

    - `mirrored`: whether the data set is closed under a change of sign of all labels.
    - `first_weight`: a factor on the first weight of the network's second layer.
    """
    setting = NETWORK_SETTING
    model = merged_model(setting["scale"])
    count = setting["sequences"]
    drawn = four_components().sample(jr.key(3), count // 2 if mirrored else count)
    drawn = with_mirror_images(drawn) if mirrored else drawn
    network = TwoLayerLinear.from_attention(model)
    network = TwoLayerLinear(network.W1, network.w2.at[0].multiply(first_weight))
    steps = {name: setting[name] for name in ("learning_rate", "steps")}
    return tuple(descend_on(m, drawn, **steps) for m in (model.embed(), network))


def descend_on(model: AbstractModel, drawn: Sequences, **options) -> Trajectory:
    return gradient_descent(model, dataset_risk(drawn, model), **options, save=SaveEvenly(101))
