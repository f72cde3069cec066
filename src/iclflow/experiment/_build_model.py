"""Models from the settings of a config, with their initial weights."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import PRNGKeyArray

from ..config import Config
from ..models import (
    AbstractModel,
    AttentionStack,
    BalancedSpectral,
    BlindFactored,
    ConvolutionalLinear,
    FactoredAttention,
    FullMergedKQ,
    FullSeparateKQ,
    MergedKQ,
    MultiFactored,
    MultiMergedKQ,
    MultiStructured,
    SeparateKQ,
    SpectralAttention,
    StructuredAttention,
    TwoLayerLinear,
)

_SOFTMAX = {
    "structured": StructuredAttention,
    "factored": FactoredAttention,
    "stack": AttentionStack,
    "multi_merged": MultiMergedKQ,
    "multi_factored": MultiFactored,
    "multi_structured": MultiStructured,
    "multi_blind": BlindFactored,
}


def build_model(
    config: Config, key: PRNGKeyArray
) -> tuple[AbstractModel, MergedKQ | SeparateKQ | SpectralAttention | None]:
    """The model, and the reduced linear attention or the singular values that it starts as, where
    there are such."""
    task, settings = config.task, dict(config.model)
    kind, heads = settings.pop("kind"), settings.pop("heads")
    if kind in _SOFTMAX:
        sizes = (task.dim, task.labels) if config.model.multi else (task.dim,)
        return _SOFTMAX[kind].init(key, *sizes, heads, **settings), None
    if kind == "multi_spectral":
        return _spectral(config, key, heads, settings)
    full = settings.pop("form", "reduced") == "full"
    if kind in ("merged", "two_layer"):
        merged = MergedKQ.init(key, task.dim, heads, **settings)
        if kind == "two_layer":
            return TwoLayerLinear.from_attention(merged), merged
        if not full:
            return merged, merged
        model = FullMergedKQ.init(key, task.dim, heads, **settings)
        return model, None if settings["scheme"] == "default" else merged
    separate = SeparateKQ.init(key, task.dim, heads, **settings)
    if kind == "convolutional":
        return ConvolutionalLinear.from_attention(separate), separate
    return (FullSeparateKQ.embed(separate) if full else separate), separate


def _spectral(
    config: Config, key: PRNGKeyArray, heads: int, settings: dict
) -> tuple[AbstractModel, SpectralAttention]:
    """Decomposable heads with the weights that the config asks for; all start alike."""
    task = config.task
    weights = settings.pop("weights")
    imbalances = {name: settings.pop(name) for name in ("key_imbalance", "value_imbalance")}
    start_key, frame_key = jr.split(key)
    coordinates, dim = getattr(task, "coordinates"), task.dim
    start = BalancedSpectral.init(start_key, coordinates, heads, dim=dim, **settings)
    options = {name: getattr(start, name) for name in ("activation", "normaliser")}
    factors = SpectralAttention.of(
        start.omega(), start.mu(), coordinates, dim, start.width, **imbalances,
        self_attention=start.self_attention, **options,
    )  # fmt: skip
    if weights in ("balanced", "factors"):
        return start if weights == "balanced" else factors, factors
    turns = (getattr(task, name) for name in ("input_rotation", "output_rotation"))
    matrices = factors.factored(
        frame_key, *(None if turn is None else jnp.asarray(turn) for turn in turns)
    )
    return matrices if weights == "matrices" else matrices.embedded(), factors
