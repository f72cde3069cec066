"""Models from the settings of a config, with their initial weights."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..config import Config
from ..models import (
    AbstractModel,
    Attention,
    AttentionStack,
    BalancedSpectral,
    ConvolutionalLinear,
    Spectral,
    TwoLayerLinear,
    attention_from,
    known_circuits,
)

# Models whose initial weights theory does not read: how to make them, and extra arguments.
_PLAIN = {
    "structured": (Attention.diagonal, {}),
    "factored": (Attention.factored, {}),
    "stack": (AttentionStack.init, {}),
    "multi_merged": (Attention.merged, {"blind": False}),
    "multi_factored": (Attention.factored, {}),
    "multi_structured": (Attention.diagonal, {}),
    "multi_blind": (Attention.factored, {"blind": True}),
}


def build_model(config: Config, key: PRNGKeyArray) -> tuple[AbstractModel, Attention | None]:
    """The model, and the blind linear attention or the singular values that it is equivalent to at
    the start, if there are any.

    **Example:**

    ```pycon
    >>> config = icl.papers.study("linear/staircase")
    >>> key = icl.experiment.keys_of(config.seed).weights
    >>> model, attention = icl.experiment.build_model(config, key)
    >>> model.heads
    4
    ```
    """
    task, settings = config.task, dict(config.model)
    kind, heads = settings.pop("kind"), settings.pop("heads")
    if config.model.builds:
        circuits = known_circuits()[config.model.builds]
        make, given = attention_from(kind, getattr(circuits, "init")), {}
    else:
        make, given = _PLAIN.get(kind, (None, {}))
    if make is not None:
        labels = {"labels": task.labels} if config.model.multi else {}
        return make(key, task.dim, heads, **settings, **labels, **given), None
    if kind == "multi_spectral":
        return _spectral(config, key, heads, settings)
    full = settings.pop("form", "reduced") == "full"
    if kind in ("merged", "two_layer"):
        merged = Attention.merged(key, task.dim, heads, **settings)
        if kind == "two_layer":
            return TwoLayerLinear.from_attention(merged), merged
        if not full:
            return merged, merged
        model = Attention.merged(key, task.dim, heads, blind=False, **settings)
        return model, None if settings["scheme"] == "default" else merged
    separate = Attention.separate(key, task.dim, heads, **settings)
    if kind == "convolutional":
        return ConvolutionalLinear.from_attention(separate), separate
    return (separate.embed() if full else separate), separate


def _spectral(
    config: Config, key: PRNGKeyArray, heads: int, settings: dict
) -> tuple[AbstractModel, Attention]:
    """Decomposable heads with the weights of the config. All kinds of weights start alike."""
    task = config.task
    weights = settings.pop("weights")
    imbalances = {name: settings.pop(name) for name in ("key_imbalance", "value_imbalance")}
    start_key, frame_key = jr.split(key)
    coordinates, dim = getattr(task, "coordinates"), task.dim
    start = Attention.balanced(start_key, coordinates, heads, dim=dim, **settings)
    balanced = start.circuits
    assert isinstance(balanced, BalancedSpectral)
    factors = Spectral.of(
        balanced.omega(), balanced.mu(), coordinates, dim, balanced.width, **imbalances
    )
    turns = (getattr(task, name) for name in ("input_rotation", "output_rotation"))
    turns = [None if turn is None else jnp.asarray(turn) for turn in turns]
    chosen = {
        "balanced": lambda: balanced,
        "factors": lambda: factors,
        "matrices": lambda: factors.factored(frame_key, *turns),
        "tokens": lambda: factors.factored(frame_key, *turns).embed(),
    }
    with_circuits = lambda circuits: eqx.tree_at(lambda model: model.circuits, start, circuits)
    return with_circuits(chosen[weights]()), with_circuits(factors)
