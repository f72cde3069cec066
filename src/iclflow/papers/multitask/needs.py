"""What a config must have for claims on several tasks to speak of its run, in words."""

from ...config import Config, MultiTask
from .._needs import accurate_flow


def spectral(config: Config) -> str | None:
    """Decomposable softmax heads on tasks with coordinates of their own, one length."""
    model, task = config.model, config.task
    if model.kind != "multi_spectral":
        return f'speaks of decomposable heads: `model.kind` = "{model.kind}"'
    if not model.label_blind and getattr(model, "weights") != "tokens":
        return "speaks of softmax attention over the context alone: `model` is other attention"
    if not isinstance(task, MultiTask) or not task.disjoint:
        return "speaks of tasks on coordinates of their own: those of `task.coordinates` overlap"
    if isinstance(task.context, tuple) and len(task.context) > 1:
        return "speaks of one context length: `task.context` has several"
    if task.signal is not None and min(task.signal) <= 0:
        return "speaks of tasks with a signal: one of `task.signal` is zero"
    return None


def large_context(config: Config) -> str | None:
    """The closed form of the loss."""
    if config.risk.kind == "large_context":
        return None
    return f'speaks of the large-context risk: `risk.kind` = "{config.risk.kind}"'


def balanced(config: Config) -> str | None:
    """Factors in balance."""
    for name in ("key_imbalance", "value_imbalance"):
        value = getattr(config.model, name)
        if value != 0:
            return f"speaks of factors in balance: `model.{name}` = {value:g}"
    return None


def moving(config: Config) -> str | None:
    """A start that is not zero."""
    for name in ("omega", "mu"):
        if getattr(config.model, name) == 0:
            return f"speaks of positive starts: `model.{name}` = 0"
    return None


def free(config: Config) -> str | None:
    """Weights that could leave the decomposable ones."""
    weights = getattr(config.model, "weights")
    if weights in ("matrices", "tokens"):
        return None
    return f'is true of these weights by construction: `model.weights` = "{weights}"'


def several_heads(config: Config) -> str | None:
    """Heads of which one can be ahead."""
    if config.model.heads > 1:
        return None
    return "speaks of heads of which one is ahead: `model.heads` = 1"


FLOW = (spectral, large_context, accurate_flow, balanced, moving)
