"""Conditions on the config of a run, each with the reason why a claim refuses it."""

from ...config import Config, MultiTask
from .._needs import accurate_flow


def spectral(config: Config) -> str | None:
    """Decomposable softmax heads on tasks with separate coordinates and one context length."""
    model, task = config.model, config.task
    if model.kind != "multi_spectral":
        return f'is about decomposable heads: `model.kind` = "{model.kind}"'
    if not model.label_blind and getattr(model, "weights") != "tokens":
        return "is about softmax attention over the context alone: `model` is other attention"
    if not isinstance(task, MultiTask) or not task.disjoint:
        return "is about tasks on separate coordinates: those of `task.coordinates` overlap"
    if isinstance(task.context, tuple) and len(task.context) > 1:
        return "is about one context length: `task.context` has several"
    if task.signal is not None and min(task.signal) <= 0:
        return "is about tasks with a signal: one of `task.signal` is zero"
    return None


def large_context(config: Config) -> str | None:
    """The large-context risk, the closed form of the loss."""
    if config.risk.kind == "large_context":
        return None
    return f'is about the large-context risk: `risk.kind` = "{config.risk.kind}"'


def balanced(config: Config) -> str | None:
    """Balanced factors."""
    for name in ("key_imbalance", "value_imbalance"):
        value = getattr(config.model, name)
        if value != 0:
            return f"is about balanced factors: `model.{name}` = {value:g}"
    return None


def moving(config: Config) -> str | None:
    """A start other than zero, where nothing moves."""
    for name in ("omega", "mu"):
        if getattr(config.model, name) == 0:
            return f"is about positive starts: `model.{name}` = 0"
    return None


def free(config: Config) -> str | None:
    """Weights that are not decomposable by construction."""
    weights = getattr(config.model, "weights")
    if weights in ("matrices", "tokens"):
        return None
    return f'is true of these weights by construction: `model.weights` = "{weights}"'


def several_heads(config: Config) -> str | None:
    """Several heads, so that one can be ahead."""
    if config.model.heads > 1:
        return None
    return "is about heads of which one is ahead: `model.heads` = 1"


FLOW = (spectral, large_context, accurate_flow, balanced, moving)
