"""What a config must have for claims on linear attention to speak of its run, in words."""

import numpy as np

from ... import theory
from ...config import Config
from .. import Need
from .._needs import accurate_flow, regression, scheme

# The reduced equation and the frozen kernel are solved up to this size.
_LARGEST_REDUCED = 16
# The most of another component that heads may typically have when they have learned their own.
_MOST_LEFT = 0.5


def linear_attention(*kinds: str) -> Need:
    """Reduced linear attention of one of these kinds, on linear regression."""

    def need(config: Config) -> str | None:
        model, words = config.model, " or ".join(kinds)
        if model.kind not in kinds:
            return f'speaks of {words} attention: `model.kind` = "{model.kind}"'
        if not model.bilinear:
            name = "activation" if model.softmax else "form"
            value = getattr(model, name)
            return f'speaks of reduced linear attention: `model.{name}` = "{value}"'
        if config.task.kind != "linear_regression":
            return f'speaks of linear regression: `task.kind` = "{config.task.kind}"'
        return None

    return need


def small(share: float) -> Need:
    """First weights that are small beside learned ones."""

    def need(config: Config) -> str | None:
        scale, size = getattr(config.model, "scale"), learned_size(config)
        if 0 < scale <= share * size:
            return None
        if scale == 0:
            return "needs initial weights that are not all zero: `model.scale` = 0"
        return (
            f"speaks of small first weights: `model.scale` = {scale:g} is above {share * size:.2g},"
            f" which is {share:g} of the size of learned ones"
        )

    return need


def learned_size(config: Config) -> float:
    """The size of a weight that has learned: the least of all components."""
    task, normaliser = regression(config), config.model.normaliser
    if config.model.kind == "merged":
        return float(np.sqrt(np.linalg.norm(theory.optimal_matrix(task, normaliser))))
    return float(np.cbrt(theory.modes(task, normaliser).strengths.min()))


def learnable(config: Config) -> str | None:
    """A task with something to learn, whose labels are not always zero."""
    if not np.any(np.asarray(regression(config).weight_second_moment)):
        return "speaks of tasks with a signal: that of `task` is zero"
    return None


def round_prior(config: Config) -> str | None:
    """Task vectors without a preferred direction."""
    moment = np.asarray(regression(config).weight_second_moment)
    if np.allclose(moment, moment[0, 0] * np.eye(len(moment)), rtol=1e-10, atol=0):
        return None
    return "speaks of task vectors with E[wwᵀ] ∝ I: that of `task` is not"


def same_orders(config: Config) -> str | None:
    """Components whose growth rates and gains fall together."""
    order = theory.learning_order(regression(config), config.model.normaliser)
    if order.agree and order.commuting:
        return None
    return "speaks of components that grow in the order in which they pay: those of `task` do not"


def white(config: Config) -> str | None:
    """White inputs."""
    covariance = np.asarray(regression(config).covariance)
    if np.allclose(covariance, covariance[0, 0] * np.eye(len(covariance)), rtol=1e-12, atol=0):
        return None
    return "speaks of white inputs: the eigenvalues of `task` differ"


def alignable(config: Config) -> str | None:
    """Components that grow so differently that a small head is along one when it has learned."""
    rates = np.sort(theory.modes(regression(config), config.model.normaliser).growth_rates)
    scale = getattr(config.model, "scale")
    nearest = float(np.max(rates[:-1] / rates[1:], initial=0.0))
    # A part that grows at a share ρ of the rate of another has fallen behind by this factor.
    left = (scale / learned_size(config)) ** (1 - nearest)
    if left <= _MOST_LEFT:
        return None
    return (
        "speaks of heads that are along one component when they have learned it: two grow at rates "
        f"of a ratio of {nearest:.3g}, too near for `model.scale` = {scale:g}"
    )


def large(share: float) -> Need:
    """First weights whose kernel, Hs², is so many times as large as what is learned."""

    def need(config: Config) -> str | None:
        scale, heads = getattr(config.model, "scale"), config.model.heads
        size = learned_size(config) ** 2
        if heads * scale**2 >= share * size:
            return None
        least = (share * size / heads) ** 0.5
        return (
            f"speaks of very large first weights: `model.scale` = {scale:g} is below {least:.3g} "
            f"for {heads} heads"
        )

    return need


def rank_one(config: Config) -> str | None:
    """Heads of rank one."""
    rank = config.model.widest_rank
    return None if rank == 1 else f"speaks of heads of rank one: `model.rank` = {rank}"


def enough_heads(config: Config) -> str | None:
    """Room for all components."""
    if config.model.kind == "merged":
        return None
    room = config.model.heads * config.model.widest_rank
    if room >= config.task.dim:
        return None
    return f"speaks of heads with room for all {config.task.dim} components: HR = {room} is less"


def few_heads(config: Config) -> str | None:
    """Room for some components alone."""
    room = config.model.heads * config.model.widest_rank
    if room < config.task.dim:
        return None
    return f"speaks of fewer heads than components: HR = {room} is not below {config.task.dim}"


def not_large(config: Config) -> str | None:
    """Inputs of a size up to which the reduced equation is solved."""
    if config.task.dim <= _LARGEST_REDUCED:
        return None
    return f"is computed up to {_LARGEST_REDUCED} inputs: `task` has {config.task.dim}"


MERGED = (linear_attention("merged"), accurate_flow)
SEPARATE = (linear_attention("separate"), accurate_flow)
# Heads along single components would be bound to them, and learn them in any order.
GENERIC = (*SEPARATE, scheme("gaussian", "balanced", "paper"))
