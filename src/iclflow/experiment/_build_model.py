"""Models from the settings of a config, with their initial weights."""

from jaxtyping import PRNGKeyArray

from ..config import Config
from ..models import (
    AbstractModel,
    AttentionStack,
    ConvolutionalLinear,
    FactoredAttention,
    FullMergedKQ,
    FullSeparateKQ,
    MergedKQ,
    MultiFactored,
    MultiMergedKQ,
    MultiStructured,
    SeparateKQ,
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
}


def build_model(
    config: Config, key: PRNGKeyArray
) -> tuple[AbstractModel, MergedKQ | SeparateKQ | None]:
    """The model, and the reduced linear attention that it starts as, where there is one."""
    task, settings = config.task, dict(config.model)
    kind, heads = settings.pop("kind"), settings.pop("heads")
    if kind in _SOFTMAX:
        sizes = (task.dim, task.labels) if config.model.multi else (task.dim,)
        return _SOFTMAX[kind].init(key, *sizes, heads, **settings), None
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
