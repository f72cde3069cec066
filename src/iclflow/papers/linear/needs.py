"""What a config must have for a claim on linear attention to be about its run, in words."""

import numpy as np

from ... import theory
from ...config import Config
from .. import Need
from .._needs import accurate_flow, regression, scheme

# The reduced equation and the frozen kernel have D² unknowns and D⁴ couplings: seconds up to here.
_LARGEST_REDUCED = 16
# The most of another component that heads may typically have when they have learned their own.
_MOST_LEFT = 0.5


def linear_attention(*kinds: str) -> Need:
    """Reduced linear attention of one of these kinds, on linear regression."""

    def need(config: Config) -> str | None:
        model, words = config.model, " or ".join(kinds)
        if model.kind not in kinds:
            return f'is about {words} attention: `model.kind` = "{model.kind}"'
        if not model.bilinear:
            name = "activation" if model.softmax else "form"
            value = getattr(model, name)
            return f'is about reduced linear attention: `model.{name}` = "{value}"'
        if config.task.kind != "linear_regression":
            return f'is about linear regression: `task.kind` = "{config.task.kind}"'
        return None

    return need


def small(share: float) -> Need:
    """Initial weights that are at most this share of learned ones."""

    def need(config: Config) -> str | None:
        scale, size = getattr(config.model, "scale"), learned_size(config)
        if 0 < scale <= share * size:
            return None
        if scale == 0:
            return "needs initial weights that are not all zero: `model.scale` = 0"
        return (
            f"is about small initial weights: `model.scale` = {scale:g} is above "
            f"{share * size:.2g}, which is {share:g} of the size of learned ones"
        )

    return need


def large(share: float) -> Need:
    """Initial weights whose kernel, Hs², is at least this many times as large as learned ones."""

    def need(config: Config) -> str | None:
        scale, heads = getattr(config.model, "scale"), config.model.heads
        least = (share * learned_size(config) ** 2 / heads) ** 0.5
        if scale >= least:
            return None
        return (
            f"is about very large initial weights: `model.scale` = {scale:g} is below {least:.3g} "
            f"for {heads} heads"
        )

    return need


def learned_size(config: Config) -> float:
    """The size of a learned weight; of separate heads, that of the weakest component.

    A is a product of two merged weights and of three separate ones: hence the two roots.
    """
    task, normaliser = regression(config), config.model.normaliser
    if config.model.kind == "merged":
        return float(np.sqrt(np.linalg.norm(theory.optimal_matrix(task, normaliser))))
    return float(np.cbrt(theory.modes(task, normaliser).strengths.min()))


def learnable(config: Config) -> str | None:
    """A task with something to learn, whose labels are not always zero."""
    if np.any(np.asarray(regression(config).weight_second_moment)):
        return None
    return "is about tasks with a signal: that of `task` is zero"


def round_prior(config: Config) -> str | None:
    """Task vectors without a preferred direction."""
    if _is_round(regression(config).weight_second_moment, 1e-10):
        return None
    return "is about task vectors with E[wwᵀ] ∝ I: that of `task` is not"


def white(config: Config) -> str | None:
    """White inputs."""
    if _is_round(regression(config).covariance, 1e-12):
        return None
    return "is about white inputs: the eigenvalues of `task` differ"


def _is_round(matrix, tolerance: float) -> bool:
    """Whether a matrix is a multiple of the identity."""
    matrix = np.asarray(matrix)
    return np.allclose(matrix, matrix[0, 0] * np.eye(len(matrix)), rtol=tolerance, atol=0)


def same_orders(config: Config) -> str | None:
    """Components whose growth rates and gains fall together."""
    order = theory.learning_order(regression(config), config.model.normaliser)
    if order.agree and order.commuting:
        return None
    return "is about components that grow in the order in which they pay: those of `task` do not"


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
        "is about heads that are along one component when they have learned it: two grow at rates "
        f"of a ratio of {nearest:.3g}, too near for `model.scale` = {scale:g}"
    )


def rank_one(config: Config) -> str | None:
    """Heads of rank one."""
    rank = config.model.widest_rank
    return None if rank == 1 else f"is about heads of rank one: `model.rank` = {rank}"


def _room(config: Config) -> int:
    """How many components the heads can learn."""
    return config.model.heads * config.model.widest_rank


def enough_heads(config: Config) -> str | None:
    """Room for all components; a single merged head has it."""
    dim = config.task.dim
    if config.model.kind == "merged" or _room(config) >= dim:
        return None
    return f"is about heads with room for all {dim} components: HR = {_room(config)} is less"


def few_heads(config: Config) -> str | None:
    """Room for some components alone."""
    dim = config.task.dim
    if _room(config) < dim:
        return None
    return f"is about fewer heads than components: HR = {_room(config)} is not below {dim}"


def not_large(config: Config) -> str | None:
    """A number of inputs up to which the reduced equation is solved."""
    if config.task.dim <= _LARGEST_REDUCED:
        return None
    return f"is computed up to {_LARGEST_REDUCED} inputs: `task` has {config.task.dim}"


MERGED = (linear_attention("merged"), accurate_flow)
SEPARATE = (linear_attention("separate"), accurate_flow)
# Heads that start along single components would keep to them, and learn them in any order.
GENERIC = (*SEPARATE, scheme("gaussian", "balanced", "paper"))
